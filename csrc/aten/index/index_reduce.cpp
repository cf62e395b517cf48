// index_reduce.cpp: values combined at indices: scatter_add, scatter_reduce, index_add, index_reduce and the backward
// of embedding. Sums are computed in the order of the index, however a launch is divided. ATen's implementations of the
// scatter_ family call these kernels.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/WrapDimUtils.h>
#include <ATen/native/ReductionType.h>
#include <ATen/native/TensorAdvancedIndexing.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scatter_reduce_native.h>
#include <ATen/ops/scatter_reduce_ops.h>
#include <ATen/ops/view_as_real.h>
#include <ATen/ops/zeros.h>

#include "aten/index/index_plan.h"
#include "aten/prepare/structured.h"
#include "hal_op_ids.h"

namespace torch_backend {
namespace {

using at::native::ReductionType;

// Returns the kernels' number of a reduction; a mean is a sum that is divided at the end.
int64_t number_of(ReductionType reduce) {
  return reduce == ReductionType::PROD ? 1 : reduce == ReductionType::MAX ? 2 : reduce == ReductionType::MIN ? 3 : 0;
}

// Returns a vector along dimension `dim` of `sizes`.
at::Tensor spread(const at::Tensor &index, int64_t dim, c10::IntArrayRef sizes) {
  at::DimVector shape(sizes.size(), 1);
  if (!shape.empty()) shape[static_cast<size_t>(dim)] = index.numel();
  return long_index(index).reshape(shape).expand(sizes);
}

// Complex sums are computed as sums of parts.
at::Tensor parts_of(const at::Tensor &tensor, bool complex) {
  return complex ? at::view_as_real(resolved(tensor)) : tensor;
}

// Combines the elements of `src` at the indices, one for each element.
bool combine_into(uint32_t op, const at::Tensor &result, int64_t dim, const at::Tensor &index, const at::Tensor &src,
                  ReductionType reduce) {
  if (result.dim() == 0) return combine_into(op, result.unsqueeze(0), 0, index.reshape(-1), src.reshape(-1), reduce);
  const bool complex = result.is_complex();
  const at::Tensor target = parts_of(result, complex);
  Call call(op, target);
  if (!call.possible() || (complex && number_of(reduce) != 0)) return false;
  call.put(dim).index(index);
  if (complex) call.last().insert(call.last().dim(), 2, 0);
  call.in(parts_of(src, complex)).with(&Operand::narrow, index.sizes());
  return call.put(number_of(reduce)).update(target).run();
}

void scatter_with(const at::Tensor &result, const int64_t dim, const at::Tensor &index, const at::Tensor &src,
                  const ReductionType &reduce) {
  must(combine_into(HAL_OP_ID_SCATTER_REDUCE_LINES, result, dim, index, src, reduce));
}

void scatter_sums(const at::Tensor &result, int64_t dim, const at::Tensor &index, const at::Tensor &src) {
  scatter_with(result, dim, index, src, ReductionType::SUM);
}

void scatter_number_with(const at::Tensor &result, const int64_t dim, const at::Tensor &index, const at::Scalar &number,
                         const ReductionType &reduce) {
  scatter_with(result, dim, index, element_of(number, result).expand(index.sizes()), reduce);
}

// ATen's implementation overwrites the existing elements before it calls the kernel if they are excluded.
bool scatter_reduce(Outputs &outputs, const at::Tensor &self, int64_t dim, const at::Tensor &index,
                    const at::Tensor &src, std::string_view reduce, bool include_self) {
  const auto dtype = self.is_complex() && number_of(at::native::get_operator_enum(reduce, true)) == 0
                         ? c10::toRealValueType(self.scalar_type())
                         : self.scalar_type();
  if (!computing(self.device().index(), HAL_OP_ID_SCATTER_REDUCE_LINES, dtype)) return false;
  Structured<at::native::structured_scatter_reduce_two> structured(outputs);
  structured.impl(self, dim, index, src, reduce, include_self, outputs[0]);
  return true;
}

bool index_reduce(Outputs &outputs, const at::Tensor &self, int64_t dim, const at::Tensor &index,
                  const at::Tensor &source, std::string_view reduce, bool include_self) {
  const at::Tensor indices = spread(index, at::maybe_wrap_dim(dim, source.dim()), source.sizes());
  return scatter_reduce(outputs, self, dim, indices, source, reduce, include_self);
}

bool index_add(const Outputs &outputs, const at::Tensor &self, int64_t dim, const at::Tensor &index,
               const at::Tensor &source, const at::Scalar &factor) {
  const at::Tensor &result = outputs.start(0, self);
  if (index.numel() == 0 || source.numel() == 0) return true;
  // The meta function does not change the source of a tensor of 0 or 1 dimensions, which has 0 or 1 dimensions itself.
  const at::Tensor rows = self.dim() <= 1 ? source.reshape(-1) : source;
  const c10::Scalar alpha = as_number_of(factor, self.scalar_type());
  const at::Tensor src = (alpha.equal(1) ? rows : rows.mul(alpha)).to(self.scalar_type());
  dim = at::maybe_wrap_dim(dim, self.dim());
  return combine_into(HAL_OP_ID_INDEX_REDUCE_LINES, result, dim, spread(index, dim, src.sizes()), src,
                      ReductionType::SUM);
}

// Gradients of equal words are added in the order of the text.
bool embedding_backward(Outputs &outputs, const at::Tensor &grad_output, const at::Tensor &indices, int64_t num_weights,
                        int64_t padding_idx, bool scale_grad_by_freq) {
  TORCH_CHECK(
      indices.scalar_type() == at::kLong || indices.scalar_type() == at::kInt,
      "Expected tensor for argument #2 'indices' to have one of the following scalar types: Long, Int; but got ",
      indices.toString(), " instead (while checking arguments for embedding_backward)");
  constexpr uint32_t kOp = HAL_OP_ID_EMBEDDING_DENSE_BACKWARD_LINES;
  const auto computing = computing_dtype(grad_output.device().index(), kOp, grad_output.scalar_type());
  if (!computing) return false;
  const at::Tensor words = long_index(indices).reshape(-1);
  at::Tensor grads = grad_output.reshape({words.numel(), grad_output.size(-1)});
  at::Tensor result = outputs.make(0, {num_weights, grad_output.size(-1)}, grad_output);
  result.zero_();
  if (words.numel() == 0 || result.numel() == 0) return true;
  if (scale_grad_by_freq) {
    const auto options = grads.options().dtype(*computing);
    const at::Tensor counts =
        at::zeros({num_weights}, options).index_add_(0, words, at::ones({words.numel()}, options));
    grads = grads.div(counts.index_select(0, words).unsqueeze(1)).to(grad_output.scalar_type());
  }
  if (!combine_into(kOp, result, 0, spread(words, 0, grads.sizes()), grads, ReductionType::SUM)) return false;
  if (padding_idx >= 0 && padding_idx < num_weights) result.select(0, padding_idx).zero_();
  return true;
}

}  // namespace
}  // namespace torch_backend

#include "aten/index/index_reduce.inc"  // registrations: codegen/operators
