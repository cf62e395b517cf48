// tensor.h: device tensors and their descriptors for the C API. Inline, because this is the fast path.
#pragma once

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>

#include "core/allocator/allocator.h"
#include "core/device.h"
#include "hal/hal.h"

namespace torch_backend {

// Describes a strided device tensor. The descriptor borrows the tensor's sizes and strides, so it must not outlive the
// tensor. A tensor of no elements has no address: its offset may be the end of the memory, or one of a storage without
// memory, which plugins refuse.
inline hal_tensor_t describe(const at::Tensor &tensor) {
  const c10::TensorImpl *impl = tensor.unsafeGetTensorImpl();
  char *base = static_cast<char *>(tensor.storage().unsafeGetStorageImpl()->_mutable_data_ptr_no_checks().get());
  return {sizeof(hal_tensor_t),
          impl->numel() ? base + impl->storage_offset() * static_cast<int64_t>(impl->itemsize()) : nullptr,
          impl->sizes().data(),
          impl->strides().data(),
          static_cast<int32_t>(impl->dim()),
          static_cast<int32_t>(tensor.scalar_type()),
          ordinal_of(impl->device().index()),
          0};
}

inline hal_value_t value(const hal_tensor_t &tensor) {
  hal_value_t v{};
  v.tag = HAL_VALUE_TENSOR;
  v.u.t = &tensor;
  return v;
}
inline hal_value_t value(double number) {
  hal_value_t v{};
  v.tag = HAL_VALUE_DOUBLE;
  v.u.d = number;
  return v;
}
inline hal_value_t value(int64_t number) {
  hal_value_t v{};
  v.tag = HAL_VALUE_INT;
  v.u.i = number;
  return v;
}
inline hal_value_t value(bool flag) {
  hal_value_t v{};
  v.tag = HAL_VALUE_BOOL;
  v.u.i = flag;
  return v;
}
inline hal_value_t value(c10::IntArrayRef list) {
  hal_value_t v{};
  v.tag = HAL_VALUE_INT_LIST;
  v.count = static_cast<uint32_t>(list.size());
  v.u.il = list.data();
  return v;
}
inline hal_value_t value(c10::ScalarType dtype) {
  hal_value_t v{};
  v.tag = HAL_VALUE_DTYPE;
  v.u.i = static_cast<int64_t>(dtype);
  return v;
}
inline hal_value_t value(const hal_value_t &given) { return given; }
inline hal_value_t none_value() { return hal_value_t{}; }

}  // namespace torch_backend
