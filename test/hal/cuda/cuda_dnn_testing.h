/* cuda_dnn_testing.h: the CUDA plugin with the mock of cuDNN, and its operators without a host. */
#ifndef TEST_HAL_CUDA_DNN_TESTING_H_
#define TEST_HAL_CUDA_DNN_TESTING_H_

#include "cuda_plugin_testing.h"

static int logged; /* log messages about the library */
static char logged_last[512];
static inline void keep_log(int32_t level, const char *text) {
  if (level == HAL_LOG_INFO && (strstr(text, "cudnn") || strstr(text, "cuDNN"))) {
    logged++;
    snprintf(logged_last, sizeof logged_last, "%s", text);
  }
}

/* Scratch memory of the device; freed when the process exits. */
static void *scratch[64];
static int scratch_count;
static inline hal_status_t give_scratch(const hal_op_call_t *call, size_t size, void **out_ptr) {
  const hal_status_t status = api.memory_alloc(call->device, size, 0, out_ptr);
  if (!status && scratch_count < 64) scratch[scratch_count++] = *out_ptr;
  return status;
}

static inline void open_with(const char *name, const char *value) {
  static hal_host_api_t host;
  needs_mock("the results of cuDNN");
  if (!getenv("HAL_CUDA_CUDNN")) setenv("HAL_CUDA_CUDNN", CUDNN, 1);
  if (name) setenv(name, value, 1);
  host = host_api;
  host.log = keep_log;
  host.scratch_alloc = give_scratch;
  open_plugin_with(&host);
}

static inline hal_op_own_t found(const char *name) {
  hal_op_own_t own = {.struct_size = sizeof own};
  OK(api.op_find(0, name, &own));
  return own;
}

static inline hal_value_t of(const hal_tensor_t *tensor) {
  return (hal_value_t){.tag = HAL_VALUE_TENSOR, .u.t = tensor};
}
static inline hal_value_t whole(int64_t number) { return (hal_value_t){.tag = HAL_VALUE_INT, .u.i = number}; }

#endif /* TEST_HAL_CUDA_DNN_TESTING_H_ */
