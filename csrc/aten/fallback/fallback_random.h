// fallback_random.h: random numbers for CPU kernels from the device's seed.
#pragma once

#include <ATen/core/Generator.h>

#include <optional>

namespace torch_backend {

// Returns a CPU generator whose state is a function of the device generator's seed and offset. The offset advances, so
// that each call generates other numbers. Valid until the thread's next call.
at::Generator fallback_generator(const std::optional<at::Generator> &generator, c10::DeviceIndex device);

}  // namespace torch_backend
