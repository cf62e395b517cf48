/* work.c: commands between their submission and their end. Each command stores its event in the ring of its stream. The
 * ring is used to order the next command after it, to detect failures, to query whether a stream is done, and to record
 * profiles. */
#include <stdio.h>
#include <string.h>

#include "npu.h"

enum { FIRST_ROOM = 64 };

static void keep_failure(hal_plugin_stream_t *stream, const npu_work_t *work, npu_failure_t failure) {
  if (stream->failure.status) return; /* the first is the cause of the others */
  snprintf(failure.op, sizeof failure.op, "%s", work->op);
  snprintf(failure.kernel, sizeof failure.kernel, "%s", work->kernel ? work->kernel : "");
  stream->failure = failure;
}

void npu_stream_fail(hal_plugin_stream_t *stream, hal_status_t status, const char *op, const char *why) {
  pthread_mutex_lock(&stream->lock);
  keep_failure(stream, &(npu_work_t){.op = op}, (npu_failure_t){.status = status, .why = why});
  pthread_mutex_unlock(&stream->lock);
}

/* Releases the events of work that has ended, or was never queued. */
static void release_events(npu_work_t *work) {
  npu_event_release(work->event);
  for (int i = 0; i < 2; i++)
    if (work->waits[i]) npu_event_release(work->waits[i]);
}

void npu_work_reap(hal_plugin_stream_t *stream, uint32_t most) {
  while (stream->count && most--) {
    npu_work_t *work = &stream->ring[stream->first];
    const ze_result_t code = ze.zeEventQueryStatus(work->event->handle);
    if (code == ZE_RESULT_NOT_READY) return;
    if (NPU_UNLIKELY(code)) {
      npu_device_noticed(stream->device, code);
      keep_failure(stream, work, (npu_failure_t){.status = npu_error_status(code), .code = code});
    } else if (NPU_UNLIKELY(work->noted))
      npu_profile_append(stream->device, stream == npu.devices[stream->device].own ? NULL : stream, work);
    release_events(work);
    stream->first = (stream->first + 1) & (stream->room - 1);
    stream->count--;
  }
}

static npu_work_t *last_of(const hal_plugin_stream_t *stream) {
  return &stream->ring[(stream->first + stream->count - 1) & (stream->room - 1)];
}

npu_event_t *npu_work_last(hal_plugin_stream_t *stream) {
  if (!stream->count) return NULL;
  npu_event_t *const event = last_of(stream)->event;
  npu_event_keep(event);
  return event;
}

static int grow(hal_plugin_stream_t *stream) {
  const uint32_t room = stream->room ? 2 * stream->room : FIRST_ROOM;
  npu_work_t *ring = hal_host->mem_alloc(room * sizeof *ring, alignof(npu_work_t));
  if (!ring) return 0;
  for (uint32_t i = 0; i < stream->count; i++) ring[i] = stream->ring[(stream->first + i) & (stream->room - 1)];
  hal_host->mem_free(stream->ring);
  stream->ring = ring;
  stream->first = 0;
  stream->room = room;
  return 1;
}

/* Level Zero specifies no order within a list. On a list that was returned to a user, a barrier is queued before and
 * after each of the plugin's commands. The caller holds the lock. */
static ze_result_t fence_lent(const hal_plugin_stream_t *stream) {
  if (NPU_LIKELY(!atomic_load_explicit(&stream->lent, memory_order_relaxed))) return ZE_RESULT_SUCCESS;
  return ze.zeCommandListAppendBarrier(stream->list, NULL, 0, NULL);
}

/* Reserves an entry in the ring, and an event. The caller holds the lock. */
static hal_status_t make_place(npu_submit_t *submit) {
  hal_plugin_stream_t *const stream = submit->stream;
  npu_work_reap(stream, 2); /* removes entries twice as fast as they are added */
  if (NPU_UNLIKELY(stream->count == stream->room && !grow(stream)))
    return npu_error(HAL_RESOURCE_EXHAUSTED, 0,
                     "npu: no host memory to track %u queued commands; synchronize the stream",
                     (unsigned)stream->count);
  return npu_event_take(stream->device, &submit->work.event);
}

hal_status_t npu_submit_begin(npu_submit_t *submit, hal_plugin_stream_t *stream, int32_t device, const char *op) {
  submit->synchronous = !stream;
  submit->stream = stream ? stream : npu.devices[device].own;
  submit->list = submit->stream->list;
  submit->wait_count = 0;
  submit->work = (npu_work_t){.op = op};
  submit->work.noted = hal_records_note(&npu.devices[submit->stream->device].profile, &submit->work.correlation);
  pthread_mutex_lock(&submit->stream->lock);
  const hal_status_t status = make_place(submit);
  if (NPU_UNLIKELY(status)) {
    pthread_mutex_unlock(&submit->stream->lock);
    return status;
  }
  submit->signal = submit->work.event->handle;
  npu_event_t *const last = npu_work_last(submit->stream);
  if (last) npu_submit_wait(submit, last);
  const ze_result_t code = fence_lent(submit->stream);
  return NPU_LIKELY(!code) ? HAL_OK : npu_submit_end(submit, code);
}

void npu_submit_wait(npu_submit_t *submit, npu_event_t *event) {
  submit->work.waits[submit->wait_count] = event;
  submit->waits[submit->wait_count++] = event->handle;
}

void npu_submit_cancel(npu_submit_t *submit) {
  release_events(&submit->work);
  pthread_mutex_unlock(&submit->stream->lock);
}

/* Waits for a command of the NULL stream, whose failure is the result of the call. */
static hal_status_t wait_for(hal_plugin_stream_t *stream, npu_event_t *event, const char *op, const char *kernel) {
  const ze_result_t code = ze.zeEventHostSynchronize(event->handle, UINT64_MAX);
  npu_event_release(event);
  pthread_mutex_lock(&stream->lock);
  npu_work_reap(stream, UINT32_MAX);
  stream->failure.status = HAL_OK;
  pthread_mutex_unlock(&stream->lock);
  if (NPU_LIKELY(!code)) return HAL_OK;
  npu_device_noticed(stream->device, code);
  return npu_driver_error(code, "npu: %s%s%s failed on the device", op, kernel ? " of " : "", kernel ? kernel : "");
}

hal_status_t npu_submit_end(npu_submit_t *submit, ze_result_t code) {
  hal_plugin_stream_t *const stream = submit->stream;
  const npu_work_t *const work = &submit->work;
  if (NPU_UNLIKELY(code)) {
    npu_submit_cancel(submit);
    npu_device_noticed(stream->device, code);
    return npu_driver_error(code, "npu: %s%s%s was refused", work->op, work->kernel ? " of " : "",
                            work->kernel ? work->kernel : "");
  }
  stream->ring[(stream->first + stream->count++) & (stream->room - 1)] = *work;
  if (submit->synchronous) npu_event_keep(work->event);
  const ze_result_t fenced = fence_lent(stream);
  if (NPU_UNLIKELY(fenced))
    keep_failure(stream, work, (npu_failure_t){.status = npu_error_status(fenced), .code = fenced});
  pthread_mutex_unlock(&stream->lock);
  return submit->synchronous ? wait_for(stream, work->event, work->op, work->kernel) : HAL_OK;
}

hal_status_t npu_work_mark(hal_plugin_stream_t *stream) {
  npu_submit_t submit;
  if (NPU_LIKELY(!atomic_load_explicit(&stream->lent, memory_order_relaxed))) return HAL_OK;
  const hal_status_t status = npu_submit_begin(&submit, stream, stream->device, "stream_native");
  if (status) return status;
  submit.work.noted = 0;
  return npu_submit_end(&submit,
                        ze.zeCommandListAppendBarrier(submit.list, submit.signal, submit.wait_count, submit.waits));
}

void npu_work_drain(hal_plugin_stream_t *stream) {
  pthread_mutex_lock(&stream->lock);
  npu_event_t *const last = npu_work_last(stream);
  pthread_mutex_unlock(&stream->lock);
  if (!last) return;
  ze.zeEventHostSynchronize(last->handle, UINT64_MAX); /* reaping detects failures */
  npu_event_release(last);
  pthread_mutex_lock(&stream->lock);
  npu_work_reap(stream, UINT32_MAX);
  pthread_mutex_unlock(&stream->lock);
}

void npu_work_reap_all(int32_t ordinal) {
  npu_device_t *device = &npu.devices[ordinal];
  pthread_mutex_lock(&device->lock);
  for (hal_plugin_stream_t *stream = device->streams; stream; stream = stream->next) {
    pthread_mutex_lock(&stream->lock);
    npu_work_reap(stream, UINT32_MAX);
    pthread_mutex_unlock(&stream->lock);
  }
  pthread_mutex_unlock(&device->lock);
}
