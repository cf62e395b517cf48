/* host_call.c: host functions. The worker of the stream waits for the commands before, and calls the function. */
#include "vulkan_plugin.h"

typedef struct host_call_s {
  hal_host_fn_t fn;
  void *user_data;
} host_call_t;

/* Failed work before the call must not block its caller. */
static hal_status_t run(vulkan_lane_t *lane, void *arguments) {
  const host_call_t *const call = arguments;
  const hal_status_t status = vulkan_lane_wait(lane);
  call->fn(call->user_data);
  return status;
}

hal_status_t hal_plugin_stream_host_call(hal_plugin_stream_t *stream, hal_host_fn_t fn, void *user_data) {
  const host_call_t call = {fn, user_data};
  if (!fn) return vulkan_error(HAL_INVALID_ARGUMENT, 0, "vulkan: stream_host_call without a function");
  const hal_status_t status = stream ? vulkan_check_alive(stream->device->ordinal) : HAL_OK;
  if (status) return status;
  if (!stream) {
    fn(user_data);
    return HAL_OK;
  }
  return vulkan_submit(stream, stream->device, (vulkan_label_t){.op = "stream_host_call"}, run, &call, sizeof call);
}
