// lazy.cpp: see lazy.h.
#include "lazy.h"

#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>

#include <cstdio>
#include <cstring>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <utility>
#include <vector>

#include "core/lazy/tensor.h"
#include "core/status.h"
#include "core/stream/stream.h"
#include "hal/compiler.h"
#include "hal/lazy.h"
#include "hal/log.h"
#include "hal/op.h"
#include "lazy/guard.h"
#include "lazy/kernels.h"
#include "lines.h"

namespace py = pybind11;

namespace torch_backend {
namespace {

// The data that a recording collects: lines of operators, groups that were compiled and why, why work was queued, and
// that work as text in a file.
class Notes {
 public:
  Notes(bool lines, bool causes, std::string file, bool dot)
      : lines_(lines), file_(std::move(file)), dot_(dot), causes_(causes) {}

  void describe(hal_lazy_desc_t &desc) {
    desc.struct_size = sizeof(desc);
    desc.state = this;
    desc.compiled = note_compiled;
    desc.describe = describe_line;
    if (lines_) desc.origin = line_here;
    desc.limit_origin = line_here;  // for the warning that the limit was reached, also if lines are not recorded
    if (causes_ || !file_.empty()) desc.queueing = note_queued;
    if (file_.empty()) return;
    desc.flags |= HAL_LAZY_DESCRIBED;
    desc.format = dot_ ? HAL_PROGRAM_DOT : HAL_PROGRAM_LINES;
  }

  // Returns the groups that were compiled since the last call: (line, why).
  std::vector<std::pair<std::string, std::string>> take_compilations() {
    std::vector<Compilation> taken;
    {
      const std::lock_guard<std::mutex> lock(lock_);
      taken.swap(compilations_);
    }
    std::vector<std::pair<std::string, std::string>> result;
    for (const Compilation &one : taken) result.emplace_back(lines_ ? lines().text(one.first) : "", one.second);
    return result;
  }

  // Returns the cause of each flush since the last call; empty unless it was requested.
  std::vector<std::string> take_causes() {
    const std::lock_guard<std::mutex> lock(lock_);
    return std::exchange(queued_, {});
  }

 private:
  // A group that was compiled: the line of its first operator, 0 = unknown, and why.
  using Compilation = std::pair<uint64_t, std::string>;

  // One for all recordings: an error may be reported while a later recording has the stream, which describes its line.
  static Lines &lines() {
    static auto *lines = new Lines;  // never destroyed
    return *lines;
  }

  static uint64_t line_here(void *) { return lines().here(); }

  static void describe_line(void *, uint64_t line, char *text, size_t room) {
    std::snprintf(text, room, "%s", lines().text(line).c_str());
  }

  static void note_compiled(void *self, uint64_t line, const char *text) {
    Notes &notes = *static_cast<Notes *>(self);
    const std::lock_guard<std::mutex> lock(notes.lock_);
    if (notes.compilations_.size() < kMostNotes) notes.compilations_.emplace_back(line, text);
  }

  static void note_queued(void *self, const char *cause, const char *text) {
    Notes &notes = *static_cast<Notes *>(self);
    const std::lock_guard<std::mutex> lock(notes.lock_);
    if (notes.causes_ && notes.queued_.size() < kMostNotes) notes.queued_.emplace_back(cause);
    if (!notes.file_.empty()) write_queued(notes, cause, text);
  }

  // Appends to the file; a failure is reported once.
  static void write_queued(Notes &notes, const char *cause, const char *text) {
    std::FILE *const file = std::fopen(notes.file_.c_str(), "a");
    const bool written = file && std::fprintf(file, "## queued since: %s\n%s\n", cause, text) >= 0;
    const bool closed = file && std::fclose(file) == 0;
    if ((!written || !closed) && !std::exchange(notes.warned_, true))
      hal_log(HAL_LOG_WARNING, "lazy work cannot be written to '%s'", notes.file_.c_str());
  }

  static constexpr size_t kMostNotes = 10000;  // of each kind, if they are not collected

  std::mutex lock_;
  std::vector<Compilation> compilations_;
  std::vector<std::string> queued_;
  const bool lines_;
  const std::string file_;
  const bool dot_, causes_;
  bool warned_ = false;
};

// A stream that is lazy from now on, until `end`.
class Lazy {
 public:
  // `options`: HAL_LAZY_*, limit, piece and least of a hal_lazy_desc_t.
  Lazy(int32_t device, bool lines, bool causes, hal_lazy_desc_t options, const std::string &file, bool dot)
      : notes_(lines, causes, file, dot) {
    hal_lazy_desc_t desc = options;
    notes_.describe(desc);
    const py::gil_scoped_release no_gil;
    check(hal_device_ensure(device));
    hal_stream_t *const stream = current_stream(static_cast<c10::DeviceIndex>(device));
    stream_id_ = hal_stream_id(stream);
    check(hal_lazy_begin(stream, &desc, &lazy_));
  }

  int64_t stream_id() const { return stream_id_; }

  ~Lazy() {
    if (!lazy_) return;
    const py::gil_scoped_release no_gil;
    const hal_status_t status = hal_lazy_end(lazy_);
    if (status != HAL_OK) warn_status(status, "ending deferred work");
  }

  Lazy(const Lazy &) = delete;
  Lazy &operator=(const Lazy &) = delete;

  // Waits for other threads that use it.
  void end() {
    const py::gil_scoped_release no_gil;
    const std::unique_lock<std::shared_mutex> lock(ending_);
    check_work(hal_lazy_end(std::exchange(lazy_, nullptr)));
  }

  Notes &notes() { return notes_; }

  // Calls a function with the recording, without the GIL; with nullptr if another thread has ended the recording.
  template <class Function>
  auto use(const Function &function) const {
    const py::gil_scoped_release no_gil;
    const std::shared_lock<std::shared_mutex> lock(ending_);
    return lazy_ ? function(lazy_) : decltype(function(lazy_))();
  }

 private:
  Notes notes_;
  hal_lazy_t *lazy_ = nullptr;
  int64_t stream_id_ = 0;
  mutable std::shared_mutex ending_;
};

std::unique_ptr<Lazy> begin(int32_t device, bool lines, bool causes, bool fuse, uint32_t limit, uint32_t piece,
                            const std::string &file, bool dot) {
  hal_lazy_desc_t options{};
  options.flags = fuse ? 0 : HAL_LAZY_PLAIN;
  options.limit = limit;
  options.piece = piece;
  return std::make_unique<Lazy>(device, lines, causes, options, file, dot);
}

std::unique_ptr<Lazy> begin_groups(int32_t device, bool lines, bool causes, uint64_t least, bool busy,
                                   const std::string &file, bool dot) {
  hal_lazy_desc_t options{};
  options.flags = HAL_LAZY_GROUPS | (busy ? HAL_LAZY_BUSY : 0);
  options.least = least;
  return std::make_unique<Lazy>(device, lines, causes, options, file, dot);
}

hal_lazy_info_t info_of(hal_lazy_t *lazy) {
  hal_lazy_info_t info{};
  info.struct_size = sizeof(info);
  check(hal_lazy_info(lazy, &info));
  return info;
}

py::dict counts_of(const hal_lazy_info_t &info) {
  py::dict result;
  result["pending"] = info.pending;
  result["recorded"] = info.recorded;
  result["flushes"] = info.flushes;
  result["limits"] = info.limits;
  result["needed"] = info.needed;
  result["queued"] = info.queued;
  result["fused"] = info.fused;
  result["groups"] = info.groups;
  result["dropped"] = info.dropped;
  result["common"] = info.common;
  result["compiled"] = info.compiled;
  result["cached"] = info.cached;
  result["programs"] = info.programs;
  result["held"] = info.held;
  return result;
}

std::string text_of(hal_lazy_t *lazy, bool dot) {
  const uint32_t format = dot ? HAL_PROGRAM_DOT : HAL_PROGRAM_LINES;
  std::string text;
  for (size_t size = 1; size > text.size();) {  // other threads may append to it meanwhile
    text.resize(size);
    check(hal_lazy_text(lazy, format, text.data(), text.size(), &size));
  }
  text.resize(std::strlen(text.c_str()));
  return text;
}

void flush(Lazy &lazy) {
  check_work(lazy.use([](hal_lazy_t *handle) { return hal_lazy_flush(handle); }));
}
void end(Lazy &lazy) { lazy.end(); }
py::dict info(const Lazy &lazy) { return counts_of(lazy.use(info_of)); }
std::string text(const Lazy &lazy, bool dot) {
  return lazy.use([dot](hal_lazy_t *handle) { return text_of(handle, dot); });
}
std::vector<std::pair<std::string, std::string>> take_compilations(Lazy &lazy) {
  return lazy.notes().take_compilations();
}
std::vector<std::string> take_causes(Lazy &lazy) { return lazy.notes().take_causes(); }

// ---- the device type "lazy": its deferred work ----

hal_lazy_t *kept(int32_t device) { return kept_lazy(static_cast<c10::DeviceIndex>(device)); }

Notes *kept_notes = nullptr;  // exists until the process ends, as kernels of the type do

void enable_lazy(bool lines, bool causes, bool fuse, const std::string &file, bool dot) {
  enable_lazy_device();
  hal_lazy_desc_t desc{};
  desc.flags = fuse ? 0 : HAL_LAZY_PLAIN;
  kept_notes = new Notes(lines, causes, file, dot);
  kept_notes->describe(desc);
  describe_kept(desc);
}

void flush_kept(int32_t device) {
  const py::gil_scoped_release no_gil;
  if (hal_lazy_t *const lazy = kept(device)) check_work(hal_lazy_flush(lazy));
}

std::vector<py::dict> kept_infos() {
  std::vector<py::dict> result;
  for (int32_t device = 0; device < hal_device_count(); ++device)
    if (hal_lazy_t *const lazy = kept(device)) result.push_back(counts_of(info_of(lazy)));
  return result;
}

std::string kept_text(int32_t device, bool dot) {
  hal_lazy_t *const lazy = kept(device);
  return lazy ? text_of(lazy, dot) : "";
}

std::vector<std::pair<std::string, std::string>> take_kept_compilations() {
  return kept_notes ? kept_notes->take_compilations() : std::vector<std::pair<std::string, std::string>>();
}

std::vector<std::string> take_kept_causes() {
  return kept_notes ? kept_notes->take_causes() : std::vector<std::string>();
}

bool is_kept(int32_t device) { return kept(device) != nullptr; }

// ---- measurements ----

py::dict metric(int32_t device, uint32_t number) {
  hal_lazy_metric_t metric{};
  metric.struct_size = sizeof(metric);
  check(hal_lazy_metric(device, number, &metric));
  py::dict result;
  result["count"] = metric.count;
  result["total"] = metric.total;
  result["least"] = metric.least;
  result["most"] = metric.most;
  result["percentiles"] = std::vector<uint64_t>(std::begin(metric.percentile), std::end(metric.percentile));
  return result;
}

// Returns how many programs the device's compiler has compiled a second time.
uint64_t compiled_again(int32_t device) {
  hal_compiler_info_t info{};
  info.struct_size = sizeof(info);
  check(hal_compiler_info(device, &info));
  return info.again;
}

// Returns how often each operator was deferred.
std::map<std::string, uint64_t> op_counts() {
  std::map<std::string, uint64_t> result;
  for (uint32_t op = 0; op < hal_op_count(); ++op) {
    uint64_t count = 0;
    check(hal_lazy_op_count(op, &count));
    if (count != 0) result.emplace(hal_op_name(op), count);
  }
  return result;
}

py::dict tensor_counts() {
  const LazyTensorCounts counts = lazy_tensor_counts();
  py::dict result;
  result["created"] = counts.created;
  result["destroyed"] = counts.destroyed;
  return result;
}

void reset_metrics(int32_t device) { check(hal_lazy_reset_metrics(device)); }

}  // namespace

void bind_lazy(py::module_ &module) {
  using torch::wrap_pybind_function;
  py::class_<Lazy>(module, "Lazy")
      .def_property_readonly("stream_id", &Lazy::stream_id)
      .def("flush", wrap_pybind_function(&flush))
      .def("end", wrap_pybind_function(&end))
      .def("info", wrap_pybind_function(&info))
      .def("text", wrap_pybind_function(&text), py::arg("dot"))
      .def("take_compilations", wrap_pybind_function(&take_compilations))
      .def("take_causes", wrap_pybind_function(&take_causes));
  module.def("enable_lazy_device", wrap_pybind_function(&enable_lazy), py::arg("lines"), py::arg("causes"),
             py::arg("fuse"), py::arg("file"), py::arg("dot"));
  module.def("stop_lazy_device", torch::wrap_pybind_function_no_gil(&stop_lazy));
  module.def("flush_kept_lazy", wrap_pybind_function(&flush_kept), py::arg("device"));
  module.def("kept_lazy_infos", wrap_pybind_function(&kept_infos));
  module.def("is_kept_lazy", wrap_pybind_function(&is_kept), py::arg("device"));
  module.def("begin_lazy", wrap_pybind_function(&begin), py::arg("device"), py::arg("lines"), py::arg("causes"),
             py::arg("fuse"), py::arg("limit"), py::arg("piece"), py::arg("file"), py::arg("dot"));
  module.def("begin_groups", wrap_pybind_function(&begin_groups), py::arg("device"), py::arg("lines"),
             py::arg("causes"), py::arg("least"), py::arg("busy"), py::arg("file"), py::arg("dot"));
  module.def("kept_lazy_text", wrap_pybind_function(&kept_text), py::arg("device"), py::arg("dot"));
  module.def("take_kept_compilations", wrap_pybind_function(&take_kept_compilations));
  module.def("take_kept_causes", wrap_pybind_function(&take_kept_causes));
  module.def("lazy_metric", wrap_pybind_function(&metric), py::arg("device"), py::arg("metric"));
  module.def("compiled_again", wrap_pybind_function(&compiled_again), py::arg("device"));
  module.def("lazy_op_counts", wrap_pybind_function(&op_counts));
  module.def("lazy_tensor_counts", wrap_pybind_function(&tensor_counts));
  module.def("reset_lazy_metrics", wrap_pybind_function(&reset_metrics), py::arg("device"));
}

}  // namespace torch_backend
