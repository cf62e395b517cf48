/* event.c: events. A record is the driver's event of the last command of the stream. An event with HAL_EVENT_TIMING has
 * its own command, which writes the device's clock. Level Zero's events serve one record each, also between processes,
 * so an event with HAL_EVENT_INTERPROCESS is one of hal/plugin_shared_event.h. */
#include <hal/plugin_shared_event.h>
#include <string.h>

#include "npu.h"

struct hal_plugin_event_s {
  int32_t device;
  uint32_t flags;
  hal_shared_event_t *shared;        /* of an interprocess event, which does not use the members below */
  pthread_mutex_t lock;              /* guards the members below */
  npu_event_t *handle;               /* NULL: nothing to wait for */
  const hal_plugin_stream_t *stream; /* only compared */
  int recorded;
};

static hal_status_t make(int32_t device, uint32_t flags, hal_plugin_event_t **out_event) {
  hal_plugin_event_t *const event = hal_host->mem_alloc(sizeof *event, alignof(hal_plugin_event_t));
  if (!event) return npu_error(HAL_RESOURCE_EXHAUSTED, 0, "npu: no host memory for an event; free some memory");
  *event = (hal_plugin_event_t){.device = device, .flags = flags};
  pthread_mutex_init(&event->lock, NULL);
  *out_event = event;
  return HAL_OK;
}

static void unmake(hal_plugin_event_t *event) {
  hal_shared_event_release(event->shared);
  pthread_mutex_destroy(&event->lock);
  hal_host->mem_free(event);
}

hal_status_t hal_plugin_event_create(int32_t device, uint32_t flags, hal_plugin_event_t **out_event) {
  const uint32_t known = HAL_EVENT_TIMING | HAL_EVENT_BLOCKING | HAL_EVENT_INTERPROCESS;
  hal_plugin_event_t *event = NULL;
  hal_status_t status = npu_check_device(device);
  if (status) return status;
  if (flags & ~known || (flags & HAL_EVENT_INTERPROCESS && flags & HAL_EVENT_TIMING))
    return npu_error(HAL_UNIMPLEMENTED, 0,
                     "npu: events with flags 0x%x are unsupported (only timing, or between processes; blocking)",
                     (unsigned)flags);
  status = make(device, flags, &event);
  if (status) return status;
  if (flags & HAL_EVENT_INTERPROCESS) status = hal_shared_event_make("npu", &event->shared);
  if (status)
    unmake(event);
  else
    *out_event = event;
  return status;
}

hal_status_t hal_plugin_event_destroy(hal_plugin_event_t *event) {
  if (!event) return HAL_OK;
  const hal_status_t status = npu_check_device(event->device);
  if (status) return status;
  if (event->handle) npu_event_release(event->handle);
  unmake(event);
  return HAL_OK;
}

/* ---- between processes ------------------------------------------------------------------------------------------ */

hal_status_t hal_plugin_event_ipc_export(hal_plugin_event_t *event, uint32_t flags, void *handle, size_t room,
                                         size_t *out_size) {
  hal_status_t status = npu_check_device(event->device);
  if (!status) status = hal_flags_check("npu: event_ipc_export", flags, 0);
  if (status) return status;
  if (!event->shared)
    return npu_error(
        HAL_INVALID_ARGUMENT, 0,
        "npu: an event that was created without HAL_EVENT_INTERPROCESS cannot be shared with other processes");
  hal_shared_event_export(event->shared, handle, room, out_size);
  return HAL_OK;
}

hal_status_t hal_plugin_event_ipc_open(int32_t device, const void *handle, size_t handle_size, uint32_t flags,
                                       hal_plugin_event_t **out_event) {
  hal_plugin_event_t *event = NULL;
  hal_status_t status = npu_check_device(device);
  if (!status) status = hal_flags_check("npu: event_ipc_open", flags, 0);
  if (!status) status = make(device, HAL_EVENT_INTERPROCESS, &event);
  if (status) return status;
  status = hal_shared_event_open("npu", handle, handle_size, &event->shared);
  if (status)
    unmake(event);
  else
    *out_event = event;
  return status;
}

/* The action of a stream's host function for a record. */
typedef struct turn_s {
  hal_shared_event_t *event;
  hal_plugin_stream_t *stream;
  uint64_t ticket;
} turn_t;

static void complete(void *argument) {
  turn_t *const turn = argument;
  hal_shared_event_complete(turn->event, turn->ticket);
  hal_shared_event_release(turn->event);
  hal_host->mem_free(turn);
}

static void await(void *argument) {
  turn_t *const turn = argument;
  if (hal_shared_event_wait(turn->event, turn->ticket))
    npu_stream_fail(turn->stream, HAL_ABORTED, "stream_wait_event",
                    "the process that recorded the event has ended before its work was done");
  hal_shared_event_release(turn->event);
  hal_host->mem_free(turn);
}

static hal_status_t queue_turn(hal_plugin_stream_t *stream, hal_shared_event_t *event, uint64_t ticket,
                               hal_host_fn_t fn) {
  turn_t *const turn = hal_host->mem_alloc(sizeof *turn, alignof(turn_t));
  if (!turn) return npu_error(HAL_RESOURCE_EXHAUSTED, 0, "npu: no host memory for an event's turn; free some memory");
  *turn = (turn_t){.event = event, .stream = stream, .ticket = ticket};
  hal_shared_event_keep(event);
  const hal_status_t status = hal_plugin_stream_host_call(stream, fn, turn);
  if (!status) return HAL_OK;
  hal_shared_event_release(event);
  hal_host->mem_free(turn);
  return status;
}

static hal_status_t record_shared(hal_plugin_event_t *event, hal_plugin_stream_t *stream) {
  const uint64_t ticket = hal_shared_event_record(event->shared);
  const hal_status_t status = queue_turn(stream, event->shared, ticket, complete);
  if (status) hal_shared_event_complete(event->shared, ticket); /* so that no process waits for it */
  return status;
}

static hal_status_t wait_shared(hal_plugin_event_t *event, hal_plugin_stream_t *stream) {
  const uint64_t ticket = hal_shared_event_last(event->shared);
  if (hal_shared_event_done(event->shared, ticket)) return HAL_OK;
  return queue_turn(stream, event->shared, ticket, await);
}

/* ---- within this process ---------------------------------------------------------------------------------------- */

/* Replaces the record; takes ownership of the reference to `handle`. */
static void set_record(hal_plugin_event_t *event, npu_event_t *handle, const hal_plugin_stream_t *stream) {
  pthread_mutex_lock(&event->lock);
  npu_event_t *const old = event->handle;
  event->handle = handle;
  event->stream = stream;
  event->recorded = 1;
  pthread_mutex_unlock(&event->lock);
  if (old) npu_event_release(old);
}

/* Returns the handle with a reference, or NULL. */
static npu_event_t *take_handle(hal_plugin_event_t *event, const hal_plugin_stream_t **out_stream) {
  pthread_mutex_lock(&event->lock);
  npu_event_t *const handle = event->handle;
  if (handle) npu_event_keep(handle);
  if (out_stream) *out_stream = event->stream;
  pthread_mutex_unlock(&event->lock);
  return handle;
}

/* Commands run in order: when the last one is done, all are. */
static hal_status_t record_last(hal_plugin_event_t *event, hal_plugin_stream_t *stream) {
  const hal_status_t status = npu_work_mark(stream);
  if (status) return status;
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
  if (event->shared) return record_shared(event, stream);
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

/* Failed work is done, too; its stream reports the failure. */
hal_status_t hal_plugin_event_query(hal_plugin_event_t *event) {
  const hal_status_t status = npu_check_device(event->device);
  if (status) return status;
  if (event->shared)
    return hal_shared_event_done(event->shared, hal_shared_event_last(event->shared)) ? HAL_OK : HAL_NOT_READY;
  npu_event_t *const handle = take_handle(event, NULL);
  if (!handle) return HAL_OK;
  const ze_result_t code = ze.zeEventQueryStatus(handle->handle);
  npu_event_release(handle);
  return code == ZE_RESULT_NOT_READY ? HAL_NOT_READY : HAL_OK;
}

hal_status_t hal_plugin_event_synchronize(hal_plugin_event_t *event) {
  const hal_status_t status = npu_check_device(event->device);
  if (status) return status;
  if (event->shared) return hal_shared_event_wait(event->shared, hal_shared_event_last(event->shared));
  npu_event_t *const handle = take_handle(event, NULL);
  if (!handle) return HAL_OK;
  const ze_result_t code = ze.zeEventHostSynchronize(handle->handle, UINT64_MAX);
  const int32_t device = handle->device;
  npu_event_release(handle);
  npu_device_noticed(device, code);
  return code ? npu_driver_error(code, "npu: waiting for the work of an event failed") : HAL_OK;
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
                     "npu: elapsed time of events created without HAL_EVENT_TIMING; create both with timing enabled");
  if (start->device != end->device)
    return npu_error(HAL_INVALID_ARGUMENT, 0,
                     "npu: elapsed time between events of device %d and device %d; use events of one device",
                     (int)start->device, (int)end->device);
  status = time_of(start, &from);
  if (!status) status = time_of(end, &to);
  if (status) return status;
  /* Computes the difference of two counters of this many bits, which may have wrapped around; the upper half of the
   * range is a negative difference. */
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
  if (event->shared) return wait_shared(event, stream);
  npu_event_t *const handle = take_handle(event, &recorded);
  if (!handle) return HAL_OK;
  /* A stream need not wait for its own work. */
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
