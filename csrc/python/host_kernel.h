// host_kernel.h: C++ kernels that torch.compile generates for the host, as commands of a stream.
#pragma once
#include <pybind11/pybind11.h>

namespace torch_backend {

// Adds the class HostKernels to a module.
void bind_host_kernels(pybind11::module_ &module);

}  // namespace torch_backend
