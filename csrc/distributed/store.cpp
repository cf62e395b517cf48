// store.cpp: see store.h.
#include "distributed/store.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <string>
#include <vector>

#include "hal/hal.h"

namespace torch_backend {
namespace {

hal_status_t set(void *context, const char *key, const void *value, size_t size) {
  const auto *bytes = static_cast<const uint8_t *>(value);
  try {
    static_cast<c10d::Store *>(context)->set(key, std::vector<uint8_t>(bytes, bytes + size));
    return HAL_OK;
  } catch (const std::exception &error) {
    return hal_error_set(HAL_UNAVAILABLE, "the store did not take the key '%s': %s", key, error.what());
  }
}

hal_status_t get(void *context, const char *key, int64_t timeout_ns, void *out, size_t room, size_t *out_size) {
  auto &store = *static_cast<c10d::Store *>(context);
  const std::chrono::milliseconds timeout(std::max<int64_t>(timeout_ns / 1000000, 1));
  try {
    store.wait({key}, timeout);
  } catch (const std::exception &error) {
    const std::string text = error.what();
    const bool is_late = text.find("imeout") != std::string::npos || text.find("imed out") != std::string::npos;
    return hal_error_set(is_late ? HAL_NOT_READY : HAL_UNAVAILABLE, "waiting for the key '%s' of the store: %s", key,
                         text.c_str());
  }
  try {
    const std::vector<uint8_t> value = store.get(key);
    if (room) std::memcpy(out, value.data(), std::min(room, value.size()));
    *out_size = value.size();
    return HAL_OK;
  } catch (const std::exception &error) {
    return hal_error_set(HAL_UNAVAILABLE, "reading the key '%s' of the store: %s", key, error.what());
  }
}

}  // namespace

hal_comm_store_t store_table(c10d::Store &store) {
  hal_comm_store_t table{};
  table.struct_size = sizeof(table);
  table.context = &store;
  table.set = set;
  table.get = get;
  return table;
}

}  // namespace torch_backend
