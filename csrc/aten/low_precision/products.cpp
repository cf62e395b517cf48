// products.cpp: products of matrices of 8-bit elements (_int_mm, _weight_int8pack_mm, _scaled_mm), for devices whose
// plugin has no such operator: elements are converted to float32, in which they and their products are exact.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/ops/mm.h>

#include <algorithm>
#include <optional>

#include "aten/low_precision/meta.h"
#include "aten/prepare/call.h"

namespace torch_backend {
namespace {

using at::Tensor;

// ---- integers ----

// The sum of as many products of a uint8 and an int8 is an integer below 2^24, which float32 represents exactly.
constexpr int64_t kExactTerms = 512;

Tensor int_mm(const Tensor &self, const Tensor &mat2) {
  const Tensor result = empty_int_mm(self, mat2).zero_();
  for (int64_t from = 0; from < self.size(1); from += kExactTerms) {
    const int64_t count = std::min(kExactTerms, self.size(1) - from);
    result.add_(
        at::mm(self.narrow(1, from, count).to(at::kFloat), mat2.narrow(0, from, count).to(at::kFloat)).to(at::kInt));
  }
  return result;
}

Tensor &int_mm_into(const Tensor &self, const Tensor &mat2, Tensor &out) {
  const Tensor result = int_mm(self, mat2);
  TORCH_CHECK(out.scalar_type() == at::kInt, "_int_mm: expected result dtype to be int32 but got ", out.scalar_type());
  return out.resize_(result.sizes()).copy_(result);
}

// ---- weights of 8 bits ----

Tensor weight_int8pack_mm(const Tensor &self, const Tensor &mat2, const Tensor &scales) {
  const Tensor result = empty_weight_int8pack_mm(self, mat2, scales);
  return result.copy_(at::mm(self.to(at::kFloat), mat2.to(at::kFloat).t()).mul_(scales.to(at::kFloat)));
}

// ---- float8 with scales ----

// The sides of a block that has one scale.
constexpr int64_t kBlock = 128;

int64_t blocks(int64_t size) { return (size + kBlock - 1) / kBlock; }

bool is_scale_of(const Tensor &scale, int64_t rows, int64_t columns) {
  return scale.dim() == 2 && scale.size(0) == rows && scale.size(1) == columns;
}

// Returns a block's scale for each of `size` elements along `dim`.
Tensor repeated(const Tensor &scale, int64_t dim, int64_t size) {
  return scale.size(dim) == size ? scale : scale.repeat_interleave(kBlock, dim).narrow(dim, 0, size);
}

// Returns the matrix in float32, multiplied by the scales of its blocks.
Tensor scaled_blocks(const Tensor &matrix, const Tensor &scale) {
  return matrix.to(at::kFloat).mul_(repeated(repeated(scale, 0, matrix.size(0)), 1, matrix.size(1)));
}

// The product in float32. Other scales than those of tensors, of rows and columns, and of blocks of 128 run on the CPU.
Tensor scaled_product(const Tensor &self, const Tensor &mat2, const Tensor &scale_a, const Tensor &scale_b) {
  const int64_t m = self.size(0), k = self.size(1), n = mat2.size(1);
  must(scale_a.scalar_type() == at::kFloat && scale_b.scalar_type() == at::kFloat);
  const bool of_tensors = scale_a.numel() == 1 && scale_b.numel() == 1;
  if (of_tensors || (is_scale_of(scale_a, m, 1) && is_scale_of(scale_b, 1, n))) {
    const Tensor product = at::mm(self.to(at::kFloat), mat2.to(at::kFloat));
    return of_tensors ? product.mul_(scale_a.reshape({}).mul(scale_b.reshape({})))
                      : product.mul_(scale_a).mul_(scale_b);
  }
  must((is_scale_of(scale_a, m, blocks(k)) || is_scale_of(scale_a, blocks(m), blocks(k))) &&
       (is_scale_of(scale_b, blocks(k), n) || is_scale_of(scale_b, blocks(k), blocks(n))));
  return at::mm(scaled_blocks(self, scale_a), scaled_blocks(mat2, scale_b));
}

Tensor scaled_mm(const Tensor &self, const Tensor &mat2, const Tensor &scale_a, const Tensor &scale_b,
                 const OptionalTensor &bias, const OptionalTensor &scale_result,
                 std::optional<c10::ScalarType> out_dtype, bool fast) {
  const Tensor result = empty_scaled_mm(self, mat2, scale_a, scale_b, bias, scale_result, out_dtype, fast);
  must(c10::isFloat8Type(self.scalar_type()) && c10::isFloat8Type(mat2.scalar_type()));
  const Tensor product = scaled_product(self, mat2, scale_a, scale_b);
  if (is_given(bias)) product.add_(*bias);
  if (is_given(scale_result) && c10::isFloat8Type(result.scalar_type())) product.div_(*scale_result);
  return result.copy_(product);
}

Tensor &scaled_mm_into(const Tensor &self, const Tensor &mat2, const Tensor &scale_a, const Tensor &scale_b,
                       const OptionalTensor &bias, const OptionalTensor &scale_result,
                       std::optional<c10::ScalarType> out_dtype, bool fast, Tensor &out) {
  TORCH_CHECK(out_dtype.value_or(out.scalar_type()) == out.scalar_type(), "_scaled_mm: out_dtype is ", *out_dtype,
              " but out has the dtype ", out.scalar_type());
  const Tensor result = scaled_mm(self, mat2, scale_a, scale_b, bias, scale_result, out.scalar_type(), fast);
  return out.resize_(result.sizes()).copy_(result);
}

}  // namespace
}  // namespace torch_backend

#include "aten/low_precision/products.inc"  // registrations: codegen/operators
