// asked.h: the plugin's own operator is asked first, with what the user gave (vendor_call.h): from the arguments of one ATen operator
// to a call in the order of the frozen list of codegen/ops.yaml.
#pragma once

#include <ATen/core/IListRef.h>
#include <ATen/core/Tensor.h>

#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "aten/prepare/structured.h"
#include "aten/prepare/vendor_call.h"

namespace torch_backend {

// What sizes are in a kernel: integers, where the schema has symbols.
template <class T>
using NoSymInt = typename c10::maybe_keep_symint<false, T>::type;

namespace asked {

// ---- results as ATen's meta function gives them ----

// The same argument, of tensors only shape and dtype.
template <class T>
const T &meta_of(const T &argument) {
  return argument;
}
at::Tensor meta_of(const at::Tensor &tensor);
std::vector<at::Tensor> meta_of(const at::ITensorListRef &list);
std::vector<at::Tensor> meta_of(const at::TensorList &list);
c10::List<std::optional<at::Tensor>> meta_of(const c10::List<std::optional<at::Tensor>> &list);
inline std::optional<at::Tensor> meta_of(const std::optional<at::Tensor> &tensor) {
  return tensor ? std::optional(meta_of(*tensor)) : std::nullopt;
}

// Sizes as the schema's class takes them.
template <class Param, class T>
const T &symbolic(const T &argument) {
  return argument;
}
template <class Param>
Param symbolic(const c10::IntArrayRef &list) {
  if constexpr (std::is_same_v<Param, c10::SymIntArrayRef>)
    return c10::fromIntArrayRefSlow(list);
  else
    return list;
}
template <class Param>
Param symbolic(const c10::OptionalIntArrayRef &list) {
  if constexpr (std::is_same_v<Param, c10::OptionalIntArrayRef>)
    return list;
  else
    return list ? Param(c10::fromIntArrayRefSlow(*list)) : Param();
}

// nullopt = there is no meta function.
template <class Op, class Schema = typename Op::schema>
struct MetaCall;
template <class Op, class Result, class... Params>
struct MetaCall<Op, Result(Params...)> {
  static std::optional<Result> call(const NoSymInt<Params> &...args) {
    constexpr c10::DispatchKeySet meta(c10::DispatchKey::Meta);
    try {
      return Op::redispatch(meta, symbolic<std::decay_t<Params>>(meta_of(args))...);
    } catch (const c10::NotImplementedError &) {
      return std::nullopt;
    }
  }
};

// ---- results of a call ----

using Results = c10::SmallVector<at::Tensor, 4>;

inline void list(Results &results, const at::Tensor &tensor) { results.push_back(tensor); }
inline void list(Results &results, at::TensorList tensors) { results.append(tensors.begin(), tensors.end()); }
inline void list(Results &results, const std::optional<at::Tensor> &tensor) {
  results.push_back(tensor ? *tensor : at::Tensor());
}
template <class... Tensors>
void list(Results &results, const std::tuple<Tensors...> &tensors) {
  std::apply([&](const auto &...each) { (list(results, each), ...); }, tensors);
}

template <class Result, size_t... I>
Result gathered(Results &results, std::index_sequence<I...>) {
  if constexpr (std::is_same_v<Result, at::Tensor>)
    return std::move(results[0]);
  else
    return {std::move(results[I])...};
}

template <class T>
constexpr size_t count_of = 1;
template <class... T>
constexpr size_t count_of<std::tuple<T...>> = sizeof...(T);

// Memory on the device for each of what a meta function has made.
void allocate(Results &results, c10::DeviceIndex device);
// Makes given results (out=, in place) fit; false = they are none that the plugin could fill.
bool fit(const Results &metas, c10::ArrayRef<at::Tensor> given);
// Runs the call, which has all its arguments, into results that are there: by way of temporaries, where an operand reads from one.
bool fill(VendorCall &call, uint32_t op, c10::ArrayRef<at::Tensor> results);

}  // namespace asked

// Nobody to ask: no row of codegen/ops.yaml has this operator with ATen's arguments.
struct NotAsked {
  static constexpr uint32_t kOp = kNoOp;
  static constexpr bool kComposed = false;
};

template <size_t... kPositions>
struct Positions {};

// Asks for operator `kRow` of the list. Its frozen arguments are ATen's at the positions `Order`; arguments at the positions `Written`
// are results, too, behind those that are returned. `kResults`, a function of ATen's arguments, allocates what is returned; nullptr:
// ATen's meta function of the functional form `FunctionalOp` says what it is. `kIsComposed`: there is no kernel of ours.
template <uint32_t kRow, bool kIsComposed, class FunctionalOp, auto kResults, class Order, class Written = Positions<>>
struct Asked;
template <uint32_t kRow, bool kIsComposed, class FunctionalOp, auto kResults, size_t... kOrder, size_t... kWritten>
struct Asked<kRow, kIsComposed, FunctionalOp, kResults, Positions<kOrder...>, Positions<kWritten...>> {
  static constexpr uint32_t kOp = kRow;
  static constexpr bool kComposed = kIsComposed;

  // A form that makes its results. nullopt = the plugin has declined, as below.
  template <class Result, class... Args>
  static C10_NOINLINE std::optional<Result> make(c10::DeviceIndex device, const Args &...args) {
    VendorCall call;
    asked::Results results;
    if (!add(call, args...) || !returned(results, device, args...)) return std::nullopt;
    const std::tuple<const Args &...> all(args...);
    (asked::list(results, std::get<kWritten>(all)), ...);
    for (const at::Tensor &result : results) call.add_result(result);
    if (!call.run(kRow)) return std::nullopt;
    return asked::gathered<Result>(results, std::make_index_sequence<asked::count_of<Result>>());
  }

  // A form that writes its arguments, and returns some of them or nothing.
  template <class... Args>
  static C10_NOINLINE bool write(const Args &...args) {
    VendorCall call;
    asked::Results results;
    if (!add(call, args...)) return false;
    const std::tuple<const Args &...> all(args...);
    (asked::list(results, std::get<kWritten>(all)), ...);
    for (const at::Tensor &result : results) call.add_result(result);
    return call.run(kRow);
  }

  // A form that fills `given`, out= or self, which are made to fit.
  template <class... Args>
  static C10_NOINLINE bool fit(c10::DeviceIndex device, c10::ArrayRef<at::Tensor> given, const Args &...args) {
    VendorCall call;
    asked::Results results;
    if (!add(call, args...) || !metas(results, args...) || !asked::fit(results, given)) return false;
    return asked::fill(call, kRow, given);
  }

  // Results that a structured meta function has made.
  template <class... Args>
  static C10_NOINLINE bool fill(c10::ArrayRef<at::Tensor> results, const Args &...args) {
    VendorCall call;
    return add(call, args...) && asked::fill(call, kRow, results);
  }

 private:
  template <class... Args>
  static bool add(VendorCall &call, const Args &...args) {
    const std::tuple<const Args &...> all(args...);
    (call.add(std::get<kOrder>(all)), ...);
    return call.may_ask(kRow);
  }

  template <class... Args>
  static bool metas(asked::Results &results, const Args &...args) {
    const auto made = asked::MetaCall<FunctionalOp>::call(args...);
    if (made) asked::list(results, *made);
    return made.has_value();
  }

  template <class... Args>
  static bool returned(asked::Results &results, c10::DeviceIndex device, const Args &...args) {
    if constexpr (std::is_same_v<decltype(kResults), std::nullptr_t>) {
      if (!metas(results, args...)) return false;
      asked::allocate(results, device);
    } else {
      asked::list(results, kResults(args...));
    }
    return true;
  }
};

}  // namespace torch_backend
