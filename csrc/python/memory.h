// memory.h: the allocators for Python: pools, limits, statistics of pinned memory, raw allocations, snapshots.
#pragma once

#include <pybind11/pybind11.h>

namespace torch_backend {

void bind_memory(pybind11::module_ &module);

}  // namespace torch_backend
