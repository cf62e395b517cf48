// event.cpp: see event.h. torch's own Event does not support other processes, so an event of the HAL is passed to it.
#include "event.h"

#include <torch/csrc/Event.h>
#include <torch/csrc/Exceptions.h>

#include <cstring>
#include <string>

#include "core/allocator/allocator.h"
#include "core/device.h"
#include "core/graph/external.h"
#include "core/guard/given_event.h"
#include "core/status.h"

namespace py = pybind11;

namespace torch_backend {
namespace {

c10::Event &event_in(const py::object &object) {
  TORCH_CHECK_TYPE(THPEvent_Check(object.ptr()), "expected a torch.Event");
  return reinterpret_cast<THPEvent *>(object.ptr())->event;
}

// Sets the HAL's event of a torch.Event that has not been used.
void give(const py::object &object, hal_event_t *made) {
  const GivenEvent given(made);
  const c10::Device device(kDevice, static_cast<c10::DeviceIndex>(hal_event_device(made)));
  event_in(object).record(c10::Stream(c10::Stream::DEFAULT, device));
}

void share_event(const py::object &object, int32_t device, bool blocking) {
  hal_event_t *made = nullptr;
  const uint32_t flags = HAL_EVENT_INTERPROCESS | (blocking ? uint32_t{HAL_EVENT_BLOCKING} : 0);
  check(hal_event_create(device, flags, &made));
  give(object, made);
}

// Creates an event that graphs record or wait for outside of themselves.
void make_external(const py::object &object, int32_t device, bool timing, bool blocking) {
  hal_event_t *made = nullptr;
  const uint32_t flags = (timing ? uint32_t{HAL_EVENT_TIMING} : 0) | (blocking ? uint32_t{HAL_EVENT_BLOCKING} : 0);
  check(hal_event_create(device, flags, &made));
  mark_external(made);
  give(object, made);
}

void open_event(const py::object &object, int32_t device, const std::string &bytes) {
  hal_event_t *made = nullptr;
  check(hal_event_ipc_open(device, bytes.data(), bytes.size(), &made));
  give(object, made);
}

py::bytes event_handle(const py::object &object) {
  auto *const event = static_cast<hal_event_t *>(event_in(object).eventId());
  TORCH_CHECK(
      event != nullptr,
      "this event is not an interprocess event; create it with interprocess=True to share it with other processes");
  size_t size = 0;
  check(hal_event_ipc_export(event, nullptr, 0, &size));
  std::string handle(size, '\0');
  check(hal_event_ipc_export(event, handle.data(), handle.size(), &size));
  return py::bytes(handle);
}

}  // namespace

void bind_events(py::module_ &module) {
  using torch::wrap_pybind_function;
  module.def("share_event", wrap_pybind_function(&share_event), py::arg("event"), py::arg("device"),
             py::arg("blocking"));
  module.def("make_external_event", wrap_pybind_function(&make_external), py::arg("event"), py::arg("device"),
             py::arg("timing"), py::arg("blocking"));
  module.def("open_event", wrap_pybind_function(&open_event), py::arg("event"), py::arg("device"), py::arg("handle"));
  module.def("event_handle", wrap_pybind_function(&event_handle), py::arg("event"));
}

}  // namespace torch_backend
