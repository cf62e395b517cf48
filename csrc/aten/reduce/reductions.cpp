// reductions.cpp: reductions that ATen does not express as structured operators: sums without NaN, products, counts,
// variances, inner products. Calls without a kernel go to the fallback.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "aten/reduce/reductions.h"

#include <ATen/TensorIterator.h>
#include <ATen/native/LinearAlgebra.h>
#include <ATen/native/ReduceOpsUtils.h>
#include <ATen/ops/addbmm_native.h>

#include "aten/prepare/structured_calls.h"
#include "aten/prepare/vendor_op.h"
#include "hal_op_ids.h"

namespace torch_backend {

at::Tensor centered_dot(const at::Tensor &self, const at::Tensor &other, const at::Tensor &center,
                        c10::IntArrayRef dims, bool keepdim) {
  const DimVector reduced = reduced_dims(self.dim(), dims);
  DimVector kept(self.sizes());
  for (const int64_t d : reduced) kept[d] = 1;
  Call call(HAL_OP_ID_CENTERED_DOT, self);
  if (!call.possible()) return {};
  const at::Tensor result = make_empty(kept, self.scalar_type(), self.device().index());
  if (!call.in(self).in(other).in(center).put(c10::IntArrayRef(reduced)).out(result).run()) return {};
  if (keepdim) return result;
  for (size_t i = reduced.size(); i > 0; i--) kept.erase(kept.begin() + reduced[i - 1]);
  return result.view(kept);
}

namespace {

using OptionalDims = c10::OptionalIntArrayRef;
using OptionalNumber = std::optional<c10::Scalar>;

// Creates (or resizes) the first `results` outputs in the shape of the reduction, and reduces.
bool reduce(uint32_t op, c10::ScalarType computing, c10::ScalarType dtype, Outputs &outputs, size_t results,
            const at::Tensor &self, OptionalDims dims, bool keepdim, const OptionalNumber &number = std::nullopt) {
  if (!computing_dtype(self.device().index(), op, computing)) return false;
  const auto mask = at::native::make_dim_mask(dims, self.dim());
  const at::DimVector shape = at::native::shape_from_dim_mask(self, mask, keepdim);
  for (size_t i = 0; i < results; i++) outputs.make(static_cast<int64_t>(i), shape, dtype, self.device());
  return run_reduction(op, computing, outputs, results, self, reduced_dims(self.dim(), dims), number);
}

// ---- sums, products, counts, extremes ----

c10::ScalarType summing_dtype(const at::Tensor &self, std::optional<c10::ScalarType> dtype) {
  return dtype ? *dtype : at::isIntegralType(self.scalar_type(), true) ? at::kLong : self.scalar_type();
}

bool product(Outputs &outputs, const at::Tensor &self, std::optional<c10::ScalarType> dtype) {
  const c10::ScalarType computing = summing_dtype(self, dtype);
  return !self.is_complex() && reduce(HAL_OP_ID_PROD_DIM_INT, computing, computing, outputs, 1, self, {}, false);
}

bool nansum(Outputs &outputs, const at::Tensor &self, OptionalDims dims, bool keepdim,
            std::optional<c10::ScalarType> dtype) {
  const at::Tensor *out = outputs.given(0);
  const c10::ScalarType computing = out && !dtype ? out->scalar_type() : summing_dtype(self, dtype);
  const bool cast_hides_nan = self.is_floating_point() != at::isFloatingType(computing);
  if (self.is_complex() || (cast_hides_nan && (out || self.is_floating_point()))) return false;
  if (out && out->scalar_type() != computing) return false;
  // Integers have no NaN.
  const uint32_t op = self.is_floating_point() ? HAL_OP_ID_NANSUM : HAL_OP_ID_SUM_DIM_INTLIST;
  return reduce(op, computing, computing, outputs, 1, self, dims, keepdim);
}

bool count_nonzero(Outputs &outputs, const at::Tensor &self, c10::IntArrayRef dims) {
  return reduce(HAL_OP_ID_COUNT_NONZERO_DIM_INTLIST, at::kBool, at::kLong, outputs, 1, self, dims, false);
}

// Reduces all elements.
template <uint32_t kOp>
bool extreme(Outputs &outputs, const at::Tensor &self) {
  const c10::ScalarType dtype = self.scalar_type();
  return !self.is_complex() && self.numel() > 0 && reduce(kOp, dtype, dtype, outputs, 1, self, {}, false);
}

// ---- variances ----

// Computes variances or standard deviations of floating tensors, and their means if there are two results. Reports the
// error of ATen's kernels if the divisor is 0 or less.
template <uint32_t kOp, size_t kResults>
bool moments(Outputs &outputs, const at::Tensor &self, OptionalDims dims, const OptionalNumber &correction,
             bool keepdim) {
  const c10::ScalarType dtype = outputs.given(0) ? outputs.given(0)->scalar_type() : self.scalar_type();
  const c10::Scalar number = correction.value_or(1.0);
  if (!self.is_floating_point() || !at::isFloatingType(dtype) || number.isComplex()) return false;
  if (!reduce(kOp, dtype, dtype, outputs, kResults, self, dims, keepdim, number)) return false;
  const int64_t results = outputs[0].numel();
  if ((results ? static_cast<double>(self.numel() / results) : 1) - number.toDouble() <= 0)
    TORCH_WARN(kOp == HAL_OP_ID_VAR_MEAN_CORRECTION ? "var" : "std", kResults == 2 ? "_mean" : "",
               "(): degrees of freedom is <= 0. Correction should be strictly less than the reduction factor ",
               "(input numel divided by output numel).");
  return true;
}

// ---- products of vectors, comparisons of tensors ----

bool inner_product(Outputs &outputs, const at::Tensor &self, const at::Tensor &other) {
  const c10::ScalarType dtype = self.scalar_type();
  if (self.dim() != 1 || self.sizes() != other.sizes() || dtype != other.scalar_type()) return false;
  if (self.is_complex() || dtype == at::kBool) return false;
  const bool floating = at::isFloatingType(dtype);
  at::Tensor result =
      floating ? centered_dot(self, other, {}, 0, false) : self.mul(other).sum(c10::IntArrayRef{0}, false, dtype);
  if (!result.defined()) return false;
  outputs.put(0, std::move(result));
  return true;
}

// addr: computes the sum of a matrix and of the outer product of two vectors, which ATen has expanded as a column and a
// row.
void add_outer(at::TensorIterator &it, const c10::Scalar &of_self, const c10::Scalar &of_products) {
  const at::Tensor products = it.tensor(2).mul(it.tensor(3));
  const c10::Scalar beta = as_number_of(of_self, it.dtype()), alpha = as_number_of(of_products, it.dtype());
  it.tensor(0).copy_(beta.equal(0) ? products.mul(alpha) : it.tensor(1).mul(beta).add(products, alpha));
}

bool trace(Outputs &outputs, const at::Tensor &self) {
  if (self.dim() != 2) return false;
  outputs.put(0, self.diagonal().sum());
  return true;
}

// The result is a bool on the host, so this waits for the device.
std::optional<bool> equal(const at::Tensor &self, const at::Tensor &other) {
  if (!is_device_tensor(self) || !is_device_tensor(other) || self.scalar_type() != other.scalar_type() ||
      self.is_complex())
    return std::nullopt;
  if (self.sizes() != other.sizes()) return false;
  if (self.numel() != 0 && has_vendor_op(self.device().index(), HAL_OP_ID_EQUAL)) {
    const at::Tensor same = make_empty({}, at::kBool, self.device().index());
    if (call_vendor_op(HAL_OP_ID_EQUAL, {argument(self), argument(other)}, same)) return same.item<bool>();
  }
  return self.numel() == 0 || self.eq(other).all().item<bool>();
}

}  // namespace
}  // namespace torch_backend

#include "aten/reduce/reductions.inc"  // registrations: codegen/operators
