// index_write.cpp: scatter, index_copy, index_fill, put and assignment to indexed elements. Of equal indices the last one
// wins, as on the CPU.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/native/TensorAdvancedIndexingUtils.h>
#include <ATen/ops/view_as_real.h>

#include "aten/index/index_plan.h"
#include "aten/prepare/structured.h"
#include "hal_op_ids.h"

namespace torch_backend {
namespace {

bool scatter_into(const at::Tensor &result, int64_t dim, const at::Tensor &index, const at::Tensor &src) {
  if (index.numel() == 0) return true;
  Call call(HAL_OP_ID_SCATTER_SRC, result);
  call.put(at::maybe_wrap_dim(dim, result.dim())).index(index).in(src).with(&Operand::narrow, index.sizes());
  return call.update(result).run();
}

bool run_scatter_src(const Outputs &outputs, const at::Tensor &self, int64_t dim, const at::Tensor &index,
                     const at::Tensor &src) {
  return scatter_into(outputs.start(0, self), dim, index, src);
}

bool run_scatter_value(const Outputs &outputs, const at::Tensor &self, int64_t dim, const at::Tensor &index,
                       const at::Scalar &number) {
  const at::Tensor &result = outputs.start(0, self);
  return scatter_into(result, dim, index, element_of(number, result).expand(index.sizes()));
}

bool run_index_copy(const Outputs &outputs, const at::Tensor &self, int64_t dim, const at::Tensor &index,
                    const at::Tensor &source) {
  const at::Tensor &result = outputs.start(0, self);
  if (index.numel() == 0 || source.numel() == 0) return true;
  dim = at::maybe_wrap_dim(dim, self.dim());
  Call call(HAL_OP_ID_INDEX_COPY, result);
  call.put(dim).index(index).with(&Operand::along, source.sizes(), source.dim() ? dim : 0);
  return call.in(source).update(result).run();
}

// ---- index_fill ----

bool index_fill_tensor(const at::Tensor &self, int64_t dim, const at::Tensor &index, const at::Tensor &number) {
  TORCH_CHECK(number.dim() == 0, "index_fill_ only supports a 0-dimensional value tensor, but got tensor with ",
              number.dim(), " dimension(s).");
  TORCH_CHECK_INDEX(index.scalar_type() == at::kLong, "index_fill_(): Expected dtype int64 for index.");
  at::assert_no_overlap(self, index);
  TORCH_CHECK(!(!self.is_complex() && number.is_complex()),
              "index_fill_(): Converting complex Scalar to non-complex type is not supported");
  TORCH_CHECK(index.dim() <= 1, "Index has to be a vector/scalar");
  dim = at::maybe_wrap_dim(dim, self.dim());
  if (self.numel() == 0 || index.numel() == 0) return true;
  if (at::has_internal_overlap(self) == at::MemOverlap::Yes) return false;
  const at::Tensor element = number.to(self.options());
  at::DimVector sizes(self.sizes());
  if (!sizes.empty()) sizes[static_cast<size_t>(dim)] = index.numel();
  Call call(HAL_OP_ID_INDEX_PUT, self);
  call.put(dim).index(index).with(&Operand::along, sizes, dim).in(element.expand(sizes));
  if (sizes.empty()) call.with(&Operand::narrow, {index.numel()});
  return call.put(int64_t{0}).update(self).run();
}

bool index_fill_scalar(const at::Tensor &self, int64_t dim, const at::Tensor &index, const at::Scalar &number) {
  TORCH_CHECK(!(!self.is_complex() && number.isComplex()),
              "index_fill_(): Converting complex Scalar to non-complex type is not supported");
  return index_fill_tensor(self, dim, index, element_of(number, self));
}

// ---- writes at flat places: put_ and index_put_ ----

uint32_t put_op(bool accumulate) { return accumulate ? HAL_OP_ID__INDEX_PUT_IMPL__LINES : HAL_OP_ID_INDEX_PUT; }

// The arguments of such a call behind the index, and its result; negative places count from the end.
Call &put_values(Call &call, const at::Tensor &src, bool accumulate, bool checked, const at::Tensor &target) {
  constexpr int64_t kSum = 0;
  call.in(src);
  if (accumulate) call.put(kSum);
  return call.put(static_cast<int64_t>(checked)).update(target);
}

// Sums of complex numbers are sums of their parts.
at::Tensor summed(const at::Tensor &tensor, bool accumulate) {
  return accumulate && tensor.is_complex() ? at::view_as_real(tensor) : tensor;
}

bool put_flat(const at::Tensor &self, const at::Tensor &index, const at::Tensor &source, bool accumulate) {
  const at::Tensor flat = resolved(self).contiguous().view(-1), target = summed(flat, accumulate);
  const at::Tensor values = summed(resolved(source).reshape(-1), accumulate);
  Call call(put_op(accumulate), target);
  call.put(int64_t{0}).index(index.reshape(-1)).with(&Operand::along, values.sizes(), int64_t{0});
  if (!put_values(call, values, accumulate, false, target).run()) return false;
  if (!flat.is_alias_of(self)) self.copy_(flat.view(self.sizes()));
  return true;
}

bool put(const at::Tensor &self, const at::Tensor &index, const at::Tensor &source, bool accumulate) {
  TORCH_CHECK(index.scalar_type() == at::kLong, "put_(): Expected a long tensor for index, but got ",
              index.scalar_type());
  TORCH_CHECK(self.scalar_type() == source.scalar_type(),
              "put_(): self and source expected to have the same dtype, but got self.dtype = ", self.scalar_type(),
              " and source.dtype = ", source.scalar_type());
  TORCH_CHECK(source.numel() == index.numel(),
              "put_(): Expected source and index to have the same number of elements, but got source.numel() = ",
              source.numel(), ", index.numel() = ", index.numel());
  TORCH_CHECK_INDEX(!(self.numel() == 0 && index.numel() != 0), "put_(): Tried to put elements into an empty tensor");
  at::assert_no_internal_overlap(self);
  at::assert_no_overlap(self, index);
  at::assert_no_overlap(self, source);
  return index.numel() == 0 || put_flat(self, index, source, accumulate);
}

void check_values(const at::Tensor &values, c10::IntArrayRef shape) {
  TORCH_CHECK(at::is_expandable_to(values.sizes(), shape), "shape mismatch: value tensor of shape ", values.sizes(),
              " cannot be broadcast to indexing result of shape ", shape);
}

bool index_put_into(const at::Tensor &self, const Indices &indices, const at::Tensor &values, bool accumulate) {
  IndexPlan plan(self, indices);
  if (!plan.possible()) return false;
  const at::DimVector shape = plan.result_shape();
  check_values(values, shape);
  if (c10::multiply_integers(shape) == 0) return true;
  plan.flatten();
  Call call(put_op(accumulate), plan.self());
  if (!call.possible()) return false;
  plan.arrange_index(call.put(plan.dim()).index(plan.index()).last());
  put_values(call, plan.flattened(values.expand(shape)), accumulate, plan.checked(), plan.self());
  plan.arrange_self(call.last(), 1);
  return call.run();
}

// The plan is made for the tensor that is written: itself, or a temporary of the dtype that is summed in.
bool index_put_values(const at::Tensor &self, const Indices &indices, const at::Tensor &values, bool accumulate) {
  const auto dtype = computing_dtype(self.device().index(), put_op(accumulate), self.scalar_type());
  if (!dtype) return false;
  const Destination target(self, *dtype, false, Layout::kStrided, /*keeps=*/true);
  if (!index_put_into(target.tensor(), indices, values.to(*dtype), accumulate)) return false;
  target.finish();
  return true;
}

bool index_put(at::Tensor &self, const Indices &given, const at::Tensor &values, bool accumulate, bool) {
  TORCH_CHECK_INDEX(given.size() <= static_cast<size_t>(self.dim()), "too many indices for tensor of dimension ",
                    self.dim(), " (got ", given.size(), ")");
  if (at::has_internal_overlap(self) == at::MemOverlap::Yes)
    TORCH_WARN("Use of index_put_ on expanded tensors is deprecated. Please clone() the tensor before performing this ",
               "operation. This also applies to advanced indexing e.g. tensor[indices] = tensor");
  if (!accumulate) {
    const auto [fills, mask] = at::native::canDispatchToMaskedFill(self, given, values);
    if (fills) return self.masked_fill_(mask, values.item()).defined();
  }
  const at::Tensor src = values.is_cpu() && values.dim() == 0 ? values.to(self.device()) : values;
  if (src.device() != self.device()) throw_two_devices(self.device(), src.device());
  if (self.scalar_type() != src.scalar_type())
    check_values(src, IndexPlan(self, without_masks(self, given)).result_shape());
  TORCH_CHECK(self.scalar_type() == src.scalar_type(),
              "Index put requires the source and destination dtypes match, got ", self.scalar_type(),
              " for the destination and ", src.scalar_type(), " for the source.");
  at::assert_no_overlap(self, src);
  bool indexed = false;
  for (const std::optional<at::Tensor> &index : given) {
    if (!index || !index->defined()) continue;
    at::assert_no_overlap(self, *index);
    indexed = true;
  }
  return indexed && is_device_tensor(self) &&
         index_put_values(summed(self, accumulate), without_masks(self, given), summed(resolved(src), accumulate),
                          accumulate);
}

}  // namespace
}  // namespace torch_backend

#include "aten/index/index_write.inc"  // registrations: `bodies` of codegen/ops.yaml
