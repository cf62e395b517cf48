// place.h: an instruction of a Python function, as a key of tables. The tables reference the code object.
#pragma once

#include <Python.h>

#include <cstddef>
#include <functional>

namespace torch_backend {

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

}  // namespace torch_backend
