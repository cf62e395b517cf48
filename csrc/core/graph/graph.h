// graph.h: torch.accelerator.Graph, implemented by recorded programs (hal/program.h).
#pragma once

#include <c10/core/Allocator.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "hal/hal.h"

namespace torch_backend {

// Throws an error with a message, and invalidates the capture, if the device's current stream is captured. Does nothing
// without a capture.
void refuse_in_capture(c10::DeviceIndex device, const std::function<std::string()> &message);

// Records the error message of an operator that could not be captured on the current stream and has invalidated the
// capture. The end of the capture reports it, too.
void note_refused(const std::string &message);

// Checks a copy to the host. If the capture of the current stream refuses it, the error names the function that the
// user called.
void check_read(hal_status_t status, const char *called);

// Registers torch.accelerator.Graph for the device type, once that has its name.
void register_graphs();

}  // namespace torch_backend
