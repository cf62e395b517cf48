/* streamless.c: five.c with a group of modules and no streams, whose kernels run inline. Copies are counted. A
 * kernel of an unloaded module fails. Its dialect "streamless" has the kernels
 *   store(int32_t *target, int32_t value)   writes one number
 *   copies(int32_t *target)                 writes the number of calls of memory_copy */
#define _POSIX_C_SOURCE 200809L
#include <stdatomic.h>
#include <stdio.h>

static atomic_int copies;
#define FIVE_ON_COPY() atomic_fetch_add(&copies, 1)
#include "five.c"

enum { STORE, COPIES, KERNELS };

struct hal_plugin_kernel_s {
  int number;
  const struct hal_plugin_module_s *module;
};
struct hal_plugin_module_s {
  int loaded;
  hal_plugin_kernel_t kernels[KERNELS];
};

hal_status_t hal_plugin_device_info(int32_t device, hal_device_info_t *out_info) {
  if (!known(device) || out_info->struct_size < HAL_STRUCT_SIZE(hal_device_info_t, base_alignment))
    return HAL_INVALID_ARGUMENT;
  snprintf(out_info->name, sizeof out_info->name, "streamless %d", (int)device);
  snprintf(out_info->dialects, sizeof out_info->dialects, "streamless");
  out_info->flags = HAL_DEVICE_HOST_VISIBLE;
  out_info->base_alignment = ALIGNMENT;
  return HAL_OK;
}

hal_status_t hal_plugin_module_load(int32_t device, const hal_module_desc_t *desc, hal_plugin_module_t **out_module) {
  if (!known(device) || strcmp(desc->dialect, "streamless") != 0) return HAL_UNIMPLEMENTED;
  hal_plugin_module_t *const module = hal_host->mem_alloc(sizeof *module, 16);
  if (!module) return hal_host->error_set(HAL_RESOURCE_EXHAUSTED, 0, "streamless: out of host memory");
  *module = (hal_plugin_module_t){.loaded = 1, .kernels = {{STORE, module}, {COPIES, module}}};
  *out_module = module;
  return HAL_OK;
}

/* Its record remains, so that a launch of its kernels is detected. */
hal_status_t hal_plugin_module_unload(hal_plugin_module_t *module) {
  module->loaded = 0;
  return HAL_OK;
}

hal_status_t hal_plugin_kernel_get(hal_plugin_module_t *module, const char *name, hal_plugin_kernel_t **out_kernel) {
  const int number = strcmp(name, "store") == 0 ? STORE : strcmp(name, "copies") == 0 ? COPIES : KERNELS;
  if (number == KERNELS) return HAL_NOT_FOUND;
  *out_kernel = &module->kernels[number];
  return HAL_OK;
}

hal_status_t hal_plugin_kernel_launch(hal_plugin_kernel_t *kernel, hal_plugin_stream_t *stream,
                                      const hal_launch_t *launch) {
  if (stream || !kernel->module->loaded)
    return hal_host->error_set(HAL_INTERNAL, 0, "streamless: a kernel of a module that was unloaded, or a stream");
  int32_t *const target = *(int32_t *const *)launch->args[0].value;
  *target = kernel->number == STORE ? *(const int32_t *)launch->args[1].value : atomic_load(&copies);
  return HAL_OK;
}
