// index_read.cpp: gather, index_select, take and indexing by tensors: elements at the places that indices give, moved as
// they lie in memory whatever their dtype.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/MemoryOverlap.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/gather_ops.h>
#include <ATen/ops/index_meta.h>
#include <ATen/ops/index_ops.h>
#include <ATen/ops/index_select_ops.h>
#include <ATen/ops/take_ops.h>
#include <torch/library.h>

#include "aten/index/index_call.h"
#include "aten/index/index_plan.h"
#include "aten/prepare/shells.h"
#include "hal_op_ids.h"

namespace torch_backend {

bool run_gather(const Outputs &outputs, const at::Tensor &self, int64_t dim, const at::Tensor &index, bool) {
  const at::Tensor &result = outputs[0];
  if (index.numel() == 0) return true;
  const at::Tensor indices = long_index(index), elements = self.resolve_conj().resolve_neg();
  Strided out(result), source(elements), places(indices);
  return run_take(HAL_OP_ID_GATHER, result.device().index(), out.moved(), source.moved(),
                  at::maybe_wrap_dim(dim, self.dim()), places);
}

namespace {

// ---- index_select ----

void check_vector(const at::Tensor &self, const at::Tensor &index, const at::Tensor &result) {
  TORCH_CHECK_INDEX(index.dim() <= 1, "index_select(): Index is supposed to be a vector");
  TORCH_CHECK(!(self.dim() == 0 && index.numel() != 1), "index_select(): Index to scalar can have only 1 value, got ",
              index.numel(), " value(s)");
  TORCH_CHECK(index.scalar_type() == at::kLong || index.scalar_type() == at::kInt,
              "index_select(): Expected dtype int32 or int64 for index");
  TORCH_CHECK(self.scalar_type() == result.scalar_type(),
              "index_select(): self and result must have the same scalar type");
  for (const at::Tensor *tensor : {&index, &result})
    if (tensor->device() != self.device()) throw_two_devices(self.device(), tensor->device());
}

at::Tensor &index_select_out(const at::Tensor &self, int64_t dim, const at::Tensor &index, at::Tensor &result) {
  check_vector(self, index, result);
  dim = at::maybe_wrap_dim(dim, self.dim());
  at::DimVector sizes(self.sizes());
  if (!sizes.empty()) sizes[static_cast<size_t>(dim)] = index.numel();
  at::assert_no_internal_overlap(result);
  at::native::resize_output(result, sizes);
  at::assert_no_overlap(result, self);
  at::assert_no_overlap(result, index);
  if (result.numel() == 0) return result;
  const at::Tensor indices = long_index(index), elements = self.resolve_conj().resolve_neg();
  Strided out(result), source(elements), places(indices, result.sizes(), dim);
  if (run_take(HAL_OP_ID_INDEX_SELECT, self.device().index(), out.moved(), source.moved(), dim, places)) return result;
  return call_fallback<at::_ops::index_select_out>(self, dim, index, result);
}

at::Tensor index_select(const at::Tensor &self, int64_t dim, const at::Tensor &index) {
  if (!is_device_tensor(self)) return call_fallback<at::_ops::index_select>(self, dim, index);
  at::Tensor result = make_empty({0}, self.scalar_type(), self.device().index());
  index_select_out(self, dim, index, result);
  return result;
}

// ---- take ----

at::Tensor &take_out(const at::Tensor &self, const at::Tensor &index, at::Tensor &result) {
  TORCH_CHECK(index.scalar_type() == at::kLong, "take(): Expected a long tensor for index, but got ",
              index.scalar_type());
  TORCH_CHECK(self.scalar_type() == result.scalar_type(),
              "take(): self and out expected to have the same dtype, but got self.dtype = ", self.scalar_type(),
              " and out.dtype = ", result.scalar_type());
  for (const at::Tensor *tensor : {&index, static_cast<const at::Tensor *>(&result)})
    if (tensor->device() != self.device()) throw_two_devices(self.device(), tensor->device());
  TORCH_CHECK_INDEX(!(self.numel() == 0 && index.numel() != 0), "take(): tried to take from an empty tensor");
  at::assert_no_internal_overlap(result);
  at::assert_no_overlap(result, index);
  at::assert_no_overlap(result, self);
  at::native::resize_output(result, index.sizes());
  if (result.numel() == 0) return result;
  const at::Tensor flat = self.resolve_conj().resolve_neg().reshape(-1);
  Strided out(result), source(flat), places(index);
  while (source.dim() < out.dim()) source.insert(0, 1, 0);
  const auto dim = static_cast<int64_t>(source.dim()) - 1;
  // The last dimension of the source is indexed from all dimensions of the result.
  if (run_take(HAL_OP_ID_INDEX_TENSOR, self.device().index(), out.moved(), source.moved(), dim, places)) return result;
  return call_fallback<at::_ops::take_out>(self, index, result);
}

at::Tensor take(const at::Tensor &self, const at::Tensor &index) {
  at::Tensor result = make_empty({0}, self.scalar_type(), self.device().index());
  take_out(self, index, result);
  return result;
}

// ---- indexing ----

bool has_tensor(const Indices &indices) {
  for (const std::optional<at::Tensor> &index : indices)
    if (index && index->defined()) return true;
  return false;
}

bool index_into(Outputs &outputs, const at::Tensor &self, const Indices &given) {
  if (!is_device_tensor(self)) return false;
  const Indices indices = without_masks(self, given);
  if (!has_tensor(indices)) return false;
  Structured<at::meta::structured_index_Tensor> structured(outputs);
  structured.meta(self, at::IOptTensorListRef(indices));
  const at::Tensor &result = outputs[0];
  if (result.numel() == 0) return true;
  const IndexPlan plan(self.resolve_conj().resolve_neg(), indices);
  Strided out(result), source(plan.self()), places(plan.index());
  plan.arrange_result(out);
  plan.arrange_self(source, plan.index_dims());
  plan.arrange_index(places);
  return run_take(HAL_OP_ID_INDEX_TENSOR, self.device().index(), out.moved(), source.moved(), plan.dim(), places,
                  plan.checked());
}

at::Tensor index(const at::Tensor &self, const Indices &indices) {
  Outputs outputs;
  if (index_into(outputs, self, indices)) return outputs.take(0);
  return call_fallback<at::_ops::index_Tensor>(self, indices);
}

at::Tensor &index_out(const at::Tensor &self, const Indices &indices, at::Tensor &out) {
  Outputs outputs(Form::kOut, out);
  if (index_into(outputs, self, indices)) return out;
  return call_fallback<at::_ops::index_Tensor_out>(self, indices, out);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("index_select", TORCH_FN(index_select));
  m.impl("index_select.out", TORCH_FN(index_select_out));
  m.impl("take", TORCH_FN(take));
  m.impl("take.out", TORCH_FN(take_out));
  m.impl("index.Tensor", TORCH_FN(index));
  m.impl("index.Tensor_out", TORCH_FN(index_out));
}

}  // namespace torch_backend
