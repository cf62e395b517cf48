// reductions.cpp: reductions that ATen does not express as structured operators: sums without NaN, products, counts,
// variances, inner products. What has no kernel goes to the fallback.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/native/ReduceOpsUtils.h>
#include <ATen/ops/addbmm_native.h>
#include <ATen/ops/amax_ops.h>
#include <ATen/ops/amin_ops.h>
#include <ATen/ops/count_nonzero_ops.h>
#include <ATen/ops/dot_ops.h>
#include <ATen/ops/equal_ops.h>
#include <ATen/ops/max_ops.h>
#include <ATen/ops/min_ops.h>
#include <ATen/ops/nansum_ops.h>
#include <ATen/ops/prod_ops.h>
#include <ATen/ops/std_mean_ops.h>
#include <ATen/ops/std_ops.h>
#include <ATen/ops/trace_ops.h>
#include <ATen/ops/var_mean_ops.h>
#include <ATen/ops/var_ops.h>
#include <ATen/ops/vdot_ops.h>
#include <torch/library.h>

#include "aten/prepare/structured_calls.h"
#include "aten/reduce/reductions.h"
#include "hal_op_ids.h"

namespace torch_backend {

at::Tensor centered_dot(const at::Tensor &self, const at::Tensor &other, const at::Tensor &center,
                        c10::IntArrayRef dims, bool keepdim) {
  const c10::ScalarType dtype = self.scalar_type();
  const c10::DeviceIndex device = self.device().index();
  if (!has_kernel(device, HAL_OP_ID_CENTERED_DOT, dtype)) return {};
  const DimVector reduced = reduced_dims(self.dim(), dims);
  DimVector kept(self.sizes());
  for (const int64_t d : reduced) kept[d] = 1;
  const at::Tensor a = prepare_operand(self, dtype, device), b = prepare_operand(other, dtype, device);
  at::Tensor result = make_empty(kept, dtype, device);
  const hal_tensor_t x = describe(a), y = describe(b), r = describe(result);
  const hal_tensor_t c = center.defined() ? describe(center) : hal_tensor_t{};
  const hal_value_t args[] = {value(x), value(y), center.defined() ? value(c) : none_value(),
                              value(c10::IntArrayRef(reduced))};
  const hal_tensor_t *const results[] = {&r};
  if (!run_op(device, HAL_OP_ID_CENTERED_DOT, args, results)) return {};
  if (keepdim) return result;
  for (size_t i = reduced.size(); i > 0; i--) kept.erase(kept.begin() + reduced[i - 1]);
  return result.view(kept);
}

namespace {

using OptionalDims = c10::OptionalIntArrayRef;
using OptionalNumber = std::optional<c10::Scalar>;

// Makes (or resizes) the first `results` outputs in the shape of the reduction, and reduces.
bool reduce(uint32_t op, c10::ScalarType computing, c10::ScalarType dtype, Outputs &outputs, size_t results,
            const at::Tensor &self, OptionalDims dims, bool keepdim, const OptionalNumber &number = std::nullopt) {
  if (!is_device_tensor(self) || !reduction_dtype(self.device().index(), op, computing)) return false;
  const auto mask = at::native::make_dim_mask(dims, self.dim());
  const at::DimVector shape = at::native::shape_from_dim_mask(self, mask, keepdim);
  for (size_t i = 0; i < results; i++) outputs.set(static_cast<int64_t>(i), shape, {}, self.options().dtype(dtype));
  return run_reduction(op, computing, outputs, results, self, reduced_dims(self.dim(), dims), number);
}

// ---- sums, products, counts ----

c10::ScalarType summing_dtype(const at::Tensor &self, std::optional<c10::ScalarType> dtype) {
  return dtype ? *dtype : at::isIntegralType(self.scalar_type(), true) ? at::kLong : self.scalar_type();
}

at::Tensor prod(const at::Tensor &self, std::optional<c10::ScalarType> dtype) {
  const c10::ScalarType computing = summing_dtype(self, dtype);
  Outputs outputs;
  if (!self.is_complex() && reduce(HAL_OP_ID_PROD_DIM_INT, computing, computing, outputs, 1, self, {}, false))
    return outputs.take(0);
  return call_fallback<at::_ops::prod>(self, dtype);
}

// Integers have no NaN.
uint32_t nansum_op(const at::Tensor &self) {
  return self.is_floating_point() ? HAL_OP_ID_NANSUM : HAL_OP_ID_SUM_DIM_INTLIST;
}

at::Tensor nansum(const at::Tensor &self, OptionalDims dims, bool keepdim, std::optional<c10::ScalarType> dtype) {
  const c10::ScalarType computing = summing_dtype(self, dtype);
  Outputs outputs;
  const bool cast_hides_nan = self.is_floating_point() && !at::isFloatingType(computing);
  if (!self.is_complex() && !cast_hides_nan &&
      reduce(nansum_op(self), computing, computing, outputs, 1, self, dims, keepdim))
    return outputs.take(0);
  return call_fallback<at::_ops::nansum>(self, dims, keepdim, dtype);
}

at::Tensor &nansum_out(const at::Tensor &self, OptionalDims dims, bool keepdim, std::optional<c10::ScalarType> dtype,
                       at::Tensor &out) {
  const c10::ScalarType computing = dtype.value_or(out.scalar_type());
  Outputs outputs(Form::kOut, out);
  const bool floats = self.is_floating_point() == at::isFloatingType(computing);
  if (floats && !self.is_complex() && computing == out.scalar_type() &&
      reduce(nansum_op(self), computing, computing, outputs, 1, self, dims, keepdim))
    return out;
  return call_fallback<at::_ops::nansum_out>(self, dims, keepdim, dtype, out);
}

at::Tensor count_nonzero(const at::Tensor &self, c10::IntArrayRef dims) {
  Outputs outputs;
  if (reduce(HAL_OP_ID_COUNT_NONZERO_DIM_INTLIST, at::kBool, at::kLong, outputs, 1, self, dims, false))
    return outputs.take(0);
  return call_fallback<at::_ops::count_nonzero_dim_IntList>(self, dims);
}

// ---- extremes of all elements ----

at::Tensor &max_out(const at::Tensor &self, at::Tensor &out) {
  if (self.is_complex() || self.numel() == 0 || out.scalar_type() != self.scalar_type())
    return call_fallback<at::_ops::max_unary_out>(self, out);
  return at::_ops::amax_out::call(self, c10::IntArrayRef{}, false, out);
}

at::Tensor &min_out(const at::Tensor &self, at::Tensor &out) {
  if (self.is_complex() || self.numel() == 0 || out.scalar_type() != self.scalar_type())
    return call_fallback<at::_ops::min_unary_out>(self, out);
  return at::_ops::amin_out::call(self, c10::IntArrayRef{}, false, out);
}

// ---- variances ----

// Says what ATen's kernels say when nothing is left to divide by.
void warn_about_freedom(const char *name, const at::Tensor &self, const at::Tensor &result, double correction) {
  const double count = result.numel() ? static_cast<double>(self.numel() / result.numel()) : 1;
  if (count - correction <= 0)
    TORCH_WARN(name, "(): degrees of freedom is <= 0. Correction should be strictly less than the reduction factor ",
               "(input numel divided by output numel).");
}

// Variances of floating tensors; outputs: the variance or standard deviation, and the mean when there are two.
bool moments(uint32_t op, const char *name, Outputs &outputs, size_t results, const at::Tensor &self, OptionalDims dims,
             const OptionalNumber &correction, bool keepdim) {
  const c10::ScalarType dtype = outputs.given(0) ? outputs.given(0)->scalar_type() : self.scalar_type();
  const c10::Scalar number = correction.value_or(1.0);
  if (!self.is_floating_point() || !at::isFloatingType(dtype) || number.isComplex()) return false;
  if (!reduce(op, dtype, dtype, outputs, results, self, dims, keepdim, number)) return false;
  warn_about_freedom(name, self, outputs[0], number.toDouble());
  return true;
}

at::Tensor var(const at::Tensor &self, OptionalDims dims, const OptionalNumber &correction, bool keepdim) {
  Outputs outputs;
  if (moments(HAL_OP_ID_VAR_MEAN_CORRECTION, "var", outputs, 1, self, dims, correction, keepdim))
    return outputs.take(0);
  return call_fallback<at::_ops::var_correction>(self, dims, correction, keepdim);
}

at::Tensor &var_out(const at::Tensor &self, OptionalDims dims, const OptionalNumber &correction, bool keepdim,
                    at::Tensor &out) {
  Outputs outputs(Form::kOut, out);
  if (moments(HAL_OP_ID_VAR_MEAN_CORRECTION, "var", outputs, 1, self, dims, correction, keepdim)) return out;
  return call_fallback<at::_ops::var_correction_out>(self, dims, correction, keepdim, out);
}

at::Tensor std(const at::Tensor &self, OptionalDims dims, const OptionalNumber &correction, bool keepdim) {
  Outputs outputs;
  if (moments(HAL_OP_ID_STD_MEAN_CORRECTION, "std", outputs, 1, self, dims, correction, keepdim))
    return outputs.take(0);
  return call_fallback<at::_ops::std_correction>(self, dims, correction, keepdim);
}

at::Tensor &std_out(const at::Tensor &self, OptionalDims dims, const OptionalNumber &correction, bool keepdim,
                    at::Tensor &out) {
  Outputs outputs(Form::kOut, out);
  if (moments(HAL_OP_ID_STD_MEAN_CORRECTION, "std", outputs, 1, self, dims, correction, keepdim)) return out;
  return call_fallback<at::_ops::std_correction_out>(self, dims, correction, keepdim, out);
}

std::tuple<at::Tensor, at::Tensor> var_mean(const at::Tensor &self, OptionalDims dims, const OptionalNumber &correction,
                                            bool keepdim) {
  Outputs outputs;
  if (moments(HAL_OP_ID_VAR_MEAN_CORRECTION, "var_mean", outputs, 2, self, dims, correction, keepdim))
    return {outputs.take(0), outputs.take(1)};
  return call_fallback<at::_ops::var_mean_correction>(self, dims, correction, keepdim);
}

std::tuple<at::Tensor, at::Tensor> std_mean(const at::Tensor &self, OptionalDims dims, const OptionalNumber &correction,
                                            bool keepdim) {
  Outputs outputs;
  if (moments(HAL_OP_ID_STD_MEAN_CORRECTION, "std_mean", outputs, 2, self, dims, correction, keepdim))
    return {outputs.take(0), outputs.take(1)};
  return call_fallback<at::_ops::std_mean_correction>(self, dims, correction, keepdim);
}

// ---- products of vectors, comparisons of tensors ----

// Both are vectors of one length, dtype and device.
bool are_vectors(const at::Tensor &self, const at::Tensor &other) {
  return is_device_tensor(self) && is_device_tensor(other) && self.device() == other.device() && self.dim() == 1 &&
         other.dim() == 1 && self.numel() == other.numel() && self.scalar_type() == other.scalar_type() &&
         !self.is_complex();
}

// The inner product; undefined when there is no native way.
at::Tensor inner_product(const at::Tensor &self, const at::Tensor &other) {
  const c10::ScalarType dtype = self.scalar_type();
  if (!are_vectors(self, other)) return {};
  if (at::isFloatingType(dtype)) return centered_dot(self, other, {}, 0, false);
  return dtype == at::kBool ? at::Tensor() : self.mul(other).sum(c10::IntArrayRef{0}, false, dtype);
}

at::Tensor dot(const at::Tensor &self, const at::Tensor &other) {
  at::Tensor result = inner_product(self, other);
  return result.defined() ? result : call_fallback<at::_ops::dot>(self, other);
}

at::Tensor vdot(const at::Tensor &self, const at::Tensor &other) {
  at::Tensor result = inner_product(self, other);
  return result.defined() ? result : call_fallback<at::_ops::vdot>(self, other);
}

at::Tensor trace(const at::Tensor &self) {
  if (self.dim() != 2) return call_fallback<at::_ops::trace>(self);
  return self.diagonal().sum();
}

// The answer is a bool of the host's: this waits for the device.
bool equal(const at::Tensor &self, const at::Tensor &other) {
  if (!is_device_tensor(self) || !is_device_tensor(other) || self.device() != other.device() ||
      self.scalar_type() != other.scalar_type() || self.is_complex())
    return call_fallback<at::_ops::equal>(self, other);
  if (self.sizes() != other.sizes()) return false;
  return self.numel() == 0 || self.eq(other).all().item<bool>();
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("prod", TORCH_FN(prod));
  m.impl("nansum", TORCH_FN(nansum));
  m.impl("nansum.out", TORCH_FN(nansum_out));
  m.impl("count_nonzero.dim_IntList", TORCH_FN(count_nonzero));
  m.impl("max.unary_out", TORCH_FN(max_out));
  m.impl("min.unary_out", TORCH_FN(min_out));
  m.impl("var.correction", TORCH_FN(var));
  m.impl("var.correction_out", TORCH_FN(var_out));
  m.impl("std.correction", TORCH_FN(std));
  m.impl("std.correction_out", TORCH_FN(std_out));
  m.impl("var_mean.correction", TORCH_FN(var_mean));
  m.impl("std_mean.correction", TORCH_FN(std_mean));
  m.impl("dot", TORCH_FN(dot));
  m.impl("vdot", TORCH_FN(vdot));
  m.impl("trace", TORCH_FN(trace));
  m.impl("equal", TORCH_FN(equal));
  m.impl("addbmm", TORCH_FN(at::native::addbmm));
  m.impl("addbmm.out", TORCH_FN(at::native::addbmm_out));
  m.impl("addbmm_", TORCH_FN(at::native::addbmm_));
}

}  // namespace torch_backend
