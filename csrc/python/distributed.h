// distributed.h: torch.distributed's backend for Python.
#pragma once

#include <pybind11/pybind11.h>

namespace torch_backend {

// Adds create_process_group_backend and the log of collectives to a module.
void bind_distributed(pybind11::module_ &module);

}  // namespace torch_backend
