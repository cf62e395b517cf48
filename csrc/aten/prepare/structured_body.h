// structured_body.h: structured operators of ATen whose kernels are called by hand. ATen's meta function checks the call
// and makes or resizes the results; a body, whose operands are strided tensors of one device, fills them:
//
//   bool body(const Outputs &outputs, <arguments of the functional form>);
//
// false = no kernel for this call and nothing was written: the fallback answers. Registered with
// TORCH_FN((Functional<at::_ops::tril, at::meta::structured_tril, &body>::call)), and alike for Out and Inplace; by codegen for
// the operators under `shells` of codegen/ops.yaml.
#pragma once

#include <ATen/core/IListRef.h>

#include <tuple>
#include <utility>

#include "aten/prepare/structured.h"

namespace torch_backend {
namespace body {

template <class T>
using NoSymInt = typename c10::maybe_keep_symint<false, T>::type;

// What every operand must be for a kernel to take it; everything else is the CPU kernel's to serve or to refuse.
template <class T>
bool takes(const T &) {
  return true;
}
inline bool takes(const at::Tensor &tensor) { return is_device_tensor(tensor) && !tensor._is_zerotensor(); }
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
inline void look(const at::Tensor *&first, const at::ITensorListRef &list) {
  for (const at::Tensor &tensor : list) look(first, tensor);
}

template <class Meta, auto kBody, class... Args>
bool attempt(Outputs &outputs, const Args &...args) {
  const at::Tensor *first = nullptr;
  (look(first, args), ...);
  for (size_t i = 0; i < 2; i++) {
    if (outputs.given(i)) look(first, *outputs.given(i));
  }
  if (!(takes(args) && ...)) return false;
  Structured<Meta> structured(outputs);
  structured.meta(args...);
  return kBody(std::as_const(outputs), args...);
}

template <class Meta, auto kBody, class Tuple, size_t... I>
bool attempt_first(Outputs &outputs, const Tuple &all, std::index_sequence<I...>) {
  return attempt<Meta, kBody>(outputs, std::get<I>(all)...);
}

}  // namespace body

// The form that makes its results.
template <class Op, class Meta, auto kBody, class Schema = typename Op::schema>
struct Functional;
template <class Op, class Meta, auto kBody, class Result, class... Params>
struct Functional<Op, Meta, kBody, Result(Params...)> {
  static Result call(body::NoSymInt<Params>... args) {
    Outputs outputs;
    if (!body::attempt<Meta, kBody>(outputs, args...)) return call_fallback<Op>(args...);
    if constexpr (std::is_same_v<Result, at::Tensor>) {
      return outputs.take(0);
    } else {
      return {outputs.take(0), outputs.take(1)};
    }
  }
};

// The form with out=, its last one or two arguments.
template <class Op, class Meta, auto kBody, class Schema = typename Op::schema>
struct Out;
template <class Op, class Meta, auto kBody, class Result, class... Params>
struct Out<Op, Meta, kBody, Result(Params...)> {
  static Result call(body::NoSymInt<Params>... args) {
    constexpr size_t kResults = std::is_same_v<Result, at::Tensor &> ? 1 : 2;
    constexpr size_t kArguments = sizeof...(Params) - kResults;
    const auto all = std::forward_as_tuple(args...);
    const auto inputs = std::make_index_sequence<kArguments>();
    if constexpr (kResults == 1) {
      at::Tensor &out = std::get<kArguments>(all);
      Outputs outputs(Form::kOut, out);
      if (body::attempt_first<Meta, kBody>(outputs, all, inputs)) return out;
    } else {
      at::Tensor &first = std::get<kArguments>(all), &second = std::get<kArguments + 1>(all);
      Outputs outputs(Form::kOut, first, second);
      if (body::attempt_first<Meta, kBody>(outputs, all, inputs)) return {first, second};
    }
    return call_fallback<Op>(args...);
  }
};

// The form that overwrites its first argument.
template <class Op, class Meta, auto kBody, class Schema = typename Op::schema>
struct Inplace;
template <class Op, class Meta, auto kBody, class... Params>
struct Inplace<Op, Meta, kBody, at::Tensor &(at::Tensor &, Params...)> {
  static at::Tensor &call(at::Tensor &self, body::NoSymInt<Params>... args) {
    Outputs outputs(Form::kInplace, self);
    if (body::attempt<Meta, kBody>(outputs, self, args...)) return self;
    return call_fallback<Op>(self, args...);
  }
};

}  // namespace torch_backend
