// scan.cpp: running values along one dimension: cumsum, cumprod, logcumsumexp, cummax, cummin. ATen's functions
// allocate the results, and call these kernels.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/WrapDimUtils.h>
#include <ATen/native/ReduceOps.h>
#include <ATen/ops/view_as_real.h>

#include "aten/prepare/structured.h"
#include "hal_op_ids.h"

namespace torch_backend {
namespace {

// Computes running values of self, which has the result's dtype, into result.
template <uint32_t kOp>
void scan(const at::Tensor &result, const at::Tensor &self, int64_t dim) {
  if (result.is_complex() && kOp == HAL_OP_ID_CUMSUM)
    return scan<kOp>(at::view_as_real(result), at::view_as_real(resolved(self)), dim);
  Call(kOp, result).in(self).put(dim).elementwise().out(result).must_run();
}

bool logcumsumexp(Outputs &outputs, const at::Tensor &self, int64_t dim) {
  if (!self.is_floating_point()) return false;
  const at::Tensor &result = outputs.make(0, self.sizes(), self);
  if (self.numel() != 0) scan<HAL_OP_ID__LOGCUMSUMEXP>(result, self, at::maybe_wrap_dim(dim, self.dim()));
  return true;
}

// Writes both results, which ATen has allocated in the right shape.
template <uint32_t kOp>
bool extremes(const at::Tensor &self, at::Tensor &values, at::Tensor &indices, int64_t dim) {
  if (self.numel() == 0) return true;
  if (values.sizes() != self.sizes() || indices.sizes() != self.sizes()) return false;
  Call call(kOp, self);
  return call.in(self).put(at::maybe_wrap_dim(dim, self.dim())).out(values).indices(indices).run();
}

}  // namespace
}  // namespace torch_backend

#include "aten/sort/scan.inc"  // registrations: codegen/operators
