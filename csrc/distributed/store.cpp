// store.cpp: see store.h.
#include "distributed/store.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <thread>
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
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::nanoseconds(timeout_ns);
  std::chrono::microseconds pause(100);
  // Not `wait`: TCPStore logs when its time is over, and keeps the connection, which other groups share.
  try {
    while (!store.check({key})) {
      if (std::chrono::steady_clock::now() >= deadline)
        return hal_error_set(HAL_NOT_READY, "the store has no key '%s' after %.3f s", key,
                             static_cast<double>(timeout_ns) / 1e9);
      std::this_thread::sleep_for(pause);
      pause = std::min(pause * 2, std::chrono::microseconds(10000));
    }
  } catch (const std::exception &error) {
    return hal_error_set(HAL_UNAVAILABLE, "looking for the key '%s' of the store: %s", key, error.what());
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
