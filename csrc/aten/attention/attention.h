// attention.h: what the two ways of computing scaled dot product attention share: shapes, their checks, the layout of results.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <optional>
#include <tuple>

#include "aten/prepare/call.h"
#include "hal_op_ids.h"

namespace torch_backend {

constexpr uint32_t kAttention = HAL_OP_ID__SCALED_DOT_PRODUCT_FUSED_ATTENTION_OVERRIDEABLE;
constexpr uint32_t kAttentionBackward = HAL_OP_ID__SCALED_DOT_PRODUCT_FUSED_ATTENTION_OVERRIDEABLE_BACKWARD;

// One call's shapes: `heads` query heads share `kv_heads` heads of keys and values, in groups of neighbours.
struct AttentionShapes {
  int64_t batch, heads, kv_heads, queries, keys, value_size;

  int64_t matrices() const { return batch * kv_heads; }
  // Of one matrix: a group's heads below each other.
  int64_t rows() const { return kv_heads == 0 ? queries : heads / kv_heads * queries; }
};

// Reads the shapes of query, key and value, of 3 dimensions (head, row, number) or 4 with the batch in front. Throws where
// they do not fit together, differ in dtype or device, or are not floating.
AttentionShapes attention_shapes(const at::Tensor &query, const at::Tensor &key, const at::Tensor &value);

// True for a mask of up to 4 dimensions that broadcasts to (batch, head, query, key).
bool is_broadcast_of(const at::Tensor &mask, const AttentionShapes &shapes);

// An uninitialised tensor whose dimensions lie in memory in the order of those of `model`, as torch's meta function says of the
// result.
at::Tensor empty_in_order_of(const at::Tensor &model, c10::IntArrayRef sizes);

// What a call is asked for beside its tensors; `scale` is `given_scale`, or what that stands for. `state`: of the numbers that a dropout draws.
struct AttentionOptions {
  double dropout;
  bool causal, return_weights;
  double scale;
  std::optional<double> given_scale;
  PhiloxState state{0, 0, nullptr};
};

// The outputs of the forward operator: result, log(sum(exp(scores))) of each row as float32, two unused tensors, the largest
// numbers of queries and keys, seed and offset of the dropout, the weights where they are asked for.
using AttentionResult = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, c10::SymInt, c10::SymInt, at::Tensor,
                                   at::Tensor, at::Tensor>;
// Gradients of query, key, value and bias; those that are not wanted are undefined.
using AttentionGradients = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

// Bits of the saved offset that no offset has: it is of a recording, and the plugin has drawn what is dropped.
constexpr uint64_t kRecorded = uint64_t{1} << 63, kByPlugin = uint64_t{1} << 62;

AttentionResult attention_result(at::Tensor result, at::Tensor logarithms, const AttentionShapes &shapes,
                                 PhiloxState state, at::Tensor weights);

// The state of the numbers that a dropout draws, as the forward pass saved it.
PhiloxState saved_state(const at::Tensor &seed, const at::Tensor &offset);

// Throws where only the plugin can repeat the dropout of the forward pass that saved `offset`.
void check_reproducible(double dropout, const at::Tensor &offset);

// An uninitialised gradient of a tensor; undefined where it is not wanted.
at::Tensor room_for_gradient(bool wanted, const at::Tensor &like);

// ---- as products of matrices and a softmax (attention_composed.cpp) ----
AttentionResult composed_attention(const at::Tensor &query, const at::Tensor &key, const at::Tensor &value,
                                   const OptionalTensor &bias, const AttentionOptions &options);
AttentionGradients composed_attention_backward(const at::Tensor &grad, const at::Tensor &query, const at::Tensor &key,
                                               const at::Tensor &value, const at::Tensor &bias,
                                               std::array<bool, 4> wanted, const AttentionOptions &options);

// 1 / (1 - p) where a weight is kept, else 0. The same state gives the same mask.
at::Tensor dropout_factors(const at::Tensor &weights, double p, PhiloxState state);

// ---- which implementation scaled_dot_product_attention selects (attention_choice.cpp): an at::SDPBackend ----
int64_t choose_attention(const at::Tensor &query, const at::Tensor &key, const at::Tensor &value,
                         const OptionalTensor &mask, double dropout, bool causal, std::optional<double> scale,
                         bool grouped);

// ---- by the plugin's own operator, with what the user gave, or in one kernel (attention_fused.cpp); nothing where the device has none
// for such a call ----
std::optional<AttentionResult> fused_attention(const at::Tensor &query, const at::Tensor &key, const at::Tensor &value,
                                               const OptionalTensor &bias, const AttentionOptions &options);
std::optional<AttentionGradients> fused_attention_backward(const at::Tensor &grad, const at::Tensor &query,
                                                           const at::Tensor &key, const at::Tensor &value,
                                                           const at::Tensor &bias, std::array<bool, 4> wanted,
                                                           const at::Tensor &result, const at::Tensor &logarithms,
                                                           const AttentionOptions &options);

}  // namespace torch_backend
