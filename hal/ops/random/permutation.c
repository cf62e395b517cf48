/* permutation.c: launcher of randperm. The call's Philox blocks: one per element for few elements, else six. */
#include "op/launch.h"

#include "hal_op_variants.h"
#include "ops/random/random_args.h"

HAL_OP_LAUNCHER(queue_swaps, loops, PERMUTATION_SWAPS_ARGS)
HAL_OP_LAUNCHER(queue_rounds, items, PERMUTATION_ROUNDS_ARGS)

#define FEW 4096 /* elements that one item shuffles in about 100 us; above, all items work */

hal_status_t hal_op_launch_permutation(hal_op_context_t *context, const hal_op_call_t *call) {
  const hal_tensor_t *tensor;
  hal_plugin_kernel_t *kernel;
  int64_t numel;
  HAL_RETURN_IF_ERROR(hal_op_result(context, call, 0, &tensor));
  HAL_RETURN_IF_ERROR(hal_op_numel(context, tensor, "the result", &numel));
  const uint32_t variant = numel <= FEW ? HAL_PERMUTATION_VARIANT_SWAPS : HAL_PERMUTATION_VARIANT_ROUNDS;
  HAL_RETURN_IF_ERROR(hal_op_kernel(context, tensor->dtype, variant, &kernel));
  if (numel == 0) return HAL_OK;
  if (!hal_op_is_contiguous(tensor)) return HAL_UNIMPLEMENTED;
  void *result = tensor->data;
  const uint64_t n = (uint64_t)numel, seed = call->seed, offset = call->offset;
  const void *const state = hal_op_random_state(call);
  if (variant == HAL_PERMUTATION_VARIANT_SWAPS) return queue_swaps(context, kernel, 1, result, n, seed, offset, state);
  const int32_t bits = 64 - __builtin_clzll(n - 1);
  return queue_rounds(context, kernel, n, result, n, seed, offset, state, bits);
}
