// history.h: the history of the caching allocator for Python: what is recorded, and snapshots with stacks.
#pragma once

#include <pybind11/pybind11.h>

namespace torch_backend {

void bind_memory_history(pybind11::module_ &module);

}  // namespace torch_backend
