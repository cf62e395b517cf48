/* attention_op.c: the attention operators, and the calls that cuDNN supports. Masks go to the portable kernel: the
 * operator specifies a result of 0 for a query that sees no key, which the library does not guarantee. Dropout also
 * goes there, because the host specifies its random numbers. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "attention.h"
#include "op.h"

enum { OLDEST = 90000, ALIGNMENT = 16, GRAIN = 8, LEAST_CAPABILITY = 80, HOPPER = 90, BLACKWELL = 100 };

/* The first versions of cuDNN that are correct where earlier ones fail, according to NVIDIA's own list
 * (cudnn-frontend). */
enum {
  FAULTY = 91000,
  MENDED = 91002,
  ONE_QUERY = 91000,
  BLACKWELL_BACKWARD = 91800,
  ANY_KEYS = 91501,
  KEYS_GRAIN = 128
};

/* ---- supported devices ------------------------------------------------------------------------------------------ */

hal_status_t cuda_attention_serves(int32_t device) {
  static atomic_int said;
  const int version = cuda_dnn_version(), capability = cuda.devices[device].capability;
  const int faulty = version >= FAULTY && version < MENDED, old = version < OLDEST || faulty;
  char message[256];
  if (!old && capability >= LEAST_CAPABILITY) return HAL_OK;
  if (old)
    snprintf(message, sizeof message,
             "cuda: attention is computed by the portable kernels: cuDNN %d.%d.%d %s; install %s or later",
             version / 10000, version / 100 % 100, version % 100,
             faulty ? "computes it wrongly in some cases" : "is too old for it", faulty ? "9.10.2" : "9.0");
  else
    snprintf(
        message, sizeof message,
        "cuda: attention is computed by the portable kernels: cuDNN supports it on devices of compute capability 8.0 "
        "and later, '%s' is of %d.%d",
        cuda.devices[device].name, capability / 10, capability % 10);
  if (!atomic_exchange(&said, 1)) hal_host->log(HAL_LOG_INFO, message);
  return HAL_NOT_FOUND;
}

/* ---- operands --------------------------------------------------------------------------------------------------- */

/* Reads the sizes of a tensor of 4 dimensions, or of 3 without the batch. */
static int read_sizes(const hal_tensor_t *tensor, int64_t sizes[DNN_GRAPH_DIMS]) {
  const int missing = DNN_GRAPH_DIMS - tensor->ndim;
  int64_t count = 1;
  if (missing < 0 || missing > 1) return 0;
  sizes[0] = 1;
  for (int i = missing; i < DNN_GRAPH_DIMS; i++) {
    sizes[i] = tensor->sizes[i - missing];
    if (sizes[i] < 1 || sizes[i] > INT32_MAX) return 0;
    count *= sizes[i];
    if (count > INT32_MAX) return 0;
  }
  return 1;
}

/* Reads a tensor of the short type: its memory, its strides. Rows must be dense and begin at addresses that the
 * library's kernels support. A dimension of size 1 gets the stride of a dense one. */
static int take_tensor(const hal_tensor_t *tensor, attention_id_t id, attention_work_t *out) {
  attention_t *const of = &out->attention;
  int64_t sizes[DNN_GRAPH_DIMS], wanted[DNN_GRAPH_DIMS], *const strides = of->strides[id];
  cuda_attention_sizes(of, id, wanted);
  if (tensor->dtype != (hal_dtype_t)of->dtype || !read_sizes(tensor, sizes) ||
      memcmp(sizes, wanted, sizeof sizes) != 0 || (uintptr_t)tensor->data % ALIGNMENT)
    return 0;
  const int missing = DNN_GRAPH_DIMS - tensor->ndim;
  int64_t dense = 1;
  for (int i = DNN_GRAPH_DIMS - 1; i >= 0; i--) {
    strides[i] = sizes[i] == 1 ? dense : tensor->strides[i - missing];
    dense = strides[i] * sizes[i] > dense ? strides[i] * sizes[i] : dense;
    if (i == DNN_GRAPH_DIMS - 1 ? strides[i] != 1 : strides[i] < sizes[DNN_GRAPH_DIMS - 1] || strides[i] % GRAIN)
      return 0;
  }
  out->memory[id] = tensor->data;
  return 1;
}

static void lay_densely(attention_t *of, attention_id_t id) {
  int64_t sizes[DNN_GRAPH_DIMS], next = 1;
  cuda_attention_sizes(of, id, sizes);
  for (int i = DNN_GRAPH_DIMS - 1; i >= 0; i--) {
    of->strides[id][i] = next;
    next *= sizes[i];
  }
}

/* Reads a dense tensor with one float32 for each query. */
static int take_logarithms(const hal_tensor_t *tensor, attention_work_t *out) {
  const attention_t *const of = &out->attention;
  const int64_t wanted[] = {of->batch, of->heads, of->queries};
  const int missing = 3 - tensor->ndim;
  int64_t next = 1;
  if (tensor->dtype != HAL_FLOAT32 || missing < 0 || missing > 1 || (missing && of->batch != 1) ||
      (uintptr_t)tensor->data % ALIGNMENT)
    return 0;
  for (int i = 2; i >= missing; i--) {
    if (tensor->sizes[i - missing] != wanted[i] || (wanted[i] != 1 && tensor->strides[i - missing] != next)) return 0;
    next *= wanted[i];
  }
  out->memory[ATTENTION_LOGARITHMS] = tensor->data;
  return 1;
}

/* Reads query, key and value, the arguments from `first` on. */
static int take_operands(const hal_op_call_t *call, uint32_t first, attention_work_t *out) {
  const hal_tensor_t *const query = cuda_op_tensor(call, first), *const key = cuda_op_tensor(call, first + 1),
                            *const value = cuda_op_tensor(call, first + 2);
  attention_t *const of = &out->attention;
  int64_t q[DNN_GRAPH_DIMS], k[DNN_GRAPH_DIMS], v[DNN_GRAPH_DIMS];
  if (!query || !key || !value || (query->dtype != HAL_FLOAT16 && query->dtype != HAL_BFLOAT16)) return 0;
  if (!read_sizes(query, q) || !read_sizes(key, k) || !read_sizes(value, v) || q[1] % k[1]) return 0;
  of->dtype = query->dtype;
  of->batch = q[0], of->heads = q[1], of->kv_heads = k[1];
  of->queries = q[2], of->keys = k[2], of->size = q[3], of->value_size = v[3];
  return take_tensor(query, ATTENTION_QUERY, out) && take_tensor(key, ATTENTION_KEY, out) &&
         take_tensor(value, ATTENTION_VALUE, out);
}

/* Reads is_causal, and scale: NULL is the default. The library does not support a mask or a dropout. */
static int take_numbers(const hal_op_call_t *call, uint32_t bias, uint32_t causal, uint32_t dropout,
                        attention_work_t *out) {
  double is_causal = 0, scale = 1 / sqrt((double)out->attention.size), dropped = 0;
  if (call->args[bias].tag != HAL_VALUE_NONE || !cuda_op_number(&call->args[causal], &is_causal)) return 0;
  if (call->args[causal + 1].tag != HAL_VALUE_NONE && !cuda_op_number(&call->args[causal + 1], &scale)) return 0;
  if (call->arg_count > dropout && (!cuda_op_number(&call->args[dropout], &dropped) || dropped != 0)) return 0;
  out->attention.causal = is_causal != 0;
  out->scale = (float)scale;
  return isfinite(out->scale);
}

/* Returns whether the library's kernels support the parameters, and are not known to be wrong for them. */
static int is_computed(const attention_t *of) {
  const int version = cuda_dnn_version(), capability = cuda.devices[of->device].capability;
  const int most = capability >= HOPPER && capability < BLACKWELL && !of->backward ? 256 : 128;
  if (of->size % GRAIN || of->value_size % GRAIN || of->size > most || of->value_size > most) return 0;
  if (!of->backward) return !(of->causal && of->queries == 1 && version < ONE_QUERY);
  if (of->queries == 1 && of->keys == 1) return 0;
  if (capability >= BLACKWELL && version < BLACKWELL_BACKWARD) return 0; /* is not deterministic */
  return version >= ANY_KEYS || of->keys % KEYS_GRAIN == 0;
}

/* ---- operators -------------------------------------------------------------------------------------------------- */

/* HAL_UNIMPLEMENTED = the library cannot express it. */
static hal_status_t describe_forward(const hal_op_call_t *call, attention_work_t *out) {
  const hal_tensor_t *const result = cuda_op_result(call, 0), *const logarithms = cuda_op_result(call, 1);
  if (call->arg_count < 6 || !result || !logarithms || cuda_op_result(call, 2)) return HAL_UNIMPLEMENTED;
  return take_operands(call, 0, out) && take_numbers(call, 3, 4, 6, out) && is_computed(&out->attention) &&
                 take_tensor(result, ATTENTION_RESULT, out) && take_logarithms(logarithms, out)
             ? HAL_OK
             : HAL_UNIMPLEMENTED;
}

static hal_status_t describe_backward(const hal_op_call_t *call, attention_work_t *out) {
  const hal_tensor_t *const grad = cuda_op_tensor(call, 0), *const result = cuda_op_tensor(call, 5),
                            *const logarithms = cuda_op_tensor(call, 6);
  if (call->arg_count < 9 || !grad || !result || !logarithms || cuda_op_result(call, 3)) return HAL_UNIMPLEMENTED;
  if (!take_operands(call, 1, out) || !take_numbers(call, 4, 7, 9, out) || !is_computed(&out->attention) ||
      !take_tensor(grad, ATTENTION_GRAD, out) || !take_tensor(result, ATTENTION_RESULT, out) ||
      !take_logarithms(logarithms, out))
    return HAL_UNIMPLEMENTED;
  for (uint32_t i = 0; i < 3; i++) {
    const attention_id_t id = (attention_id_t)(ATTENTION_GRAD_QUERY + i);
    const hal_tensor_t *const gradient = cuda_op_result(call, i);
    if (!gradient) lay_densely(&out->attention, id);
    if (gradient && !take_tensor(gradient, id, out)) return HAL_UNIMPLEMENTED;
  }
  return HAL_OK;
}

static hal_status_t describe(const cuda_op_state_t *own, const hal_op_call_t *call, attention_work_t *out) {
  memset(out, 0, sizeof *out);
  out->op = own->op->name;
  out->attention.device = own->device;
  out->attention.backward = (own->op->kind & CUDA_OP_BACKWARD) != 0;
  return out->attention.backward ? describe_backward(call, out) : describe_forward(call, out);
}

hal_status_t cuda_attention_run(void *state, const hal_op_call_t *call) {
  attention_work_t work;
  const hal_status_t status = describe(state, call, &work);
  return status ? status : cuda_attention_queue(call, &work);
}

hal_status_t cuda_attention_ask(void *state, const hal_op_call_t *call) {
  attention_work_t work;
  const hal_status_t status = describe(state, call, &work);
  return status ? status : cuda_attention_query(&work);
}
