// module.cpp: torch_backend._C, the C++ functions of the Python package in addition to torch's own bindings. Only the
// files of this folder include Python.h. Importing the module loads libtorch_backend.so, whose static registrations add
// the device to torch.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/Generator.h>
#include <torch/csrc/utils/device_lazy_init.h>

#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "api/custom_op.h"
#include "aten/fallback/fallback.h"
#include "aten/prepare/composed.h"
#include "core/device.h"
#include "core/generator/generator.h"
#include "core/graph/graph.h"
#include "core/package/runner.h"
#include "core/shutdown/shutdown.h"
#include "core/status.h"
#include "distributed.h"
#include "event.h"
#include "host_kernel.h"
#include "ipc.h"
#include "kernel.h"
#include "lazy.h"
#include "memory.h"
#include "profiler/toggle.h"
#include "sensor.h"
#include "stacks.h"
#include "stream.h"

namespace py = pybind11;

namespace torch_backend {
namespace {

// ---- state ----
void initialize(int32_t device) { check(hal_device_ensure(device)); }

// In a forked child, torch then calls the device module to initialize again, which raises PyTorch's error.
void register_fork_handler() { torch::utils::register_fork_handler_for_device_init(kDevice); }

py::dict device_properties(int32_t device) {
  hal_device_info_t info{};
  info.struct_size = sizeof(info);
  {
    py::gil_scoped_release no_gil;
    check(hal_device_info(device, &info));
  }
  py::dict result;
  result["name"] = std::string(info.name);
  result["dialects"] = std::string(info.dialects);
  result["total_memory"] = info.total_memory;
  result["multi_processor_count"] = info.compute_units;
  result["warp_size"] = info.subgroup_size;
  result["max_threads_per_block"] = info.max_block_threads;
  result["shared_memory_per_block"] = info.max_shared_bytes;
  result["pci_domain_id"] = info.pci_domain;
  result["pci_bus_id"] = info.pci_bus;
  result["pci_device_id"] = info.pci_device;
  result["pci_function_id"] = info.pci_function;
  result["architecture"] = std::string(info.architecture);
  result["driver_version"] = std::string(info.driver_version);
  result["firmware_version"] = std::string(info.firmware_version);
  result["L2_cache_size"] = info.l2_bytes;
  result["async_engine_count"] = info.copy_engines;
  result["numa_node"] = (info.known & HAL_DEVICE_KNOWS_NUMA_NODE) != 0 ? info.numa_node : -1;
  result["partition_index"] =
      (info.known & HAL_DEVICE_KNOWS_PARTITION) != 0 ? static_cast<int64_t>(info.partition_index) : -1;
  result["uuid"] = py::bytes(reinterpret_cast<const char *>(info.uuid), sizeof(info.uuid));
  result["flags"] = info.flags;
  return result;
}

bool can_access_peer(int32_t device, int32_t peer) {
  int32_t accessible = 0;
  check(hal_device_can_access_peer(device, peer, &accessible));
  return accessible != 0;
}

// ---- custom operators ----
c10::IValue simple_value(const py::object &value) {
  if (value.is_none()) return {};
  if (py::isinstance<py::bool_>(value)) return value.cast<bool>();
  if (py::isinstance<py::str>(value)) return value.cast<std::string>();
  if (py::isinstance<py::int_>(value)) return value.cast<int64_t>();
  return value.cast<double>();
}

bool reroute_by_name(const std::string &aten, const std::string &attempt, std::vector<int64_t> sources,
                     const std::vector<std::pair<int64_t, py::object>> &conditions) {
  std::vector<std::pair<int64_t, c10::IValue>> values;
  for (const auto &[place, value] : conditions) values.emplace_back(place, simple_value(value));
  return reroute_to(aten.c_str(), attempt.c_str(), std::move(sources), std::move(values));
}

// ---- random numbers ----
py::object python_generator(int32_t device) {
  return py::reinterpret_steal<py::object>(THPGenerator_Wrap(default_generator(static_cast<c10::DeviceIndex>(device))));
}

void seed(int32_t device, uint64_t value) {
  hal_generator_t *generator = nullptr;
  check(hal_generator_default(device, &generator));
  hal_generator_set_seed(generator, value);
}

// ---- operators ----
// Returns (name, calls of the plugin's own op, of a portable kernel, calls without either) of every operator that ran.
std::vector<std::tuple<std::string, uint64_t, uint64_t, uint64_t>> operator_counts() {
  std::vector<std::tuple<std::string, uint64_t, uint64_t, uint64_t>> result;
  for (uint32_t op = 0; op < hal_op_count(); ++op) {
    hal_op_counts_t counts{};
    counts.struct_size = sizeof(counts);
    check(hal_op_counts(op, &counts));
    if (counts.plugin + counts.portable + counts.unimplemented != 0)
      result.emplace_back(hal_op_name(op), counts.plugin, counts.portable, counts.unimplemented);
  }
  return result;
}

// Returns the operators of the list that were composed of others, and how often.
std::vector<std::tuple<std::string, uint64_t>> composed_counts() {
  std::vector<std::tuple<std::string, uint64_t>> result;
  for (uint32_t op = 0; op < hal_op_count(); ++op)
    if (const uint64_t count = composed_count(op)) result.emplace_back(hal_op_name(op), count);
  return result;
}

void operator_reset() {
  hal_op_reset_counts();
  reset_composed_counts();
}

std::vector<std::string> operator_names() {
  std::vector<std::string> names;
  for (uint32_t op = 0; op < hal_op_count(); op++) names.emplace_back(hal_op_name(op));
  return names;
}

// Returns (name, dtypes of the plugin's own op, of the portable kernels) of every operator on a device: masks of
// torch's numbers.
std::vector<std::tuple<std::string, uint64_t, uint64_t>> operator_dtypes(int32_t device) {
  std::vector<std::tuple<std::string, uint64_t, uint64_t>> result;
  check(hal_device_ensure(device));
  for (uint32_t op = 0; op < hal_op_count(); op++)
    result.emplace_back(hal_op_name(op), hal_op_own_dtypes(device, op), hal_op_portable_dtypes(device, op));
  return result;
}

void set_operator_enabled(uint32_t op, bool enabled) { check(hal_op_set_enabled(op, enabled)); }

// Returns the statistics of a device's portable kernels in this process.
py::dict kernel_stats(int32_t device) {
  hal_kernel_stats_t stats{};
  stats.struct_size = sizeof(stats);
  check(hal_kernel_stats(device, &stats));
  py::dict result;
  result["dialect"] = stats.dialect;
  result["cache"] = stats.cache;
  result["compiled"] = stats.compiled;
  result["loaded"] = stats.loaded;
  result["packed"] = stats.packed;
  result["pack"] = stats.pack;
  result["refused"] = stats.refused;
  result["compile_seconds"] = static_cast<double>(stats.compile_ns) * 1e-9;
  return result;
}

std::vector<std::tuple<std::string, uint64_t>> fallback_counts() {
  std::vector<std::tuple<std::string, uint64_t>> result;
  for (const FallbackEntry &entry : fallback_report()) result.emplace_back(entry.op, entry.count);
  return result;
}

}  // namespace
}  // namespace torch_backend

PYBIND11_MODULE(_C, module) {
  using namespace torch_backend;
  using torch::wrap_pybind_function;
  using torch::wrap_pybind_function_no_gil;
  module.doc() = "Bindings of torch_backend; use torch.<device name> and torch_backend instead.";

  module.def("initialize", wrap_pybind_function_no_gil(&initialize), py::arg("device"));
  module.def("register_fork_handler", wrap_pybind_function(&register_fork_handler));
  module.def(
      "is_initialized", [](int32_t device) { return hal_device_is_initialized(device) != 0; }, py::arg("device"));
  module.def("in_bad_fork", [] { return hal_device_in_bad_fork() != 0; });
  module.def("device_count", &hal_device_count);
  module.def("current_device", &hal_device_current);
  module.def("exchange_device", &hal_device_exchange, py::arg("device"));
  module.def("can_access_peer", wrap_pybind_function_no_gil(&can_access_peer), py::arg("device"), py::arg("peer"));
  module.def("device_properties", wrap_pybind_function(&device_properties), py::arg("device"));
  module.def("synchronize", wrap_pybind_function_no_gil(&synchronize_device), py::arg("device"));

  module.def("toggle_profile", wrap_pybind_function_no_gil(&toggle_profile), py::arg("enable"));
  module.def("register_graphs", &register_graphs);
  module.def("register_package_runner", &register_package_runner);
  module.def("package_versions", wrap_pybind_function(&package_versions));
  module.def("default_generator", wrap_pybind_function(&python_generator), py::arg("device"));
  module.def("seed", wrap_pybind_function(&seed), py::arg("device"), py::arg("value"));

  module.def("operator_counts", wrap_pybind_function(&operator_counts));
  module.def("composed_counts", wrap_pybind_function(&composed_counts));
  module.def("operator_reset", &operator_reset);
  module.def("operator_names", wrap_pybind_function(&operator_names));
  module.def("kernel_stats", wrap_pybind_function(&kernel_stats), py::arg("device"));
  module.def("operator_dtypes", wrap_pybind_function(&operator_dtypes), py::arg("device"));
  module.def("set_operator_enabled", wrap_pybind_function(&set_operator_enabled), py::arg("op"), py::arg("enabled"));
  module.def("reroute_to", wrap_pybind_function(&reroute_by_name), py::arg("aten"), py::arg("attempt"),
             py::arg("sources"), py::arg("conditions"));
  module.def("set_reroutes", &set_reroutes, py::arg("enabled"));
  module.def("fallback_counts", wrap_pybind_function(&fallback_counts));
  module.def("thread_fallbacks", [] {
    const ThreadFallbacks made = thread_fallbacks();
    return std::make_tuple(made.count, made.last);
  });
  module.def("fallback_reset", wrap_pybind_function(&fallback_reset));
  module.def("fallback_strict", &fallback_strict);
  module.def("set_fallback_strict", &set_fallback_strict, py::arg("strict"));

  bind_memory(module);
  bind_streams(module);
  bind_events(module);
  bind_ipc(module);
  bind_host_kernels(module);
  bind_kernels(module);
  bind_sensors(module);
  bind_stacks(module);
  bind_lazy(module);
  bind_distributed(module);

  module.def("quiesce_autograd", wrap_pybind_function_no_gil(&quiesce_autograd), py::arg("seconds"));
  module.def("drain_devices", wrap_pybind_function_no_gil(&drain_devices));
}
