// attention_choice.cpp: selects how scaled_dot_product_attention runs. The fused operator is selected only if torch can
// also transform it. Forward-mode AD and functorch have no rules for it, so they use the math path. Its gradient has
// its own rules (attention_autograd.cpp). Sizes may be symbolic: a comparison adds a guard, and one that cannot be
// decided selects the math path.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/Context.h>
#include <ATen/native/transformers/attention.h>

#include "aten/attention/attention.h"
#include "aten/prepare/transforms.h"

namespace torch_backend {
namespace {

using at::Tensor;

bool equal(const c10::SymInt &a, const c10::SymInt &b) { return TORCH_GUARD_OR_FALSE(a.sym_eq(b)); }

bool is_dense_4d(const Tensor &tensor) {
  return tensor.dim() == 4 && tensor.layout() == c10::kStrided && !tensor.is_nested() &&
         at::isFloatingType(tensor.scalar_type()) && TORCH_GUARD_OR_FALSE(tensor.sym_numel().sym_gt(0));
}

// Returns whether `mask` broadcasts to (batch, heads, queries, keys).
bool broadcasts(const Tensor &mask, const Tensor &query, const Tensor &key) {
  if (mask.dim() > 4) return false;
  const c10::SymInt full[] = {query.sym_size(0), query.sym_size(1), query.sym_size(2), key.sym_size(2)};
  for (int64_t i = 1; i <= mask.dim(); i++) {
    const c10::SymInt size = mask.sym_size(-i);
    if (!equal(size, 1) && !equal(size, full[4 - i])) return false;
  }
  return true;
}

// Returns false for calls that ATen's composite computes or refuses: other ranks, broadcast batches, empty tensors.
bool is_supported(const Tensor &query, const Tensor &key, const Tensor &value, const OptionalTensor &mask,
                  bool grouped) {
  for (const Tensor *tensor : {&query, &key, &value}) {
    if (!is_dense_4d(*tensor) || tensor->scalar_type() != query.scalar_type() || tensor->device() != query.device() ||
        !equal(tensor->sym_size(0), query.sym_size(0)))
      return false;
  }
  const c10::SymInt heads = query.sym_size(1), kv_heads = key.sym_size(1);
  if (!equal(key.sym_size(3), query.sym_size(3)) || !equal(value.sym_size(2), key.sym_size(2)) ||
      !equal(value.sym_size(1), kv_heads))
    return false;
  if (!(grouped ? equal(heads % kv_heads, 0) : equal(heads, kv_heads))) return false;
  if (!is_given(mask)) return true;
  return mask->device() == query.device() && broadcasts(*mask, query, key);
}

// Returns whether torch transforms the call, and has no rule to transform the fused operator.
bool is_transformed(const Tensor &query, const Tensor &key, const Tensor &value, const OptionalTensor &mask) {
  return is_in_functorch() || has_tangent(query) || has_tangent(key) || has_tangent(value) ||
         (is_given(mask) && has_tangent(*mask));
}

// torch names the fused backends after CUDA's libraries; any of them means the device's own operator.
bool may_be_fused(const at::Context &context) {
  return context.userEnabledOverrideableSDP() || context.userEnabledFlashSDP() ||
         context.userEnabledMemEfficientSDP() || context.userEnabledCuDNNSDP();
}

}  // namespace

int64_t choose_attention(const Tensor &query, const Tensor &key, const Tensor &value, const OptionalTensor &mask,
                         double /*dropout*/, bool /*causal*/, std::optional<double> /*scale*/, bool grouped) {
  const at::Context &context = at::globalContext();
  if (may_be_fused(context) && !is_transformed(query, key, value, mask) &&
      is_supported(query, key, value, mask, grouped))
    return static_cast<int64_t>(at::SDPBackend::overrideable);
  if (context.userEnabledMathSDP()) return static_cast<int64_t>(at::SDPBackend::math);
  TORCH_CHECK(
      !may_be_fused(context),
      "No viable backend for scaled_dot_product_attention was found: the fused operator of the device does not ",
      "support this call, and the math backend is disabled. Enable SDPBackend.MATH, too.");
  TORCH_CHECK(false, "No viable backend for scaled_dot_product_attention was found. This is likely due to turning off ",
              "both the math kernel and the fused kernels.");
}

}  // namespace torch_backend
