// direct.cpp: see direct.h.
#include "lazy/direct.h"

#include <array>
#include <cstddef>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/device.h"
#include "core/lazy/dtype.h"
#include "core/lazy/tensor.h"
#include "lazy/guard.h"

namespace torch_backend {
namespace {

using Tensor = const at::Tensor &;
using Number = const c10::Scalar &;

// The result of inspecting the arguments of a call.
struct Sight {
  c10::DispatchKeySet keys{};  // of the tensors that the operator receives
  c10::DeviceIndex index = -1;
  bool ordinary = true;

  void look(Tensor tensor) {
    if (!is_lazy(tensor)) {  // a number on the CPU
      ordinary = ordinary && tensor.defined() && tensor.dim() == 0;
      keys = keys | tensor.key_set();
      return;
    }
    const at::Tensor &inner = lazy_inner(tensor);
    const c10::DeviceIndex found = inner.device().index();
    ordinary = ordinary && (index == -1 || index == found) && inner.is_contiguous();
    index = found;
    keys = keys | inner.key_set();
  }
  void look(Number) {}
};

Tensor inner_of(Tensor tensor) { return is_lazy(tensor) ? lazy_inner(tensor) : tensor; }
Number inner_of(Number number) { return number; }

// Returns the wrapper of a result, which may be an operand.
const at::Tensor *wrapper_of(const at::Tensor &result, Tensor tensor) {
  return inner_of(tensor).is_same(result) ? &tensor : nullptr;
}
const at::Tensor *wrapper_of(const at::Tensor &, Number) { return nullptr; }

template <class... Args>
struct Direct {
  c10::TypedOperatorHandle<at::Tensor(Args...)> op;
  BoxedWay boxed;

  at::Tensor operator()(Args... args) const {
    Sight sight;
    (sight.look(args), ...);
    if (C10_UNLIKELY(!sight.ordinary || sight.index != hal_device_current() || !goes_to_kernel(sight.keys)))
      return by_stack(args...);
    keep_lazy(sight.index);
    if (C10_UNLIKELY(lazy_dtypes().narrows())) return by_stack(args...);
    at::Tensor result = op.redispatch(kKeySet, inner_of(args)...);
    const at::Tensor *given = nullptr;
    ((given = given ? given : wrapper_of(result, args)), ...);
    if (C10_UNLIKELY(given != nullptr)) return *given;
    return C10_LIKELY(result.device().type() == kDevice) ? make_lazy(std::move(result)) : result;
  }

  C10_NOINLINE at::Tensor by_stack(Args... args) const {
    torch::jit::Stack stack = c10::impl::boxArgs<Args...>(args...);
    boxed(op, &stack);
    return std::move(stack.back()).toTensor();
  }
};

template <class... Args>
bool fits(const c10::FunctionSchema &schema) {
  constexpr std::array<c10::TypeKind, sizeof...(Args)> kinds = {
      (std::is_same_v<Args, Tensor> ? c10::TypeKind::TensorType : c10::TypeKind::NumberType)...};
  bool fits = schema.arguments().size() == kinds.size();
  for (size_t i = 0; fits && i < kinds.size(); ++i)
    fits = schema.arguments()[i].type()->kind() == kinds[i] && !schema.arguments()[i].alias_info();
  return fits;
}

template <class... Args>
bool register_one(torch::Library &library, const std::string &name, const c10::OperatorHandle &op, BoxedWay boxed) {
  if (!fits<Args...>(op.schema())) return false;
  library.impl(name.c_str(), torch::CppFunction(Direct<Args...>{op.typed<at::Tensor(Args...)>(), boxed}));
  return true;
}

}  // namespace

bool register_direct(torch::Library &library, const std::string &name, const c10::OperatorHandle &op, BoxedWay boxed) {
  const std::vector<c10::Argument> &returns = op.schema().returns();
  if (returns.size() != 1 || returns[0].type()->kind() != c10::TypeKind::TensorType || returns[0].alias_info())
    return false;
  return register_one<Tensor>(library, name, op, boxed) || register_one<Tensor, Tensor>(library, name, op, boxed) ||
         register_one<Tensor, Number>(library, name, op, boxed) ||
         register_one<Tensor, Tensor, Number>(library, name, op, boxed) ||
         register_one<Tensor, Tensor, Tensor>(library, name, op, boxed) ||
         register_one<Tensor, Number, Number>(library, name, op, boxed) ||
         register_one<Tensor, Tensor, Tensor, Number>(library, name, op, boxed) ||
         register_one<Tensor, Tensor, Tensor, Number, Number>(library, name, op, boxed);
}

}  // namespace torch_backend
