// index_plan.h: indexing by a list of tensors, made ready for kernels that take one index tensor along one dimension.
#pragma once

#include <ATen/TensorIterator.h>
#include <ATen/core/List.h>

#include "aten/prepare/call.h"

namespace torch_backend {

using Indices = c10::List<std::optional<at::Tensor>>;

// An index of int32 or int64 as int64.
inline at::Tensor long_index(const at::Tensor &index) {
  return index.scalar_type() == at::kLong ? index : index.to(at::kLong);
}

// What an iterator of ATen's says of indexing: the tensor in the result's shape, with stride 0 where indices vary, index tensors, and of
// each the dimension that it indexes: its size and its stride in bytes. Index tensors as one: a kernel combines several into
// offsets, and reports bad ones.
struct IndexPlan {
  // `self`: that tensor, or its elements otherwise described; `indices`: the iterator's first operand that is an index.
  IndexPlan(const at::TensorIteratorBase &it, const at::Tensor &self, int indices, c10::IntArrayRef sizes,
            c10::IntArrayRef strides);

  // Tells the descriptor of self what the index counts, in one dimension instead of all that it has.
  void arrange(Operand &of_self, size_t dims) const {
    of_self.erase(static_cast<size_t>(dim), dims).insert(static_cast<size_t>(dim), bound, step);
  }
  // A tensor of the result's shape, which has a dimension to count along.
  at::Tensor shaped(const at::Tensor &tensor) const { return extended ? tensor.unsqueeze(0) : tensor; }

  at::Tensor self, index;
  int64_t dim = 0, count = 1;  // the dimensions of the result that the index has
  int64_t bound = 1, step = 1;
  const bool checked;
  bool extended = false;

 private:
  void combine(const at::TensorIteratorBase &it, int indices, c10::IntArrayRef sizes, c10::IntArrayRef strides);
};

}  // namespace torch_backend
