/* semaphore.c: see semaphore.h. */
#include "device/semaphore.h"

#include "base/status_internal.h"
#include "plugin/call.h"
#include "plugin/slots.h"

struct hal_semaphore_s {
  hal_device_t *device;
  hal_plugin_semaphore_t *handle;
};

hal_status_t hal_semaphore_create(int32_t device, hal_semaphore_t **out_semaphore) {
  hal_device_t *found;
  HAL_RETURN_IF_ERROR(hal_device_get(device, &found));
  hal_plugin_t *const plugin = found->plugin;
  if (!hal_slot_is_provided(&plugin->api, HAL_SLOT_semaphore_create) || !(found->info.flags & HAL_DEVICE_ASYNC))
    return HAL_UNIMPLEMENTED;
  hal_semaphore_t *const semaphore = hal_malloc(sizeof *semaphore);
  if (!semaphore) return hal_error_set(HAL_RESOURCE_EXHAUSTED, "out of host memory for a semaphore");
  semaphore->device = found, semaphore->handle = NULL;
  hal_status_t status = hal_call_semaphore_create(plugin, found->ordinal, 0, 0, &semaphore->handle);
  status = hal_plugin_made(status, semaphore->handle);
  if (!status) {
    hal_device_add_object(found);
    *out_semaphore = semaphore;
    return HAL_OK;
  }
  hal_free(semaphore);
  return status == HAL_UNIMPLEMENTED ? status : hal_error_plugin(plugin, HAL_SLOT_semaphore_create, status);
}

void hal_semaphore_destroy(hal_semaphore_t *semaphore) {
  if (!semaphore) return;
  if (hal_device_is_alive(semaphore->device))
    HAL_CALL_QUIETLY(semaphore->device->plugin, semaphore_destroy, semaphore->handle);
  hal_device_remove_object(semaphore->device);
  hal_free(semaphore);
}

hal_status_t hal_semaphore_set(hal_semaphore_t *semaphore, uint64_t value) {
  HAL_RETURN_IF_ERROR(hal_device_check_alive(semaphore->device));
  hal_plugin_t *const plugin = semaphore->device->plugin;
  return hal_error_plugin(plugin, HAL_SLOT_semaphore_set, hal_call_semaphore_set(plugin, semaphore->handle, value));
}

/* Launches deferred work of the stream's queue, and rejects a recorded stream. */
static hal_status_t go_past_queue(hal_stream_t *stream, const char *what) {
  HAL_RETURN_IF_ERROR(hal_device_check_alive(stream->device));
  hal_queue_t *const queue = hal_stream_queue(stream);
  return queue->calls->require(queue, what);
}

hal_status_t hal_stream_signal_semaphore(hal_stream_t *stream, hal_semaphore_t *semaphore, uint64_t value) {
  HAL_RETURN_IF_ERROR(go_past_queue(stream, "signaling a semaphore"));
  hal_plugin_t *const plugin = semaphore->device->plugin;
  return hal_error_plugin(plugin, HAL_SLOT_stream_signal_semaphore,
                          hal_call_stream_signal_semaphore(plugin, stream->direct.handle, semaphore->handle, value));
}

hal_status_t hal_stream_wait_semaphore(hal_stream_t *stream, hal_semaphore_t *semaphore, uint64_t value) {
  HAL_RETURN_IF_ERROR(go_past_queue(stream, "waiting for a semaphore"));
  hal_plugin_t *const plugin = semaphore->device->plugin;
  return hal_error_plugin(plugin, HAL_SLOT_stream_wait_semaphore,
                          hal_call_stream_wait_semaphore(plugin, stream->direct.handle, semaphore->handle, value));
}
