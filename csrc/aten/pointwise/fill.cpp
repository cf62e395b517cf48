// fill.cpp: fill_ and zero_. A fill writes one element's bytes repeatedly, so the implementation is the same for every
// dtype.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/Dispatch_v2.h>
#include <ATen/core/Tensor.h>
#include <c10/util/DimVector.h>

#include <cstring>

#include "aten/copy/copy.h"
#include "aten/prepare/call.h"
#include "hal_op_ids.h"

namespace torch_backend {
namespace {

struct Pattern {
  alignas(16) unsigned char bytes[16] = {};
};

// Returns the bytes of `value` in a dtype; throws if it is out of range, as on the CPU.
Pattern pattern_of(const at::Scalar &value, c10::ScalarType dtype) {
  Pattern pattern;
  AT_DISPATCH_V2(dtype, "fill_", AT_WRAP([&] {
                   const auto element = value.to<scalar_t>();
                   static_assert(sizeof element <= sizeof pattern.bytes);
                   std::memcpy(pattern.bytes, &element, sizeof element);
                 }),
                 AT_EXPAND(AT_ALL_TYPES_AND_COMPLEX), at::kComplexHalf, at::kHalf, at::kBFloat16, at::kBool,
                 AT_EXPAND(AT_FLOAT8_TYPES), AT_EXPAND(AT_BAREBONES_UNSIGNED_TYPES));
  return pattern;
}

int64_t integer_at(const unsigned char *bytes, size_t size) {
  int64_t number = 0;
  std::memcpy(&number, bytes, size);  // little-endian; the kernel reads the low bytes
  return number;
}

template <typename T>
hal_value_t element_at(const unsigned char *bytes) {
  T element;
  std::memcpy(&element, bytes, sizeof element);
  if constexpr (std::is_integral_v<T>) return value(static_cast<int64_t>(element));
  return value(static_cast<double>(element));
}

bool is_real_number(c10::ScalarType dtype) {
  return c10::isIntegralType(dtype, /*includeBool=*/true) || dtype == at::kFloat || dtype == at::kDouble ||
         dtype == at::kHalf || dtype == at::kBFloat16;
}

// Returns the number of a pattern in such a dtype: the original value, rounded.
hal_value_t number_of(const Pattern &pattern, c10::ScalarType dtype) {
  return AT_DISPATCH_V2(dtype, "fill_", AT_WRAP([&] { return element_at<scalar_t>(pattern.bytes); }),
                        AT_EXPAND(AT_ALL_TYPES), at::kHalf, at::kBFloat16, at::kBool,
                        AT_EXPAND(AT_BAREBONES_UNSIGNED_TYPES));
}

// Returns a tensor without repeated elements (stride 0), which are written once: torch lets fill_ write to expanded
// tensors.
at::Tensor without_repeats(const at::Tensor &tensor) {
  at::DimVector sizes(tensor.sizes());
  for (size_t i = 0; i < sizes.size(); i++) {
    if (tensor.strides()[i] == 0) sizes[i] = 1;
  }
  return sizes == tensor.sizes() ? tensor : tensor.as_strided(sizes, tensor.strides());
}

bool fill_elements(const at::Tensor &self, const Pattern &pattern, size_t pattern_size);

// Fills through the strided kernel; 16-byte elements are copies of one.
bool fill_strided(const at::Tensor &self, const Pattern &pattern) {
  const size_t itemsize = self.itemsize();
  if (itemsize == 16) {
    const at::Tensor element = make_empty({}, self.scalar_type(), self.device().index());
    if (!fill_elements(element, pattern, itemsize)) return false;
    copy_raw(element.expand(self.sizes()), self);
    return true;
  }
  Operand target(self);
  const bool is_number = is_real_number(self.scalar_type()) &&
                         has_kernel(self.device().index(), HAL_OP_ID_FILL_SCALAR, self.scalar_type());
  if (!is_number) target.told(dtype_of_size(itemsize));
  const hal_value_t args[] = {is_number ? number_of(pattern, self.scalar_type())
                                        : value(integer_at(pattern.bytes, itemsize))};
  return run_op(self.device().index(), HAL_OP_ID_FILL_SCALAR, args, {&target.descriptor()});
}

bool fill_elements(const at::Tensor &self, const Pattern &pattern, size_t pattern_size) {
  if (self.numel() == 0) return true;
  if (self.is_non_overlapping_and_dense()) {
    if (C10_UNLIKELY(is_put_off(self.device().index())) && self.itemsize() < 16 && fill_strided(self, pattern))
      return true;
    check(
        hal_memory_fill(nullptr, self.device().index(), address_of(self), pattern.bytes, pattern_size, self.nbytes()));
    return true;
  }
  return fill_strided(without_repeats(self), pattern);
}

// A single element of half precision overflows to infinity on the CPU; several elements raise an error there.
at::Scalar overflown(const at::Scalar &number, c10::ScalarType dtype) {
  if (!c10::isReducedFloatingType(dtype) || number.isComplex()) return number;
  const auto single = static_cast<float>(number.toDouble());
  return dtype == at::kHalf ? static_cast<float>(c10::Half(single)) : static_cast<float>(c10::BFloat16(single));
}

bool fill_number(at::Tensor &self, const at::Scalar &number) {
  if (self.numel() == 1)
    return fill_elements(self, pattern_of(overflown(number, self.scalar_type()), self.scalar_type()), self.itemsize());
  return fill_elements(self, pattern_of(number, self.scalar_type()), self.itemsize());
}

at::Tensor &fill_tensor(at::Tensor &self, const at::Tensor &number) {
  TORCH_CHECK(number.dim() == 0, "fill_ only supports 0-dimension value tensor but got tensor with ", number.dim(),
              " dimensions.");
  if (number.device() != self.device()) return self.fill_(number.to(self.scalar_type()).item());
  // On one device a kernel reads the element, without a wait. The element may belong to the destination.
  at::Tensor element = number;
  if (self.is_alias_of(number)) element = number.clone();
  const at::Tensor target = without_repeats(self);
  if (target.numel() != 0) copy_on_device(element.expand(target.sizes()), target);
  return self;
}

// If all bytes are zero, one byte is a pattern for every dtype.
bool zero(at::Tensor &self) { return fill_elements(self, Pattern{}, 1); }

}  // namespace
}  // namespace torch_backend

#include "aten/pointwise/fill.inc"  // registrations: codegen/operators
