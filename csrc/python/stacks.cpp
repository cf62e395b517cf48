// stacks.cpp: see stacks.h. A stack is a list of instructions, whose text is created once and never freed. In a
// backward pass, which runs in a thread without Python frames, it is the stack of the forward operator.
#include "stacks.h"

#include <ATen/SequenceNumber.h>
#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/status.h"
#include "place.h"

namespace py = pybind11;

namespace torch_backend {
namespace {

constexpr size_t kMostFrames = 24, kMostStacks = 1 << 15;

using Key = std::vector<Place>;

struct KeyHash {
  size_t operator()(const Key &key) const {
    size_t hash = key.size();
    for (const Place &place : key) hash = hash * 1099511628211U ^ PlaceHash()(place);
    return hash;
  }
};

// The stack of an autograd node's forward operator, by the node's number.
struct Forward {
  uint64_t sequence = UINT64_MAX;
  const char *text = nullptr;
};

struct Stacks {
  std::unordered_map<Key, const char *, KeyHash> texts;     // requires the GIL; references the code objects
  std::unordered_map<const char *, const char *> backward;  // requires the lock
  std::array<Forward, 1 << 16> forward;                     // requires the lock
  std::mutex lock;                                          // no thread waits for the GIL while it holds it
};

Stacks &stacks() {
  static auto *const all = new Stacks;  // plugins report until the process ends
  return *all;
}

std::string text_of(PyObject *string) {
  Py_ssize_t size = 0;
  const char *const text = PyUnicode_AsUTF8AndSize(string, &size);
  if (text) return std::string(text, static_cast<size_t>(size));
  PyErr_Clear();
  return "?";
}

std::string describe(PyFrameObject *frame, PyCodeObject *code) {
  return "    " + text_of(code->co_name) + " (" + text_of(code->co_filename) + ":" +
         std::to_string(PyFrame_GetLineNumber(frame)) + ")\n";
}

// Calls `apply` with the frames of a thread, innermost first.
template <typename Apply>
void for_each_frame(PyThreadState *thread, const Apply &apply) {
  PyFrameObject *frame = PyThreadState_GetFrame(thread);
  for (size_t count = 0; frame && count < kMostFrames; ++count) {
    PyCodeObject *const code = PyFrame_GetCode(frame);
    apply(frame, code);
    Py_DECREF(code);
    PyFrameObject *const outer = PyFrame_GetBack(frame);
    Py_DECREF(frame);
    frame = outer;
  }
  Py_XDECREF(frame);
}

// Returns the text of a thread's stack; the caller has the GIL.
const char *from_frames(PyThreadState *thread) {
  static thread_local Key key;  // reused, so that a known stack allocates nothing
  key.clear();
  for_each_frame(thread, [](PyFrameObject *frame, PyCodeObject *code) {
    key.push_back({code, instruction_of(frame)});
  });
  auto &texts = stacks().texts;
  if (key.empty()) return nullptr;
  const auto found = texts.find(key);
  if (found != texts.end()) return found->second;
  if (texts.size() >= kMostStacks) return "    unknown: the program has too many different stacks\n";
  auto *const text = new std::string;
  for_each_frame(thread, [text](PyFrameObject *frame, PyCodeObject *code) { *text += describe(frame, code); });
  for (const Place &place : key) Py_INCREF(place.code);
  texts.emplace(key, text->c_str());
  return text->c_str();
}

// Records the stack of the autograd node whose forward operator runs (lines.cpp).
void note_forward(const char *text) {
  const uint64_t next = at::sequence_number::peek();
  if (next == 0) return;
  const std::lock_guard<std::mutex> guard(stacks().lock);
  Forward &of = stacks().forward[(next - 1) % stacks().forward.size()];
  if (of.sequence != next - 1) of = {next - 1, text};
}

const char *of_forward(uint64_t sequence) {
  const std::lock_guard<std::mutex> guard(stacks().lock);
  const Forward &forward = stacks().forward[sequence % stacks().forward.size()];
  if (forward.sequence != sequence || !forward.text) return nullptr;
  const char *&text = stacks().backward[forward.text];
  if (!text)
    text = (new std::string(std::string("    backward pass of the operator called by:\n") + forward.text))->c_str();
  return text;
}

bool is_ending() {
#if PY_VERSION_HEX >= 0x030D0000
  return Py_IsFinalizing() != 0;
#else
  return _Py_IsFinalizing() != 0;
#endif
}

const char *current_stack() {
  if (!Py_IsInitialized() || is_ending()) return nullptr;
  if (const auto node = torch::autograd::get_current_node()) {
    const char *const text = of_forward(node->sequence_nr());
    if (text) return text;
  }
  PyThreadState *const thread = PyGILState_GetThisThreadState();
  if (!thread) return nullptr;
  const bool taken = py::detail::get_thread_state_unchecked() != thread;
  if (taken) PyEval_RestoreThread(thread);
  const char *const text = from_frames(thread);
  if (taken) PyEval_SaveThread();
  if (text) note_forward(text);
  return text;
}

}  // namespace

void bind_stacks(py::module_ &) { hal_stack_set_source(&current_stack); }

}  // namespace torch_backend
