// fallback_call.h: the fallback, called by a kernel that does not support its arguments.
#pragma once

#include <ATen/core/stack.h>

#include "aten/prepare/aten_op.h"

namespace torch_backend {

// Boxed fallback of the PrivateUse1 key (aten/fallback): runs the CPU kernel on CPU tensors that alias device memory,
// or on staged copies. Throws c10::NotImplementedError, naming the operator, in strict mode and if there is no CPU
// kernel.
void fallback(const c10::OperatorHandle &op, torch::jit::Stack *stack);

// Calls of the fallback use one function per signature, not per operator, because most of it is the boxing of
// arguments.
template <class Signature>
struct FallbackCall;

template <class Result, class... Params>
struct FallbackCall<Result(Params...)> {
  static C10_NOINLINE Result call(const AtenOp &op, Params... args) {
    // The fallback reads no key set: it always runs the CPU kernel.
    return c10::impl::BoxedKernelWrapper<Result(Params...)>::call(c10::BoxedKernel::makeFromFunction<&fallback>(),
                                                                  op.handle(), c10::DispatchKeySet(), args...);
  }
};

// Runs `op` through the fallback; `kernel`, the calling function, determines the signature.
template <class Result, class... Params>
Result call_fallback(Result (*)(const AtenOp &, Params...), const AtenOp &op, std::type_identity_t<Params>... args) {
  return FallbackCall<Result(Params...)>::call(op, args...);
}

// Runs operator `Op` (at::_ops::add_Tensor, ATEN_OP2(add, Tensor)) through the fallback.
template <class Op, class... Args>
decltype(auto) call_fallback(Args &&...args) {
  static const AtenOp op(static_cast<const char *>(Op::name), static_cast<const char *>(Op::overload_name));
  return FallbackCall<Signature<Op>>::call(op, std::forward<Args>(args)...);
}

}  // namespace torch_backend
