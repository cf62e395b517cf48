// distributions.cpp: the distributions that are derived from the words of the device's Philox generator. ATen's
// functions check the calls, and call these kernels by DispatchStubs. Dtypes without a kernel use the fallback, which
// is seeded from the same generator.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/TensorIterator.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/native/UnaryOps.h>

#include "aten/random/random_vendor.h"
#include "hal_op_ids.h"

namespace torch_backend {
namespace {

const at::Tensor &tensor_of(const at::TensorIteratorBase &it) { return it.tensor(0); }
at::Tensor tensor_of(const at::TensorBase &tensor) { return at::Tensor(tensor); }

// The dtypes for which a kernel generates numbers.
enum class Of { kReal, kNumbers, kAll };

bool makes(Of which, c10::ScalarType dtype) {
  return which == Of::kAll || c10::isFloatingType(dtype) ||
         (which == Of::kNumbers && c10::isIntegralType(dtype, /*includeBool=*/false));
}

// Generates numbers with one parameter or two. ATen passes an iterator over the result, or the result.
template <uint32_t kOp, Of kWhich, class Result>
void distributed(Result result, double parameter, OptionalGenerator generator) {
  const at::Tensor &self = tensor_of(result);
  must(makes(kWhich, self.scalar_type()) && draw(self, kOp, generator, self.scalar_type(), parameter));
}
template <uint32_t kOp, Of kWhich, class Result>
void distributed(Result result, double first, double second, OptionalGenerator generator) {
  const at::Tensor &self = tensor_of(result);
  must(makes(kWhich, self.scalar_type()) && draw(self, kOp, generator, self.scalar_type(), first, second));
}

void draw_integers(const at::Tensor &self, int64_t base, uint64_t range, const OptionalGenerator &generator) {
  must(draw(self, HAL_OP_ID_RANDOM_FROM, generator, at::kLong, base, static_cast<int64_t>(range)));
}

void integers_from(at::TensorIteratorBase &it, uint64_t range, int64_t base, OptionalGenerator generator) {
  draw_integers(it.tensor(0), base, range, generator);
}
void all_integers(at::TensorIteratorBase &it, OptionalGenerator generator) {
  draw_integers(it.tensor(0), 0, 0, generator);
}

// Returns the number of integers from 0 on that random_() without limits samples from: those that the dtype represents
// exactly.
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

void integers(at::TensorIteratorBase &it, OptionalGenerator generator) {
  const at::Tensor &self = it.tensor(0);
  must(c10::isIntegralType(self.scalar_type(), true) || self.is_floating_point());
  draw_integers(self, 0, default_range(self.scalar_type()), generator);
}

// At most one Philox block per element, as many as few elements use (hal/ops/random/permutation.c).
bool randperm(int64_t n, const OptionalGenerator &generator, at::Tensor &out) {
  if (!is_device_tensor(out) || out.is_complex()) return false;
  const c10::DeviceIndex device = out.device().index();
  const bool own = has_vendor_op(device, HAL_OP_ID_RANDPERM);
  const Declined declined(HAL_OP_ID_RANDPERM);
  Call call(HAL_OP_ID_RANDPERM, device, at::kLong);
  if (!call.possible() && !own) return false;
  TORCH_CHECK(n >= 0, "n must be non-negative, got", n);
  at::native::check_supported_max_int_with_precision(n, out);
  out.resize_({n});
  if (n == 0) return true;
  const PhiloxState state = reserve_words(generator, device, 2 * n, at::kLong);
  return (own && call_vendor_op(HAL_OP_ID_RANDPERM, {}, out, state)) || call.random(state).out(out).run();
}

// Compares random numbers with the probabilities, in the probabilities' dtype as on the CPU. The kernel reports an
// invalid probability.
void below(const at::TensorBase &result, const at::TensorBase &given_probabilities, OptionalGenerator generator) {
  const at::Tensor self(result), probabilities(given_probabilities);
  must(is_device_tensor(self) && probabilities.is_floating_point() && !self.is_complex());
  const c10::ScalarType dtype = probabilities.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  if (call_random_vendor_op(HAL_OP_ID_BERNOULLI_TENSOR, self.device().index(), generator, self.numel(), dtype,
                            {argument(probabilities)}, self))
    return;
  const at::Tensor limits = probabilities.to(self.device(), dtype).expand(self.sizes());
  const at::Tensor numbers = make_empty(self.sizes(), dtype, self.device().index());
  must(draw(numbers, HAL_OP_ID_UNIFORM, generator, dtype, 0.0, 1.0));
  const at::Tensor drawn = make_empty(self.sizes(), at::kBool, self.device().index());
  Call(HAL_OP_ID_BERNOULLI_BELOW, numbers).in(numbers).in(limits).out(drawn, at::kBool).must_run();
  self.copy_(drawn);
}

// ATen's function calls a stub that only its own devices have.
at::Tensor &bernoulli_into(const at::Tensor &probabilities, OptionalGenerator generator, at::Tensor &out) {
  if (probabilities.device() != out.device()) throw_two_devices(probabilities.device(), out.device());
  out.resize_(probabilities.sizes());
  return out.bernoulli_(probabilities, std::move(generator));
}

}  // namespace
}  // namespace torch_backend

#include "aten/random/distributions.inc"  // registrations: codegen/operators
