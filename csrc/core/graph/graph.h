// graph.h: torch.accelerator.Graph over recorded programs (hal/program.h).
#pragma once

#include <c10/core/Allocator.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "hal/hal.h"

namespace torch_backend {

// Refuses what the capture of a device's current stream cannot hold, with a message: throws it, and the capture is invalidated. Nothing without a capture.
void refuse_in_capture(c10::DeviceIndex device, const std::function<std::string()> &message);

// Records an error message: what could not be captured on the current stream; the end of the capture, which it has invalidated, reports it too.
void note_refused(const std::string &message);

// Checks a copy to the host. What the capture of the current stream refuses is told as what the user has called.
void check_read(hal_status_t status, const char *called);

// Makes torch.accelerator.Graph work for the device type; once it has its name.
void register_graphs();

}  // namespace torch_backend
