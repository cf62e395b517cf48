// sensor.h: the sensors of devices, for Python.
#pragma once

#include <pybind11/pybind11.h>

namespace torch_backend {

// Adds sensors, device_sensor and device_processes to a module.
void bind_sensors(pybind11::module_ &module);

}  // namespace torch_backend
