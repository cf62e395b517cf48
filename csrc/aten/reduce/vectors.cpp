// vectors.cpp: products and norms of vectors that are composed of other operators: addmv, linalg_cross, renorm,
// distances.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/ExpandUtils.h>
#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/Cross.h>
#include <ATen/native/Normalization.h>
#include <ATen/ops/_addmm_activation_meta.h>
#include <ATen/ops/_addmm_activation_ops.h>
#include <ATen/ops/_cdist_forward_ops.h>
#include <ATen/ops/_euclidean_dist.h>
#include <ATen/ops/addmm_ops.h>
#include <ATen/ops/addmv_meta.h>
#include <ATen/ops/addmv_ops.h>
#include <ATen/ops/gelu_ops.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/mul_ops.h>
#include <ATen/ops/relu_ops.h>
#include <ATen/ops/where.h>

#include "aten/prepare/structured_calls.h"
#include "hal_op_ids.h"

namespace torch_backend {
namespace {

// ---- addmv: the vector as a matrix with one column ----

bool addmv(const Outputs &outputs, const at::Tensor &self, const at::Tensor &mat, const at::Tensor &vec,
           const c10::Scalar &beta, const c10::Scalar &alpha) {
  const at::Tensor added = self.dim() == 1 ? self.unsqueeze(1) : self, column = vec.unsqueeze(1);
  const at::Tensor result = outputs[0].unsqueeze(1);
  const KernelArgument arguments[] = {operand(added), operand(mat), operand(column), number(beta), number(alpha)};
  return run_matrix_product(HAL_OP_ID_ADDMM, Outputs(Form::kOut, result), arguments);
}

// ---- a product, a sum and an activation in one operator, for fast paths of torch.nn ----

bool addmm_activation(const Outputs &outputs, const at::Tensor &self, const at::Tensor &a, const at::Tensor &b,
                      const c10::Scalar &beta, const c10::Scalar &alpha, bool use_gelu) {
  at::Tensor result = outputs[0];
  at::_ops::addmm_out::call(self, a, b, beta, alpha, result);
  use_gelu ? at::_ops::gelu_::call(result, "none") : at::_ops::relu_::call(result);
  return true;
}

// ---- the vector product of three components ----

void vector_product(const at::Tensor &result, const at::Tensor &a, const at::Tensor &b, const int64_t dim) {
  must(computing_dtype(result.device().index(), HAL_OP_ID_ADDCMUL, result.scalar_type()).has_value());
  const Destination destination(result, result.scalar_type(), overlaps(result, a, true) || overlaps(result, b, true));
  for (int64_t i = 0; i < 3; i++) {
    at::Tensor component = destination.tensor().select(dim, i);
    const int64_t next = (i + 1) % 3, last = (i + 2) % 3;
    at::_ops::mul_out::call(a.select(dim, next), b.select(dim, last), component);
    component.addcmul_(a.select(dim, last), b.select(dim, next), -1);
  }
  destination.finish();
}

// ---- renorm: scales parts of a tensor whose norm exceeds `largest` down to it ----

void shorten(at::TensorIteratorBase &it, double largest) {
  const at::Tensor &lengths = it.tensor(1);
  it.tensor(0).copy_(at::where(lengths.gt(largest), lengths.add(1e-7).reciprocal().mul(largest), c10::Scalar(1.0)));
}

// ---- distances between the rows of two batches of matrices ----

bool cdist(Outputs &outputs, const at::Tensor &x1, const at::Tensor &x2, double p, std::optional<int64_t> mode) {
  const bool native = x1.dim() >= 2 && x2.dim() >= 2 && x1.scalar_type() == x2.scalar_type() &&
                      x1.size(-1) == x2.size(-1) && x1.numel() && x2.numel() &&
                      computing_dtype(x1.device().index(), HAL_OP_ID_LINALG_VECTOR_NORM, x1.scalar_type());
  if (!native) return false;
  // ATen's rule for products instead of differences: the default uses products for more than 25 rows.
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
    outputs.put(0, at::_euclidean_dist(spread(x1), spread(x2)));
  } else {
    outputs.put(0, at::linalg_vector_norm(x1.unsqueeze(-2).sub(x2.unsqueeze(-3)), p, c10::IntArrayRef{-1}, false));
  }
  return true;
}

}  // namespace
}  // namespace torch_backend

#include "aten/reduce/vectors.inc"  // registrations: codegen/operators
