// products.cpp: products of matrices of 8-bit elements (_int_mm, _weight_int8pack_mm, _scaled_mm), for devices whose
// plugin has no such operator: elements are converted to float32, in which they and their products are exact.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <optional>

#include "aten/prepare/call.h"

namespace torch_backend {
namespace {

using at::Tensor;

// ---- integers ----

// The sum of as many products of a uint8 and an int8 is an integer below 2^24, which float32 represents exactly.
constexpr int64_t kExactTerms = 512;

void check_int_mm(const Tensor &self, const Tensor &mat2) {
  TORCH_CHECK(self.dim() == 2, "_int_mm: expected self to be of dimension 2 but got ", self.dim());
  TORCH_CHECK(mat2.dim() == 2, "_int_mm: expected mat2 to be of dimension 2 but got ", mat2.dim());
  TORCH_CHECK(self.scalar_type() == at::kChar || self.scalar_type() == at::kByte,
              "_int_mm: expected self dtype to be int8 or uint8 but got ", self.scalar_type());
  TORCH_CHECK(mat2.scalar_type() == at::kChar, "_int_mm: expected mat2 dtype to be int8 but got ", mat2.scalar_type());
  TORCH_CHECK(self.size(1) == mat2.size(0), "_int_mm: self.size(1) needs to match mat2.size(0) but got ", self.size(1),
              " and ", mat2.size(0));
}

Tensor int_mm(const Tensor &self, const Tensor &mat2) {
  check_int_mm(self, mat2);
  const int64_t terms = self.size(1);
  Tensor result;
  for (int64_t from = 0; from < terms; from += kExactTerms) {
    const int64_t count = std::min(kExactTerms, terms - from);
    const Tensor a = self.narrow(1, from, count).to(at::kFloat), b = mat2.narrow(0, from, count).to(at::kFloat);
    const Tensor part = at::mm(a, b).to(at::kInt);
    result = result.defined() ? result.add_(part) : part;
  }
  return result.defined() ? result : at::zeros({self.size(0), mat2.size(1)}, self.options().dtype(at::kInt));
}

Tensor &int_mm_into(const Tensor &self, const Tensor &mat2, Tensor &out) {
  check_int_mm(self, mat2);
  TORCH_CHECK(out.scalar_type() == at::kInt, "_int_mm: expected result dtype to be int32 but got ", out.scalar_type());
  out.resize_({self.size(0), mat2.size(1)});
  return out.copy_(int_mm(self, mat2));
}

// ---- weights of 8 bits ----

Tensor weight_int8pack_mm(const Tensor &self, const Tensor &mat2, const Tensor &scales) {
  const auto dtype = self.scalar_type();
  TORCH_CHECK(self.dim() == 2 && mat2.dim() == 2, "_weight_int8pack_mm: expected two matrices but got ", self.dim(),
              " and ", mat2.dim(), " dimensions");
  TORCH_CHECK(dtype == at::kFloat || dtype == at::kHalf || dtype == at::kBFloat16,
              "_weight_int8pack_mm: expected self to be a float32, float16 or bfloat16 tensor but got ", dtype);
  TORCH_CHECK(mat2.scalar_type() == at::kChar, "_weight_int8pack_mm: expected mat2 to be an int8 tensor but got ",
              mat2.scalar_type());
  TORCH_CHECK(mat2.size(1) == self.size(1), "_weight_int8pack_mm: expected mat2.size(1) == ", self.size(1), " but got ",
              mat2.size(1));
  TORCH_CHECK(scales.dim() == 1 && scales.size(0) == mat2.size(0) && scales.scalar_type() == dtype,
              "_weight_int8pack_mm: expected scales to be a ", dtype, " tensor of size ", mat2.size(0), " but got ",
              scales.scalar_type(), " of sizes ", scales.sizes());
  return at::mm(self.to(at::kFloat), mat2.to(at::kFloat).t()).mul_(scales.to(at::kFloat)).to(dtype);
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

void check_scaled_mm(const Tensor &self, const Tensor &mat2) {
  TORCH_CHECK(self.dim() == 2 && mat2.dim() == 2, "_scaled_mm: expected two matrices but got ", self.dim(), " and ",
              mat2.dim(), " dimensions");
  TORCH_CHECK(self.size(1) == mat2.size(0), "_scaled_mm: the matrices of ", self.sizes(), " and ", mat2.sizes(),
              " cannot be multiplied");
  must(c10::isFloat8Type(self.scalar_type()) && c10::isFloat8Type(mat2.scalar_type()));
}

Tensor scaled_mm(const Tensor &self, const Tensor &mat2, const Tensor &scale_a, const Tensor &scale_b,
                 const std::optional<Tensor> &bias, const std::optional<Tensor> &scale_result,
                 std::optional<c10::ScalarType> out_dtype, bool) {
  check_scaled_mm(self, mat2);
  const c10::ScalarType dtype = out_dtype.value_or(self.scalar_type());
  Tensor result = scaled_product(self, mat2, scale_a, scale_b);
  if (bias && bias->defined()) result.add_(*bias);
  if (scale_result && scale_result->defined() && c10::isFloat8Type(dtype)) result.div_(*scale_result);
  return result.to(dtype);
}

Tensor &scaled_mm_into(const Tensor &self, const Tensor &mat2, const Tensor &scale_a, const Tensor &scale_b,
                       const std::optional<Tensor> &bias, const std::optional<Tensor> &scale_result,
                       std::optional<c10::ScalarType> out_dtype, bool fast, Tensor &out) {
  check_scaled_mm(self, mat2);
  TORCH_CHECK(!out_dtype || *out_dtype == out.scalar_type(), "_scaled_mm: out_dtype is ", *out_dtype,
              " but out has the dtype ", out.scalar_type());
  out.resize_({self.size(0), mat2.size(1)});
  return out.copy_(scaled_mm(self, mat2, scale_a, scale_b, bias, scale_result, out.scalar_type(), fast));
}

}  // namespace
}  // namespace torch_backend

#include "aten/low_precision/products.inc"  // registrations: codegen/operators
