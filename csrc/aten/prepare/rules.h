// rules.h: how the kernels of an operator read its operands: the dtype that they compute in, and the layout that they read. The table is
// generated (codegen/kernel_operands.py).
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>

#include "hal/hal.h"

namespace torch_backend {

// In which dtype a kernel computes what ATen computes in another one.
enum class Policy : uint8_t {
  kExact,        // that dtype, or a wider one in which every result is the same once it is cast back
  kNumber,       // the same, where bool counts as the numbers 0 and 1
  kRounded,      // the same, or float64: results are made from numbers, not from operands, and rounded once
  kElementSize,  // as integers of the element's size: elements are moved as they lie
  kBool,         // bool: an operand is true where it is not zero
};

// How operands and results lie in memory.
enum class Layout : uint8_t {
  kStrided,     // as they come
  kAtLeast1d,   // as they come, but with a dimension at least
  kRows,        // the last dimension has stride 1
  kContiguous,  // in C's order
  kSuggested,   // in C's order, or channels last where the tensor is so
};

struct Rule {
  Policy policy;
  Layout layout;
  uint8_t operands;  // tensors that kernels read, of the first in the list; others say what the result's shape is
};

Rule rule_of(uint32_t op);

// The layout that the device's kernel of an operator reads.
Layout layout_of(c10::DeviceIndex device, uint32_t op);

// What an operator's tensors are cast to, and what its kernel is told that they are: the same but for elements that are moved,
// and for bools that are bytes to it.
struct Computing {
  c10::ScalarType dtype;
  hal_dtype_t told;
};

// What operator `op` computes in where ATen computes in `dtype`. nullopt = the device has no kernel for that.
std::optional<Computing> computing(c10::DeviceIndex device, uint32_t op, c10::ScalarType dtype);
std::optional<c10::ScalarType> computing_dtype(c10::DeviceIndex device, uint32_t op, c10::ScalarType dtype);

// The same of the policy kExact, given the dtypes with a kernel (bit = dtype).
std::optional<c10::ScalarType> kernel_dtype(uint64_t kernels, c10::ScalarType dtype);

}  // namespace torch_backend
