/* dead_kernels.c: five.c with modules in a dialect that no compiler here makes; its launches do nothing. */
#define FIVE_NAME "dead_kernels"
#include "five.c"

#include <stdio.h>

hal_status_t hal_plugin_device_info(int32_t device, hal_device_info_t *out_info) {
  if (!known(device)) return HAL_INVALID_ARGUMENT;
  if (out_info->struct_size < HAL_STRUCT_SIZE(hal_device_info_t, base_alignment)) return HAL_OK; /* nothing fits */
  snprintf(out_info->name, sizeof out_info->name, "dead kernels");
  snprintf(out_info->dialects, sizeof out_info->dialects, "acme-isa");
  out_info->flags = HAL_DEVICE_HOST_VISIBLE;
  out_info->base_alignment = ALIGNMENT;
  return HAL_OK;
}

hal_status_t hal_plugin_module_load(int32_t device, const hal_module_desc_t *desc, hal_plugin_module_t **out_module) {
  static char module;
  if (!known(device)) return HAL_INVALID_ARGUMENT;
  if (strcmp(desc->dialect, "acme-isa") != 0) return HAL_UNIMPLEMENTED;
  *out_module = (hal_plugin_module_t *)(void *)&module;
  return HAL_OK;
}

hal_status_t hal_plugin_module_unload(hal_plugin_module_t *module) {
  (void)module;
  return HAL_OK;
}

hal_status_t hal_plugin_kernel_get(hal_plugin_module_t *module, const char *name, hal_plugin_kernel_t **out_kernel) {
  (void)name;
  *out_kernel = (hal_plugin_kernel_t *)(void *)module;
  return HAL_OK;
}

hal_status_t hal_plugin_kernel_launch(hal_plugin_kernel_t *kernel, hal_plugin_stream_t *stream,
                                      const hal_launch_t *launch) {
  (void)kernel, (void)stream, (void)launch;
  return HAL_OK;
}
