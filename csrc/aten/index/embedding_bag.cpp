// embedding_bag.cpp: sums, means and maxima of embedded words by bags, and their gradients, composed of indexing
// operators.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/zeros.h>

#include <tuple>

namespace torch_backend {
namespace {

constexpr int64_t kSum = 0, kMean = 1, kMax = 2;  // at::native::EmbeddingBagMode
using Result = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

// Returns the bag of each word: the last one that starts at or before it.
at::Tensor bags_of(const at::Tensor &offsets, int64_t words) {
  const at::Tensor positions = at::arange(words, offsets.options());
  return at::searchsorted(offsets, positions, /*out_int32=*/offsets.scalar_type() == at::kInt, /*right=*/true).sub(1);
}

// Returns 1 for words that count, 0 for padding.
at::Tensor weights_of(const at::Tensor &words, int64_t padding, const at::TensorOptions &options) {
  return padding < 0 ? at::ones(words.sizes(), options) : words.ne(padding).to(options);
}

// Returns the first word of each bag, and of each column, with the maximum; 0 for an empty bag.
Result maxima(const at::Tensor &rows, const at::Tensor &words, const at::Tensor &bags, const at::Tensor &counts,
              const at::Tensor &sizes) {
  const int64_t n = words.size(0), columns = rows.size(1), number = sizes.size(0);
  const at::Tensor hidden = rows.masked_fill(counts.eq(0).unsqueeze(1), -INFINITY);
  at::Tensor top = at::full({number, columns}, -INFINITY, rows.options());
  top.index_reduce_(0, bags, hidden, "amax", /*include_self=*/true);
  const at::Tensor wins = hidden.eq(top.index_select(0, bags)).logical_and(counts.ne(0).unsqueeze(1));
  const at::Tensor positions = at::arange(n, words.options()).unsqueeze(1).expand({n, columns});
  at::Tensor first = at::full({number, columns}, n, words.options());
  first.index_reduce_(0, bags, positions.masked_fill(wins.logical_not(), n), "amin", true);
  const at::Tensor empty = sizes.eq(0).unsqueeze(1);
  const at::Tensor chosen = first.clamp_max(std::max<int64_t>(n - 1, 0));
  const at::Tensor indices = n ? words.index_select(0, chosen.reshape(-1)).view({number, columns}) : chosen;
  return {top.masked_fill(empty, 0), bags, sizes, indices.masked_fill(empty, 0)};
}

Result embedding_bag(const at::Tensor &weight, const at::Tensor &indices, const at::Tensor &offsets, bool, int64_t mode,
                     bool, const std::optional<at::Tensor> &per_sample_weights, bool include_last_offset,
                     int64_t padding_idx) {
  TORCH_CHECK(indices.dim() == 1 || indices.dim() == 2,
              "input has to be a 1D or 2D Tensor, but got Tensor of dimension ", indices.dim());
  TORCH_CHECK(weight.dim() == 2, "weight has to be a 2D Tensor, but got Tensor of dimension ", weight.dim());
  TORCH_CHECK(offsets.dim() == 1, "offsets has to be a 1D Tensor, but got Tensor of dimension ", offsets.dim());
  const bool weighted = per_sample_weights && per_sample_weights->defined();
  TORCH_CHECK(!weighted || mode == kSum,
              "embedding_bag: per_sample_weights was not None. per_sample_weights is only "
              "supported for mode='sum' (got mode=",
              mode, ")");
  // Positions and counts have the dtype of the indices, as the gradient's checks expect.
  const c10::ScalarType dtype = c10::promoteTypes(indices.scalar_type(), offsets.scalar_type());
  const at::Tensor words = indices.reshape(-1).to(dtype);
  const int64_t number = offsets.size(0) - (include_last_offset ? 1 : 0);
  const at::Tensor bags = bags_of(offsets.narrow(0, 0, number).to(dtype), words.size(0));
  const at::Tensor counts = weights_of(words, padding_idx, words.options());
  at::Tensor sizes = at::zeros({number}, words.options());
  sizes.index_add_(0, bags, counts);
  const at::Tensor rows = weight.index_select(0, words);
  if (mode == kMax) return maxima(rows, words, bags, counts, sizes);
  at::Tensor factors = counts.to(weight.scalar_type());
  if (weighted) factors = factors.mul(per_sample_weights->reshape(-1));
  at::Tensor output = at::zeros({number, weight.size(1)}, weight.options());
  output.index_add_(0, bags, rows.mul(factors.unsqueeze(1)));
  if (mode == kMean) output = output.div(sizes.clamp_min(1).to(weight.scalar_type()).unsqueeze(1));
  return {output, bags, sizes, at::zeros({0}, words.options())};
}

// Adds the gradient of each word's row to the rows of the weight.
at::Tensor embedding_bag_backward(const at::Tensor &grad, const at::Tensor &indices, const at::Tensor &bags,
                                  const at::Tensor &sizes, const at::Tensor &maximum_indices, int64_t num_weights,
                                  bool scale_grad_by_freq, int64_t mode,
                                  const std::optional<at::Tensor> &per_sample_weights, int64_t padding_idx) {
  const at::Tensor words = indices.reshape(-1).to(at::kLong);
  at::Tensor result = at::zeros({num_weights, grad.size(1)}, grad.options());
  if (mode == kMax) {
    const at::Tensor kept = grad.masked_fill(sizes.eq(0).unsqueeze(1), 0);
    return result.scatter_add_(0, maximum_indices.to(at::kLong), kept);
  }
  at::Tensor factors = weights_of(words, padding_idx, grad.options());
  if (per_sample_weights && per_sample_weights->defined()) factors = factors.mul(per_sample_weights->reshape(-1));
  if (mode == kMean) factors = factors.div(sizes.clamp_min(1).to(grad.scalar_type()).index_select(0, bags));
  if (scale_grad_by_freq) {
    at::Tensor uses = at::zeros({num_weights}, grad.options());
    uses.index_add_(0, words, at::ones(words.sizes(), grad.options()));
    factors = factors.div(uses.index_select(0, words));
  }
  return result.index_add_(0, words, grad.index_select(0, bags).mul(factors.unsqueeze(1)));
}

at::Tensor per_sample_backward(const at::Tensor &grad, const at::Tensor &weight, const at::Tensor &indices,
                               const at::Tensor &, const at::Tensor &bags, int64_t, int64_t padding_idx) {
  const at::Tensor words = indices.reshape(-1).to(at::kLong);
  const at::Tensor products = grad.index_select(0, bags).mul(weight.index_select(0, words)).sum(1);
  return products.mul(weights_of(words, padding_idx, grad.options()));
}

}  // namespace
}  // namespace torch_backend

#include "aten/index/embedding_bag.inc"  // registrations: codegen/operators
