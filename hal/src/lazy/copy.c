/* copy.c: copies on a lazy stream. Copies from the host record the bytes, copies to the host flush the stream. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/status_internal.h"
#include "device/failure.h"
#include "hal/host_memory.h"
#include "hal/memory.h"
#include "lazy/lazy.h"

enum { MOST_UPLOAD = 64 << 20 /* bytes that a recording copies */ };

/* Waits for the work that the stream's direct queue has submitted; a failure is recorded for the stream. */
static void wait_for_stream(hal_stream_t *stream) {
  const hal_status_t status = hal_direct_calls.synchronize(&stream->direct.queue);
  if (status) hal_failure_record_plugin(stream, HAL_SLOT_stream_synchronize, status);
}

/* ---- copies from the host ---- */

static void free_uploads(void *data) {
  for (hal_upload_t *upload = data, *next; upload; upload = next) {
    next = upload->next;
    hal_free(upload);
  }
}

void hal_lazy_discard_uploads(hal_lazy_t *lazy) {
  free_uploads(lazy->uploads);
  lazy->uploads = NULL;
}

void hal_lazy_release_uploads(hal_lazy_t *lazy) {
  hal_upload_t *const uploads = lazy->queued;
  hal_stream_t *const stream = lazy->program.stream;
  lazy->queued = NULL;
  if (!uploads || !hal_memory_defer(stream->device->index, stream, free_uploads, uploads)) return;
  wait_for_stream(stream);
  free_uploads(uploads);
}

/* Returns a copy of host memory, which the caller may change or free afterwards; NULL = no memory. */
static hal_upload_t *make_upload(hal_lazy_t *lazy, const void *src, size_t size) {
  hal_upload_t *const upload = hal_malloc(sizeof *upload + size);
  if (!upload) return NULL;
  const int64_t begin = lazy->fuse ? hal_metric_begin() : 0;
  memcpy(upload->bytes, src, size);
  if (lazy->fuse) hal_metric_end(&lazy->fuse->metrics, HAL_LAZY_UPLOAD_NS, begin);
  if (lazy->fuse) hal_metric_add(&lazy->fuse->metrics, HAL_LAZY_UPLOAD_BYTES, size);
  return upload;
}

/* Records a copy of the bytes that host memory holds now. */
static hal_status_t record_upload(hal_lazy_t *lazy, void *dst, int32_t dst_device, const void *src, size_t size) {
  hal_program_t *program;
  hal_upload_t *const upload = make_upload(lazy, src, size);
  if (!upload) return hal_error_set(HAL_RESOURCE_EXHAUSTED, "the host has no memory for the %zu bytes of a copy", size);
  const hal_status_t status = hal_program_enter(&lazy->front.queue, &program);
  if (status) {
    hal_free(upload);
    return status;
  }
  upload->next = lazy->uploads;
  lazy->uploads = upload;
  hal_command_t *const command = hal_program_append(program, HAL_COMMAND_COPY);
  if (!command)
    return hal_program_leave(program, hal_error_set(HAL_RESOURCE_EXHAUSTED, "the host has no memory for a copy"));
  command->u.copy.dst = dst;
  command->u.copy.src = upload->bytes;
  command->u.copy.size = size;
  command->u.copy.dst_device = dst_device;
  command->u.copy.src_device = HAL_HOST;
  return hal_program_leave(program, HAL_OK);
}

/* Copies without recording, because the bytes are too many for a second copy. */
static hal_status_t copy_large(hal_lazy_t *lazy, void *dst, int32_t dst_device, const void *src, size_t size) {
  int32_t device;
  hal_queue_t *const direct = hal_lazy_direct(lazy);
  HAL_RETURN_IF_ERROR(hal_lazy_flush_because(lazy, "a large copy from the host", 1));
  const hal_status_t status = hal_direct_calls.copy(direct, dst, dst_device, src, HAL_HOST, size);
  if (status || hal_host_find(src, &device) == HAL_OK) return status; /* page-locked: read as on an eager stream */
  /* The caller may change or free pageable memory as soon as this returns, as after a recorded copy. */
  return hal_error_plugin(lazy->program.device->plugin, HAL_SLOT_memory_copy, hal_direct_calls.synchronize(direct));
}

/* ---- copies to the host ---- */

/* Flushes the stream before a copy to the host, and waits for it unless the memory is page-locked. */
static hal_status_t before_download(hal_lazy_t *lazy, const void *dst, size_t size) {
  int32_t device;
  char where[280] = "", cause[320];
  const int64_t begin = hal_metric_begin();
  if (HAL_UNLIKELY(lazy->desc.queueing && lazy->desc.origin)) hal_lazy_write_position(&lazy->desc, where, sizeof where);
  snprintf(cause, sizeof cause, "a copy to the host%s", where);
  HAL_RETURN_IF_ERROR(hal_lazy_flush_because(lazy, cause, 1));
  if (!lazy->fuse) return HAL_OK;
  hal_metric_add(&lazy->fuse->metrics, HAL_LAZY_DOWNLOAD_BYTES, size);
  if (hal_host_find(dst, &device) == HAL_OK) return HAL_OK; /* page-locked: the copy itself is asynchronous */
  wait_for_stream(lazy->program.stream);
  hal_metric_end(&lazy->fuse->metrics, HAL_LAZY_DOWNLOAD_NS, begin);
  return HAL_OK;
}

hal_status_t hal_lazy_record_copy(hal_queue_t *queue, void *dst, int32_t dst_device, const void *src,
                                  int32_t src_device, size_t size) {
  hal_lazy_t *const lazy = hal_lazy_of(queue);
  const int to_host = dst_device == HAL_HOST, from_host = src_device == HAL_HOST;
  if (from_host && size <= MOST_UPLOAD) return record_upload(lazy, dst, dst_device, src, size);
  if (!to_host && !from_host) return hal_program_calls.copy(queue, dst, dst_device, src, src_device, size);
  if (!to_host) return copy_large(lazy, dst, dst_device, src, size);
  HAL_RETURN_IF_ERROR(before_download(lazy, dst, size));
  return hal_direct_calls.copy(hal_lazy_direct(lazy), dst, dst_device, src, src_device, size);
}
