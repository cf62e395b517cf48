// fill.cpp: fill_ and zero_. A fill writes one element's bytes again and again, so every dtype goes the same way.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/Dispatch_v2.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/fill_ops.h>
#include <ATen/ops/zero_ops.h>
#include <c10/util/DimVector.h>
#include <torch/library.h>

#include <cstring>

#include "aten/copy/copy.h"
#include "aten/fallback/fallback_call.h"
#include "aten/prepare/op_call.h"
#include "aten/prepare/raw_elements.h"
#include "hal_op_ids.h"

namespace torch_backend {
namespace {

struct Pattern {
  alignas(16) unsigned char bytes[16] = {};
};

// The bytes of `value` in a dtype; throws where it does not fit, as on the CPU.
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
  std::memcpy(&number, bytes, size);  // little-endian; the kernel takes the low bytes
  return number;
}

// Repeated elements (stride 0) are written once: torch lets fill_ write to expanded tensors.
at::Tensor without_repeats(const at::Tensor &tensor) {
  at::DimVector sizes(tensor.sizes());
  for (size_t i = 0; i < sizes.size(); i++) {
    if (tensor.strides()[i] == 0) sizes[i] = 1;
  }
  return sizes == tensor.sizes() ? tensor : tensor.as_strided(sizes, tensor.strides());
}

bool run_fill(c10::DeviceIndex device, const hal_tensor_t &target, int64_t bits) {
  const hal_value_t args[] = {value(bits)};
  const hal_tensor_t *const results[] = {&target};
  return run_op(device, HAL_OP_ID_FILL_SCALAR, args, results);
}

// Fills through the strided kernel; 16-byte elements as two runs of 8-byte halves.
bool fill_strided(const at::Tensor &self, const Pattern &pattern) {
  const size_t itemsize = self.itemsize(), step = itemsize == 16 ? 8 : itemsize;
  at::DimVector strides(self.strides());
  hal_tensor_t target = describe(self);
  if (itemsize == 16) {
    for (int64_t &stride : strides) stride *= 2;
    target.strides = strides.data();
  }
  target.dtype = integer_of_size(step);
  char *base = static_cast<char *>(target.data);
  for (size_t offset = 0; offset < itemsize; offset += step) {
    target.data = base + offset;
    if (!run_fill(self.device().index(), target, integer_at(pattern.bytes + offset, step))) return false;
  }
  return true;
}

bool fill_elements(const at::Tensor &self, const Pattern &pattern, size_t pattern_size) {
  if (self.numel() == 0) return true;
  if (self.is_non_overlapping_and_dense()) {
    check(
        hal_memory_fill(nullptr, self.device().index(), address_of(self), pattern.bytes, pattern_size, self.nbytes()));
    return true;
  }
  return fill_strided(without_repeats(self), pattern);
}

at::Tensor &fill_scalar(at::Tensor &self, const at::Scalar &number) {
  if (fill_elements(self, pattern_of(number, self.scalar_type()), self.itemsize())) return self;
  return call_fallback<at::_ops::fill__Scalar>(self, number);
}

at::Tensor &fill_tensor(at::Tensor &self, const at::Tensor &number) {
  TORCH_CHECK(number.dim() == 0, "fill_ only supports 0-dimension value tensor but got tensor with ", number.dim(),
              " dimensions.");
  if (number.device() != self.device()) return self.fill_(number.item());
  // On one device the element is read by a kernel: no wait. It may be an element of the destination itself.
  at::Tensor element = number;
  if (self.is_alias_of(number)) element = number.clone();
  const at::Tensor target = without_repeats(self);
  if (target.numel() != 0) copy_on_device(element.expand(target.sizes()), target);
  return self;
}

at::Tensor &zero(at::Tensor &self) {
  // One byte is a pattern for every dtype when all of them are zero.
  if (fill_elements(self, Pattern{}, 1)) return self;
  return call_fallback<at::_ops::zero_>(self);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("fill_.Scalar", TORCH_FN(fill_scalar));
  m.impl("fill_.Tensor", TORCH_FN(fill_tensor));
  m.impl("zero_", TORCH_FN(zero));
}

}  // namespace torch_backend
