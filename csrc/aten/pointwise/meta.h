// meta.h: meta functions (shapes, dtypes, checks) of pointwise operators that are not structured in ATen (`meta` of
// their entries): the iterators that their CPU kernels create. The generated code wraps them in Structured<>, as ATen's
// own.
#pragma once

#include <ATen/TensorIterator.h>

#include "aten/prepare/structured_iterator.h"

namespace torch_backend::meta {

// The result has the operand's dtype.
struct Unary : at::TensorIteratorBase {
  void meta(const at::Tensor &self) { build_borrowing_unary_op(maybe_get_output(), self); }
};
// Integers have a floating result of the default dtype.
struct UnaryFloat : at::TensorIteratorBase {
  void meta(const at::Tensor &self) { build_borrowing_unary_float_op(maybe_get_output(), self); }
};
// The result is bool, or has the dtype of out=.
struct UnaryTruth : at::TensorIteratorBase {
  void meta(const at::Tensor &self) {
    const at::Tensor &out = maybe_get_output();
    at::TensorIteratorConfig config;
    config.set_check_mem_overlap(true).check_all_same_dtype(false);
    if (!out.defined()) config.declare_static_dtype(at::kBool);
    build(config.add_output(out).add_const_input(self));
  }
};
struct Binary : at::TensorIteratorBase {
  void meta(const at::Tensor &a, const at::Tensor &b) { build_borrowing_binary_op(maybe_get_output(), a, b); }
};
// Integers have a floating result of the default dtype.
struct BinaryFloat : at::TensorIteratorBase {
  void meta(const at::Tensor &a, const at::Tensor &b) { build_borrowing_binary_float_op(maybe_get_output(), a, b); }
};
struct Comparison : at::TensorIteratorBase {
  void meta(const at::Tensor &a, const at::Tensor &b) { build_borrowing_comparison_op(maybe_get_output(), a, b); }
};
struct Ternary : at::TensorIteratorBase {
  void meta(const at::Tensor &a, const at::Tensor &b, const at::Tensor &c) {
    build_ternary_op(maybe_get_output(), a, b, c);
  }
};

}  // namespace torch_backend::meta

namespace torch_backend {

// Calls a pointwise kernel from a hand-written operator. The arguments are the tensors and an optional number. Returns
// nullopt if there is no kernel for them.
template <class Meta, class... Tensors>
std::optional<at::Tensor> pointwise(uint32_t op, const std::optional<c10::Scalar> &last, const Tensors &...tensors) {
  const KernelArgument all[] = {operand(tensors)..., number(last)};
  const c10::ArrayRef<KernelArgument> arguments(all, sizeof...(tensors) + (last ? 1 : 0));
  if (!may_run_natively(op, arguments)) return std::nullopt;
  Outputs outputs;
  Structured<Meta> structured(outputs);
  structured.meta(tensors...);
  if (!run_elementwise(op, structured.maybe_common_dtype(), false, outputs, arguments)) return std::nullopt;
  return outputs.take(0);
}

}  // namespace torch_backend
