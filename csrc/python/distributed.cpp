// distributed.cpp: see distributed.h.
#include "distributed.h"

#include <pybind11/chrono.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/status.h"
#include "distributed/backend.h"
#include "hal/log.h"
#include "place.h"

namespace py = pybind11;

namespace torch_backend {
namespace {

// Wraps a Python function that threads without the interpreter's lock call and release.
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

// Returns "function\tfile\tline\n" of a frame, valid until the next call. The interpreter's lock protects the table of
// known lines. The table owns references to their functions, so that no other function gets the same address. The table
// avoids the cost of computing the line number and names.
const std::string &line_of(PyFrameObject *frame) {
  using Lines = std::unordered_map<Place, std::string, PlaceHash>;
  constexpr size_t kMost = 4096;
  static auto *const lines = new Lines;
  const auto code = py::reinterpret_steal<py::object>(reinterpret_cast<PyObject *>(PyFrame_GetCode(frame)));
#if PY_VERSION_HEX >= 0x030B0000
  const int instruction = PyFrame_GetLasti(frame);
#else
  const int instruction = PyFrame_GetLineNumber(frame);
#endif
  const Place place{reinterpret_cast<PyCodeObject *>(code.ptr()), instruction};
  const auto found = lines->find(place);
  if (found != lines->end()) return found->second;
  if (lines->size() >= kMost) {  // by a program that creates functions repeatedly
    Lines dropped;
    dropped.swap(*lines);
    for (const auto &[one, line] : dropped) Py_DECREF(one.code);
  }
  std::string line = py::str(code.attr("co_name")).cast<std::string>() + '\t' +
                     py::str(code.attr("co_filename")).cast<std::string>() + '\t' +
                     std::to_string(PyFrame_GetLineNumber(frame)) + '\n';
  Py_INCREF(code.ptr());
  return (*lines)[place] = std::move(line);
}

// The interpreter's lock, by the functions of Python: py::gil_scoped_acquire takes more time.
class Interpreter {
 public:
  Interpreter() : state_(PyGILState_Ensure()) {}
  Interpreter(const Interpreter &) = delete;
  Interpreter &operator=(const Interpreter &) = delete;
  ~Interpreter() { PyGILState_Release(state_); }

 private:
  const PyGILState_STATE state_;
};

// Returns the innermost frames of the calling thread's Python program, without those of torch.distributed's wrappers.
// The text is valid until the thread's next call.
const char *stack() {
  constexpr int kFrames = 16;
  static thread_local std::string text;  // keeps its memory, because the allocation costs more than the rest
  text.clear();
  if (!Py_IsInitialized()) return text.c_str();
  const Interpreter lock;
  auto *frame = PyEval_GetFrame();
  Py_XINCREF(frame);
  for (int i = 0; frame != nullptr && i < kFrames; i++) {
    text += line_of(frame);
    PyFrameObject *const outer = PyFrame_GetBack(frame);
    Py_DECREF(frame);
    frame = outer;
  }
  Py_XDECREF(frame);
  return text.c_str();
}

// Sets the size of the log, the file written when a group fails (empty: none), and the signal that triggers the writing
// (0: none).
void configure_log(uint32_t entries, const std::string &file, int signal) {
  check(hal_comm_log_configure(entries, file.c_str()));
  check(hal_comm_log_write_on(signal));
}

void write_log(const std::string &file) { check(hal_comm_log_write(file.c_str())); }

DeviceBackend::Transport transport_of(const std::string &name) {
  if (name == "auto") return DeviceBackend::Transport::kAuto;
  if (name == "plugin") return DeviceBackend::Transport::kPlugin;
  if (name == "shm") return DeviceBackend::Transport::kSharedMemory;
  if (name == "hierarchical") return DeviceBackend::Transport::kHierarchical;
  if (name == "gloo") return DeviceBackend::Transport::kHost;
  throw py::value_error("TORCH_BACKEND_COLLECTIVES is '" + name + "'; use auto, plugin, shm, hierarchical or gloo");
}

// Creates the class of a backend when the first group is created, because torch's classes are known only after the
// import of torch.distributed. It has the functions that torch calls on the class of a backend and that c10d::Backend's
// own class lacks.
void bind_class() {
  static const bool bound = [] {
    auto module = py::module_::import("torch_backend._C");
    py::module_::import("torch._C._distributed_c10d");
    using Class = py::class_<DeviceBackend, c10::intrusive_ptr<DeviceBackend>, c10d::Backend>;
    using Options = DeviceBackend::DeviceOptions;
    const auto released = py::call_guard<py::gil_scoped_release>();
    Class device(module, "ProcessGroupDevice");
    device.def_property_readonly("options", &DeviceBackend::getBackendOptions)
        .def("perform_nocolor_split", &DeviceBackend::perform_nocolor_split, py::arg("device"))
        .def("comm_split_count", &DeviceBackend::comm_split_count)
        .def("_discard_bracket", &DeviceBackend::discard_bracket, released)
        .def("get_error", &DeviceBackend::getError, released)
        .def("_add_ephemeral_timeout", &DeviceBackend::addEphemeralTimeout, py::arg("timeout"), released)
        .def(
            "register_abort_hook",
            [](DeviceBackend &self, int64_t id, py::function hook) {
              self.registerAbortHook(id, [function = shared(std::move(hook))] {
                const py::gil_scoped_acquire lock;
                (*function)();
              });
            },
            py::arg("hook_id"), py::arg("hook"))
        .def("unregister_abort_hook", &DeviceBackend::unregisterAbortHook, py::arg("hook_id"));
    py::class_<Options, c10::intrusive_ptr<Options>, c10d::Backend::Options>(device, "Options")
        .def("__copy__", &Options::clone)
        .def("__deepcopy__", [](const Options &self, const py::dict &) { return self.clone(); });
    return true;
  }();
  (void)bound;
}

c10::intrusive_ptr<c10d::Backend> create_backend(const std::string &name, int rank, int size,
                                                 std::chrono::milliseconds timeout,
                                                 const c10::intrusive_ptr<c10d::Store> &store,
                                                 const std::string &transport, bool compares_calls,
                                                 bool registers_memory, bool blocks,
                                                 const std::vector<uint64_t> &global_ranks, bool records_stacks,
                                                 py::function make_host_backend) {
  bind_class();
  auto make = [function = shared(std::move(make_host_backend))](
                  const std::string &use, const DeviceBackend::Members &members, std::chrono::milliseconds timeout) {
    const py::gil_scoped_acquire lock;
    return (*function)(use, members.store, members.rank, members.size, timeout)
        .cast<c10::intrusive_ptr<c10d::Backend>>();
  };
  auto options = c10::make_intrusive<DeviceBackend::DeviceOptions>(name, timeout);
  options->global_ranks_in_group = global_ranks;
  DeviceBackend::Program program{std::move(make), without_lock, {}};
  if (records_stacks) program.stack = stack;
  return c10::make_intrusive<DeviceBackend>(
      DeviceBackend::Members{rank, size, store}, std::move(options),
      DeviceBackend::Route{transport_of(transport), compares_calls, registers_memory, blocks}, std::move(program));
}

}  // namespace

void bind_distributed(py::module_ &module) {
  module.def("create_process_group_backend", &create_backend, py::arg("name"), py::arg("rank"), py::arg("size"),
             py::arg("timeout"), py::arg("store"), py::arg("transport"), py::arg("compares_calls"),
             py::arg("registers_memory"), py::arg("blocks"), py::arg("global_ranks"), py::arg("records_stacks"),
             py::arg("make_host_backend"));
  module.def("configure_collectives_log", &configure_log, py::arg("entries"), py::arg("file"), py::arg("signal"));
  module.def(
      "log_warning", [](const std::string &text) { hal_log(HAL_LOG_WARNING, "%s", text.c_str()); }, py::arg("text"));
  module.def("ms_since_collectives_abort", &ms_since_abort);
  module.def("write_collectives_log", &write_log, py::arg("file"), py::call_guard<py::gil_scoped_release>());
}

}  // namespace torch_backend
