/* int_gemm.c: launcher of products of 8-bit integers: _int_mm.
 *
 * args: self (m x k, int8 or uint8), mat2 (k x n, int8), with any strides. The result is int32 and contiguous. */
#include "hal_op_variants.h"
#include "ops/gemm/gemm.h"
#include "ops/int_gemm/int_gemm_args.h"

HAL_OP_LAUNCHER(queue_tiles, groups, INT_GEMM_ARGS)

/* Checks the operands, and returns the problem without its tiles. */
static hal_status_t read_problem(const hal_op_context_t *context, const hal_tensor_t *a, const hal_tensor_t *b,
                                 const hal_tensor_t *result, pk_int_gemm_t *out) {
  if (a->ndim != 2 || b->ndim != 2 || a->sizes[1] != b->sizes[0] || b->dtype != HAL_INT8)
    return hal_op_invalid(context, "`mat2` has %d dimensions and the dtype %s; expected an int8 matrix of %lld rows",
                          (int)b->ndim, hal_op_dtype_name(b->dtype), (long long)(a->ndim == 2 ? a->sizes[1] : 0));
  *out = (pk_int_gemm_t){.m = a->sizes[0],
                         .n = b->sizes[1],
                         .k = a->sizes[1],
                         .a_row = a->strides[0],
                         .a_col = a->strides[1],
                         .b_row = b->strides[0],
                         .b_col = b->strides[1]};
  int64_t numel;
  if (__builtin_mul_overflow(out->m, out->n, &numel)) return hal_op_too_large(context, UINT64_MAX);
  return hal_op_check_dense(context, result, "the result", numel, HAL_INT32);
}

hal_status_t hal_op_launch_int_gemm(hal_op_context_t *context, const hal_op_call_t *call) {
  const hal_tensor_t *a, *b, *result;
  hal_plugin_kernel_t *kernel;
  pk_int_gemm_t s;
  HAL_RETURN_IF_ERROR(hal_op_tensor(context, call, 0, &a));
  HAL_RETURN_IF_ERROR(hal_op_tensor(context, call, 1, &b));
  HAL_RETURN_IF_ERROR(hal_op_result(context, call, 0, &result));
  if (!hal_op_has_dtype(context, a->dtype)) return HAL_UNIMPLEMENTED;
  HAL_RETURN_IF_ERROR(read_problem(context, a, b, result, &s));
  HAL_RETURN_IF_ERROR(hal_op_kernel(context, a->dtype, HAL_INT_GEMM_VARIANT_TILES, &kernel));
  if (s.m == 0 || s.n == 0) return HAL_OK;
  uint64_t per_group = 1;
  if (hal_op_is_host(context)) {
    /* A product of few rows is as slow as reading its weights. */
    const int few = s.m <= PK_INT_FEW;
    s.tiles = hal_op_gemm_tiles(context, s.m, s.n, few ? s.k : s.k / 2, 1, sizeof(int32_t), PK_GEMM_TILE_M, 0);
    per_group = hal_op_gemm_per_group(context, (double)s.tiles.tile_m * (double)s.tiles.tile_n * (double)s.k / 2);
  } else {
    s.tiles = (pk_tiles_t){.tile_m = PK_GEMM_SMALL,
                           .tile_n = PK_GEMM_SMALL,
                           .tiles_m = (s.m + PK_GEMM_SMALL - 1) / PK_GEMM_SMALL,
                           .tiles_n = (s.n + PK_GEMM_SMALL - 1) / PK_GEMM_SMALL};
  }
  uint64_t units;
  if (__builtin_mul_overflow((uint64_t)s.tiles.tiles_m, (uint64_t)s.tiles.tiles_n, &units))
    return hal_op_too_large(context, UINT64_MAX);
  return queue_tiles(context, kernel, (units + per_group - 1) / per_group, result->data, a->data, b->data, &s, units,
                     per_group);
}
