/* dims.c: see dims.h. */
#include "op/dims.h"

#include <string.h>

hal_status_t hal_op_dim_mask(const hal_op_context_t *context, int32_t ndim, const int64_t *list, uint32_t count,
                             uint64_t *out_mask) {
  if (count == 0) {
    *out_mask = ndim < 64 ? (UINT64_C(1) << ndim) - 1 : UINT64_MAX;
    return HAL_OK;
  }
  const int64_t limit = ndim > 0 ? ndim : 1; /* a tensor without dimensions accepts 0 and -1 */
  uint64_t mask = 0;
  for (uint32_t i = 0; i < count; i++) {
    const int64_t dim = list[i] < 0 ? list[i] + limit : list[i];
    if (dim < 0 || dim >= limit)
      return hal_op_invalid(context, "dimension %lld is out of range for a tensor with %d dimensions",
                            (long long)list[i], (int)ndim);
    if (mask >> dim & 1) return hal_op_invalid(context, "dimension %lld is specified twice", (long long)list[i]);
    mask |= UINT64_C(1) << dim;
  }
  *out_mask = ndim > 0 ? mask : 0;
  return HAL_OK;
}

hal_status_t hal_op_read_dim(const hal_op_context_t *context, const hal_op_call_t *call, uint32_t index,
                             const hal_tensor_t *tensor, int64_t *out_dim) {
  HAL_RETURN_IF_ERROR(hal_op_int(context, call, index, out_dim));
  if (*out_dim < 0 || *out_dim >= tensor->ndim)
    return hal_op_invalid(context, "dimension %lld is out of range for a tensor with %d dimensions",
                          (long long)*out_dim, (int)tensor->ndim);
  return HAL_OK;
}

hal_status_t hal_op_check_keepdim(const hal_op_context_t *context, const hal_tensor_t *tensor,
                                  const hal_tensor_t *result, uint64_t mask) {
  if (result->ndim != tensor->ndim)
    return hal_op_invalid(context, "the result has %d dimensions, the keepdim shape has %d", (int)result->ndim,
                          (int)tensor->ndim);
  for (int32_t d = 0; d < tensor->ndim; d++) {
    const int64_t wanted = mask >> d & 1 ? 1 : tensor->sizes[d];
    if (result->sizes[d] != wanted)
      return hal_op_invalid(context, "the result has size %lld in dimension %d, the keepdim shape has %lld",
                            (long long)result->sizes[d], (int)d, (long long)wanted);
  }
  return HAL_OK;
}

hal_status_t hal_op_check_same_shape(const hal_op_context_t *context, const hal_tensor_t *tensor, const char *what,
                                     const hal_tensor_t *other, const char *other_what) {
  if (tensor->ndim != other->ndim)
    return hal_op_invalid(context, "%s has %d dimensions, %s has %d", what, (int)tensor->ndim, other_what,
                          (int)other->ndim);
  for (int32_t d = 0; d < tensor->ndim; d++)
    if (tensor->sizes[d] != other->sizes[d])
      return hal_op_invalid(context, "%s has size %lld in dimension %d, %s has %lld", what, (long long)tensor->sizes[d],
                            (int)d, other_what, (long long)other->sizes[d]);
  return HAL_OK;
}

hal_status_t hal_op_check_same_dtype(const hal_op_context_t *context, const hal_tensor_t *tensor, const char *what,
                                     const hal_tensor_t *other, const char *other_what) {
  if (tensor->dtype == other->dtype) return HAL_OK;
  return hal_op_invalid(context, "%s has dtype %s, %s has %s", what, hal_op_dtype_name(tensor->dtype), other_what,
                        hal_op_dtype_name(other->dtype));
}

void hal_op_dims_init(const hal_tensor_t *const *tensors, int32_t operands, uint64_t mask, hal_op_dims_t *out_dims) {
  out_dims->count = 0;
  out_dims->operands = operands;
  for (int32_t d = tensors[1]->ndim - 1; d >= 0; d--) {
    if (tensors[1]->sizes[d] == 1) continue;
    hal_op_dim_t *dim = &out_dims->dim[out_dims->count++];
    memset(dim, 0, sizeof(*dim));
    dim->size = tensors[1]->sizes[d];
    dim->reduced = (int32_t)(mask >> d & 1);
    for (int32_t k = 0; k < operands; k++) dim->stride[k] = tensors[k]->sizes[d] == 1 ? 0 : tensors[k]->strides[d];
  }
}

/* Returns whether `x` is sorted before `y`: by the absolute stride of operand 1, with 0 as the largest. */
static int precedes(const hal_op_dim_t *x, const hal_op_dim_t *y) {
  const int64_t sx = x->stride[1], sy = y->stride[1];
  const uint64_t kx = (uint64_t)(sx < 0 ? -sx : sx) - 1u, ky = (uint64_t)(sy < 0 ? -sy : sy) - 1u;
  return kx < ky;
}

void hal_op_dims_sort(hal_op_dims_t *dims) {
  for (int32_t i = 1; i < dims->count; i++) { /* insertion sort: few dimensions, usually sorted already */
    const hal_op_dim_t dim = dims->dim[i];
    int32_t at = i;
    for (; at > 0 && precedes(&dim, &dims->dim[at - 1]); at--) dims->dim[at] = dims->dim[at - 1];
    dims->dim[at] = dim;
  }
}

static int mergeable(const hal_op_dim_t *inner, const hal_op_dim_t *outer, int32_t operands) {
  if (inner->reduced != outer->reduced) return 0;
  for (int32_t k = 0; k < operands; k++) {
    int64_t span;
    if (__builtin_mul_overflow(inner->stride[k], inner->size, &span) || outer->stride[k] != span) return 0;
  }
  return 1;
}

void hal_op_dims_merge(hal_op_dims_t *dims) {
  int32_t count = 0;
  for (int32_t i = 0; i < dims->count; i++) {
    if (count && mergeable(&dims->dim[count - 1], &dims->dim[i], dims->operands))
      dims->dim[count - 1].size *= dims->dim[i].size;
    else
      dims->dim[count++] = dims->dim[i];
  }
  dims->count = count;
}

hal_op_dim_t hal_op_dims_take(hal_op_dims_t *dims, int32_t index) {
  const hal_op_dim_t dim = dims->dim[index];
  dims->count--;
  for (int32_t i = index; i < dims->count; i++) dims->dim[i] = dims->dim[i + 1];
  return dim;
}

int64_t hal_op_dims_numel(const hal_op_dims_t *dims) {
  int64_t numel = 1;
  for (int32_t i = 0; i < dims->count; i++)
    if (__builtin_mul_overflow(numel, dims->dim[i].size, &numel)) return INT64_MAX;
  return numel;
}

hal_status_t hal_op_dims_rows(const hal_op_dims_t *dims, pk_rows_t *out_rows) {
  if (dims->count > PK_MAXD) return HAL_UNIMPLEMENTED;
  memset(out_rows, 0, sizeof(*out_rows));
  out_rows->ndim = dims->count;
  for (int32_t i = 0; i < dims->count; i++) {
    out_rows->size[i] = dims->dim[i].size;
    for (int32_t k = 0; k < dims->operands; k++) out_rows->stride[k][i] = dims->dim[i].stride[k];
  }
  return HAL_OK;
}

uint64_t hal_op_units_per_group(const hal_op_context_t *context, uint64_t cost) {
  if (hal_op_target(context)->form == HAL_FORM_SIMT) return 1;
  return cost >= HAL_OP_ATTENTION ? 1 : HAL_OP_ATTENTION / (cost ? cost : 1);
}
