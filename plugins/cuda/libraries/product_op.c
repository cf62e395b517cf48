/* product_op.c: the operators that are matrix products, by cuBLASLt. The library uses column-major matrices. A
 * row-major matrix is the transposed one for it, and d' = b' a'. The portable kernels run the operators that the
 * library cannot compute as ATen specifies. Its ReLU converts NaN to 0, and its GELU is the approximation by tanh, so
 * no activation is passed to it. */
#include "blas.h"
#include "op.h"

/* ---- matrices --------------------------------------------------------------------------------------------------- */

/* A tensor as rows and columns, each with a stride; a stride of 0 repeats. */
typedef struct view_s {
  void *data;
  int64_t rows, columns, row_stride, column_stride, batch_stride;
} view_t;

static view_t turned(view_t view) {
  return (view_t){view.data, view.columns, view.rows, view.column_stride, view.row_stride, view.batch_stride};
}

/* Returns the stride along dimension `dim` of `ndim` if the tensor is broadcast to `size` there; -1 = it cannot be. */
static int64_t broadcast_stride(const hal_tensor_t *tensor, int32_t dim, int32_t ndim, int64_t size) {
  const int32_t own = dim - (ndim - tensor->ndim);
  if (own < 0) return 0;
  if (tensor->sizes[own] == size) return tensor->strides[own];
  return tensor->sizes[own] == 1 ? 0 : -1;
}

/* Returns 0 if the tensor cannot be broadcast to that shape. */
static int view_of(const hal_tensor_t *tensor, int32_t ndim, int64_t batch, int64_t rows, int64_t columns,
                   view_t *out) {
  if (tensor->ndim > ndim) return 0;
  *out = (view_t){.data = tensor->data, .rows = rows, .columns = columns};
  out->row_stride = broadcast_stride(tensor, ndim - 2, ndim, rows);
  out->column_stride = broadcast_stride(tensor, ndim - 1, ndim, columns);
  if (ndim == 3) out->batch_stride = broadcast_stride(tensor, 0, ndim, batch);
  return out->row_stride >= 0 && out->column_stride >= 0 && out->batch_stride >= 0;
}

/* Returns whether the columns are dense and adjacent. */
static int by_columns(const view_t *view, blas_matrix_t *out) {
  if (view->rows > 1 && view->row_stride != 1) return 0;
  if (view->columns > 1 && view->column_stride < view->rows) return 0;
  *out = (blas_matrix_t){.data = view->data,
                         .rows = view->rows,
                         .columns = view->columns,
                         .leading = view->columns > 1 ? view->column_stride : view->rows,
                         .batch_stride = view->batch_stride};
  return 1;
}

static int as_factor(const view_t *view, blas_matrix_t *out) {
  const view_t other = turned(*view);
  if (by_columns(view, out)) return 1;
  if (!by_columns(&other, out)) return 0;
  out->transposed = 1;
  return 1;
}

/* ---- the tensor that is added ----------------------------------------------------------------------------------- */

/* One number per row is the library's bias; a whole matrix is its c. Others are declined: the library does not support
 * a matrix with repeated columns. */
static int take_sum(blas_product_t *product, const view_t *sum) {
  if (product->beta == 0) return 1; /* NaN in a tensor with factor 0 is ignored */
  if (product->beta == 1 && (sum->column_stride == 0 || sum->columns == 1) &&
      (sum->row_stride == 1 || sum->rows == 1)) {
    product->bias = sum->data;
    product->bias_stride = sum->batch_stride;
    product->beta = 0;
    return 1;
  }
  return by_columns(sum, &product->c);
}

/* ---- calls ------------------------------------------------------------------------------------------------------ */

/* self, a, b, beta, alpha; else a, b. */
static int has_sum(const cuda_op_t *op) { return (op->kind & CUDA_OP_ADDS) != 0; }
static int32_t dimensions(const cuda_op_t *op) { return op->kind & CUDA_OP_BATCHES ? 3 : 2; }

/* Returns the tensors of a call: result, factors and the tensor that is added, which may be NULL. Returns 0 if an
 * argument has an unexpected type. */
static int take_tensors(const cuda_op_t *op, const hal_op_call_t *call, const hal_tensor_t *out[4]) {
  const uint32_t first = has_sum(op) ? 1 : 0;
  if (call->arg_count < (has_sum(op) ? 5 : 2) || call->result_count < 1 || !call->results[0]) return 0;
  for (uint32_t i = 0; i < first + 2; i++)
    if (call->args[i].tag != HAL_VALUE_TENSOR) return 0;
  out[0] = call->results[0];
  out[1] = call->args[first].u.t;
  out[2] = call->args[first + 1].u.t;
  out[3] = has_sum(op) ? call->args[0].u.t : NULL;
  for (int i = 0; i < 4; i++)
    if (out[i] && out[i]->dtype != out[0]->dtype) return 0;
  return out[0]->ndim == dimensions(op) && out[1]->ndim == dimensions(op) && out[2]->ndim == dimensions(op);
}

static int take_views(const cuda_op_t *op, const hal_tensor_t *const tensors[4], view_t views[4], int64_t *out_batch) {
  const int32_t n = dimensions(op);
  const int64_t batch = n == 3 ? tensors[0]->sizes[0] : 1, rows = tensors[0]->sizes[n - 2],
                columns = tensors[0]->sizes[n - 1], inner = tensors[1]->sizes[n - 1];
  if (batch < 1 || batch > INT32_MAX || rows < 1 || columns < 1 || inner < 1) return 0;
  *out_batch = batch;
  return view_of(tensors[0], n, batch, rows, columns, &views[0]) &&
         view_of(tensors[1], n, batch, rows, inner, &views[1]) &&
         view_of(tensors[2], n, batch, inner, columns, &views[2]) &&
         (!tensors[3] || view_of(tensors[3], n, batch, rows, columns, &views[3]));
}

/* HAL_UNIMPLEMENTED = the library cannot express it. */
static hal_status_t describe(const cuda_op_t *op, const hal_op_call_t *call, blas_product_t *out) {
  const hal_tensor_t *tensors[4];
  view_t views[4];
  *out = (blas_product_t){.op = op->name, .alpha = 1};
  if (!take_tensors(op, call, tensors) || !take_views(op, tensors, views, &out->batch)) return HAL_UNIMPLEMENTED;
  if (has_sum(op) && (!cuda_op_number(&call->args[3], &out->beta) || !cuda_op_number(&call->args[4], &out->alpha)))
    return HAL_UNIMPLEMENTED;
  out->dtype = tensors[0]->dtype;
  view_t first = turned(views[2]), second = turned(views[1]), sum = has_sum(op) ? turned(views[3]) : views[0];
  const view_t result = turned(views[0]); /* the usual one: row-major */
  if (!by_columns(&result, &out->d)) {
    if (!by_columns(&views[0], &out->d)) return HAL_UNIMPLEMENTED;
    first = views[1], second = views[2], sum = views[3];
  }
  out->c = out->d;
  if (!as_factor(&first, &out->a) || !as_factor(&second, &out->b)) return HAL_UNIMPLEMENTED;
  return has_sum(op) && !take_sum(out, &sum) ? HAL_UNIMPLEMENTED : HAL_OK;
}

hal_status_t cuda_product_run(void *state, const hal_op_call_t *call) {
  const cuda_op_state_t *const own = state;
  blas_product_t product;
  const hal_status_t status = describe(own->op, call, &product);
  return status ? status : cuda_product_queue(call, &product);
}

hal_status_t cuda_product_ask(void *state, const hal_op_call_t *call) {
  const cuda_op_state_t *const own = state;
  blas_product_t product;
  const hal_status_t status = describe(own->op, call, &product);
  return status ? status : cuda_product_query(own->device, &product);
}
