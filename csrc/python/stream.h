// stream.h: functions of streams for Python that torch.Stream lacks.
#pragma once

#include <pybind11/pybind11.h>

namespace torch_backend {

void bind_streams(pybind11::module_ &module);

}  // namespace torch_backend
