/* gemm.c: launcher of mm, addmm, bmm and baddbmm: result = beta * self + alpha * a @ b.
 *
 * Any strides are supported: a transposed operand has exchanged strides, a broadcast self has stride 0. A result whose
 * columns are contiguous is computed as its transpose, b' @ a'. The tiles depend only on the sizes. */
#include <string.h>

#include "hal_op_variants.h"
#include "op/dims.h"
#include "op/parts.h"
#include "ops/gemm/gemm.h"
#include "ops/gemm/gemm_args.h"
#include "ops/reduce/reduce.h"

HAL_OP_LAUNCHER(queue_gemm, groups, GEMM_ARGS)

typedef pk_gemm_t gemm_t;

typedef struct operands_s {
  const hal_tensor_t *self, *a, *b, *result; /* self is NULL for mm and bmm */
  hal_op_scalar_t alpha, beta;
} operands_t;

enum { TILE_BYTES = 512, PANEL_BYTES = PK_GEMM_BYTES };

static int64_t divide_up(int64_t x, int64_t y) { return x / y + (x % y != 0); }

/* Reads the operands; mm and bmm have no self, alpha and beta. */
static hal_status_t read_operands(const hal_op_context_t *context, const hal_op_call_t *call, operands_t *out) {
  static const hal_value_t zero = {.tag = HAL_VALUE_INT, .u.i = 0}, one = {.tag = HAL_VALUE_INT, .u.i = 1};
  const int add = context->info->argument_count == 5;
  out->self = NULL;
  if (add) HAL_RETURN_IF_ERROR(hal_op_tensor(context, call, 0, &out->self));
  HAL_RETURN_IF_ERROR(hal_op_tensor(context, call, add ? 1 : 0, &out->a));
  HAL_RETURN_IF_ERROR(hal_op_tensor(context, call, add ? 2 : 1, &out->b));
  HAL_RETURN_IF_ERROR(hal_op_result(context, call, 0, &out->result));
  const hal_dtype_t dtype = out->a->dtype;
  if (out->b->dtype != dtype || out->result->dtype != dtype || (out->self && out->self->dtype != dtype))
    return hal_op_invalid(context, "the matrices have the dtypes %s and %s, the result %s; all must be the same",
                          hal_op_dtype_name(dtype), hal_op_dtype_name(out->b->dtype),
                          hal_op_dtype_name(out->result->dtype));
  HAL_RETURN_IF_ERROR(hal_op_scalar(context, add ? &call->args[3] : &zero, dtype, "beta", &out->beta));
  return hal_op_scalar(context, add ? &call->args[4] : &one, dtype, "alpha", &out->alpha);
}

/* Reads the strides of a matrix or a batch of matrices; 0 where the tensor has size 1. */
static void read_strides(const hal_tensor_t *tensor, int64_t *batch, int64_t *row, int64_t *col) {
  const int32_t n = tensor->ndim;
  *row = tensor->sizes[n - 2] == 1 ? 0 : tensor->strides[n - 2];
  *col = tensor->sizes[n - 1] == 1 ? 0 : tensor->strides[n - 1];
  *batch = n == 2 || tensor->sizes[0] == 1 ? 0 : tensor->strides[0];
}

static hal_status_t check_shape(const hal_op_context_t *context, const hal_tensor_t *tensor, const char *what,
                                const int64_t *shape, int32_t ndim, int broadcast) {
  int ok = tensor->ndim == ndim;
  for (int32_t d = 0; ok && d < ndim; d++)
    ok = tensor->sizes[d] == shape[3 - ndim + d] || (broadcast && tensor->sizes[d] == 1);
  if (ok) return HAL_OK;
  if (ndim == 2)
    return hal_op_invalid(context, "%s must be a matrix of %lld x %lld", what, (long long)shape[1],
                          (long long)shape[2]);
  return hal_op_invalid(context, "%s must have the shape %lld x %lld x %lld", what, (long long)shape[0],
                        (long long)shape[1], (long long)shape[2]);
}

/* Checks the shapes; returns sizes and strides, and the number of matrices. */
static hal_status_t read_shapes(const hal_op_context_t *context, const operands_t *in, gemm_t *out,
                                int64_t *out_batch) {
  const int32_t ndim = in->a->ndim;
  const int batched = context->info->name[0] == 'b'; /* bmm, baddbmm */
  if (ndim != (batched ? 3 : 2))
    return hal_op_invalid(context, "`%s` has %d dimensions; expected %d", context->info->arguments[in->self ? 1 : 0],
                          (int)ndim, batched ? 3 : 2);
  memset(out, 0, sizeof(*out));
  out->m = in->a->sizes[ndim - 2];
  out->k = in->a->sizes[ndim - 1];
  out->n = in->b->ndim ? in->b->sizes[in->b->ndim - 1] : 0;
  *out_batch = batched ? in->a->sizes[0] : 1;
  const int64_t shape_b[3] = {*out_batch, out->k, out->n}, shape[3] = {*out_batch, out->m, out->n};
  HAL_RETURN_IF_ERROR(check_shape(context, in->b, "the second matrix", shape_b, ndim, 0));
  HAL_RETURN_IF_ERROR(check_shape(context, in->result, "the result", shape, ndim, 0));
  if (in->self) HAL_RETURN_IF_ERROR(check_shape(context, in->self, "`self`", shape, ndim, 1));
  read_strides(in->a, &out->a_batch, &out->a_row, &out->a_col);
  read_strides(in->b, &out->b_batch, &out->b_row, &out->b_col);
  read_strides(in->result, &out->result_batch, &out->result_row, &out->result_col);
  if (in->self) read_strides(in->self, &out->self_batch, &out->self_row, &out->self_col);
  return HAL_OK;
}

static void exchange(int64_t *x, int64_t *y) {
  const int64_t z = *x;
  *x = *y;
  *y = z;
}

/* Replaces the problem by that of the transposed result. */
static void transpose(gemm_t *s, operands_t *in) {
  const hal_tensor_t *const a = in->a;
  in->a = in->b;
  in->b = a;
  exchange(&s->m, &s->n);
  exchange(&s->a_batch, &s->b_batch);
  exchange(&s->a_row, &s->b_col);
  exchange(&s->a_col, &s->b_row);
  exchange(&s->self_row, &s->self_col);
  exchange(&s->result_row, &s->result_col);
}

/* Returns whether the kernel for a row vector supports the problem, and divides it into strips of columns. */
static int choose_strips(const hal_op_context_t *context, gemm_t *s, int64_t batch, int64_t element) {
  const int by_columns = s->b_row == 1 && s->b_col != 1;
  if (s->m != 1 || s->k < 2 || (by_columns ? s->a_col != 1 : s->b_col != 1)) return 0;
  const int64_t panel = PANEL_BYTES / element;
  const double work = (double)s->n * (double)s->k / (HAL_OP_TILE_WORK / 16); /* one multiplication per element loaded */
  const int64_t most = divide_up((int64_t)hal_op_target(context)->wanted_groups, batch),
                wanted = work < (double)most ? (int64_t)work : most;
  s->tiles = (pk_tiles_t){.tile_m = 1, .tile_n = TILE_BYTES / element, .tiles_m = 1};
  while (s->tiles.tile_n > panel && divide_up(s->n, s->tiles.tile_n) < wanted) s->tiles.tile_n -= panel;
  s->tiles.tiles_n = divide_up(s->n, s->tiles.tile_n);
  return 1;
}

/* Transposes a column vector. Returns whether the kernel for row vectors accepts the problem. */
static int choose_vector(hal_op_context_t *context, operands_t *in, gemm_t *s, int64_t batch,
                         hal_plugin_kernel_t **out_kernel, int64_t *out_units) {
  if (s->n == 1 && s->m > 1) transpose(s, in);
  if (s->m != 1 || hal_op_kernel(context, in->a->dtype, HAL_GEMM_VARIANT_VECTOR, out_kernel) ||
      !choose_strips(context, s, batch, in->alpha.size))
    return 0;
  *out_units = s->tiles.tiles_n;
  return 1;
}

/* Divides the problem into tiles, and transposes it if that is faster. */
static hal_status_t choose_tiles(hal_op_context_t *context, operands_t *in, gemm_t *s, int64_t batch,
                                 hal_plugin_kernel_t **out_kernel, int64_t *out_units) {
  HAL_RETURN_IF_ERROR(hal_op_kernel(context, in->a->dtype, HAL_GEMM_VARIANT_TILES, out_kernel));
  if (s->result_col != 1 && s->n > 1 && (s->result_row == 1 || s->m == 1)) transpose(s, in);
  /* Narrow tiles pack a more often, low ones b. An a whose rows are contiguous need not be packed. */
  const int keep_n = s->a_col != 1 && s->b_col == 1;
  s->tiles = hal_op_gemm_tiles(context, s->m, s->n, s->k, batch, in->alpha.size, PK_GEMM_TILE_M, keep_n);
  *out_units = s->tiles.tiles_m * s->tiles.tiles_n;
  return HAL_OK;
}

static hal_status_t queue_units(hal_op_context_t *context, hal_plugin_kernel_t *kernel, const operands_t *in,
                                const gemm_t *s, void *result, const hal_op_scalar_t *beta, uint64_t units,
                                uint64_t per_group) {
  const void *self = in->self ? in->self->data : result; /* not read if beta is 0 */
  return queue_gemm(context, kernel, (units + per_group - 1) / per_group, result, in->a->data, in->b->data, self, s,
                    hal_op_number(&in->alpha), hal_op_number(beta), units, per_group);
}

/* Devices with many threads: squares, or parts of them along a long sum if there are too few; beta * self is then added
 * with the first part. */
static hal_status_t launch_squares(hal_op_context_t *context, operands_t *in, gemm_t *s, int64_t batch) {
  hal_plugin_kernel_t *kernel;
  uint64_t units;
  size_t bytes;
  if (s->result_col != 1 && s->n > 1 && (s->result_row == 1 || s->m == 1)) transpose(s, in);
  const hal_op_squares_t plan = hal_op_gemm_squares(hal_op_target(context), s->m, s->n, s->k, batch, in->alpha.size);
  HAL_RETURN_IF_ERROR(
      hal_op_kernel(context, in->a->dtype,
                    plan.tiles.tile_m == PK_GEMM_LARGE ? HAL_GEMM_VARIANT_LARGE : HAL_GEMM_VARIANT_TILES, &kernel));
  s->tiles = plan.tiles, s->parts = 1, s->part = s->k;
  if (__builtin_mul_overflow((uint64_t)(s->tiles.tiles_m * s->tiles.tiles_n), (uint64_t)batch, &units))
    return hal_op_too_large(context, UINT64_MAX);
  if (plan.parts == 1 || !hal_op_is_contiguous(in->result))
    return queue_units(context, kernel, in, s, in->result->data, &in->beta, units, 1);
  hal_op_scratch_t scratch = {.block = NULL};
  const int64_t numel = s->m * s->n; /* of the result, so no overflow */
  if (__builtin_mul_overflow((size_t)numel, (size_t)plan.parts * in->alpha.size, &bytes))
    return hal_op_too_large(context, UINT64_MAX);
  HAL_RETURN_IF_ERROR(hal_op_scratch(context, bytes, &scratch));
  s->parts = plan.parts, s->part = plan.part, s->result_batch = numel;
  hal_status_t status = queue_units(context, kernel, in, s, scratch.address, &in->beta, units * (uint64_t)s->parts, 1);
  if (!status)
    status = hal_op_add_rows(context, s->parts, scratch.address, hal_op_accumulator(context, in->a->dtype), in->result);
  hal_op_scratch_release(&scratch);
  return status;
}

static hal_status_t launch_on_cpu(hal_op_context_t *context, operands_t *in, gemm_t *s, int64_t batch) {
  if (s->result_col != 1 && s->result_row == 1) transpose(s, in);
  const hal_op_product_t product = {.s = *s,
                                    .a = in->a->data,
                                    .b = in->b->data,
                                    .self = in->self ? in->self->data : in->result->data,
                                    .result = in->result->data,
                                    .alpha = &in->alpha,
                                    .beta = &in->beta,
                                    .dtype = in->a->dtype,
                                    .widened = in->alpha.size != hal_op_dtype_size(in->a->dtype),
                                    .batch = batch};
  return hal_op_gemm_cpu(context, &product);
}

/* Queues the product of real matrices. */
static hal_status_t launch(hal_op_context_t *context, operands_t in) {
  gemm_t s;
  int64_t batch = 1, numel;
  hal_plugin_kernel_t *kernel;
  HAL_RETURN_IF_ERROR(read_shapes(context, &in, &s, &batch));
  HAL_RETURN_IF_ERROR(hal_op_numel(context, in.result, "the result", &numel));
  if (numel == 0) return HAL_OK;
  int64_t tiles;
  if (!choose_vector(context, &in, &s, batch, &kernel, &tiles)) {
    if (hal_op_target(context)->form == HAL_FORM_CPU_VECTOR) return launch_on_cpu(context, &in, &s, batch);
    if (hal_op_target(context)->form == HAL_FORM_SIMT) return launch_squares(context, &in, &s, batch);
    HAL_RETURN_IF_ERROR(choose_tiles(context, &in, &s, batch, &kernel, &tiles));
  }
  uint64_t units, per_group;
  if (__builtin_mul_overflow((uint64_t)tiles, (uint64_t)batch, &units)) return hal_op_too_large(context, UINT64_MAX);
  const double reuse = s.m == 1 ? 16 : 1; /* a row vector loads an element for each multiplication */
  per_group =
      hal_op_gemm_per_group(context, reuse * (double)s.tiles.tile_m * (double)s.tiles.tile_n * (double)(s.k + 1));
  return queue_units(context, kernel, &in, &s, in.result->data, &in.beta, units, per_group);
}

/* One of the real products of a complex one: result part = beta * self part + alpha * (a part) @ (b part), with `again`
 * added to the existing result. */
static hal_status_t launch_part(hal_op_context_t *context, const operands_t *in, int part, int a_part, int b_part,
                                int again, double alpha, double beta) {
  hal_op_parts_t a, b, result, self;
  operands_t real = {.self = NULL};
  hal_op_parts(in->a, a_part, &a);
  hal_op_parts(in->b, b_part, &b);
  hal_op_parts(in->result, part, &result);
  real.a = &a.tensor, real.b = &b.tensor, real.result = &result.tensor;
  if (again) {
    real.self = real.result;
  } else if (in->self) {
    hal_op_parts(in->self, part, &self);
    real.self = &self.tensor;
  }
  const hal_value_t numbers[] = {{.tag = HAL_VALUE_DOUBLE,
                                  .u.d = again      ? 1
                                         : in->self ? beta
                                                    : 0},
                                 {.tag = HAL_VALUE_DOUBLE, .u.d = alpha}};
  HAL_RETURN_IF_ERROR(hal_op_scalar(context, &numbers[0], real.a->dtype, "beta", &real.beta));
  HAL_RETURN_IF_ERROR(hal_op_scalar(context, &numbers[1], real.a->dtype, "alpha", &real.alpha));
  return launch(context, real);
}

/* Complex matrices as four real products. Factors with an imaginary part use the fallback. */
static hal_status_t launch_complex(hal_op_context_t *context, const operands_t *in) {
  enum { RE = HAL_OP_REAL_PART, IM = HAL_OP_IMAGINARY_PART };
  const int single = in->a->dtype == HAL_COMPLEX64;
  const hal_op_scalar_t *x = &in->alpha, *y = &in->beta;
  if (!hal_op_has_dtype(context, in->a->dtype)) return HAL_UNIMPLEMENTED;
  if ((single ? x->u.c64[1] : x->u.c128[1]) != 0 || (single ? y->u.c64[1] : y->u.c128[1]) != 0)
    return HAL_UNIMPLEMENTED;
  const double alpha = single ? x->u.c64[0] : x->u.c128[0], beta = single ? y->u.c64[0] : y->u.c128[0];
  HAL_RETURN_IF_ERROR(launch_part(context, in, RE, RE, RE, 0, alpha, beta));
  hal_status_t status = launch_part(context, in, RE, IM, IM, 1, -alpha, 0);
  if (!status) status = launch_part(context, in, IM, RE, IM, 0, alpha, beta);
  if (!status) status = launch_part(context, in, IM, IM, RE, 1, alpha, 0);
  return status == HAL_UNIMPLEMENTED ? HAL_INTERNAL : status; /* the result is written already */
}

hal_status_t hal_op_launch_gemm(hal_op_context_t *context, const hal_op_call_t *call) {
  operands_t in;
  HAL_RETURN_IF_ERROR(read_operands(context, call, &in));
  return hal_op_is_complex(in.a->dtype) ? launch_complex(context, &in) : launch(context, in);
}
