// aten_op.h: operators of ATen by name, and the signatures of kernels for them.
#pragma once

#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <mutex>
#include <optional>

namespace torch_backend {

// Sizes may be symbolic in a schema; device kernels always receive integers.
template <class T>
using NoSymInt = typename c10::maybe_keep_symint<false, T>::type;

template <class Schema>
struct KernelOf;
template <class Result, class... Params>
struct KernelOf<Result(Params...)> {
  using type = Result(NoSymInt<Params>...);
};
// The signature of a kernel of `Op` (at::_ops::add_Tensor).
template <class Op>
using Signature = typename KernelOf<typename Op::schema>::type;

// An operator by its name, such as "aten::add" and "Tensor". Any thread.
class AtenOp {
 public:
  constexpr AtenOp(const char *name, const char *overload) : name_(name), overload_(overload) {}
  AtenOp(const AtenOp &) = delete;
  AtenOp &operator=(const AtenOp &) = delete;

  c10::OperatorName name() const { return {name_, overload_}; }
  // Looked up at first use. Throws c10::Error if torch has no such operator.
  const c10::OperatorHandle &handle() const {
    std::call_once(found_, [this] { handle_ = c10::Dispatcher::singleton().findSchemaOrThrow(name_, overload_); });
    return *handle_;
  }

 private:
  const char *name_, *overload_;
  mutable std::once_flag found_;
  mutable std::optional<c10::OperatorHandle> handle_;
};

}  // namespace torch_backend
