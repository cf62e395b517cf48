// sync_debug.cpp: see sync_debug.h.
#include "core/sync_debug.h"

#include <c10/util/Exception.h>

#include "core/device.h"

namespace torch_backend {

std::atomic<SyncDebugMode> sync_debug_mode{SyncDebugMode::kOff};

void report_host_wait(c10::DeviceIndex device, const char *operation) {
  const c10::Device where(kDevice, device);
  TORCH_CHECK(sync_debug_mode.load(std::memory_order_relaxed) != SyncDebugMode::kError,
              "called a synchronizing operation on '", where, "': ", operation, " waits for the device");
  TORCH_WARN("called a synchronizing operation on '", where, "': ", operation, " waits for the device");
}

}  // namespace torch_backend
