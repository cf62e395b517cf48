// store.cpp: see store.h.
#include "distributed/store.h"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "hal/hal.h"

namespace torch_backend {
namespace {

// Reports a call of the store that threw.
hal_status_t no_response(const BoundedStore &store, const std::string &what, const std::exception &error) {
  const auto *torch_error = dynamic_cast<const c10::Error *>(&error);
  const char *const words = torch_error ? torch_error->what_without_backtrace() : error.what();
  const std::string line(words, std::strcspn(words, "\n"));
  if (store.address().empty())
    return hal_error_set(HAL_UNAVAILABLE, "%s: the store failed: %s", what.c_str(), line.c_str());
  return hal_error_set(HAL_UNAVAILABLE,
                       "%s: the store%s does not respond (%s); the process that serves it, rank 0 or torchrun, has "
                       "ended or is stopped",
                       what.c_str(), store.address().c_str(), line.c_str());
}

std::string key_text(const char *what, const char *key) { return std::string(what) + " the key '" + key + "'"; }

hal_status_t set(void *context, const char *key, const void *value, size_t size) {
  const auto *bytes = static_cast<const uint8_t *>(value);
  auto &store = *static_cast<BoundedStore *>(context);
  try {
    store.set(key, std::vector<uint8_t>(bytes, bytes + size));
    return HAL_OK;
  } catch (const std::exception &error) {
    return no_response(store, key_text("storing", key), error);
  }
}

hal_status_t get(void *context, const char *key, int64_t timeout_ns, void *out, size_t room, size_t *out_size) {
  auto &store = *static_cast<BoundedStore *>(context);
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
    const std::vector<uint8_t> value = store.get(key);
    if (room) std::memcpy(out, value.data(), std::min(room, value.size()));
    *out_size = value.size();
    return HAL_OK;
  } catch (const std::exception &error) {
    return no_response(store, key_text("reading", key), error);
  }
}

}  // namespace

hal_comm_store_t store_table(BoundedStore &store) {
  hal_comm_store_t table{};
  table.struct_size = sizeof(table);
  table.context = &store;
  table.set = set;
  table.get = get;
  return table;
}

hal_status_t clone_store(const BoundedStore::StorePtr &store, const std::string &prefix,
                         std::chrono::milliseconds timeout, c10::intrusive_ptr<BoundedStore> *out) {
  const auto bounded = c10::make_intrusive<BoundedStore>(store, timeout);
  try {
    auto prefixed = c10::make_intrusive<c10d::PrefixStore>(prefix, bounded->clone());
    *out = c10::make_intrusive<BoundedStore>(std::move(prefixed), timeout);
    return HAL_OK;
  } catch (const std::exception &error) {
    return no_response(*bounded, "connecting to the store", error);
  }
}

}  // namespace torch_backend
