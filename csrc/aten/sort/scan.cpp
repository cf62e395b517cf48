// scan.cpp: running values along one dimension: cumsum, cumprod, logcumsumexp, cummax, cummin.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/WrapDimUtils.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_cummax_helper_ops.h>
#include <ATen/ops/_cummin_helper_ops.h>
#include <ATen/ops/_logcumsumexp_ops.h>
#include <ATen/ops/view_as_real.h>
#include <torch/library.h>

#include "aten/fallback/fallback_call.h"
#include "aten/index/index_call.h"
#include "aten/pointwise/pointwise.h"
#include "aten/prepare/shells.h"
#include "hal_op_ids.h"

namespace torch_backend {
namespace {

// result = running values of self, which has its dtype. false = no kernel.
bool run_scan(uint32_t op, const at::Tensor &result, const at::Tensor &self, int64_t dim) {
  if (result.numel() == 0) return true;
  if (result.is_complex()) {
    if (op != HAL_OP_ID_CUMSUM) return false;
    if (result.dim() != 0) return run_scan(op, at::view_as_real(result), at::view_as_real(self.resolve_conj()), dim);
    result.copy_(self);
    return true;
  }
  const auto dtype = combining_dtype(result.scalar_type());
  const c10::DeviceIndex device = result.device().index();
  if (!dtype || !has_kernel(device, op, *dtype)) return false;
  const at::Tensor operand = prepare_operand(self, *dtype, device);
  const Destination destination(result, *dtype, shares_storage(result, operand, false));
  Strided target(destination.tensor()), source(operand);
  const hal_value_t args[] = {value(source.descriptor()), value(dim)};
  const hal_tensor_t *const results[] = {&target.descriptor()};
  if (!run_op(device, op, args, results)) return false;
  destination.finish();
  return true;
}

bool scan_into(uint32_t op, const at::Tensor &result, const at::Tensor &self, int64_t dim) {
  dim = at::maybe_wrap_dim(dim, self.dim());
  return run_scan(op, result, self.scalar_type() == result.scalar_type() ? self : self.to(result.scalar_type()), dim);
}

at::Tensor &logcumsumexp_out(const at::Tensor &self, int64_t dim, at::Tensor &result) {
  if (is_device_tensor(self) && is_device_tensor(result) && result.scalar_type() == self.scalar_type() &&
      self.is_floating_point()) {
    at::native::resize_output(result, self.sizes());
    at::assert_no_internal_overlap(result);
    if (scan_into(HAL_OP_ID__LOGCUMSUMEXP, result, self, dim)) return result;
  }
  return call_fallback<at::_ops::_logcumsumexp_out>(self, dim, result);
}

at::Tensor logcumsumexp(const at::Tensor &self, int64_t dim) {
  if (!self.is_floating_point()) return call_fallback<at::_ops::_logcumsumexp>(self, dim);
  at::Tensor result = result_like(self, self.scalar_type());
  return logcumsumexp_out(self, dim, result);
}

// Writes both results, which ATen has made of the right shape. false = no kernel.
bool run_extremes(uint32_t op, const at::Tensor &self, const at::Tensor &values, const at::Tensor &indices,
                  int64_t dim) {
  const auto dtype = combining_dtype(self.scalar_type());
  const c10::DeviceIndex device = self.device().index();
  if (self.numel() == 0) return true;
  if (!dtype || values.sizes() != self.sizes() || indices.sizes() != self.sizes()) return false;
  const at::Tensor operand = prepare_operand(self, *dtype, device);
  const Destination out(values, *dtype, shares_storage(values, operand, false));
  const Destination places(indices, at::kLong, shares_storage(indices, operand, true));
  Strided target(out.tensor()), source(operand), where(places.tensor());
  const hal_value_t args[] = {value(source.descriptor()), value(at::maybe_wrap_dim(dim, self.dim()))};
  const hal_tensor_t *const results[] = {&target.descriptor(), &where.descriptor()};
  if (!run_op(device, op, args, results)) return false;
  out.finish();
  places.finish();
  return true;
}

void cummax_helper(const at::Tensor &self, at::Tensor &values, at::Tensor &indices, int64_t dim) {
  if (!run_extremes(HAL_OP_ID__CUMMAX_HELPER, self, values, indices, dim))
    call_fallback<at::_ops::_cummax_helper>(self, values, indices, dim);
}

void cummin_helper(const at::Tensor &self, at::Tensor &values, at::Tensor &indices, int64_t dim) {
  if (!run_extremes(HAL_OP_ID__CUMMIN_HELPER, self, values, indices, dim))
    call_fallback<at::_ops::_cummin_helper>(self, values, indices, dim);
}

}  // namespace

bool run_cumsum(const Outputs &outputs, const at::Tensor &self, int64_t dim, std::optional<c10::ScalarType>) {
  return scan_into(HAL_OP_ID_CUMSUM, outputs[0], self, dim);
}

bool run_cumprod(const Outputs &outputs, const at::Tensor &self, int64_t dim, std::optional<c10::ScalarType>) {
  return scan_into(HAL_OP_ID_CUMPROD, outputs[0], self, dim);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_logcumsumexp", TORCH_FN(logcumsumexp));
  m.impl("_logcumsumexp.out", TORCH_FN(logcumsumexp_out));
  m.impl("_cummax_helper", TORCH_FN(cummax_helper));
  m.impl("_cummin_helper", TORCH_FN(cummin_helper));
}

}  // namespace torch_backend
