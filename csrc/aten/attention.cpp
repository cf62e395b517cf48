// attention.cpp: scaled dot product attention, forward and backward, as products of matrices and a softmax of the
// device. ATen's entry points for devices of other houses only throw. The weights are computed again in the backward
// pass instead of being kept, and so is the dropout, from the Philox state that the forward pass saved.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/_softmax.h>
#include <ATen/ops/_softmax_backward_data.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/where.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <tuple>

#include "core/allocator/allocator.h"
#include "core/generator/generator.h"

namespace torch_backend {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// One call's shapes: `heads` query heads share `kv_heads` heads of keys and values, in groups of neighbours.
struct Shapes {
  int64_t batch, heads, kv_heads, queries, keys, value_size;

  int64_t matrices() const { return batch * kv_heads; }
  // Of one matrix: a group's heads below each other.
  int64_t rows() const { return kv_heads == 0 ? queries : heads / kv_heads * queries; }
};

void check_operands(const Tensor &query, const Tensor &key, const Tensor &value) {
  TORCH_CHECK(query.dim() == 3 || query.dim() == 4,
              "scaled dot product attention: query must have 3 or 4 dimensions, but it has ", query.dim());
  for (const Tensor *other : {&key, &value}) {
    const char *name = other == &key ? "key" : "value";
    TORCH_CHECK(other->dim() == query.dim(), "scaled dot product attention: ", name, " has ", other->dim(),
                " dimensions, query has ", query.dim());
    TORCH_CHECK(other->scalar_type() == query.scalar_type(), "scaled dot product attention: ", name, " is ",
                other->dtype(), ", query is ", query.dtype(), "; all three must have one dtype");
    TORCH_CHECK(other->device() == query.device(), "scaled dot product attention: ", name, " is on ", other->device(),
                ", query is on ", query.device());
  }
  TORCH_CHECK(at::isFloatingType(query.scalar_type()), "scaled dot product attention: a floating dtype is needed, but ",
              "query is ", query.dtype());
}

Shapes shapes_of(const Tensor &query, const Tensor &key, const Tensor &value) {
  check_operands(query, key, value);
  const int64_t batch = query.dim() == 4 ? query.size(0) : 1;
  TORCH_CHECK(key.size(-1) == query.size(-1), "scaled dot product attention: key has ", key.size(-1),
              " numbers per head, query has ", query.size(-1));
  TORCH_CHECK(value.size(-2) == key.size(-2) && value.size(-3) == key.size(-3),
              "scaled dot product attention: value of sizes ", value.sizes(), " does not fit key of sizes ",
              key.sizes());
  TORCH_CHECK(query.dim() == 3 || (key.size(0) == batch && value.size(0) == batch),
              "scaled dot product attention: query, key and value have the batch sizes ", batch, ", ", key.size(0),
              " and ", value.size(0));
  const int64_t heads = query.size(-3), kv_heads = key.size(-3);
  TORCH_CHECK(heads == kv_heads || (kv_heads > 0 && heads % kv_heads == 0), "scaled dot product attention: ", heads,
              " heads of query cannot share ", kv_heads, " heads of key");
  return {batch, heads, kv_heads, query.size(-2), key.size(-2), value.size(-1)};
}

// Half precision is computed in float, as the CPU does.
Tensor widened(const Tensor &tensor) {
  const bool half = tensor.scalar_type() == at::kHalf || tensor.scalar_type() == at::kBFloat16;
  return half ? tensor.to(at::kFloat) : tensor;
}

// The operands as batches of matrices in the computing dtype, the query scaled.
struct Matrices {
  Shapes shapes;
  double scale;
  Tensor query, key, value;

  Matrices(const Tensor &q, const Tensor &k, const Tensor &v, std::optional<double> given_scale)
      : shapes(shapes_of(q, k, v)),
        scale(given_scale ? *given_scale : 1.0 / std::sqrt(static_cast<double>(q.size(-1)))),
        query(widened(q).reshape({shapes.matrices(), shapes.rows(), q.size(-1)}).mul(scale)),
        key(widened(k).reshape({shapes.matrices(), shapes.keys, k.size(-1)})),
        value(widened(v).reshape({shapes.matrices(), shapes.keys, shapes.value_size})) {}

  // A batch of matrices of weights, and the same numbers by (batch, head, query, key).
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

// softmax, but 0 in a row that is masked throughout, where softmax would divide by 0.
Tensor weights_of(const Tensor &scores, bool may_be_masked) {
  Tensor weights = at::_softmax(scores, -1, false);
  if (may_be_masked && scores.size(-1) > 0) weights.masked_fill_(scores.amax(-1, true).eq(-kInfinity), 0);
  return weights;
}

// log(sum(exp(scores))): the largest weight is exp(largest score - result).
Tensor log_sum_exp(const Tensor &scores, const Tensor &weights) {
  if (scores.size(-1) == 0) return at::full(scores.sizes().slice(0, 3), -kInfinity, scores.options().dtype(at::kFloat));
  const Tensor largest = weights.amax(-1);  // 0 in a row that is masked throughout, whose result is -inf
  return scores.amax(-1).sub_(largest.log().masked_fill_(largest.eq(0), 0)).to(at::kFloat);
}

// 1 / (1 - p) where a weight is kept, else 0. The same state gives the same mask.
Tensor dropout_factors(const Tensor &weights, double p, PhiloxState state) {
  at::Generator generator = new_generator(weights.device().index());
  generator.set_current_seed(state.seed);
  generator.set_offset(state.offset);
  const Tensor kept = at::empty_like(weights, weights.options().dtype(at::kBool)).bernoulli_(1 - p, generator);
  return kept.to(weights.scalar_type()).mul_(p == 1 ? 0.0 : 1 / (1 - p));
}

PhiloxState reserve_dropout(const Tensor &weights, double p) {
  if (p == 0) return {0, 0};
  // A block of Philox gives four words, and a bool takes one.
  return reserve_philox(std::nullopt, weights.device().index(), (static_cast<uint64_t>(weights.numel()) + 3) / 4);
}

// A host number, as CUDA saves its state outside of graphs.
Tensor state_number(uint64_t number) { return at::scalar_tensor(static_cast<int64_t>(number), at::dtype(at::kLong)); }
uint64_t state_number(const Tensor &number) { return static_cast<uint64_t>(number.item<int64_t>()); }

// An uninitialised tensor whose dimensions lie in memory in the order of those of `model`, as torch's meta function
// says of the result.
Tensor empty_in_order_of(const Tensor &model, c10::IntArrayRef sizes) {
  if (model.sizes() == sizes) return at::empty_like(model);
  c10::SmallVector<int64_t, 4> order(sizes.size()), strides(sizes.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return model.stride(a) > model.stride(b); });
  int64_t stride = 1;
  for (auto dim = order.rbegin(); dim != order.rend(); ++dim) {
    strides[*dim] = stride;
    stride *= sizes[*dim];
  }
  return at::empty_strided(sizes, strides, model.options());
}

Tensor in_order_of(const Tensor &model, c10::IntArrayRef sizes, const Tensor &value) {
  return empty_in_order_of(model, sizes).copy_(value.reshape(sizes));
}

using AttentionResult = std::tuple<Tensor, Tensor, Tensor, Tensor, c10::SymInt, c10::SymInt, Tensor, Tensor, Tensor>;

AttentionResult attention(const Tensor &query, const Tensor &key, const Tensor &value, const OptionalTensor &bias,
                          double dropout, bool causal, bool return_weights, std::optional<double> scale) {
  TORCH_CHECK(dropout >= 0 && dropout <= 1, "scaled dot product attention: dropout_p must be between 0 and 1, but is ",
              dropout);
  const Matrices m(query, key, value, scale);
  const Tensor scores = scores_of(m, bias, causal);
  Tensor weights = weights_of(scores, bias && bias->defined());
  Tensor logarithms = log_sum_exp(scores, weights);
  const PhiloxState state = reserve_dropout(weights, dropout);
  if (dropout > 0) weights = weights.mul(dropout_factors(weights, dropout, state));
  c10::SmallVector<int64_t, 4> sizes(query.sizes());
  sizes.back() = m.shapes.value_size;
  Tensor result = in_order_of(query, sizes, at::bmm(m.by_matrix(weights), m.value));
  return {std::move(result),
          std::move(logarithms),
          Tensor(),
          Tensor(),
          m.shapes.queries,
          m.shapes.keys,
          state_number(state.seed),
          state_number(state.offset),
          return_weights ? weights.to(query.scalar_type()) : Tensor()};
}

using AttentionGradients = std::tuple<Tensor, Tensor, Tensor, Tensor>;

AttentionGradients attention_backward(const Tensor &grad, const Tensor &query, const Tensor &key, const Tensor &value,
                                      const Tensor &bias, std::array<bool, 4> wanted, const Tensor & /*result*/,
                                      const Tensor & /*logarithms*/, const Tensor & /*cum_seq_q*/,
                                      const Tensor & /*cum_seq_k*/, c10::SymInt /*max_q*/, c10::SymInt /*max_k*/,
                                      double dropout, bool causal, const Tensor &seed, const Tensor &offset,
                                      std::optional<double> scale) {
  if (!grad.defined()) return {};
  const Matrices m(query, key, value, scale);
  const Tensor weights = weights_of(scores_of(m, bias, causal), bias.defined());
  const Tensor factors =
      dropout > 0 ? dropout_factors(weights, dropout, {state_number(seed), state_number(offset)}) : Tensor();
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

// ---- which way scaled_dot_product_attention takes -----------------------------------------------------------------

bool is_dense_4d(const Tensor &tensor) {
  return tensor.dim() == 4 && tensor.layout() == c10::kStrided && !tensor.is_nested() && tensor.numel() > 0 &&
         at::isFloatingType(tensor.scalar_type());
}

bool is_broadcast_of(const Tensor &mask, const Shapes &shapes) {
  const std::array<int64_t, 4> full = {shapes.batch, shapes.heads, shapes.queries, shapes.keys};
  if (mask.dim() > 4) return false;
  for (int64_t i = 1; i <= mask.dim(); i++) {
    if (mask.size(-i) != 1 && mask.size(-i) != full[4 - i]) return false;
  }
  return true;
}

// What the composite of ATen does better or refuses in its own words: other ranks, broadcast batches, empty tensors.
bool is_served(const Tensor &query, const Tensor &key, const Tensor &value, const OptionalTensor &mask, bool grouped) {
  for (const Tensor *tensor : {&query, &key, &value}) {
    if (!is_dense_4d(*tensor) || tensor->scalar_type() != query.scalar_type() || tensor->device() != query.device() ||
        tensor->size(0) != query.size(0))
      return false;
  }
  if (key.size(3) != query.size(3) || value.size(2) != key.size(2) || value.size(1) != key.size(1)) return false;
  if (grouped ? query.size(1) % key.size(1) != 0 : query.size(1) != key.size(1)) return false;
  if (!mask || !mask->defined()) return true;
  return mask->device() == query.device() && is_broadcast_of(*mask, shapes_of(query, key, value));
}

int64_t choose_attention(const Tensor &query, const Tensor &key, const Tensor &value, const OptionalTensor &mask,
                         double /*dropout*/, bool /*causal*/, std::optional<double> /*scale*/, bool grouped) {
  const at::Context &context = at::globalContext();
  at::SDPBackend choice = at::SDPBackend::error;
  if (context.userEnabledOverrideableSDP() && is_served(query, key, value, mask, grouped))
    choice = at::SDPBackend::overrideable;
  else if (context.userEnabledMathSDP())
    choice = at::SDPBackend::math;
  return static_cast<int64_t>(choice);
}

}  // namespace

// scaled_dot_product_attention asks the stub, other callers the operator.
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_fused_sdp_choice", TORCH_FN(choose_attention));
  m.impl("_scaled_dot_product_fused_attention_overrideable", TORCH_FN(attention));
  m.impl("_scaled_dot_product_fused_attention_overrideable_backward", TORCH_FN(attention_backward));
}

}  // namespace torch_backend

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &torch_backend::choose_attention)
}
