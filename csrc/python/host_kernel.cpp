// host_kernel.cpp: see host_kernel.h. A kernel of the host is queued as a host function of the stream. The arguments of
// generated kernels are addresses and integers of 64 bits.
#include "host_kernel.h"

#include <ATen/core/Tensor.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "core/device.h"
#include "core/status.h"
#include "hal/device.h"
#include "hal/plugin_records.h"
#include "hal/program.h"
#include "hal/registry.h"
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

// Reads argument `i` of a kernel. Returns false if it is neither a tensor nor an integer.
bool read_value(PyObject *given, int64_t *out_value) {
  if (THPVariable_Check(given)) {
    *out_value = reinterpret_cast<int64_t>(THPVariable_Unpack(given).data_ptr());
    return true;
  }
  *out_value = PyLong_AsLongLong(given);
  if (*out_value != -1 || !PyErr_Occurred()) return true;
  PyErr_Clear();
  return false;
}

std::string message_of(const std::exception_ptr &error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception &one) {
    return one.what();
  } catch (...) {
    return "an exception of an unknown type";
  }
}

// ---- calls of captures --------------------------------------------------------------------------------------------

// Calls of kernels that captures have recorded. A graph that is destroyed completes its replays later: if the owner
// counts replays, the calls exist until the last of them has run.
class HostKernels {
 public:
  // Called before each replay of the graph. A call that is not made, because the replay fails, is never freed.
  void begin_replay() {
    is_counted_.store(true, std::memory_order_relaxed);
    references_.fetch_add(static_cast<int64_t>(calls_.size()), std::memory_order_relaxed);
  }

  // Called by the owner, and by each counted call that has run. The last one frees the object.
  void release() {
    if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

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
    int64_t value = 0;
    TORCH_CHECK_TYPE(read_value(given, &value), "argument ", i, " of kernel '", name,
                     "' must be a tensor or an integer, not ", Py_TYPE(given)->tp_name);
    return value;
  }

  // Runs on a thread of the plugin. An exception must not leave it.
  static void run(void *user_data) noexcept {
    const Call *const one = static_cast<Call *>(user_data);
    try {
      call(one->function, one->values, one->count);
    } catch (...) {
      one->owner->fail(one->name + ": " + message_of(std::current_exception()));
    }
    if (one->owner->is_counted_.load(std::memory_order_relaxed)) one->owner->release();
  }

  void fail(std::string message) {
    const std::lock_guard<std::mutex> guard(lock_);
    if (failure_.empty()) failure_ = std::move(message);
  }

  std::atomic<int64_t> references_{1};  // of the owner, and of the calls of replays that have not run
  std::atomic<bool> is_counted_{false};
  std::deque<Call> calls_;  // addresses of its elements do not change
  std::mutex lock_;
  std::string failure_;
};

struct ReleaseKernels {
  void operator()(HostKernels *kernels) const { kernels->release(); }
};

void queue(HostKernels &kernels, uintptr_t address, const std::string &name, const py::args &args) {
  kernels.queue(address, name, args);
}

// ---- calls that run once ------------------------------------------------------------------------------------------

// A kernel on a stream. It exists until it has run.
struct QueuedCall {
  hal_stream_t *stream;
  const void *function;
  std::string name;
  size_t count;
  Values values;
};

// The failure of a kernel that ran on the thread that was queueing it: that thread throws it at once.
struct Queueing {
  bool active = false;
  std::string failure;
};
thread_local Queueing queueing;

// Runs on a thread of the plugin, or on the thread that queues.
void run_queued(void *user_data) noexcept {
  const std::unique_ptr<QueuedCall> one(static_cast<QueuedCall *>(user_data));
  try {
    call(one->function, one->values, one->count);
  } catch (...) {
    const std::string message = one->name + ": " + message_of(std::current_exception());
    if (queueing.active)
      queueing.failure = message;
    else
      hal_stream_fail(one->stream, HAL_INVALID_ARGUMENT, message.c_str());
  }
}

// Returns the arguments as values of a call, or nothing if a kernel that runs later must not use them: memory of the
// host, which is not freed in the order of the stream, and numbers that are not integers.
std::unique_ptr<QueuedCall> prepare(const py::args &args) {
  const size_t count = args.size();
  if (count > kMostValues) return nullptr;
  auto one = std::make_unique<QueuedCall>();
  one->count = count;
  for (size_t i = 0; i < count; ++i) {
    PyObject *const given = PyTuple_GET_ITEM(args.ptr(), i);
    if (THPVariable_Check(given) && THPVariable_Unpack(given).device().type() != kDevice) return nullptr;
    if (!read_value(given, &one->values[i])) return nullptr;
  }
  return one;
}

// Queues a kernel on the current stream of a device. Returns whether it did: otherwise the caller waits and calls it,
// or records it.
bool queue_once(int32_t device, uintptr_t address, const std::string &name, const py::args &args) {
  std::unique_ptr<QueuedCall> one = prepare(args);
  if (!one) return false;
  check(hal_stream_current(device, &one->stream));
  if (hal_program_of_stream(one->stream) != nullptr) return false;  // a call of a graph exists as long as the graph
  one->function = reinterpret_cast<const void *>(address);
  one->name = name;
  queueing = {true, std::string()};
  hal_status_t status = HAL_OK;
  {
    const py::gil_scoped_release no_gil;
    status = hal_stream_host_kernel(one->stream, name.c_str(), run_queued, one.get());
  }
  const std::string failure = std::exchange(queueing, Queueing()).failure;
  if (status == HAL_OK) one.release();  // run_queued owns it
  check_work(status);
  TORCH_CHECK(failure.empty(), failure);
  return true;
}

// The plugin's threads, for generated kernels: the address of hal_host_parallel_t.run and the number of threads; (0, 0)
// if the plugin does not offer them. Starts the device.
std::pair<uintptr_t, uint32_t> host_threads(int32_t device) {
  const hal_extension_t *found = nullptr;
  int32_t plugin = 0, ordinal = 0;
  check(hal_device_ensure(device));
  check(hal_device_locate(device, &plugin, &ordinal));
  const hal_status_t status =
      hal_registry_extension(plugin, HAL_HOST_PARALLEL, HAL_STRUCT_SIZE(hal_host_parallel_t, threads), &found);
  if (status == HAL_NOT_FOUND) return {0, 0};
  check(status);
  const auto *const parallel = reinterpret_cast<const hal_host_parallel_t *>(found);
  return {reinterpret_cast<uintptr_t>(parallel->run), parallel->threads};
}

}  // namespace

void bind_host_kernels(py::module_ &module) {
  py::class_<HostKernels, std::unique_ptr<HostKernels, ReleaseKernels>>(module, "HostKernels")
      .def(py::init())
      .def("begin_replay", &HostKernels::begin_replay)
      .def("queue", torch::wrap_pybind_function(&queue))
      .def("take_failure", &HostKernels::take_failure);
  module.def("queue_host_kernel", torch::wrap_pybind_function(&queue_once));
  module.def("host_threads", torch::wrap_pybind_function(&host_threads));
}

}  // namespace torch_backend
