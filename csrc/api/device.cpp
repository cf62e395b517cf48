// device.cpp: devices of the C++ API, implemented by the HAL.
#include "api/device.h"

#include <c10/core/DeviceType.h>
#include <dlfcn.h>

#include <filesystem>

#include "core/device.h"
#include "core/package/runner.h"
#include "core/status.h"
#include "hal/hal.h"

namespace torch_backend {
namespace {

// Adds the plugins that are installed with this library: ../plugins, relative to it.
void add_own_plugins() {
  Dl_info self{};
  if (dladdr(reinterpret_cast<const void *>(&hal_registry_open), &self) == 0 || self.dli_fname == nullptr) return;
  std::error_code error;
  const std::filesystem::path library = std::filesystem::canonical(self.dli_fname, error);
  const std::filesystem::path folder = library.parent_path().parent_path() / "plugins";
  if (!error && std::filesystem::is_directory(folder, error)) check(hal_registry_add_path(folder.c_str()));
}

}  // namespace

void open(const std::string &plugins) {
  if (hal_registry_is_open()) return;
  add_own_plugins();
  check(hal_registry_open(plugins.empty() ? nullptr : plugins.c_str()));
  if (hal_registry_plugin_count() == 0 || c10::is_privateuse1_backend_registered()) return;
  hal_registry_entry_t first{};
  first.struct_size = sizeof first;
  check(hal_registry_plugin(0, &first));
  c10::register_privateuse1_backend(first.name);
  register_package_runner();
}

bool is_available() noexcept { return hal_device_count() > 0; }

c10::DeviceIndex device_count() noexcept { return static_cast<c10::DeviceIndex>(hal_device_count()); }

bool is_initialized(c10::DeviceIndex device) noexcept { return hal_device_is_initialized(device) != 0; }

c10::DeviceIndex current_device() noexcept { return static_cast<c10::DeviceIndex>(hal_device_current()); }

void set_device(c10::DeviceIndex device) { check(hal_device_set_current(device)); }

c10::DeviceIndex exchange_device(c10::DeviceIndex device) {
  const c10::DeviceIndex previous = current_device();
  if (device != previous) set_device(device);
  return previous;
}

c10::DeviceIndex maybe_exchange_device(c10::DeviceIndex device) {
  return device < 0 ? static_cast<c10::DeviceIndex>(-1) : exchange_device(device);
}

void synchronize(c10::DeviceIndex device) { synchronize_device(device); }

DeviceProperties device_properties(c10::DeviceIndex device) {
  hal_device_info_t info{};
  info.struct_size = sizeof info;
  check(hal_device_info(index_or_current(device), &info));
  DeviceProperties properties;
  properties.name = info.name;
  properties.total_memory = info.total_memory;
  properties.multi_processor_count = info.compute_units;
  properties.warp_size = info.subgroup_size;
  properties.max_threads_per_block = info.max_block_threads;
  properties.shared_memory_per_block = info.max_shared_bytes;
  properties.flags = info.flags;
  properties.dialects = info.dialects;
  properties.architecture = info.architecture;
  properties.driver_version = info.driver_version;
  properties.firmware_version = info.firmware_version;
  properties.l2_cache_size = info.l2_bytes;
  properties.async_engine_count = info.copy_engines;
  if (info.known & HAL_DEVICE_KNOWS_NUMA_NODE) properties.numa_node = info.numa_node;
  if (info.known & HAL_DEVICE_KNOWS_PARTITION) properties.partition_index = static_cast<int32_t>(info.partition_index);
  return properties;
}

bool can_access_peer(c10::DeviceIndex device, c10::DeviceIndex peer) {
  int32_t accessible = 0;
  check(hal_device_can_access_peer(device, peer, &accessible));
  return accessible != 0;
}

}  // namespace torch_backend
