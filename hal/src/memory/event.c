/* event.c: waits of the allocator for streams.
 *
 * An asynchronous failure must be reported to the user. Therefore the allocator waits for events. If it must query a
 * stream and encounters a failure, it records it for the stream (device/failure.h). */
#include "device/failure.h"
#include "memory/internal.h"

hal_plugin_event_t *hal_mem_event_record(hal_allocator_t *allocator, hal_stream_t *stream) {
  hal_device_t *device = stream->device;
  hal_plugin_event_t *event = NULL;
  if (device == allocator->device && allocator->event_count) event = allocator->events[--allocator->event_count];
  hal_unlock(&allocator->lock);
  hal_status_t status = event ? HAL_OK : hal_call_event_create(device->plugin, device->ordinal, 0, &event);
  status = hal_plugin_made(status, event);
  if (!status) status = hal_stream_record(stream, event);
  hal_lock(&allocator->lock);
  if (!status) return event;
  if (event) hal_mem_event_give(allocator, stream, event);
  return NULL;
}

void hal_mem_event_give(hal_allocator_t *allocator, hal_stream_t *stream, hal_plugin_event_t *event) {
  hal_device_t *device = stream->device;
  if (device == allocator->device && allocator->event_count < HAL_MEM_EVENT_CACHE) {
    allocator->events[allocator->event_count++] = event;
  } else {
    hal_unlock(&allocator->lock);
    HAL_CALL_QUIETLY(device->plugin, event_destroy, event);
    hal_lock(&allocator->lock);
  }
}

int hal_mem_event_done(hal_allocator_t *allocator, hal_stream_t *stream, hal_plugin_event_t *event) {
  hal_unlock(&allocator->lock);
  const hal_status_t status = hal_call_event_query(stream->device->plugin, event);
  if (status && status != HAL_NOT_READY) { /* and the work may still run */
    hal_failure_record_plugin(stream, HAL_SLOT_event_query, status);
  }
  hal_lock(&allocator->lock);
  return status == HAL_OK;
}

void hal_mem_event_wait(hal_allocator_t *allocator, hal_stream_t *stream, hal_plugin_event_t *event) {
  hal_plugin_t *plugin = stream->device->plugin;
  hal_unlock(&allocator->lock);
  hal_status_t status = event ? hal_call_event_synchronize(plugin, event) : HAL_UNIMPLEMENTED;
  if (status) { /* fallback: wait for the stream */
    hal_stream_flush(stream, "memory is about to be freed");
    status = hal_direct_calls.synchronize(&stream->direct.queue);
  }
  if (status) hal_failure_record_plugin(stream, HAL_SLOT_stream_synchronize, status);
  hal_lock(&allocator->lock);
  if (event) hal_mem_event_give(allocator, stream, event);
}

void hal_mem_stream_wait(hal_allocator_t *allocator, hal_stream_t *stream) {
  hal_mem_event_wait(allocator, stream, hal_mem_event_record(allocator, stream));
}

int hal_mem_stream_idle(hal_allocator_t *allocator, hal_stream_t *stream) {
  hal_unlock(&allocator->lock);
  hal_stream_flush(stream, "memory is about to be freed"); /* deferred work may use it */
  const hal_status_t status = hal_failure_ask(stream);
  hal_lock(&allocator->lock);
  return status == HAL_OK;
}

void hal_mem_free(hal_stream_t *stream, void *address) {
  hal_device_t *device = stream->device;
  const hal_status_t status = hal_call_memory_free(device->plugin, device->ordinal, address);
  if (status) hal_failure_record_plugin(stream, HAL_SLOT_memory_free, status);
}

void hal_mem_free_async(hal_stream_t *stream, void *address) {
  hal_stream_flush(stream, "memory is about to be freed");
  hal_mem_free_queued(stream, address);
}

void hal_mem_free_queued(hal_stream_t *stream, void *address) {
  hal_device_t *device = stream->device;
  const hal_status_t status =
      hal_call_memory_free_async(device->plugin, device->ordinal, stream->direct.handle, address);
  if (status) hal_failure_record_plugin(stream, HAL_SLOT_memory_free_async, status);
}

void hal_mem_events_destroy(hal_allocator_t *allocator) {
  while (allocator->event_count) {
    HAL_CALL_QUIETLY(allocator->device->plugin, event_destroy, allocator->events[--allocator->event_count]);
  }
}
