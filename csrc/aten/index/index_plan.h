// index_plan.h: indexing by a list of tensors, made ready for kernels that take one index tensor along one dimension.
#pragma once

#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>

#include "aten/prepare/call.h"

namespace torch_backend {

using Indices = c10::List<std::optional<at::Tensor>>;

// An index of int32 or int64 as int64.
inline at::Tensor long_index(const at::Tensor &index) {
  return index.scalar_type() == at::kLong ? index : index.to(at::kLong);
}

// Masks become the index tensors of their true elements, which waits for the device; indices move to the device of self.
Indices without_masks(const at::Tensor &self, const Indices &indices);

// The indexed dimensions of a tensor and its index tensors as one. Index tensors that are not neighbours put their
// dimensions first, as torch does; several are combined into offsets by a kernel, which reports bad ones.
class IndexPlan {
 public:
  // `indices` have no masks; at least one is a tensor.
  IndexPlan(const at::Tensor &self, const Indices &indices);

  // False when the kernel that combines several index tensors is missing: nothing else may be asked then.
  bool possible() const { return possible_; }
  const at::Tensor &index() const { return index_; }
  bool checked() const { return checked_; }
  int64_t dim() const { return before_; }  // of the descriptors below that the index goes along

  // The shape of the indexing result: the dimensions before, those of the index tensors, those after.
  at::DimVector result_shape() const;

  // Rearranges descriptors for a kernel: of a tensor of the result's shape, of self, of the index.
  void arrange_result(Operand &result) const;
  void arrange_self(Operand &self, size_t index_dims) const;
  void arrange_index(Operand &index) const;
  const at::Tensor &self() const { return self_; }
  size_t index_dims() const { return index_.dim() ? static_cast<size_t>(index_.dim()) : 1; }

  // The index as a vector, and a tensor of the result's shape with the dimensions of the index tensors as one.
  void flatten();
  at::Tensor flattened(const at::Tensor &result_shaped) const;

 private:
  void combine(const std::vector<at::Tensor> &indices);

  at::Tensor self_, index_;
  int64_t before_ = 0, indexed_ = 0;  // dimensions before the first indexed one; indexed ones
  int64_t bound_ = 0, step_ = 0;      // of the places that the index counts
  bool checked_ = false, possible_ = true;
};

}  // namespace torch_backend
