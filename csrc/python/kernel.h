// kernel.h: kernels in the portable dialect for Python: compiled, then launched with tensors and numbers.
#pragma once

#include <pybind11/pybind11.h>

namespace torch_backend {

// Adds the class Kernel and the function compile_kernel to a module.
void bind_kernels(pybind11::module_ &module);

}  // namespace torch_backend
