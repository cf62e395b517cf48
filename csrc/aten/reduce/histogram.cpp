// histogram.cpp: the number of elements in each of some bins of equal width (histc), for floating numbers and, as on
// CUDA, integers. ATen's function checks the call and calls this kernel.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/native/Histogram.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "aten/prepare/call.h"

namespace torch_backend {
namespace {

// Operations are in the CPU's order, so that elements at the edges are counted in the CPU's bins. Integers are exact in
// double.
void count_in_bins(const at::Tensor &self, const OptionalTensor &, bool, at::Tensor &counts,
                   const at::TensorList &edges, bool) {
  must(!self.is_complex() && self.scalar_type() != at::kBool);
  const c10::ScalarType computing =
      self.is_floating_point() && self.scalar_type() != at::kDouble ? at::kFloat : at::kDouble;
  const at::Tensor x = self.reshape(-1).to(computing), ends = edges[0].to(computing);
  const at::Tensor low = ends.select(0, 0), high = ends.select(0, -1), inside = x.ge(low).logical_and(x.le(high));
  const int64_t bins = counts.size(0);
  const at::Tensor bin = at::where(inside, x, low).sub(low).mul(bins).div(high.sub(low)).to(at::kLong);
  const at::Tensor none = at::zeros({bins}, self.options().dtype(at::kLong));
  counts.copy_(none.index_add(0, bin.clamp_max(bins - 1), inside.to(at::kLong)));
}

}  // namespace
}  // namespace torch_backend

#include "aten/reduce/histogram.inc"  // registrations: codegen/operators
