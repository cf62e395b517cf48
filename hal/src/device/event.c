/* event.c: events, thin wrappers of the plugin's events with their device. */
#include "hal/event.h"

#include "device/event_internal.h"
#include "device/failure.h"
#include "device/kernel_error.h"
#include "hal/status.h"
#include "plugin/call.h"

/* Creates the host's side of an event, without the plugin's handle. */
static hal_event_t *make(hal_device_t *device, uint32_t flags) {
  hal_event_t *const event = hal_malloc(sizeof *event);
  if (!event) {
    hal_error_set(HAL_RESOURCE_EXHAUSTED, "out of host memory while making an event of device %s", device->label);
    return NULL;
  }
  event->device = device;
  event->handle = NULL;
  event->flags = flags;
  atomic_init(&event->recorded, 0);
  atomic_init(&event->queried, 0);
  atomic_init(&event->stream, NULL);
  atomic_init(&event->mark, 0);
  atomic_init(&event->position, 0);
  atomic_init(&event->recording, 0);
  return event;
}

hal_status_t hal_event_create(int32_t device, uint32_t flags, hal_event_t **out_event) {
  hal_device_t *found;
  HAL_RETURN_IF_ERROR(hal_device_get(device, &found));
  if (flags & HAL_EVENT_INTERPROCESS && flags & HAL_EVENT_TIMING)
    return hal_error_set(HAL_INVALID_ARGUMENT,
                         "interprocess events do not support timing; create the event without HAL_EVENT_TIMING "
                         "(enable_timing=False), or without HAL_EVENT_INTERPROCESS");
  hal_event_t *const event = make(found, flags);
  if (!event) return HAL_RESOURCE_EXHAUSTED;
  hal_status_t status = hal_call_event_create(found->plugin, found->ordinal, flags, &event->handle);
  status = hal_error_plugin_made(found->plugin, HAL_SLOT_event_create, status, event->handle);
  if (status) {
    hal_free(event);
    return status;
  }
  hal_device_add_object(found);
  *out_event = event;
  return HAL_OK;
}

hal_status_t hal_event_ipc_export(hal_event_t *event, void *handle, size_t room, size_t *out_size) {
  hal_plugin_t *const plugin = event->device->plugin;
  HAL_RETURN_IF_ERROR(hal_device_check_alive(event->device));
  if (!(event->flags & HAL_EVENT_INTERPROCESS))
    return hal_error_set(
        HAL_FAILED_PRECONDITION,
        "an event of device %s was created for this process only; create it with HAL_EVENT_INTERPROCESS "
        "(interprocess=True) to pass it to other processes",
        event->device->label);
  return hal_error_plugin(plugin, HAL_SLOT_event_ipc_export,
                          hal_call_event_ipc_export(plugin, event->handle, 0, handle, room, out_size));
}

hal_status_t hal_event_ipc_open(int32_t device, const void *handle, size_t handle_size, hal_event_t **out_event) {
  hal_device_t *found;
  HAL_RETURN_IF_ERROR(hal_device_get(device, &found));
  hal_event_t *const event = make(found, HAL_EVENT_INTERPROCESS);
  if (!event) return HAL_RESOURCE_EXHAUSTED;
  hal_status_t status = hal_call_event_ipc_open(found->plugin, found->ordinal, handle, handle_size, 0, &event->handle);
  if (status == HAL_UNIMPLEMENTED) {
    hal_free(event);
    return hal_error_set(status,
                         "events of other processes cannot be opened on device %s: plugin %s does not share any",
                         found->label, found->plugin->info.name);
  }
  status = hal_error_plugin_made(found->plugin, HAL_SLOT_event_ipc_open, status, event->handle);
  if (status) {
    hal_free(event);
    return status;
  }
  hal_device_add_object(found);
  *out_event = event;
  return HAL_OK;
}

void hal_event_destroy(hal_event_t *event) {
  if (!event) return;
  if (hal_device_is_alive(event->device)) HAL_CALL_QUIETLY(event->device->plugin, event_destroy, event->handle);
  hal_device_remove_object(event->device);
  hal_free(event);
}

/* Records the event on one of the stream's queues. */
static hal_status_t record_on(hal_event_t *event, hal_stream_t *stream, hal_queue_t *queue) {
  uint64_t recording = 0;
  hal_stream_flush(stream, "hal_event_record"); /* before the mark: deferred work is part of the event */
  /* first: work that is queued meanwhile is not part of the event */
  const uint64_t mark = hal_kernel_error_mark(stream), position = hal_failure_position(stream);
  hal_status_t status = queue->calls->record_event(queue, event->handle, &recording);
  if (recording) { /* a position in the recording: nothing is queued */
    atomic_store_explicit(&event->stream, stream, memory_order_relaxed);
    atomic_store_explicit(&event->recording, recording, memory_order_release);
    return HAL_OK;
  }
  atomic_store_explicit(&event->recording, 0, memory_order_relaxed);
  if (HAL_UNLIKELY(status)) status = hal_stream_record_again(stream, event->handle, status);
  if (HAL_UNLIKELY(status)) return hal_error_plugin(event->device->plugin, HAL_SLOT_event_record, status);
  atomic_store_explicit(&event->recorded, 1, memory_order_relaxed);
  atomic_store_explicit(&event->queried, 0, memory_order_relaxed);
  atomic_store_explicit(&event->mark, mark, memory_order_relaxed);
  atomic_store_explicit(&event->position, position, memory_order_relaxed);
  atomic_store_explicit(&event->stream, stream, memory_order_release);
  return HAL_OK;
}

hal_status_t hal_event_record_queued(hal_event_t *event, hal_stream_t *stream) {
  return record_on(event, stream, &stream->direct.queue);
}

hal_status_t hal_event_record(hal_event_t *event, hal_stream_t *stream) {
  hal_device_t *const device = event->device;
  HAL_RETURN_IF_ERROR(hal_device_check_alive(event->device));
  stream = hal_stream_or_current(device, stream);
  if (HAL_UNLIKELY(stream->device != device))
    return hal_error_set(HAL_INVALID_ARGUMENT,
                         "an event of device %s cannot be recorded on a stream of device %s; make the "
                         "event on the stream's device",
                         device->label, stream->device->label);
  return record_on(event, stream, hal_stream_queue(stream));
}

/* Ends a synchronization or query of the event. Its work has failed if the stream's has, and the plugin reports only
 * failures of streams. The stream is queried once per record. */
static inline hal_status_t finish(hal_event_t *event, uint32_t slot, hal_status_t status) {
  hal_stream_t *const stream = atomic_load_explicit(&event->stream, memory_order_acquire);
  if (!stream || status == HAL_NOT_READY) return hal_error_plugin(event->device->plugin, slot, status);
  if (!status && !atomic_load_explicit(&event->queried, memory_order_relaxed)) {
    atomic_store_explicit(&event->queried, 1, memory_order_relaxed); /* a second call by another thread is harmless */
    hal_failure_ask(stream);
    HAL_RETURN_IF_ERROR(hal_failure_aborted(stream, atomic_load_explicit(&event->position, memory_order_relaxed)));
  }
  return hal_failure_deliver(stream, atomic_load_explicit(&event->mark, memory_order_relaxed), slot, status);
}

hal_status_t hal_event_use_recorded(const hal_event_t *event, hal_stream_t *waiting, const char *what, int *out_used) {
  const uint64_t recording = atomic_load_explicit(&event->recording, memory_order_acquire);
  *out_used = recording != 0;
  if (HAL_LIKELY(!recording)) return HAL_OK;
  const hal_stream_t *const stream = atomic_load_explicit(&event->stream, memory_order_relaxed);
  hal_queue_t *const queue = hal_stream_queue(stream);
  const hal_status_t status = queue->calls->recorded_event(queue, recording, waiting, what);
  if (status != HAL_NOT_FOUND) return status;
  return hal_error_set(HAL_FAILED_PRECONDITION,
                       "the event was recorded while stream %lld of device %s was being recorded, which is over: "
                       "record it again, after a run of the program",
                       (long long)stream->id, stream->device->label);
}

/* Fails for a call that needs the end of recorded work. */
static hal_status_t check_unrecorded(const hal_event_t *event, const char *what) {
  int used;
  return hal_event_use_recorded(event, NULL, what, &used);
}

hal_status_t hal_event_query(hal_event_t *event) {
  HAL_RETURN_IF_ERROR(hal_device_check_alive(event->device));
  HAL_RETURN_IF_ERROR(check_unrecorded(event, "hal_event_query"));
  return finish(event, HAL_SLOT_event_query, hal_call_event_query(event->device->plugin, event->handle));
}

hal_status_t hal_event_synchronize(hal_event_t *event) {
  HAL_RETURN_IF_ERROR(hal_device_check_alive(event->device));
  HAL_RETURN_IF_ERROR(check_unrecorded(event, "hal_event_synchronize"));
  hal_plugin_t *const plugin = event->device->plugin;
  const hal_status_t status = hal_call_event_synchronize(plugin, event->handle);
  if (HAL_UNLIKELY(status)) HAL_CALL_AFTER(plugin, event_synchronize, event->handle); /* if the wait itself failed */
  return finish(event, HAL_SLOT_event_synchronize, status);
}

hal_status_t hal_event_elapsed(hal_event_t *start, hal_event_t *end, int64_t *out_nanoseconds) {
  HAL_RETURN_IF_ERROR(hal_device_check_alive(start->device));
  if (start->device != end->device)
    return hal_error_set(HAL_INVALID_ARGUMENT,
                         "no time can be taken between events of two devices, %s and %s; record both on "
                         "one device",
                         start->device->label, end->device->label);
  if (!(start->flags & end->flags & HAL_EVENT_TIMING))
    return hal_error_set(HAL_FAILED_PRECONDITION,
                         "no time can be taken: make both events with HAL_EVENT_TIMING "
                         "(enable_timing=True)");
  HAL_RETURN_IF_ERROR(check_unrecorded(start, "hal_event_elapsed")); /* an earlier record has other times */
  HAL_RETURN_IF_ERROR(check_unrecorded(end, "hal_event_elapsed"));
  if (!atomic_load(&start->recorded) || !atomic_load(&end->recorded))
    return hal_error_set(HAL_FAILED_PRECONDITION,
                         "no time can be taken: the %s event was never recorded; record it first",
                         atomic_load(&start->recorded) ? "end" : "start");
  hal_plugin_t *const plugin = start->device->plugin;
  return hal_error_plugin(plugin, HAL_SLOT_event_elapsed,
                          hal_call_event_elapsed(plugin, start->handle, end->handle, out_nanoseconds));
}

hal_status_t hal_event_set_name(hal_event_t *event, const char *name) {
  return hal_device_name_object("hal_event_set_name", event->device, HAL_OBJECT_EVENT, event->handle, name);
}

int32_t hal_event_device(const hal_event_t *event) { return event->device->index; }
