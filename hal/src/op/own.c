/* own.c: a plugin's own operators: found once per device, asked per call. */
#include "op/own.h"

#include "hal/log.h"
#include "hal/status.h"
#include "plugin/call.h"

void hal_op_own_find(const hal_device_t *device, const char *name, hal_op_own_t *out_own) {
  hal_op_own_t own = {.fn = NULL};
  const hal_status_t status = hal_call_op_find(device->plugin, device->ordinal, name, &own.fn, &own.state);
  *out_own = status ? (hal_op_own_t){.fn = NULL} : own;
  if (status == HAL_OK || status == HAL_NOT_FOUND || status == HAL_UNIMPLEMENTED) return;
  hal_error_plugin(device->plugin, HAL_SLOT_op_find, status);
  hal_log(HAL_LOG_WARNING, "device %s: op_find(\"%s\") failed with %s: %s; the plugin's own operator is not used",
          device->label, name, hal_status_name(status), hal_error_message());
}

/* Writes the plugin's ordinal into a descriptor, which the caller lends us for the call (op.h). */
static void set_device(const hal_tensor_t *tensor, int32_t device) {
  if (tensor) ((hal_tensor_t *)(uintptr_t)tensor)->device = device;
}

void hal_op_set_devices(const hal_op_call_t *call, int32_t device) {
  for (uint32_t i = 0; i < call->arg_count; i++) {
    const hal_value_t *value = &call->args[i];
    if (value->tag == HAL_VALUE_TENSOR) set_device(value->u.t, device);
    for (uint32_t j = 0; value->tag == HAL_VALUE_TENSOR_LIST && j < value->count; j++)
      set_device(value->u.tl[j], device);
  }
  for (uint32_t i = 0; i < call->result_count; i++) set_device(call->results[i], device);
}

hal_status_t hal_op_own_call(const hal_op_own_t *own, const char *name, const hal_device_t *device,
                             hal_op_call_t *call) {
  hal_op_set_devices(call, device->ordinal);
  const hal_status_t status = own->fn(own->state, call);
  if (status == HAL_OK || status == HAL_UNIMPLEMENTED) return status;
  hal_error_plugin(device->plugin, HAL_SLOT_op_find, status);
  return hal_error_prefix(status, "%s: ", name);
}
