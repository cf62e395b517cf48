// register.h: registers functions as kernels of torch's dispatcher. There is one class per signature with a pointer to
// the function. The rest of a kernel, boxing, takes long to compile and is compiled once per signature (codegen lists
// them in aten/signatures.h), not once per operator.
#pragma once

#include <ATen/core/boxing/KernelFunction.h>

#include <memory>
#include <type_traits>
#include <utility>

#include "aten/prepare/aten_op.h"

namespace torch_backend {

// The kernel: calls the function with the operator that it is registered for.
template <class Signature>
class Kernel;
template <class Result, class... Params>
class Kernel<Result(Params...)> final : public c10::OperatorKernel {
 public:
  using Function = Result (*)(const AtenOp &, Params...);
  Kernel(Function function, const AtenOp &op) : function_(function), op_(op) {}
  Result operator()(Params... args) { return function_(op_, std::forward<Params>(args)...); }

 private:
  Function function_;
  const AtenOp &op_;
};

// Registers a kernel for this device, until the process ends.
void register_with_dispatcher(const AtenOp &op, c10::KernelFunction kernel, c10::impl::CppSignature signature);

template <class Signature>
void register_function(const AtenOp &op, typename Kernel<Signature>::Function function) {
  auto kernel = std::make_unique<Kernel<Signature>>(function, op);
  register_with_dispatcher(
      op, c10::KernelFunction::makeFromUnboxedFunctor</*AllowLegacyTypes=*/false, Kernel<Signature>>(std::move(kernel)),
      c10::impl::CppSignature::make<Signature>());
}

// Registers `function` for `Op` of at::_ops; it must exist until the process ends.
template <class Op>
void register_kernel(const AtenOp &op, typename Kernel<Signature<Op>>::Function function) {
  register_function<Signature<Op>>(op, function);
}

}  // namespace torch_backend
