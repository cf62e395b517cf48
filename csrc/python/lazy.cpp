// lazy.cpp: see lazy.h.
#include "lazy.h"

#include <torch/csrc/Exceptions.h>

#include <cstdio>
#include <memory>
#include <string>

#include "core/status.h"
#include "core/stream/stream.h"
#include "hal/lazy.h"
#include "lines.h"

namespace py = pybind11;

namespace torch_backend {
namespace {

uint64_t line_here(void *lines) { return static_cast<Lines *>(lines)->here(); }

void describe_line(void *lines, uint64_t line, char *text, size_t room) {
  std::snprintf(text, room, "%s", static_cast<const Lines *>(lines)->text(line).c_str());
}

// A stream that is lazy from here on, until `end`.
class Lazy {
 public:
  Lazy(int32_t device, bool lines, bool fuse, uint32_t limit, uint32_t piece) {
    hal_lazy_desc_t desc{};
    desc.struct_size = sizeof(desc);
    desc.flags = fuse ? 0 : HAL_LAZY_PLAIN;
    desc.limit = limit;
    desc.piece = piece;
    if (lines) {
      lines_ = std::make_unique<Lines>();
      desc.origin = line_here;
      desc.describe = describe_line;
      desc.state = lines_.get();
    }
    const py::gil_scoped_release no_gil;
    check(hal_device_ensure(device));
    check(hal_lazy_begin(current_stream(static_cast<c10::DeviceIndex>(device)), &desc, &lazy_));
  }

  ~Lazy() {
    if (!lazy_) return;
    const py::gil_scoped_release no_gil;
    warn_status(hal_lazy_end(lazy_), "ending what was put off");
  }

  Lazy(const Lazy &) = delete;
  Lazy &operator=(const Lazy &) = delete;

  void flush() {
    const py::gil_scoped_release no_gil;
    check_work(hal_lazy_flush(alive()));
  }

  void end() {
    hal_lazy_t *const lazy = alive();
    lazy_ = nullptr;
    const py::gil_scoped_release no_gil;
    check_work(hal_lazy_end(lazy));
  }

  py::dict info() const {
    hal_lazy_info_t info{};
    info.struct_size = sizeof(info);
    check(hal_lazy_info(alive(), &info));
    py::dict result;
    result["pending"] = info.pending;
    result["recorded"] = info.recorded;
    result["flushes"] = info.flushes;
    result["limits"] = info.limits;
    result["queued"] = info.queued;
    result["fused"] = info.fused;
    result["groups"] = info.groups;
    result["dropped"] = info.dropped;
    result["compiled"] = info.compiled;
    result["cached"] = info.cached;
    return result;
  }

 private:
  hal_lazy_t *alive() const {
    TORCH_CHECK(lazy_, "this recording has ended; begin another one with torch_backend.lazy.record()");
    return lazy_;
  }

  std::unique_ptr<Lines> lines_;
  hal_lazy_t *lazy_ = nullptr;
};

std::unique_ptr<Lazy> begin(int32_t device, bool lines, bool fuse, uint32_t limit, uint32_t piece) {
  return std::make_unique<Lazy>(device, lines, fuse, limit, piece);
}

void flush(Lazy &lazy) { lazy.flush(); }
void end(Lazy &lazy) { lazy.end(); }
py::dict info(const Lazy &lazy) { return lazy.info(); }

}  // namespace

void bind_lazy(py::module_ &module) {
  using torch::wrap_pybind_function;
  py::class_<Lazy>(module, "Lazy")
      .def("flush", wrap_pybind_function(&flush))
      .def("end", wrap_pybind_function(&end))
      .def("info", wrap_pybind_function(&info));
  module.def("begin_lazy", wrap_pybind_function(&begin), py::arg("device"), py::arg("lines"), py::arg("fuse"),
             py::arg("limit"), py::arg("piece"));
}

}  // namespace torch_backend
