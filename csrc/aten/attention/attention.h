// attention.h: the parts that both implementations of scaled dot product attention share: shapes, their checks, the
// layout of results.
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

// The shapes of one call: `heads` query heads share `kv_heads` heads of keys and values, in groups of adjacent heads.
struct AttentionShapes {
  int64_t batch, heads, kv_heads, queries, keys, value_size;

  int64_t matrices() const { return batch * kv_heads; }
  // Returns the rows of one matrix that contains all heads of a group.
  int64_t rows() const { return kv_heads == 0 ? queries : heads / kv_heads * queries; }
};

// Reads the shapes of query, key and value, which have 3 dimensions (head, row, number) or 4 with the batch first.
// Throws if they do not match, differ in dtype or device, or are not floating.
AttentionShapes attention_shapes(const at::Tensor &query, const at::Tensor &key, const at::Tensor &value);

// Returns whether a mask of up to 4 dimensions broadcasts to (batch, head, query, key).
bool is_broadcast_of(const at::Tensor &mask, const AttentionShapes &shapes);

// Returns an uninitialized tensor whose dimensions have the memory order of those of `model`, as torch's meta function
// describes the result.
at::Tensor empty_in_order_of(const at::Tensor &model, c10::IntArrayRef sizes);

// The options of a call; `scale` is `given_scale` or its default. `state` is the generator state of the dropout.
struct AttentionOptions {
  double dropout;
  bool causal, return_weights;
  double scale;
  std::optional<double> given_scale;
  PhiloxState state{0, 0, nullptr};
};

// The outputs of the forward operator: result, log(sum(exp(scores))) of each row as float32, two unused tensors, the
// maximum numbers of queries and keys, seed and offset of the dropout, and the weights if requested.
using AttentionResult = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, c10::SymInt, c10::SymInt, at::Tensor,
                                   at::Tensor, at::Tensor>;
// Gradients of query, key, value and bias; those that are not requested are undefined.
using AttentionGradients = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

// Bits of the saved offset that no real offset has: it belongs to a recording, and the plugin has generated the dropout
// mask.
constexpr uint64_t kRecorded = uint64_t{1} << 63, kByPlugin = uint64_t{1} << 62;

AttentionResult attention_result(at::Tensor result, at::Tensor logarithms, const AttentionShapes &shapes,
                                 PhiloxState state, at::Tensor weights);

// Returns the generator state of a dropout, as the forward pass saved it.
PhiloxState saved_state(const at::Tensor &seed, const at::Tensor &offset);

// Throws if only the plugin can repeat the dropout of the forward pass that saved `offset`.
void check_reproducible(double dropout, const at::Tensor &offset);

// Returns an uninitialized gradient of a tensor, or an undefined tensor if the gradient is not requested.
at::Tensor room_for_gradient(bool wanted, const at::Tensor &like);

// ---- as matrix products and a softmax (attention_composed.cpp) ----
AttentionResult composed_attention(const at::Tensor &query, const at::Tensor &key, const at::Tensor &value,
                                   const OptionalTensor &bias, const AttentionOptions &options);
AttentionGradients composed_attention_backward(const at::Tensor &grad, const at::Tensor &query, const at::Tensor &key,
                                               const at::Tensor &value, const at::Tensor &bias,
                                               std::array<bool, 4> wanted, const AttentionOptions &options);

// Returns 1 / (1 - p) for each weight that is kept, else 0. The same state generates the same mask.
at::Tensor dropout_factors(const at::Tensor &weights, double p, PhiloxState state);

// ---- which implementation scaled_dot_product_attention selects (attention_choice.cpp): an at::SDPBackend ----
int64_t choose_attention(const at::Tensor &query, const at::Tensor &key, const at::Tensor &value,
                         const OptionalTensor &mask, double dropout, bool causal, std::optional<double> scale,
                         bool grouped);

// ---- by the plugin's own operator with the caller's arguments, or in one kernel (attention_fused.cpp); nullopt if the
// device has none for the call ----
std::optional<AttentionResult> fused_attention(const at::Tensor &query, const at::Tensor &key, const at::Tensor &value,
                                               const OptionalTensor &bias, const AttentionOptions &options);
std::optional<AttentionGradients> fused_attention_backward(const at::Tensor &grad, const at::Tensor &query,
                                                           const at::Tensor &key, const at::Tensor &value,
                                                           const at::Tensor &bias, std::array<bool, 4> wanted,
                                                           const at::Tensor &result, const at::Tensor &logarithms,
                                                           const AttentionOptions &options);

}  // namespace torch_backend
