// random_derived.cpp: the distributions that are derived from the words of the device's Philox generator: exponential,
// geometric, cauchy, log_normal, integers, permutations. ATen's templates check the calls, in the CPU's words.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#define AT_PER_OPERATOR_HEADERS
#include <ATen/native/DistributionTemplates.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/cauchy_ops.h>
#include <ATen/ops/exponential_ops.h>
#include <ATen/ops/geometric_ops.h>
#include <ATen/ops/log_normal_ops.h>
#include <ATen/ops/random_ops.h>

#include "aten/prepare/fallback_call.h"
#include "aten/random/random_draw.h"
#include "hal_op_ids.h"

namespace torch_backend {
namespace {

using at::native::templates::cauchy_impl_;
using at::native::templates::exponential_impl_;
using at::native::templates::geometric_impl_;
using at::native::templates::log_normal_impl_;
using at::native::templates::random_from_to_impl;
using at::native::templates::random_impl;

// ATen's templates are given such classes as kernels; the parameter is the class of the CPU's generator there.
template <uint32_t kOp, class Op>
struct Continuous {
  template <class>
  struct Kernel {
    void operator()(at::TensorIteratorBase &it, double number, const OptionalGenerator &generator) {
      fill(it.tensor(0), generator, number);
    }
    void operator()(at::TensorIteratorBase &it, double first, double second, const OptionalGenerator &generator) {
      fill(it.tensor(0), generator, first, second);
    }
  };

 private:
  template <class... Numbers>
  static void fill(at::Tensor self, const OptionalGenerator &generator, const Numbers &...numbers) {
    const c10::ScalarType dtype = self.scalar_type();
    const bool counts = kOp == HAL_OP_ID_GEOMETRIC && c10::isIntegralType(dtype, /*includeBool=*/false);
    if ((self.is_floating_point() || counts) && draw(self, kOp, generator, dtype, numbers...)) return;
    call_fallback<Op>(self, numbers..., generator);
  }
};

bool draw_integers(const at::Tensor &self, int64_t base, uint64_t range, const OptionalGenerator &generator) {
  return draw(self, HAL_OP_ID_RANDOM_FROM, generator, at::kLong, base, static_cast<int64_t>(range));
}

template <class>
struct IntegersFrom {
  void operator()(at::TensorIteratorBase &it, uint64_t range, int64_t base, const OptionalGenerator &generator) {
    at::Tensor self = it.tensor(0);
    if (draw_integers(self, base, range, generator)) return;
    const std::optional<int64_t> to = static_cast<int64_t>(static_cast<uint64_t>(base) + range);
    call_fallback<at::_ops::random__from>(self, base, to, generator);
  }
  void operator()(at::TensorIteratorBase &it, const OptionalGenerator &generator) {  // all of int64
    at::Tensor self = it.tensor(0);
    if (draw_integers(self, 0, 0, generator)) return;
    call_fallback<at::_ops::random__from>(self, INT64_MIN, std::nullopt, generator);
  }
};

// How many integers from 0 on random_() without limits draws from: those that the dtype holds exactly.
uint64_t default_range(c10::ScalarType dtype) {
  switch (dtype) {
    case at::kBool:
      return 2;
    case at::kHalf:
      return (1u << 11) + 1;
    case at::kBFloat16:
      return (1u << 8) + 1;
    case at::kFloat:
      return (1u << 24) + 1;
    case at::kDouble:
      return (UINT64_C(1) << 53) + 1;
    case at::kByte:
      return 256;
    default:
      return UINT64_C(1) << (8 * c10::elementSize(dtype) - 1);
  }
}

template <class>
struct Integers {
  void operator()(at::TensorIteratorBase &it, const OptionalGenerator &generator) {
    at::Tensor self = it.tensor(0);
    const bool known = c10::isIntegralType(self.scalar_type(), true) || self.is_floating_point();
    if (known && draw_integers(self, 0, default_range(self.scalar_type()), generator)) return;
    call_fallback<at::_ops::random_>(self, generator);
  }
};

at::Tensor &exponential_(at::Tensor &self, double rate, OptionalGenerator generator) {
  return exponential_impl_<Continuous<HAL_OP_ID_EXPONENTIAL, at::_ops::exponential_>::Kernel, void>(
      self, rate, std::move(generator));
}
at::Tensor &geometric_(at::Tensor &self, double p, OptionalGenerator generator) {
  return geometric_impl_<Continuous<HAL_OP_ID_GEOMETRIC, at::_ops::geometric_>::Kernel, void>(self, p,
                                                                                              std::move(generator));
}
at::Tensor &cauchy_(at::Tensor &self, double median, double sigma, OptionalGenerator generator) {
  return cauchy_impl_<Continuous<HAL_OP_ID_CAUCHY, at::_ops::cauchy_>::Kernel, void>(self, median, sigma,
                                                                                     std::move(generator));
}
at::Tensor &log_normal_(at::Tensor &self, double mean, double std, OptionalGenerator generator) {
  return log_normal_impl_<Continuous<HAL_OP_ID_LOG_NORMAL, at::_ops::log_normal_>::Kernel, void>(self, mean, std,
                                                                                                 std::move(generator));
}
at::Tensor &random_(at::Tensor &self, OptionalGenerator generator) {
  return random_impl<Integers, void>(self, std::move(generator));
}
at::Tensor &random_from(at::Tensor &self, int64_t from, std::optional<int64_t> to, OptionalGenerator generator) {
  return random_from_to_impl<IntegersFrom, void>(self, from, to, std::move(generator));
}
at::Tensor &random_to(at::Tensor &self, int64_t to, OptionalGenerator generator) {
  return random_from(self, 0, to, std::move(generator));
}

// One Philox block per element at most, which is what few elements take (hal/ops/random/permutation.c).
bool randperm(int64_t n, const OptionalGenerator &generator, at::Tensor &out) {
  if (!is_device_tensor(out) || out.is_complex()) return false;
  const c10::DeviceIndex device = out.device().index();
  const bool own = has_own(device, HAL_OP_ID_RANDPERM);
  const Declined asked_here(HAL_OP_ID_RANDPERM);
  Call call(HAL_OP_ID_RANDPERM, device, at::kLong);
  if (!call.possible() && !own) return false;
  TORCH_CHECK(n >= 0, "n must be non-negative, got", n);
  at::native::check_supported_max_int_with_precision(n, out);
  out.resize_({n});
  if (n == 0) return true;
  const PhiloxState state = reserve_words(generator, device, 2 * n, at::kLong);
  return (own && ask(HAL_OP_ID_RANDPERM, {}, out, state)) || call.random(state).out(out).run();
}

// A number below the probability in its place, in the probability's dtype as on the CPU. A probability that is none is
// reported by the kernel.
bool bernoulli_of(at::Tensor &self, const at::Tensor &probabilities, OptionalGenerator generator) {
  if (!is_device_tensor(self) || !probabilities.is_floating_point() || self.is_complex()) return false;
  at::assert_no_internal_overlap(self);
  const c10::ScalarType dtype = probabilities.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  if (ask_to_draw(HAL_OP_ID_BERNOULLI_TENSOR, self.device().index(), generator, self.numel(), dtype,
                  {given(probabilities)}, self))
    return true;
  const at::Tensor limits = probabilities.to(self.device(), dtype).expand(self.sizes());
  const at::Tensor numbers = make_empty(self.sizes(), dtype, self.device().index());
  if (!draw(numbers, HAL_OP_ID_UNIFORM, generator, dtype, 0.0, 1.0)) return false;
  const at::Tensor drawn = make_empty(self.sizes(), at::kBool, self.device().index());
  if (!Call(HAL_OP_ID_BERNOULLI_BELOW, numbers).in(numbers).in(limits).out(drawn, at::kBool).run()) return false;
  self.copy_(drawn);
  return true;
}

// ATen's function asks a stub that only its own devices have.
at::Tensor &bernoulli_into(const at::Tensor &probabilities, OptionalGenerator generator, at::Tensor &out) {
  if (probabilities.device() != out.device()) throw_two_devices(probabilities.device(), out.device());
  out.resize_(probabilities.sizes());
  return out.bernoulli_(probabilities, std::move(generator));
}

}  // namespace
}  // namespace torch_backend

#include "aten/random/random_derived.inc"  // registrations: `bodies` of codegen/ops.yaml
