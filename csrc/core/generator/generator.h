// generator.h: at::Generator over the HAL's Philox state.
#pragma once

#include <ATen/core/Generator.h>

#include <cstdint>
#include <optional>

namespace torch_backend {

struct PhiloxState {
  uint64_t seed, offset;
};

// Reserves `blocks` Philox4x32-10 blocks of the given generator, or of the device's default one. Throws when the
// generator belongs to another device, in PyTorch's words ("Expected a '...' device type for generator but found
// '...'").
PhiloxState reserve_philox(const std::optional<at::Generator> &generator, c10::DeviceIndex device, uint64_t blocks);

// The device's default generator, and a new one. Index -1 = current device.
const at::Generator &default_generator(c10::DeviceIndex device);
at::Generator new_generator(c10::DeviceIndex device);

}  // namespace torch_backend
