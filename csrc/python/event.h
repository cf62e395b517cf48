// event.h: interprocess events for Python.
#pragma once

#include <pybind11/pybind11.h>

namespace torch_backend {

// Adds share_event, open_event and event_handle to a module.
void bind_events(pybind11::module_ &module);

}  // namespace torch_backend
