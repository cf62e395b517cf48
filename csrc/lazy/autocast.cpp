// autocast.cpp: see autocast.h. c10 has no autocast key for the type lazy, so torch's own casts do not apply to its
// tensors. Lazy tensors carry the autocast key of c10's device type xla, which has no other tensors in this process.
#include "lazy/autocast.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "core/compat.h"
#include "core/lazy/tensor.h"
#include "core/refused.h"

namespace torch_backend {
namespace {

using torch::jit::Stack;

enum class Policy { kLower, kFloat, kFloatByDtype, kWidest };

c10::ScalarType lower() { return at::autocast::get_autocast_dtype(c10::DeviceType::XLA); }

bool is_eligible(const at::Tensor &tensor) {
  return is_lazy(tensor) && tensor.is_floating_point() && tensor.scalar_type() != c10::kDouble;
}

at::Tensor cast(const at::Tensor &tensor, c10::ScalarType dtype) {
  return is_eligible(tensor) && tensor.scalar_type() != dtype ? tensor.to(dtype) : tensor;
}

void cast(c10::IValue &value, c10::ScalarType dtype) {
  if (value.isTensor()) {
    value = cast(value.toTensor(), dtype);
  } else if (value.isTensorList()) {
    c10::List<at::Tensor> list = value.toTensorList().copy();
    for (size_t i = 0; i < list.size(); ++i) list.set(i, cast(list.get(i), dtype));
    value = std::move(list);
  }
}

bool holds_float(const c10::IValue &value) {
  const auto is_float = [](const at::Tensor &tensor) {
    if (!is_eligible(tensor)) return false;
    TORCH_CHECK(tensor.scalar_type() == c10::kFloat || tensor.scalar_type() == lower(), "Unexpected floating ",
                tensor.scalar_type(), " among operands that autocast promotes: they may be float32 and ", lower());
    return tensor.scalar_type() == c10::kFloat;
  };
  if (value.isTensor()) return is_float(value.toTensor());
  if (!value.isTensorList()) return false;
  const std::vector<at::Tensor> list = value.toTensorVector();
  return std::any_of(list.begin(), list.end(), is_float);
}

// If no dtype is requested, it is float32; the operator itself casts.
void set_dtype(const c10::FunctionSchema &schema, c10::IValue *arguments) {
  const auto at = schema.argumentIndexWithName("dtype");
  if (at && arguments[*at].isNone() && is_eligible(arguments[0].toTensor()))
    arguments[*at] = static_cast<int64_t>(c10::kFloat);
}

template <Policy policy>
void run(const c10::OperatorHandle &op, Stack *stack) {
  const c10::impl::ExcludeDispatchKeyGuard guard(c10::DispatchKey::AutocastXLA);
  const size_t count = op.schema().arguments().size();
  c10::IValue *const arguments = stack->data() + (stack->size() - count);
  if (policy == Policy::kFloatByDtype) {
    set_dtype(op.schema(), arguments);
  } else {
    const bool wide = policy == Policy::kFloat ||
                      (policy == Policy::kWidest && std::any_of(arguments, arguments + count, holds_float));
    const c10::ScalarType dtype = wide ? c10::kFloat : lower();
    std::for_each(arguments, arguments + count, [dtype](c10::IValue &value) { cast(value, dtype); });
  }
  op.callBoxed(stack);
}

void refuse(const c10::OperatorHandle &, Stack *) { TORCH_CHECK(false, kRefusedBinaryCrossEntropy); }

// Returns the name as the library takes it, without the part ", input" of "conv_transpose2d, input".
std::string name_of(std::string listed) {
  const size_t comma = listed.find(", ");
  return comma == std::string::npos ? listed : listed.replace(comma, 2, ".");
}

template <Policy policy>
void add_casts(torch::Library &library, const char *listed) {
  library.impl(name_of(listed).c_str(), torch::CppFunction::makeFromBoxedFunction<&run<policy>>());
}

}  // namespace

void enable_lazy_autocast() {
  static std::vector<std::unique_ptr<torch::Library>> libraries;  // exist until the process ends
  for (const char *const name : {"_", "aten"})
    libraries.push_back(std::make_unique<torch::Library>(torch::Library::IMPL, name, c10::DispatchKey::AutocastXLA,
                                                         __FILE__, __LINE__));
  libraries[0]->fallback(torch::CppFunction::makeFallthrough());
  torch::Library &library = *libraries[1];
#define LOWER(...) add_casts<Policy::kLower>(library, #__VA_ARGS__);
#define FLOAT(...) add_casts<Policy::kFloat>(library, #__VA_ARGS__);
#define FLOAT_BY_DTYPE(...) add_casts<Policy::kFloatByDtype>(library, #__VA_ARGS__);
#define WIDEST(...) add_casts<Policy::kWidest>(library, #__VA_ARGS__);
  AT_FORALL_LOWER_PRECISION_FP(LOWER)
  AT_FORALL_FP32(FLOAT)
  TORCH_BACKEND_FORALL_FURTHER_FP32(FLOAT)
  AT_FORALL_FP32_SET_OPT_DTYPE(FLOAT_BY_DTYPE)
  AT_FORALL_PROMOTE(WIDEST)
#undef LOWER
#undef FLOAT
#undef FLOAT_BY_DTYPE
#undef WIDEST
  add_casts<Policy::kFloat>(library, "norm.Scalar");
  add_casts<Policy::kFloat>(library, "norm.ScalarOpt_dim");
  library.impl("binary_cross_entropy", torch::CppFunction::makeFromBoxedFunction<&refuse>());
}

}  // namespace torch_backend
