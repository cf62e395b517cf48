// random_derived.cpp: the distributions that are derived from the words of the device's Philox generator: exponential,
// geometric, cauchy, log_normal, integers, permutations. ATen's templates check the calls, in the CPU's words.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#define AT_PER_OPERATOR_HEADERS
#include <ATen/native/DistributionTemplates.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/bernoulli_native.h>
#include <ATen/ops/bernoulli_ops.h>
#include <ATen/ops/cauchy_ops.h>
#include <ATen/ops/exponential_ops.h>
#include <ATen/ops/geometric_ops.h>
#include <ATen/ops/log_normal_ops.h>
#include <ATen/ops/random_ops.h>
#include <ATen/ops/randperm_ops.h>
#include <torch/library.h>

#include "aten/fallback/fallback_call.h"
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

// The dtype that numbers of a continuous distribution are made in: the tensor's own, or one that is cast to it.
c10::ScalarType continuous_dtype(uint32_t op, const at::Tensor &self) {
  const c10::ScalarType dtype = self.scalar_type();
  if (has_kernel(self.device().index(), op, dtype)) return dtype;
  return c10::isReducedFloatingType(dtype) ? at::kFloat : at::kDouble;
}

// ATen's templates are given these as kernels; the parameter is the class of the CPU's generator there.
template <class>
struct Exponential {
  void operator()(at::TensorIteratorBase &it, double rate, const OptionalGenerator &generator) {
    at::Tensor self = it.tensor(0);
    const auto dtype = continuous_dtype(HAL_OP_ID_EXPONENTIAL, self);
    if (self.is_floating_point() && draw(self, HAL_OP_ID_EXPONENTIAL, {value(rate)}, generator, dtype)) return;
    call_fallback<at::_ops::exponential_>(self, rate, generator);
  }
};

template <class>
struct Geometric {
  void operator()(at::TensorIteratorBase &it, double p, const OptionalGenerator &generator) {
    at::Tensor self = it.tensor(0);
    const auto dtype = continuous_dtype(HAL_OP_ID_GEOMETRIC, self);
    const bool is_real = !self.is_complex() && self.scalar_type() != at::kBool;
    if (is_real && draw(self, HAL_OP_ID_GEOMETRIC, {value(p)}, generator, dtype)) return;
    call_fallback<at::_ops::geometric_>(self, p, generator);
  }
};

template <class>
struct Cauchy {
  void operator()(at::TensorIteratorBase &it, double median, double sigma, const OptionalGenerator &generator) {
    at::Tensor self = it.tensor(0);
    const auto dtype = continuous_dtype(HAL_OP_ID_CAUCHY, self);
    if (draw(self, HAL_OP_ID_CAUCHY, {value(median), value(sigma)}, generator, dtype)) return;
    call_fallback<at::_ops::cauchy_>(self, median, sigma, generator);
  }
};

template <class>
struct LogNormal {
  void operator()(at::TensorIteratorBase &it, double mean, double std, const OptionalGenerator &generator) {
    at::Tensor self = it.tensor(0);
    const auto dtype = continuous_dtype(HAL_OP_ID_LOG_NORMAL, self);
    if (self.is_floating_point() && draw(self, HAL_OP_ID_LOG_NORMAL, {value(mean), value(std)}, generator, dtype))
      return;
    call_fallback<at::_ops::log_normal_>(self, mean, std, generator);
  }
};

bool draw_integers(at::Tensor &self, int64_t base, uint64_t range, const OptionalGenerator &generator) {
  return draw(self, HAL_OP_ID_RANDOM_FROM, {value(base), value(static_cast<int64_t>(range))}, generator, at::kLong);
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
  return exponential_impl_<Exponential, void>(self, rate, std::move(generator));
}
at::Tensor &geometric_(at::Tensor &self, double p, OptionalGenerator generator) {
  return geometric_impl_<Geometric, void>(self, p, std::move(generator));
}
at::Tensor &cauchy_(at::Tensor &self, double median, double sigma, OptionalGenerator generator) {
  return cauchy_impl_<Cauchy, void>(self, median, sigma, std::move(generator));
}
at::Tensor &log_normal_(at::Tensor &self, double mean, double std, OptionalGenerator generator) {
  return log_normal_impl_<LogNormal, void>(self, mean, std, std::move(generator));
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

bool run_randperm(const at::Tensor &target, const PhiloxState &philox) {
  const c10::DeviceIndex device = target.device().index();
  const hal_tensor_t described = describe(target);
  return run_op(device, HAL_OP_ID_RANDPERM, {}, {&described}, 0, philox);
}

// One Philox block per element at most, which is what few elements take (hal/ops/random/permutation.c).
at::Tensor &randperm_out(int64_t n, OptionalGenerator generator, at::Tensor &out) {
  const bool known = is_device_tensor(out) && has_kernel(out.device().index(), HAL_OP_ID_RANDPERM, at::kLong);
  if (!known || out.is_complex()) return call_fallback<at::_ops::randperm_generator_out>(n, generator, out);
  TORCH_CHECK(n >= 0, "n must be non-negative, got", n);
  at::native::check_supported_max_int_with_precision(n, out);
  out.resize_({n});
  if (n == 0) return out;
  const bool direct = out.scalar_type() == at::kLong && out.is_contiguous();
  const at::Tensor target = direct ? out : make_empty({n}, at::kLong, out.device().index());
  const PhiloxState philox = reserve_philox(generator, out.device().index(), static_cast<uint64_t>(n));
  TORCH_CHECK_NOT_IMPLEMENTED(run_randperm(target, philox), "randperm: device ", out.device(), " has lost its kernel");
  if (!direct) copy_on_device(target, out);
  return out;
}

// A number below the probability in its place, in the probability's dtype as on the CPU.
at::Tensor &bernoulli_tensor_(at::Tensor &self, const at::Tensor &probabilities, OptionalGenerator generator) {
  const bool known = is_device_tensor(self) && probabilities.is_floating_point() && !self.is_complex();
  if (!known) return call_fallback<at::_ops::bernoulli__Tensor>(self, probabilities, generator);
  if (self.numel() == 0) return self;
  at::assert_no_internal_overlap(self);
  const c10::ScalarType dtype = probabilities.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor limits = probabilities.to(self.device(), dtype).expand(self.sizes());
  at::Tensor numbers = make_empty(self.sizes(), dtype, self.device().index());
  if (!draw(numbers, HAL_OP_ID_UNIFORM, {value(0.0), value(1.0)}, generator, dtype)) {
    return call_fallback<at::_ops::bernoulli__Tensor>(self, probabilities, generator);
  }
  self.copy_(numbers.lt(limits));
  return self;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("exponential_", TORCH_FN(exponential_));
  m.impl("geometric_", TORCH_FN(geometric_));
  m.impl("cauchy_", TORCH_FN(cauchy_));
  m.impl("log_normal_", TORCH_FN(log_normal_));
  m.impl("random_", TORCH_FN(random_));
  m.impl("random_.from", TORCH_FN(random_from));
  m.impl("random_.to", TORCH_FN(random_to));
  m.impl("randperm.generator_out", TORCH_FN(randperm_out));
  m.impl("bernoulli_.Tensor", TORCH_FN(bernoulli_tensor_));
  m.impl("bernoulli.out", TORCH_FN(at::native::bernoulli_out));
}

}  // namespace torch_backend
