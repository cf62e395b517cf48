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

namespace py = pybind11;

namespace torch_backend {
namespace {

// A place in code that lives as long as this does.
struct Place {
  PyCodeObject *code;
  int instruction;
  bool operator==(const Place &other) const { return code == other.code && instruction == other.instruction; }
};

struct PlaceHash {
  size_t operator()(const Place &place) const {
    return std::hash<const void *>()(place.code) * 31 + static_cast<size_t>(place.instruction);
  }
};

// The folders of torch and of our packages, whose lines tell a user nothing. Needs the GIL.
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

// The forward lines of nodes of autograd, by the number that the node has: of the last ones, a step's worth.
struct Forward {
  uint64_t sequence = UINT64_MAX, line = 0;
};

struct Lines::State {
  mutable std::mutex lock;
  std::unordered_map<Place, uint64_t, PlaceHash> numbers;
  std::vector<std::string> texts{""};
  std::unordered_map<PyCodeObject *, bool> library;
  std::array<Forward, 1 << 16> forward;

  const std::vector<std::string> folders = library_folders();

  bool is_library(PyCodeObject *code) const {
    const auto file = py::reinterpret_borrow<py::str>(code->co_filename).cast<std::string>();
    const auto holds = [&file](const std::string &folder) { return file.rfind(folder, 0) == 0; };
    return file.rfind('<', 0) == 0 || std::any_of(folders.begin(), folders.end(), holds);
  }

  bool passes(PyCodeObject *code) {
    const auto found = library.find(code);
    if (found != library.end()) return found->second;
    Py_INCREF(code);
    return library.emplace(code, is_library(code)).first->second;
  }

  // The number of a place in code, with the GIL.
  uint64_t number(PyFrameObject *frame, PyCodeObject *code) {
    const Place place{code, PyFrame_GetLasti(frame)};
    const auto found = numbers.find(place);
    if (found != numbers.end()) return found->second;
    const auto file = py::reinterpret_borrow<py::str>(code->co_filename).cast<std::string>();
    texts.push_back(file + ":" + std::to_string(PyFrame_GetLineNumber(frame)));
    numbers.emplace(place, texts.size() - 1);
    return texts.size() - 1;
  }

  uint64_t from_frames(PyThreadState *thread) {
    PyFrameObject *frame = PyThreadState_GetFrame(thread);
    uint64_t line = 0;
    while (frame) {
      PyCodeObject *const code = PyFrame_GetCode(frame);
      const bool passed = passes(code);
      if (!passed) line = number(frame, code);
      Py_DECREF(code);
      PyFrameObject *const outer = passed ? PyFrame_GetBack(frame) : nullptr;
      Py_DECREF(frame);
      frame = outer;
    }
    return line;
  }
};

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
    const Forward &forward = state.forward[node->sequence_nr() % state.forward.size()];
    return forward.sequence == node->sequence_nr() ? forward.line : 0;
  }
  PyThreadState *const thread = PyGILState_GetThisThreadState();
  if (!thread) return 0;
  const py::gil_scoped_acquire gil;
  const std::lock_guard<std::mutex> lock(state.lock);  // held by nobody who waits for the GIL
  const uint64_t line = state.from_frames(thread);
  const uint64_t next = at::sequence_number::peek();  // autograd numbers its node before the operator runs
  Forward &forward = state.forward[(next - 1) % state.forward.size()];
  if (next != 0 && forward.sequence != next - 1)
    forward = {next - 1, line};  // the first operator behind the node is its own
  return line;
}

std::string Lines::text(uint64_t line) const {
  const std::lock_guard<std::mutex> lock(state_->lock);
  return line < state_->texts.size() ? state_->texts[line] : "";
}

}  // namespace torch_backend
