/* cublaslt.c: a libcublasLt.so whose products are sums in double by the definition, queued as host functions of the
 * driver that the process has loaded. It is stricter than the real one: it refuses everything on which the plugin
 * must not rely. */
#include <stdlib.h>
#include <string.h>

#include "blas_api.h"
#include "cublaslt.h"
#include "vendor.h"

#define API __attribute__((visibility("default")))
#define DECLARE(name, result, parameters) API result name parameters;
BLAS_CALLS(DECLARE)

enum { WORKSPACE = 1024, MAGIC = 0x626c6173 };

struct cublasLtContext {
  int magic;
};

cublasStatus_t cublasLtGetProperty(libraryPropertyType which, int *value) {
  return vendor_version("CUBLASLT_MOCK_VERSION", 130100, which, value) ? CUBLAS_STATUS_SUCCESS
                                                                       : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle) {
  const cublasStatus_t refused = (cublasStatus_t)vendor_setting("CUBLASLT_MOCK_CREATE", 0);
  *handle = refused ? NULL : calloc(1, sizeof **handle);
  if (!*handle) return refused ? refused : CUBLAS_STATUS_ALLOC_FAILED;
  (*handle)->magic = MAGIC;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  if (!handle || handle->magic != MAGIC) return CUBLAS_STATUS_INVALID_VALUE;
  handle->magic = 0;
  free(handle);
  return CUBLAS_STATUS_SUCCESS;
}

/* ---- descriptors ---- */

/* Accepts a value of exactly that size. */
static cublasStatus_t take(void *to, size_t size, const void *value, size_t bytes) {
  if (bytes != size || !value) return CUBLAS_STATUS_INVALID_VALUE;
  memcpy(to, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, cublasComputeType_t compute, cudaDataType scale) {
  const int wide = compute == CUBLAS_COMPUTE_64F;
  if (scale != (wide ? CUDA_R_64F : CUDA_R_32F)) return CUBLAS_STATUS_INVALID_VALUE;
  *out = calloc(1, sizeof **out);
  if (!*out) return CUBLAS_STATUS_ALLOC_FAILED;
  (*out)->compute = compute;
  (*out)->epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t product) {
  free(product);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t product, cublasLtMatmulDescAttributes_t attribute,
                                              const void *value, size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return take(&product->turn_a, sizeof product->turn_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return take(&product->turn_b, sizeof product->turn_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return take(&product->epilogue, sizeof product->epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return take(&product->bias, sizeof product->bias, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE:
      return take(&product->bias_stride, sizeof product->bias_stride, value, bytes);
    default:
      return CUBLAS_STATUS_INVALID_VALUE;
  }
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType type, uint64_t rows,
                                          uint64_t columns, int64_t leading) {
  if (!rows || !columns || leading < (int64_t)rows) return CUBLAS_STATUS_INVALID_VALUE;
  *out = calloc(1, sizeof **out);
  if (!*out) return CUBLAS_STATUS_ALLOC_FAILED;
  **out = (struct blas_layout_s){type, (int64_t)rows, (int64_t)columns, leading, 0, 1};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  free(layout);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute, const void *value,
                                                size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
      return take(&layout->batch, sizeof layout->batch, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
      return take(&layout->batch_stride, sizeof layout->batch_stride, value, bytes);
    default:
      return CUBLAS_STATUS_INVALID_VALUE;
  }
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out) {
  *out = calloc(1, sizeof **out);
  if (!*out) return CUBLAS_STATUS_ALLOC_FAILED;
  for (int i = 0; i < 4; i++) (*out)->alignment[i] = 256;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  free(preference);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void *value,
                                                    size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return take(&preference->workspace, sizeof preference->workspace, value, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return take(&preference->reductions, sizeof preference->reductions, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return take(&preference->alignment[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], sizeof(uint32_t),
                  value, bytes);
    default:
      return CUBLAS_STATUS_INVALID_VALUE;
  }
}

/* ---- compatibility of operands ---- */

static int is_shape(const struct blas_layout_s *layout, int turn, int64_t rows, int64_t columns) {
  return (turn == CUBLAS_OP_T ? layout->columns : layout->rows) == rows &&
         (turn == CUBLAS_OP_T ? layout->rows : layout->columns) == columns;
}

static cublasStatus_t check(const struct blas_product_s *product, const struct blas_layout_s *a,
                            const struct blas_layout_s *b, const struct blas_layout_s *c,
                            const struct blas_layout_s *d) {
  const int wide = product->compute == CUBLAS_COMPUTE_64F;
  const int64_t inner = product->turn_a == CUBLAS_OP_T ? a->rows : a->columns;
  if (!is_shape(a, product->turn_a, d->rows, inner) || !is_shape(b, product->turn_b, inner, d->columns) ||
      !is_shape(c, CUBLAS_OP_N, d->rows, d->columns))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (a->type != d->type || b->type != d->type || c->type != d->type || (d->type == CUDA_R_64F) != wide)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  if (a->batch != d->batch || b->batch != d->batch || c->batch != d->batch) return CUBLAS_STATUS_INVALID_VALUE;
  if (d->batch > 1 && d->batch_stride == 0) return CUBLAS_STATUS_INVALID_VALUE;
  if ((product->epilogue == CUBLASLT_EPILOGUE_BIAS) != (product->bias != NULL)) return CUBLAS_STATUS_INVALID_VALUE;
  return product->epilogue == CUBLASLT_EPILOGUE_BIAS || product->epilogue == CUBLASLT_EPILOGUE_DEFAULT
             ? CUBLAS_STATUS_SUCCESS
             : CUBLAS_STATUS_NOT_SUPPORTED;
}

/* The layouts for which an algorithm is valid: a call with other layouts than it was selected for is refused. */
typedef struct algorithm_s {
  uint64_t magic, sum, workspace, alignments;
} algorithm_t;
_Static_assert(sizeof(algorithm_t) <= sizeof(cublasLtMatmulAlgo_t), "an algorithm fits");

static uint64_t mixed(uint64_t sum, uint64_t with) { return (sum ^ with) * UINT64_C(0x100000001b3); }

static uint64_t sum_of(const struct blas_product_s *product, const struct blas_layout_s *const layouts[4]) {
  uint64_t sum = mixed(mixed(mixed(1, product->compute), product->epilogue), (uint64_t)product->bias_stride);
  sum = mixed(mixed(sum, (uint64_t)product->turn_a), (uint64_t)product->turn_b);
  for (int i = 0; i < 4; i++) {
    const struct blas_layout_s *const one = layouts[i];
    sum =
        mixed(mixed(mixed(mixed(sum, one->type), (uint64_t)one->rows), (uint64_t)one->columns), (uint64_t)one->leading);
    sum = mixed(mixed(sum, (uint64_t)one->batch), (uint64_t)one->batch_stride);
  }
  return sum;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t product,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int room,
                                              cublasLtMatmulHeuristicResult_t *results, int *count) {
  if (!handle || handle->magic != MAGIC || room < 1) return CUBLAS_STATUS_INVALID_VALUE;
  const cublasStatus_t code = check(product, a, b, c, d);
  *count = 0;
  if (code) return code;
  if (d->type == (cudaDataType)vendor_setting("CUBLASLT_MOCK_LACKS", -1)) return CUBLAS_STATUS_NOT_SUPPORTED;
  const struct blas_layout_s *const layouts[] = {a, b, c, d};
  algorithm_t algorithm = {MAGIC, sum_of(product, layouts), preference->workspace < WORKSPACE ? 0 : WORKSPACE, 0};
  for (int i = 0; i < 4; i++) algorithm.alignments |= (uint64_t)preference->alignment[i] << 16 * i;
  memset(results, 0, sizeof *results);
  memcpy(&results->algo, &algorithm, sizeof algorithm);
  results->workspaceSize = (size_t)algorithm.workspace;
  *count = 1;
  return CUBLAS_STATUS_SUCCESS;
}

/* ---- calls ---- */

static int is_aligned(const algorithm_t *algorithm, const work_t *work) {
  const void *const addresses[] = {work->a, work->b, work->c, work->d};
  for (int i = 0; i < 4; i++)
    if ((uintptr_t)addresses[i] % (algorithm->alignments >> 16 * i & 0xffff)) return 0;
  return 1;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t product, const void *alpha, const void *a,
                              cublasLtMatrixLayout_t a_layout, const void *b, cublasLtMatrixLayout_t b_layout,
                              const void *beta, const void *c, cublasLtMatrixLayout_t c_layout, void *d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t *algo, void *workspace,
                              size_t workspace_bytes, CUstream stream) {
  const struct blas_layout_s *const layouts[] = {a_layout, b_layout, c_layout, d_layout};
  const int wide = product->compute == CUBLAS_COMPUTE_64F;
  algorithm_t algorithm;
  if (!handle || handle->magic != MAGIC || !algo || !a || !b || !c || !d) return CUBLAS_STATUS_INVALID_VALUE;
  memcpy(&algorithm, algo, sizeof algorithm);
  work_t work = {.product = *product,
                 .a = a,
                 .b = b,
                 .c = c,
                 .d = d,
                 .layouts = {*a_layout, *b_layout, *c_layout, *d_layout},
                 .workspace = workspace,
                 .workspace_bytes = algorithm.workspace};
  if (algorithm.magic != MAGIC || algorithm.sum != sum_of(product, layouts) || workspace_bytes < algorithm.workspace ||
      (algorithm.workspace && !workspace) || !is_aligned(&algorithm, &work))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (vendor_setting("CUBLASLT_MOCK_FAILS", 0)) return CUBLAS_STATUS_EXECUTION_FAILED;
  work.alpha = wide ? *(const double *)alpha : (double)*(const float *)alpha;
  work.beta = wide ? *(const double *)beta : (double)*(const float *)beta;
  work.again = vendor_is_captured(stream); /* a graph may run it repeatedly: it is not released */
  work_t *const own = malloc(sizeof *own);
  if (!own) return CUBLAS_STATUS_ALLOC_FAILED;
  *own = work;
  if (!vendor_queue(stream, cublaslt_compute, own)) return CUBLAS_STATUS_SUCCESS;
  free(own);
  return CUBLAS_STATUS_EXECUTION_FAILED;
}
