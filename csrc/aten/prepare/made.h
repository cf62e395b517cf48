// made.h: bodies that make their results themselves (`makes` under `bodies` of codegen/ops.yaml), where ATen has no meta function:
//
//   bool body(Outputs &outputs, <arguments of the functional form>);
//
// One body serves all forms: Outputs::make allocates a result, resizes one that is given with out=, or checks one in place. false = no
// kernel for this call: the fallback answers; nothing has changed but the size of out=.
#pragma once

#include <tuple>
#include <type_traits>
#include <utility>

#include "aten/prepare/structured_body.h"

namespace torch_backend {

// What registered.h calls of such a body in one form.
template <class Op, auto kBody, class Schema = typename Op::schema>
struct Made;

template <class Op, auto kBody, class Result, class... Params>
struct Made<Op, kBody, Result(Params...)> {
  static std::optional<Result> call(NoSymInt<Params>... args) {
    Outputs outputs;
    if (!(body::takes(args) && ...) || !kBody(outputs, args...)) return std::nullopt;
    if constexpr (std::is_same_v<Result, at::Tensor>) {
      return outputs.take(0);
    } else {
      return [&]<size_t... I>(std::index_sequence<I...>) { return Result{outputs.take(I)...}; }
      (std::make_index_sequence<std::tuple_size_v<Result>>());
    }
  }
};

namespace made {

// With out=: the results are the last arguments.
template <auto kBody, size_t kResults, class... Args>
bool write(const Args &...args) {
  const auto all = std::tie(args...);
  constexpr size_t kInputs = sizeof...(Args) - kResults;
  return [&]<size_t... I, size_t... R>(std::index_sequence<I...>, std::index_sequence<R...>) {
    Outputs outputs(Form::kOut, std::get<kInputs + R>(all)...);
    return (body::takes(args) && ...) && kBody(outputs, std::get<I>(all)...);
  }
  (std::make_index_sequence<kInputs>(), std::make_index_sequence<kResults>());
}

}  // namespace made

template <class Op, auto kBody, class... Params>
struct Made<Op, kBody, at::Tensor &(Params...)> {
  static bool call(NoSymInt<Params>... args) { return made::write<kBody, 1>(args...); }
};

template <class Op, auto kBody, class... Results, class... Params>
struct Made<Op, kBody, std::tuple<Results &...>(Params...)> {
  static bool call(NoSymInt<Params>... args) { return made::write<kBody, sizeof...(Results)>(args...); }
};

// In place: the first argument is the result, too.
template <class Op, auto kBody, class... Params>
struct Made<Op, kBody, at::Tensor &(at::Tensor &, Params...)> {
  static bool call(at::Tensor &self, NoSymInt<Params>... args) {
    Outputs outputs(Form::kInplace, self);
    return body::takes(self) && (body::takes(args) && ...) && kBody(outputs, self, args...);
  }
};

}  // namespace torch_backend
