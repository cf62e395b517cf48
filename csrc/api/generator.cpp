// generator.cpp: generators of the C++ API.
#include "api/generator.h"

#include "core/generator/generator.h"

namespace torch_backend {

const at::Generator &get_default_generator(c10::DeviceIndex device) { return default_generator(device); }

at::Generator create_generator(c10::DeviceIndex device) { return new_generator(device); }

void manual_seed_all(uint64_t seed) {
  for (c10::DeviceIndex device = 0; device < device_count(); device++) {
    at::Generator generator = default_generator(device);
    const std::lock_guard<std::mutex> lock(generator.mutex());
    generator.set_current_seed(seed);
  }
}

PhiloxSeed reserve_random_blocks(const at::Generator &generator, uint64_t blocks) {
  TORCH_CHECK(generator.defined(),
              "reserve_random_blocks needs a generator; get_default_generator returns the device's default one");
  const PhiloxState state = reserve_philox(generator, generator.device().index(), blocks);
  TORCH_CHECK(state.state == nullptr,
              "reserve_random_blocks returns an offset on the host, which every replay of a graph would repeat: call "
              "it before or after the "
              "capture, or use torch's random functions");
  return {state.seed, state.offset};
}

}  // namespace torch_backend
