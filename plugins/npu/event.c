/* event.c: events. A record is the driver's event of the last command of the stream; an event with HAL_EVENT_TIMING has a command of its
 * own, which writes the device's clock. */
#include <string.h>

#include "npu.h"

struct hal_plugin_event_s {
  int32_t device;
  uint32_t flags;
  pthread_mutex_t lock;              /* of the rest */
  npu_event_t *handle;               /* NULL: nothing to wait for */
  const hal_plugin_stream_t *stream; /* only compared */
  int recorded;
};

hal_status_t hal_plugin_event_create(int32_t device, uint32_t flags, hal_plugin_event_t **out_event) {
  const hal_status_t status = npu_check_device(device);
  if (status) return status;
  if (flags & ~(uint32_t)(HAL_EVENT_TIMING | HAL_EVENT_BLOCKING))
    return npu_error(HAL_UNIMPLEMENTED, 0, "npu: events with flags 0x%x are not offered (only timing and blocking)",
                     (unsigned)flags);
  hal_plugin_event_t *event = hal_host->mem_alloc(sizeof *event, alignof(hal_plugin_event_t));
  if (!event) return npu_error(HAL_RESOURCE_EXHAUSTED, 0, "npu: no host memory for an event; free some memory");
  *event = (hal_plugin_event_t){.device = device, .flags = flags};
  pthread_mutex_init(&event->lock, NULL);
  *out_event = event;
  return HAL_OK;
}

hal_status_t hal_plugin_event_destroy(hal_plugin_event_t *event) {
  if (!event) return HAL_OK;
  const hal_status_t status = npu_check_device(event->device);
  if (status) return status;
  if (event->handle) npu_event_release(event->handle);
  pthread_mutex_destroy(&event->lock);
  hal_host->mem_free(event);
  return HAL_OK;
}

/* Replaces the record; takes over the reference to `handle`. */
static void set_record(hal_plugin_event_t *event, npu_event_t *handle, const hal_plugin_stream_t *stream) {
  pthread_mutex_lock(&event->lock);
  npu_event_t *const old = event->handle;
  event->handle = handle;
  event->stream = stream;
  event->recorded = 1;
  pthread_mutex_unlock(&event->lock);
  if (old) npu_event_release(old);
}

/* Gives the handle with a reference, or NULL. */
static npu_event_t *take_handle(hal_plugin_event_t *event, const hal_plugin_stream_t **out_stream) {
  pthread_mutex_lock(&event->lock);
  npu_event_t *const handle = event->handle;
  if (handle) npu_event_keep(handle);
  if (out_stream) *out_stream = event->stream;
  pthread_mutex_unlock(&event->lock);
  return handle;
}

/* Commands run one behind the other: when the last is done, all are. */
static hal_status_t record_last(hal_plugin_event_t *event, hal_plugin_stream_t *stream) {
  pthread_mutex_lock(&stream->lock);
  npu_work_reap(stream, UINT32_MAX);
  set_record(event, npu_work_last(stream), stream);
  pthread_mutex_unlock(&stream->lock);
  return HAL_OK;
}

hal_status_t hal_plugin_event_record(hal_plugin_event_t *event, hal_plugin_stream_t *stream) {
  npu_submit_t submit;
  hal_status_t status = npu_check_alive(stream ? stream->device : event->device);
  if (status) return status;
  if (stream && !(event->flags & HAL_EVENT_TIMING)) return record_last(event, stream);
  status = npu_submit_begin(&submit, stream, event->device, "event_record");
  if (status) return status;
  submit.work.noted = 0;
  const ze_result_t code = ze.zeCommandListAppendWriteGlobalTimestamp(submit.list, submit.work.event->stamp,
                                                                      submit.signal, submit.wait_count, submit.waits);
  if (!code) {
    npu_event_keep(submit.work.event);
    set_record(event, submit.work.event, submit.stream);
  }
  return npu_submit_end(&submit, code);
}

/* Failed work is done, too: its stream tells. */
hal_status_t hal_plugin_event_query(hal_plugin_event_t *event) {
  const hal_status_t status = npu_check_device(event->device);
  if (status) return status;
  npu_event_t *const handle = take_handle(event, NULL);
  if (!handle) return HAL_OK;
  const ze_result_t code = ze.zeEventQueryStatus(handle->handle);
  npu_event_release(handle);
  return code == ZE_RESULT_NOT_READY ? HAL_NOT_READY : HAL_OK;
}

hal_status_t hal_plugin_event_synchronize(hal_plugin_event_t *event) {
  const hal_status_t status = npu_check_device(event->device);
  if (status) return status;
  npu_event_t *const handle = take_handle(event, NULL);
  if (!handle) return HAL_OK;
  const ze_result_t code = ze.zeEventHostSynchronize(handle->handle, UINT64_MAX);
  const int32_t device = handle->device;
  npu_event_release(handle);
  npu_device_noticed(device, code);
  return code ? npu_driver_error(code, "npu: an event's work did not end") : HAL_OK;
}

static hal_status_t time_of(hal_plugin_event_t *event, uint64_t *out_ticks) {
  npu_event_t *const handle = take_handle(event, NULL);
  if (!handle)
    return npu_error(HAL_FAILED_PRECONDITION, 0, "npu: elapsed time of an event that was never recorded; record both");
  const ze_result_t code = ze.zeEventQueryStatus(handle->handle);
  if (!code) *out_ticks = *(volatile uint64_t *)handle->stamp;
  npu_event_release(handle);
  if (code == ZE_RESULT_NOT_READY) return HAL_NOT_READY;
  return code ? npu_driver_error(code, "npu: an event has no time") : HAL_OK;
}

hal_status_t hal_plugin_event_elapsed(hal_plugin_event_t *start, hal_plugin_event_t *end, int64_t *out_nanoseconds) {
  uint64_t from = 0, to = 0;
  hal_status_t status = npu_check_device(start->device);
  if (status) return status;
  if (!(start->flags & end->flags & HAL_EVENT_TIMING))
    return npu_error(HAL_FAILED_PRECONDITION, 0,
                     "npu: elapsed time of events made without HAL_EVENT_TIMING; create both with timing enabled");
  if (start->device != end->device)
    return npu_error(HAL_INVALID_ARGUMENT, 0,
                     "npu: elapsed time between events of device %d and device %d; use events of one device",
                     (int)start->device, (int)end->device);
  status = time_of(start, &from);
  if (!status) status = time_of(end, &to);
  if (status) return status;
  /* The difference of two counters of so many bits, which may have begun anew between them; half of their range is the past. */
  const npu_device_t *const device = &npu.devices[start->device];
  const uint32_t bits = device->facts.timestampValidBits;
  const uint64_t mask = bits && bits < 64 ? (UINT64_C(1) << bits) - 1 : UINT64_MAX, forward = (to - from) & mask;
  *out_nanoseconds =
      forward <= mask / 2 ? npu_device_time(device, forward, 64) : -npu_device_time(device, (from - to) & mask, 64);
  return HAL_OK;
}

hal_status_t hal_plugin_stream_wait_event(hal_plugin_stream_t *stream, hal_plugin_event_t *event) {
  if (!stream) return hal_plugin_event_synchronize(event);
  const hal_plugin_stream_t *recorded = NULL;
  hal_status_t status = npu_check_alive(stream->device);
  if (status) return status;
  npu_event_t *const handle = take_handle(event, &recorded);
  if (!handle) return HAL_OK;
  /* A stream waits for its own past anyway. */
  if (recorded == stream || ze.zeEventQueryStatus(handle->handle) != ZE_RESULT_NOT_READY) {
    npu_event_release(handle);
    return HAL_OK;
  }
  npu_submit_t submit;
  status = npu_submit_begin(&submit, stream, stream->device, "stream_wait_event");
  if (status) {
    npu_event_release(handle);
    return status;
  }
  submit.work.noted = 0;
  npu_submit_wait(&submit, handle);
  return npu_submit_end(&submit,
                        ze.zeCommandListAppendBarrier(submit.list, submit.signal, submit.wait_count, submit.waits));
}
