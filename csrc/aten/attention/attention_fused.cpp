// attention_fused.cpp: scaled dot product attention by the device's own operator, which keeps no matrix of weights: operands are
// read where they lie, results lie in the order of the query. Half precision is computed in float32 where the operator has no
// kernel for it.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>

#include "aten/attention/attention.h"
#include "aten/prepare/op_call.h"
#include "hal_op_ids.h"

namespace torch_backend {
namespace {

using at::Tensor;

constexpr uint32_t kForward = HAL_OP_ID__SCALED_DOT_PRODUCT_FUSED_ATTENTION_OVERRIDEABLE;
constexpr uint32_t kBackward = HAL_OP_ID__SCALED_DOT_PRODUCT_FUSED_ATTENTION_OVERRIDEABLE_BACKWARD;

// The dtype that an operator computes such tensors in, or none.
std::optional<c10::ScalarType> computing_dtype(uint32_t op, const Tensor &tensor) {
  const auto dtype = tensor.scalar_type();
  const auto device = tensor.device().index();
  if (has_kernel(device, op, dtype)) return dtype;
  if (c10::isReducedFloatingType(dtype) && has_kernel(device, op, at::kFloat)) return at::kFloat;
  return std::nullopt;
}

// Of the logarithms that the operator gives and takes.
c10::ScalarType logarithm_dtype(c10::ScalarType dtype) { return dtype == at::kDouble ? at::kDouble : at::kFloat; }

// In the dtype that is computed in, with rows of stride 1.
Tensor readable(const Tensor &tensor, c10::ScalarType dtype) {
  const Tensor converted = tensor.scalar_type() == dtype ? tensor : tensor.to(dtype);
  return converted.size(-1) <= 1 || converted.stride(-1) == 1 ? converted : converted.contiguous();
}

// The descriptor of a tensor with four dimensions: those that are missing in front have size 1, and where `shape` is larger
// than the tensor, stride 0.
struct Operand {
  int64_t sizes[4] = {1, 1, 1, 1}, strides[4] = {0, 0, 0, 0};
  hal_tensor_t descriptor;

  explicit Operand(const Tensor &tensor) : descriptor(describe(tensor)) {
    const int64_t missing = 4 - tensor.dim();
    for (int64_t d = missing; d < 4; d++) {
      sizes[d] = tensor.size(d - missing);
      strides[d] = tensor.stride(d - missing);
    }
    descriptor.sizes = sizes;
    descriptor.strides = strides;
    descriptor.ndim = 4;
  }
  Operand(const Tensor &tensor, const std::array<int64_t, 4> &shape) : Operand(tensor) {
    for (size_t d = 0; d < 4; d++) {
      if (sizes[d] != shape[d]) strides[d] = 0;
      sizes[d] = shape[d];
    }
  }
  Operand(const Operand &) = delete;
  Operand &operator=(const Operand &) = delete;
};

// A result of the caller's layout and dtype, and the tensor that the operator writes: the same where it can.
struct Target {
  Tensor result, written;

  Target() = default;
  Target(const Tensor &model, c10::IntArrayRef sizes, c10::ScalarType dtype) : result(empty_in_order_of(model, sizes)) {
    const bool direct = result.scalar_type() == dtype && (result.size(-1) <= 1 || result.stride(-1) == 1);
    written = direct ? result : make_empty(sizes, dtype, model.device().index());
  }
  Tensor finish() const {
    if (!result.is_same(written)) result.copy_(written);
    return result;
  }
};

// Query, key, value and bias of one call, in the dtype that is computed in.
struct Operands {
  AttentionShapes shapes;
  Tensor query, key, value, bias;

  Operands(const AttentionShapes &s, const Tensor &q, const Tensor &k, const Tensor &v, const OptionalTensor &b,
           c10::ScalarType dtype)
      : shapes(s), query(readable(q, dtype)), key(readable(k, dtype)), value(readable(v, dtype)) {
    if (b && b->defined()) bias = b->scalar_type() == dtype ? *b : b->to(dtype);
  }
  std::array<int64_t, 4> scores() const { return {shapes.batch, shapes.heads, shapes.queries, shapes.keys}; }
};

bool takes_bias(const OptionalTensor &bias, const Tensor &query, const AttentionShapes &shapes) {
  if (!bias || !bias->defined()) return true;
  return is_device_tensor(*bias) && bias->device() == query.device() && is_broadcast_of(*bias, shapes);
}

bool run_forward(const Operands &in, const AttentionOptions &options, const Tensor &result, const Tensor &logarithms) {
  const Operand query(in.query), key(in.key), value_(in.value), output(result);
  const hal_tensor_t sums = describe(logarithms);
  std::optional<Operand> bias;
  if (in.bias.defined()) bias.emplace(in.bias, in.scores());
  const hal_value_t args[] = {value(query.descriptor),  value(key.descriptor),
                              value(value_.descriptor), bias ? value(bias->descriptor) : none_value(),
                              value(options.causal),    value(options.scale)};
  const hal_tensor_t *const results[] = {&output.descriptor, &sums};
  return run_op(in.query.device().index(), kForward, args, results);
}

Tensor new_logarithms(const AttentionShapes &shapes, c10::ScalarType dtype, c10::DeviceIndex device) {
  return make_empty({shapes.batch, shapes.heads, shapes.queries}, logarithm_dtype(dtype), device);
}

c10::SmallVector<int64_t, 4> result_sizes(const Tensor &query, const AttentionShapes &shapes) {
  c10::SmallVector<int64_t, 4> sizes(query.sizes());
  sizes.back() = shapes.value_size;
  return sizes;
}

}  // namespace

std::optional<AttentionResult> fused_attention(const Tensor &query, const Tensor &key, const Tensor &value,
                                               const OptionalTensor &bias, const AttentionOptions &options) {
  const AttentionShapes shapes = attention_shapes(query, key, value);
  const auto dtype = computing_dtype(kForward, query);
  if (!dtype || options.dropout > 0 || options.return_weights || !takes_bias(bias, query, shapes)) return std::nullopt;
  const Operands in(shapes, query, key, value, bias, *dtype);
  const Target target(query, result_sizes(query, shapes), *dtype);
  const Tensor logarithms = new_logarithms(shapes, *dtype, query.device().index());
  if (!run_forward(in, options, target.written, logarithms)) return std::nullopt;
  return AttentionResult{target.finish(), logarithms.to(at::kFloat), Tensor(),        Tensor(), shapes.queries,
                         shapes.keys,     state_number(0),           state_number(0), Tensor()};
}

std::optional<AttentionGradients> fused_attention_backward(const Tensor &grad, const Tensor &query, const Tensor &key,
                                                           const Tensor &value_, const Tensor &bias,
                                                           std::array<bool, 4> wanted, const Tensor &result,
                                                           const Tensor &logarithms, const AttentionOptions &options) {
  const AttentionShapes shapes = attention_shapes(query, key, value_);
  const auto dtype = computing_dtype(kBackward, query);
  if (!dtype || options.dropout > 0 || (wanted[3] && bias.defined()) || !takes_bias(bias, query, shapes))
    return std::nullopt;
  const Operands in(shapes, query, key, value_, bias, *dtype);
  const Tensor out = readable(result, *dtype);
  Tensor sums = logarithms.contiguous();
  if (*dtype == at::kDouble) {  // those that were saved are float32
    sums = new_logarithms(shapes, *dtype, query.device().index());
    const Tensor again = make_empty(result.sizes(), *dtype, query.device().index());
    if (!run_forward(in, options, again, sums)) return std::nullopt;
  }
  const Tensor *const models[] = {&query, &key, &value_};
  Target targets[3];
  std::optional<Operand> results[3];
  const hal_tensor_t *pointers[3] = {};
  for (size_t i = 0; i < 3; i++) {
    if (!wanted[i]) continue;
    targets[i] = Target(*models[i], models[i]->sizes(), *dtype);
    results[i].emplace(targets[i].written);
    pointers[i] = &results[i]->descriptor;
  }
  const Tensor slope = readable(grad, *dtype);
  const Operand g(slope), q(in.query), k(in.key), v(in.value), o(out);
  const hal_tensor_t l = describe(sums);
  std::optional<Operand> b;
  if (in.bias.defined()) b.emplace(in.bias, in.scores());
  const hal_value_t args[] = {value(g.descriptor),
                              value(q.descriptor),
                              value(k.descriptor),
                              value(v.descriptor),
                              b ? value(b->descriptor) : none_value(),
                              value(o.descriptor),
                              value(l),
                              value(options.causal),
                              value(options.scale)};
  if (!run_op(query.device().index(), kBackward, args, pointers)) return std::nullopt;
  AttentionGradients grads;
  if (wanted[0]) std::get<0>(grads) = targets[0].finish();
  if (wanted[1]) std::get<1>(grads) = targets[1].finish();
  if (wanted[2]) std::get<2>(grads) = targets[2].finish();
  return grads;
}

}  // namespace torch_backend
