// vectors.cpp: products and lengths of vectors that are made of other operators: addmv, linalg_cross, renorm, norm,
// distances.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/ExpandUtils.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_cdist_forward_ops.h>
#include <ATen/ops/_euclidean_dist.h>
#include <ATen/ops/addmv_meta.h>
#include <ATen/ops/addmv_ops.h>
#include <ATen/ops/linalg_cross_meta.h>
#include <ATen/ops/linalg_cross_ops.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/linalg_vector_norm_ops.h>
#include <ATen/ops/mul_ops.h>
#include <ATen/ops/renorm_meta.h>
#include <ATen/ops/renorm_ops.h>
#include <ATen/ops/where.h>
#include <torch/library.h>

#include "aten/prepare/structured_calls.h"
#include "hal_op_ids.h"

namespace torch_backend {
namespace {

// ---- addmv: the vector is a matrix with one column ----

bool run_addmv(Outputs &outputs, const at::Tensor &self, const at::Tensor &mat, const at::Tensor &vec,
               const c10::Scalar &beta, const c10::Scalar &alpha) {
  const Argument given[] = {operand(self), operand(mat), operand(vec)};
  if (!may_run_natively(HAL_OP_ID_ADDMM, given)) return false;
  check_one_device(outputs, given);
  Structured<at::meta::structured_addmv> structured(outputs);
  structured.meta(self, mat, vec, beta, alpha);
  const at::Tensor added = self.dim() == 1 ? self.unsqueeze(1) : self, column = vec.unsqueeze(1);
  const at::Tensor result = outputs[0].unsqueeze(1);
  const Argument arguments[] = {operand(added), operand(mat), operand(column), number(beta), number(alpha)};
  return run_matrix_product(HAL_OP_ID_ADDMM, Outputs(Form::kOut, result), arguments);
}

at::Tensor addmv(const at::Tensor &self, const at::Tensor &mat, const at::Tensor &vec, const c10::Scalar &beta,
                 const c10::Scalar &alpha) {
  Outputs outputs;
  if (run_addmv(outputs, self, mat, vec, beta, alpha)) return outputs.take(0);
  return call_fallback<at::_ops::addmv>(self, mat, vec, beta, alpha);
}

at::Tensor &addmv_out(const at::Tensor &self, const at::Tensor &mat, const at::Tensor &vec, const c10::Scalar &beta,
                      const c10::Scalar &alpha, at::Tensor &out) {
  Outputs outputs(Form::kOut, out);
  if (run_addmv(outputs, self, mat, vec, beta, alpha)) return out;
  return call_fallback<at::_ops::addmv_out>(self, mat, vec, beta, alpha, out);
}

at::Tensor &addmv_inplace(at::Tensor &self, const at::Tensor &mat, const at::Tensor &vec, const c10::Scalar &beta,
                          const c10::Scalar &alpha) {
  Outputs outputs(Form::kInplace, self);
  if (run_addmv(outputs, self, mat, vec, beta, alpha)) return self;
  return call_fallback<at::_ops::addmv_>(self, mat, vec, beta, alpha);
}

// ---- the vector product of three components ----

bool run_cross(Outputs &outputs, const at::Tensor &self, const at::Tensor &other, int64_t dim) {
  if (!is_device_tensor(self) || !is_device_tensor(other) || self.scalar_type() != other.scalar_type() ||
      !has_kernel(self.device().index(), HAL_OP_ID_ADDCMUL, self.scalar_type()))
    return false;
  const Argument given[] = {operand(self), operand(other)};
  check_one_device(outputs, given);
  Structured<at::meta::structured_linalg_cross> structured(outputs);
  structured.meta(self, other, dim);
  const at::Tensor &result = outputs[0];
  const at::Tensor a = self.expand(result.sizes()), b = other.expand(result.sizes());
  const Destination destination(result, result.scalar_type(),
                                shares_storage(result, a, true) || shares_storage(result, b, true));
  for (int64_t i = 0; i < 3; i++) {
    at::Tensor component = destination.tensor().select(dim, i);
    const int64_t next = (i + 1) % 3, last = (i + 2) % 3;
    at::_ops::mul_out::call(a.select(dim, next), b.select(dim, last), component);
    component.addcmul_(a.select(dim, last), b.select(dim, next), -1);
  }
  destination.finish();
  return true;
}

at::Tensor cross(const at::Tensor &self, const at::Tensor &other, int64_t dim) {
  Outputs outputs;
  if (run_cross(outputs, self, other, dim)) return outputs.take(0);
  return call_fallback<at::_ops::linalg_cross>(self, other, dim);
}

at::Tensor &cross_out(const at::Tensor &self, const at::Tensor &other, int64_t dim, at::Tensor &out) {
  Outputs outputs(Form::kOut, out);
  if (run_cross(outputs, self, other, dim)) return out;
  return call_fallback<at::_ops::linalg_cross_out>(self, other, dim, out);
}

// ---- renorm: parts of a tensor that are longer than `largest` are shortened to it ----

bool run_renorm(Outputs &outputs, const at::Tensor &self, const c10::Scalar &p, int64_t dim,
                const c10::Scalar &largest) {
  if (!is_device_tensor(self) || !has_kernel(self.device().index(), HAL_OP_ID_LINALG_VECTOR_NORM, self.scalar_type()))
    return false;
  Structured<at::meta::structured_renorm> structured(outputs);
  structured.meta(self, p, dim, largest);
  const int64_t kept = at::maybe_wrap_dim(dim, self.dim());
  DimVector dims;
  for (int64_t d = 0; d < self.dim(); d++)
    if (d != kept) dims.push_back(d);
  const at::Tensor lengths = at::linalg_vector_norm(self, p, dims, true);
  const at::Tensor factors =
      at::where(lengths.gt(largest), lengths.add(1e-7).reciprocal().mul(largest), c10::Scalar(1.0));
  at::Tensor result = outputs[0];
  at::_ops::mul_out::call(self, factors.to(self.scalar_type()), result);
  return true;
}

at::Tensor renorm(const at::Tensor &self, const c10::Scalar &p, int64_t dim, const c10::Scalar &largest) {
  Outputs outputs;
  if (run_renorm(outputs, self, p, dim, largest)) return outputs.take(0);
  return call_fallback<at::_ops::renorm>(self, p, dim, largest);
}

at::Tensor &renorm_out(const at::Tensor &self, const c10::Scalar &p, int64_t dim, const c10::Scalar &largest,
                       at::Tensor &out) {
  Outputs outputs(Form::kOut, out);
  if (run_renorm(outputs, self, p, dim, largest)) return out;
  return call_fallback<at::_ops::renorm_out>(self, p, dim, largest, out);
}

at::Tensor &renorm_inplace(at::Tensor &self, const c10::Scalar &p, int64_t dim, const c10::Scalar &largest) {
  Outputs outputs(Form::kInplace, self);
  if (run_renorm(outputs, self, p, dim, largest)) return self;
  return call_fallback<at::_ops::renorm_>(self, p, dim, largest);
}

// ---- norm: the older name of linalg_vector_norm ----

at::Tensor norm(const at::Tensor &self, const std::optional<c10::Scalar> &p, c10::IntArrayRef dims, bool keepdim) {
  return at::linalg_vector_norm(self, p.value_or(2), dims, keepdim);
}

at::Tensor norm_dtype(const at::Tensor &self, const std::optional<c10::Scalar> &p, c10::IntArrayRef dims, bool keepdim,
                      c10::ScalarType dtype) {
  return at::linalg_vector_norm(self, p.value_or(2), dims, keepdim, dtype);
}

at::Tensor &norm_out(const at::Tensor &self, const std::optional<c10::Scalar> &p, c10::IntArrayRef dims, bool keepdim,
                     at::Tensor &out) {
  return at::_ops::linalg_vector_norm_out::call(self, p.value_or(2), dims, keepdim, std::nullopt, out);
}

at::Tensor &norm_dtype_out(const at::Tensor &self, const std::optional<c10::Scalar> &p, c10::IntArrayRef dims,
                           bool keepdim, c10::ScalarType dtype, at::Tensor &out) {
  return at::_ops::linalg_vector_norm_out::call(self, p.value_or(2), dims, keepdim, dtype, out);
}

// ---- distances between the rows of two batches of matrices ----

at::Tensor cdist(const at::Tensor &x1, const at::Tensor &x2, double p, std::optional<int64_t> mode) {
  const bool native = is_device_tensor(x1) && is_device_tensor(x2) && x1.dim() >= 2 && x2.dim() >= 2 &&
                      x1.scalar_type() == x2.scalar_type() && x1.size(-1) == x2.size(-1) && x1.numel() && x2.numel() &&
                      has_kernel(x1.device().index(), HAL_OP_ID_LINALG_VECTOR_NORM, x1.scalar_type());
  if (!native) return call_fallback<at::_ops::_cdist_forward>(x1, x2, p, mode);
  // ATen's rule for products instead of differences: the default does so for more than 25 rows.
  const bool many = x1.size(-2) > 25 || x2.size(-2) > 25;
  if (p == 2 && (mode.value_or(0) == 1 || (mode.value_or(0) == 0 && many))) {
    const auto batch = at::infer_size_dimvector(x1.sizes().slice(0, static_cast<size_t>(x1.dim() - 2)),
                                                x2.sizes().slice(0, static_cast<size_t>(x2.dim() - 2)));
    const auto spread = [&batch](const at::Tensor &x) {
      auto sizes = batch;
      sizes.push_back(x.size(-2));
      sizes.push_back(x.size(-1));
      return x.expand(sizes);
    };
    return at::_euclidean_dist(spread(x1), spread(x2));
  }
  return at::linalg_vector_norm(x1.unsqueeze(-2).sub(x2.unsqueeze(-3)), p, c10::IntArrayRef{-1}, false);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("addmv", TORCH_FN(addmv));
  m.impl("addmv.out", TORCH_FN(addmv_out));
  m.impl("addmv_", TORCH_FN(addmv_inplace));
  m.impl("linalg_cross", TORCH_FN(cross));
  m.impl("linalg_cross.out", TORCH_FN(cross_out));
  m.impl("renorm", TORCH_FN(renorm));
  m.impl("renorm.out", TORCH_FN(renorm_out));
  m.impl("renorm_", TORCH_FN(renorm_inplace));
  m.impl("norm.ScalarOpt_dim", TORCH_FN(norm));
  m.impl("norm.out", TORCH_FN(norm_out));
  m.impl("norm.ScalarOpt_dim_dtype", TORCH_FN(norm_dtype));
  m.impl("norm.dtype_out", TORCH_FN(norm_dtype_out));
  m.impl("_cdist_forward", TORCH_FN(cdist));
}

}  // namespace torch_backend
