// stream.cpp: see stream.h.
#include "stream.h"

#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <thread>

#include "core/status.h"
#include "core/stream/stream.h"
#include "core/sync_debug.h"

namespace py = pybind11;

namespace torch_backend {
namespace {

// Queues a delay on a device's current stream; later work of the stream waits for its end. The number is the callback's
// data, so that a graph repeats the call at each replay.
void sleep_on_stream(int32_t device, int64_t nanoseconds) {
  check(hal_device_ensure(device));
  const auto pause = [](void *data) {
    std::this_thread::sleep_for(std::chrono::nanoseconds(reinterpret_cast<intptr_t>(data)));
  };
  check_work(hal_stream_host_call(current_stream(static_cast<c10::DeviceIndex>(device)), pause,
                                  reinterpret_cast<void *>(static_cast<intptr_t>(nanoseconds))));
}

// Returns the id of the device's stream with a vendor's handle; nullopt if no stream of this process has the handle.
std::optional<int64_t> stream_of_native(int32_t device, uintptr_t handle) {
  check(hal_device_ensure(device));
  if (handle == 0) return 0;  // the vendors' value for the default stream
  for (int64_t id = 0; id <= HAL_MAX_STREAM_ID; ++id) {
    hal_stream_t *stream = nullptr;
    void *native = nullptr;
    if (hal_stream_from_id(device, id, &stream) != HAL_OK) continue;
    check(hal_stream_native(stream, &native));
    if (reinterpret_cast<uintptr_t>(native) == handle) return id;
  }
  return std::nullopt;
}

// Returns the id of a stream of normal priority that no other caller gets until give_back_stream.
int64_t take_stream(int32_t device) {
  hal_stream_t *stream = nullptr;
  check(hal_stream_take(device, 0, &stream));
  return hal_stream_id(stream);
}

void give_back_stream(int32_t device, int64_t id) {
  hal_stream_t *stream = nullptr;
  check(hal_stream_from_id(device, id, &stream));
  hal_stream_give_back(stream);
}

void set_mode(int32_t mode) { sync_debug_mode.store(static_cast<SyncDebugMode>(mode), std::memory_order_relaxed); }

}  // namespace

void bind_streams(py::module_ &module) {
  using torch::wrap_pybind_function_no_gil;
  module.def("sleep_on_stream", wrap_pybind_function_no_gil(&sleep_on_stream), py::arg("device"),
             py::arg("nanoseconds"));
  module.def("stream_of_native", wrap_pybind_function_no_gil(&stream_of_native), py::arg("device"), py::arg("handle"));
  module.def("take_stream", wrap_pybind_function_no_gil(&take_stream), py::arg("device"));
  module.def("give_back_stream", wrap_pybind_function_no_gil(&give_back_stream), py::arg("device"), py::arg("id"));
  module.def("set_sync_debug_mode", &set_mode, py::arg("mode"));
  module.def("sync_debug_mode", [] { return static_cast<int32_t>(sync_debug_mode.load(std::memory_order_relaxed)); });
}

}  // namespace torch_backend
