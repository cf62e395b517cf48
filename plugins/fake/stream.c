/* stream.c: streams: creation, destruction, synchronization, queries, host functions. run.c runs the items. */
#include <stdio.h>
#include <string.h>

#include "sanitize/sanitize.h"

/* ---- creation and destruction ----------------------------------------------------------------------------------- */

hal_status_t hal_plugin_stream_create(int32_t device, const hal_stream_desc_t *desc, hal_plugin_stream_t **out_stream) {
  hal_status_t status = fake_check_device(device);
  if (!status) status = hal_stream_desc_check("fake: stream_create", desc, 0);
  if (status) return status;
  hal_plugin_stream_t *stream = hal_host->mem_alloc(sizeof *stream, alignof(hal_plugin_stream_t));
  if (!stream)
    return fake_error(HAL_RESOURCE_EXHAUSTED, 0, "fake: no host memory for a stream of device %d; free some memory",
                      (int)device);
  memset(stream, 0, sizeof *stream);
  stream->device = device;
  stream->priority = desc->priority;
  atomic_store_explicit(&stream->refs, 1, memory_order_relaxed);
  atomic_store_explicit(&stream->wake_at, UINT64_MAX, memory_order_relaxed);
  if (FAKE_UNLIKELY(fake_races())) {
    fake_timeline_open(&stream->timeline);
    fake_report_name(stream->timeline.index, "");
  }
  fake_device_t *owner = &fake.devices[device];
  fake_lock(&owner->lock);
  stream->list_next = owner->streams;
  if (owner->streams) owner->streams->list_previous = stream;
  owner->streams = stream;
  fake_unlock(&owner->lock);
  *out_stream = stream;
  return HAL_OK;
}

void fake_stream_unref(hal_plugin_stream_t *stream) {
  if (atomic_fetch_sub_explicit(&stream->refs, 1, memory_order_acq_rel) != 1) return;
  fake_queue_clear(stream, 0);
  fake_clock_drop(stream->timeline.clock);
  fake_clock_drop(stream->branch.clock);
  hal_host->mem_free(stream);
}

/* Waits for everything queued so far. */
static void drain(hal_plugin_stream_t *stream) {
  if (FAKE_LIKELY(fake.settings.async)) {
    fake_stream_wait(stream, fake_stream_tail(stream));
    atomic_store_explicit(&stream->backlog, 0, memory_order_relaxed);
  } else { /* another thread may be running an item of the stream, with the lock held */
    fake_lock(&stream->lock);
    fake_unlock(&stream->lock);
  }
}

hal_status_t hal_plugin_stream_destroy(hal_plugin_stream_t *stream) {
  if (!stream) return HAL_OK;
  if (fake_is_captured(stream)) fake_capture_forget(stream);
  drain(stream);
  if (FAKE_UNLIKELY(fake_races())) fake_timeline_close(&stream->timeline);
  if (atomic_load_explicit(&stream->failed, memory_order_acquire))
    hal_host->log(HAL_LOG_ERROR, "fake: a stream was destroyed with an unreported failure; synchronize it first");
  fake_device_t *owner = &fake.devices[stream->device];
  fake_lock(&owner->lock);
  if (stream->list_previous)
    stream->list_previous->list_next = stream->list_next;
  else
    owner->streams = stream->list_next;
  if (stream->list_next) stream->list_next->list_previous = stream->list_previous;
  fake_unlock(&owner->lock);
  fake_stream_unref(stream); /* events that were recorded here may have references to it */
  return HAL_OK;
}

/* ---- failures --------------------------------------------------------------------------------------------------- */

void fake_stream_fail(hal_plugin_stream_t *stream, hal_status_t status, const char *kernel) {
  fake_lock(&stream->lock);
  if (!stream->error) {
    stream->error = status;
    stream->error_kernel = kernel;
  }
  atomic_store_explicit(&stream->failed, 1, memory_order_release);
  fake_unlock(&stream->lock);
}

/* Reports the stream's failure, if there is one, and clears it. */
static hal_status_t take_failure(hal_plugin_stream_t *stream) {
  if (FAKE_LIKELY(!atomic_load_explicit(&stream->failed, memory_order_acquire))) return HAL_OK;
  fake_lock(&stream->lock);
  const hal_status_t status = stream->error;
  const char *kernel = stream->error_kernel;
  char of[FAKE_NAME_BYTES + 16] = "";
  if (stream->name[0]) snprintf(of, sizeof of, " on stream '%s'", stream->name);
  if (status) {
    stream->told = status;
    stream->told_kernel = kernel;
  }
  stream->error = HAL_OK;
  atomic_store_explicit(&stream->failed, 0, memory_order_relaxed);
  fake_unlock(&stream->lock);
  if (status == HAL_ABORTED && kernel) return fake_error(status, 0, "fake: work of the stream was aborted: %s", kernel);
  if (status == HAL_ABORTED)
    return fake_error(status, 0,
                      "fake: this process was forked while work was queued on the stream; the work is lost here. "
                      "Synchronize before fork, or start processes with 'spawn'");
  if (status == HAL_DATA_LOSS)
    return fake_error(status, 0,
                      "fake: the sanitizer found an error in kernel '%s'%s; its report is on standard error "
                      "(HAL_FAKE_SANITIZE_RAISE)",
                      kernel, of);
  if (status)
    return fake_error(status, 0,
                      "fake: kernel '%s' failed on the device%s (injected by HAL_FAKE_FAULT=%llu); its results "
                      "are undefined",
                      kernel, of, (unsigned long long)fake.settings.fault);
  return HAL_OK; /* another thread took it */
}

hal_status_t hal_plugin_stream_error(hal_plugin_stream_t *stream, hal_stream_error_t *out_error) {
  if (!stream) return HAL_NOT_FOUND; /* its failures are those of the calls */
  fake_lock(&stream->lock);
  const hal_status_t status = stream->told;
  const char *const kernel = stream->told_kernel;
  fake_unlock(&stream->lock);
  if (!status) return HAL_NOT_FOUND;
  hal_stream_error_t error = {.struct_size = out_error->struct_size, .status = status};
  if (status != HAL_ABORTED) {
    snprintf(error.op, sizeof error.op, "kernel_launch");
    snprintf(error.kernel, sizeof error.kernel, "%s", kernel);
  }
  snprintf(error.message, sizeof error.message, "%s",
           status == HAL_DATA_LOSS ? "found by HAL_FAKE_SANITIZE"
           : status != HAL_ABORTED ? "injected by HAL_FAKE_FAULT"
           : kernel                ? kernel
                                   : "the process was forked while work was queued");
  memcpy(out_error, &error, error.struct_size < sizeof error ? error.struct_size : sizeof error);
  return HAL_OK;
}

/* ---- waiting ---------------------------------------------------------------------------------------------------- */

hal_status_t hal_plugin_stream_synchronize(hal_plugin_stream_t *stream) {
  if (!stream) return HAL_OK;
  if (fake_is_captured(stream)) return fake_capture_refuses(stream, "stream_synchronize");
  fake_clock_t *const now = fake_race_now(stream);
  drain(stream);
  fake_race_known(now);
  return take_failure(stream);
}

hal_status_t hal_plugin_stream_synchronize_timeout(hal_plugin_stream_t *stream, int64_t timeout_ns) {
  if (!stream) return HAL_OK;
  if (fake_is_captured(stream)) return fake_capture_refuses(stream, "stream_synchronize_timeout");
  if (!fake.settings.async) return hal_plugin_stream_query(stream);
  fake_clock_t *const now = fake_race_now(stream);
  if (!fake_stream_wait_timeout(stream, fake_stream_tail(stream), timeout_ns)) {
    fake_clock_drop(now);
    return HAL_NOT_READY;
  }
  fake_race_known(now);
  return take_failure(stream);
}

hal_status_t hal_plugin_stream_query(hal_plugin_stream_t *stream) {
  if (!stream) return HAL_OK;
  if (fake_is_captured(stream)) return fake_capture_refuses(stream, "stream_query");
  if (!fake.settings.async && atomic_load_explicit(&stream->lock.word, memory_order_acquire)) return HAL_NOT_READY;
  fake_clock_t *const now = fake_race_now(stream);
  if (fake_stream_done(stream) < fake_stream_tail(stream)) {
    fake_clock_drop(now);
    return HAL_NOT_READY;
  }
  fake_race_known(now);
  return take_failure(stream);
}

hal_status_t hal_plugin_device_synchronize(int32_t device) {
  hal_status_t status = fake_check_device(device);
  if (!status) status = fake_captures_check("device_synchronize");
  if (status) return status;
  hal_plugin_stream_t **streams = NULL;
  size_t count = 0, i = 0;
  fake_device_t *owner = &fake.devices[device];
  fake_lock(&owner->lock);
  for (hal_plugin_stream_t *stream = owner->streams; stream; stream = stream->list_next) count++;
  if (count) streams = hal_host->mem_alloc(count * sizeof *streams, alignof(hal_plugin_stream_t *));
  for (hal_plugin_stream_t *stream = owner->streams; stream && streams; stream = stream->list_next) {
    fake_stream_ref(stream);
    streams[i++] = stream;
  }
  fake_unlock(&owner->lock);
  if (count && !streams)
    return fake_error(HAL_RESOURCE_EXHAUSTED, 0, "fake: no host memory to list the %zu streams of device %d", count,
                      (int)device);
  for (i = 0; i < count; i++) {
    fake_clock_t *const now = fake_race_now(streams[i]);
    drain(streams[i]);
    fake_race_known(now);
  }
  for (i = 0; i < count; i++) {
    if (!status) status = take_failure(streams[i]); /* reports one failure; the others remain with their streams */
    fake_stream_unref(streams[i]);
  }
  hal_host->mem_free(streams);
  return status;
}

/* ---- host functions --------------------------------------------------------------------------------------------- */

/* Runs the function during the call. */
static void call_now(hal_plugin_stream_t *stream, hal_host_fn_t fn, void *user_data, const fake_trace_t *trace) {
  if (stream) fake_lock(&stream->lock);
  fn(user_data);
  if (stream) fake_unlock(&stream->lock);
  if (FAKE_LIKELY(!trace)) return;
  fake_timeline_ran(trace);
  fake_clock_drop(trace->clock);
}

hal_status_t fake_stream_call(hal_plugin_stream_t *stream, hal_host_fn_t fn, void *user_data,
                              const fake_trace_t *trace) {
  if (!fake_queues(stream)) {
    call_now(stream, fn, user_data, trace);
    return HAL_OK;
  }
  fake_item_t *item =
      fake_queue_reserve(stream, (uint32_t)(sizeof *item + (trace ? sizeof *trace : 0)), FAKE_ITEM_HOST_CALL);
  if (!item) {
    if (trace) fake_clock_drop(trace->clock);
    return fake_queue_refused(stream);
  }
  item->u.host.fn = fn;
  item->u.host.user_data = user_data;
  if (FAKE_UNLIKELY(trace != NULL)) {
    item->flags |= FAKE_ITEM_TRACED;
    *fake_item_trace(item) = *trace;
  }
  fake_queue_commit(stream, item);
  return HAL_OK;
}

hal_status_t hal_plugin_stream_host_call(hal_plugin_stream_t *stream, hal_host_fn_t fn, void *user_data) {
  fake_trace_t trace;
  if (!fn) return fake_error(HAL_INVALID_ARGUMENT, 0, "fake: stream_host_call without a function");
  if (FAKE_LIKELY(!fake_races())) return fake_stream_call(stream, fn, user_data, NULL);
  fake_sanitize_submit(stream, &trace);
  return fake_stream_call(stream, fn, user_data, &trace);
}

/* Messages name streams; names of other objects are not used. */
hal_status_t hal_plugin_object_name_set(int32_t device, uint32_t kind, const void *object, const char *name) {
  hal_status_t status = fake_check_device(device);
  if (!status) status = hal_object_check("fake: object_name_set", kind);
  if (status || kind != HAL_OBJECT_STREAM) return status;
  hal_plugin_stream_t *const stream = (hal_plugin_stream_t *)(uintptr_t)object;
  if (!stream) return fake_error(HAL_INVALID_ARGUMENT, 0, "fake: object_name_set of the NULL stream; create a stream");
  fake_lock(&stream->lock);
  snprintf(stream->name, sizeof stream->name, "%s", name);
  if (fake_races()) fake_report_name(stream->timeline.index, name);
  fake_unlock(&stream->lock);
  return HAL_OK;
}

/* There is no underlying library with which a user could queue work, so this returns the stream's own address, by which
 * it is found again (ExternalStream, DLPack). */
hal_status_t hal_plugin_stream_native(hal_plugin_stream_t *stream, void **out_native) {
  *out_native = stream;
  return HAL_OK;
}

/* ---- fork ------------------------------------------------------------------------------------------------------- */

/* Queued work does not run in the child, and another thread may have been in the middle of any function. Every stream
 * restarts as if its work were done, and reports this at the next synchronization. The queue's memory is leaked on
 * purpose. */
void fake_stream_fork_child(void) {
  for (int32_t i = 0; i < fake.device_count; i++) {
    for (hal_plugin_stream_t *stream = fake.devices[i].streams; stream; stream = stream->list_next) {
      const uint64_t tail = atomic_load_explicit(&stream->tail, memory_order_relaxed);
      const int busy = atomic_load_explicit(&stream->done, memory_order_relaxed) < tail;
      fake_lock_reset(&stream->lock);
      atomic_store_explicit(&stream->done, tail, memory_order_relaxed);
      atomic_store_explicit(&stream->wake_at, UINT64_MAX, memory_order_relaxed);
      stream->state = FAKE_STREAM_IDLE;
      stream->listed = stream->sleepers = 0;
      stream->waiters = stream->wait_stream = stream->ready_next = NULL;
      atomic_store_explicit(&stream->capture, NULL, memory_order_relaxed);
      fake_queue_clear(stream, 1);
      stream->error = busy ? HAL_ABORTED : HAL_OK;
      stream->error_kernel = NULL;
      atomic_store_explicit(&stream->failed, (unsigned)busy, memory_order_relaxed);
    }
    fake_lock_reset(&fake.devices[i].lock);
  }
}
