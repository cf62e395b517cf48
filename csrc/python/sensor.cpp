// sensor.cpp: see sensor.h.
#include "sensor.h"

#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/status.h"

namespace py = pybind11;

namespace torch_backend {
namespace {

// Returns (number, name, unit) of each sensor.
std::vector<std::tuple<uint32_t, std::string, std::string>> sensors() {
  std::vector<std::tuple<uint32_t, std::string, std::string>> result;
  for (uint32_t sensor = 1; hal_sensor_name(sensor) != nullptr; ++sensor)
    result.emplace_back(sensor, hal_sensor_name(sensor), hal_sensor_unit(sensor));
  return result;
}

int64_t device_sensor(int32_t device, uint32_t sensor) {
  int64_t value = 0;
  check(hal_device_sensor(device, sensor, &value));
  return value;
}

using Processes = std::vector<std::pair<uint64_t, std::optional<uint64_t>>>;

void keep_process(void *user_data, const hal_device_process_t *process) {
  const bool known = HAL_HAS_FIELD(process, memory_used) && process->memory_used != HAL_UNKNOWN_BYTES;
  static_cast<Processes *>(user_data)->emplace_back(
      process->pid, known ? std::optional<uint64_t>(process->memory_used) : std::nullopt);
}

// Returns (process, bytes or None) of each process.
Processes device_processes(int32_t device) {
  Processes result;
  check(hal_device_processes(device, keep_process, &result));
  return result;
}

}  // namespace

void bind_sensors(py::module_ &module) {
  using torch::wrap_pybind_function;
  using torch::wrap_pybind_function_no_gil;
  module.def("sensors", wrap_pybind_function(&sensors));
  module.def("device_sensor", wrap_pybind_function_no_gil(&device_sensor), py::arg("device"), py::arg("sensor"));
  module.def("device_processes", wrap_pybind_function_no_gil(&device_processes), py::arg("device"));
}

}  // namespace torch_backend
