// broadcast.cpp: see broadcast.h. Unsupported calls go to the general path, which also reports errors: other dtypes,
// lazy bits, more dimensions, operands in different orders, results that overlap operands, invalid shapes.
#include "aten/prepare/broadcast.h"

#include "aten/prepare/structured_iterator.h"

namespace torch_backend {

namespace {

constexpr size_t kMaxOperands = 3, kMaxBroadcastArguments = 6, kMaxDims = 8;

// The operands of a call; tensors are in the order of the arguments.
struct Operands {
  // An operand with dimensions, if there is one; it determines the valid range of numbers
  dense::Reference reference{};
  const at::Tensor *tensors[kMaxOperands];
  hal_tensor_t descriptors[kMaxOperands];
  int64_t sizes[kMaxDims], strides[kMaxOperands][kMaxDims];
  size_t count = 0, ndim = 0;

  c10::IntArrayRef shape() const { return {sizes, ndim}; }
};

bool is_plain(const at::Tensor &tensor) { return dense::has_keys(tensor.unsafeGetTensorImpl(), kKeySet); }

bool collect(Operands &operands, c10::ArrayRef<KernelArgument> arguments) {
  for (const KernelArgument &argument : arguments) {
    if (!argument.tensor) continue;
    const at::Tensor &tensor = *argument.tensor;
    if (!is_plain(tensor)) {
      if (argument.may_be_number) continue;
      return false;
    }
    const c10::TensorImpl *impl = tensor.unsafeGetTensorImpl();
    dense::Reference &reference = operands.reference;
    if (operands.count == kMaxOperands || static_cast<size_t>(impl->dim()) > kMaxDims) return false;
    if (operands.count == 0) {
      reference.dtype = tensor.scalar_type();
      reference.device = impl->device().index();
    }
    if (tensor.scalar_type() != reference.dtype || impl->device().index() != reference.device) return false;
    if (operands.count == 0 || reference.impl->dim() == 0) reference.impl = impl;
    operands.ndim = std::max(operands.ndim, static_cast<size_t>(impl->dim()));
    operands.tensors[operands.count++] = &tensor;
  }
  return operands.count > 0;
}

// Computes the common shape, and expands each operand to it: missing and one-element dimensions have stride 0.
bool spread(Operands &operands) {
  for (size_t d = 0; d < operands.ndim; d++) operands.sizes[d] = 1;
  for (size_t k = 0; k < operands.count; k++) {
    const c10::IntArrayRef own = operands.tensors[k]->unsafeGetTensorImpl()->sizes();
    int64_t *sizes = operands.sizes + (operands.ndim - own.size());
    for (size_t d = 0; d < own.size(); d++) {
      if (own[d] == 1 || own[d] == sizes[d]) continue;
      if (sizes[d] != 1) return false;
      sizes[d] = own[d];
    }
  }
  for (size_t k = 0; k < operands.count; k++) {
    const c10::TensorImpl *impl = operands.tensors[k]->unsafeGetTensorImpl();
    const c10::IntArrayRef own = impl->sizes(), strides = impl->strides();
    const size_t missing = operands.ndim - own.size();
    for (size_t d = 0; d < missing; d++) operands.strides[k][d] = 0;
    for (size_t d = 0; d < own.size(); d++) operands.strides[k][missing + d] = own[d] == 1 ? 0 : strides[d];
    hal_tensor_t &descriptor = operands.descriptors[k];
    descriptor = describe(*operands.tensors[k]);
    descriptor.sizes = operands.sizes;
    descriptor.strides = operands.strides[k];
    descriptor.ndim = static_cast<int32_t>(operands.ndim);
  }
  return true;
}

// Creates a result in the order of TensorIterator: C's, or that of operands which all have it. Returns false for
// another order.
bool make_result(const Operands &operands, c10::ScalarType dtype, at::Tensor &made) {
  const c10::TensorImpl *first = operands.tensors[0]->unsafeGetTensorImpl();
  bool contiguous = true, alike = first->is_non_overlapping_and_dense();
  for (size_t k = 0; k < operands.count; k++) {
    const c10::TensorImpl *impl = operands.tensors[k]->unsafeGetTensorImpl();
    contiguous &= impl->is_contiguous() && dense::has_default_strides(impl);
    alike = alike && impl->sizes() == first->sizes() && impl->strides() == first->strides();
  }
  if (contiguous) {
    made = make_empty(operands.shape(), dtype, operands.reference.device);
  } else if (alike) {
    made = make_empty_strided(operands.shape(), first->strides(), dtype, operands.reference.device);
  }
  return contiguous || alike;
}

bool accepts_result(const Operands &operands, const at::Tensor &given, c10::ScalarType dtype) {
  const c10::TensorImpl *impl = given.unsafeGetTensorImpl();
  if (!is_plain(given) || given.scalar_type() != dtype || impl->device().index() != operands.reference.device)
    return false;
  if (impl->sizes() != operands.shape() || !impl->is_non_overlapping_and_dense()) return false;
  for (size_t k = 0; k < operands.count; k++)
    if (!operands.tensors[k]->is_same(given) && overlaps(given, *operands.tensors[k], false)) return false;
  return true;
}

bool gather(const Operands &operands, c10::ArrayRef<KernelArgument> arguments, hal_value_t *values) {
  size_t k = 0;
  for (size_t i = 0; i < arguments.size(); i++) {
    const KernelArgument &argument = arguments[i];
    hal_tensor_t unused;
    if (argument.tensor && k < operands.count && argument.tensor == operands.tensors[k]) {
      values[i] = value(operands.descriptors[k++]);
    } else if (argument.tensor) {
      if (!dense::put_host_number(operands.reference, *argument.tensor, values[i])) return false;
    } else if (!argument.number || !dense::put(operands.reference, *argument.number, unused, values[i])) {
      return false;
    }
  }
  return true;
}

bool run(uint32_t op, uint64_t dtypes, bool bool_result, const at::Tensor *given, at::Tensor &made,
         c10::ArrayRef<KernelArgument> arguments) {
  Operands operands;
  hal_value_t values[kMaxBroadcastArguments];
  if (arguments.size() > kMaxBroadcastArguments || !collect(operands, arguments)) return false;
  const dense::Reference &reference = operands.reference;
  const uint64_t possible = hal_op_dtypes(reference.device, op) & dtypes;
  if (!((possible >> static_cast<unsigned>(reference.dtype)) & 1)) return false;
  const auto dtype = bool_result ? c10::ScalarType::Bool : reference.dtype;
  if (!spread(operands) || !gather(operands, arguments, values)) return false;
  at::Tensor result;
  if (given ? !accepts_result(operands, *given, dtype) : !make_result(operands, dtype, result)) return false;
  const hal_tensor_t descriptor = describe(given ? *given : result);
  const hal_tensor_t *const results[] = {&descriptor};
  if (!run_op(reference.device, op, {values, arguments.size()}, results)) return was_declined(op);
  if (!given) made = std::move(result);
  return true;
}

}  // namespace

bool run_broadcast(uint32_t op, uint64_t dtypes, bool bool_result, const at::Tensor *given, at::Tensor &made,
                   c10::ArrayRef<KernelArgument> arguments) {
  not_called();
  return run(op, dtypes, bool_result, given, made, arguments);
}

}  // namespace torch_backend
