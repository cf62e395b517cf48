// lazy.h: lazy streams for Python: deferred work that is flushed and counted, and the Python lines that it came from.
#pragma once

#include <pybind11/pybind11.h>

namespace torch_backend {

// Adds the class Lazy to a module.
void bind_lazy(pybind11::module_ &module);

}  // namespace torch_backend
