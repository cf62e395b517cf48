// generator.h: at::Generator based on the HAL's Philox state.
#pragma once

#include <ATen/core/Generator.h>

#include <cstdint>
#include <optional>

namespace torch_backend {

// The source of random numbers. With `state`, which is in device memory, seed and first block are state[0] and state[1]
// + offset at run time. So a recorded call generates new numbers in each run.
struct PhiloxState {
  uint64_t seed, offset;
  const uint64_t *state = nullptr;
};

// Reserves `blocks` Philox4x32-10 blocks of the given generator, or of the device's default one, for work of the
// current stream. Throws PyTorch's error ("Expected a '...' device type for generator but found '...'") if the
// generator belongs to another device.
PhiloxState reserve_philox(const std::optional<at::Generator> &generator, c10::DeviceIndex device, uint64_t blocks);

// Return the device's default generator, and a new one. Index -1 = current device.
const at::Generator &default_generator(c10::DeviceIndex device);
at::Generator new_generator(c10::DeviceIndex device);

// Returns a generator that generates these numbers, and the same ones in each call.
at::Generator generator_at(c10::DeviceIndex device, PhiloxState state);

}  // namespace torch_backend
