// asked.h: the plugin's own operator is asked first, with what the user gave (vendor_call.h): from the arguments of one ATen operator
// to a call in the order of the frozen list of codegen/ops.yaml. This is the way of plugins that have an operator of their own; it
// knows arguments by their types at run time, so that it is compiled once and not for every operator.
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
#include "aten/prepare/structured.h"
#include "aten/prepare/vendor_call.h"

namespace torch_backend {

using Results = c10::SmallVector<at::Tensor, 4>;

// ---- an argument, by its type at run time ----

namespace given_argument {

template <class T>
constexpr bool is_tensors = std::is_same_v<T, at::Tensor> || std::is_same_v<T, std::optional<at::Tensor>> ||
                            std::is_same_v<T, at::TensorList> || std::is_same_v<T, at::ITensorListRef> ||
                            std::is_same_v<T, c10::List<std::optional<at::Tensor>>>;

// The same argument for a meta function: of tensors only shape and dtype.
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

// To the portable kernel; false = no such argument can be given.
bool give(Call &call, uint32_t row, size_t &tensors, const at::Tensor &tensor);
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
bool give(Call &call, uint32_t row, size_t &tensors, const std::optional<T> &argument) {
  if (argument) return give(call, row, tensors, *argument);
  call.none();
  return true;
}
template <class T>
bool put(Call &call, uint32_t row, size_t &tensors, const void *argument) {
  return give(call, row, tensors, *static_cast<const T *>(argument));
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
void list(Results &results, const void *argument) {
  const T &given = *static_cast<const T *>(argument);
  if constexpr (std::is_same_v<T, at::Tensor>)
    results.push_back(given);
  else if constexpr (std::is_same_v<T, std::optional<at::Tensor>>)
    results.push_back(given ? *given : at::Tensor());
  else if constexpr (std::is_same_v<T, at::TensorList>)
    results.append(given.begin(), given.end());
}

}  // namespace given_argument

struct ArgumentType {
  void (*show)(VendorCall &call, const void *argument);                          // to the plugin
  bool (*put)(Call &call, uint32_t row, size_t &tensors, const void *argument);  // to the portable kernel
  void (*push_meta)(torch::jit::Stack &stack, const void *argument);             // for ATen's meta function
  void (*list)(Results &results, const void *argument);                          // its tensors
};
template <class T>
inline constexpr ArgumentType kArgumentType{&given_argument::show<T>, &given_argument::put<T>,
                                            &given_argument::push_meta<T>, &given_argument::list<T>};

struct Given {
  const void *argument;  // borrowed
  const ArgumentType *type;
};
template <class T>
Given given(const T &argument) {
  return {&argument, &kArgumentType<T>};
}

// ---- what is registered ----

// How a form gives its results: it makes them, writes some of its arguments, fills self, or fills its last arguments.
enum class Way : uint8_t { kMakes, kWrites, kInplace, kOut };

// Which operands must be on one device: all, as ATen demands of most operators; or those of ours among them, where ATen takes indices
// and numbers of the CPU too and the body says what it takes.
enum class Devices : uint8_t { kOne, kOurs };

// Places in a list of arguments.
class ArgumentPlaces {
 public:
  template <class... Place>
  constexpr ArgumentPlaces(Place... place) : count_(sizeof...(Place)), places_{static_cast<uint8_t>(place)...} {}
  const uint8_t *begin() const { return places_.data(); }
  const uint8_t *end() const { return places_.data() + count_; }

 private:
  uint8_t count_;
  std::array<uint8_t, 24> places_;
};

// Any function, to be called as what it is.
using AnyFunction = void (*)();
template <class Function>
AnyFunction any_function(Function *function) {
  return reinterpret_cast<AnyFunction>(function);
}

// One form of an operator of ATen that codegen registers with a body (registered.h).
struct Entry : AtenOp {
  Entry(const char *name, const char *overload, Devices devices, Way way)
      : AtenOp(name, overload), devices(devices), way(way) {}

  // That operator `row` of codegen/ops.yaml has the arguments at `order`, and results at `written`, behind those that are returned.
  // `composed`: there is no kernel of ours. `functional`: the form whose meta function says what results are.
  void asks(uint32_t number, bool is_composed, const AtenOp &form, ArgumentPlaces arguments,
            ArgumentPlaces results_too = {}) {
    row = number;
    composed = is_composed;
    functional = &form;
    order = arguments;
    written = results_too;
  }

  // That the body answers for that row, and asks the plugin itself.
  void answers(uint32_t number, bool is_composed) {
    row = number;
    composed = is_composed;
  }

  const Devices devices;
  const Way way;
  bool composed = false;
  bool throws = false;  // the body tells by NoKernel that there is no kernel
  uint32_t row = kNoOp;
  const AtenOp *functional = nullptr;  // nullptr: nobody is asked, or the body asks
  ArgumentPlaces order, written;       // `written` of bodies with ATen's own arguments
  AnyFunction body = nullptr;
  AnyFunction meta = nullptr;     // runs the meta function of one that Fills
  AnyFunction results = nullptr;  // allocates what the functional form returns
};

// Tells whether the body may answer: one that is a few calls of other operators is switched off with its own row.
inline bool may_answer(const Entry &entry) { return !entry.composed || C10_LIKELY(hal_op_enabled(entry.row)); }

// Tells whether the device's plugin has an operator of its own for this row.
inline bool is_asked(const Entry &entry, c10::DeviceIndex device) {
  return entry.functional && has_own(device, entry.row);
}

// Adds the operator's name to the message of an error that is met while the current stream is captured into a graph.
void name_captured(const AtenOp &op, c10::Error &error);

// Counts a call that the body of a composed operator has answered; not one for which that body has asked the plugin, which answered.
void count_answered(const Entry &entry);

// Asks with the arguments of one form. `results`: what it returns, where a function of the file has made it; where none has, ATen's meta function says
// what is to be allocated, or how what is given (out=, self) is to be resized. False = the plugin has declined.
bool ask(const Entry &entry, c10::DeviceIndex device, c10::ArrayRef<Given> arguments, Results &results);

// The same for all forms of an operator: arguments of the functional one, and `count` outputs, which a meta function may have made, or
// which are `made`.
bool ask(const Entry &entry, c10::DeviceIndex device, std::initializer_list<Given> arguments, Outputs &outputs,
         size_t count, Results made);

// The same with arguments in the order of the frozen list: an operand may read from a result. So bodies ask, those that draw numbers
// with the state that they have reserved.
bool ask(uint32_t row, c10::ArrayRef<Given> arguments, c10::ArrayRef<at::Tensor> results,
         PhiloxState philox = {0, 0, nullptr});

// Runs the portable kernel of a row that takes ATen's arguments, in the order of the frozen list and a tensor first, into results that are
// there. False = there is none for these operands, nothing was written.
bool run_row(uint32_t row, c10::ArrayRef<Given> arguments, const Outputs &outputs, size_t count = 1);

// Runs the call, which has all its arguments, into results that are there: by way of temporaries, where an operand reads from one.
bool fill(VendorCall &call, uint32_t row, c10::ArrayRef<at::Tensor> results);

}  // namespace torch_backend
