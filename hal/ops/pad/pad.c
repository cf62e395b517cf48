/* pad.c: launchers of padding by reflection and by replication, and of its backward, with ATen's arguments. The name of
 * an operator selects its kind. */
#include <string.h>

#include "op/dims.h"
#include "op/parts.h"
#include "op/window.h"

#include "hal_op_variants.h"
#include "ops/pad/pad_args.h"

HAL_OP_LAUNCHER(queue_rows, loops, PAD_ROWS_ARGS)
HAL_OP_LAUNCHER(queue_backward_rows, loops, PAD_BACKWARD_ROWS_ARGS)

#define FEWEST_COLUMNS 8 /* minimum size of a kept dimension that is processed as columns */

/* Reads the padding: pairs of elements before and after, from the last dimension on. */
static hal_status_t read_padding(const hal_op_context_t *context, const hal_op_call_t *call, const hal_tensor_t *image,
                                 const hal_tensor_t *padded, pk_pad_t *p) {
  const int32_t spatial = hal_op_spatial(context), index = hal_op_named(context, "padding");
  const int64_t *list;
  uint32_t count;
  memset(p, 0, sizeof *p);
  p->reflects = strstr(context->info->name, "reflection") != NULL;
  HAL_RETURN_IF_ERROR(hal_op_int_list(context, call, (uint32_t)index, &list, &count));
  if (count != 2u * (uint32_t)spatial || image->ndim != padded->ndim || image->ndim < spatial)
    return hal_op_invalid(context,
                          "%u numbers pad an image of %d dimensions to one of %d; expected a pair for each of %d",
                          (unsigned)count, (int)image->ndim, (int)padded->ndim, (int)spatial);
  for (int d = 0; d < 3; d++) {
    const int32_t own = d - 3 + spatial, at = image->ndim - 3 + d;
    p->in[d] = p->out[d] = 1;
    if (own < 0) continue;
    const int64_t *const pair = list + 2 * (spatial - 1 - own);
    const int64_t in = image->sizes[at], out = padded->sizes[at], most = p->reflects ? in - 1 : INT32_MAX;
    if (in < 1 || in > INT32_MAX || out > INT32_MAX || pair[0] > most || pair[1] > most ||
        in + pair[0] + pair[1] != out)
      return hal_op_invalid(context, "%lld positions cannot be padded by %lld and %lld to %lld", (long long)in,
                            (long long)pair[0], (long long)pair[1], (long long)out);
    p->in[d] = in, p->out[d] = out, p->before[d] = pair[0];
    p->of_in[d] = image->strides[at], p->of_out[d] = padded->strides[at];
  }
  return HAL_OK;
}

/* The dimensions that are not padded, with `result` first; takes a dense one as the columns. */
static hal_status_t walk_kept(const hal_op_context_t *context, const hal_tensor_t *self, const hal_tensor_t *result,
                              pk_pad_t *p, pk_rows_t *out_rows, uint64_t *out_places) {
  hal_tensor_t batch[2] = {*result, *self};
  const hal_tensor_t *const batches[] = {&batch[0], &batch[1]};
  hal_op_dims_t kept;
  batch[0].ndim = batch[1].ndim = self->ndim - hal_op_spatial(context);
  HAL_RETURN_IF_ERROR(hal_op_check_same_shape(context, &batch[1], "the operand's batch", &batch[0], "the result's"));
  hal_op_dims_init(batches, 2, 0, &kept);
  for (int32_t i = 0; i < kept.count; i++) {
    const int64_t *const stride = kept.dim[i].stride;
    if (stride[0] != 1 || stride[1] != 1 || kept.dim[i].size < FEWEST_COLUMNS) continue;
    p->columns = hal_op_dims_take(&kept, i).size;
    p->column_in = p->column_out = 1;
    break;
  }
  hal_op_dims_merge(&kept);
  p->lanes = !p->columns && kept.count && kept.dim[0].stride[1] == 1 ? kept.dim[0].size : 1;
  *out_places = (uint64_t)hal_op_dims_numel(&kept);
  return hal_op_dims_rows(&kept, out_rows);
}

/* Returns the number of elements of an item: all, or at most `most` if cores are few. */
static int64_t share_of(const hal_op_context_t *context, int64_t run, int64_t most) {
  if (hal_op_target(context)->form == HAL_FORM_SIMT) return 1;
  return run < most ? run : most;
}

hal_status_t hal_op_launch_pad(hal_op_context_t *context, const hal_op_call_t *call) {
  const hal_tensor_t *self, *result;
  pk_pad_t p;
  pk_rows_t rows;
  hal_plugin_kernel_t *kernel;
  int64_t numel;
  uint64_t places;
  HAL_RETURN_IF_ERROR(hal_op_tensor(context, call, 0, &self));
  HAL_RETURN_IF_ERROR(hal_op_result(context, call, 0, &result));
  HAL_RETURN_IF_ERROR(hal_op_check_same_dtype(context, self, "`self`", result, "the result"));
  HAL_RETURN_IF_ERROR(read_padding(context, call, self, result, &p));
  HAL_RETURN_IF_ERROR(walk_kept(context, self, result, &p, &rows, &places));
  HAL_RETURN_IF_ERROR(hal_op_numel(context, result, "the result", &numel));
  HAL_RETURN_IF_ERROR(hal_op_kernel(context, hal_op_dtype_moved(self->dtype), HAL_PAD_VARIANT_ROWS, &kernel));
  if (numel == 0) return HAL_OK;

  void *out = result->data;
  const void *a = self->data;
  const int64_t run = p.columns ? p.columns : p.out[2], share = share_of(context, run, INT32_MAX);
  const int64_t lines = p.out[0] * p.out[1] * (p.columns ? p.out[2] : 1) * ((run + share - 1) / share);
  const uint64_t n = places * (uint64_t)lines;
  return queue_rows(context, kernel, n, out, a, n, share, &rows, &p);
}

static hal_status_t pad_backward(hal_op_context_t *context, const hal_op_call_t *call, const hal_tensor_t *grad,
                                 const hal_tensor_t *result) {
  pk_pad_t p;
  pk_rows_t rows;
  hal_plugin_kernel_t *kernel;
  int64_t numel;
  uint64_t kept;
  HAL_RETURN_IF_ERROR(read_padding(context, call, result, grad, &p));
  HAL_RETURN_IF_ERROR(walk_kept(context, grad, result, &p, &rows, &kept));
  HAL_RETURN_IF_ERROR(hal_op_numel(context, result, "the result", &numel));
  HAL_RETURN_IF_ERROR(hal_op_kernel(context, grad->dtype, HAL_PAD_BACKWARD_VARIANT_ROWS, &kernel));
  if (numel == 0) return HAL_OK;

  void *out = result->data;
  const void *g = grad->data;
  const int64_t run = p.columns ? p.columns : p.in[2], share = share_of(context, run, PK_LSIZE);
  const int64_t in_line = p.columns ? p.in[2] : 1, places = share_of(context, in_line, INT32_MAX);
  const int64_t lines = p.in[0] * p.in[1] * ((in_line + places - 1) / places) * ((run + share - 1) / share);
  const uint64_t n = kept * (uint64_t)lines;
  return queue_backward_rows(context, kernel, n, out, g, n, share, places, &rows, &p);
}

hal_status_t hal_op_launch_pad_backward(hal_op_context_t *context, const hal_op_call_t *call) {
  const hal_tensor_t *grad, *result;
  HAL_RETURN_IF_ERROR(hal_op_tensor(context, call, 0, &grad));
  HAL_RETURN_IF_ERROR(hal_op_result(context, call, 0, &result));
  HAL_RETURN_IF_ERROR(hal_op_check_same_dtype(context, grad, "`grad_output`", result, "the result"));
  if (!hal_op_is_complex(grad->dtype)) return pad_backward(context, call, grad, result);
  for (int part = HAL_OP_REAL_PART; part <= HAL_OP_IMAGINARY_PART; part++) {
    hal_op_parts_t from, to;
    hal_op_parts(grad, part, &from);
    hal_op_parts(result, part, &to);
    HAL_RETURN_IF_ERROR(pad_backward(context, call, &from.tensor, &to.tensor));
  }
  return HAL_OK;
}
