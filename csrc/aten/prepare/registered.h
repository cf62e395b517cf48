// registered.h: what stands between the dispatcher and a body that is written by hand. codegen registers the operators under `bodies`
// of codegen/ops.yaml with these classes, at the end of the source file that has the bodies. Each one
//
//   1. checks that all operands, also those in lists, are on one device, and makes it current;
//   2. asks the plugin's own operator with what the user gave, when the plugin has one;
//   3. calls the body;
//   4. takes the fallback, when the body says that it has no kernel for the call and has written nothing.
//
// A body takes ATen's arguments. One of a functional form gives std::optional of ATen's result, one with out= or in place gives bool:
// nothing and false mean "no kernel". A body that knows a better answer than the fallback gives the result itself.
// A body that `fills` takes `const Outputs &` first, which ATen's meta function has made or resized, and gives bool.
#pragma once

#include <torch/library.h>

#include <tuple>
#include <type_traits>
#include <utility>

#include "aten/prepare/asked.h"
#include "aten/prepare/structured_body.h"

namespace torch_backend {

// Which operands must be on one device: all, as ATen demands of most operators; or those of ours among them, where ATen takes indices
// and numbers of the CPU too and the body says what it takes.
enum class Devices : uint8_t { kOne, kOurs };

namespace registered {

// ---- one device ----

inline void look(const at::Tensor *&first, Devices devices, const at::Tensor &tensor) {
  if (!tensor.defined() || (devices == Devices::kOurs && tensor.device().type() != kDevice)) return;
  if (!first) first = &tensor;
  if (C10_UNLIKELY(first->device() != tensor.device())) throw_two_devices(first->device(), tensor.device());
}
inline void look(const at::Tensor *&first, Devices devices, const std::optional<at::Tensor> &tensor) {
  if (tensor) look(first, devices, *tensor);
}
inline void look(const at::Tensor *&first, Devices devices, const at::ITensorListRef &list) {
  for (const at::Tensor &tensor : list) look(first, devices, tensor);
}
inline void look(const at::Tensor *&first, Devices devices, at::TensorList list) {
  for (const at::Tensor &tensor : list) look(first, devices, tensor);
}
inline void look(const at::Tensor *&first, Devices devices, const c10::List<std::optional<at::Tensor>> &list) {
  for (const std::optional<at::Tensor> tensor : list) look(first, devices, tensor);
}
template <class T>
void look(const at::Tensor *&, Devices, const T &) {}

// The device of the operands; nullptr = there are none.
template <class... Args>
const at::Tensor *checked_operand(Devices devices, const Args &...args) {
  const at::Tensor *first = nullptr;
  (look(first, devices, args), ...);
  return first && first->device().type() == kDevice ? first : nullptr;
}

// ---- answers ----

template <class T>
constexpr bool is_written = std::is_reference_v<T> || std::is_void_v<T>;
template <class... T>
constexpr bool is_written<std::tuple<T...>> = (std::is_reference_v<T> && ...);

// A body may give what ATen wants, or say that there is no kernel.
template <class Answer, class Result>
constexpr bool fits_result = std::is_same_v<Answer, Result> || std::is_same_v<Answer, std::optional<Result>> ||
                             (std::is_same_v<Answer, bool> && is_written<Result>);

// The tensors that a form may write, in their order.
inline std::tuple<at::Tensor &> writable(at::Tensor &tensor) { return std::tie(tensor); }
template <class T>
std::tuple<> writable(const T &) {
  return {};
}
template <class... Args>
auto written(Args &...args) {
  return std::tuple_cat(writable(args)...);
}

}  // namespace registered

// ---- what is registered ----

// A function of ours or of ATen's, as it is: it checks what it takes.
template <class Op, auto kBody, class Schema = typename Op::schema>
struct Direct;
template <class Op, auto kBody, class Result, class... Params>
struct Direct<Op, kBody, Result(Params...)> {
  static constexpr bool kFits = std::is_invocable_r_v<Result, decltype(kBody), NoSymInt<Params>...>;
  static Result call(NoSymInt<Params>... args) { return kBody(args...); }
};

// How a form is asked for at the plugin: it makes its results, writes its arguments, fills self, or fills its last arguments.
enum class Way : uint8_t { kMakes, kWrites, kInplace, kOut };

// One form of an operator.
template <class Op, auto kBody, Devices kDevices, Way kWay, class Ask, class Schema = typename Op::schema>
struct Registered;
template <class Op, auto kBody, Devices kDevices, Way kWay, class Ask, class Result, class... Params>
struct Registered<Op, kBody, kDevices, kWay, Ask, Result(Params...)> {
  using Answer = std::invoke_result<decltype(kBody), NoSymInt<Params>...>;
  static constexpr bool fits() {
    if constexpr (std::is_invocable_v<decltype(kBody), NoSymInt<Params>...>)
      return registered::fits_result<typename Answer::type, Result>;
    else
      return false;
  }
  static constexpr bool kFits = fits();

  static Result call(NoSymInt<Params>... args) {
    const at::Tensor *first = registered::checked_operand(kDevices, args...);
    const CurrentDevice current(first ? first->device().index() : static_cast<c10::DeviceIndex>(hal_device_current()));
    if constexpr (Ask::kOp != kNoOp) {
      if (first && C10_UNLIKELY(hal_op_own_dtypes(first->device().index(), Ask::kOp) != 0))
        return asked(first->device().index(), args...);
    }
    return answer(args...);
  }

 private:
  static Result asked(c10::DeviceIndex device, NoSymInt<Params> &...args) {
    if constexpr (kWay == Way::kMakes) {
      if (auto results = Ask::template make<Result>(device, args...)) return std::move(*results);
    } else if (ask(device, args...)) {
      return given_back(args...);
    }
    const Declined declined(Ask::kOp);
    return answer(args...);
  }

  static bool ask(c10::DeviceIndex device, NoSymInt<Params> &...args) {
    if constexpr (kWay == Way::kWrites) {
      return Ask::write(args...);
    } else {
      const auto written = registered::written(args...);
      if constexpr (kWay == Way::kInplace)
        return Ask::fit(device, {std::get<0>(written)}, args...);
      else
        return ask_out(device, written, std::tie(args...),
                       std::make_index_sequence<sizeof...(Params) - std::tuple_size_v<decltype(written)>>(),
                       std::make_index_sequence<std::tuple_size_v<decltype(written)>>());
    }
  }

  template <class Written, class All, size_t... kInputs, size_t... kOutputs>
  static bool ask_out(c10::DeviceIndex device, const Written &written, const All &all, std::index_sequence<kInputs...>,
                      std::index_sequence<kOutputs...>) {
    return Ask::fit(device, {std::get<kOutputs>(written)...}, std::get<kInputs>(all)...);
  }

  // What a form with out= or in place gives back: tensors that it may write, in their order.
  static Result given_back(NoSymInt<Params> &...args) {
    if constexpr (!std::is_void_v<Result>) {
      const auto all = registered::written(args...);
      if constexpr (std::is_reference_v<Result>)
        return std::get<0>(all);
      else
        return all;
    }
  }

  static Result answer(NoSymInt<Params> &...args) {
    if constexpr (std::is_same_v<typename Answer::type, Result>) {
      return kBody(args...);
    } else if constexpr (std::is_same_v<typename Answer::type, bool>) {
      if (!kBody(args...)) return call_fallback<Op>(args...);
      if constexpr (Ask::kComposed) count_composed(Ask::kOp);
      return given_back(args...);
    } else {
      auto results = kBody(args...);
      if (!results) return call_fallback<Op>(args...);
      if constexpr (Ask::kComposed) count_composed(Ask::kOp);
      return std::move(*results);
    }
  }
};

// ---- registration ----

template <bool kFits>
struct Schema {
  static void is_known() {}
};
template <>
struct Schema<false> {
  [[deprecated(
      "the installed torch has another schema for this operator than its body; it goes to the fallback")]] static void
  is_known() {}
};

// Registers one form; the compiler warns of a schema that the body does not fit, naming the operator.
template <class Entry>
void enroll(torch::Library &library, const char *name) {
  Schema<Entry::kFits>::is_known();
  if constexpr (Entry::kFits) library.impl(name, TORCH_FN(Entry::call));
}

}  // namespace torch_backend
