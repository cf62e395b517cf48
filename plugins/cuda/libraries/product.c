/* product.c: a matrix product by cuBLASLt: descriptors, the algorithm that the library selects, the call. */
#include <stdio.h>
#include <string.h>

#include "blas.h"

/* The arguments of the library's queries; drop_plan releases all of it. */
typedef struct plan_s {
  cublasLtMatmulDesc_t product;
  cublasLtMatrixLayout_t a, b, c, d;
  cublasLtMatmulPreference_t preference;
  cublasLtMatmulHeuristicResult_t found;
} plan_t;

static void drop_plan(plan_t *plan) {
  cublasLtMatrixLayout_t const layouts[] = {plan->a, plan->b, plan->c, plan->d};
  if (plan->preference) blas.cublasLtMatmulPreferenceDestroy(plan->preference);
  for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
    if (layouts[i]) blas.cublasLtMatrixLayoutDestroy(layouts[i]);
  if (plan->product) blas.cublasLtMatmulDescDestroy(plan->product);
}

static cudaDataType data_type(hal_dtype_t dtype) {
  switch (dtype) {
    case HAL_FLOAT16:
      return CUDA_R_16F;
    case HAL_BFLOAT16:
      return CUDA_R_16BF;
    case HAL_FLOAT64:
      return CUDA_R_64F;
    default:
      return CUDA_R_32F;
  }
}

/* float32 is computed in float32, never in TF32. The short types are, too, so that only the result is rounded. */
static cublasStatus_t make_product(plan_t *plan, const blas_product_t *from) {
  const int wide = from->dtype == HAL_FLOAT64;
  const int32_t turns[] = {from->a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N,
                           from->b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N};
  const uint32_t epilogue = CUBLASLT_EPILOGUE_BIAS;
  cublasLtMatmulDesc_t *const product = &plan->product;
  cublasStatus_t code = blas.cublasLtMatmulDescCreate(product, wide ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F,
                                                      wide ? CUDA_R_64F : CUDA_R_32F);
  if (!code)
    code = blas.cublasLtMatmulDescSetAttribute(*product, CUBLASLT_MATMUL_DESC_TRANSA, &turns[0], sizeof turns[0]);
  if (!code)
    code = blas.cublasLtMatmulDescSetAttribute(*product, CUBLASLT_MATMUL_DESC_TRANSB, &turns[1], sizeof turns[1]);
  if (code || !from->bias) return code;
  code = blas.cublasLtMatmulDescSetAttribute(*product, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
  if (!code)
    code = blas.cublasLtMatmulDescSetAttribute(*product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &from->bias,
                                               sizeof from->bias);
  if (!code && from->bias_stride)
    code = blas.cublasLtMatmulDescSetAttribute(*product, CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, &from->bias_stride,
                                               sizeof from->bias_stride);
  return code;
}

static cublasStatus_t make_layout(cublasLtMatrixLayout_t *layout, const blas_product_t *of,
                                  const blas_matrix_t *matrix) {
  const int32_t batch = (int32_t)of->batch;
  const int64_t *const stride = &matrix->batch_stride;
  cublasStatus_t code = blas.cublasLtMatrixLayoutCreate(layout, data_type(of->dtype), (uint64_t)matrix->rows,
                                                        (uint64_t)matrix->columns, matrix->leading);
  if (code || batch == 1) return code;
  code = blas.cublasLtMatrixLayoutSetAttribute(*layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, sizeof batch);
  if (code) return code;
  return blas.cublasLtMatrixLayoutSetAttribute(*layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, stride,
                                               sizeof *stride);
}

/* Returns the largest power of two up to 256 that divides an address; without this information the library assumes 256.
 * */
static uint32_t alignment_of(const void *address) {
  const uintptr_t low = (uintptr_t)address | 256;
  return (uint32_t)(low & (~low + 1));
}

static cublasStatus_t prefer(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t what,
                             const void *value, size_t bytes) {
  return blas.cublasLtMatmulPreferenceSetAttribute(preference, what, value, bytes);
}

/* Partial sums in the type of the result would round twice, so only those in the type of the computation are allowed.
 * */
static cublasStatus_t make_preference(plan_t *plan, const cuda_device_t *device, const blas_product_t *of) {
  static const cublasLtMatmulPreferenceAttributes_t alignments[] = {
      CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
      CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
  const blas_matrix_t *const matrices[] = {&of->a, &of->b, &of->c, &of->d};
  const uint64_t workspace = UINT64_C(1) << (device->capability >= 90 ? 25 : 22); /* as NVIDIA advises */
  const uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  cublasStatus_t code = blas.cublasLtMatmulPreferenceCreate(&plan->preference);
  if (!code) code = prefer(plan->preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace);
  if (!code)
    code = prefer(plan->preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions, sizeof reductions);
  for (int i = 0; i < 4 && !code; i++) {
    const uint32_t alignment = alignment_of(matrices[i]->data);
    code = prefer(plan->preference, alignments[i], &alignment, sizeof alignment);
  }
  return code;
}

/* CUBLAS_STATUS_NOT_SUPPORTED = the library cannot compute it. */
static cublasStatus_t make_plan(int32_t device, const blas_product_t *product, plan_t *plan) {
  int count = 0;
  memset(plan, 0, sizeof *plan);
  cublasStatus_t code = make_product(plan, product);
  if (!code) code = make_layout(&plan->a, product, &product->a);
  if (!code) code = make_layout(&plan->b, product, &product->b);
  if (!code) code = make_layout(&plan->c, product, &product->c);
  if (!code) code = make_layout(&plan->d, product, &product->d);
  if (!code) code = make_preference(plan, &cuda.devices[device], product);
  if (!code)
    code = blas.cublasLtMatmulAlgoGetHeuristic(cuda_blas_handle(device), plan->product, plan->a, plan->b, plan->c,
                                               plan->d, plan->preference, 1, &plan->found, &count);
  if (!code && (count < 1 || plan->found.state)) code = CUBLAS_STATUS_NOT_SUPPORTED;
  return code;
}

/* Out of memory is a failure. If the library refuses for another reason, the portable kernels may support the call. */
static hal_status_t refuse_plan(const blas_product_t *product, cublasStatus_t code) {
  return code == CUBLAS_STATUS_ALLOC_FAILED ? cuda_library_no_memory(&cuda_blas, product->op, (int)code)
                                            : HAL_UNIMPLEMENTED;
}

hal_status_t cuda_product_query(int32_t device, const blas_product_t *product) {
  plan_t plan;
  cuda_scope_t scope;
  const hal_status_t status = cuda_enter(device, &scope);
  if (status) return status;
  const cublasStatus_t code = make_plan(device, product, &plan);
  drop_plan(&plan);
  cuda_leave(&scope);
  return code ? refuse_plan(product, code) : HAL_OK;
}

static cublasStatus_t call_library(const cuda_submit_t *submit, int32_t device, const blas_product_t *product,
                                   const plan_t *plan, void *workspace) {
  const float narrow[] = {(float)product->alpha, (float)product->beta};
  const int wide = product->dtype == HAL_FLOAT64;
  const void *const alpha = wide ? (const void *)&product->alpha : &narrow[0];
  const void *const beta = wide ? (const void *)&product->beta : &narrow[1];
  return blas.cublasLtMatmul(cuda_blas_handle(device), plan->product, alpha, product->a.data, plan->a, product->b.data,
                             plan->b, beta, product->c.data, plan->c, product->d.data, plan->d, &plan->found.algo,
                             workspace, plan->found.workspaceSize, submit->handle);
}

static hal_status_t queue_plan(const hal_op_call_t *call, const blas_product_t *product, const plan_t *plan) {
  char what[128] = "";
  cuda_submit_t submit;
  void *workspace = NULL;
  const size_t bytes = plan->found.workspaceSize;
  hal_status_t status = bytes ? hal_host->scratch_alloc(call, bytes, &workspace) : HAL_OK;
  if (!status) status = cuda_submit_begin(&submit, call->stream, call->device, product->op);
  if (status) return status;
  submit.work.kernel = "cublasLtMatmul";
  const cublasStatus_t code = call_library(&submit, call->device, product, plan, workspace);
  if (CUDA_UNLIKELY(code))
    snprintf(what, sizeof what, "%s of %lld matrices of %lld x %lld", product->op, (long long)product->batch,
             (long long)product->d.rows, (long long)product->d.columns);
  return cuda_library_submitted(&cuda_blas, &submit, (int)code, what);
}

hal_status_t cuda_product_queue(const hal_op_call_t *call, const blas_product_t *product) {
  plan_t plan;
  cuda_scope_t scope;
  hal_status_t status = cuda_enter(call->device, &scope);
  if (status) return status;
  const cublasStatus_t code = make_plan(call->device, product, &plan);
  status = code ? refuse_plan(product, code) : queue_plan(call, product, &plan);
  drop_plan(&plan);
  cuda_leave(&scope);
  return status;
}
