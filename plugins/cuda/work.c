/* work.c: commands between their submission and their end. The driver keeps their order. The name of the last one is
 * stored here for failures, because the driver reports that a context has ended, but not the cause. */
#include <stdio.h>
#include <string.h>

#include "cuda_plugin.h"

hal_status_t cuda_submit_begin(cuda_submit_t *submit, hal_plugin_stream_t *stream, int32_t device, const char *op) {
  const int32_t ordinal = stream ? stream->device : device;
  hal_status_t status = cuda_check_alive(ordinal);
  if (CUDA_LIKELY(!status)) status = cuda_enter(ordinal, &submit->scope);
  if (CUDA_UNLIKELY(status)) return status;
  submit->synchronous = !stream;
  submit->stream = stream ? stream : cuda.devices[ordinal].own;
  submit->handle = submit->stream->handle;
  submit->span = NULL;
  submit->work = (cuda_work_t){.op = op};
  submit->work.noted = hal_records_note(&cuda.devices[ordinal].profile, &submit->work.correlation);
  if (CUDA_UNLIKELY(submit->work.noted)) cuda_span_begin(submit);
  return HAL_OK;
}

/* Waits for a command of the NULL stream, whose failure is the result of the call. */
static CUresult wait_for(hal_plugin_stream_t *stream) {
  const CUresult code = drv.cuStreamSynchronize(stream->handle);
  atomic_store_explicit(&stream->op, NULL, memory_order_relaxed);
  cuda_spans_reap(stream);
  return code;
}

static hal_status_t refuse(const cuda_submit_t *submit, CUresult code, const char *what) {
  const cuda_work_t *const work = &submit->work;
  cuda_device_noticed(submit->stream->device, code);
  return cuda_driver_error(code, "cuda: %s%s%s %s", work->op, work->kernel ? " of " : "",
                           work->kernel ? work->kernel : "", what);
}

hal_status_t cuda_submit_end(cuda_submit_t *submit, CUresult code) {
  hal_plugin_stream_t *const stream = submit->stream;
  const char *what = "was refused";
  if (CUDA_UNLIKELY(submit->work.noted)) cuda_span_end(submit, !code);
  if (CUDA_LIKELY(!code)) {
    atomic_store_explicit(&stream->kernel, submit->work.kernel, memory_order_relaxed);
    atomic_store_explicit(&stream->op, submit->work.op, memory_order_release);
    if (submit->synchronous) {
      code = wait_for(stream);
      what = "failed on the device";
    }
  }
  cuda_leave(&submit->scope);
  return CUDA_LIKELY(!code) ? HAL_OK : refuse(submit, code, what);
}

hal_status_t cuda_work_failed(hal_plugin_stream_t *stream, CUresult code) {
  const cuda_device_t *const device = &cuda.devices[stream->device];
  cuda_device_noticed(stream->device, code);
  const char *const op = atomic_exchange(&stream->op, NULL), *const kernel = atomic_exchange(&stream->kernel, NULL);
  if (!op && cuda_error_is_fatal(code)) return cuda_check_alive(stream->device);
  pthread_mutex_lock(&stream->lock);
  cuda_failure_t *const told = &stream->told;
  *told = (cuda_failure_t){.status = cuda_error_status(code), .code = code};
  snprintf(told->op, sizeof told->op, "%s", op ? op : "");
  snprintf(told->kernel, sizeof told->kernel, "%s", kernel ? kernel : "");
  pthread_mutex_unlock(&stream->lock);
  return cuda_driver_error(code, "cuda: %s%s%s, or work before it, failed on device %d (%s); its results are undefined",
                           op ? op : "a wait", kernel ? " of " : "", kernel ? kernel : "", (int)stream->device,
                           device->name);
}
