// structured_body.h: structured operators of ATen whose kernels are called by hand. ATen's meta function checks the call
// and makes or resizes the results; a body, whose operands are strided tensors of one device, fills them:
//
//   bool body(const Outputs &outputs, <arguments of the functional form>);
//
// false = no kernel for this call and nothing was written: the fallback answers. The plugin's own operator is asked before the body,
// with the same results. Registered by codegen for the operators that say `fills` under `bodies` of codegen/ops.yaml.
#pragma once

#include <ATen/core/IListRef.h>

#include <tuple>
#include <utility>

#include "aten/prepare/asked.h"

namespace torch_backend {
namespace body {

// What every operand must be for a kernel to take it; everything else is the CPU kernel's to serve or to refuse.
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

template <class T>
void look(const at::Tensor *&, const T &) {}
inline void look(const at::Tensor *&first, const at::Tensor &tensor) {
  if (!tensor.defined()) return;
  if (!first) first = &tensor;
  if (first->device() != tensor.device()) throw_two_devices(first->device(), tensor.device());
}
inline void look(const at::Tensor *&first, const OptionalTensor &tensor) {
  if (tensor) look(first, *tensor);
}
inline void look(const at::Tensor *&first, const at::ITensorListRef &list) {
  for (const at::Tensor &tensor : list) look(first, tensor);
}

// As ATen's meta functions want it.
template <class T>
const T &meta_argument(const T &argument) {
  return argument;
}
inline at::OptionalTensorRef meta_argument(const OptionalTensor &tensor) {
  return tensor ? at::OptionalTensorRef(*tensor) : at::OptionalTensorRef();
}
inline at::OptionalScalarRef meta_argument(const std::optional<c10::Scalar> &number) {
  return number ? at::OptionalScalarRef(*number) : at::OptionalScalarRef();
}

template <auto kBody, class Ask, class... Args>
bool answer(const Outputs &outputs, const Args &...args) {
  if (!kBody(outputs, args...)) return false;
  if constexpr (Ask::kComposed) count_composed(Ask::kOp);
  return true;
}

template <class Meta, auto kBody, class Ask, size_t kResults, class... Args>
bool attempt(Outputs &outputs, const Args &...args) {
  const at::Tensor *first = nullptr;
  (look(first, args), ...);
  for (size_t i = 0; i < kMostOutputs; i++) {
    if (outputs.given(i)) look(first, *outputs.given(i));
  }
  if (!(takes(args) && ...)) return false;
  const c10::DeviceIndex device = first->device().index();
  const CurrentDevice current(device);
  Structured<Meta> structured(outputs);
  structured.meta(meta_argument(args)...);
  if constexpr (Ask::kOp != kNoOp) {
    if (C10_UNLIKELY(hal_op_own_dtypes(device, Ask::kOp) != 0)) {
      at::Tensor results[kResults];
      for (size_t i = 0; i < kResults; i++) results[i] = outputs[static_cast<int64_t>(i)];
      if (Ask::fill(results, args...)) return true;
      const Declined declined(Ask::kOp);
      return answer<kBody, Ask>(outputs, args...);
    }
  }
  return answer<kBody, Ask>(outputs, args...);
}

template <class Meta, auto kBody, class Ask, size_t kResults, class Tuple, size_t... I>
bool attempt_first(Outputs &outputs, const Tuple &all, std::index_sequence<I...>) {
  return attempt<Meta, kBody, Ask, kResults>(outputs, std::get<I>(all)...);
}

template <auto kBody, class... Params>
constexpr bool fills = std::is_invocable_r_v<bool, decltype(kBody), const Outputs &, NoSymInt<Params>...>;

}  // namespace body

// The form that makes its results.
template <class Op, class Meta, auto kBody, class Ask = NotAsked, class Schema = typename Op::schema>
struct Functional;
template <class Op, class Meta, auto kBody, class Ask, class Result, class... Params>
struct Functional<Op, Meta, kBody, Ask, Result(Params...)> {
  static constexpr bool kFits = body::fills<kBody, Params...>;
  static Result call(NoSymInt<Params>... args) {
    constexpr size_t kResults = std::is_same_v<Result, at::Tensor> ? 1 : 2;
    Outputs outputs;
    if (!body::attempt<Meta, kBody, Ask, kResults>(outputs, args...)) return call_fallback<Op>(args...);
    if constexpr (std::is_same_v<Result, at::Tensor>) {
      return outputs.take(0);
    } else {
      return {outputs.take(0), outputs.take(1)};
    }
  }
};

// The form with out=, its last one or two arguments.
template <class Op, class Meta, auto kBody, class Ask = NotAsked, class Schema = typename Op::schema>
struct Out;
template <class Op, class Meta, auto kBody, class Ask, class Result, class... Params>
struct Out<Op, Meta, kBody, Ask, Result(Params...)> {
  static constexpr bool kFits = true;  // as the functional form
  static Result call(NoSymInt<Params>... args) {
    constexpr size_t kResults = std::is_same_v<Result, at::Tensor &> ? 1 : 2;
    constexpr size_t kArguments = sizeof...(Params) - kResults;
    const auto all = std::forward_as_tuple(args...);
    const auto inputs = std::make_index_sequence<kArguments>();
    if constexpr (kResults == 1) {
      at::Tensor &out = std::get<kArguments>(all);
      Outputs outputs(Form::kOut, out);
      if (body::attempt_first<Meta, kBody, Ask, kResults>(outputs, all, inputs)) return out;
    } else {
      at::Tensor &first = std::get<kArguments>(all), &second = std::get<kArguments + 1>(all);
      Outputs outputs(Form::kOut, first, second);
      if (body::attempt_first<Meta, kBody, Ask, kResults>(outputs, all, inputs)) return {first, second};
    }
    return call_fallback<Op>(args...);
  }
};

// The form that overwrites its first argument.
template <class Op, class Meta, auto kBody, class Ask = NotAsked, class Schema = typename Op::schema>
struct Inplace;
template <class Op, class Meta, auto kBody, class Ask, class... Params>
struct Inplace<Op, Meta, kBody, Ask, at::Tensor &(at::Tensor &, Params...)> {
  static constexpr bool kFits = body::fills<kBody, const at::Tensor &, Params...>;
  static at::Tensor &call(at::Tensor &self, NoSymInt<Params>... args) {
    Outputs outputs(Form::kInplace, self);
    if (body::attempt<Meta, kBody, Ask, 1>(outputs, self, args...)) return self;
    return call_fallback<Op>(self, args...);
  }
};

}  // namespace torch_backend
