// history.cpp: see history.h. The HAL records events and blocks; the stacks are torch's CapturedTraceback, so that they
// are symbolized as those of CUDA's snapshots.
#include "history.h"

#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/profiler/combined_traceback.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/allocator/host_history.h"
#include "core/pool/pool.h"
#include "core/status.h"

namespace py = pybind11;

namespace torch_backend {
namespace {

using torch::CapturedTraceback;

// ---- recording ----

// `cpp` is the address of a bool: with the frames of C++.
void *capture(void *cpp) {
  try {
    auto traceback = CapturedTraceback::gather(true, true, *static_cast<const bool *>(cpp));
    return new HistoryStack(std::move(traceback));
  } catch (const std::exception &error) {
    hal_log(HAL_LOG_WARNING, "cannot record the stack of an allocation: %s", error.what());
    return nullptr;
  }
}

// `pinned`: of pinned host memory; also below.
void start_history(int32_t device, uint32_t stacks, bool cpp, uint64_t max_events, uint32_t skip, bool clear,
                   bool pinned) {
  static bool with_cpp = true, without_cpp = false;
  if (stacks != HAL_MEMORY_STACKS_NONE && cpp) torch::unwind::unwind();  // loads what it needs
  hal_memory_history_desc_t desc{};
  desc.struct_size = sizeof(desc);
  desc.stacks = stacks;
  desc.skip = skip;
  desc.max_events = max_events;
  desc.flags = clear ? HAL_MEMORY_HISTORY_CLEAR : 0;
  desc.capture = capture;
  desc.release = release_history_stack;
  desc.user_data = cpp ? &with_cpp : &without_cpp;
  check(pinned ? hal_host_history_start(device, &desc) : hal_memory_history_start(device, &desc));
}

void stop_history(int32_t device, bool pinned) {
  check(pinned ? hal_host_history_stop(device) : hal_memory_history_stop(device));
}

// ---- snapshots ----

// The frames of all stacks of a snapshot. Each stack is symbolized once, and equal frames are one dictionary.
class Frames {
 public:
  // Adds "frames" to a dictionary when `finish` is called; not if a program recorded stacks of a class of its own.
  void add(const void *stack, const py::dict &to) {
    auto *traceback = dynamic_cast<CapturedTraceback *>(static_cast<const HistoryStack *>(stack)->get());
    if (traceback == nullptr) return;
    const auto [found, is_new] = index_.try_emplace(traceback, stacks_.size());
    if (is_new) stacks_.push_back(traceback);
    users_.emplace_back(found->second, to);
  }

  void finish() {
    const torch::SymbolizedTracebacks symbols = torch::symbolize(stacks_);
    std::vector<py::dict> frames;
    frames.reserve(symbols.all_frames.size());
    for (const torch::unwind::Frame &frame : symbols.all_frames) {
      py::dict entry;
      entry["name"] = frame.funcname;
      entry["filename"] = frame.filename;
      entry["line"] = frame.lineno;
      frames.push_back(std::move(entry));
    }
    std::vector<py::list> lists;
    for (const auto &traceback : symbols.tracebacks) {
      py::list list;
      for (const uint64_t index : traceback) list.append(frames.at(index));
      lists.push_back(std::move(list));
    }
    for (auto &[index, user] : users_) user["frames"] = lists.at(index);
  }

 private:
  std::unordered_map<const CapturedTraceback *, size_t> index_;
  std::vector<CapturedTraceback *> stacks_;
  std::vector<std::pair<size_t, py::dict>> users_;
};

py::dict to_dict(const hal_memory_event_t &event, Frames &frames) {
  static constexpr std::array<const char *, 9> names = {"alloc",         "free_requested", "free_completed",
                                                        "segment_alloc", "segment_free",   "snapshot",
                                                        "oom",           "segment_map",    "segment_unmap"};
  py::dict entry;
  entry["action"] = names.at(event.action);
  if (event.action == HAL_MEMORY_EVENT_OOM)
    entry["device_free"] = event.free_bytes;
  else
    entry["addr"] = reinterpret_cast<uintptr_t>(event.address);
  entry["size"] = event.size;
  entry["stream"] = event.stream;
  entry["time_us"] = event.time_ns / 1000;
  entry["compile_context"] = "";
  entry["user_metadata"] = "";
  entry["pool_id"] = pool_id(event.pool);
  if (event.stack != nullptr) frames.add(event.stack, entry);
  return entry;
}

void add_frames(const void *stack, const py::dict &to, const py::list &none, Frames &frames) {
  to["frames"] = none;
  if (stack != nullptr) frames.add(stack, to);
}

py::dict segment_dict(int32_t device, const hal_memory_block_info_t &block) {
  py::dict segment;
  segment["device"] = device;
  segment["address"] = reinterpret_cast<uintptr_t>(block.segment);
  segment["total_size"] = block.segment_size;
  segment["stream"] = block.stream;
  segment["segment_type"] = block.kind == HAL_POOL_SMALL ? "small" : "large";
  segment["segment_pool_id"] = pool_id(block.pool);
  segment["is_expandable"] = (block.flags & HAL_MEMORY_BLOCK_EXPANDABLE) != 0;
  return segment;
}

py::dict block_dict(const hal_memory_block_info_t &block) {
  static constexpr std::array<const char *, 3> states = {"inactive", "active_allocated", "active_pending_free"};
  py::dict entry;
  entry["address"] = reinterpret_cast<uintptr_t>(block.address);
  entry["size"] = block.size;
  entry["requested_size"] = block.requested;
  entry["state"] = states.at(block.state);
  return entry;
}

// Returns the segments of a device with their blocks; pinned memory has device -1, as in torch.
py::list segments_of(int32_t device, const hal_memory_history_t *history, const py::list &none, Frames &frames) {
  py::list segments, blocks;
  py::dict segment;
  size_t allocated = 0, active = 0, requested = 0;
  const void *address = nullptr;
  const auto finish = [&] {
    segment["allocated_size"] = allocated;
    segment["active_size"] = active;
    segment["requested_size"] = requested;
    segment["blocks"] = blocks;
    if (address != nullptr) segments.append(segment);
    blocks = py::list();
    allocated = active = requested = 0;
  };
  for (size_t i = 0; i < hal_memory_history_blocks(history); ++i) {
    hal_memory_block_info_t block{};
    check(hal_memory_history_block(history, i, &block, sizeof(block)));
    if (block.segment != address) {
      finish();
      address = block.segment;
      segment = segment_dict(device, block);
      add_frames(block.segment_stack, segment, none, frames);
    }
    py::dict entry = block_dict(block);
    add_frames(block.stack, entry, none, frames);
    blocks.append(entry);
    allocated += block.state == HAL_MEMORY_BLOCK_ALLOCATED ? block.size : 0;
    active += block.state == HAL_MEMORY_BLOCK_FREE ? 0 : block.size;
    requested += block.requested;
  }
  finish();
  return segments;
}

// (segments, trace, number of lost events) of a device, in torch's format.
py::tuple memory_history(int32_t device, bool pinned) {
  hal_memory_history_t *copy = nullptr;
  {
    py::gil_scoped_release no_gil;
    check(pinned ? hal_host_history_read(device, &copy) : hal_memory_history_read(device, &copy));
  }
  const std::unique_ptr<hal_memory_history_t, decltype(&hal_memory_history_release)> history(
      copy, hal_memory_history_release);
  Frames frames;
  const py::list none;  // of blocks without a stack
  py::list segments = segments_of(pinned ? -1 : device, copy, none, frames), trace;
  for (size_t i = 0; i < hal_memory_history_events(copy); ++i) {
    hal_memory_event_t event{};
    check(hal_memory_history_event(copy, i, &event, sizeof(event)));
    trace.append(to_dict(event, frames));
  }
  frames.finish();
  return py::make_tuple(segments, trace, hal_memory_history_lost(copy));
}

// The settings of the allocators that are not the defaults, in the format of PYTORCH_ALLOC_CONF.
std::string memory_settings() {
  std::string text(1024, '\0');
  check(hal_memory_settings(text.data(), text.size()));
  text.resize(text.find('\0'));
  return text;
}

// ---- out-of-memory observers ----

// `function` is a Python function, with a reference that is never released, as in torch.
void observe_oom(void *function, int32_t device, size_t size, size_t total, size_t free_bytes) {
  if (!Py_IsInitialized()) return;
  const py::gil_scoped_acquire gil;
  const py::handle observer(static_cast<PyObject *>(function));
  try {
    observer(device, size, total, free_bytes);
  } catch (py::error_already_set &error) {
    error.discard_as_unraisable(py::reinterpret_borrow<py::object>(observer));
  }
}

void attach_oom_observer(int32_t device, py::function observer) {
  PyObject *function = observer.release().ptr();
  py::gil_scoped_release no_gil;
  check(hal_memory_oom_observe(device, observe_oom, function));
}

}  // namespace

void bind_memory_history(py::module_ &module) {
  using torch::wrap_pybind_function;
  using torch::wrap_pybind_function_no_gil;
  module.def("start_memory_history", wrap_pybind_function_no_gil(&start_history), py::arg("device"), py::arg("stacks"),
             py::arg("cpp"), py::arg("max_events"), py::arg("skip"), py::arg("clear"), py::arg("pinned") = false);
  module.def("stop_memory_history", wrap_pybind_function_no_gil(&stop_history), py::arg("device"),
             py::arg("pinned") = false);
  module.def("memory_history", wrap_pybind_function(&memory_history), py::arg("device"), py::arg("pinned") = false);
  module.def("memory_settings", wrap_pybind_function(&memory_settings));
  module.def("attach_oom_observer", wrap_pybind_function(&attach_oom_observer), py::arg("device"), py::arg("observer"));
}

}  // namespace torch_backend
