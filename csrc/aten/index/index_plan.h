// index_plan.h: prepares indexing by a list of tensors for kernels that take one index tensor along one dimension.
#pragma once

#include <ATen/TensorIterator.h>
#include <ATen/core/List.h>

#include "aten/prepare/call.h"

namespace torch_backend {

using Indices = c10::List<std::optional<at::Tensor>>;

// Returns an index of int32 or int64 as int64.
inline at::Tensor long_index(const at::Tensor &index) {
  return index.scalar_type() == at::kLong ? index : index.to(at::kLong);
}

// Indexing as described by an iterator of ATen: the tensor in the result's shape, with stride 0 in indexed dimensions,
// the index tensors, and for each of these the size of the dimension that it indexes and its stride in bytes. The index
// tensors are combined into one: a kernel computes offsets from several, and reports invalid ones.
struct IndexPlan {
  // `self` is that tensor, or its elements in another description; `indices` is the iterator's first operand that is an
  // index.
  IndexPlan(const at::TensorIteratorBase &it, const at::Tensor &self, int indices, c10::IntArrayRef sizes,
            c10::IntArrayRef strides);

  // Makes the descriptor of self have one dimension, which the index counts along, instead of all its dimensions.
  void arrange(Operand &of_self, size_t dims) const {
    of_self.erase(static_cast<size_t>(dim), dims).insert(static_cast<size_t>(dim), bound, step);
  }
  // Returns a tensor of the result's shape, with a dimension to count along.
  at::Tensor shaped(const at::Tensor &tensor) const { return extended ? tensor.unsqueeze(0) : tensor; }

  at::Tensor self, index;
  int64_t dim = 0, count = 1;  // the dimensions of the result that belong to the index
  int64_t bound = 1, step = 1;
  const bool checked;
  bool extended = false;

 private:
  void combine(const at::TensorIteratorBase &it, int indices, c10::IntArrayRef sizes, c10::IntArrayRef strides);
};

}  // namespace torch_backend
