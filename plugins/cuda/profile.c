/* profile.c: records of kernels, copies and fills. A marked command is enclosed by two events. Their times are measured
 * from an event with a known time. Times between events are floats of milliseconds, so the known event is renewed
 * before they lose the precision of microseconds. */
#define _POSIX_C_SOURCE 200809L
#include <string.h>
#include <time.h>

#include "cuda_plugin.h"

enum { FIRST_ROOM = 64 };
#define CLOCK_LIFE_NS (INT64_C(5000000000))

/* An event with a known time, in nanoseconds of the host's monotonic clock. It exists as long as the context, because a
 * span may refer to it. */
typedef struct cuda_clock_s {
  struct cuda_clock_s *before;
  CUevent event;
  int64_t ns;
} cuda_clock_t;

/* A command and its two events. */
typedef struct cuda_span_s {
  CUevent begin, end;
  const cuda_clock_t *clock;
  cuda_work_t work;
} cuda_span_t;

static int64_t host_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int64_t between(CUevent from, CUevent to) {
  float milliseconds = 0;
  return drv.cuEventElapsedTime(&milliseconds, from, to) ? 0 : (int64_t)((double)milliseconds * 1e6);
}

/* ---- the device's clock ----------------------------------------------------------------------------------------- */

/* Records an event on a stream and waits for it. The context is current. */
static CUresult mark(CUstream stream, CUevent *out_event) {
  CUresult code = drv.cuEventCreate(out_event, CU_EVENT_DEFAULT);
  if (code) return code;
  code = drv.cuEventRecord(*out_event, stream);
  if (!code) code = drv.cuEventSynchronize(*out_event);
  if (code) drv.cuEventDestroy(*out_event);
  return code;
}

/* The first known event has the host's time. Each later one is measured from the previous one, so that times follow the
 * device's clock. */
static CUresult renew(cuda_device_t *device) {
  cuda_clock_t *const clock = hal_host->mem_alloc(sizeof *clock, alignof(cuda_clock_t));
  if (!clock) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult code = mark(device->own->handle, &clock->event);
  if (code) {
    hal_host->mem_free(clock);
    return code;
  }
  clock->before = device->clock;
  clock->ns = clock->before ? clock->before->ns + between(clock->before->event, clock->event) : host_now();
  __atomic_store_n(&device->clock, clock, __ATOMIC_RELEASE);
  return CUDA_SUCCESS;
}

/* Returns a known event that is recent enough; NULL = there is none. The caller does not hold the device's lock; the
 * context is current. */
static const cuda_clock_t *clock_of(cuda_device_t *device) {
  const cuda_clock_t *const clock = __atomic_load_n(&device->clock, __ATOMIC_ACQUIRE);
  if (clock && host_now() - clock->ns < CLOCK_LIFE_NS) return clock;
  pthread_mutex_lock(&device->lock);
  if (__atomic_load_n(&device->clock, __ATOMIC_ACQUIRE) == clock) renew(device);
  pthread_mutex_unlock(&device->lock);
  return __atomic_load_n(&device->clock, __ATOMIC_ACQUIRE);
}

/* ---- spans ------------------------------------------------------------------------------------------------------ */

static int grow(hal_plugin_stream_t *stream) {
  const uint32_t room = stream->room ? 2 * stream->room : FIRST_ROOM;
  cuda_span_t *const spans = hal_host->mem_alloc(room * sizeof *spans, alignof(cuda_span_t));
  if (!spans) return 0;
  for (uint32_t i = 0; i < stream->count; i++) spans[i] = stream->spans[(stream->first + i) & (stream->room - 1)];
  hal_host->mem_free(stream->spans);
  stream->spans = spans;
  stream->first = 0;
  stream->room = room;
  return 1;
}

static int make_events(cuda_span_t *span) {
  if (drv.cuEventCreate(&span->begin, CU_EVENT_DEFAULT)) return 0;
  if (!drv.cuEventCreate(&span->end, CU_EVENT_DEFAULT)) return 1;
  drv.cuEventDestroy(span->begin);
  return 0;
}

static void drop(cuda_span_t *span) {
  drv.cuEventDestroy(span->begin);
  drv.cuEventDestroy(span->end);
}

void cuda_span_begin(cuda_submit_t *submit) {
  hal_plugin_stream_t *const stream = submit->stream;
  if (cuda_stream_is_captured(stream)) return; /* its events would belong to the graph */
  const cuda_clock_t *const clock = clock_of(&cuda.devices[stream->device]);
  cuda_span_t span = {.clock = clock};
  if (!clock || !make_events(&span)) return;
  pthread_mutex_lock(&stream->lock);
  if ((stream->count == stream->room && !grow(stream)) || drv.cuEventRecord(span.begin, submit->handle)) {
    pthread_mutex_unlock(&stream->lock);
    drop(&span);
    return;
  }
  submit->span = &stream->spans[(stream->first + stream->count) & (stream->room - 1)];
  *submit->span = span;
}

/* Waits and marks are queued as commands, but profiles have no record of them: their kind is that of a kernel, without
 * a kernel. */
static int is_work(const cuda_work_t *work) { return work->kind != HAL_PROFILE_KERNEL || work->kernel; }

void cuda_span_end(cuda_submit_t *submit, int queued) {
  cuda_span_t *const span = submit->span;
  if (!span) return;
  if (queued && is_work(&submit->work) && !drv.cuEventRecord(span->end, submit->handle)) {
    span->work = submit->work;
    submit->stream->count++;
  } else {
    drop(span);
  }
  pthread_mutex_unlock(&submit->stream->lock);
}

static void append(hal_plugin_stream_t *stream, const cuda_span_t *span) {
  cuda_device_t *const device = &cuda.devices[stream->device];
  const cuda_work_t *const work = &span->work;
  const int64_t start = span->clock->ns + between(span->clock->event, span->begin);
  const hal_profile_record_t record = {.struct_size = sizeof record,
                                       .name = work->kernel ? work->kernel : work->op,
                                       .start_ns = start,
                                       .end_ns = start + between(span->begin, span->end),
                                       .correlation = work->correlation,
                                       .bytes = work->bytes,
                                       .stream = stream == device->own ? NULL : stream,
                                       .kind = work->kind,
                                       .direction = work->direction};
  hal_records_append(&device->profile, work->noted, &record);
}

void cuda_spans_reap(hal_plugin_stream_t *stream) {
  cuda_scope_t scope;
  if (!stream->count || cuda_enter(stream->device, &scope)) return;
  pthread_mutex_lock(&stream->lock);
  while (stream->count) {
    cuda_span_t *const span = &stream->spans[stream->first];
    const CUresult code = drv.cuEventQuery(span->end);
    if (code == CUDA_ERROR_NOT_READY) break;
    if (!code) append(stream, span);
    drop(span);
    stream->first = (stream->first + 1) & (stream->room - 1);
    stream->count--;
  }
  pthread_mutex_unlock(&stream->lock);
  cuda_leave(&scope);
}

void cuda_spans_release(hal_plugin_stream_t *stream) {
  for (; stream->count; stream->count--) {
    drop(&stream->spans[stream->first]);
    stream->first = (stream->first + 1) & (stream->room - 1);
  }
  hal_host->mem_free(stream->spans);
  stream->spans = NULL;
}

void cuda_clock_release(cuda_device_t *device) {
  while (device->clock) {
    cuda_clock_t *const clock = device->clock;
    device->clock = clock->before;
    drv.cuEventDestroy(clock->event);
    hal_host->mem_free(clock);
  }
}

static void reap_all(cuda_device_t *device) {
  pthread_mutex_lock(&device->lock);
  if (device->own) cuda_spans_reap(device->own);
  for (hal_plugin_stream_t *stream = device->streams; stream; stream = stream->next) cuda_spans_reap(stream);
  pthread_mutex_unlock(&device->lock);
}

/* ---- functions of the host -------------------------------------------------------------------------------------- */

hal_status_t hal_plugin_profile_enable(int32_t device, int32_t on) {
  const hal_status_t status = cuda_check_device(device);
  if (status) return status;
  if (on)
    atomic_store(&cuda.keep_names, 1);
  else
    reap_all(&cuda.devices[device]);
  hal_records_enable(&cuda.devices[device].profile, on);
  return HAL_OK;
}

hal_status_t hal_plugin_profile_read(int32_t device, hal_profile_sink_t sink, void *user_data) {
  const hal_status_t status = cuda_check_device(device);
  if (status) return status;
  reap_all(&cuda.devices[device]);
  hal_records_read(&cuda.devices[device].profile, sink, user_data);
  return HAL_OK;
}

/* An event's time is the current time of the device's clock; the host's clock is read before and after it. */
hal_status_t hal_plugin_profile_timestamp(int32_t ordinal, int64_t *out_device_ns, int64_t *out_host_ns) {
  cuda_scope_t scope;
  hal_status_t status = cuda_check_alive(ordinal);
  if (!status) status = cuda_enter(ordinal, &scope);
  if (status) return status;
  cuda_device_t *const device = &cuda.devices[ordinal];
  const cuda_clock_t *const clock = clock_of(device);
  CUresult code = clock ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
  int64_t best = INT64_MAX;
  for (int i = 0; i < 5 && !code; i++) { /* the shortest of several measurements is the most exact */
    CUevent event = NULL;
    const int64_t before = host_now();
    code = mark(device->own->handle, &event);
    const int64_t after = host_now();
    if (code) break;
    if (after - before < best) {
      best = after - before;
      *out_device_ns = clock->ns + between(clock->event, event);
      *out_host_ns = before + best / 2;
    }
    drv.cuEventDestroy(event);
  }
  cuda_leave(&scope);
  cuda_device_noticed(ordinal, code);
  return code ? cuda_driver_error(code, "cuda: cannot read the device's clock") : HAL_OK;
}
