// custom_op.h: what generated libraries of custom operators need of libtorch_backend.so (codegen/custom.py; the guide is
// docs/custom-operators.md). A program may use it by hand as well.
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

// One operator of a library; made once, lives as long as the process.
class CustomOp {
 public:
  // `name` is torch's, "library::operator". `function` serves devices whose plugin has no operator of this name, and may
  // be nullptr. Throws when the name is taken.
  CustomOp(const char *name, size_t arguments, hal_op_own_fn_t function);

  // Queues the operator on the current stream of `device` and writes `results`. false = neither the plugin nor the
  // library has a kernel for these arguments, and nothing was touched. Throws on every other failure. Nothing is called
  // when no result has an element.
  bool run(c10::Device device, std::initializer_list<c10::IValue> arguments, c10::ArrayRef<at::Tensor> results) const;

  // Throws c10::NotImplementedError: says why there is no kernel for these tensors and what to do.
  [[noreturn]] void refuse(std::initializer_list<at::Tensor> tensors) const;

 private:
  const char *name_;
  uint32_t number_ = 0;
};

// The same for an operator by its name.
[[noreturn]] void refuse(const char *op, at::TensorList tensors);

// Checks of arguments against the declaration, in PyTorch's words and by its exception types. Sizes may be symbolic. A
// quiet check answers false instead of throwing.
class CustomCheck {
 public:
  enum Mode { kThrow, kQuiet };
  // A check of operator `op`, "library::operator".
  explicit CustomCheck(const char *op, Mode mode = kThrow) : op_(op), quiet_(mode == kQuiet) {}

  // `other` is on the device of `first`; an undefined tensor is on every device.
  bool device(const char *first_name, const at::Tensor &first, const char *name, const at::Tensor &other) const;
  // The same for a tensor that may be absent.
  bool device(const char *first_name, const at::Tensor &first, const char *name,
              const std::optional<at::Tensor> &other) const;
  // The same for each tensor of a list.
  bool device(const char *first_name, const at::Tensor &first, const char *name, at::TensorList others) const;

  // Argument number `position`, counted from 1, has one of the dtypes.
  bool dtype(const at::Tensor &tensor, int position, const char *name, c10::ArrayRef<c10::ScalarType> allowed) const;
  // The same for each tensor of a list.
  bool dtype(at::TensorList tensors, int position, const char *name, c10::ArrayRef<c10::ScalarType> allowed) const;
  // The tensor has the dtype of `other`.
  bool same_dtype(const at::Tensor &tensor, const char *name, const at::Tensor &other, const char *other_name) const;
  // The same for each tensor of a list.
  bool same_dtype(at::TensorList tensors, const char *name, const at::Tensor &other, const char *other_name) const;

  // The tensor has `count` dimensions, or at least as many. `pattern` is the declared shape.
  bool rank(const at::Tensor &tensor, const char *name, int64_t count, bool exact, const char *pattern) const;
  // Dimension `dim` has the size of the symbol, which argument `source` bound (nullptr: a number).
  bool size(const at::Tensor &tensor, const char *name, int64_t dim, const c10::SymInt &wanted, const char *symbol,
            const char *source) const;
  // All dimensions but the last `fixed` are `leading`, which argument `source` bound.
  bool leading(const at::Tensor &tensor, const char *name, int64_t fixed, c10::SymIntArrayRef leading,
               const char *source) const;
  // least <= value <= most
  bool number(double value, const char *name, double least, double most) const;

 private:
  const char *op_;
  bool quiet_;
};

// A new contiguous tensor of the sizes `leading` and `sizes`, on the device of `like`.
at::Tensor new_result(const at::Tensor &like, c10::SymIntArrayRef leading, std::initializer_list<c10::SymInt> sizes,
                      c10::ScalarType dtype);

// What crosses to the C function: a contiguous tensor.
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
// A size as a number.
inline int64_t concrete(const c10::SymInt &number) { return number.guard_int(__FILE__, __LINE__); }
// The same for a size that may be absent.
inline std::optional<int64_t> concrete(const std::optional<c10::SymInt> &number) {
  return number ? std::optional<int64_t>(concrete(*number)) : std::nullopt;
}
// Text that ends with a NUL.
inline std::string text(c10::string_view value) { return std::string(value); }
// The same for text that may be absent.
inline std::optional<std::string> text(const std::optional<c10::string_view> &value) {
  return value ? std::optional<std::string>(*value) : std::nullopt;
}
// An absent tensor as an undefined one.
inline at::Tensor optional(const std::optional<at::Tensor> &tensor) { return tensor ? *tensor : at::Tensor(); }

// Throws c10::NotImplementedError when the gradient itself is to be differentiated (create_graph=True): a formula uses the
// result `constant`, which is not differentiable.
void refuse_second_derivative(const char *op, const char *constant);

// Tries to serve a call: true = the arguments on the stack were replaced by the results, false = nothing was changed.
using RerouteAttempt = std::function<bool(torch::jit::Stack *stack)>;

// Lets calls of an ATen operator ("aten::name.overload") on the device go to `attempt` first; a refused call goes the way
// it went before. The last one asks first. Returns true. Throws when torch has no such operator.
bool reroute(const char *aten, RerouteAttempt attempt);

// The attempt of a library that serves every torch. Its operator `attempt`, "library::operator", answers with undefined tensors when
// the arguments do not fit; argument i of it is argument `sources[i]` of the ATen operator, or for -1 the default of its schema.
// Other calls than those whose arguments equal `conditions` are not tried. Throws when torch has no such operator.
bool reroute_to(const char *aten, const char *attempt, std::vector<int64_t> sources,
                std::vector<std::pair<int64_t, c10::IValue>> conditions);

// Switches all reroutes of the process on or off; they begin switched on. Returns what it was before.
bool set_reroutes(bool enabled);

}  // namespace torch_backend
