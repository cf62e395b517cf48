/* compile.c: kernels that a program writes in the portable dialect, and their error reports. */
#include "device/kernel_error.h"
#include "hal/kernel.h"
#include "hal/status.h"
#include "op/table.h"

hal_status_t hal_kernel_compile(int32_t device, const char *name, const char *text, hal_kernel_t **out_kernel) {
  hal_device_t *found;
  HAL_RETURN_IF_ERROR(hal_device_get(device, &found));
  if (!name || !*name || !text)
    return hal_error_set(HAL_INVALID_ARGUMENT, "a kernel to compile needs a name and a text; pass both");
  hal_provider_t *const provider = &hal_op_table_of(found)->provider;
  pthread_mutex_t *const lock = hal_provider_own_lock(provider);
  hal_mutex_lock_and_defer(lock);
  const hal_status_t status = hal_provider_compile(provider, name, text, out_kernel);
  hal_mutex_unlock_and_run(lock);
  return status;
}

/* Returns the caller's stream after checks. */
static hal_status_t stream_of(int32_t device, hal_stream_t **stream) {
  hal_device_t *found;
  HAL_RETURN_IF_ERROR(hal_device_get(device, &found));
  *stream = hal_stream_or_current(found, *stream);
  if ((*stream)->device == found) return HAL_OK;
  return hal_error_set(HAL_INVALID_ARGUMENT, "kernels of device %s do not report to a stream of device %s",
                       found->label, (*stream)->device->label);
}

hal_status_t hal_kernel_report_address(int32_t device, hal_stream_t *stream, void **out_address) {
  HAL_RETURN_IF_ERROR(stream_of(device, &stream));
  return hal_kernel_error_address(stream, out_address);
}

hal_status_t hal_kernel_report_launched(int32_t device, hal_stream_t *stream) {
  HAL_RETURN_IF_ERROR(stream_of(device, &stream));
  hal_queue_t *const queue = hal_stream_queue(stream);
  return queue->calls->reports(queue) ? HAL_OK : hal_kernel_error_launched(stream);
}
