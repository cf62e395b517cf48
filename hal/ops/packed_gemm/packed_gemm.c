/* packed_gemm.c: launcher of products with weights of 4 or 8 bits, which kernels read as they are in memory.
 *
 * args: self (m x k); the weights, n rows of k: int8, or words of int32 with 8 weights each; scales; zeros; group.
 * Scales and zeros are [k / group][n], of self's dtype. Without `zeros`, the scales of int32 are pairs of scale and
 * zero. All operands are contiguous. */
#include "hal_op_variants.h"
#include "ops/gemm/gemm.h"
#include "ops/packed_gemm/packed_gemm_args.h"

HAL_OP_LAUNCHER(queue_tiles, groups, PACKED_GEMM_ARGS)

enum { LOOP_ROWS = 8 }; /* rows of a unit of devices: PK_PACKED_ROWS */

typedef struct operands_s {
  const hal_tensor_t *a, *weights, *scales, *zeros, *result; /* zeros is NULL if there are none */
} operands_t;

static hal_status_t read_operands(const hal_op_context_t *context, const hal_op_call_t *call, operands_t *out,
                                  int64_t *out_group) {
  HAL_RETURN_IF_ERROR(hal_op_tensor(context, call, 0, &out->a));
  HAL_RETURN_IF_ERROR(hal_op_tensor(context, call, 1, &out->weights));
  HAL_RETURN_IF_ERROR(hal_op_tensor(context, call, 2, &out->scales));
  out->zeros = NULL;
  if (call->args[3].tag != HAL_VALUE_NONE) HAL_RETURN_IF_ERROR(hal_op_tensor(context, call, 3, &out->zeros));
  HAL_RETURN_IF_ERROR(hal_op_int(context, call, 4, out_group));
  return hal_op_result(context, call, 0, &out->result);
}

/* Checks the operands, and returns the problem without its tiles. */
static hal_status_t read_problem(const hal_op_context_t *context, const operands_t *in, int64_t group, pk_packed_t *s) {
  const hal_dtype_t dtype = in->a->dtype;
  if (in->a->ndim != 2 || in->result->ndim != 2 || in->result->sizes[0] != in->a->sizes[0])
    return hal_op_invalid(context,
                          "`self` and the result have %d and %d dimensions; both must be matrices of as many rows",
                          (int)in->a->ndim, (int)in->result->ndim);
  const int eight = in->weights->dtype == HAL_INT8;
  *s = (pk_packed_t){.m = in->a->sizes[0], .n = in->result->sizes[1], .k = in->a->sizes[1], .group = group};
  if (group <= 0 || s->k % group != 0 || (!eight && s->k % 8 != 0))
    return hal_op_invalid(context, "groups of %lld weights do not divide rows of %lld", (long long)group,
                          (long long)s->k);
  s->form = eight ? PK_PACKED_EIGHT : in->zeros ? PK_PACKED_ZEROS : PK_PACKED_PAIRS;
  s->row_bytes = eight ? s->k : s->k / 2;
  int64_t numel, weights, numbers;
  const int64_t groups = eight && s->k == 0 ? 1 : s->k / group; /* rows of 8 bits have numbers even without weights */
  HAL_RETURN_IF_ERROR(hal_op_numel(context, in->a, "self", &numel));
  HAL_RETURN_IF_ERROR(hal_op_check_dense(context, in->a, "self", numel, dtype));
  HAL_RETURN_IF_ERROR(hal_op_numel(context, in->result, "the result", &numel));
  HAL_RETURN_IF_ERROR(hal_op_check_dense(context, in->result, "the result", numel, dtype));
  if (__builtin_mul_overflow(s->n, s->k, &weights) || __builtin_mul_overflow(s->n, 2 * groups, &numbers))
    return hal_op_too_large(context, UINT64_MAX);
  HAL_RETURN_IF_ERROR(hal_op_check_dense(context, in->weights, "the weights", eight ? weights : weights / 8,
                                         eight ? HAL_INT8 : HAL_INT32));
  if (s->form != PK_PACKED_PAIRS) numbers /= 2;
  HAL_RETURN_IF_ERROR(hal_op_check_dense(context, in->scales, "the scales", numbers, dtype));
  return in->zeros ? hal_op_check_dense(context, in->zeros, "the zeros", numbers, dtype) : HAL_OK;
}

hal_status_t hal_op_launch_packed_gemm(hal_op_context_t *context, const hal_op_call_t *call) {
  operands_t in;
  int64_t group;
  pk_packed_t s;
  hal_plugin_kernel_t *kernel;
  HAL_RETURN_IF_ERROR(read_operands(context, call, &in, &group));
  if (!hal_op_has_dtype(context, in.a->dtype)) return HAL_UNIMPLEMENTED;
  HAL_RETURN_IF_ERROR(read_problem(context, &in, group, &s));
  HAL_RETURN_IF_ERROR(hal_op_kernel(context, in.a->dtype, HAL_PACKED_GEMM_VARIANT_TILES, &kernel));
  if (s.m == 0 || s.n == 0) return HAL_OK;
  uint64_t units, per_group = 1;
  if (hal_op_is_host(context)) {
    /* A product of one row converts it once for each tile. */
    s.tiles = hal_op_gemm_tiles(context, s.m, s.n, s.m == 1 ? s.k / 4 : s.k, 1, sizeof(float), PK_GEMM_TILE_M, 0);
    units = (uint64_t)(s.tiles.tiles_m * s.tiles.tiles_n);
    const double reuse = s.m == 1 ? 4 : 1;
    per_group = hal_op_gemm_per_group(context, reuse * (double)s.tiles.tile_m * (double)s.tiles.tile_n * (double)s.k);
  } else if (__builtin_mul_overflow((uint64_t)((s.m + LOOP_ROWS - 1) / LOOP_ROWS), (uint64_t)s.n, &units)) {
    return hal_op_too_large(context, UINT64_MAX);
  }
  const void *zeros = in.zeros ? in.zeros->data : in.scales->data; /* not read if there are none */
  return queue_tiles(context, kernel, (units + per_group - 1) / per_group, in.result->data, in.a->data,
                     in.weights->data, in.scales->data, zeros, &s, units, per_group);
}
