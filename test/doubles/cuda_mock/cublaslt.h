/* cublaslt.h: shared by the files of the mock of cuBLASLt: the objects of its handles, and a product in progress. */
#ifndef CUBLASLT_H_
#define CUBLASLT_H_

#include "blas_api.h"

struct blas_product_s {
  cublasComputeType_t compute;
  int32_t turn_a, turn_b; /* CUBLAS_OP_* */
  uint32_t epilogue;
  const void *bias;
  int64_t bias_stride;
};

struct blas_layout_s {
  cudaDataType type;
  int64_t rows, columns, leading, batch_stride;
  int32_t batch;
};

struct blas_preference_s {
  uint64_t workspace;
  uint32_t reductions, alignment[4];
};

typedef struct work_s {
  struct blas_product_s product;
  struct blas_layout_s layouts[4]; /* of a, b, c, d */
  const void *a, *b, *c;
  void *d, *workspace;
  size_t workspace_bytes;
  double alpha, beta;
  int again; /* it runs more than once */
} work_t;

/* Computes a work_t, and releases it if it runs once. */
void cublaslt_compute(void *work);

#endif /* CUBLASLT_H_ */
