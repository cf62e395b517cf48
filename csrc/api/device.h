// device.h: devices of all active plugins under one numbering, for C++ programs. Errors are c10's exceptions, with the
// message of the plugin or the HAL.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string>

namespace torch_backend {

// The device type of all plugins' devices; it has the name of the first plugin ("fake").
constexpr c10::DeviceType kDeviceType = c10::DeviceType::PrivateUse1;

// The properties that a device reports; numbers are 0 if unknown.
struct DeviceProperties {
  std::string name;
  uint64_t total_memory = 0;             // bytes
  uint32_t multi_processor_count = 0;    // compute units
  uint32_t warp_size = 0;                // threads that execute in lockstep
  uint32_t max_threads_per_block = 0;    // of a kernel launch
  uint32_t shared_memory_per_block = 0;  // bytes
  uint64_t flags = 0;                    // HAL_DEVICE_* of hal/plugin.h
  std::string dialects;                  // of kernel modules, in the order of preference
  // Since 0.2; empty or 0 if the plugin does not report them.
  std::string architecture;         // of the vendor's compiler: "sm_90"
  std::string driver_version;       // as the vendor writes it
  std::string firmware_version;     // of the device's own firmware
  uint64_t l2_cache_size = 0;       // bytes
  uint32_t async_engine_count = 0;  // engines that copy while kernels run
  int32_t numa_node = -1;           // of the host memory nearest to the device; -1: unknown
  int32_t partition_index = -1;     // which part of a partitioned device this is; -1: a whole device
};

// Activates plugins, by name or absolute path, separated by commas, and names torch's device type after the first one.
// "" means the value of TORCH_BACKEND. Python programs call torch_backend.use instead. Once per process: a second call
// with open plugins does nothing. Throws c10::Error if a plugin cannot be loaded. Since 0.1.
void open(const std::string &plugins = "");

// Returns whether there is a device; starts none. Since 0.1.
bool is_available() noexcept;

// Returns the number of devices; starts none. Since 0.1.
c10::DeviceIndex device_count() noexcept;

// Returns whether a device was used in this process. Since 0.1.
bool is_initialized(c10::DeviceIndex device) noexcept;

// Returns the calling thread's current device, 0 at first. Since 0.1.
c10::DeviceIndex current_device() noexcept;

// Sets the calling thread's current device. Throws c10::Error for an index out of range. Since 0.1.
void set_device(c10::DeviceIndex device);

// Sets the current device and returns the previous one. Throws c10::Error for an index out of range. Since 0.1.
c10::DeviceIndex exchange_device(c10::DeviceIndex device);

// The same, where a negative index changes nothing and returns -1. Since 0.1.
c10::DeviceIndex maybe_exchange_device(c10::DeviceIndex device);

// Waits for all work of a device (-1: the current one); throws the error of work that failed. Since 0.1.
void synchronize(c10::DeviceIndex device = -1);

// Returns the properties of a device (-1: the current one); starts it. Since 0.1.
DeviceProperties device_properties(c10::DeviceIndex device = -1);

// Returns whether `device` accesses the memory of `peer` directly. Since 0.1.
bool can_access_peer(c10::DeviceIndex device, c10::DeviceIndex peer);

}  // namespace torch_backend
