/* dequantize.c: launcher of conversions of elements of 4 and 8 bits, in blocks that have a scale each, to float32.
 *
 * args: self, rows of float8 or of pairs of float4_e2m1fn; scales, float8; block: elements of a block; tiled: whether
 * scales are in tiles of 128 rows and 4 blocks, padded to complete tiles, otherwise they are [row][block]. The result
 * is a float32 matrix. All are contiguous. */
#include "hal_op_variants.h"
#include "op/launch.h"
#include "ops/dequantize/dequantize_args.h"

HAL_OP_LAUNCHER(queue_blocks, items, DEQUANTIZE_ARGS)

static int64_t divide_up(int64_t x, int64_t y) { return x / y + (x % y != 0); }

/* Returns a PK_FORMAT_*; -1 = another dtype. */
static int64_t format_of(hal_dtype_t dtype) {
  switch (dtype) {
    case HAL_FLOAT4_E2M1FN_X2:
      return PK_FORMAT_E2M1;
    case HAL_FLOAT8_E4M3FN:
      return PK_FORMAT_E4M3FN;
    case HAL_FLOAT8_E5M2:
      return PK_FORMAT_E5M2;
    case HAL_FLOAT8_E4M3FNUZ:
      return PK_FORMAT_E4M3FNUZ;
    case HAL_FLOAT8_E5M2FNUZ:
      return PK_FORMAT_E5M2FNUZ;
    case HAL_FLOAT8_E8M0FNU:
      return PK_FORMAT_E8M0FNU;
    default:
      return -1;
  }
}

static hal_status_t check(const hal_op_context_t *context, const hal_tensor_t *codes, const hal_tensor_t *scales,
                          const hal_tensor_t *result, int64_t block, int64_t tiled, pk_dequantize_t *out) {
  out->format = format_of(codes->dtype), out->scale_format = format_of(scales->dtype), out->block = block;
  if (out->format < 0 || out->scale_format <= PK_FORMAT_E2M1)
    return hal_op_invalid(context, "elements of %s with scales of %s; expected float4 or float8 with float8 scales",
                          hal_op_dtype_name(codes->dtype), hal_op_dtype_name(scales->dtype));
  const int64_t per_byte = out->format == PK_FORMAT_E2M1 ? 2 : 1;
  if (codes->ndim != 2 || block <= 0 || block % 2 != 0 ||
      __builtin_mul_overflow(codes->sizes[1], per_byte, &out->columns))
    return hal_op_invalid(context,
                          "`self` has %d dimensions and blocks of %lld elements; expected a matrix and an even "
                          "number",
                          (int)codes->ndim, (long long)block);
  const int64_t rows = codes->sizes[0];
  int64_t numel, count;
  out->blocks = divide_up(out->columns, block);
  out->tiles = tiled ? divide_up(out->blocks, PK_SCALE_TILE_BLOCKS) : 0;
  const int64_t lines = tiled ? divide_up(rows, PK_SCALE_TILE_ROWS) * PK_SCALE_TILE_ROWS : rows;
  if (__builtin_mul_overflow(rows, out->columns, &numel) ||
      __builtin_mul_overflow(lines, tiled ? out->tiles * PK_SCALE_TILE_BLOCKS : out->blocks, &count))
    return hal_op_too_large(context, UINT64_MAX);
  HAL_RETURN_IF_ERROR(hal_op_check_dense(context, codes, "`self`", numel / per_byte, codes->dtype));
  HAL_RETURN_IF_ERROR(hal_op_check_dense(context, scales, "`scales`", count, scales->dtype));
  return hal_op_check_dense(context, result, "the result", numel, HAL_FLOAT32);
}

hal_status_t hal_op_launch_dequantize(hal_op_context_t *context, const hal_op_call_t *call) {
  const hal_tensor_t *codes, *scales, *result;
  int64_t block, tiled;
  hal_plugin_kernel_t *kernel;
  pk_dequantize_t s;
  HAL_RETURN_IF_ERROR(hal_op_tensor(context, call, 0, &codes));
  HAL_RETURN_IF_ERROR(hal_op_tensor(context, call, 1, &scales));
  HAL_RETURN_IF_ERROR(hal_op_int(context, call, 2, &block));
  HAL_RETURN_IF_ERROR(hal_op_int(context, call, 3, &tiled));
  HAL_RETURN_IF_ERROR(hal_op_result(context, call, 0, &result));
  HAL_RETURN_IF_ERROR(check(context, codes, scales, result, block, tiled, &s));
  HAL_RETURN_IF_ERROR(hal_op_kernel(context, HAL_FLOAT32, HAL_DEQUANTIZE_VARIANT_BLOCKS, &kernel));
  const uint64_t n = (uint64_t)(codes->sizes[0] * s.blocks); /* at most the elements of the result */
  return queue_blocks(context, kernel, n, result->data, codes->data, scales->data, &s, n);
}
