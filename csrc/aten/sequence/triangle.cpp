// triangle.cpp: tril and triu, which move elements of one size whatever their dtype, and the lists of their places.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/tril_indices_ops.h>
#include <ATen/ops/tril_meta.h>
#include <ATen/ops/tril_ops.h>
#include <ATen/ops/triu_indices_ops.h>
#include <ATen/ops/triu_meta.h>
#include <ATen/ops/triu_ops.h>
#include <torch/library.h>

#include "aten/copy/copy.h"
#include "aten/prepare/raw_elements.h"
#include "aten/prepare/structured_body.h"
#include "hal_op_ids.h"

namespace torch_backend {
namespace {

// Descriptor of the elements, or of one half of 16-byte elements.
struct Part {
  at::DimVector strides;
  hal_tensor_t descriptor;

  Part(const at::Tensor &tensor, size_t part) : strides(tensor.strides()), descriptor(describe(tensor)) {
    const size_t itemsize = tensor.itemsize(), size = itemsize == 16 ? 8 : itemsize;
    if (itemsize == 16) {
      for (int64_t &stride : strides) stride *= 2;
    }
    descriptor.dtype = integer_of_size(size);
    descriptor.data = static_cast<char *>(descriptor.data) + part * size;
    descriptor.strides = strides.data();
  }
};

bool run_triangle(uint32_t op, const at::Tensor &self, int64_t diagonal, const at::Tensor &result) {
  const size_t parts = self.itemsize() == 16 ? 2 : 1;
  for (size_t part = 0; part < parts; part++) {
    const Part from(self, part), to(result, part);
    const hal_value_t args[] = {value(from.descriptor), value(diagonal)};
    const hal_tensor_t *const results[] = {&to.descriptor};
    if (!run_op(self.device().index(), op, args, results)) return false;
  }
  return true;
}

template <uint32_t kOp>
bool triangle(const Outputs &outputs, const at::Tensor &self, int64_t diagonal) {
  const at::Tensor &result = outputs[0];
  if (result.numel() == 0) return true;
  // Lazy bits, more dimensions than the kernel walks, or an operand that lies askew in the result: by way of a copy.
  const at::Tensor operand = has_bits(self) ? self.resolve_conj().resolve_neg() : self;
  const bool direct = !has_bits(result) && result.dim() <= 7 && !shares_storage(result, operand, false);
  if (direct) return run_triangle(kOp, operand, diagonal, result);
  const at::Tensor matrices = operand.contiguous().view({-1, self.size(-2), self.size(-1)});
  const at::Tensor made = make_empty(matrices.sizes(), self.scalar_type(), self.device().index());
  if (!run_triangle(kOp, matrices, diagonal, made)) return false;
  copy_on_device(made.view(self.sizes()), result);
  return true;
}

// Makes the list as int64 and casts it.
template <uint32_t kOp, class Op>
at::Tensor places(int64_t rows, int64_t columns, int64_t offset, std::optional<c10::ScalarType> dtype,
                  std::optional<c10::Layout> layout, std::optional<c10::Device> device,
                  std::optional<bool> pin_memory) {
  const c10::DeviceIndex index = checked_index(device);
  if (!has_kernel(index, kOp, at::kLong)) {
    return call_fallback<Op>(rows, columns, offset, dtype, layout, device, pin_memory);
  }
  at::native::check_args(rows, columns, layout);
  const int64_t count = kOp == HAL_OP_ID_TRIL_INDICES
                            ? at::native::get_tril_size(rows, columns, offset)
                            : rows * columns - at::native::get_tril_size(rows, columns, offset - 1);
  const at::Tensor list = make_empty({2, count}, at::kLong, index);
  const hal_tensor_t described = describe(list);
  const hal_value_t args[] = {value(rows), value(columns), value(offset)};
  const hal_tensor_t *const results[] = {&described};
  TORCH_CHECK_NOT_IMPLEMENTED(count == 0 || run_op(index, kOp, args, results), hal_op_name(kOp),
                              ": the device has lost its kernel");
  return list.to(dtype.value_or(at::kLong));
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  constexpr auto *lower = &triangle<HAL_OP_ID_TRIL>;
  constexpr auto *upper = &triangle<HAL_OP_ID_TRIU>;
  m.impl("tril", TORCH_FN((Functional<at::_ops::tril, at::meta::structured_tril, lower>::call)));
  m.impl("tril.out", TORCH_FN((Out<at::_ops::tril_out, at::meta::structured_tril, lower>::call)));
  m.impl("tril_", TORCH_FN((Inplace<at::_ops::tril_, at::meta::structured_tril, lower>::call)));
  m.impl("triu", TORCH_FN((Functional<at::_ops::triu, at::meta::structured_triu, upper>::call)));
  m.impl("triu.out", TORCH_FN((Out<at::_ops::triu_out, at::meta::structured_triu, upper>::call)));
  m.impl("triu_", TORCH_FN((Inplace<at::_ops::triu_, at::meta::structured_triu, upper>::call)));
  m.impl("tril_indices", TORCH_FN((places<HAL_OP_ID_TRIL_INDICES, at::_ops::tril_indices>)));
  m.impl("triu_indices", TORCH_FN((places<HAL_OP_ID_TRIU_INDICES, at::_ops::triu_indices>)));
}

}  // namespace torch_backend
