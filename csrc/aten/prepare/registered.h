// registered.h: what stands between the dispatcher and a body that is written by hand. codegen registers the operators under `bodies`
// of codegen/ops.yaml with these classes, at the end of the source file that has the bodies. Each one
//
//   1. checks that all operands, also those in lists, are on one device, and makes it current;
//   2. asks the plugin's own operator with what the user gave, when the plugin has one;
//   3. calls the body;
//   4. takes the fallback, when the body says that it has no kernel for the call and has written nothing.
//
// There are six kinds of bodies (`bodies` of ops.yaml). They differ in who makes the results:
//
//   a name   takes ATen's arguments (Plain). One of a functional form gives std::optional of ATen's result, one with out= or in place
//            gives bool: nothing and false mean "no kernel". One that knows a better answer than the fallback gives the result itself.
//   makes    bool body(Outputs &, <arguments of the functional form>), for all forms of an operator (Forms): Outputs::make allocates a
//            result, resizes one that is given with out=, or checks one in place.
//   fills    bool body(const Outputs &, <arguments of the functional form>), for all forms of a structured operator (Forms): ATen's
//            meta function has checked the call, and made or resized the results.
//   impl     ATen's own implementation of a structured operator (Implementation), behind the meta function as under `fills`: it calls
//            other operators, or asks DispatchStubs for kernels, as under `native`.
//   native   one of ATen's own functions, which checks the call, makes the results and asks a DispatchStub for a kernel, which is a
//            function of ours that throws NoKernel where there is none (Plain).
//   direct   a function of ours or of ATen's with ATen's arguments, as it is (Direct): it checks what it takes.
//
// The classes depend on a form's signature, not on the operator or its body: what differs is told by an Entry (asked.h).
#pragma once

#include <tuple>
#include <type_traits>
#include <utility>

#include "aten/prepare/asked.h"
#include "aten/prepare/enroll.h"
#include "aten/prepare/structured.h"

namespace torch_backend {
namespace registered {

// ---- bodies ----

// A body as the one type of function that a class below takes for a signature; nullptr = it does not fit.
template <auto kBody, class Result, class Type>
struct Fitting;
template <auto kBody, class Result, class Answer, class... Params>
struct Fitting<kBody, Result, Answer(Params...)> {
  // It never says that there is no kernel, but gives the result itself.
  static constexpr bool gives_result() {
    if constexpr (std::is_invocable_v<decltype(kBody), Params...>)
      return std::is_same_v<std::invoke_result_t<decltype(kBody), Params...>, Result>;
    else
      return false;
  }
  static Answer call(Params... args) {
    if constexpr (gives_result() && !std::is_convertible_v<Result, Answer>) {
      kBody(args...);
      return true;
    } else {
      return kBody(args...);
    }
  }
  static constexpr auto function() -> Answer (*)(Params...) {
    if constexpr (std::is_same_v<decltype(kBody), Answer (*)(Params...)>)
      return kBody;
    else if constexpr (gives_result() || std::is_invocable_r_v<Answer, decltype(kBody), Params...>)
      return &call;
    else
      return nullptr;
  }
};

// What a body answers, or that it has found no kernel. What fails in the capture of a graph names the operator.
template <class Function>
auto answer_of(const AtenOp &op, const Function &body) -> decltype(body()) {
  try {
    return body();
  } catch (const NoKernel &) {
    return {};
  } catch (c10::Error &error) {
    name_captured(op, error);
    throw;
  }
}

// ---- operands ----

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

// The first operand that is ours, all being on one device; nullptr = there are none.
template <class... Args>
const at::Tensor *checked_operand(Devices devices, const Args &...args) {
  const at::Tensor *first = nullptr;
  (look(first, devices, args), ...);
  return first && first->device().type() == kDevice ? first : nullptr;
}

inline c10::DeviceIndex device_of(const at::Tensor *operand) {
  return operand ? operand->device().index() : static_cast<c10::DeviceIndex>(hal_device_current());
}

// What every operand of Forms must be for a kernel to take it; everything else is the CPU kernel's to serve or to refuse.
template <class T>
bool takes(const T &) {
  return true;
}
inline bool takes(const at::Tensor &tensor) { return is_device_tensor(tensor) && !tensor._is_zerotensor(); }
inline bool takes(const OptionalTensor &tensor) { return !is_given(tensor) || takes(*tensor); }
inline bool takes(const at::ITensorListRef &list) {
  for (const at::Tensor &tensor : list) {
    if (!takes(tensor)) return false;
  }
  return true;
}

// ---- results ----

template <class T>
constexpr bool is_written = std::is_reference_v<T> || std::is_void_v<T>;
template <class... T>
constexpr bool is_written<std::tuple<T...>> = (std::is_reference_v<T> && ...);

template <class T>
constexpr size_t count_of = 1;
template <class... T>
constexpr size_t count_of<std::tuple<T...>> = sizeof...(T);

template <class T>
constexpr bool is_of_tensors = std::is_same_v<T, at::Tensor>;
template <class... T>
constexpr bool is_of_tensors<std::tuple<T...>> = (std::is_same_v<T, at::Tensor> && ...);

// What a body of the kind Plain gives.
template <class Result, bool kWrites>
struct AnswerOf {
  using type = bool;
};
template <class Result>
struct AnswerOf<Result, false> {
  using type = std::optional<Result>;
};
template <class Result>
using Answer = typename AnswerOf<Result, is_written<Result>>::type;

// The tensors that a form may write, in their order.
inline std::tuple<at::Tensor &> writable(at::Tensor &tensor) { return std::tie(tensor); }
template <class T>
std::tuple<> writable(const T &) {
  return {};
}

// What a form with out= or in place gives back: tensors that it may write, in their order.
template <class Result, class... Args>
Result given_back(Args &...args) {
  if constexpr (!std::is_void_v<Result>) {
    const auto all = std::tuple_cat(writable(args)...);
    if constexpr (std::is_reference_v<Result>)
      return std::get<0>(all);
    else
      return all;
  }
}

// ATen's result of tensors that `at(i)` gives.
template <class Result, class At>
Result gathered(const At &at) {
  if constexpr (std::is_same_v<Result, at::Tensor>)
    return at(0);
  else
    return [&]<size_t... I>(std::index_sequence<I...>) { return Result{at(I)...}; }
  (std::make_index_sequence<count_of<Result>>());
}

inline void list(Results &results, const at::Tensor &tensor) { results.push_back(tensor); }
template <class... Tensors>
void list(Results &results, const std::tuple<Tensors...> &tensors) {
  std::apply([&](const auto &...each) { (results.push_back(each), ...); }, tensors);
}

}  // namespace registered

// ---- Direct ----
template <class Signature>
struct Direct;
template <class Result, class... Params>
struct Direct<Result(Params...)> {
  using Returned = Result;
  using Body = Result(Params...);
  static Result call(const AtenOp &op, Params... args) {
    return reinterpret_cast<Body *>(static_cast<const Entry &>(op).body)(args...);
  }
};

// ---- Plain ----
template <class Signature>
struct Plain;
template <class Result, class... Params>
struct Plain<Result(Params...)> {
  using Returned = Result;
  using Body = registered::Answer<Result>(Params...);

  static Result call(const AtenOp &op, Params... args) {
    const auto &entry = static_cast<const Entry &>(op);
    const at::Tensor *first = registered::checked_operand(entry.devices, args...);
    const CurrentDevice current(registered::device_of(first));
    if (first && is_asked(entry, first->device().index())) return asked(entry, first->device().index(), args...);
    return answer(entry, args...);
  }

 private:
  static C10_NOINLINE Result asked(const Entry &entry, c10::DeviceIndex device, Params &...args) {
    const Given given[] = {torch_backend::given(args)...};
    Results results;
    if constexpr (registered::is_written<Result>) {
      if (ask(entry, device, given, results)) return registered::given_back<Result>(args...);
    } else if constexpr (registered::is_of_tensors<Result>) {
      if (entry.results) registered::list(results, reinterpret_cast<Result (*)(Params...)>(entry.results)(args...));
      if (ask(entry, device, given, results))
        return registered::gathered<Result>([&](size_t i) { return std::move(results[i]); });
    }
    const Declined declined(entry.row);
    return answer(entry, args...);
  }

  static Result answer(const Entry &entry, Params &...args) {
    if (C10_UNLIKELY(!may_answer(entry))) return FallbackCall<Result(Params...)>::call(entry, args...);
    auto answered = registered::answer_of(entry, [&] { return reinterpret_cast<Body *>(entry.body)(args...); });
    if (!answered) return FallbackCall<Result(Params...)>::call(entry, args...);
    count_answered(entry);
    if constexpr (registered::is_written<Result>)
      return registered::given_back<Result>(args...);
    else
      return std::move(*answered);
  }
};

// ---- Makes and Fills ----

// ATen's meta function of a structured operator.
template <class Meta, class Functional>
struct StructuredMeta;
template <class Meta, class Result, class... Inputs>
struct StructuredMeta<Meta, Result(Inputs...)> {
  template <class T>
  static const T &argument(const T &given) {
    return given;
  }
  static at::OptionalTensorRef argument(const OptionalTensor &tensor) {
    return tensor ? at::OptionalTensorRef(*tensor) : at::OptionalTensorRef();
  }
  static at::OptionalScalarRef argument(const std::optional<c10::Scalar> &number) {
    return number ? at::OptionalScalarRef(*number) : at::OptionalScalarRef();
  }
  static void run(Outputs &outputs, Inputs... inputs) {
    Structured<Meta> structured(outputs);
    structured.meta(argument(inputs)...);
  }
};

// What ATen's implementation of a structured operator, a class of at::native, computes into outputs that the meta function has made.
template <class Native, class Functional>
struct Implementation;
template <class Native, class Result, class... Inputs>
struct Implementation<Native, Result(Inputs...)> {
  static_assert(!std::is_base_of_v<at::TensorIteratorBase, Native>,
                "it needs the iterator that its meta function builds");
  static bool run(Outputs &outputs, Inputs... inputs) {
    [&]<size_t... I>(std::index_sequence<I...>) {
      Structured<Native>(outputs).impl(StructuredMeta<Native, Result(Inputs...)>::argument(inputs)..., outputs[I]...);
    }
    (std::make_index_sequence<registered::count_of<Result>>());
    return true;
  }
};

// All forms of an operator, by the signature of the functional one. Fills is told from Makes by its meta function.
template <class Functional>
struct Forms;
template <class Result, class... Inputs>
struct Forms<Result(Inputs...)> {
  using Returned = void;  // a body says whether there is a kernel, and gives no result
  using Body = bool(Outputs &, Inputs...);

  static Result make(const AtenOp &op, Inputs... inputs) {
    Outputs outputs;
    if (!run(op, outputs, inputs...)) return FallbackCall<Result(Inputs...)>::call(op, inputs...);
    return registered::gathered<Result>([&](size_t i) { return outputs.take(i); });
  }
  template <class Written, class... Outs>
  static Written write(const AtenOp &op, Inputs... inputs, Outs... outs) {
    Outputs outputs(Form::kOut, outs...);
    if (!run(op, outputs, inputs...)) return FallbackCall<Written(Inputs..., Outs...)>::call(op, inputs..., outs...);
    return Written(outs...);
  }
  template <class Self, class... Rest>
  static at::Tensor &overwrite(const AtenOp &op, Self self, Rest... rest) {
    Outputs outputs(Form::kInplace, self);
    if (!run(op, outputs, self, rest...)) return FallbackCall<at::Tensor &(Self, Rest...)>::call(op, self, rest...);
    return self;
  }

 private:
  // False = no kernel: nothing has changed but the size of out=.
  static C10_NOINLINE bool run(const AtenOp &op, Outputs &outputs, Inputs... inputs) {
    const auto &entry = static_cast<const Entry &>(op);
    const at::Tensor *first = registered::checked_operand(entry.devices, inputs...);
    outputs.for_each_given([&](const at::Tensor &given) { registered::look(first, entry.devices, given); });
    const CurrentDevice current(registered::device_of(first));
    Declined declined;
    const bool is_structured = entry.meta;
    if (!is_structured && ask_first(entry, declined, first, outputs, inputs...)) return true;
    bool taken = (registered::takes(inputs) && ...);
    outputs.for_each_given([&](const at::Tensor &given) { taken = taken && registered::takes(given); });
    if (!taken) return false;
    if (is_structured) {
      reinterpret_cast<void (*)(Outputs &, Inputs...)>(entry.meta)(outputs, inputs...);
      if (ask_first(entry, declined, &outputs[0], outputs, inputs...)) return true;
    }
    if (!may_answer(entry) ||
        !registered::answer_of(entry, [&] { return reinterpret_cast<Body *>(entry.body)(outputs, inputs...); }))
      return false;
    count_answered(entry);
    return true;
  }

  static bool ask_first(const Entry &entry, Declined &declined, const at::Tensor *on, Outputs &outputs,
                        const Inputs &...inputs) {
    if (!on || on->device().type() != kDevice || !is_asked(entry, on->device().index())) return false;
    Results made;
    if (entry.results) registered::list(made, reinterpret_cast<Result (*)(Inputs...)>(entry.results)(inputs...));
    if (ask(entry, on->device().index(), {given(inputs)...}, outputs, registered::count_of<Result>, std::move(made)))
      return true;
    declined.set(entry.row);
    return false;
  }
};

// ---- registration ----

// Registered gives the type of bodies, and what one returns that gives the result itself.
template <class Registered, auto kBody>
void set_body(Entry &entry, AnyFunction meta, AnyFunction results) {
  using Fitting = registered::Fitting<kBody, typename Registered::Returned, typename Registered::Body>;
  constexpr auto body = Fitting::function();
  static_assert(body != nullptr, "the installed torch has another schema for this operator than its body");
  entry.body = any_function(body);
  entry.meta = meta;
  entry.results = results;
  if (Fitting::gives_result() && !entry.throws) entry.composed = false;  // who answered is the body's to know
}

// Registers the device's kernel for a DispatchStub of ATen's; of an overloaded function the one that fits.
template <class Stub>
bool enroll_stub(Stub &stub, typename Stub::FnPtr kernel) {
  stub.set_privateuse1_dispatch_ptr(kernel);
  return true;
}

// Registers one form of an operator with its body, Direct or Plain.
template <template <class> class Kind, class Op, auto kBody>
void enroll(Entry &entry, AnyFunction results = nullptr) {
  set_body<Kind<Signature<Op>>, kBody>(entry, nullptr, results);
  enroll<Op>(entry, &Kind<Signature<Op>>::call);
}

// The form with results that are given, of a signature.
template <class All, class Result, class First, class... Rest>
constexpr auto written_form(std::type_identity<Result(First, Rest...)>) {
  if constexpr (std::is_same_v<Result, at::Tensor &> && std::is_same_v<First, at::Tensor &>)
    return &All::template overwrite<First, Rest...>;
  else if constexpr (std::is_reference_v<Result>)
    return &All::template write<Result, Result>;
  else
    return []<class... Outs>(std::type_identity<std::tuple<Outs...>>) {
      return &All::template write<Result, Outs...>;
    }(std::type_identity<Result>());
}

// Registers one form of an operator with a body for all: the functional form, one in place, or one with out=.
template <class Functional, class Op, auto kBody>
void enroll_form(Entry &entry, AnyFunction meta = nullptr, AnyFunction results = nullptr) {
  using All = Forms<Functional>;
  set_body<All, kBody>(entry, meta, results);
  if constexpr (std::is_same_v<Functional, Signature<Op>>)
    enroll<Op>(entry, &All::make);
  else
    enroll<Op>(entry, written_form<All>(std::type_identity<Signature<Op>>()));
}

}  // namespace torch_backend
