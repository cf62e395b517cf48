/* op.c: operators that NVIDIA's libraries compute if they are installed: matrix products by cuBLASLt; convolutions,
 * normalization of batches and attention by cuDNN. The portable kernels compute calls that a library does not support.
 * */
#include "op.h"

#include <string.h>

#include "blas.h"
#include "dnn.h"

/* The short types of attention occur with the logarithms, which are float32. */
#define SHORT_DTYPES (HAL_DTYPE_BIT(HAL_FLOAT16) | HAL_DTYPE_BIT(HAL_BFLOAT16) | HAL_DTYPE_BIT(HAL_FLOAT32))
#define ALL_DTYPES (SHORT_DTYPES | HAL_DTYPE_BIT(HAL_FLOAT64))

#define PRODUCT(name, kind) \
  { name, &cuda_blas, kind, cuda_product_run, cuda_product_ask, ALL_DTYPES, NULL }
#define CONVOLUTION(name, kind) \
  { name, &cuda_dnn, kind, cuda_convolution_run, cuda_convolution_ask, ALL_DTYPES, NULL }
#define BATCH_NORM(name, kind) \
  { name, &cuda_dnn, kind, cuda_batch_norm_run, cuda_batch_norm_ask, ALL_DTYPES, NULL }
#define ATTENTION(name, kind) \
  { name, &cuda_dnn, kind, cuda_attention_run, cuda_attention_ask, SHORT_DTYPES, cuda_attention_serves }

static const cuda_op_t ops[] = {
    PRODUCT("mm", 0),
    PRODUCT("bmm", CUDA_OP_BATCHES),
    PRODUCT("addmm", CUDA_OP_ADDS),
    PRODUCT("baddbmm", CUDA_OP_ADDS | CUDA_OP_BATCHES),
    CONVOLUTION("convolution_overrideable", 0),
    CONVOLUTION("convolution_backward_overrideable", CUDA_OP_BACKWARD),
    BATCH_NORM("native_batch_norm", 0),
    BATCH_NORM("native_batch_norm_backward", CUDA_OP_BACKWARD),
    ATTENTION("_scaled_dot_product_fused_attention_overrideable", 0),
    ATTENTION("_scaled_dot_product_fused_attention_overrideable_backward", CUDA_OP_BACKWARD)};
enum { OP_COUNT = sizeof ops / sizeof *ops };
static cuda_op_state_t states[CUDA_MAX_DEVICES][OP_COUNT];

void cuda_libraries_forget(int32_t device, int lost) {
  cuda_library_forget(&cuda_blas, device, lost);
  cuda_library_forget(&cuda_dnn, device, lost);
}

int cuda_op_number(const hal_value_t *value, double *out_number) {
  if (value->tag == HAL_VALUE_INT || value->tag == HAL_VALUE_BOOL) *out_number = (double)value->u.i;
  if (value->tag == HAL_VALUE_DOUBLE) *out_number = value->u.d;
  return value->tag == HAL_VALUE_INT || value->tag == HAL_VALUE_BOOL || value->tag == HAL_VALUE_DOUBLE;
}

hal_status_t hal_plugin_op_find(int32_t device, const char *name, hal_op_own_t *out_op) {
  int index = 0;
  while (index < OP_COUNT && strcmp(name, ops[index].name) != 0) index++;
  if (index == OP_COUNT) return HAL_NOT_FOUND;
  hal_status_t status = cuda_library_serve(ops[index].library, device);
  if (!status && ops[index].serves) status = ops[index].serves(device);
  if (status) return status;
  cuda_op_state_t *const state = &states[device][index];
  *state = (cuda_op_state_t){.op = &ops[index], .device = device};
  HAL_SET_FIELD(out_op, fn, ops[index].run);
  HAL_SET_FIELD(out_op, state, state);
  HAL_SET_FIELD(out_op, dtypes, ops[index].dtypes);
  HAL_SET_FIELD(out_op, layouts, HAL_TAKES_ALL);
  HAL_SET_FIELD(out_op, flags, HAL_OP_CAPTURABLE);
  HAL_SET_FIELD(out_op, query, ops[index].query);
  return HAL_OK;
}
