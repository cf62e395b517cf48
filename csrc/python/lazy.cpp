// lazy.cpp: see lazy.h.
#include "lazy.h"

#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>

#include <cstdio>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "core/status.h"
#include "core/stream/stream.h"
#include "hal/lazy.h"
#include "lazy/guard.h"
#include "lazy/kernels.h"
#include "lines.h"

namespace py = pybind11;

namespace torch_backend {
namespace {

// A group that was compiled: the line of its first operator, 0 = unknown, and why.
using Compilation = std::pair<uint64_t, std::string>;

// A stream that is lazy from here on, until `end`.
class Lazy {
 public:
  Lazy(int32_t device, bool lines, bool fuse, uint32_t limit, uint32_t piece) {
    hal_lazy_desc_t desc{};
    desc.struct_size = sizeof(desc);
    desc.flags = fuse ? 0 : HAL_LAZY_PLAIN;
    desc.limit = limit;
    desc.piece = piece;
    desc.state = this;
    desc.compiled = note_compiled;
    if (lines) {
      lines_ = std::make_unique<Lines>();
      desc.origin = line_here;
      desc.describe = describe_line;
    }
    const py::gil_scoped_release no_gil;
    check(hal_device_ensure(device));
    check(hal_lazy_begin(current_stream(static_cast<c10::DeviceIndex>(device)), &desc, &lazy_));
  }

  ~Lazy() {
    if (!lazy_) return;
    const py::gil_scoped_release no_gil;
    const hal_status_t status = hal_lazy_end(lazy_);
    if (status != HAL_OK) warn_status(status, "ending what was put off");
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

  py::dict info() const { return counts(alive()); }

  static py::dict counts(hal_lazy_t *lazy) {
    hal_lazy_info_t info{};
    info.struct_size = sizeof(info);
    check(hal_lazy_info(lazy, &info));
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

  // The groups that were compiled since the last call: (line, why).
  std::vector<std::pair<std::string, std::string>> take_compilations() {
    std::vector<Compilation> taken;
    {
      const std::lock_guard<std::mutex> lock(lock_);
      taken.swap(compilations_);
    }
    std::vector<std::pair<std::string, std::string>> result;
    for (const Compilation &one : taken) result.emplace_back(lines_ ? lines_->text(one.first) : "", one.second);
    return result;
  }

 private:
  static uint64_t line_here(void *self) { return static_cast<Lazy *>(self)->lines_->here(); }

  static void describe_line(void *self, uint64_t line, char *text, size_t room) {
    std::snprintf(text, room, "%s", static_cast<const Lazy *>(self)->lines_->text(line).c_str());
  }

  static void note_compiled(void *self, uint64_t line, const char *text) {
    Lazy &lazy = *static_cast<Lazy *>(self);
    const std::lock_guard<std::mutex> lock(lazy.lock_);
    if (lazy.compilations_.size() < kMostCompilations) lazy.compilations_.emplace_back(line, text);
  }

  static constexpr size_t kMostCompilations = 10000;  // that nobody has asked for

  hal_lazy_t *alive() const {
    TORCH_CHECK(lazy_, "this recording has ended; begin another one with torch_backend.lazy.record()");
    return lazy_;
  }

  std::mutex lock_;
  std::vector<Compilation> compilations_;
  std::unique_ptr<Lines> lines_;
  hal_lazy_t *lazy_ = nullptr;
};

std::unique_ptr<Lazy> begin(int32_t device, bool lines, bool fuse, uint32_t limit, uint32_t piece) {
  return std::make_unique<Lazy>(device, lines, fuse, limit, piece);
}

void flush(Lazy &lazy) { lazy.flush(); }
void end(Lazy &lazy) { lazy.end(); }
py::dict info(const Lazy &lazy) { return lazy.info(); }
// The device type "lazy": what its devices put off.
void flush_kept(int32_t device) {
  if (hal_lazy_t *const lazy = kept_lazy(static_cast<c10::DeviceIndex>(device))) check_work(hal_lazy_flush(lazy));
}

std::vector<py::dict> kept_infos() {
  std::vector<py::dict> result;
  for (int32_t device = 0; device < hal_device_count(); ++device)
    if (hal_lazy_t *const lazy = kept_lazy(static_cast<c10::DeviceIndex>(device))) result.push_back(Lazy::counts(lazy));
  return result;
}

bool is_kept(int32_t device) { return kept_lazy(static_cast<c10::DeviceIndex>(device)) != nullptr; }

std::vector<std::pair<std::string, std::string>> take_compilations(Lazy &lazy) { return lazy.take_compilations(); }

}  // namespace

void bind_lazy(py::module_ &module) {
  using torch::wrap_pybind_function;
  py::class_<Lazy>(module, "Lazy")
      .def("flush", wrap_pybind_function(&flush))
      .def("end", wrap_pybind_function(&end))
      .def("info", wrap_pybind_function(&info))
      .def("take_compilations", wrap_pybind_function(&take_compilations));
  module.def("enable_lazy_device", wrap_pybind_function(&enable_lazy_device));
  module.def("stop_lazy_device", torch::wrap_pybind_function_no_gil(&stop_lazy));
  module.def("flush_kept_lazy", torch::wrap_pybind_function_no_gil(&flush_kept), py::arg("device"));
  module.def("kept_lazy_infos", wrap_pybind_function(&kept_infos));
  module.def("is_kept_lazy", wrap_pybind_function(&is_kept), py::arg("device"));
  module.def("begin_lazy", wrap_pybind_function(&begin), py::arg("device"), py::arg("lines"), py::arg("fuse"),
             py::arg("limit"), py::arg("piece"));
}

}  // namespace torch_backend
