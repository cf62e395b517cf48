// distributed.cpp: see distributed.h.
#include "distributed.h"

#include <pybind11/chrono.h>
#include <torch/csrc/utils/pybind.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "distributed/backend.h"

namespace py = pybind11;

namespace torch_backend {
namespace {

// A Python function that threads without the interpreter's lock call and drop.
std::shared_ptr<py::function> shared(py::function function) {
  return {new py::function(std::move(function)), [](py::function *held) {
            const py::gil_scoped_acquire lock;
            delete held;
          }};
}

void without_lock(const std::function<void()> &run) {
  if (!Py_IsInitialized() || !PyGILState_Check()) return run();
  const py::gil_scoped_release released;
  run();
}

DeviceBackend::Transport transport_of(const std::string &name) {
  if (name == "auto") return DeviceBackend::Transport::kAuto;
  if (name == "shm") return DeviceBackend::Transport::kSharedMemory;
  if (name == "gloo") return DeviceBackend::Transport::kHost;
  throw py::value_error("TORCH_BACKEND_COLLECTIVES is '" + name + "'; use auto, shm or gloo");
}

c10::intrusive_ptr<c10d::Backend> create_backend(const std::string &name, int rank, int size,
                                                 std::chrono::milliseconds timeout,
                                                 const c10::intrusive_ptr<c10d::Store> &store,
                                                 const std::string &transport, py::function make_host_backend) {
  auto make = [function = shared(std::move(make_host_backend))](const std::string &use) {
    const py::gil_scoped_acquire lock;
    return (*function)(use).cast<c10::intrusive_ptr<c10d::Backend>>();
  };
  return c10::make_intrusive<DeviceBackend>(rank, size,
                                            c10::make_intrusive<DeviceBackend::DeviceOptions>(name, timeout), store,
                                            transport_of(transport), std::move(make), without_lock);
}

}  // namespace

void bind_distributed(py::module_ &module) {
  module.def("create_process_group_backend", &create_backend, py::arg("name"), py::arg("rank"), py::arg("size"),
             py::arg("timeout"), py::arg("store"), py::arg("transport"), py::arg("make_host_backend"));
}

}  // namespace torch_backend
