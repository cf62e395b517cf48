/* op.h: the operators that NVIDIA's libraries compute: their list (op.c), and declarations shared by their files. */
#ifndef OP_H_
#define OP_H_

#include "library.h"

enum { CUDA_OP_ADDS = 1, CUDA_OP_BATCHES = 2, CUDA_OP_BACKWARD = 4 };

typedef struct cuda_op_s {
  const char *name; /* as in codegen/operators */
  cuda_library_t *library;
  int kind;                /* CUDA_OP_* */
  hal_op_fn_t run;         /* state: a cuda_op_state_t */
  hal_op_query_fn_t query; /* state: a cuda_op_state_t */
  uint64_t dtypes;         /* HAL_DTYPE_BIT: of all tensors of a call */
  /* HAL_NOT_FOUND: the library does not support the device for this operator; NULL: always supported */
  hal_status_t (*serves)(int32_t device);
} cuda_op_t;

typedef struct cuda_op_state_s {
  const cuda_op_t *op;
  int32_t device;
} cuda_op_state_t;

/* Matrix products (product_op.c), convolutions (convolution_op.c), normalization of batches (batch_norm.c), attention
 * (attention_op.c). */
hal_status_t cuda_product_run(void *state, const hal_op_call_t *call);
hal_status_t cuda_product_ask(void *state, const hal_op_call_t *call);
hal_status_t cuda_convolution_run(void *state, const hal_op_call_t *call);
hal_status_t cuda_convolution_ask(void *state, const hal_op_call_t *call);
hal_status_t cuda_batch_norm_run(void *state, const hal_op_call_t *call);
hal_status_t cuda_batch_norm_ask(void *state, const hal_op_call_t *call);
hal_status_t cuda_attention_run(void *state, const hal_op_call_t *call);
hal_status_t cuda_attention_ask(void *state, const hal_op_call_t *call);
hal_status_t cuda_attention_serves(int32_t device);

/* Reads a number, or a bool. Returns whether it is one. */
int cuda_op_number(const hal_value_t *value, double *out_number);

/* Returns the tensor of argument `index`; NULL if it is not a tensor. */
static inline const hal_tensor_t *cuda_op_tensor(const hal_op_call_t *call, uint32_t index) {
  return index < call->arg_count && call->args[index].tag == HAL_VALUE_TENSOR ? call->args[index].u.t : NULL;
}

/* Returns the result `index`; NULL if it is not requested. */
static inline const hal_tensor_t *cuda_op_result(const hal_op_call_t *call, uint32_t index) {
  return index < call->result_count ? call->results[index] : NULL;
}

#endif /* OP_H_ */
