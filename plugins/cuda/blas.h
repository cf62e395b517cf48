/* blas.h: matrix products by cuBLASLt: the library (blas.c), and products in its words (product.c), which op.c makes of operators. */
#ifndef BLAS_H_
#define BLAS_H_

#include "blas_api.h"
#include "cuda_plugin.h"

#define BLAS_DECLARE_CALL(name, result, parameters) result(*name) parameters;
typedef struct blas_table_s {
  BLAS_CALLS(BLAS_DECLARE_CALL)
} blas_table_t;
extern blas_table_t blas;

/* Gives the device's handle, which lives as long as the process; the first call opens the library. Thread-safe.
 * Errors: HAL_NOT_FOUND = there is none, or it was refused before; HAL_UNAVAILABLE = one that was named and is none, is too old or too new
 * for the driver, or does not serve the device: with what to do; those of cuda_enter. */
hal_status_t cuda_blas_handle(int32_t device, cublasLtHandle_t *out_handle);

/* The name of a status of the library, such as "CUBLAS_STATUS_INVALID_VALUE". */
const char *cuda_blas_status_name(cublasStatus_t status);

/* A matrix, or a batch of them, column by column: what the library calls a layout. `transposed`: the product takes it transposed. */
typedef struct blas_matrix_s {
  void *data;
  int64_t rows, columns, leading, batch_stride; /* as they lie in memory; in elements */
  int transposed;
} blas_matrix_t;

/* d = alpha a b + beta c + bias, the bias one number for each row of d. */
typedef struct blas_product_s {
  const char *op; /* literal: the operator */
  hal_dtype_t dtype;
  int64_t batch;
  blas_matrix_t a, b, c, d; /* c is d where beta is 0 */
  const void *bias;         /* or NULL */
  int64_t bias_stride;      /* from one of the batch to the next */
  double alpha, beta;
} blas_product_t;

/* Tells whether the library takes the product: HAL_OK or HAL_UNIMPLEMENTED. Queues nothing; of addresses the alignment counts alone. */
hal_status_t cuda_product_query(int32_t device, cublasLtHandle_t handle, const blas_product_t *product);

/* Queues the product, with scratch memory of `call`. Errors: HAL_UNIMPLEMENTED = the library has none for it, nothing was queued; those of
 * cuda_submit_begin and scratch_alloc; HAL_INTERNAL = the library refused what it had offered. */
hal_status_t cuda_product_queue(const hal_op_call_t *call, cublasLtHandle_t handle, const blas_product_t *product);

#endif /* BLAS_H_ */
