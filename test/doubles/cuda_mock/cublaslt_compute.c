/* cublaslt_compute.c: the products of the mock of cuBLASLt: each element by its definition, accumulated in double
   and rounded once. */
#include <stdlib.h>
#include <string.h>

#include "cublaslt.h"
#include "vendor.h"

static double element(const struct blas_layout_s *layout, const void *base, int turn, int64_t batch, int64_t row,
                      int64_t column) {
  const int64_t i = turn == CUBLAS_OP_T ? column : row, j = turn == CUBLAS_OP_T ? row : column;
  return vendor_load(layout->type, base, batch * layout->batch_stride + j * layout->leading + i);
}

static void compute_one(const work_t *work, int64_t batch, int64_t row, int64_t column) {
  const struct blas_layout_s *const a = &work->layouts[0], *const b = &work->layouts[1], *const c = &work->layouts[2],
                                    *const d = &work->layouts[3];
  const struct blas_product_s *const product = &work->product;
  const int64_t inner = product->turn_a == CUBLAS_OP_T ? a->rows : a->columns;
  double sum = 0;
  for (int64_t k = 0; k < inner; k++)
    sum += element(a, work->a, product->turn_a, batch, row, k) * element(b, work->b, product->turn_b, batch, k, column);
  sum *= work->alpha;
  if (work->beta != 0) sum += work->beta * element(c, work->c, CUBLAS_OP_N, batch, row, column);
  if (product->bias) sum += vendor_load(d->type, product->bias, batch * product->bias_stride + row);
  vendor_store(d->type, work->d, batch * d->batch_stride + column * d->leading + row, sum);
}

void cublaslt_compute(void *data) {
  work_t *const work = data;
  const struct blas_layout_s *const d = &work->layouts[3];
  if (work->workspace) memset(work->workspace, 0xa5, work->workspace_bytes); /* an invalid stream fails here */
  for (int64_t batch = 0; batch < d->batch; batch++)
    for (int64_t column = 0; column < d->columns; column++)
      for (int64_t row = 0; row < d->rows; row++) compute_one(work, batch, row, column);
  if (!work->again) free(work);
}
