// fallback_shells.h: CPU tensors that serve one call of the fallback after the other. Making a tensor and its storage and
// freeing them costs some 1,200 instructions, filling a used one some 300.
#pragma once

#include <ATen/core/Tensor.h>

namespace torch_backend {

// A CPU tensor with sizes, strides, offset and dtype of `like`, and a storage of its own without memory. Undefined when
// there is none at hand, or `like` is not plain: with bits (conjugate, negative, zero), a wrapped number, in inference mode.
at::Tensor take_shell(const at::Tensor &like);

// Whether a CPU tensor may serve again: nobody else holds it or a Python object of it or of its storage, and it was left a
// plain tensor. Who holds its storage is the caller's to ask.
bool is_shell(const at::Tensor &cpu);

// Keeps such a tensor for the thread's later calls.
void give_shell(at::Tensor &&cpu);

}  // namespace torch_backend
