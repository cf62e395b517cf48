// host_kernel.cpp: see host_kernel.h. A capture records a kernel of the host as a host function of the stream. The
// arguments of generated kernels are addresses and integers of 64 bits.
#include "host_kernel.h"

#include <ATen/core/Tensor.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

#include <array>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <string>
#include <utility>

#include "core/status.h"
#include "hal/stream.h"

namespace py = pybind11;

namespace torch_backend {
namespace {

constexpr size_t kMostValues = 128;
using Values = std::array<int64_t, kMostValues>;

template <size_t>
using Integer = int64_t;

template <size_t... I>
void call_with(const void *function, const Values &values, std::index_sequence<I...> /*places*/) {
  reinterpret_cast<void (*)(Integer<I>...)>(reinterpret_cast<uintptr_t>(function))(values[I]...);
}

// A function ignores arguments after those that it declares: the caller passes them and removes them.
void call(const void *function, const Values &values, size_t count) {
  if (count <= 8) return call_with(function, values, std::make_index_sequence<8>());
  if (count <= 32) return call_with(function, values, std::make_index_sequence<32>());
  call_with(function, values, std::make_index_sequence<kMostValues>());
}

// Calls of kernels that a capture has recorded. They must exist as long as the capture's graph.
class HostKernels {
 public:
  // Queues a kernel on the current stream: its address, and its arguments, tensors and integers.
  void queue(uintptr_t address, const std::string &name, const py::args &args) {
    TORCH_CHECK_VALUE(args.size() <= kMostValues, "kernel '", name, "' has ", args.size(),
                      " arguments; a graph takes at most ", kMostValues, ", fuse fewer operators");
    Call &one = calls_.emplace_back();
    one.owner = this;
    one.function = reinterpret_cast<const void *>(address);
    one.name = name;
    one.count = args.size();
    for (size_t i = 0; i < args.size(); ++i) one.values[i] = value_of(i, name, PyTuple_GET_ITEM(args.ptr(), i));
    check_work(hal_stream_host_call(nullptr, run, &one));
  }

  // Returns the message of the first kernel that has failed since the last call, or None.
  py::object take_failure() {
    const std::lock_guard<std::mutex> guard(lock_);
    if (failure_.empty()) return py::none();
    return py::str(std::exchange(failure_, std::string()));
  }

 private:
  struct Call {
    HostKernels *owner;
    const void *function;
    std::string name;
    size_t count;
    Values values;
  };

  static int64_t value_of(size_t i, const std::string &name, PyObject *given) {
    if (THPVariable_Check(given)) return reinterpret_cast<int64_t>(THPVariable_Unpack(given).data_ptr());
    const int64_t value = PyLong_AsLongLong(given);
    if (value == -1 && PyErr_Occurred()) {
      PyErr_Clear();
      TORCH_CHECK_TYPE(false, "argument ", i, " of kernel '", name, "' must be a tensor or an integer, not ",
                       Py_TYPE(given)->tp_name);
    }
    return value;
  }

  // Runs on a thread of the plugin. An exception must not leave it.
  static void run(void *user_data) noexcept {
    const Call *const one = static_cast<Call *>(user_data);
    try {
      call(one->function, one->values, one->count);
    } catch (const std::exception &error) {
      one->owner->fail(one->name + ": " + error.what());
    } catch (...) {
      one->owner->fail(one->name + ": an exception of an unknown type");
    }
  }

  void fail(std::string message) {
    const std::lock_guard<std::mutex> guard(lock_);
    if (failure_.empty()) failure_ = std::move(message);
  }

  std::deque<Call> calls_;  // addresses of its elements do not change
  std::mutex lock_;
  std::string failure_;
};

void queue(HostKernels &kernels, uintptr_t address, const std::string &name, const py::args &args) {
  kernels.queue(address, name, args);
}

}  // namespace

void bind_host_kernels(py::module_ &module) {
  py::class_<HostKernels>(module, "HostKernels")
      .def(py::init())
      .def("queue", torch::wrap_pybind_function(&queue))
      .def("take_failure", &HostKernels::take_failure);
}

}  // namespace torch_backend
