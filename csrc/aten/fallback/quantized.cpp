// quantized.cpp: operators of torch's quantized dtypes (quint8, qint8, qint32), which a device does not have: an error
// that names the device type, in place of torch's list of registrations.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <torch/library.h>

#include "core/device.h"
#include "core/tensor_kind.h"

namespace torch_backend {
namespace {

void refuse_quantized(const c10::OperatorHandle &op, torch::jit::Stack *) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "The operator '", op.operator_name().name,
                              "' has a quantized tensor on device type '", kDevice, "', which does not support them. ",
                              kInsteadOfQuantized);
}

}  // namespace

TORCH_LIBRARY_IMPL(_, QuantizedPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&refuse_quantized>());
}

}  // namespace torch_backend
