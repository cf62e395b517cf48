// generator.h: random numbers of Philox4x32-10, whose state is a seed and an offset.
#pragma once

#include <ATen/core/Generator.h>

#include <cstdint>

#include "device.h"

namespace torch_backend {

// Returns the default generator of a device (-1: the current one); starts no device. Since 0.1.
const at::Generator &get_default_generator(c10::DeviceIndex device = -1);

// Creates a generator for a device (-1: the current one). Since 0.1.
at::Generator create_generator(c10::DeviceIndex device = -1);

// Seeds the default generators of all devices. Since 0.1.
void manual_seed_all(uint64_t seed);

// The start of a random operator's sequence.
struct PhiloxSeed {
  uint64_t seed, offset;
};

// Reserves `blocks` blocks of four 32-bit words of a generator, for a program's own kernel. Numbers generated later
// come after them. Throws c10::Error for a generator of another device type. Since 0.1.
PhiloxSeed reserve_random_blocks(const at::Generator &generator, uint64_t blocks);

}  // namespace torch_backend
