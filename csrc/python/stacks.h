// stacks.h: the stacks of Python for the reports of plugins (hal_stack_set_source).
#pragma once

#include <pybind11/pybind11.h>

namespace torch_backend {

void bind_stacks(pybind11::module_ &module);

}  // namespace torch_backend
