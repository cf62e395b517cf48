// attention_autograd.cpp: the gradient of the fused attention if it is itself differentiated (double backward,
// forward-mode AD) or batched (vmap over gradients, as jacrev and is_grads_batched do). torch has no rules for it, so
// it runs as differentiable operators.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/OpMathType.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_scaled_dot_product_fused_attention_overrideable_backward_ops.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/repeat_interleave.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <cmath>
#include <initializer_list>

#include "aten/attention/attention.h"

namespace torch_backend {
namespace {

using at::Tensor;

// The arguments of the gradient that determine its values.
struct GradientOperands {
  const Tensor &grad, &query, &key, &value, &bias;
  double dropout;
  bool causal;
  const Tensor &seed, &offset;
  std::optional<double> given_scale;

  c10::ScalarType dtype() const { return at::toOpMathType(query.scalar_type()); }
  // Returns the number of query heads that share one head of key and value.
  c10::SymInt group() const { return query.sym_size(-3) / key.sym_size(-3); }
  bool is_grouped() const { return !TORCH_GUARD_OR_FALSE(query.sym_size(-3).sym_eq(key.sym_size(-3))); }
  Tensor wide(const Tensor &tensor) const { return tensor.to(dtype()); }
  // Returns key or value with a head for each head of the query.
  Tensor by_head(const Tensor &tensor) const {
    return is_grouped() ? at::repeat_interleave_symint(wide(tensor), group(), -3) : wide(tensor);
  }
  // Returns the sum over the query heads that share a head of `like`, in its dtype.
  Tensor by_group(const Tensor &gradient, const Tensor &like) const {
    if (!is_grouped()) return gradient.to(like.scalar_type());
    return gradient.unflatten_symint(-3, {like.sym_size(-3), group()}).sum(-3).to(like.scalar_type());
  }
};

// Returns the weights of the values. A row that is masked completely has weights 0.
Tensor attention_weights(const GradientOperands &o, const Tensor &query, const Tensor &key) {
  Tensor scores = at::matmul(query, key.transpose(-2, -1));
  if (o.bias.defined()) scores = scores.add(o.wide(o.bias));
  if (o.causal) {
    const Tensor seen =
        at::ones_symint({query.sym_size(-2), key.sym_size(-2)}, scores.options().dtype(at::kBool)).tril();
    scores = scores.masked_fill(seen.logical_not(), -INFINITY);
  }
  const Tensor none = scores.detach().amax(-1, true).eq(-INFINITY);
  return scores.masked_fill(none, 0).softmax(-1).masked_fill(none, 0);
}

AttentionGradients differentiable_gradients(const GradientOperands &o, std::array<bool, 4> wanted) {
  if (!o.grad.defined()) return {};
  check_reproducible(o.dropout, o.offset);
  const double scale =
      o.given_scale ? *o.given_scale : 1 / std::sqrt(o.query.sym_size(-1).guard_int(__FILE__, __LINE__));
  const Tensor grad = o.wide(o.grad), query = o.wide(o.query).mul(scale), key = o.by_head(o.key);
  const Tensor weights = attention_weights(o, query, key);
  const auto dropped = [&](const Tensor &tensor) {
    if (o.dropout == 0) return tensor;
    const c10::impl::ExcludeDispatchKeyGuard same_for_the_batch(c10::DispatchKey::FuncTorchVmapMode);
    return tensor.mul(dropout_factors(weights.detach(), o.dropout, saved_state(o.seed, o.offset)));
  };
  const Tensor of_weights = dropped(at::matmul(grad, o.by_head(o.value).transpose(-2, -1)));
  const Tensor of_scores = weights.mul(of_weights.sub(of_weights.mul(weights).sum(-1, true)));
  Tensor of_query, of_key, of_value, of_bias;
  if (wanted[0]) of_query = at::matmul(of_scores, key).mul(scale).to(o.query.scalar_type());
  if (wanted[1]) of_key = o.by_group(at::matmul(of_scores.transpose(-2, -1), query), o.key);
  if (wanted[2]) of_value = o.by_group(at::matmul(dropped(weights).transpose(-2, -1), grad), o.value);
  if (wanted[3] && o.bias.defined())
    of_bias = of_scores.sum_to_size_symint(o.bias.sym_sizes()).to(o.bias.scalar_type());
  return {std::move(of_query), std::move(of_key), std::move(of_value), std::move(of_bias)};
}

bool is_differentiated(std::initializer_list<const Tensor *> tensors) {
  const bool gradients = at::GradMode::is_enabled();
  return std::any_of(tensors.begin(), tensors.end(), [&](const Tensor *tensor) {
    return tensor->defined() && ((gradients && tensor->requires_grad()) || tensor->_fw_grad(/*level=*/0).defined());
  });
}

using Operator = at::_ops::_scaled_dot_product_fused_attention_overrideable_backward;

AttentionGradients of_autograd(const Tensor &grad, const Tensor &query, const Tensor &key, const Tensor &value,
                               const Tensor &bias, std::array<bool, 4> wanted, const Tensor &result,
                               const Tensor &logarithms, const Tensor &cum_seq_q, const Tensor &cum_seq_k,
                               c10::SymInt max_q, c10::SymInt max_k, double dropout, bool causal, const Tensor &seed,
                               const Tensor &offset, std::optional<double> scale) {
  if (is_differentiated({&grad, &query, &key, &value, &bias}))
    return differentiable_gradients({grad, query, key, value, bias, dropout, causal, seed, offset, scale}, wanted);
  const at::AutoDispatchBelowADInplaceOrView below;
  return Operator::call(grad, query, key, value, bias, wanted, result, logarithms, cum_seq_q, cum_seq_k,
                        std::move(max_q), std::move(max_k), dropout, causal, seed, offset, scale);
}

AttentionGradients of_batches(const Tensor &grad, const Tensor &query, const Tensor &key, const Tensor &value,
                              const Tensor &bias, std::array<bool, 4> wanted, const Tensor &, const Tensor &,
                              const Tensor &, const Tensor &, c10::SymInt, c10::SymInt, double dropout, bool causal,
                              const Tensor &seed, const Tensor &offset, std::optional<double> scale) {
  return differentiable_gradients({grad, query, key, value, bias, dropout, causal, seed, offset, scale}, wanted);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) {
  m.impl("_scaled_dot_product_fused_attention_overrideable_backward", TORCH_FN(of_autograd));
}

TORCH_LIBRARY_IMPL(aten, FuncTorchBatchedDecomposition, m) {
  m.impl("_scaled_dot_product_fused_attention_overrideable_backward", TORCH_FN(of_batches));
}

}  // namespace torch_backend
