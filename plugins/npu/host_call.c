/* host_call.c: host functions. A thread of the stream waits for the previous command, calls the function, and signals
 * an event that the stream's next command waits for. Functions are not called on a thread of the driver, which may hold
 * its locks, nor on the caller's. */
#include <hal/plugin_worker.h>

#include "npu.h"

typedef struct host_call_s {
  hal_worker_item_t item;
  npu_event_t *ready, *done; /* ready: event of the previous command, or NULL */
  hal_host_fn_t fn;
  void *user_data;
} host_call_t;

/* Failed work before the call must not block the caller. */
static void run(hal_worker_item_t *item) {
  host_call_t *const call = (host_call_t *)item;
  if (call->ready) {
    ze.zeEventHostSynchronize(call->ready->handle, UINT64_MAX);
    npu_event_release(call->ready);
  }
  call->fn(call->user_data);
  ze.zeEventHostSignal(call->done->handle);
  npu_event_release(call->done);
  hal_host->mem_free(call);
}

/* Creates the thread, the event and the command that waits for it. The caller has locked the stream. */
static hal_status_t prepare(npu_submit_t *submit, host_call_t *call, ze_result_t *out_code) {
  hal_plugin_stream_t *const stream = submit->stream;
  hal_status_t status = stream->host ? HAL_OK : hal_worker_start(&stream->host);
  if (!status) status = npu_event_take(stream->device, &call->done);
  if (status) return status;
  call->ready = npu_work_last(stream);
  npu_event_keep(call->done);
  npu_submit_wait(submit, call->done);
  *out_code = ze.zeCommandListAppendBarrier(submit->list, submit->signal, submit->wait_count, submit->waits);
  if (!*out_code) return HAL_OK;
  if (call->ready) npu_event_release(call->ready);
  npu_event_release(call->done);
  return HAL_OK;
}

hal_status_t hal_plugin_stream_host_call(hal_plugin_stream_t *stream, hal_host_fn_t fn, void *user_data) {
  if (!fn) return npu_error(HAL_INVALID_ARGUMENT, 0, "npu: stream_host_call without a function");
  hal_status_t status = stream ? npu_check_alive(stream->device) : HAL_OK;
  if (status) return status;
  if (!stream) {
    fn(user_data);
    return HAL_OK;
  }
  host_call_t *call = hal_host->mem_alloc(sizeof *call, alignof(host_call_t));
  if (!call) return npu_error(HAL_RESOURCE_EXHAUSTED, 0, "npu: no host memory for a host function; free some memory");
  *call = (host_call_t){.item.run = run, .fn = fn, .user_data = user_data};
  npu_submit_t submit;
  ze_result_t code = ZE_RESULT_SUCCESS;
  status = npu_work_mark(stream); /* the previous command, if the list's user queued it */
  if (!status) status = npu_submit_begin(&submit, stream, stream->device, "stream_host_call");
  if (status) {
    hal_host->mem_free(call);
    return status;
  }
  submit.work.noted = 0;
  status = prepare(&submit, call, &code);
  if (status) {
    npu_submit_cancel(&submit);
    hal_host->mem_free(call);
    return status;
  }
  if (code)
    hal_host->mem_free(call);
  else
    hal_worker_push(stream->host, &call->item);
  return npu_submit_end(&submit, code);
}
