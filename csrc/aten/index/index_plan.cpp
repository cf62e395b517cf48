// index_plan.cpp: see index_plan.h.
#include "aten/index/index_plan.h"

#include <ATen/ExpandUtils.h>
#include <ATen/native/IndexingUtils.h>
#include <ATen/native/TensorAdvancedIndexingUtils.h>

#include "hal_op_ids.h"

namespace torch_backend {

Indices without_masks(const at::Tensor &self, const Indices &indices) {
  TORCH_CHECK_INDEX(indices.size() <= static_cast<size_t>(self.dim()), "too many indices for tensor of dimension ",
                    self.dim(), " (got ", indices.size(), ")");
  bool ready = true;
  for (const std::optional<at::Tensor> &index : indices) {
    if (!index || !index->defined()) continue;
    const auto dtype = index->scalar_type();
    ready &= dtype != at::kBool && dtype != at::kByte && index->device() == self.device();
  }
  if (ready) return indices;
  at::native::checkIndexTensorTypes(indices, /*allow_int=*/true);
  Indices result;
  for (at::Tensor &index : at::native::expandTensors(self, indices, /*ensure_same_device=*/true))
    result.push_back(index.defined() ? std::optional<at::Tensor>(std::move(index)) : std::nullopt);
  return result;
}

// Index tensors in one shape.
static std::vector<at::Tensor> broadcast(std::vector<at::Tensor> indices) {
  try {
    return at::expand_outplace(indices);
  } catch (const c10::Error &) {
    TORCH_CHECK_INDEX(false, "shape mismatch: indexing tensors could not be broadcast together with shapes ",
                      at::native::shapes_as_str(indices));
  }
}

IndexPlan::IndexPlan(const at::Tensor &self, const Indices &given) : self_(self) {
  std::vector<at::Tensor> indices;
  for (const std::optional<at::Tensor> &index : given)
    indices.push_back(index && index->defined() ? long_index(*index) : at::Tensor());
  indices = broadcast(std::move(indices));
  indices.resize(static_cast<size_t>(self.dim()));
  if (!at::native::hasContiguousSubspace(indices))
    std::tie(self_, indices) = at::native::transposeToFront(self_, indices);
  for (size_t d = 0; d < indices.size(); d++) {
    if (!indices[d].defined()) continue;
    if (indexed_++ == 0) before_ = static_cast<int64_t>(d);
    TORCH_CHECK_INDEX(self_.size(static_cast<int64_t>(d)) != 0 || indices[d].numel() == 0,
                      "index is out of bounds for dimension with size 0");
  }
  if (indexed_ > 1) {
    combine(indices);
  } else {
    index_ = indices[static_cast<size_t>(before_)];
    bound_ = self_.size(before_);
    step_ = self_.stride(before_);
  }
}

void IndexPlan::combine(const std::vector<at::Tensor> &indices) {
  const c10::DeviceIndex device = self_.device().index();
  index_ = make_empty(indices[static_cast<size_t>(before_)].sizes(), at::kLong, device);
  checked_ = true;
  step_ = 1;
  bound_ = 1;
  for (int64_t d = before_; d < before_ + indexed_; d++) {
    const int64_t size = self_.size(d), stride = self_.stride(d);
    Call call(HAL_OP_ID__INDEX_OFFSET, index_);
    call.in(indices[static_cast<size_t>(d)]).put(size).put(stride).put(d).put(static_cast<int64_t>(d == before_));
    bound_ += (size - 1) * stride;
    if (index_.numel() != 0) possible_ = possible_ && call.update(index_).run();
  }
}

at::DimVector IndexPlan::result_shape() const {
  at::DimVector shape(self_.sizes().slice(0, static_cast<size_t>(before_)));
  shape.append(index_.sizes().begin(), index_.sizes().end());
  const c10::IntArrayRef after = self_.sizes().slice(static_cast<size_t>(before_ + indexed_));
  shape.append(after.begin(), after.end());
  return shape;
}

void IndexPlan::arrange_result(Operand &result) const {
  // A tensor without dimensions has got one already.
  const auto dims = static_cast<size_t>(self_.dim() - indexed_) + index_dims();
  if (index_.dim() == 0 && result.dim() < dims) result.insert(static_cast<size_t>(before_), 1, 0);
}

void IndexPlan::arrange_self(Operand &self, size_t index_dims) const {
  const auto first = static_cast<size_t>(before_);
  self.erase(first, static_cast<size_t>(indexed_));
  for (size_t i = 1; i < index_dims; i++) self.insert(first, 1, 0);
  self.insert(first, bound_, step_);
}

void IndexPlan::arrange_index(Operand &index) const {
  for (int64_t d = self_.dim() - 1; d >= before_ + indexed_; d--) index.insert(index_dims(), self_.size(d), 0);
  for (int64_t d = before_ - 1; d >= 0; d--) index.insert(0, self_.size(d), 0);
}

void IndexPlan::flatten() { index_ = index_.reshape(-1); }

at::Tensor IndexPlan::flattened(const at::Tensor &tensor) const {
  at::DimVector shape(self_.sizes().slice(0, static_cast<size_t>(before_)));
  shape.push_back(index_.numel());
  const c10::IntArrayRef after = self_.sizes().slice(static_cast<size_t>(before_ + indexed_));
  shape.append(after.begin(), after.end());
  return tensor.reshape(shape);
}

}  // namespace torch_backend
