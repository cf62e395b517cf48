// index_reduce.cpp: values combined at the places of an index: scatter_add, scatter_reduce, index_add, index_reduce and the
// backward of embedding. Sums have one order, that of the index, however a launch is divided.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/ExpandUtils.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/native/ReductionType.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/view_as_real.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <limits>

#include "aten/index/index_plan.h"
#include "aten/prepare/structured.h"
#include "hal_op_ids.h"

namespace torch_backend {
namespace {

// What combines an element with what is there; the numbers of ops.yaml.
enum class Combine : int64_t { kSum = 0, kProd = 1, kMax = 2, kMin = 3 };

// An index of the shape of its values, or a vector along dimension `dim` of them.
struct Places {
  const at::Tensor &index;
  int64_t dim;
  bool vector;
};

// A kernel combines such elements; complex sums are sums of parts.
bool supports(uint32_t op, const at::Tensor &result, Combine combine) {
  const auto dtype = result.is_complex() && combine == Combine::kSum ? c10::toRealValueType(result.scalar_type())
                                                                     : result.scalar_type();
  return computing(result.device().index(), op, dtype).has_value();
}

bool combine_into(uint32_t op, const at::Tensor &result, const Places &places, const at::Tensor &src, Combine combine) {
  if (result.dim() == 0) {
    const at::Tensor index = places.index.reshape(-1);
    return combine_into(op, result.unsqueeze(0), {index, 0, places.vector}, src.reshape(-1), combine);
  }
  const bool parts = result.is_complex();
  Call call(op, parts ? at::view_as_real(result) : result);
  if (!call.possible()) return false;
  call.put(places.dim).index(places.index);
  Operand &index = call.last();
  if (places.vector) index.along(src.sizes(), places.dim);
  if (parts) index.insert(index.dim(), 2, 0);
  call.in(parts ? at::view_as_real(resolved(src)) : src);
  if (!places.vector) call.last().narrow(places.index.sizes());
  return call.put(static_cast<int64_t>(combine)).update(parts ? at::view_as_real(result) : result).run();
}

Combine combine_of(at::native::ReductionType reduce) {
  switch (reduce) {
    case at::native::ReductionType::PROD:
      return Combine::kProd;
    case at::native::ReductionType::MAX:
      return Combine::kMax;
    case at::native::ReductionType::MIN:
      return Combine::kMin;
    default:  // a mean is a sum, divided at the end
      return Combine::kSum;
  }
}

// The value that changes nothing.
at::Scalar identity_of(at::native::ReductionType reduce, c10::ScalarType dtype) {
  if (combine_of(reduce) == Combine::kSum) return 0;
  if (combine_of(reduce) == Combine::kProd) return 1;
  const bool largest = combine_of(reduce) == Combine::kMin;
  if (c10::isFloatingType(dtype)) return largest ? INFINITY : -INFINITY;
  if (dtype == at::kBool) return largest;
  const int64_t bits = 8 * static_cast<int64_t>(c10::elementSize(dtype));
  if (dtype == at::kByte) return largest ? 255 : 0;
  const auto top = static_cast<int64_t>(std::numeric_limits<uint64_t>::max() >> (65 - bits));
  return largest ? top : -top - 1;
}

// Divides the sums of a mean by the number of values in each, the start value included when it counts.
void divide_by_counts(const at::Tensor &result, at::Tensor counts) {
  counts.masked_fill_(counts.eq(0), 1);
  if (result.is_floating_point() || result.is_complex())
    result.div_(counts);
  else
    result.div_(counts, "floor");
}

// The meta functions of the index_ family leave the source of a tensor without dimensions as it came: 0 or 1 of them.
at::Tensor like_rows(const at::Tensor &result, const at::Tensor &source) {
  return result.dim() == 0 ? source.reshape({-1}) : source.dim() == 0 ? source.unsqueeze(0) : source;
}

// Combines with `self`, or with the value that changes nothing where it does not count: at the places of an index of the shape of
// `src` (scatter_), or of a vector (index_).
bool combine(uint32_t op, bool vector, const Outputs &outputs, const at::Tensor &self, int64_t dim,
             const at::Tensor &index, const at::Tensor &src, at::native::ReductionType reduce,
             bool include_self = true) {
  if (!supports(op, self, combine_of(reduce))) return false;
  const at::Tensor &whole = outputs.start(0, self);
  if (index.numel() == 0 || src.numel() == 0) return true;
  at::Tensor result = vector && whole.dim() == 0 ? whole.unsqueeze(0) : whole;
  const at::Tensor places = vector ? long_index(index).reshape(-1) : long_index(index);
  const at::Tensor values = vector ? like_rows(whole, src) : src;
  if (!include_self) {
    const at::Scalar start = identity_of(reduce, result.scalar_type());
    vector ? result.index_fill_(dim, places, start) : result.scatter_(dim, places, start);
  }
  const int64_t axis = at::maybe_wrap_dim(dim, self.dim());
  if (!combine_into(op, result, {places, axis, vector}, values, combine_of(reduce))) return false;
  if (reduce != at::native::ReductionType::MEAN) return true;
  at::Tensor counts = at::full(result.sizes(), include_self ? 1 : 0, result.options());
  const at::Tensor ones = at::ones(values.sizes(), result.options());
  vector ? counts.index_add_(dim, places, ones) : counts.scatter_add_(dim, places, ones);
  divide_by_counts(result, counts);
  return true;
}

bool run_scatter_add(const Outputs &outputs, const at::Tensor &self, int64_t dim, const at::Tensor &index,
                     const at::Tensor &src) {
  return combine(HAL_OP_ID_SCATTER_REDUCE_LINES, false, outputs, self, dim, index, src, at::native::ReductionType::SUM);
}

bool run_scatter_reduce_two(const Outputs &outputs, const at::Tensor &self, int64_t dim, const at::Tensor &index,
                            const at::Tensor &src, std::string_view reduce, bool include_self) {
  return combine(HAL_OP_ID_SCATTER_REDUCE_LINES, false, outputs, self, dim, index, src,
                 at::native::get_operator_enum(reduce, true), include_self);
}

bool run_scatter_reduce(const Outputs &outputs, const at::Tensor &self, int64_t dim, const at::Tensor &index,
                        const at::Tensor &src, std::string_view reduce) {
  return combine(HAL_OP_ID_SCATTER_REDUCE_LINES, false, outputs, self, dim, index, src,
                 at::native::get_operator_enum(reduce, false));
}

bool run_scatter_value_reduce(const Outputs &outputs, const at::Tensor &self, int64_t dim, const at::Tensor &index,
                              const at::Scalar &number, std::string_view reduce) {
  return run_scatter_reduce(outputs, self, dim, index, element_of(number, self).expand(index.sizes()), reduce);
}

bool run_index_add(const Outputs &outputs, const at::Tensor &self, int64_t dim, const at::Tensor &index,
                   const at::Tensor &source, const at::Scalar &alpha) {
  const at::Tensor src = alpha.equal(1) ? source : source.mul(alpha);
  return combine(HAL_OP_ID_INDEX_REDUCE_LINES, true, outputs, self, dim, index,
                 src.scalar_type() == self.scalar_type() ? src : src.to(self.scalar_type()),
                 at::native::ReductionType::SUM);
}

bool run_index_reduce(const Outputs &outputs, const at::Tensor &self, int64_t dim, const at::Tensor &index,
                      const at::Tensor &source, std::string_view reduce, bool include_self) {
  return combine(HAL_OP_ID_INDEX_REDUCE_LINES, true, outputs, self, dim, index, source,
                 at::native::get_operator_enum(reduce, true), include_self);
}

// Gradients of equal words are summed in the order of the text.
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
  if (!combine_into(kOp, result, {words, 0, true}, grads, Combine::kSum)) return false;
  if (padding_idx >= 0 && padding_idx < num_weights) result.select(0, padding_idx).zero_();
  return true;
}

}  // namespace
}  // namespace torch_backend

#include "aten/index/index_reduce.inc"  // registrations: `bodies` of codegen/ops.yaml
