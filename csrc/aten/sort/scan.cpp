// scan.cpp: running values along one dimension: cumsum, cumprod, logcumsumexp, cummax, cummin.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/WrapDimUtils.h>
#include <ATen/ops/view_as_real.h>

#include "aten/prepare/structured.h"
#include "hal_op_ids.h"

namespace torch_backend {
namespace {

// result = running values of self, cast to the result's dtype. false = no kernel.
bool run_scan(uint32_t op, const at::Tensor &result, const at::Tensor &self, int64_t dim) {
  if (result.numel() == 0) return true;
  const at::Tensor values = self.scalar_type() == result.scalar_type() ? self : self.to(result.scalar_type());
  if (result.is_complex() && op == HAL_OP_ID_CUMSUM) {
    if (result.dim() != 0) return run_scan(op, at::view_as_real(result), at::view_as_real(resolved(values)), dim);
    result.copy_(values);
    return true;
  }
  return Call(op, result).in(values).put(dim).elementwise().out(result).run();
}

bool logcumsumexp(Outputs &outputs, const at::Tensor &self, int64_t dim) {
  if (!self.is_floating_point()) return false;
  return run_scan(HAL_OP_ID__LOGCUMSUMEXP, outputs.make(0, self.sizes(), self), self,
                  at::maybe_wrap_dim(dim, self.dim()));
}

// Writes both results, which ATen has made of the right shape.
template <uint32_t kOp>
bool extremes(const at::Tensor &self, at::Tensor &values, at::Tensor &indices, int64_t dim) {
  if (self.numel() == 0) return true;
  if (values.sizes() != self.sizes() || indices.sizes() != self.sizes()) return false;
  Call call(kOp, self);
  return call.in(self).put(at::maybe_wrap_dim(dim, self.dim())).out(values).places(indices).run();
}

bool run_cumsum(const Outputs &outputs, const at::Tensor &self, int64_t dim, std::optional<c10::ScalarType>) {
  return run_scan(HAL_OP_ID_CUMSUM, outputs[0], self, at::maybe_wrap_dim(dim, self.dim()));
}

bool run_cumprod(const Outputs &outputs, const at::Tensor &self, int64_t dim, std::optional<c10::ScalarType>) {
  return run_scan(HAL_OP_ID_CUMPROD, outputs[0], self, at::maybe_wrap_dim(dim, self.dim()));
}

}  // namespace
}  // namespace torch_backend

#include "aten/sort/scan.inc"  // registrations: `bodies` of codegen/ops.yaml
