// structured_calls.h: structured operators that are not elementwise, after their meta functions: reductions, softmax
// and matrix products, with the argument lists of codegen/operators. Each returns false if the device has no kernel;
// then only the size of out= has changed, and the caller uses the fallback.
#pragma once

#include "aten/prepare/structured.h"

namespace torch_backend {

using DimVector = c10::SmallVector<int64_t, 6>;

// Returns the reduced dimensions in ascending order; an absent or empty list means all of them.
DimVector reduced_dims(int64_t ndim, c10::OptionalIntArrayRef dims);
inline DimVector reduced_dims(int64_t ndim, int64_t dim) { return reduced_dims(ndim, c10::IntArrayRef(dim)); }
inline DimVector reduced_dims(int64_t ndim, const std::optional<int64_t> &dim) {
  return dim ? reduced_dims(ndim, *dim) : reduced_dims(ndim, c10::OptionalIntArrayRef());
}

// Returns the dimensions of a reduction as a list, in any form of the operator's argument, for the vendor's operator.
inline c10::OptionalIntArrayRef dimensions(const c10::OptionalIntArrayRef &dims) { return dims; }
inline c10::OptionalIntArrayRef dimensions(const int64_t &dim) { return c10::IntArrayRef(dim); }
inline c10::OptionalIntArrayRef dimensions(const std::optional<int64_t> &dim) {
  return dim ? c10::OptionalIntArrayRef(c10::IntArrayRef(*dim)) : c10::OptionalIntArrayRef();
}

// The same, but an empty list means none of them.
DimVector listed_dims(int64_t ndim, c10::OptionalIntArrayRef dims);

// Reduces `self`, cast to `computing`, over `dims` into the first `results` outputs.
bool run_reduction(uint32_t op, c10::ScalarType computing, const Outputs &outputs, size_t results,
                   const at::Tensor &self, const DimVector &dims,
                   const std::optional<c10::Scalar> &number = std::nullopt);

// Runs softmax or its backward along one dimension; `operands` have the result's shape.
bool run_softmax(uint32_t op, const Outputs &outputs, c10::ArrayRef<KernelArgument> operands, int64_t dim);

// Runs a matrix product; arguments: [self to add,] first and second matrix [, beta, alpha].
bool run_matrix_product(uint32_t op, const Outputs &outputs, c10::ArrayRef<KernelArgument> arguments);

}  // namespace torch_backend
