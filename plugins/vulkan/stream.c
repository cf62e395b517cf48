/* stream.c: streams, their workers and their failures. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <string.h>

#include "graph.h"

/* ---- queued work ------------------------------------------------------------------------------------------------ */

typedef struct work_s {
  hal_worker_item_t item; /* the first member */
  hal_plugin_stream_t *stream;
  vulkan_label_t label;
  uint32_t noted; /* the number of the profile that records it; 0 = none */
  uint64_t correlation;
  vulkan_run_fn_t run;
  alignas(16) unsigned char arguments[];
} work_t;

void vulkan_stream_fail(hal_plugin_stream_t *stream, vulkan_label_t label, hal_status_t status, VkResult code) {
  pthread_mutex_lock(&stream->lock);
  if (!stream->failure.status) { /* the first is the cause of the others */
    stream->failure = (vulkan_failure_t){.status = status, .code = code};
    snprintf(stream->failure.op, sizeof stream->failure.op, "%s", label.op);
    snprintf(stream->failure.kernel, sizeof stream->failure.kernel, "%s", label.kernel ? label.kernel : "");
  }
  pthread_mutex_unlock(&stream->lock);
}

/* Submits the commands if no work is queued after this item, or if they are many. */
static hal_status_t end_item(hal_plugin_stream_t *stream) {
  const uint64_t number = hal_worker_done(stream->worker) + 1;
  vulkan_lane_t *const lane = stream->lane;
  if (lane->open && lane->open < VULKAN_COMMANDS && hal_worker_queued(stream->worker) > number) return HAL_OK;
  const hal_status_t status = vulkan_lane_flush(lane);
  atomic_store(&stream->flushed, number);
  return status;
}

/* Runs work, and measures it for a profile. */
static hal_status_t run_work(vulkan_lane_t *lane, work_t *work) {
  if (VULKAN_LIKELY(!work->noted)) return work->run(lane, work->arguments);
  vulkan_measure_t *const measure =
      vulkan_measure_begin(lane, work->stream, &work->label, work->noted, work->correlation);
  const hal_status_t status = work->run(lane, work->arguments);
  vulkan_measure_end(lane, measure);
  return status;
}

static void serve(hal_worker_item_t *item) {
  work_t *const work = (work_t *)item;
  hal_plugin_stream_t *const stream = work->stream;
  stream->lane->code = VK_SUCCESS;
  hal_status_t status = run_work(stream->lane, work);
  const hal_status_t ended = end_item(stream);
  if (!status) status = ended;
  if (VULKAN_UNLIKELY(status)) vulkan_stream_fail(stream, work->label, status, stream->lane->code);
  hal_host->mem_free(work);
}

/* Records and submits work on the calling thread if the stream has no other work. Only for CPUs: a submission to their
 * drivers is short, and waking the worker takes longer and needs a core. Returns whether the stream was idle. */
static int serve_at_once(hal_plugin_stream_t *stream, work_t *work) {
  if (stream->device->facts.deviceType != VK_PHYSICAL_DEVICE_TYPE_CPU) return 0;
  if (vulkan_timeline_query(stream->lane->timeline, atomic_load(&stream->lane->submitted))) return 0;
  if (!hal_worker_begin(stream->worker)) return 0;
  serve(&work->item);
  hal_worker_end(stream->worker);
  return 1;
}

/* Runs work of the synchronous stream. */
static hal_status_t run_now(vulkan_device_t *device, work_t *work) {
  vulkan_lane_t *lane;
  hal_status_t status = vulkan_lane_borrow(device, &lane);
  if (status) return status;
  status = run_work(lane, work);
  if (!status)
    status = vulkan_lane_wait(lane);
  else
    vulkan_lane_flush(lane); /* the message of the work is replaced only if that fails, too */
  vulkan_lane_return(lane);
  return status;
}

hal_status_t vulkan_submit(hal_plugin_stream_t *stream, vulkan_device_t *device, vulkan_label_t label,
                           vulkan_run_fn_t run, const void *arguments, size_t size) {
  if (vulkan_is_captured(stream)) return vulkan_capture_add(stream, &label, run, arguments, size);
  return vulkan_enqueue(stream, device, label, run, arguments, size);
}

hal_status_t vulkan_enqueue(hal_plugin_stream_t *stream, vulkan_device_t *device, vulkan_label_t label,
                            vulkan_run_fn_t run, const void *arguments, size_t size) {
  work_t *const work = hal_host->mem_alloc(sizeof *work + size, alignof(work_t));
  if (!work)
    return vulkan_error(HAL_RESOURCE_EXHAUSTED, 0, "vulkan: no host memory to queue %s; free some memory", label.op);
  *work = (work_t){.item.run = serve, .stream = stream, .label = label, .run = run};
  if (label.measured) work->noted = hal_records_note(&device->profile, &work->correlation);
  memcpy(work->arguments, arguments, size);
  if (VULKAN_LIKELY(stream != NULL)) {
    if (!label.is_short || !serve_at_once(stream, work)) hal_worker_push(stream->worker, &work->item);
    return HAL_OK;
  }
  const hal_status_t status = run_now(device, work);
  hal_host->mem_free(work);
  return status;
}

/* ---- waiting ---------------------------------------------------------------------------------------------------- */

static void explain(const vulkan_failure_t *failure, char *text, size_t room) {
  if (failure->status == HAL_ABORTED && !failure->code)
    snprintf(text, room, "the process that recorded the event has ended before its work was done");
  else
    snprintf(text, room, "the driver returned %s (%d)", vulkan_result_name(failure->code), (int)failure->code);
}

/* Reports the stream's failure, if there is one, and clears it; a lost device remains lost. */
static hal_status_t take_failure(hal_plugin_stream_t *stream) {
  pthread_mutex_lock(&stream->lock);
  const vulkan_failure_t failure = stream->failure;
  if (failure.status) stream->reported = failure;
  stream->failure.status = HAL_OK;
  pthread_mutex_unlock(&stream->lock);
  if (VULKAN_LIKELY(!failure.status)) return vulkan_check_alive(stream->device->ordinal);
  char why[128];
  explain(&failure, why, sizeof why);
  return vulkan_error(failure.status, (int64_t)failure.code,
                      "vulkan: %s%s%s failed on device %d (%s): %s; its results are undefined", failure.op,
                      failure.kernel[0] ? " of " : "", failure.kernel, (int)stream->device->ordinal,
                      stream->device->facts.deviceName, why);
}

/* Waits until the commands of all work that is queued now are submitted. The worker may leave commands unsubmitted only
 * while later work is queued. */
static void wait_submitted(hal_plugin_stream_t *stream) {
  const uint64_t wanted = hal_worker_queued(stream->worker);
  for (uint64_t number = wanted; atomic_load(&stream->flushed) < wanted; number = hal_worker_queued(stream->worker))
    hal_worker_wait(stream->worker, number);
}

hal_status_t hal_plugin_stream_synchronize(hal_plugin_stream_t *stream) {
  if (!stream) return HAL_OK;
  hal_status_t status = vulkan_check_device(stream->device->ordinal);
  if (!status) status = vulkan_capture_forbid(stream, "stream_synchronize");
  if (status) return status;
  wait_submitted(stream);
  const VkResult code = vulkan_timeline_wait(stream->lane->timeline, atomic_load(&stream->lane->submitted), INT64_MAX);
  if (code) vulkan_stream_fail(stream, (vulkan_label_t){.op = "stream_synchronize"}, vulkan_status(code), code);
  return take_failure(stream);
}

hal_status_t hal_plugin_stream_query(hal_plugin_stream_t *stream) {
  if (!stream) return HAL_OK;
  hal_status_t status = vulkan_check_device(stream->device->ordinal);
  if (!status) status = vulkan_capture_forbid(stream, "stream_query");
  if (status) return status;
  const uint64_t wanted = hal_worker_queued(stream->worker);
  if (hal_worker_done(stream->worker) < wanted || atomic_load(&stream->flushed) < wanted) return HAL_NOT_READY;
  status = vulkan_timeline_query(stream->lane->timeline, atomic_load(&stream->lane->submitted));
  return status == HAL_NOT_READY ? status : take_failure(stream);
}

hal_status_t hal_plugin_stream_error(hal_plugin_stream_t *stream, hal_stream_error_t *out_error) {
  if (!stream || vulkan_check_device(stream->device->ordinal)) return HAL_NOT_FOUND;
  pthread_mutex_lock(&stream->lock);
  const vulkan_failure_t reported = stream->reported;
  pthread_mutex_unlock(&stream->lock);
  if (!reported.status) return HAL_NOT_FOUND;
  hal_stream_error_t error = {
      .struct_size = out_error->struct_size, .status = reported.status, .native_code = (int64_t)reported.code};
  memcpy(error.op, reported.op, sizeof error.op);
  memcpy(error.kernel, reported.kernel, sizeof error.kernel);
  explain(&reported, error.message, sizeof error.message);
  memcpy(out_error, &error, error.struct_size < sizeof error ? error.struct_size : sizeof error);
  return HAL_OK;
}

/* Records the present work of a device's streams. Returns the number of records, -1 if there was not enough memory. The
 * caller holds the device's lock. */
static int32_t record_all(const vulkan_device_t *device, vulkan_record_t ***out_records) {
  size_t streams = 0;
  int32_t count = 0;
  for (const hal_plugin_stream_t *stream = device->streams; stream; stream = stream->next) streams++;
  if (!streams) return 0;
  vulkan_record_t **const records = hal_host->mem_alloc(streams * sizeof *records, alignof(vulkan_record_t *));
  if (!records) return -1;
  *out_records = records;
  for (hal_plugin_stream_t *stream = device->streams; stream; stream = stream->next) {
    if (vulkan_record_make(stream, &records[count])) return -1 - count;
    count++;
  }
  return count;
}

/* Waits without a lock, because a queued host function may create or destroy streams. */
hal_status_t hal_plugin_device_synchronize(int32_t ordinal) {
  vulkan_record_t **records = NULL;
  hal_status_t status = vulkan_check_device(ordinal);
  if (!status) status = vulkan_capture_forbid(NULL, "device_synchronize");
  if (status) return status;
  vulkan_device_t *const device = &vulkan.devices[ordinal];
  pthread_mutex_lock(&device->lock);
  const int32_t made = record_all(device, &records), count = made < 0 ? -1 - made : made;
  pthread_mutex_unlock(&device->lock);
  for (int32_t i = 0; i < count; i++) {
    vulkan_record_wait(records[i]);
    vulkan_record_drop(records[i]);
  }
  hal_host->mem_free(records);
  if (made < 0)
    return vulkan_error(HAL_RESOURCE_EXHAUSTED, 0, "vulkan: no host memory to wait for a device; free some memory");
  pthread_mutex_lock(&device->lock);
  for (hal_plugin_stream_t *stream = device->streams; stream && !status; stream = stream->next)
    /* one failure is reported; the others belong to their own streams */
    if (stream->failure.status) status = take_failure(stream);
  pthread_mutex_unlock(&device->lock);
  return status ? status : vulkan_check_alive(ordinal);
}

/* ---- creation and destruction ----------------------------------------------------------------------------------- */

static void link_stream(hal_plugin_stream_t *stream) {
  vulkan_device_t *const device = stream->device;
  pthread_mutex_lock(&device->lock);
  stream->next = device->streams;
  if (stream->next) stream->next->previous = stream;
  device->streams = stream;
  pthread_mutex_unlock(&device->lock);
}

static void unlink_stream(hal_plugin_stream_t *stream) {
  vulkan_device_t *const device = stream->device;
  pthread_mutex_lock(&device->lock);
  if (stream->previous)
    stream->previous->next = stream->next;
  else
    device->streams = stream->next;
  if (stream->next) stream->next->previous = stream->previous;
  pthread_mutex_unlock(&device->lock);
}

/* The family computes and copies, so it serves every class. Priorities are ignored: Vulkan sets them for queues when
 * the device is created. */
static hal_status_t queue_of(vulkan_device_t *device, const hal_stream_desc_t *desc, uint32_t *out_index) {
  *out_index = desc->queue;
  if (!(desc->flags & HAL_STREAM_QUEUE)) *out_index = atomic_fetch_add(&device->next_queue, 1) % device->queue_count;
  if (*out_index < device->queue_count) return HAL_OK;
  return vulkan_error(HAL_INVALID_ARGUMENT, 0, "vulkan: invalid queue %u of '%s': it has %u", (unsigned)desc->queue,
                      device->facts.deviceName, (unsigned)device->queue_count);
}

hal_status_t hal_plugin_stream_create(int32_t ordinal, const hal_stream_desc_t *desc,
                                      hal_plugin_stream_t **out_stream) {
  uint32_t queue = 0;
  hal_status_t status = vulkan_check_alive(ordinal);
  if (!status) status = hal_stream_desc_check("vulkan: stream_create", desc, HAL_STREAM_QUEUE);
  if (!status) status = queue_of(&vulkan.devices[ordinal], desc, &queue);
  if (status) return status;
  hal_plugin_stream_t *const stream = hal_host->mem_alloc(sizeof *stream, alignof(hal_plugin_stream_t));
  if (!stream) return vulkan_error(HAL_RESOURCE_EXHAUSTED, 0, "vulkan: no host memory for a stream; free some memory");
  memset(stream, 0, sizeof *stream);
  stream->device = &vulkan.devices[ordinal];
  status = vulkan_lane_create(stream->device, queue, &stream->lane);
  if (!status) {
    status = hal_worker_start(&stream->worker);
    if (status) vulkan_lane_destroy(stream->lane);
  }
  if (status) {
    hal_host->mem_free(stream);
    return status;
  }
  pthread_mutex_init(&stream->lock, NULL);
  link_stream(stream);
  *out_stream = stream;
  return HAL_OK;
}

hal_status_t hal_plugin_stream_destroy(hal_plugin_stream_t *stream) {
  if (!stream) return HAL_OK;
  const hal_status_t status = vulkan_check_device(stream->device->ordinal);
  if (status) return status;
  vulkan_capture_leave(stream);
  unlink_stream(stream);
  hal_worker_stop(stream->worker); /* runs the queued work */
  vulkan_lane_destroy(stream->lane);
  if (stream->failure.status)
    hal_host->log(HAL_LOG_ERROR, "vulkan: a stream was destroyed with an unreported failure; synchronize it first");
  pthread_mutex_destroy(&stream->lock);
  hal_host->mem_free(stream);
  return HAL_OK;
}
