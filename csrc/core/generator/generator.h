// generator.h: at::Generator over the HAL's Philox state.
#pragma once

#include <ATen/core/Generator.h>

#include <cstdint>
#include <optional>

namespace torch_backend {

// Where random numbers come from. With `state`, which lies in device memory, seed and first block are state[0] and state[1] + offset when
// the work runs: that is how a recorded call draws new numbers in each run.
struct PhiloxState {
  uint64_t seed, offset;
  const uint64_t *state = nullptr;
};

// Reserves `blocks` Philox4x32-10 blocks of the given generator, or of the device's default one, for work of the current stream. Throws when the
// generator belongs to another device, in PyTorch's words ("Expected a '...' device type for generator but found
// '...'").
PhiloxState reserve_philox(const std::optional<at::Generator> &generator, c10::DeviceIndex device, uint64_t blocks);

// The device's default generator, and a new one. Index -1 = current device.
const at::Generator &default_generator(c10::DeviceIndex device);
at::Generator new_generator(c10::DeviceIndex device);

// A generator that gives these numbers to whoever asks, and again the same.
at::Generator generator_at(c10::DeviceIndex device, PhiloxState state);

}  // namespace torch_backend
