// index_read.cpp: gather, index_select, take and indexing by tensors: elements at the places that indices give, moved as
// they lie in memory whatever their dtype.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/MemoryOverlap.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/ops/index_meta.h>

#include "aten/index/index_plan.h"
#include "aten/prepare/structured.h"
#include "hal_op_ids.h"

namespace torch_backend {
namespace {

bool run_gather(const Outputs &outputs, const at::Tensor &self, int64_t dim, const at::Tensor &index, bool) {
  if (index.numel() == 0) return true;
  return Call(HAL_OP_ID_GATHER, self)
      .in(self)
      .put(at::maybe_wrap_dim(dim, self.dim()))
      .index(index)
      .out(outputs[0])
      .run();
}

// An out= tensor does not lie in what is read.
void check_apart(const at::Tensor &result, const at::Tensor &self, const at::Tensor &index) {
  at::assert_no_overlap(result, self);
  at::assert_no_overlap(result, index);
}

bool index_select(Outputs &outputs, const at::Tensor &self, int64_t dim, const at::Tensor &index) {
  TORCH_CHECK_INDEX(index.dim() <= 1, "index_select(): Index is supposed to be a vector");
  TORCH_CHECK(!(self.dim() == 0 && index.numel() != 1), "index_select(): Index to scalar can have only 1 value, got ",
              index.numel(), " value(s)");
  TORCH_CHECK(index.scalar_type() == at::kLong || index.scalar_type() == at::kInt,
              "index_select(): Expected dtype int32 or int64 for index");
  TORCH_CHECK(!outputs.given(0) || outputs.given(0)->scalar_type() == self.scalar_type(),
              "index_select(): self and result must have the same scalar type");
  dim = at::maybe_wrap_dim(dim, self.dim());
  at::DimVector sizes(self.sizes());
  if (!sizes.empty()) sizes[static_cast<size_t>(dim)] = index.numel();
  const at::Tensor &result = outputs.make(0, sizes, self);
  check_apart(result, self, index);
  if (result.numel() == 0) return true;
  Call call(HAL_OP_ID_INDEX_SELECT, self);
  return call.in(self).put(dim).index(index).with(&Operand::along, sizes, dim).out(result).run();
}

bool take(Outputs &outputs, const at::Tensor &self, const at::Tensor &index) {
  TORCH_CHECK(index.scalar_type() == at::kLong, "take(): Expected a long tensor for index, but got ",
              index.scalar_type());
  TORCH_CHECK(!outputs.given(0) || outputs.given(0)->scalar_type() == self.scalar_type(),
              "take(): self and out expected to have the same dtype, but got self.dtype = ", self.scalar_type(),
              " and out.dtype = ", outputs.given(0) ? outputs.given(0)->scalar_type() : self.scalar_type());
  TORCH_CHECK_INDEX(!(self.numel() == 0 && index.numel() != 0), "take(): tried to take from an empty tensor");
  const at::Tensor &result = outputs.make(0, index.sizes(), self);
  check_apart(result, self, index);
  if (result.numel() == 0) return true;
  // The last dimension of the source is indexed from all dimensions of the result.
  const int64_t ndim = std::max<int64_t>(index.dim(), 1);
  Call call(HAL_OP_ID_INDEX_LINES, self);
  call.in(resolved(self).reshape(-1)).with(&Operand::at_least, static_cast<size_t>(ndim));
  return call.put(ndim - 1).index(index).put(int64_t{0}).out(result).run();
}

// ---- indexing ----

bool has_tensor(const Indices &indices) {
  for (const std::optional<at::Tensor> &index : indices)
    if (index && index->defined()) return true;
  return false;
}

bool index_elements(Outputs &outputs, const at::Tensor &self, const Indices &given) {
  const Indices indices = without_masks(self, given);
  if (!has_tensor(indices)) return false;
  Structured<at::meta::structured_index_Tensor> structured(outputs);
  structured.meta(self, at::IOptTensorListRef(indices));
  const at::Tensor &result = outputs[0];
  if (result.numel() == 0) return true;
  const IndexPlan plan(resolved(self), indices);
  Call call(HAL_OP_ID_INDEX_LINES, self);
  if (!call.possible() || !plan.possible()) return false;
  plan.arrange_self(call.in(plan.self()).last(), plan.index_dims());
  plan.arrange_index(call.put(plan.dim()).index(plan.index()).last());
  plan.arrange_result(call.put(static_cast<int64_t>(plan.checked())).out(result).last());
  return call.run();
}

}  // namespace
}  // namespace torch_backend

#include "aten/index/index_read.inc"  // registrations: `bodies` of codegen/ops.yaml
