// index_reduce.cpp: values combined at the places of an index: scatter_add, scatter_reduce, index_add, index_reduce and the
// backward of embedding. Sums have one order, that of the index, however a launch is divided.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/ExpandUtils.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/native/ReductionType.h>
#include <ATen/ops/embedding_dense_backward_ops.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <cmath>
#include <limits>

#include "aten/fallback/fallback_call.h"
#include "aten/index/index_call.h"
#include "aten/prepare/shells.h"
#include "hal_op_ids.h"

namespace torch_backend {

namespace {

// Both in the shape of the index: [.., n, ..] or a vector along `dim`.
struct Places {
  at::Tensor index;
  int64_t dim;
  bool vector;
};

bool combine_into(uint32_t op, const at::Tensor &result, const Places &places, const at::Tensor &src, Combine combine) {
  if (result.dim() == 0)
    return combine_into(op, result.unsqueeze(0), {places.index.reshape(-1), 0, places.vector}, src.reshape(-1),
                        combine);
  return with_combining_dtype(result, src, combine, [&](const at::Tensor &to, const at::Tensor &from) {
    Strided target(to), source(from);
    if (places.vector) {
      Strided index(places.index, from.sizes(), places.dim);
      return run_combine(op, to.device().index(), target, places.dim, index, source, combine);
    }
    Strided index(places.index);
    const bool parts = to.dim() > result.dim();  // complex numbers have a dimension more
    source.narrowed(places.index.sizes());
    if (parts) index.insert(index.dim(), 2, 0);
    return run_combine(op, to.device().index(), target, places.dim, index, source, combine);
  });
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

bool supports(const at::Tensor &result, Combine combine) {
  return combining_dtype(result.scalar_type()) || (result.is_complex() && combine == Combine::kSum);
}

}  // namespace

bool run_scatter_add(const Outputs &outputs, const at::Tensor &self, int64_t dim, const at::Tensor &index,
                     const at::Tensor &src) {
  if (!supports(self, Combine::kSum)) return false;
  const at::Tensor &result = started(outputs, self);
  if (index.numel() == 0) return true;
  const Places places{long_index(index), at::maybe_wrap_dim(dim, self.dim()), false};
  return combine_into(HAL_OP_ID_SCATTER_REDUCE_TWO, result, places, src.resolve_conj().resolve_neg(), Combine::kSum);
}

bool run_scatter_reduce_two(const Outputs &outputs, const at::Tensor &self, int64_t dim, const at::Tensor &index,
                            const at::Tensor &src, std::string_view reduce, bool include_self) {
  const auto type = at::native::get_operator_enum(reduce, true);
  if (!supports(self, combine_of(type))) return false;
  at::Tensor result = started(outputs, self);
  if (index.numel() == 0) return true;
  const Places places{long_index(index), at::maybe_wrap_dim(dim, self.dim()), false};
  if (!include_self) result.scatter_(dim, places.index, identity_of(type, result.scalar_type()));
  if (!combine_into(HAL_OP_ID_SCATTER_REDUCE_TWO, result, places, src.resolve_conj().resolve_neg(), combine_of(type)))
    return false;
  if (type != at::native::ReductionType::MEAN) return true;
  const auto options = result.options();
  at::Tensor counts = include_self ? at::ones(result.sizes(), options) : at::zeros(result.sizes(), options);
  counts.scatter_add_(dim, places.index, at::ones(src.sizes(), options));
  divide_by_counts(result, counts);
  return true;
}

bool run_scatter_reduce(const Outputs &outputs, const at::Tensor &self, int64_t dim, const at::Tensor &index,
                        const at::Tensor &src, std::string_view reduce) {
  const auto type = at::native::get_operator_enum(reduce, false);
  if (!supports(self, combine_of(type))) return false;
  const at::Tensor &result = started(outputs, self);
  if (index.numel() == 0) return true;
  const Places places{long_index(index), at::maybe_wrap_dim(dim, self.dim()), false};
  return combine_into(HAL_OP_ID_SCATTER_REDUCE_TWO, result, places, src.resolve_conj().resolve_neg(), combine_of(type));
}

bool run_scatter_value_reduce(const Outputs &outputs, const at::Tensor &self, int64_t dim, const at::Tensor &index,
                              const at::Scalar &number, std::string_view reduce) {
  at::Tensor element = make_empty({}, self.scalar_type(), self.device().index());
  element.fill_(number);
  return run_scatter_reduce(outputs, self, dim, index, element.expand(index.sizes()), reduce);
}

// The meta functions of the index_ family leave the source of a tensor without dimensions as it came: 0 or 1 of them.
static at::Tensor like_rows(const at::Tensor &result, const at::Tensor &source) {
  return result.dim() == 0 ? source.reshape({-1}) : source.dim() == 0 ? source.unsqueeze(0) : source;
}

bool run_index_add(const Outputs &outputs, const at::Tensor &self, int64_t dim, const at::Tensor &index,
                   const at::Tensor &source, const at::Scalar &alpha) {
  if (!supports(self, Combine::kSum)) return false;
  const at::Tensor &result = started(outputs, self);
  if (index.numel() == 0 || source.numel() == 0) return true;
  at::Tensor src = like_rows(result, source.resolve_conj().resolve_neg());
  if (!alpha.equal(1)) src = src.mul(alpha);
  if (src.scalar_type() != result.scalar_type()) src = src.to(result.scalar_type());
  const at::Tensor rows = result.dim() == 0 ? result.unsqueeze(0) : result;
  const Places places{long_index(index), at::maybe_wrap_dim(dim, self.dim()), true};
  return combine_into(HAL_OP_ID_INDEX_REDUCE, rows, places, src, Combine::kSum);
}

bool run_index_reduce(const Outputs &outputs, const at::Tensor &self, int64_t dim, const at::Tensor &index,
                      const at::Tensor &source, std::string_view reduce, bool include_self) {
  const auto type = at::native::get_operator_enum(reduce, true);
  if (!supports(self, combine_of(type))) return false;
  const at::Tensor &result = started(outputs, self);
  if (index.numel() == 0 || source.numel() == 0) return true;
  at::Tensor rows = result.dim() == 0 ? result.unsqueeze(0) : result;
  const at::Tensor src = like_rows(result, source.resolve_conj().resolve_neg());
  const Places places{long_index(index), at::maybe_wrap_dim(dim, self.dim()), true};
  if (!include_self) rows.index_fill_(dim, places.index.reshape(-1), identity_of(type, result.scalar_type()));
  if (!combine_into(HAL_OP_ID_INDEX_REDUCE, rows, places, src, combine_of(type))) return false;
  if (type != at::native::ReductionType::MEAN) return true;
  const auto options = result.options();
  at::Tensor counts = include_self ? at::ones(rows.sizes(), options) : at::zeros(rows.sizes(), options);
  counts.index_add_(dim, places.index.reshape(-1), at::ones(src.sizes(), options));
  divide_by_counts(rows, counts);
  return true;
}

namespace {

// Gradients of equal words are summed in the order of the text.
at::Tensor embedding_dense_backward(const at::Tensor &grad_output, const at::Tensor &indices, int64_t num_weights,
                                    int64_t padding_idx, bool scale_grad_by_freq) {
  TORCH_CHECK(
      indices.scalar_type() == at::kLong || indices.scalar_type() == at::kInt,
      "Expected tensor for argument #2 'indices' to have one of the following scalar types: Long, Int; but got ",
      indices.toString(), " instead (while checking arguments for embedding_backward)");
  if (grad_output.device() != indices.device()) throw_two_devices(grad_output.device(), indices.device());
  const at::Tensor words = long_index(indices).reshape(-1);
  at::Tensor grads = grad_output.reshape({words.numel(), grad_output.size(-1)});
  at::Tensor result = at::zeros({num_weights, grad_output.size(-1)}, grad_output.options());
  if (words.numel() == 0 || result.numel() == 0) return result;
  if (scale_grad_by_freq) {
    const auto options = grads.options().dtype(combining_dtype(grads.scalar_type()).value_or(grads.scalar_type()));
    const at::Tensor counts =
        at::zeros({num_weights}, options).index_add_(0, words, at::ones({words.numel()}, options));
    grads = grads.div(counts.index_select(0, words).unsqueeze(1)).to(grad_output.scalar_type());
  }
  if (!combine_into(HAL_OP_ID_EMBEDDING_DENSE_BACKWARD, result, {words, 0, true}, grads, Combine::kSum))
    return call_fallback<at::_ops::embedding_dense_backward>(grad_output, indices, num_weights, padding_idx,
                                                             scale_grad_by_freq);
  if (padding_idx >= 0 && padding_idx < num_weights) result.select(0, padding_idx).zero_();
  return result;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { m.impl("embedding_dense_backward", TORCH_FN(embedding_dense_backward)); }

}  // namespace torch_backend
