// rules.h: how the kernels of an operator read its operands: the dtype in which they compute, and the layout that they
// read. The table is generated (codegen/kernel_operands.py).
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>

#include "hal/hal.h"

namespace torch_backend {

// The dtype in which a kernel computes if ATen computes in another one.
enum class Policy : uint8_t {
  kExact,        // that dtype, or a wider one in which every result is the same after the cast back
  kNumber,       // the same, but bool counts as the numbers 0 and 1
  kRounded,      // the same, or float64: results are computed from numbers, not from operands, and rounded once
  kElementSize,  // as integers of the element's size: elements are moved unchanged
  kBool,         // bool: an operand is true where it is not zero
};

// The memory layout of operands and results.
enum class Layout : uint8_t {
  kStrided,     // any strides
  kAtLeast1d,   // any strides, but at least one dimension
  kRows,        // the last dimension has stride 1
  kContiguous,  // in C's order
  kSuggested,   // in C's order, or channels last if the tensor is
};

struct Rule {
  Policy policy;
  Layout layout;
  // number of tensors, from the first of the list, that kernels read; others determine the result's shape
  uint8_t operands;
};

Rule rule_of(uint32_t op);

// Returns the layout that the device's kernel of an operator reads.
Layout layout_of(c10::DeviceIndex device, uint32_t op);

// The dtype to which an operator's tensors are cast, and the dtype that its kernel sees. They differ only for elements
// that are moved, and for bools that the kernel reads as bytes.
struct Computing {
  c10::ScalarType dtype;
  hal_dtype_t told;
};

// Returns the dtype in which operator `op` computes if ATen computes in `dtype`. nullopt = the device has no kernel for
// that.
std::optional<Computing> computing(c10::DeviceIndex device, uint32_t op, c10::ScalarType dtype);
std::optional<c10::ScalarType> computing_dtype(c10::DeviceIndex device, uint32_t op, c10::ScalarType dtype);

// The same for the policy kExact, with the dtypes that have a kernel (bit = dtype).
std::optional<c10::ScalarType> kernel_dtype(uint64_t kernels, c10::ScalarType dtype);

}  // namespace torch_backend
