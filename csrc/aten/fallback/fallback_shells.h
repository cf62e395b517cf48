// fallback_shells.h: CPU tensors that calls of the fallback reuse. Creating and freeing a tensor and its storage takes
// about 1,200 instructions, filling a used one about 300.
#pragma once

#include <ATen/core/Tensor.h>

namespace torch_backend {

// Returns a CPU tensor with sizes, strides, offset and dtype of `like`, and its own storage without memory. Returns an
// undefined tensor if no shell is available, or if `like` is not plain: with bits (conjugate, negative, zero), a
// wrapped number, in inference mode.
at::Tensor take_shell(const at::Tensor &like);

// Returns whether a CPU tensor may be reused: it has no other references and no Python object, nor has its storage, and
// it is still a plain tensor. The caller checks the references of its storage.
bool is_shell(const at::Tensor &cpu);

// Stores such a tensor for the thread's later calls.
void give_shell(at::Tensor &&cpu);

}  // namespace torch_backend
