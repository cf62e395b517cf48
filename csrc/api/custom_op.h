// custom_op.h: the part of libtorch_backend.so that generated libraries of custom operators use (codegen/custom.py; the
// guide is docs/custom-operators.md). Programs may also use it directly.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>

#include <array>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "hal/hal.h"

namespace torch_backend {

// One operator of a library; created once, and exists until the process ends.
class CustomOp {
 public:
  // `name` is torch's, "library::operator". `function` serves devices whose plugin has no operator of this name, and
  // may be nullptr. Throws if the name is taken.
  CustomOp(const char *name, size_t arguments, hal_op_own_fn_t function);

  // Queues the operator on the current stream of `device` and writes `results`. Returns false, without any effect, if
  // neither the plugin nor the library has a kernel for these arguments. Throws on every other failure. Calls no kernel
  // if all results are empty.
  bool run(c10::Device device, std::initializer_list<c10::IValue> arguments, c10::ArrayRef<at::Tensor> results) const;

  // Throws c10::NotImplementedError with the reason why there is no kernel for these tensors, and what to do.
  [[noreturn]] void refuse(std::initializer_list<at::Tensor> tensors) const;

 private:
  const char *name_;
  uint32_t number_ = 0;
};

// The same for an operator by its name.
[[noreturn]] void refuse(const char *op, at::TensorList tensors);

// Checks of arguments against the declaration, with PyTorch's messages and exception types. Sizes may be symbolic. A
// quiet check returns false instead of throwing.
class CustomCheck {
 public:
  enum Mode { kThrow, kQuiet };
  // A check of operator `op`, "library::operator".
  explicit CustomCheck(const char *op, Mode mode = kThrow) : op_(op), quiet_(mode == kQuiet) {}

  // Checks that `other` is on the device of `first`; an undefined tensor is on every device.
  bool device(const char *first_name, const at::Tensor &first, const char *name, const at::Tensor &other) const;
  // The same for a tensor that may be absent.
  bool device(const char *first_name, const at::Tensor &first, const char *name,
              const std::optional<at::Tensor> &other) const;
  // The same for each tensor of a list.
  bool device(const char *first_name, const at::Tensor &first, const char *name, at::TensorList others) const;

  // Checks that argument number `position`, counted from 1, has one of the dtypes.
  bool dtype(const at::Tensor &tensor, int position, const char *name, c10::ArrayRef<c10::ScalarType> allowed) const;
  // The same for each tensor of a list.
  bool dtype(at::TensorList tensors, int position, const char *name, c10::ArrayRef<c10::ScalarType> allowed) const;
  // Checks that the tensor has the dtype of `other`.
  bool same_dtype(const at::Tensor &tensor, const char *name, const at::Tensor &other, const char *other_name) const;
  // The same for each tensor of a list.
  bool same_dtype(at::TensorList tensors, const char *name, const at::Tensor &other, const char *other_name) const;

  // Checks that the tensor has `count` dimensions, or at least as many. `pattern` is the declared shape.
  bool rank(const at::Tensor &tensor, const char *name, int64_t count, bool exact, const char *pattern) const;
  // Checks that dimension `dim` has the size of the symbol, which argument `source` bound (nullptr: a number).
  bool size(const at::Tensor &tensor, const char *name, int64_t dim, const c10::SymInt &wanted, const char *symbol,
            const char *source) const;
  // Checks that all dimensions but the last `fixed` are `leading`, which argument `source` bound.
  bool leading(const at::Tensor &tensor, const char *name, int64_t fixed, c10::SymIntArrayRef leading,
               const char *source) const;
  // Checks that least <= value <= most.
  bool number(double value, const char *name, double least, double most) const;

 private:
  const char *op_;
  bool quiet_;
};

// Returns a new contiguous tensor of the sizes `leading` and `sizes`, on the device of `like`.
at::Tensor new_result(const at::Tensor &like, c10::SymIntArrayRef leading, std::initializer_list<c10::SymInt> sizes,
                      c10::ScalarType dtype);

// Returns the contiguous tensor that is passed to the C function.
inline at::Tensor contiguous(const at::Tensor &tensor) { return tensor.contiguous(); }
// The same for a tensor that may be absent.
inline std::optional<at::Tensor> contiguous(const std::optional<at::Tensor> &tensor) {
  return tensor && tensor->defined() ? std::optional<at::Tensor>(tensor->contiguous()) : std::nullopt;
}
// The same for each tensor of a list.
inline std::vector<at::Tensor> contiguous(at::TensorList tensors) {
  std::vector<at::Tensor> result;
  for (const at::Tensor &tensor : tensors) result.push_back(tensor.contiguous());
  return result;
}
// Returns a size as a number.
inline int64_t concrete(const c10::SymInt &number) { return number.guard_int(__FILE__, __LINE__); }
// The same for a size that may be absent.
inline std::optional<int64_t> concrete(const std::optional<c10::SymInt> &number) {
  return number ? std::optional<int64_t>(concrete(*number)) : std::nullopt;
}
// Returns text that ends with a NUL.
inline std::string text(c10::string_view value) { return std::string(value); }
// The same for text that may be absent.
inline std::optional<std::string> text(const std::optional<c10::string_view> &value) {
  return value ? std::optional<std::string>(*value) : std::nullopt;
}
// Returns an absent tensor as an undefined one.
inline at::Tensor optional(const std::optional<at::Tensor> &tensor) { return tensor ? *tensor : at::Tensor(); }

// Throws c10::NotImplementedError if the gradient itself is to be differentiated (create_graph=True): its formula uses
// the result `constant`, which is not differentiable.
void refuse_second_derivative(const char *op, const char *constant);

// Tries to run a call. Returns true if it replaced the arguments on the stack by the results, false if it changed
// nothing.
using RerouteAttempt = std::function<bool(torch::jit::Stack *stack)>;

// Makes calls of an ATen operator ("aten::name.overload") on the device go to `attempt` first. A refused call goes to
// the previous implementation. The last registered attempt comes first. Returns true. Throws if torch has no such
// operator.
bool reroute(const char *aten, RerouteAttempt attempt);

// The attempt of a library that works with every version of torch. Its operator `attempt`, "library::operator", returns
// undefined tensors if the arguments are unsuitable. Its argument i is argument `sources[i]` of the ATen operator, or
// for -1 the default of its schema. Calls whose arguments do not equal `conditions` are not tried. Throws if torch has
// no such operator.
bool reroute_to(const char *aten, const char *attempt, std::vector<int64_t> sources,
                std::vector<std::pair<int64_t, c10::IValue>> conditions);

// Enables or disables all reroutes of the process; they are enabled at first. Returns the previous state.
bool set_reroutes(bool enabled);

}  // namespace torch_backend
