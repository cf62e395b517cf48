/* hint.c: hints about memory that the driver migrates between devices and the host; the plugin passes them to its
 * driver. */
#include "memory/internal.h"

/* Checks a range, and translates the place of a hint: one of the devices of `device`'s plugin, or the host. */
static hal_status_t check(const char *call, const hal_device_t *device, const void *ptr, size_t size, int32_t place,
                          int32_t *out_ordinal) {
  uintptr_t end = 0;
  *out_ordinal = HAL_HOST;
  if (size && (!ptr || __builtin_add_overflow((uintptr_t)ptr, size, &end)))
    return hal_error_set(HAL_INVALID_ARGUMENT, "%s: invalid range of %zu bytes at %p", call, size, ptr);
  if (place == HAL_HOST) return HAL_OK;
  if (place < 0 || place >= hal_device_count()) return hal_device_out_of_range(place);
  if (hal_devices[place].plugin != device->plugin)
    return hal_error_set(HAL_INVALID_ARGUMENT,
                         "%s: memory of device %s does not move to device %s, which is of another plugin; copy it with "
                         "hal_memory_copy",
                         call, device->label, hal_device_label(place));
  *out_ordinal = hal_devices[place].ordinal;
  return HAL_OK;
}

hal_status_t hal_memory_prefetch(int32_t index, hal_stream_t *stream, const void *ptr, size_t size,
                                 int32_t dst_device) {
  static const char call[] = "hal_memory_prefetch";
  hal_device_t *device;
  int32_t ordinal;
  HAL_RETURN_IF_ERROR(hal_device_get(index, &device));
  stream = hal_stream_or_current(device, stream);
  if (stream->device != device)
    return hal_error_set(HAL_INVALID_ARGUMENT, "%s: the stream of device %s cannot be used for device %s", call,
                         stream->device->label, device->label);
  HAL_RETURN_IF_ERROR(check(call, device, ptr, size, dst_device, &ordinal));
  if (!size) return HAL_OK;
  const hal_status_t status =
      hal_call_memory_prefetch(device->plugin, stream->direct.handle, device->ordinal, ptr, size, ordinal, 0);
  return hal_error_plugin(device->plugin, HAL_SLOT_memory_prefetch, status);
}

hal_status_t hal_memory_advise(int32_t index, const void *ptr, size_t size, uint32_t advice, int32_t place) {
  static const char call[] = "hal_memory_advise";
  hal_device_t *device;
  int32_t ordinal;
  HAL_RETURN_IF_ERROR(hal_device_get(index, &device));
  if (advice < HAL_ADVICE_READ_MOSTLY || advice > HAL_ADVICE_NOT_ACCESSED)
    return hal_error_set(HAL_INVALID_ARGUMENT, "%s: invalid advice %u: expected one of HAL_ADVICE_*, 1 to %d", call,
                         (unsigned)advice, HAL_ADVICE_NOT_ACCESSED);
  HAL_RETURN_IF_ERROR(check(call, device, ptr, size, place, &ordinal));
  if (!size) return HAL_OK;
  const hal_status_t status = hal_call_memory_advise(device->plugin, device->ordinal, ptr, size, advice, ordinal);
  return hal_error_plugin(device->plugin, HAL_SLOT_memory_advise, status);
}
