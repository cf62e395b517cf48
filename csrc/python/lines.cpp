// lines.cpp: see lines.h.
#include "lines.h"

#include <ATen/SequenceNumber.h>
#include <pybind11/pybind11.h>
#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "place.h"

namespace py = pybind11;

namespace torch_backend {
namespace {

// Returns the folders of torch and of this package, whose lines are not useful to users. Requires the GIL.
std::vector<std::string> library_folders() {
  std::vector<std::string> folders;
  const auto modules = py::module_::import("sys").attr("modules").cast<py::dict>();
  for (const char *const name : {"torch", "torch_backend", "lazy_tensor_core"}) {
    if (!modules.contains(name)) continue;
    for (const py::handle folder : modules[name].attr("__path__")) folders.push_back(folder.cast<std::string>() + "/");
  }
  return folders;
}

}  // namespace

// The forward lines of autograd nodes, by the node's number: of the last ones, enough for one step.
struct ForwardLine {
  uint64_t sequence = UINT64_MAX, line = 0;
};

// The result for an instruction: its number, or 0 for code of a library.
struct Seen {
  Place place{nullptr, 0};
  uint64_t line = 0;
};

struct Lines::State {
  // A thread with the GIL may read all of it. Writers of `texts` and `forward` also hold `lock`, for readers without
  // the GIL.
  mutable std::mutex lock;
  std::unordered_map<Place, uint64_t, PlaceHash> numbers;
  std::vector<std::string> texts{""};
  std::unordered_map<PyCodeObject *, bool> library;  // references the code objects, to which instructions belong
  std::array<Seen, 1 << 10> seen;                    // of the last instructions: most calls come from few of them
  std::array<ForwardLine, 1 << 16> forward;

  bool is_library(PyCodeObject *code) const {
    const auto file = py::reinterpret_borrow<py::str>(code->co_filename).cast<std::string>();
    const auto holds = [&file](const std::string &folder) { return file.rfind(folder, 0) == 0; };
    const std::vector<std::string> folders = library_folders();  // a module may have been imported meanwhile
    return file.rfind('<', 0) == 0 || std::any_of(folders.begin(), folders.end(), holds);
  }

  bool passes(PyCodeObject *code) {
    const auto found = library.find(code);
    if (found != library.end()) return found->second;
    Py_INCREF(code);
    return library.emplace(code, is_library(code)).first->second;
  }

  uint64_t number(const Place &place, PyFrameObject *frame) {
    const auto found = numbers.find(place);
    if (found != numbers.end()) return found->second;
    const auto file = py::reinterpret_borrow<py::str>(place.code->co_filename).cast<std::string>();
    std::string text = file + ":" + std::to_string(PyFrame_GetLineNumber(frame));
    const std::lock_guard<std::mutex> guard(lock);  // no thread waits for the GIL while it holds this lock
    texts.push_back(std::move(text));
    numbers.emplace(place, texts.size() - 1);
    return texts.size() - 1;
  }

  // Returns the number of the instruction of a frame; 0 = code of a library.
  uint64_t line_of(PyFrameObject *frame, PyCodeObject *code) {
    const Place place{code, instruction_of(frame)};
    Seen &slot =
        seen[(reinterpret_cast<uintptr_t>(code) / 16 + static_cast<uintptr_t>(place.instruction)) % seen.size()];
    if (C10_LIKELY(slot.place == place)) return slot.line;
    const uint64_t line = passes(code) ? 0 : number(place, frame);
    slot = {place, line};
    return line;
  }

  // Returns the innermost one outside of libraries.
  uint64_t from_frames(PyThreadState *thread) {
    PyFrameObject *frame = PyThreadState_GetFrame(thread);
    uint64_t line = 0;
    while (frame) {
      PyCodeObject *const code = PyFrame_GetCode(frame);
      line = line_of(frame, code);
      Py_DECREF(code);
      PyFrameObject *const outer = line ? nullptr : PyFrame_GetBack(frame);
      Py_DECREF(frame);
      frame = outer;
    }
    return line;
  }

  // Records the line of the autograd node whose forward operator runs, if there is one. It is numbered before its
  // operator runs, and the first operator after the node is its own.
  void note_forward(uint64_t line) {
    const uint64_t next = at::sequence_number::peek();
    ForwardLine &of = forward[(next - 1) % forward.size()];
    if (next == 0 || of.sequence == next - 1) return;
    const std::lock_guard<std::mutex> guard(lock);
    of = {next - 1, line};
  }
};

namespace {

// Holds the GIL within a scope. pybind11's class does the same by its per-thread data.
class Gil {
 public:
  explicit Gil(PyThreadState *thread) : taken_(py::detail::get_thread_state_unchecked() != thread) {
    if (taken_) PyEval_RestoreThread(thread);
  }
  ~Gil() {
    if (taken_) PyEval_SaveThread();
  }
  Gil(const Gil &) = delete;
  Gil &operator=(const Gil &) = delete;

 private:
  const bool taken_;
};

}  // namespace

Lines::Lines() : state_(std::make_unique<State>()) {}

Lines::~Lines() {
  if (!Py_IsInitialized()) return;
  const py::gil_scoped_acquire gil;
  for (const auto &entry : state_->library) Py_DECREF(entry.first);
}

uint64_t Lines::here() {
  State &state = *state_;
  if (const auto node = torch::autograd::get_current_node()) {
    const std::lock_guard<std::mutex> lock(state.lock);
    const ForwardLine &forward = state.forward[node->sequence_nr() % state.forward.size()];
    return forward.sequence == node->sequence_nr() ? forward.line : 0;
  }
  PyThreadState *const thread = PyGILState_GetThisThreadState();
  if (!thread) return 0;
  const Gil gil(thread);
  const uint64_t line = state.from_frames(thread);
  state.note_forward(line);
  return line;
}

std::string Lines::text(uint64_t line) const {
  const std::lock_guard<std::mutex> lock(state_->lock);
  return line < state_->texts.size() ? state_->texts[line] : "";
}

}  // namespace torch_backend
