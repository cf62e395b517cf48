/* cublaslt_compute.c: the products of the stand-in for cuBLASLt: every element by its definition, added up in double and rounded once. */
#include <stdlib.h>
#include <string.h>

#include "cublaslt.h"

/* ---- numbers ---------------------------------------------------------------------------------------------------------------------- */

static double load(cudaDataType type, const void *base, int64_t index) {
  uint16_t bits = 0;
  uint32_t wide = 0;
  float single = 0;
  _Float16 half = 0;
  switch (type) {
    case CUDA_R_64F:
      return ((const double *)base)[index];
    case CUDA_R_16F:
      memcpy(&half, (const char *)base + 2 * index, sizeof half);
      return (double)half;
    case CUDA_R_16BF:
      memcpy(&bits, (const char *)base + 2 * index, sizeof bits);
      wide = (uint32_t)bits << 16;
      memcpy(&single, &wide, sizeof single);
      return (double)single;
    default:
      return (double)((const float *)base)[index];
  }
}

/* To the nearest, ties to even. */
static uint16_t to_bfloat16(float value) {
  uint32_t bits = 0;
  memcpy(&bits, &value, sizeof bits);
  if (value != value) return 0x7fc0;
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static void store(cudaDataType type, void *base, int64_t index, double value) {
  const _Float16 half = (_Float16)(float)value;
  const uint16_t brain = to_bfloat16((float)value);
  switch (type) {
    case CUDA_R_64F:
      ((double *)base)[index] = value;
      break;
    case CUDA_R_16F:
      memcpy((char *)base + 2 * index, &half, sizeof half);
      break;
    case CUDA_R_16BF:
      memcpy((char *)base + 2 * index, &brain, sizeof brain);
      break;
    default:
      ((float *)base)[index] = (float)value;
  }
}

/* ---- products --------------------------------------------------------------------------------------------------------------------- */

static double element(const struct blas_layout_s *layout, const void *base, int turn, int64_t batch, int64_t row,
                      int64_t column) {
  const int64_t i = turn == CUBLAS_OP_T ? column : row, j = turn == CUBLAS_OP_T ? row : column;
  return load(layout->type, base, batch * layout->batch_stride + j * layout->leading + i);
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
  if (product->bias) sum += load(d->type, product->bias, batch * product->bias_stride + row);
  store(d->type, work->d, batch * d->batch_stride + column * d->leading + row, sum);
}

void cublaslt_compute(void *data) {
  work_t *const work = data;
  const struct blas_layout_s *const d = &work->layouts[3];
  if (work->workspace) memset(work->workspace, 0xa5, work->workspace_bytes); /* whose it is not finds out */
  for (int64_t batch = 0; batch < d->batch; batch++)
    for (int64_t column = 0; column < d->columns; column++)
      for (int64_t row = 0; row < d->rows; row++) compute_one(work, batch, row, column);
  if (!work->again) free(work);
}
