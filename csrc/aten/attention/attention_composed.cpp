// attention_composed.cpp: scaled dot product attention, forward and backward, as matrix products and a softmax of the
// device. It serves calls that the fused kernel does not support: dropout, the weights as a result, the gradient of the
// bias, large heads. The weights are not stored but computed again in the backward pass, and so is the dropout, from
// the Philox state that the forward pass saved.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/OpMathType.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_softmax.h>
#include <ATen/ops/_softmax_backward_data.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>

#include <limits>

#include "aten/attention/attention.h"
#include "core/allocator/allocator.h"
#include "core/generator/generator.h"

namespace torch_backend {
namespace {

using at::Tensor;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Half precision is computed in float, as the CPU does.
Tensor widened(const Tensor &tensor) { return tensor.to(at::toOpMathType(tensor.scalar_type())); }

// The operands as batches of matrices in the computing dtype, with the query scaled.
struct Matrices {
  AttentionShapes shapes;
  double scale;
  Tensor query, key, value;

  Matrices(const Tensor &q, const Tensor &k, const Tensor &v, double given_scale)
      : shapes(attention_shapes(q, k, v)),
        scale(given_scale),
        query(widened(q).reshape({shapes.matrices(), shapes.rows(), q.size(-1)}).mul(scale)),
        key(widened(k).reshape({shapes.matrices(), shapes.keys, k.size(-1)})),
        value(widened(v).reshape({shapes.matrices(), shapes.keys, shapes.value_size})) {}

  // Returns a batch of matrices of weights as a tensor by (batch, head, query, key).
  Tensor by_head(const Tensor &weights) const {
    return weights.view({shapes.batch, shapes.heads, shapes.queries, shapes.keys});
  }
  Tensor by_matrix(const Tensor &weights) const {
    return weights.view({shapes.matrices(), shapes.rows(), shapes.keys});
  }
};

Tensor scores_of(const Matrices &m, const OptionalTensor &bias, bool causal) {
  Tensor scores = m.by_head(at::bmm(m.query, m.key.transpose(1, 2)));
  if (bias && bias->defined()) scores.add_(bias->to(scores.scalar_type()));
  if (causal) {
    const Tensor seen =
        at::ones({m.shapes.queries, m.shapes.keys}, scores.options().dtype(at::kBool)).tril().logical_not_();
    scores.masked_fill_(seen, -kInfinity);
  }
  return scores;
}

// Computes softmax, but 0 in a row that is masked completely, where softmax would divide by 0.
Tensor weights_of(const Tensor &scores, bool may_be_masked) {
  Tensor weights = at::_softmax(scores, -1, false);
  if (may_be_masked && scores.size(-1) > 0) weights.masked_fill_(scores.amax(-1, true).eq(-kInfinity), 0);
  return weights;
}

// Computes log(sum(exp(scores))): the largest weight is exp(largest score - result).
Tensor log_sum_exp(const Tensor &scores, const Tensor &weights) {
  if (scores.size(-1) == 0) return at::full(scores.sizes().slice(0, 3), -kInfinity, scores.options().dtype(at::kFloat));
  const Tensor largest = weights.amax(-1);  // 0 in a row that is masked completely, whose result is -inf
  return scores.amax(-1).sub_(largest.log().masked_fill_(largest.eq(0), 0)).to(at::kFloat);
}

Tensor in_order_of(const Tensor &model, c10::IntArrayRef sizes, const Tensor &value) {
  return empty_in_order_of(model, sizes).copy_(value.reshape(sizes));
}

}  // namespace

Tensor dropout_factors(const Tensor &weights, double p, PhiloxState state) {
  const at::Generator generator = generator_at(weights.device().index(), state);
  const Tensor kept = at::empty_like(weights, weights.options().dtype(at::kBool)).bernoulli_(1 - p, generator);
  return kept.to(weights.scalar_type()).mul_(p == 1 ? 0.0 : 1 / (1 - p));
}

AttentionResult composed_attention(const Tensor &query, const Tensor &key, const Tensor &value,
                                   const OptionalTensor &bias, const AttentionOptions &options) {
  const Matrices m(query, key, value, options.scale);
  const Tensor scores = scores_of(m, bias, options.causal);
  Tensor weights = weights_of(scores, bias && bias->defined());
  Tensor logarithms = log_sum_exp(scores, weights);
  if (options.dropout > 0) weights = weights.mul(dropout_factors(weights, options.dropout, options.state));
  c10::SmallVector<int64_t, 4> sizes(query.sizes());
  sizes.back() = m.shapes.value_size;
  Tensor result = in_order_of(query, sizes, at::bmm(m.by_matrix(weights), m.value));
  return attention_result(std::move(result), std::move(logarithms), m.shapes, options.state,
                          options.return_weights ? weights.to(query.scalar_type()) : Tensor());
}

AttentionGradients composed_attention_backward(const Tensor &grad, const Tensor &query, const Tensor &key,
                                               const Tensor &value, const Tensor &bias, std::array<bool, 4> wanted,
                                               const AttentionOptions &options) {
  const Matrices m(query, key, value, options.scale);
  const Tensor weights = weights_of(scores_of(m, bias, options.causal), bias.defined());
  const Tensor factors = options.dropout > 0 ? dropout_factors(weights, options.dropout, options.state) : Tensor();
  const Tensor grad_result = widened(grad).reshape({m.shapes.matrices(), m.shapes.rows(), m.shapes.value_size});
  Tensor grad_query, grad_key, grad_value, grad_bias;
  if (wanted[2]) {
    const Tensor used = m.by_matrix(factors.defined() ? weights.mul(factors) : weights);
    grad_value = in_order_of(value, value.sizes(), at::bmm(used.transpose(1, 2), grad_result));
  }
  if (wanted[0] || wanted[1] || (wanted[3] && bias.defined())) {
    Tensor grad_weights = m.by_head(at::bmm(grad_result, m.value.transpose(1, 2)));
    if (factors.defined()) grad_weights = grad_weights.mul(factors);
    const Tensor grad_scores = at::_softmax_backward_data(grad_weights, weights, -1, weights.scalar_type());
    const Tensor by_matrix = m.by_matrix(grad_scores);
    if (wanted[0]) grad_query = in_order_of(query, query.sizes(), at::bmm(by_matrix, m.key).mul_(m.scale));
    if (wanted[1]) grad_key = in_order_of(key, key.sizes(), at::bmm(by_matrix.transpose(1, 2), m.query));
    if (wanted[3] && bias.defined()) grad_bias = in_order_of(bias, bias.sizes(), grad_scores.sum_to_size(bias.sizes()));
  }
  return {std::move(grad_query), std::move(grad_key), std::move(grad_value), std::move(grad_bias)};
}

}  // namespace torch_backend
