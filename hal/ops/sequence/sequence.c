/* sequence.c: launchers of arange, linspace and logspace: numbers computed from their index, into a contiguous
 * result. */
#include "op/launch.h"

#include "hal_op_variants.h"
#include "ops/sequence/sequence_args.h"

HAL_OP_LAUNCHER(queue_sequence_contig, items, SEQUENCE_CONTIG_ARGS)

/* Reads a number in the type of the kernel's sum: double for floating dtypes, else int64. */
static hal_status_t read_number(const hal_op_context_t *context, const hal_op_call_t *call, uint32_t index,
                                int floating, hal_op_scalar_t *out) {
  out->size = 8;
  return floating ? hal_op_double(context, call, index, &out->u.f64) : hal_op_int(context, call, index, &out->u.i64);
}

/* Returns the step between `count` numbers from the first to the last; exact for one number. */
static double even_step(double start, double end, int64_t count) {
  return count > 1 ? (end - start) / (double)(count - 1) : 0;
}

hal_status_t hal_op_launch_sequence(hal_op_context_t *context, const hal_op_call_t *call) {
  const hal_tensor_t *tensor;
  hal_plugin_kernel_t *kernel;
  hal_op_scalar_t start, step, end = {.size = 8}, base = {.size = 8};
  int64_t numel;
  HAL_RETURN_IF_ERROR(hal_op_result(context, call, 0, &tensor));
  HAL_RETURN_IF_ERROR(hal_op_numel(context, tensor, "the result", &numel));
  HAL_RETURN_IF_ERROR(hal_op_kernel(context, tensor->dtype, HAL_SEQUENCE_VARIANT_CONTIG, &kernel));
  if (numel == 0) return HAL_OK;
  if (!hal_op_is_contiguous(tensor)) return HAL_UNIMPLEMENTED;
  const int floating = tensor->dtype != HAL_INT64, ranged = context->info->kernel[0] == 'a'; /* arange */
  HAL_RETURN_IF_ERROR(read_number(context, call, 0, floating, &start));
  HAL_RETURN_IF_ERROR(read_number(context, call, 1, floating, ranged ? &step : &end));
  uint64_t n = (uint64_t)numel, half = n;
  if (!ranged) {
    step = (hal_op_scalar_t){.u.f64 = even_step(start.u.f64, end.u.f64, numel), .size = 8};
    half = numel > 1 ? n / 2 : 1;
    if (context->info->argument_count > 2) HAL_RETURN_IF_ERROR(read_number(context, call, 2, floating, &base));
  }
  void *result = tensor->data;
  return queue_sequence_contig(context, kernel, n, result, hal_op_number(&start), hal_op_number(&step),
                               hal_op_number(&end), hal_op_number(&base), half, n);
}
