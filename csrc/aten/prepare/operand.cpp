// operand.cpp: see operand.h.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "aten/prepare/operand.h"

#include <algorithm>

namespace torch_backend {

hal_dtype_t dtype_of_size(size_t itemsize) {
  switch (itemsize) {
    case 1:
      return HAL_UINT8;
    case 2:
      return HAL_INT16;
    case 4:
      return HAL_INT32;
    case 16:
      return HAL_COMPLEX128;
    default:
      return HAL_INT64;
  }
}

bool Operand::own() {
  if (!given()) return false;
  if (!owns_) {
    const size_t ndim = dim();
    set_dims({descriptor_.sizes, descriptor_.sizes + ndim}, {descriptor_.strides, descriptor_.strides + ndim});
  }
  return true;
}

void Operand::set_dims(at::DimVector sizes, at::DimVector strides) {
  sizes_ = std::move(sizes);
  strides_ = std::move(strides);
  descriptor_.ndim = static_cast<int32_t>(sizes_.size());
  owns_ = true;
}

Operand &Operand::told(hal_dtype_t dtype) {
  descriptor_.dtype = dtype;
  return *this;
}

Operand &Operand::as(c10::IntArrayRef sizes) {
  if (!given()) return *this;
  at::DimVector strides(sizes.size());
  int64_t stride = 1;
  for (size_t d = sizes.size(); d-- > 0; stride *= sizes[d]) strides[d] = stride;
  set_dims(at::DimVector(sizes), std::move(strides));
  return *this;
}

Operand &Operand::expand(c10::IntArrayRef shape) {
  if (!given() || (!owns_ && impl_->sizes() == shape)) return *this;
  own();
  at::DimVector strides(shape.size(), 0);
  const size_t missing = shape.size() - sizes_.size();
  for (size_t d = missing; d < shape.size(); d++) strides[d] = sizes_[d - missing] == 1 ? 0 : strides_[d - missing];
  set_dims(at::DimVector(shape), std::move(strides));
  return *this;
}

Operand &Operand::along(c10::IntArrayRef shape, int64_t dim) {
  if (!given()) return *this;
  const int64_t size = impl_->numel(), stride = impl_->dim() ? impl_->stride(0) : 0;
  set_dims(at::DimVector(shape), at::DimVector(shape.size(), 0));
  at_least(1);
  sizes_[static_cast<size_t>(dim)] = size;
  strides_[static_cast<size_t>(dim)] = stride;
  return *this;
}

Operand &Operand::narrow(c10::IntArrayRef sizes) {
  if (own()) std::copy(sizes.begin(), sizes.end(), sizes_.begin());
  return *this;
}

Operand &Operand::keep(c10::IntArrayRef shape, c10::IntArrayRef dims) {
  if (!own()) return *this;
  at::DimVector sizes(shape), strides(shape.size(), 1);
  const bool kept = sizes_.size() == shape.size();
  for (size_t d = 0, next = 0; d < shape.size(); d++) {
    if (std::find(dims.begin(), dims.end(), static_cast<int64_t>(d)) != dims.end()) {
      sizes[d] = 1;
    } else {
      strides[d] = strides_[kept ? d : next++];
    }
  }
  set_dims(std::move(sizes), std::move(strides));
  return *this;
}

Operand &Operand::at_least(size_t ndim) {
  while (given() && dim() < ndim) insert(0, 1, dim() == 0 ? 1 : 0);
  return *this;
}

Operand &Operand::insert(size_t at, int64_t size, int64_t stride) {
  if (!own()) return *this;
  sizes_.insert(sizes_.begin() + static_cast<std::ptrdiff_t>(at), size);
  strides_.insert(strides_.begin() + static_cast<std::ptrdiff_t>(at), stride);
  descriptor_.ndim++;
  return *this;
}

Operand &Operand::erase(size_t first, size_t count) {
  if (!own()) return *this;
  const auto begin = static_cast<std::ptrdiff_t>(first), end = static_cast<std::ptrdiff_t>(first + count);
  sizes_.erase(sizes_.begin() + begin, sizes_.begin() + end);
  strides_.erase(strides_.begin() + begin, strides_.begin() + end);
  descriptor_.ndim -= static_cast<int32_t>(count);
  return *this;
}

Operand &Operand::flip(size_t dim) {
  if (!own()) return *this;
  const int64_t last = (sizes_[dim] - 1) * strides_[dim] * static_cast<int64_t>(impl_->itemsize());
  descriptor_.data = static_cast<char *>(descriptor_.data) + last;
  strides_[dim] *= -1;
  return *this;
}

}  // namespace torch_backend
