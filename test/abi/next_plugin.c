/* next_plugin.c: the plugin of 0.5 as its author would carry it to the next minor version. */
#define hal_plugin_device_info device_info_of_minor_5
#include "0.5/plugin.c"
#undef hal_plugin_device_info

hal_status_t hal_plugin_device_info(int32_t device, hal_device_info_t *out_info); /* the header's has the other name */
hal_status_t hal_plugin_device_info(int32_t device, hal_device_info_t *out_info) {
  const hal_status_t status = device_info_of_minor_5(device, out_info);
  if (!status) HAL_SET_FIELD(out_info, next_fact, 7);
  return status;
}

/* With the host's new function, where the host has it. */
hal_status_t hal_plugin_next_minor(int32_t device, uint32_t value, int64_t *out_value) {
  (void)device;
  *out_value = (int64_t)value + 1 + (HAL_HAS_FIELD(hal_host, next_service) ? hal_host->next_service() : 0);
  return HAL_OK;
}
