// convolution.cpp: convolutions. ATen's entry points for devices of other houses only throw; until the device has
// kernels the CPU's convolution runs on aliases of the operands.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <torch/library.h>

#include "aten/fallback_route.h"

namespace torch_backend {
namespace {

const c10::OperatorHandle &find(const char *name) {
  // Handles of ATen's own operators live for ever.
  return *new c10::OperatorHandle(c10::Dispatcher::singleton().findSchemaOrThrow(name, ""));
}

void convolution(const c10::OperatorHandle &op, torch::jit::Stack *stack) {
  static const c10::OperatorHandle &target = find("aten::convolution");
  run_on_cpu(op, target, c10::DispatchKey::CPU, stack);
}

// aten::convolution_backward takes one argument more: the sizes of the bias, behind the weight.
void convolution_backward(const c10::OperatorHandle &op, torch::jit::Stack *stack) {
  static const c10::OperatorHandle &target = find("aten::convolution_backward");
  constexpr std::ptrdiff_t kArguments = 10, kWeight = 2, kTransposed = 6, kGroups = 8;
  const auto first = stack->end() - kArguments;
  const at::Tensor &weight = first[kWeight].toTensor();
  const int64_t outputs = first[kTransposed].toBool() ? weight.size(1) * first[kGroups].toInt() : weight.size(0);
  stack->insert(first + kWeight + 1, c10::IValue(c10::List<int64_t>({outputs})));
  run_on_cpu(op, target, c10::DispatchKey::CPU, stack);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("convolution_overrideable", torch::CppFunction::makeFromBoxedFunction<&convolution>());
  m.impl("convolution_backward_overrideable", torch::CppFunction::makeFromBoxedFunction<&convolution_backward>());
}

}  // namespace torch_backend
