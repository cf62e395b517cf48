// index_read.cpp: gather, index_select, take and indexing by tensors. Elements at given indices are moved unchanged,
// whatever their dtype.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/MemoryOverlap.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/native/IndexKernel.h>
#include <ATen/native/TensorAdvancedIndexing.h>
#include <ATen/ops/index_meta.h>

#include "aten/index/index_plan.h"
#include "aten/prepare/structured.h"
#include "hal_op_ids.h"

namespace torch_backend {
namespace {

void gather_elements(const at::Tensor &result, const at::Tensor &self, int64_t dim, const at::Tensor &index) {
  Call(HAL_OP_ID_GATHER, self).in(self).put(dim).index(index).out(result).must_run();
}

// Checks that an out= tensor does not overlap the tensors that are read.
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

void take_elements(at::TensorIterator &it, const at::TensorBase &given) {
  const at::Tensor &result = it.tensor(0), &index = it.tensor(1), self(given);
  // The last dimension of the source is indexed from all dimensions of the result.
  const int64_t ndim = std::max<int64_t>(index.dim(), 1);
  Call call(HAL_OP_ID_INDEX_LINES, self);
  call.in(resolved(self).reshape(-1)).with(&Operand::at_least, static_cast<size_t>(ndim));
  call.put(ndim - 1).index(index).put(int64_t{0}).out(result).must_run();
}

// ATen's function is a structured one, but with masks its result depends on their elements, and it waits for the
// device, so the plugin is not queried in between.
bool index_elements(Outputs &outputs, const at::Tensor &self, const Indices &indices) {
  Structured<at::meta::structured_index_Tensor> it(outputs);
  const auto indexed = it.meta(resolved(self), at::IOptTensorListRef(indices));
  if (indexed.sizes.empty()) return false;
  if (it.numel() == 0) return true;
  const IndexPlan plan(it, it.tensor(1), 2, indexed.sizes, indexed.strides);
  const at::Tensor result = plan.shaped(outputs[0]);
  Call call(HAL_OP_ID_INDEX_LINES, plan.self);
  if (!call.possible()) return false;
  plan.arrange(call.in(plan.self).last(), 1);
  call.put(plan.dim).index(plan.index).expand(result.sizes()).put(static_cast<int64_t>(plan.checked));
  return call.out(result).run();
}

}  // namespace
}  // namespace torch_backend

#include "aten/index/index_read.inc"  // registrations: codegen/operators
