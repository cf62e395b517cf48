// attention_fused.cpp: scaled dot product attention by the device's operator, which stores no matrix of weights.
// Operands are read in place, and results have the memory order of the query. Half precision is computed in float32 if
// the operator has no kernel for it.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>

#include "aten/attention/attention.h"
#include "aten/prepare/vendor_op.h"

namespace torch_backend {
namespace {

using at::Tensor;

// Returns the dtype of the logarithms that the operator reads and writes.
c10::ScalarType logarithm_dtype(c10::ScalarType dtype) { return dtype == at::kDouble ? at::kDouble : at::kFloat; }

bool takes_bias(const OptionalTensor &bias, const Tensor &query, const AttentionShapes &shapes) {
  return !is_given(bias) || (is_device_tensor(*bias) && is_broadcast_of(*bias, shapes));
}

// Operands have four dimensions: missing leading dimensions have size 1.
Call &add(Call &call, const Tensor &operand) { return call.in(operand).with(&Operand::at_least, size_t{4}); }

// Adds query, key, value, and the bias in the shape of the scores with its own strides.
Call &add_operands(Call &call, const AttentionShapes &shapes, const Tensor &query, const Tensor &key,
                   const Tensor &value, const OptionalTensor &bias) {
  add(add(add(call, query), key), value);
  if (!is_given(bias)) return call.none();
  const int64_t scores[] = {shapes.batch, shapes.heads, shapes.queries, shapes.keys};
  return call.layout(Layout::kStrided).in(*bias).expand(scores).layout(Layout::kRows);
}

// An undefined gradient or result is not requested.
Call &give(Call &call, const Tensor &result) {
  call.out(result);
  return result.defined() ? call.with(&Operand::at_least, size_t{4}) : call;
}

bool run_forward(const AttentionShapes &shapes, const Tensor &query, const Tensor &key, const Tensor &value,
                 const OptionalTensor &bias, const AttentionOptions &options, const Tensor &result,
                 const Tensor &logarithms) {
  const Declined vendor_declined(kAttention);
  Call call(kAttention, query);
  add_operands(call, shapes, query, key, value, bias).put(options.causal).put(options.scale);
  return give(call, result).out(logarithms, logarithms.scalar_type()).run();
}

Tensor new_logarithms(const AttentionShapes &shapes, c10::ScalarType dtype, c10::DeviceIndex device) {
  return make_empty({shapes.batch, shapes.heads, shapes.queries}, logarithm_dtype(dtype), device);
}

// Returns the dtype in which the kernel computes; nullopt = it does not support the call.
std::optional<c10::ScalarType> kernel_dtype_of(uint32_t op, const Tensor &query, const OptionalTensor &bias,
                                               const AttentionShapes &shapes, const AttentionOptions &options) {
  const Declined vendor_declined(op);
  if (options.dropout > 0 || options.return_weights || !takes_bias(bias, query, shapes)) return std::nullopt;
  return computing_dtype(query.device().index(), op, query.scalar_type());
}

}  // namespace

std::optional<AttentionResult> fused_attention(const Tensor &query, const Tensor &key, const Tensor &value,
                                               const OptionalTensor &bias, const AttentionOptions &options) {
  const AttentionShapes shapes = attention_shapes(query, key, value);
  const auto device = query.device().index();
  const bool own = has_vendor_op(device, kAttention);
  const auto dtype = kernel_dtype_of(kAttention, query, bias, shapes, options);
  if (!own && !dtype) return std::nullopt;
  at::DimVector sizes(query.sizes());
  sizes.back() = shapes.value_size;
  const Tensor result = empty_in_order_of(query, sizes);
  if (own) {
    const Tensor logarithms = new_logarithms(shapes, at::kFloat, device);
    const Tensor weights = make_wanted(
        options.return_weights, {shapes.batch, shapes.heads, shapes.queries, shapes.keys}, query.scalar_type(), device);
    const Argument arguments[] = {argument(query),           argument(key),
                                  argument(value),           argument(bias),
                                  argument(options.causal),  argument(options.given_scale),
                                  argument(options.dropout), argument(options.return_weights)};
    PhiloxState state = options.state;
    if (options.dropout > 0) state.offset |= kByPlugin;
    if (call_vendor_op(kAttention, arguments, {result, logarithms, weights}, options.state))
      return attention_result(result, logarithms, shapes, state, weights);
  }
  if (!dtype) return std::nullopt;
  const Tensor logarithms = new_logarithms(shapes, *dtype, device);
  if (!run_forward(shapes, query, key, value, bias, options, result, logarithms)) return std::nullopt;
  return attention_result(result, logarithms.to(at::kFloat), shapes, options.state, {});
}

std::optional<AttentionGradients> fused_attention_backward(const Tensor &grad, const Tensor &query, const Tensor &key,
                                                           const Tensor &value, const Tensor &bias,
                                                           std::array<bool, 4> wanted, const Tensor &result,
                                                           const Tensor &logarithms, const AttentionOptions &options) {
  const AttentionShapes shapes = attention_shapes(query, key, value);
  const auto device = query.device().index();
  const Tensor grads[] = {room_for_gradient(wanted[0], query), room_for_gradient(wanted[1], key),
                          room_for_gradient(wanted[2], value), room_for_gradient(wanted[3], bias)};
  const Argument arguments[] = {argument(grad),           argument(query),          argument(key),
                                argument(value),          argument(bias),           argument(result),
                                argument(logarithms),     argument(options.causal), argument(options.given_scale),
                                argument(options.dropout)};
  if (has_vendor_op(device, kAttentionBackward) && call_vendor_op(kAttentionBackward, arguments, grads, options.state))
    return AttentionGradients{grads[0], grads[1], grads[2], grads[3]};
  const Declined vendor_declined(kAttentionBackward);
  const auto dtype = kernel_dtype_of(kAttentionBackward, query, bias, shapes, options);
  if (!dtype || grads[3].defined()) return std::nullopt;
  Tensor sums = logarithms.contiguous();
  if (*dtype == at::kDouble) {  // the saved ones are float32
    sums = new_logarithms(shapes, *dtype, device);
    const Tensor again = make_empty(result.sizes(), *dtype, device);
    if (!run_forward(shapes, query, key, value, bias, options, again, sums)) return std::nullopt;
  }
  Call call(kAttentionBackward, query);
  add_operands(add(call, grad), shapes, query, key, value, bias);
  add(call, result).in(sums, sums.scalar_type()).put(options.causal).put(options.scale);
  for (const Tensor &gradient : c10::ArrayRef<Tensor>(grads).slice(0, 3)) give(call, gradient);
  if (!call.run()) return std::nullopt;
  return AttentionGradients{grads[0], grads[1], grads[2], Tensor()};
}

}  // namespace torch_backend
