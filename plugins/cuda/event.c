/* event.c: events of the driver, and those of other processes. */
#include <string.h>

#include <hal/plugin_flags.h>

#include "cuda_plugin.h"

struct hal_plugin_event_s {
  CUevent handle;
  int32_t device;
  uint32_t flags;
  atomic_int recorded;
};

static unsigned driver_flags(uint32_t flags) {
  return (flags & HAL_EVENT_TIMING ? CU_EVENT_DEFAULT : CU_EVENT_DISABLE_TIMING) |
         (flags & HAL_EVENT_BLOCKING ? CU_EVENT_BLOCKING_SYNC : 0) |
         (flags & HAL_EVENT_INTERPROCESS ? CU_EVENT_INTERPROCESS : 0);
}

static hal_status_t check_flags(uint32_t flags) {
  if (flags & ~(uint32_t)(HAL_EVENT_TIMING | HAL_EVENT_BLOCKING | HAL_EVENT_INTERPROCESS))
    return cuda_error(HAL_UNIMPLEMENTED, 0,
                      "cuda: events with flags 0x%x are unsupported (only timing, blocking and interprocess)",
                      (unsigned)flags);
  return HAL_OK;
}

/* Stores the driver's event, or destroys it if there is no host memory. The context is current. */
static hal_status_t keep(CUevent handle, int32_t device, uint32_t flags, hal_plugin_event_t **out_event) {
  hal_plugin_event_t *const event = hal_host->mem_alloc(sizeof *event, alignof(hal_plugin_event_t));
  if (!event) {
    drv.cuEventDestroy(handle);
    return cuda_error(HAL_RESOURCE_EXHAUSTED, 0, "cuda: no host memory for an event; free some memory");
  }
  *event = (hal_plugin_event_t){.handle = handle, .device = device, .flags = flags};
  *out_event = event;
  return HAL_OK;
}

hal_status_t hal_plugin_event_create(int32_t device, uint32_t flags, hal_plugin_event_t **out_event) {
  cuda_scope_t scope;
  CUevent handle = NULL;
  hal_status_t status = cuda_check_device(device);
  if (!status) status = check_flags(flags);
  if (!status) status = cuda_check_alive(device);
  if (!status) status = cuda_enter(device, &scope);
  if (status) return status;
  CUresult code = drv.cuEventCreate(&handle, driver_flags(flags));
  if (!code && !handle) code = CUDA_ERROR_UNKNOWN;
  if (!code) status = keep(handle, device, flags, out_event);
  cuda_leave(&scope);
  cuda_device_noticed(device, code);
  return code ? cuda_driver_error(code, "cuda: cannot create an event of device %d", (int)device) : status;
}

hal_status_t hal_plugin_event_destroy(hal_plugin_event_t *event) {
  cuda_scope_t scope;
  if (!event) return HAL_OK;
  const hal_status_t status = cuda_enter(event->device, &scope);
  if (status) return status;
  drv.cuEventDestroy(event->handle); /* fails only if the context has ended, and the event with it */
  cuda_leave(&scope);
  hal_host->mem_free(event);
  return HAL_OK;
}

hal_status_t hal_plugin_event_record(hal_plugin_event_t *event, hal_plugin_stream_t *stream) {
  cuda_submit_t submit;
  if (stream && stream->device != event->device)
    return cuda_error(HAL_INVALID_ARGUMENT, 0,
                      "cuda: an event of device %d cannot be recorded on a stream of device %d", (int)event->device,
                      (int)stream->device);
  const hal_status_t status = cuda_submit_begin(&submit, stream, event->device, "event_record");
  if (status) return status;
  const CUresult code = drv.cuEventRecord(event->handle, submit.handle);
  if (!code) atomic_store_explicit(&event->recorded, 1, memory_order_release);
  return cuda_submit_end(&submit, code);
}

/* Failed work is done, too; its stream reports the failure. */
hal_status_t hal_plugin_event_query(hal_plugin_event_t *event) {
  cuda_scope_t scope;
  const hal_status_t status = cuda_enter(event->device, &scope);
  if (status) return status;
  const CUresult code = drv.cuEventQuery(event->handle);
  cuda_leave(&scope);
  cuda_device_noticed(event->device, code);
  return code == CUDA_ERROR_NOT_READY ? HAL_NOT_READY : HAL_OK;
}

hal_status_t hal_plugin_event_synchronize(hal_plugin_event_t *event) {
  cuda_scope_t scope;
  const hal_status_t status = cuda_enter(event->device, &scope);
  if (status) return status;
  const CUresult code = drv.cuEventSynchronize(event->handle);
  cuda_leave(&scope);
  cuda_device_noticed(event->device, code);
  return code ? cuda_driver_error(code, "cuda: an event's work did not end") : HAL_OK;
}

hal_status_t hal_plugin_event_elapsed(hal_plugin_event_t *start, hal_plugin_event_t *end, int64_t *out_nanoseconds) {
  cuda_scope_t scope;
  float milliseconds = 0;
  hal_status_t status = cuda_check_device(start->device);
  if (status) return status;
  if (!(start->flags & end->flags & HAL_EVENT_TIMING))
    return cuda_error(HAL_FAILED_PRECONDITION, 0,
                      "cuda: elapsed time of events created without HAL_EVENT_TIMING; create both with timing enabled");
  if (start->device != end->device)
    return cuda_error(HAL_INVALID_ARGUMENT, 0,
                      "cuda: elapsed time between events of device %d and device %d; use events of one device",
                      (int)start->device, (int)end->device);
  if (!atomic_load(&start->recorded) || !atomic_load(&end->recorded))
    return cuda_error(HAL_FAILED_PRECONDITION, 0,
                      "cuda: elapsed time of an event that was never recorded; record both");
  status = cuda_enter(start->device, &scope);
  if (status) return status;
  const CUresult code = drv.cuEventElapsedTime(&milliseconds, start->handle, end->handle);
  cuda_leave(&scope);
  cuda_device_noticed(start->device, code);
  if (code == CUDA_ERROR_NOT_READY) return HAL_NOT_READY;
  if (code) return cuda_driver_error(code, "cuda: two events have no time between them");
  *out_nanoseconds = (int64_t)((double)milliseconds * 1e6);
  return HAL_OK;
}

hal_status_t hal_plugin_stream_wait_event(hal_plugin_stream_t *stream, hal_plugin_event_t *event) {
  cuda_submit_t submit;
  if (!stream) return hal_plugin_event_synchronize(event);
  const hal_status_t status = cuda_submit_begin(&submit, stream, stream->device, "stream_wait_event");
  return status ? status : cuda_submit_end(&submit, drv.cuStreamWaitEvent(submit.handle, event->handle, 0));
}

/* ---- other processes -------------------------------------------------------------------------------------------- */

hal_status_t hal_plugin_event_ipc_export(hal_plugin_event_t *event, uint32_t flags, void *out_handle, size_t room,
                                         size_t *out_size) {
  cuda_scope_t scope;
  CUipcEventHandle handle;
  if (!(event->flags & HAL_EVENT_INTERPROCESS))
    return cuda_error(
        HAL_INVALID_ARGUMENT, 0,
        "cuda: an event that was created without HAL_EVENT_INTERPROCESS cannot be shared with other processes");
  hal_status_t status = hal_flags_check("cuda: event_ipc_export", flags, 0);
  if (!status) status = cuda_enter(event->device, &scope);
  if (status) return status;
  const CUresult code = drv.cuIpcGetEventHandle(&handle, event->handle);
  cuda_leave(&scope);
  cuda_device_noticed(event->device, code);
  if (code)
    return cuda_driver_error(code, "cuda: an event of device %d cannot be shared with other processes",
                             (int)event->device);
  hal_handle_write(&handle, sizeof handle, out_handle, room, out_size);
  return HAL_OK;
}

hal_status_t hal_plugin_event_ipc_open(int32_t device, const void *handle, size_t handle_size, uint32_t flags,
                                       hal_plugin_event_t **out_event) {
  cuda_scope_t scope;
  CUipcEventHandle theirs;
  CUevent made = NULL;
  hal_status_t status = cuda_check_alive(device);
  if (!status) status = hal_flags_check("cuda: event_ipc_open", flags, 0);
  if (!status) status = hal_handle_read("cuda: event_ipc_open", handle, handle_size, &theirs, sizeof theirs);
  if (!status) status = cuda_enter(device, &scope);
  if (status) return status;
  CUresult code = drv.cuIpcOpenEventHandle(&made, theirs);
  if (!code && !made) code = CUDA_ERROR_UNKNOWN;
  if (!code) status = keep(made, device, HAL_EVENT_INTERPROCESS, out_event);
  cuda_leave(&scope);
  cuda_device_noticed(device, code);
  if (!code) return status;
  return cuda_driver_error(
      code,
      "cuda: an event of another process cannot be opened on device %d; check that the process is alive and "
      "is not this process",
      (int)device);
}
