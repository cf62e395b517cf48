/* own_exp.c: five.c with "kernels" that are accepted as source and compute nothing, and its own operator exp, which
 * also computes nothing and declines more than 1,000 elements. Each run of either leaves a record, so that tests can
 * observe which implementation runs. */
#define _POSIX_C_SOURCE 200809L
#include <hal/plugin_records.h>
#include <stdio.h>
#include <time.h>

#include "five.c"

struct hal_plugin_module_s {
  char unused;
};
struct hal_plugin_kernel_s {
  char name[128];
};

static hal_records_t records = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void keep(const char *name) {
  hal_profile_record_t record = {
      .struct_size = sizeof record, .name = name, .start_ns = now_ns(), .kind = HAL_PROFILE_KERNEL};
  const uint32_t noted = hal_records_note(&records, &record.correlation);
  record.end_ns = now_ns();
  if (noted) hal_records_append(&records, noted, &record);
}

hal_status_t hal_plugin_device_info(int32_t device, hal_device_info_t *out_info) {
  (void)device;
  if (HAL_HAS_FIELD(out_info, dialects)) snprintf(out_info->dialects, sizeof out_info->dialects, "opencl-c");
  HAL_SET_FIELD(out_info, flags, HAL_DEVICE_FP64);
  HAL_SET_FIELD(out_info, compute_units, 4);
  HAL_SET_FIELD(out_info, subgroup_size, 16);
  HAL_SET_FIELD(out_info, max_block_threads, 256);
  HAL_SET_FIELD(out_info, max_shared_bytes, 32 << 10);
  HAL_SET_FIELD(out_info, base_alignment, ALIGNMENT);
  return HAL_OK;
}

hal_status_t hal_plugin_module_load(int32_t device, const hal_module_desc_t *desc, hal_plugin_module_t **out_module) {
  static hal_plugin_module_t module;
  (void)device, (void)desc;
  *out_module = &module;
  return HAL_OK;
}

hal_status_t hal_plugin_module_unload(hal_plugin_module_t *module) {
  (void)module;
  return HAL_OK;
}

hal_status_t hal_plugin_kernel_get(hal_plugin_module_t *module, const char *name, hal_plugin_kernel_t **out_kernel) {
  (void)module;
  hal_plugin_kernel_t *const kernel = malloc(sizeof *kernel); /* as long as the process */
  if (!kernel) return hal_host->error_set(HAL_RESOURCE_EXHAUSTED, 0, "own_exp: out of memory");
  snprintf(kernel->name, sizeof kernel->name, "%s", name);
  *out_kernel = kernel;
  return HAL_OK;
}

hal_status_t hal_plugin_kernel_launch(hal_plugin_kernel_t *kernel, hal_plugin_stream_t *stream,
                                      const hal_launch_t *launch) {
  (void)stream, (void)launch;
  keep(kernel->name);
  return HAL_OK;
}

static hal_status_t own_exp(void *state, const hal_op_call_t *call) {
  (void)state;
  const hal_tensor_t *const result = call->results[0];
  if (result->ndim == 1 && result->sizes[0] > 1000) return HAL_UNIMPLEMENTED;
  keep("acme_exp");
  return HAL_OK;
}

hal_status_t hal_plugin_op_find(int32_t device, const char *name, hal_op_own_t *out_op) {
  (void)device;
  if (strcmp(name, "exp")) return HAL_NOT_FOUND;
  HAL_SET_FIELD(out_op, fn, own_exp);
  HAL_SET_FIELD(out_op, dtypes, HAL_DTYPE_BIT(HAL_FLOAT32));
  HAL_SET_FIELD(out_op, layouts, HAL_TAKES_ALL);
  return HAL_OK;
}

hal_status_t hal_plugin_profile_enable(int32_t device, int32_t on) {
  (void)device;
  hal_records_enable(&records, on);
  return HAL_OK;
}

hal_status_t hal_plugin_profile_read(int32_t device, hal_profile_sink_t sink, void *user_data) {
  (void)device;
  hal_records_read(&records, sink, user_data);
  return HAL_OK;
}
