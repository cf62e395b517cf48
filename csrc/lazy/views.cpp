// views.cpp: see views.h.
#include "lazy/views.h"

#include <ATen/ExpandUtils.h>
#include <ATen/InferSize.h>
#include <ATen/TensorUtils.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/_unsafe_view.h>
#include <ATen/ops/view.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "core/lazy/tensor.h"

namespace torch_backend {
namespace {

using torch::jit::Stack;

BoxedWay run_boxed = nullptr;

bool allows_shape(const at::Tensor &inner, c10::IntArrayRef sizes) {
  if (inner.is_contiguous()) return true;
  const at::DimVector wanted = at::infer_size_dv(sizes, inner.numel());
  return at::detail::computeStride(inner.sizes(), inner.strides(), wanted).has_value();
}

// Returns whether adjacent elements in memory are adjacent in the last dimension, `count` of them at a time.
bool allows_groups(const at::Tensor &inner, int64_t count) {
  if (inner.is_contiguous() || inner.dim() == 0) return true;
  const c10::IntArrayRef outer = inner.strides().slice(0, static_cast<size_t>(inner.dim() - 1));
  return inner.stride(-1) == 1 && inner.storage_offset() % count == 0 &&
         std::all_of(outer.begin(), outer.end(), [count](int64_t stride) { return stride % count == 0; });
}

bool allows_complex(const at::Tensor &inner, const c10::IValue *) { return allows_groups(inner, 2); }

bool allows_dtype(const at::Tensor &inner, const c10::IValue *arguments) {
  const auto wanted = static_cast<int64_t>(c10::elementSize(arguments[1].toScalarType()));
  const int64_t now = inner.element_size();
  return wanted == now || allows_groups(inner, std::max<int64_t>(wanted / now, 1));
}

// Returns whether autograd may keep a gradient without a copy, which it does if the strides are the parameter's, as
// those of wrappers always are. The gradient will be added to and scaled in place, so it must not repeat an element,
// nor share another tensor's memory in another order.
bool allows_keeping(const at::Tensor &inner, const c10::IValue *) {
  if (inner.is_contiguous()) return true;
  const auto node = torch::autograd::get_current_node();
  return !node || dynamic_cast<const torch::autograd::AccumulateGrad *>(node.get()) == nullptr;
}

using Allows = bool (*)(const at::Tensor &inner, const c10::IValue *arguments);

c10::IValue *arguments_of(const c10::OperatorHandle &op, Stack *stack) {
  return stack->data() + stack->size() - op.schema().arguments().size();
}

// Replaces the tensor by a contiguous copy if the wrapped tensor does not allow the view.
template <Allows allows>
bool copied(const c10::OperatorHandle &op, Stack *stack) {
  c10::IValue *arguments = arguments_of(op, stack);
  const at::Tensor &self = arguments[0].toTensor();
  const at::Tensor *inner = find_lazy_inner(self);
  if (inner == nullptr || allows(*inner, arguments)) return false;
  arguments[0] = self.clone(c10::MemoryFormat::Contiguous);
  return true;
}

template <Allows allows>
void run_view(const c10::OperatorHandle &op, Stack *stack) {
  copied<allows>(op, stack);
  run_boxed(op, stack);
}

// Returns the keys at which torch's own autograd formula runs, not the kernels registered here.
c10::DispatchKeySet past(c10::DispatchKeySet keys) {
  return keys.remove(c10::DispatchKey::AutogradLazy) | c10::DispatchKeySet(c10::DispatchKey::AutogradOther);
}

template <Allows allows>
void differentiate_view(const c10::OperatorHandle &op, c10::DispatchKeySet keys, Stack *stack) {
  if (copied<allows>(op, stack)) return op.callBoxed(stack);
  op.redispatchBoxed(past(keys), stack);
}

at::Tensor differentiate_shape(c10::DispatchKeySet keys, const at::Tensor &self, c10::IntArrayRef sizes) {
  const at::Tensor *inner = find_lazy_inner(self);
  if (C10_UNLIKELY(inner != nullptr && !allows_shape(*inner, sizes)))
    return at::_unsafe_view(self.clone(c10::MemoryFormat::Contiguous), sizes);
  return at::_ops::view::redispatch(past(keys), self, c10::fromIntArrayRefSlow(sizes));
}

at::Tensor reshaped(const at::Tensor &self, c10::IntArrayRef sizes) {
  const at::Tensor &inner = lazy_inner(self);
  return make_lazy(inner.is_contiguous() ? inner.view(sizes) : inner.reshape(sizes), self.scalar_type());
}

at::Tensor reshape_alias(const at::Tensor &self, c10::IntArrayRef sizes, c10::IntArrayRef) {
  return reshaped(self, sizes);
}

at::Tensor as_strided(const at::Tensor &self, c10::IntArrayRef sizes, c10::IntArrayRef strides,
                      std::optional<int64_t> offset) {
  const at::Tensor &inner = lazy_inner(self);
  TORCH_CHECK_NOT_IMPLEMENTED(
      inner.is_contiguous(),
      "as_strided of a lazy tensor that is a view in another order: lazy tensors have no strides; "
      "use as_strided of its clone()");
  return make_lazy(inner.as_strided(sizes, strides, offset.value_or(inner.storage_offset())), self.scalar_type());
}

}  // namespace

void register_lazy_views(torch::Library &library, BoxedWay boxed) {
  run_boxed = boxed;
  library.impl("view", &reshaped);
  library.impl("view.dtype", torch::CppFunction::makeFromBoxedFunction<&run_view<&allows_dtype>>());
  library.impl("view_as_complex", torch::CppFunction::makeFromBoxedFunction<&run_view<&allows_complex>>());
  library.impl("detach", torch::CppFunction::makeFromBoxedFunction<&run_view<&allows_keeping>>());
  library.impl("_reshape_alias", &reshape_alias);
  library.impl("as_strided", &as_strided);
}

void register_lazy_view_copies(torch::Library &library) {
  library.impl("view", &differentiate_shape);
  library.impl("view.dtype", torch::CppFunction::makeFromBoxedFunction<&differentiate_view<&allows_dtype>>());
  library.impl("view_as_complex", torch::CppFunction::makeFromBoxedFunction<&differentiate_view<&allows_complex>>());
}

}  // namespace torch_backend
