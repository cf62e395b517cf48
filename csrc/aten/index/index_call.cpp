// index_call.cpp: see index_call.h.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "aten/index/index_call.h"

#include <ATen/ops/view_as_real.h>

#include "aten/prepare/raw_elements.h"
#include "hal_op_ids.h"

namespace torch_backend {

Strided::Strided(const at::Tensor &tensor)
    : tensor_(describe(tensor)),
      sizes_(tensor.sizes().begin(), tensor.sizes().end()),
      strides_(tensor.strides().begin(), tensor.strides().end()) {
  if (sizes_.empty()) insert(0, 1, 1);
}

Strided::Strided(const at::Tensor &vector, c10::IntArrayRef shape, int64_t dim)
    : tensor_(describe(vector)), sizes_(shape.begin(), shape.end()), strides_(shape.size(), 0) {
  if (sizes_.empty()) insert(0, 1, 0);
  strides_[static_cast<size_t>(dim)] = vector.dim() ? vector.stride(0) : 0;
  sizes_[static_cast<size_t>(dim)] = vector.numel();
}

Strided &Strided::moved() {
  const size_t itemsize = c10::elementSize(static_cast<c10::ScalarType>(tensor_.dtype));
  tensor_.dtype = itemsize == 16 ? static_cast<hal_dtype_t>(HAL_COMPLEX128) : integer_of_size(itemsize);
  return *this;
}

Strided &Strided::narrowed(c10::IntArrayRef sizes) {
  for (size_t d = 0; d < sizes.size(); d++) sizes_[d] = sizes[d];
  return *this;
}

void Strided::insert(size_t at, int64_t size, int64_t stride) {
  sizes_.insert(sizes_.begin() + static_cast<std::ptrdiff_t>(at), size);
  strides_.insert(strides_.begin() + static_cast<std::ptrdiff_t>(at), stride);
}

void Strided::erase(size_t first, size_t count) {
  const auto begin = static_cast<std::ptrdiff_t>(first), end = static_cast<std::ptrdiff_t>(first + count);
  sizes_.erase(sizes_.begin() + begin, sizes_.begin() + end);
  strides_.erase(strides_.begin() + begin, strides_.begin() + end);
}

const hal_tensor_t &Strided::descriptor() {
  tensor_.sizes = sizes_.data();
  tensor_.strides = strides_.data();
  tensor_.ndim = static_cast<int32_t>(sizes_.size());
  return tensor_;
}

bool run_take(uint32_t op, c10::DeviceIndex device, Strided &result, Strided &self, int64_t dim, Strided &index,
              bool checked) {
  const hal_value_t args[] = {value(self.descriptor()), value(dim), value(index.descriptor()),
                              value(static_cast<int64_t>(checked))};
  return run_op(device, op, {args, op == HAL_OP_ID_INDEX_TENSOR ? 4u : 3u}, {&result.descriptor()});
}

bool run_put(uint32_t op, c10::DeviceIndex device, Strided &self, int64_t dim, Strided &index, Strided &src,
             bool checked) {
  const hal_value_t args[] = {value(dim), value(index.descriptor()), value(src.descriptor()),
                              value(static_cast<int64_t>(checked))};
  return run_op(device, op, {args, op == HAL_OP_ID_INDEX_PUT ? 4u : 3u}, {&self.descriptor()});
}

bool run_combine(uint32_t op, c10::DeviceIndex device, Strided &self, int64_t dim, Strided &index, Strided &src,
                 Combine combine, bool checked) {
  const hal_value_t args[] = {value(dim), value(index.descriptor()), value(src.descriptor()),
                              value(static_cast<int64_t>(combine)), value(static_cast<int64_t>(checked))};
  return run_op(device, op, {args, op == HAL_OP_ID__INDEX_PUT_IMPL_ ? 5u : 4u}, {&self.descriptor()});
}

std::optional<c10::ScalarType> combining_dtype(c10::ScalarType dtype) {
  switch (dtype) {
    case c10::ScalarType::Half:
    case c10::ScalarType::BFloat16:
    case c10::ScalarType::Float:
      return c10::ScalarType::Float;
    case c10::ScalarType::Double:
      return c10::ScalarType::Double;
    case c10::ScalarType::Bool:
    case c10::ScalarType::Byte:
    case c10::ScalarType::Char:
    case c10::ScalarType::Short:
    case c10::ScalarType::Int:
    case c10::ScalarType::Long:
      return c10::ScalarType::Long;
    default:
      return std::nullopt;
  }
}

bool with_combining_dtype(const at::Tensor &self, const at::Tensor &src, Combine combine,
                          const std::function<bool(const at::Tensor &, const at::Tensor &)> &body) {
  if (self.is_complex() && combine == Combine::kSum)
    return with_combining_dtype(at::view_as_real(self), at::view_as_real(src), combine, body);
  const auto dtype = combining_dtype(self.scalar_type());
  if (!dtype) return false;
  if (*dtype == self.scalar_type()) return body(self, src);
  const at::Tensor wide = self.to(*dtype);
  if (!body(wide, src.to(*dtype))) return false;
  self.copy_(wide);
  return true;
}

at::Tensor long_index(const at::Tensor &index) {
  return index.scalar_type() == at::kLong ? index : index.to(at::kLong);
}

}  // namespace torch_backend
