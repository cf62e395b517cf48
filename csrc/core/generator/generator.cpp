// generator.cpp: at::Generator based on the HAL's Philox state. A state tensor has 16 bytes, seed and offset, as on
// CUDA.
#include "core/generator/generator.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <c10/core/GeneratorImpl.h>

#include <array>
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>

#include "core/allocator/allocator.h"
#include "core/compat.h"
#include "core/device.h"
#include "core/graph/graph.h"
#include "core/status.h"

namespace torch_backend {
namespace {

using State = std::shared_ptr<hal_generator_t>;

static_assert(HAL_DEFAULT_SEED == c10::default_rng_seed_val,
              "an unseeded generator generates the same numbers as torch's");
constexpr size_t kStateBytes = 2 * sizeof(uint64_t);

struct PhiloxGenerator final : c10::GeneratorImpl {
  PhiloxGenerator(c10::DeviceIndex device, State state)
      : GeneratorImpl(c10::Device(kDevice, device), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
        state_(std::move(state)) {}

  PhiloxGenerator(c10::DeviceIndex device, PhiloxState fixed) : PhiloxGenerator(device, State()) { fixed_ = fixed; }

  static c10::DeviceType device_type() { return kDevice; }
  const std::optional<PhiloxState> &fixed() const { return fixed_; }
  hal_generator_t *state() const { return state_.get(); }

  void set_current_seed(uint64_t seed) override { hal_generator_set_seed(state(), seed); }
  uint64_t current_seed() const override { return hal_generator_seed(state()); }
  void set_offset(uint64_t offset) override { hal_generator_set_offset(state(), offset); }
  uint64_t get_offset() const override { return hal_generator_offset(state()); }
  uint64_t seed() override {
    const uint64_t seed = c10::detail::getNonDeterministicRandom(/*is_cuda=*/true);
    set_current_seed(seed);
    return seed;
  }

  void set_state(const c10::TensorImpl &new_state) override {
    at::detail::check_rng_state(new_state);
    TORCH_CHECK(new_state.numel() == kStateBytes, "RNG state is wrong size: a state of a '", kDevice,
                "' generator has ", kStateBytes, " bytes (seed, offset) but the given one has ", new_state.numel());
    uint64_t words[2];
    std::memcpy(words, new_state.data(), kStateBytes);
    hal_generator_set_seed(state(), words[0]);
    hal_generator_set_offset(state(), words[1]);
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    at::Tensor result = at::detail::empty_cpu({static_cast<int64_t>(kStateBytes)}, at::kByte);
    const uint64_t words[2] = {current_seed(), get_offset()};
    std::memcpy(result.mutable_data_ptr(), words, kStateBytes);
    return result.getIntrusivePtr();
  }

  // Reserves numbers for a user's kernel: torch counts numbers, and a Philox block has four.
  void philox_state(uint64_t increment, at::Tensor &seed, at::Tensor &offset,
                    at::Tensor &intragraph_offset) TORCH_BACKEND_OVERRIDE_SINCE_214 {
    constexpr uint64_t block = 4;
    uint64_t first_seed = 0, first_block = 0;
    refuse_in_capture(device().index(), [this] {
      return c10::str(
          "philox_state returns an offset on the host, which every replay of a graph would repeat: use torch's random "
          "functions while '",
          device(), "' is being captured");
    });
    hal_generator_reserve(state(), increment / block + (increment % block != 0), &first_seed, &first_block);
    seed = word(first_seed);
    offset = word(first_block * block);
    intragraph_offset = word(0);
  }

  // Generators that share their graph-safe state generate one sequence, such as a captured graph and its eager code.
  void graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl> &other) override {
    TORCH_CHECK(other && other->device().type() == kDevice, "Expected a '", kDevice,
                "' device type for generator but found '", other ? other->device().type() : c10::DeviceType::CPU, "'");
    state_ = static_cast<const PhiloxGenerator *>(other.get())->state_;
  }
  c10::intrusive_ptr<c10::GeneratorImpl> graphsafe_get_state() const override {
    return c10::make_intrusive<PhiloxGenerator>(device().index(), state_);
  }

 private:
  PhiloxGenerator *clone_impl() const override;

  // Returns the bits of an unsigned number in a tensor of one int64, as torch does.
  static at::Tensor word(uint64_t bits) {
    at::Tensor result = at::detail::empty_cpu({1}, at::kLong);
    std::memcpy(result.mutable_data_ptr(), &bits, sizeof(bits));
    return result;
  }

  State state_;
  std::optional<PhiloxState> fixed_;  // used instead of a state, by generator_at
};

State make_state(uint64_t seed, uint64_t offset) {
  hal_generator_t *state = nullptr;
  check(hal_generator_create(seed, &state));
  hal_generator_set_offset(state, offset);
  return State(state, &hal_generator_destroy);
}

PhiloxGenerator *PhiloxGenerator::clone_impl() const {
  return new PhiloxGenerator(device().index(), make_state(current_seed(), get_offset()));
}

int32_t checked_index(c10::DeviceIndex device) {
  const int32_t index = index_or_current<int32_t>(device);
  int32_t plugin = 0, ordinal = 0;
  check(hal_device_locate(index, &plugin, &ordinal));
  return index;
}

}  // namespace

// Creating a generator starts no device: torch.manual_seed and torch.Generator work before first use and in forked
// children.
const at::Generator &default_generator(c10::DeviceIndex device) {
  // never destroyed, like all registries here
  static auto *generators = new std::array<at::Generator, HAL_MAX_DEVICES>;
  static auto *once = new std::array<std::once_flag, HAL_MAX_DEVICES>;
  const int32_t index = checked_index(device);
  std::call_once((*once)[index], [index] {
    hal_generator_t *state = nullptr;
    check(hal_generator_default(index, &state));
    (*generators)[index] = at::make_generator<PhiloxGenerator>(static_cast<c10::DeviceIndex>(index),
                                                               State(state, [](hal_generator_t *) { /* borrowed */ }));
  });
  return (*generators)[index];
}

at::Generator new_generator(c10::DeviceIndex device) {
  const int32_t index = checked_index(device);
  return at::make_generator<PhiloxGenerator>(static_cast<c10::DeviceIndex>(index), make_state(HAL_DEFAULT_SEED, 0));
}

at::Generator generator_at(c10::DeviceIndex device, PhiloxState state) {
  return at::make_generator<PhiloxGenerator>(device, state);
}

PhiloxState reserve_philox(const std::optional<at::Generator> &generator, c10::DeviceIndex device, uint64_t blocks) {
  const int32_t index = index_or_current<int32_t>(device);
  hal_generator_t *state = nullptr;
  if (generator.has_value() && generator->defined()) {
    const auto *impl = at::check_generator<PhiloxGenerator>(generator);
    TORCH_CHECK(impl->device().index() == index, "Expected a '", kDevice, ":", index, "' generator device but found '",
                impl->device(), "'");
    if (C10_UNLIKELY(impl->fixed().has_value())) return *impl->fixed();
    state = impl->state();
  } else {  // not the HAL's: graphsafe_set_state may have given the default generator another state
    state = static_cast<const PhiloxGenerator *>(
                default_generator(static_cast<c10::DeviceIndex>(index)).unsafeGetGeneratorImpl())
                ->state();
  }
  hal_draw_t draw{};
  hal_stream_t *stream = nullptr;
  check(hal_stream_current(index, &stream));
  check(hal_generator_draw(state, stream, blocks, &draw));
  return {draw.seed, draw.offset, draw.random_state};
}

}  // namespace torch_backend
