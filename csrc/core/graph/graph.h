// graph.h: torch.accelerator.Graph over recorded programs (hal/program.h).
#pragma once

#include <c10/core/Allocator.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "hal/hal.h"

namespace torch_backend {

// Memory that a program sets apart (torch.<name>.MemPool), by an id that graphs may have too. Its pool is of the device that uses it first, and
// lives as long as one of them.
class MemoryPool {
 public:
  explicit MemoryPool(c10::MempoolId_t id) : id_(std::move(id)) {}
  ~MemoryPool();
  MemoryPool(const MemoryPool &) = delete;
  MemoryPool &operator=(const MemoryPool &) = delete;

  // What the device's current stream allocates comes from it, until the end, which takes what this gives.
  uintptr_t begin(int32_t device);
  void end(uintptr_t stream);

 private:
  c10::MempoolId_t id_;
  hal_memory_pool_t *pool_ = nullptr;
};

// Refuses what the capture of a device's current stream cannot hold, with a message: throws it, and the capture is spoiled. Nothing without a capture.
void refuse_in_capture(c10::DeviceIndex device, const std::function<std::string()> &message);

// Notes what the user is told that could not be captured on the current stream: the end of the capture, which that has spoiled, tells it too.
void note_refused(const std::string &message);

// Checks a copy to the host. What the capture of the current stream refuses is told as what the user has called.
void check_read(hal_status_t status, const char *called);

// Makes torch.accelerator.Graph work for the device type; once it has its name.
void register_graphs();

}  // namespace torch_backend
