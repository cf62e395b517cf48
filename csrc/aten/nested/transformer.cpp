// transformer.cpp: the operators of the fast path of torch.nn.TransformerEncoderLayer and torch.nn.MultiheadAttention
// in evaluation, for dense and for nested sequences, composed of matrix products and attention of the device.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/NestedTensorImpl.h>
#include <ATen/ops/_nested_from_padded.h>
#include <ATen/ops/_transformer_encoder_layer_fwd_native.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <cmath>
#include <optional>
#include <tuple>

namespace torch_backend {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;
using Attended = std::tuple<Tensor, Tensor>;

// The elements that the boolean mask of a call excludes (torch.nn.MultiheadAttention.merge_masks).
enum MaskType : int64_t { kOfSequences = 0, kOfKeys = 1, kOfWeights = 2 };

// Returns true for each key that is attended to, to be broadcast to (batch, heads, queries, keys); undefined = all
// keys.
Tensor attended(const OptionalTensor &mask, std::optional<int64_t> type) {
  if (!mask || !mask->defined()) return {};
  TORCH_CHECK(type, "_native_multi_head_attention: a mask needs its mask_type, 0, 1 or 2");
  const Tensor kept = mask->to(at::kBool).logical_not();
  switch (*type) {
    case kOfSequences:
      return kept;
    case kOfKeys:
      return kept.unsqueeze(1).unsqueeze(2);
    case kOfWeights:
      return kept;
    default:
      TORCH_CHECK(false, "_native_multi_head_attention: mask_type is 0, 1 or 2, not ", *type);
  }
}

// Returns the projections of query, key and value.
std::tuple<Tensor, Tensor, Tensor> project(const Tensor &query, const Tensor &key, const Tensor &value,
                                           const Tensor &weight, const Tensor &bias) {
  if (query.is_same(key) && key.is_same(value)) {
    const auto all = at::linear(query, weight, bias).chunk(3, -1);
    return {all[0], all[1], all[2]};
  }
  const auto weights = weight.chunk(3), biases = bias.chunk(3);
  return {at::linear(query, weights[0], biases[0]), at::linear(key, weights[1], biases[1]),
          at::linear(value, weights[2], biases[2])};
}

Tensor by_heads(const Tensor &rows, int64_t heads) { return rows.unflatten(-1, {heads, -1}).transpose(1, 2); }

// Returns results and, if requested, the weights of the heads or their average.
Attended attend(const Tensor &query, const Tensor &key, const Tensor &value, const Tensor &kept, bool need_weights,
                bool average) {
  if (!need_weights)
    return {at::scaled_dot_product_attention(query, key, value, kept.defined() ? OptionalTensor(kept) : std::nullopt),
            Tensor()};
  Tensor scores = at::matmul(query.div(std::sqrt(static_cast<double>(query.size(-1)))), key.transpose(-2, -1));
  if (kept.defined()) scores = scores.masked_fill(kept.logical_not(), -INFINITY);
  const Tensor weights = scores.softmax(-1);
  return {at::matmul(weights, value), average ? weights.mean(1) : weights};
}

Attended dense_attention(const Tensor &query, const Tensor &key, const Tensor &value, int64_t embed_dim, int64_t heads,
                         const Tensor &qkv_weight, const Tensor &qkv_bias, const Tensor &out_weight,
                         const Tensor &out_bias, const OptionalTensor &mask, bool need_weights, bool average,
                         std::optional<int64_t> mask_type) {
  TORCH_CHECK(query.dim() == 3 && heads > 0 && embed_dim % heads == 0 &&
                  qkv_weight.sizes() == c10::IntArrayRef({3 * embed_dim, embed_dim}) &&
                  qkv_bias.sizes() == c10::IntArrayRef(3 * embed_dim),
              "_native_multi_head_attention: expected a query of 3 dimensions, an embed_dim that is a multiple of the ",
              "heads, a qkv_weight of 3 * embed_dim x embed_dim and a qkv_bias of 3 * embed_dim, but got a query of ",
              query.sizes(), ", embed_dim ", embed_dim, ", ", heads, " heads, a qkv_weight of ", qkv_weight.sizes(),
              " and a qkv_bias of ", qkv_bias.sizes());
  const auto [q, k, v] = project(query, key, value, qkv_weight, qkv_bias);
  const auto [rows, weights] = attend(by_heads(q, heads), by_heads(k, heads), by_heads(v, heads),
                                      attended(mask, mask_type), need_weights, average);
  return {at::linear(rows.transpose(1, 2).flatten(2), out_weight, out_bias), weights};
}

// Returns the sequences padded to one length, and which keys are padding.
Attended padded(const Tensor &nested) {
  const Tensor rows = nested.to_padded_tensor(0),
               sizes = at::native::get_nested_tensor_impl(nested)->get_nested_sizes();
  const Tensor lengths = sizes.select(1, 0).to(rows.device()).unsqueeze(1);
  return {rows, at::arange(rows.size(1), lengths.options()).ge(lengths)};
}

Attended nested_attention(const Tensor &query, const Tensor &key, const Tensor &value, int64_t embed_dim, int64_t heads,
                          const Tensor &qkv_weight, const Tensor &qkv_bias, const Tensor &out_weight,
                          const Tensor &out_bias, const OptionalTensor &mask, bool need_weights, bool average,
                          std::optional<int64_t>) {
  const c10::OptionalDeviceGuard guard(query.device());
  TORCH_CHECK_NOT_IMPLEMENTED(key.is_nested() && value.is_nested(), "_native_multi_head_attention: query, key and ",
                              "value must all be nested tensors, or none of them");
  TORCH_CHECK_NOT_IMPLEMENTED(
      !mask || !mask->defined(),
      "_native_multi_head_attention of nested tensors takes no mask: ", "their sizes determine the elements");
  const auto [rows, left_out] = padded(query);
  const bool alone = query.is_same(key) && key.is_same(value);
  const auto [keys, none] = alone ? Attended{rows, left_out} : padded(key);
  const Tensor values = alone ? rows : value.to_padded_tensor(0);
  const auto [result, weights] = dense_attention(rows, keys, values, embed_dim, heads, qkv_weight, qkv_bias, out_weight,
                                                 out_bias, none, need_weights, average, kOfKeys);
  return {at::_nested_from_padded(result, at::native::get_nested_tensor_impl(query)->get_nested_sizes()), weights};
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, NestedTensorPrivateUse1, m) {
  m.impl("_native_multi_head_attention", TORCH_FN(nested_attention));
}

}  // namespace torch_backend

#include "aten/nested/transformer.inc"  // registrations: codegen/operators
