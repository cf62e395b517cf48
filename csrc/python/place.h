// place.h: an instruction of a Python function, as a key of tables. The tables reference the code object.
#pragma once

#include <Python.h>
#include <frameobject.h>

#include <cstddef>
#include <functional>

namespace torch_backend {

struct Place {
  PyCodeObject *code;
  int instruction;
  bool operator==(const Place &other) const { return code == other.code && instruction == other.instruction; }
};

// Returns the number of a frame's current instruction. PyFrame_GetLasti exists since CPython 3.11.
inline int instruction_of(PyFrameObject *frame) {
#if PY_VERSION_HEX >= 0x030B0000
  return PyFrame_GetLasti(frame);
#else
  return frame->f_lasti;
#endif
}

struct PlaceHash {
  size_t operator()(const Place &place) const {
    return std::hash<const void *>()(place.code) * 31 + static_cast<size_t>(place.instruction);
  }
};

}  // namespace torch_backend
