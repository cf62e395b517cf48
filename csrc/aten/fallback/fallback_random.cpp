// fallback_random.cpp: see fallback_random.h.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "aten/fallback/fallback_random.h"

#include <ATen/CPUGeneratorImpl.h>

#include "core/generator/generator.h"
#include "hal/hal.h"

namespace torch_backend {
namespace {

// Philox stream of the seeds, so that they differ from the numbers that native operators generate (stream 0):
// "FALLBACK".
constexpr uint64_t kSeedStream = 0x46414c4c4241434bu;

// Returns the next number of splitmix64 (Steele, Lea, Flood 2014), which expands a 64-bit seed to the 19,968 bits of
// the state.
uint64_t splitmix64(uint64_t &state) {
  uint64_t z = state += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// at::mt19937(seed) would use 32 bits of the seed only: two of 65,000 calls would then generate the same numbers.
at::mt19937 engine_from(uint64_t seed) {
  at::mt19937_data_pod data{};
  data.seed_ = seed;
  data.seeded_ = true;
  data.left_ = 1;  // the next call generates a new block
  uint64_t state = seed;
  for (size_t i = 0; i < data.state_.size(); i += 2) {
    const uint64_t number = splitmix64(state);
    data.state_[i] = static_cast<uint32_t>(number);
    data.state_[i + 1] = static_cast<uint32_t>(number >> 32);
  }
  at::mt19937 engine;
  engine.set_data(data);
  return engine;
}

}  // namespace

at::Generator fallback_generator(const std::optional<at::Generator> &generator, c10::DeviceIndex device) {
  thread_local at::Generator cpu = at::detail::createCPUGenerator();
  const PhiloxState philox = reserve_philox(generator, device, 1);
  uint32_t words[4];
  hal_generator_philox(philox.seed, philox.offset, kSeedStream, words);
  auto *impl = static_cast<at::CPUGeneratorImpl *>(cpu.unsafeGetGeneratorImpl());
  const std::lock_guard<std::mutex> guard(impl->mutex_);
  impl->set_engine(engine_from(words[0] | static_cast<uint64_t>(words[1]) << 32));
  impl->set_next_float_normal_sample(std::nullopt);
  impl->set_next_double_normal_sample(std::nullopt);
  return cpu;
}

}  // namespace torch_backend
