/* host_call.c: host functions. They use cuStreamAddCallback, because cuLaunchHostFunc skips the functions after failed
 * work, and a caller that waits for one would wait forever. In a graph only cuLaunchHostFunc is possible. */
#include "cuda_plugin.h"

typedef struct host_call_s {
  hal_host_fn_t fn;
  void *user_data;
} host_call_t;

static void call(CUstream stream, CUresult status, void *data) {
  const host_call_t own = *(const host_call_t *)data;
  (void)stream, (void)status;
  hal_host->mem_free(data);
  own.fn(own.user_data);
}

static hal_status_t capture(hal_plugin_stream_t *stream, hal_host_fn_t fn, void *user_data) {
  cuda_submit_t submit;
  const hal_status_t status = cuda_submit_begin(&submit, stream, stream->device, "stream_host_call");
  return status ? status : cuda_submit_end(&submit, drv.cuLaunchHostFunc(submit.handle, fn, user_data));
}

hal_status_t hal_plugin_stream_host_call(hal_plugin_stream_t *stream, hal_host_fn_t fn, void *user_data) {
  cuda_submit_t submit;
  if (!fn) return cuda_error(HAL_INVALID_ARGUMENT, 0, "cuda: stream_host_call without a function");
  if (!stream) {
    fn(user_data);
    return HAL_OK;
  }
  hal_status_t status = cuda_check_alive(stream->device);
  if (status) return status;
  if (cuda_stream_is_captured(stream)) return capture(stream, fn, user_data);
  host_call_t *const own = hal_host->mem_alloc(sizeof *own, alignof(host_call_t));
  if (!own) return cuda_error(HAL_RESOURCE_EXHAUSTED, 0, "cuda: no host memory for a host function; free some memory");
  *own = (host_call_t){fn, user_data};
  status = cuda_submit_begin(&submit, stream, stream->device, "stream_host_call");
  const CUresult code = status ? CUDA_SUCCESS : drv.cuStreamAddCallback(submit.handle, call, own, 0);
  if (status || code) hal_host->mem_free(own);
  return status ? status : cuda_submit_end(&submit, code);
}
