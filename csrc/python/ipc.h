// ipc.h: storages that processes share.
#pragma once

#include <pybind11/pybind11.h>

namespace torch_backend {

void bind_ipc(pybind11::module_ &module);

}  // namespace torch_backend
