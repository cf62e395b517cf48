// overload.cpp: see overload.h.
#include "aten/prepare/overload.h"

#include "core/graph/graph.h"
#include "core/stream/stream.h"

namespace torch_backend {

void OperandDevice::add(const at::ITensorListRef &list) {
  for (const at::Tensor &tensor : list) add(tensor);
}

void OperandDevice::add(const c10::List<std::optional<at::Tensor>> &list) {
  for (const std::optional<at::Tensor> tensor : list) add(tensor);
}

bool is_kernel_operand(const at::ITensorListRef &list) {
  for (const at::Tensor &tensor : list)
    if (!is_kernel_operand(tensor)) return false;
  return true;
}

bool is_kernel_operand(const Outputs &outputs) {
  bool plain = true;
  outputs.for_each_given([&](const at::Tensor &given) { plain = plain && is_kernel_operand(given); });
  return plain;
}

void decline_or_rethrow(const AtenOp &op) {
  try {
    throw;
  } catch (const NoKernel &) {
  } catch (c10::Error &error) {
    if (hal_program_of_stream(current_stream(-1))) {
      error.add_context("captured by " + c10::toString(op.name()));
      note_refused(error.what_without_backtrace());
    }
    throw;
  }
}

}  // namespace torch_backend
