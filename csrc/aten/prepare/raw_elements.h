// raw_elements.h: tensors of any dtype as tensors of integers of the element's size, for kernels that only move
// elements.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include "aten/prepare/tensor.h"

namespace torch_backend {

// The integer of an element's size. 16-byte elements are pairs of 8 bytes.
inline hal_dtype_t integer_of_size(size_t itemsize) {
  switch (itemsize) {
    case 1:
      return HAL_UINT8;
    case 2:
      return HAL_INT16;
    case 4:
      return HAL_INT32;
    default:
      return HAL_INT64;
  }
}

// A descriptor over a tensor's memory, which it borrows.
class RawElements {
 public:
  explicit RawElements(const at::Tensor &tensor) : tensor_(describe(tensor)) {
    const size_t itemsize = tensor.dtype().itemsize();
    tensor_.dtype = integer_of_size(itemsize);
    if (C10_UNLIKELY(itemsize == 16)) split_pairs(tensor);
  }
  RawElements(const RawElements &) = delete;
  RawElements &operator=(const RawElements &) = delete;

  hal_tensor_t &tensor() { return tensor_; }

 private:
  void split_pairs(const at::Tensor &tensor) {
    for (const int64_t size : tensor.sizes()) sizes_.push_back(size);
    for (const int64_t stride : tensor.strides()) strides_.push_back(2 * stride);
    sizes_.push_back(2);
    strides_.push_back(1);
    tensor_.sizes = sizes_.data();
    tensor_.strides = strides_.data();
    tensor_.ndim++;
  }

  hal_tensor_t tensor_;
  c10::SmallVector<int64_t, 6> sizes_, strides_;
};

}  // namespace torch_backend
