/* blas.h: matrix products by cuBLASLt: the library (blas.c), and products as calls of the library (product.c), which
 * product_op.c creates from operators. */
#ifndef BLAS_H_
#define BLAS_H_

#include "blas_api.h"
#include "library.h"

#define BLAS_DECLARE_CALL(name, result, parameters) result(*name) parameters;
typedef struct blas_table_s {
  BLAS_CALLS(BLAS_DECLARE_CALL)
} blas_table_t;
extern blas_table_t blas;

extern cuda_library_t cuda_blas;

/* Returns the handle of a device that the library serves (cuda_library_serve). */
cublasLtHandle_t cuda_blas_handle(int32_t device);

/* A matrix, or a batch of them, in column-major order: a layout of the library. `transposed`: the product uses its
 * transpose. */
typedef struct blas_matrix_s {
  void *data;
  int64_t rows, columns, leading, batch_stride; /* of the memory; in elements */
  int transposed;
} blas_matrix_t;

/* d = alpha a b + beta c + bias; the bias is one number for each row of d. */
typedef struct blas_product_s {
  const char *op; /* string literal: the operator */
  hal_dtype_t dtype;
  int64_t batch;
  blas_matrix_t a, b, c, d; /* c is d if beta is 0 */
  const void *bias;         /* or NULL */
  int64_t bias_stride;      /* from one of the batch to the next */
  double alpha, beta;
} blas_product_t;

/* Returns whether the library supports the product: HAL_OK or HAL_UNIMPLEMENTED. Queues nothing; only the alignment of
 * addresses is used. */
hal_status_t cuda_product_query(int32_t device, const blas_product_t *product);

/* Queues the product, with scratch memory of `call`. Errors: HAL_UNIMPLEMENTED = the library has no algorithm for it,
 * nothing was queued; those of cuda_submit_begin and scratch_alloc; HAL_INTERNAL = the library refused an algorithm
 * that it had offered. */
hal_status_t cuda_product_queue(const hal_op_call_t *call, const blas_product_t *product);

#endif /* BLAS_H_ */
