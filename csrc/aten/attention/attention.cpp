// attention.cpp: scaled dot product attention, forward and backward. It runs the fused kernel if that supports the
// call, else matrix products and a softmax. ATen's entry points for out-of-tree backends only throw.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "aten/attention/attention.h"

#include <ATen/ExpandUtils.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/scalar_tensor.h>

#include <cmath>

namespace torch_backend {

using at::Tensor;

AttentionShapes attention_shapes(const Tensor &query, const Tensor &key, const Tensor &value) {
  TORCH_CHECK(query.dim() == 3 || query.dim() == 4,
              "scaled dot product attention: query must have 3 or 4 dimensions, but it has ", query.dim());
  TORCH_CHECK(at::isFloatingType(query.scalar_type()), "scaled dot product attention: a floating dtype is needed, but ",
              "query is ", query.dtype());
  const int64_t batch = query.dim() == 4 ? query.size(0) : 1;
  for (const Tensor *other : {&key, &value}) {
    const char *name = other == &key ? "key" : "value";
    TORCH_CHECK(other->scalar_type() == query.scalar_type(), "scaled dot product attention: ", name, " is ",
                other->dtype(), ", query is ", query.dtype(), "; all three must have one dtype");
    TORCH_CHECK(other->dim() == query.dim() && (query.dim() == 3 || other->size(0) == batch),
                "scaled dot product attention: ", name, " of sizes ", other->sizes(), " does not fit query of sizes ",
                query.sizes(), ": they must have as many dimensions and the same batch size");
  }
  TORCH_CHECK(key.size(-1) == query.size(-1), "scaled dot product attention: key has ", key.size(-1),
              " numbers per head, query has ", query.size(-1));
  TORCH_CHECK(value.size(-2) == key.size(-2) && value.size(-3) == key.size(-3),
              "scaled dot product attention: value of sizes ", value.sizes(), " does not fit key of sizes ",
              key.sizes());
  const int64_t heads = query.size(-3), kv_heads = key.size(-3);
  TORCH_CHECK(heads == kv_heads || (kv_heads > 0 && heads % kv_heads == 0), "scaled dot product attention: ", heads,
              " heads of query cannot share ", kv_heads, " heads of key");
  return {batch, heads, kv_heads, query.size(-2), key.size(-2), value.size(-1)};
}

// As torch's meta function describes the result.
Tensor empty_in_order_of(const Tensor &model, c10::IntArrayRef sizes) {
  if (model.sizes() == sizes) return at::empty_like(model);
  return at::empty_strided(sizes, at::infer_dense_strides(sizes, model.strides()), model.options());
}

Tensor room_for_gradient(bool wanted, const Tensor &like) {
  return wanted && like.defined() ? empty_in_order_of(like, like.sizes()) : Tensor();
}

namespace {

// The state that the backward pass receives, as numbers on the host (as CUDA saves its state outside of graphs): seed
// and offset, or in a recording the address of the state and the offset.
Tensor as_tensor(uint64_t number) { return at::scalar_tensor(static_cast<int64_t>(number), at::dtype(at::kLong)); }
uint64_t as_number(const Tensor &number) { return static_cast<uint64_t>(number.item<int64_t>()); }

}  // namespace

PhiloxState saved_state(const Tensor &seed, const Tensor &offset) {
  const uint64_t first = as_number(seed), marked = as_number(offset), block = marked & ~(kRecorded | kByPlugin);
  if (!(marked & kRecorded)) return {first, block, nullptr};
  return {0, block, reinterpret_cast<const uint64_t *>(static_cast<uintptr_t>(first))};
}

void check_reproducible(double dropout, const Tensor &offset) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      dropout == 0 || !(as_number(offset) & kByPlugin),
      "scaled dot product attention: the plugin has generated the "
      "dropout mask, and declines this backward pass, which no other kernel can compute; its forward operator must "
      "decline a dropout that its backward operator does not support");
}

AttentionResult attention_result(Tensor result, Tensor logarithms, const AttentionShapes &shapes, PhiloxState state,
                                 Tensor weights) {
  const uint64_t seed = state.state ? reinterpret_cast<uintptr_t>(state.state) : state.seed;
  const uint64_t offset = state.state ? state.offset | kRecorded : state.offset;
  return {std::move(result), std::move(logarithms), Tensor(),          Tensor(),          shapes.queries,
          shapes.keys,       as_tensor(seed),       as_tensor(offset), std::move(weights)};
}

bool is_broadcast_of(const Tensor &mask, const AttentionShapes &shapes) {
  const std::array<int64_t, 4> full = {shapes.batch, shapes.heads, shapes.queries, shapes.keys};
  if (mask.dim() > 4) return false;
  for (int64_t i = 1; i <= mask.dim(); i++) {
    if (mask.size(-i) != 1 && mask.size(-i) != full[4 - i]) return false;
  }
  return true;
}

namespace {

double resolved(std::optional<double> scale, const Tensor &query) {
  return scale ? *scale : 1.0 / std::sqrt(static_cast<double>(query.size(-1)));
}

AttentionResult attention(const Tensor &query, const Tensor &key, const Tensor &value, const OptionalTensor &bias,
                          double dropout, bool causal, bool return_weights, std::optional<double> scale) {
  TORCH_CHECK(!bias || !bias->defined() || at::isFloatingType(bias->scalar_type()),
              "scaled dot product attention: attn_bias is added to the scores, but it is ", bias->dtype(),
              "; a mask of bools is for scaled_dot_product_attention");
  TORCH_CHECK(dropout >= 0 && dropout <= 1, "scaled dot product attention: dropout_p must be between 0 and 1, but is ",
              dropout);
  AttentionOptions options = {dropout, causal, return_weights, resolved(scale, query), scale};
  if (dropout > 0) {  // one bool per weight
    const AttentionShapes shapes = attention_shapes(query, key, value);
    const int64_t count = shapes.batch * shapes.heads * shapes.queries * shapes.keys;
    options.state = reserve_words(std::nullopt, query.device().index(), count, at::kBool);
  }
  if (auto result = fused_attention(query, key, value, bias, options)) return *std::move(result);
  return composed_attention(query, key, value, bias, options);
}

AttentionGradients attention_backward(const Tensor &grad, const Tensor &query, const Tensor &key, const Tensor &value,
                                      const Tensor &bias, std::array<bool, 4> wanted, const Tensor &result,
                                      const Tensor &logarithms, const Tensor & /*cum_seq_q*/,
                                      const Tensor & /*cum_seq_k*/, c10::SymInt /*max_q*/, c10::SymInt /*max_k*/,
                                      double dropout, bool causal, const Tensor &seed, const Tensor &offset,
                                      std::optional<double> scale) {
  if (!grad.defined()) return {};
  AttentionOptions options = {dropout, causal, false, resolved(scale, query), scale};
  if (dropout > 0) options.state = saved_state(seed, offset);
  if (auto grads = fused_attention_backward(grad, query, key, value, bias, wanted, result, logarithms, options))
    return *std::move(grads);
  check_reproducible(dropout, offset);
  return composed_attention_backward(grad, query, key, value, bias, wanted, options);
}

}  // namespace

}  // namespace torch_backend

#include "aten/attention/attention.inc"  // registrations: codegen/operators
