// vendor_op.h: calls of a vendor's operator with the caller's arguments (vendor_call.h): converts the arguments of one
// ATen operator to a call in the order of the frozen list of its entry (codegen/operators). This path serves plugins
// that have their own operator. It handles arguments by their types at run time, so it is compiled once and not for
// every operator.
#pragma once

#include <ATen/core/IListRef.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include <array>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "aten/prepare/aten_op.h"
#include "aten/prepare/meta_cache.h"
#include "aten/prepare/structured.h"
#include "aten/prepare/vendor_call.h"

namespace torch_backend {

using Results = c10::SmallVector<at::Tensor, 4>;

// ---- an argument, by its type at run time ----

namespace argument_types {

template <class T>
constexpr bool is_tensors = std::is_same_v<T, at::Tensor> || std::is_same_v<T, std::optional<at::Tensor>> ||
                            std::is_same_v<T, at::TensorList> || std::is_same_v<T, at::ITensorListRef> ||
                            std::is_same_v<T, c10::List<std::optional<at::Tensor>>>;

// Returns the same argument for a meta function: only shape and dtype of tensors.
at::Tensor meta_of(const at::Tensor &tensor);
std::vector<at::Tensor> meta_of(const at::ITensorListRef &list);
c10::List<std::optional<at::Tensor>> meta_of(const c10::List<std::optional<at::Tensor>> &list);
inline std::optional<at::Tensor> meta_of(const std::optional<at::Tensor> &tensor) {
  return tensor ? std::optional(meta_of(*tensor)) : std::nullopt;
}

template <class T>
void show(VendorCall &call, const void *argument) {
  call.add(*static_cast<const T *>(argument));
}

// Adds the argument for the portable kernel; returns false if the kernel cannot take it.
bool give(Call &call, uint32_t op, size_t &tensors, const at::Tensor &tensor);
template <class T>
bool give(Call &call, uint32_t, size_t &, const T &argument) {
  if constexpr (std::is_arithmetic_v<T> || std::is_same_v<T, c10::IntArrayRef>) {
    call.put(argument);
    return true;
  } else {
    return false;
  }
}
template <class T>
bool give(Call &call, uint32_t op, size_t &tensors, const std::optional<T> &argument) {
  if (argument) return give(call, op, tensors, *argument);
  call.none();
  return true;
}
template <class T>
bool put(Call &call, uint32_t op, size_t &tensors, const void *argument) {
  return give(call, op, tensors, *static_cast<const T *>(argument));
}

template <class T>
void push_meta(torch::jit::Stack &stack, const void *argument) {
  const T &given = *static_cast<const T *>(argument);
  if constexpr (std::is_same_v<T, at::TensorList>)
    stack.emplace_back(meta_of(at::ITensorListRef(given)));
  else if constexpr (is_tensors<T>)
    stack.emplace_back(meta_of(given));
  else
    stack.emplace_back(given);
}

template <class T>
void add_to_key(MetaKey &key, const void *argument) {
  key.add(*static_cast<const T *>(argument));
}

template <class T>
void list(Results &results, const void *argument) {
  const T &given = *static_cast<const T *>(argument);
  if constexpr (std::is_same_v<T, at::Tensor>)
    results.push_back(given);
  else if constexpr (std::is_same_v<T, std::optional<at::Tensor>>)
    results.push_back(given ? *given : at::Tensor());
  else if constexpr (std::is_same_v<T, at::TensorList>)
    results.append(given.begin(), given.end());
}

}  // namespace argument_types

struct ArgumentType {
  void (*show)(VendorCall &call, const void *argument);                         // to the plugin
  bool (*put)(Call &call, uint32_t op, size_t &tensors, const void *argument);  // to the portable kernel
  void (*push_meta)(torch::jit::Stack &stack, const void *argument);            // for ATen's meta function
  void (*add_to_key)(MetaKey &key, const void *argument);                       // to what its results depend on
  void (*list)(Results &results, const void *argument);                         // its tensors
};
template <class T>
inline constexpr ArgumentType kArgumentType{&argument_types::show<T>, &argument_types::put<T>,
                                            &argument_types::push_meta<T>, &argument_types::add_to_key<T>,
                                            &argument_types::list<T>};

struct Argument {
  const void *argument;  // borrowed
  const ArgumentType *type;
};
template <class T>
Argument argument(const T &argument) {
  return {&argument, &kArgumentType<T>};
}

// ---- the vendor's operator of one overload ----

// How an overload returns its results: it allocates them, writes some of its arguments, writes self, or writes its last
// arguments.
enum class OverloadKind : uint8_t { kMakes, kWrites, kInplace, kOut };

// Indices of arguments.
class ArgumentIndices {
 public:
  template <class... Index>
  constexpr ArgumentIndices(Index... index) : count_(sizeof...(Index)), indices_{static_cast<uint8_t>(index)...} {}
  const uint8_t *begin() const { return indices_.data(); }
  const uint8_t *end() const { return indices_.data() + count_; }

 private:
  uint8_t count_;
  std::array<uint8_t, 24> indices_;
};

// The operator of the plugin ABI that an overload of ATen calls.
struct VendorOp {
  uint32_t number;
  const AtenOp *functional;  // the overload whose meta function allocates the results
  OverloadKind kind;
  ArgumentIndices order;         // of ATen's arguments, in the order of the frozen list
  ArgumentIndices mutated = {};  // arguments that are results, after those that are returned
};

// Calls the vendor's operator with the arguments of one overload. `results` are its results if a function of csrc/aten
// has allocated them; otherwise ATen's meta function determines the allocations, or how a passed result (out=, self) is
// resized. Returns false if the plugin has declined.
bool call_vendor_op(const VendorOp &op, c10::DeviceIndex device, c10::ArrayRef<Argument> arguments, Results &results);

// Returns whether the plugin is known to decline the call, with the arguments of an overload that makes its results.
// Then no results need to be allocated for it.
bool is_declined(const VendorOp &op, c10::DeviceIndex device, c10::ArrayRef<Argument> arguments);

// The same with the arguments of the functional overload, for `count` outputs, which ATen's meta function has
// allocated:
bool fill_outputs(const VendorOp &op, c10::ArrayRef<Argument> arguments, Outputs &outputs, size_t count);
// The same with results that a function of csrc/aten has allocated, which become the outputs:
bool fill_made(const VendorOp &op, c10::DeviceIndex device, c10::ArrayRef<Argument> arguments, Outputs &outputs,
               Results made);
// The same without any allocated result:
bool make_outputs(const VendorOp &op, c10::DeviceIndex device, c10::ArrayRef<Argument> arguments, Outputs &outputs,
                  size_t count);

// The same with arguments in the order of the frozen list; an operand may share memory with a result. Functions of
// csrc/aten call it; those that generate random numbers pass the state that they have reserved.
bool call_vendor_op(uint32_t op, c10::ArrayRef<Argument> arguments, c10::ArrayRef<at::Tensor> results,
                    PhiloxState philox = {0, 0, nullptr});

// Counts a call of an operator that is composed of others, unless its function has called the vendor's operator.
void count_composed_call(uint32_t op);

// Runs the portable kernel of an operator that takes ATen's arguments, in the order of the frozen list and a tensor
// first, into existing results. Returns false if there is no kernel for these operands; then nothing was written.
bool run_kernel(uint32_t op, c10::ArrayRef<Argument> arguments, const Outputs &outputs, size_t count = 1);

// Runs the call, which has all its arguments, into existing results: through temporaries if an operand shares their
// memory.
bool fill(VendorCall &call, uint32_t op, c10::ArrayRef<at::Tensor> results);

}  // namespace torch_backend
