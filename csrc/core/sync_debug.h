// sync_debug.h: reports operators that make the host wait for a device (torch.<name>.set_sync_debug_mode).
#pragma once

#include <c10/core/Device.h>
#include <c10/macros/Macros.h>

#include <atomic>
#include <cstdint>

namespace torch_backend {

enum class SyncDebugMode : int32_t { kOff = 0, kWarn = 1, kError = 2 };

extern std::atomic<SyncDebugMode> sync_debug_mode;

// Warns about a wait, or throws instead of it; `operation` is the function that the user called.
void report_host_wait(c10::DeviceIndex device, const char *operation);

// To be called before an operator that waits has queued any work. Explicit waits, such as synchronize(), are not
// reported.
inline void note_host_wait(c10::DeviceIndex device, const char *operation) {
  if (C10_UNLIKELY(sync_debug_mode.load(std::memory_order_relaxed) != SyncDebugMode::kOff))
    report_host_wait(device, operation);
}

}  // namespace torch_backend
