// fallback_call.h: the fallback, called by a kernel that has found no native way for its arguments.
#pragma once

#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include "aten/fallback/fallback.h"

namespace torch_backend {

// Sizes may be symbolic in the schema; device kernels always see integers.
template <class Op, class Schema = typename Op::schema>
struct FallbackCall;

template <class Op, class Result, class... Params>
struct FallbackCall<Op, Result(Params...)> {
  static Result call(typename c10::maybe_keep_symint<false, Params>::type... args) {
    static const c10::OperatorHandle handle = c10::Dispatcher::singleton().findSchemaOrThrow(
        static_cast<const char *>(Op::name), static_cast<const char *>(Op::overload_name));
    using Wrapper = c10::impl::BoxedKernelWrapper<Result(typename c10::maybe_keep_symint<false, Params>::type...)>;
    // The fallback reads no key set: it always runs the CPU kernel.
    return Wrapper::call(c10::BoxedKernel::makeFromFunction<&fallback>(), handle, c10::DispatchKeySet(), args...);
  }
};

// Runs operator `Op` (at::_ops::add_Tensor, ATEN_OP2(add, Tensor)) through the fallback.
template <class Op, class... Args>
decltype(auto) call_fallback(Args &&...args) {
  return FallbackCall<Op>::call(std::forward<Args>(args)...);
}

}  // namespace torch_backend
