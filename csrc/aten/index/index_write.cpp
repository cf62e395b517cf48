// index_write.cpp: scatter, index_copy, index_fill, put and assignment to indexed elements. For equal indices the last
// one wins, as on the CPU.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/native/IndexKernel.h>
#include <ATen/native/TensorAdvancedIndexing.h>
#include <ATen/ops/_index_put_impl_native.h>
#include <ATen/ops/index_meta.h>
#include <ATen/ops/view_as_real.h>

#include "aten/index/conditions.h"
#include "aten/index/index_plan.h"
#include "aten/prepare/structured.h"
#include "hal_op_ids.h"

namespace torch_backend {
namespace {

void scatter_elements(const at::Tensor &result, int64_t dim, const at::Tensor &index, const at::Tensor &src) {
  Call call(HAL_OP_ID_SCATTER_SRC, result);
  call.put(dim).index(index).in(src).with(&Operand::narrow, index.sizes()).update(result).must_run();
}

void scatter_number(const at::Tensor &result, int64_t dim, const at::Tensor &index, const at::Scalar &number) {
  scatter_elements(result, dim, index, element_of(number, result).expand(index.sizes()));
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

// ---- writes at flat indices: put_ and index_put_ ----

uint32_t put_op(bool accumulate) { return accumulate ? HAL_OP_ID__INDEX_PUT_IMPL__LINES : HAL_OP_ID_INDEX_PUT; }

// Adds the arguments of such a call that follow the index, and its result; negative indices count from the end.
Call &put_values(Call &call, const at::Tensor &src, bool accumulate, bool checked, const at::Tensor &target) {
  constexpr int64_t kSum = 0;
  call.in(src);
  if (accumulate) call.put(kSum);
  return call.put(static_cast<int64_t>(checked)).update(target);
}

// Sums of complex numbers are computed as sums of their parts.
at::Tensor summed(const at::Tensor &tensor, bool accumulate) {
  return accumulate && tensor.is_complex() ? at::view_as_real(tensor) : tensor;
}

void put_elements(at::TensorIterator &it, const at::TensorBase &given, const bool accumulate) {
  const at::Tensor self(given), flat = resolved(self).contiguous().view(-1), target = summed(flat, accumulate);
  const at::Tensor values = summed(resolved(it.tensor(0)).reshape(-1), accumulate);
  Call call(put_op(accumulate), target);
  call.put(int64_t{0}).index(it.tensor(1).reshape(-1)).with(&Operand::along, values.sizes(), int64_t{0});
  must(put_values(call, values, accumulate, false, target).run());
  if (!flat.is_alias_of(self)) self.copy_(flat.view(self.sizes()));
}

void put_planned(const IndexPlan &plan, const at::Tensor &given, bool accumulate) {
  const at::Tensor values =
      plan.shaped(summed(resolved(given), accumulate)).flatten(plan.dim, plan.dim + plan.count - 1);
  Call call(put_op(accumulate), plan.self);
  call.put(plan.dim).index(plan.index.reshape(-1)).with(&Operand::along, values.sizes(), plan.dim);
  put_values(call, values, accumulate, plan.checked, plan.self);
  plan.arrange(call.last(), static_cast<size_t>(plan.count));
  call.must_run();
}

void put_indexed(at::TensorIterator &it, c10::IntArrayRef sizes, c10::IntArrayRef strides, bool accumulate) {
  if (it.numel() == 0) return;
  const at::Tensor &self = it.tensor(0);
  put_planned(IndexPlan(it, summed(self, accumulate), 2, sizes, strides), it.tensor(1).expand(self.sizes()),
              accumulate);
}

// ATen's description of a read by indices, whose result is the tensor that is written.
class Written final : public at::meta::structured_index_Tensor {
 public:
  explicit Written(const at::Tensor &values) : values_(values) {}
  void set_output_raw_strided(int64_t index, c10::IntArrayRef sizes, c10::IntArrayRef strides,
                              c10::TensorOptions options) override {
    TORCH_CHECK(at::is_expandable_to(values_.sizes(), sizes), "shape mismatch: value tensor of shape ", values_.sizes(),
                " cannot be broadcast to indexing result of shape ", sizes);
    result_ = values_.expand(sizes);
    at::TensorIteratorBase::set_output_raw_strided(index, sizes, strides, options);
  }
  const at::Tensor &maybe_get_output(int64_t) override { return result_; }

 private:
  at::Tensor values_, result_;
};

// ATen calls this function if the order of equal indices matters; here the order is always the same.
void put_in_order(at::Tensor &self, const Indices &indices, const at::Tensor &values, bool accumulate, bool) {
  TORCH_CHECK(self.scalar_type() == values.scalar_type(),
              "Index put requires the source and destination dtypes match, got ", self.scalar_type(),
              " for the destination and ", values.scalar_type(), " for the source.");
  Written it(values);
  const auto indexed = it.meta(self, at::IOptTensorListRef(indices));
  if (it.numel() == 0) return;
  put_planned(IndexPlan(it, summed(it.tensor(1), accumulate), 2, indexed.sizes, indexed.strides), it.tensor(0),
              accumulate);
}

// If sums are computed in another dtype, in a temporary of it. The kernel receives descriptors of the elements in
// place.
bool index_put(at::Tensor &self, const Indices &indices, const at::Tensor &values, bool accumulate, bool unsafe) {
  const at::Tensor parts = summed(self, accumulate);
  const auto dtype = computing_dtype(self.device().index(), put_op(accumulate), parts.scalar_type());
  if (!dtype) return false;
  if (*dtype == parts.scalar_type() || values.scalar_type() != self.scalar_type())
    return at::native::_index_put_impl_(self, with_an_index(indices), values, accumulate, unsafe).defined();
  at::Tensor wide = self.to(*dtype);
  at::native::_index_put_impl_(wide, with_an_index(indices), values.to(*dtype), accumulate, unsafe);
  self.copy_(wide);
  return true;
}

}  // namespace
}  // namespace torch_backend

#include "aten/index/index_write.inc"  // registrations: codegen/operators
