// operand.h: the descriptor of a tensor for kernels, the only one in csrc/aten. It borrows sizes and strides if
// possible and owns the rest.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/DimVector.h>

#include <optional>
#include <utility>

#include "aten/prepare/tensor.h"

namespace torch_backend {

using OptionalTensor = std::optional<at::Tensor>;

inline bool is_given(const OptionalTensor &tensor) { return tensor && tensor->defined(); }
// Returns the tensor, or an undefined one.
inline at::Tensor given_or_undefined(const OptionalTensor &tensor) { return tensor ? *tensor : at::Tensor(); }

// Returns the integer dtype of an element size, for kernels that only move elements; complex128 for 16 bytes.
hal_dtype_t dtype_of_size(size_t itemsize);

// Describes a tensor with its sizes and strides until it is changed; none if the tensor is undefined. Owns a tensor
// that is moved in; any other tensor must outlive the operand.
class Operand {
 public:
  Operand() = default;
  explicit Operand(const at::Tensor &tensor) { borrow(tensor); }
  explicit Operand(at::Tensor &&tensor) : kept_(std::move(tensor)) { borrow(kept_); }

  bool given() const { return impl_ != nullptr; }
  // The tensor that is described.
  const c10::TensorImpl *impl() const { return impl_; }

  // Each of these changes the description, not the tensor, and does nothing to an absent operand.

  // Describes the elements as those of another dtype of the same size.
  Operand &told(hal_dtype_t dtype);
  // Describes a contiguous tensor with other sizes.
  Operand &as(c10::IntArrayRef sizes);
  // Uses the shape of a result: missing dimensions, and those of one element, have stride 0.
  Operand &expand(c10::IntArrayRef sizes);
  // Describes a vector, or a tensor without dimensions, along dimension `dim` of a shape; stride 0 in the others.
  Operand &along(c10::IntArrayRef shape, int64_t dim);
  // Describes the first elements of each dimension.
  Operand &narrow(c10::IntArrayRef sizes);
  // Describes a result of a reduction of a tensor of `shape` over `dims`, ascending, with those kept at size 1 whether
  // or not it has them.
  Operand &keep(c10::IntArrayRef shape, c10::IntArrayRef dims);
  // Adds leading dimensions of size 1 until there are `ndim`.
  Operand &at_least(size_t ndim);
  Operand &insert(size_t at, int64_t size, int64_t stride);
  Operand &erase(size_t first, size_t count);
  // Reverses a dimension.
  Operand &flip(size_t dim);

  size_t dim() const { return static_cast<size_t>(descriptor_.ndim); }

  // Returns the descriptor, which borrows from this object. The object must not be moved afterwards.
  const hal_tensor_t &descriptor() {
    if (owns_) {
      descriptor_.sizes = sizes_.data();
      descriptor_.strides = strides_.data();
    }
    return descriptor_;
  }

 private:
  void borrow(const at::Tensor &tensor) {
    if (!tensor.defined()) return;
    impl_ = tensor.unsafeGetTensorImpl();
    descriptor_ = describe(tensor);
  }
  // Copies sizes and strides into this object. Returns false if there is nothing to change.
  bool own();
  void set_dims(at::DimVector sizes, at::DimVector strides);

  at::Tensor kept_;
  const c10::TensorImpl *impl_ = nullptr;
  hal_tensor_t descriptor_{};
  at::DimVector sizes_, strides_;
  bool owns_ = false;
};

}  // namespace torch_backend
