/* blas_api.h: the declarations of cuBLASLt, NVIDIA's library of matrix products, that the plugin uses. As driver_api.h,
 * it is compared with the real cublasLt.h by the same test: if that is included before, it provides the types, and only
 * the lists are defined here. */
#ifndef BLAS_API_H_
#define BLAS_API_H_

#include "library_api.h"

/* ---- numbers ---------------------------------------------------------------------------------------------------- */

#define BLAS_STATUSES(X)                \
  X(CUBLAS_STATUS_SUCCESS, 0)           \
  X(CUBLAS_STATUS_NOT_INITIALIZED, 1)   \
  X(CUBLAS_STATUS_ALLOC_FAILED, 3)      \
  X(CUBLAS_STATUS_INVALID_VALUE, 7)     \
  X(CUBLAS_STATUS_ARCH_MISMATCH, 8)     \
  X(CUBLAS_STATUS_EXECUTION_FAILED, 13) \
  X(CUBLAS_STATUS_INTERNAL_ERROR, 14)   \
  X(CUBLAS_STATUS_NOT_SUPPORTED, 15)

#define BLAS_DATA_TYPES(X) X(CUDA_R_32F, 0) X(CUDA_R_64F, 1) X(CUDA_R_16F, 2) X(CUDA_R_16BF, 14)
#define BLAS_COMPUTE_TYPES(X) X(CUBLAS_COMPUTE_32F, 68) X(CUBLAS_COMPUTE_64F, 70)
#define BLAS_OPERATIONS(X) X(CUBLAS_OP_N, 0) X(CUBLAS_OP_T, 1)
#define BLAS_EPILOGUES(X) X(CUBLASLT_EPILOGUE_DEFAULT, 1) X(CUBLASLT_EPILOGUE_BIAS, 4)
#define BLAS_LAYOUT_ATTRIBUTES(X)          \
  X(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, 5) \
  X(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, 6)
#define BLAS_PRODUCT_ATTRIBUTES(X)        \
  X(CUBLASLT_MATMUL_DESC_TRANSA, 3)       \
  X(CUBLASLT_MATMUL_DESC_TRANSB, 4)       \
  X(CUBLASLT_MATMUL_DESC_EPILOGUE, 7)     \
  X(CUBLASLT_MATMUL_DESC_BIAS_POINTER, 8) \
  X(CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, 10)
#define BLAS_PREFERENCES(X)                        \
  X(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, 1)   \
  X(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, 3) \
  X(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, 5) \
  X(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, 6) \
  X(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, 7) \
  X(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, 8)
#define BLAS_REDUCTIONS(X) X(CUBLASLT_REDUCTION_SCHEME_NONE, 0) X(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, 2)

#define BLAS_CHOICES(X) \
  BLAS_DATA_TYPES(X) BLAS_COMPUTE_TYPES(X) BLAS_OPERATIONS(X) BLAS_EPILOGUES(X) BLAS_REDUCTIONS(X) LIBRARY_PROPERTIES(X)
#define BLAS_SETTINGS(X) BLAS_LAYOUT_ATTRIBUTES(X) BLAS_PRODUCT_ATTRIBUTES(X) BLAS_PREFERENCES(X)
#define BLAS_ALL_NUMBERS(X) BLAS_STATUSES(X) BLAS_CHOICES(X) BLAS_SETTINGS(X)

/* ---- types, unless the vendor's header defined them ------------------------------------------------------------- */
#ifndef CUBLAS_VERSION
#define BLAS_ENUMERATOR(name, number) name = number,
typedef enum { BLAS_STATUSES(BLAS_ENUMERATOR) } cublasStatus_t;
typedef enum { BLAS_DATA_TYPES(BLAS_ENUMERATOR) } cudaDataType;
typedef enum { BLAS_COMPUTE_TYPES(BLAS_ENUMERATOR) } cublasComputeType_t;
typedef enum { BLAS_LAYOUT_ATTRIBUTES(BLAS_ENUMERATOR) } cublasLtMatrixLayoutAttribute_t;
typedef enum { BLAS_PRODUCT_ATTRIBUTES(BLAS_ENUMERATOR) } cublasLtMatmulDescAttributes_t;
typedef enum { BLAS_PREFERENCES(BLAS_ENUMERATOR) } cublasLtMatmulPreferenceAttributes_t;
enum { BLAS_OPERATIONS(BLAS_ENUMERATOR) };
enum { BLAS_EPILOGUES(BLAS_ENUMERATOR) };
enum { BLAS_REDUCTIONS(BLAS_ENUMERATOR) };
typedef struct cublasLtContext *cublasLtHandle_t;
typedef struct blas_product_s *cublasLtMatmulDesc_t; /* types of the library, like those below */
typedef struct blas_layout_s *cublasLtMatrixLayout_t;
typedef struct blas_preference_s *cublasLtMatmulPreference_t;
typedef struct {
  uint64_t data[8];
} cublasLtMatmulAlgo_t;
typedef struct {
  cublasLtMatmulAlgo_t algo;
  size_t workspaceSize;
  cublasStatus_t state;
  float wavesCount;
  int reserved[4];
} cublasLtMatmulHeuristicResult_t;
#endif

/* X(expression, number): the memory layout of the structs. */
#define BLAS_LAYOUTS(X)                                           \
  X(sizeof(cublasStatus_t), 4)                                    \
  X(sizeof(cublasLtMatmulAlgo_t), 64)                             \
  X(offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize), 64) \
  X(offsetof(cublasLtMatmulHeuristicResult_t, state), 72)         \
  X(sizeof(cublasLtMatmulHeuristicResult_t), 96)

/* ---- functions -------------------------------------------------------------------------------------------------- */

/* X(name, result, parameters): functions of cuBLAS 11.4 and later. */
#define BLAS_CALLS(X)                                                                                                  \
  X(cublasLtGetProperty, cublasStatus_t, (libraryPropertyType which, int *value))                                      \
  X(cublasLtCreate, cublasStatus_t, (cublasLtHandle_t * handle))                                                       \
  X(cublasLtDestroy, cublasStatus_t, (cublasLtHandle_t handle))                                                        \
  X(cublasLtMatmulDescCreate, cublasStatus_t,                                                                          \
    (cublasLtMatmulDesc_t * product, cublasComputeType_t compute, cudaDataType scale))                                 \
  X(cublasLtMatmulDescDestroy, cublasStatus_t, (cublasLtMatmulDesc_t product))                                         \
  X(cublasLtMatmulDescSetAttribute, cublasStatus_t,                                                                    \
    (cublasLtMatmulDesc_t product, cublasLtMatmulDescAttributes_t attribute, const void *value, size_t bytes))         \
  X(cublasLtMatrixLayoutCreate, cublasStatus_t,                                                                        \
    (cublasLtMatrixLayout_t * layout, cudaDataType type, uint64_t rows, uint64_t columns, int64_t leading))            \
  X(cublasLtMatrixLayoutDestroy, cublasStatus_t, (cublasLtMatrixLayout_t layout))                                      \
  X(cublasLtMatrixLayoutSetAttribute, cublasStatus_t,                                                                  \
    (cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t attribute, const void *value, size_t bytes))       \
  X(cublasLtMatmulPreferenceCreate, cublasStatus_t, (cublasLtMatmulPreference_t * preference))                         \
  X(cublasLtMatmulPreferenceDestroy, cublasStatus_t, (cublasLtMatmulPreference_t preference))                          \
  X(cublasLtMatmulPreferenceSetAttribute, cublasStatus_t,                                                              \
    (cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute, const void *value,         \
     size_t bytes))                                                                                                    \
  X(cublasLtMatmulAlgoGetHeuristic, cublasStatus_t,                                                                    \
    (cublasLtHandle_t handle, cublasLtMatmulDesc_t product, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,        \
     cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t preference, int room,              \
     cublasLtMatmulHeuristicResult_t *results, int *count))                                                            \
  X(cublasLtMatmul, cublasStatus_t,                                                                                    \
    (cublasLtHandle_t handle, cublasLtMatmulDesc_t product, const void *alpha, const void *a,                          \
     cublasLtMatrixLayout_t a_layout, const void *b, cublasLtMatrixLayout_t b_layout, const void *beta, const void *c, \
     cublasLtMatrixLayout_t c_layout, void *d, cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t *algorithm, \
     void *workspace, size_t workspace_bytes, CUstream stream))

#endif /* BLAS_API_H_ */
