/* copy.c: memory_copy and memory_fill. */
#include <hal/plugin_transfer.h>
#include <stdint.h>
#include <string.h>

#include "npu.h"

/* ---- copies ---------------------------------------------------------------------------------------------------------------- */

static hal_status_t check_side(int32_t device) { return device == HAL_HOST ? HAL_OK : npu_check_alive(device); }

/* Between two ranges of the host's own memory, in the order of the stream. */
static hal_status_t copy_on_host(hal_plugin_stream_t *stream, void *dst, const void *src, size_t size) {
  if (stream) npu_work_drain(stream);
  memcpy(dst, src, size);
  return HAL_OK;
}

hal_status_t hal_plugin_memory_copy(hal_plugin_stream_t *stream, void *dst, int32_t dst_device, const void *src,
                                    int32_t src_device, size_t size) {
  if (!size || dst == src) return HAL_OK;
  hal_status_t status = check_side(dst_device);
  if (!status) status = check_side(src_device);
  if (!status && stream) status = npu_check_alive(stream->device);
  if (status) return status;
  if (!dst || !src)
    return npu_error(HAL_INVALID_ARGUMENT, 0, "npu: copy of %zu bytes from %p to %p; neither may be NULL", size, src,
                     dst);
  if (dst_device == HAL_HOST && src_device == HAL_HOST) return copy_on_host(stream, dst, src, size);
  npu_submit_t submit;
  status = npu_submit_begin(&submit, stream, dst_device != HAL_HOST ? dst_device : src_device, "memory_copy");
  if (status) return status;
  submit.work.kind = HAL_PROFILE_COPY;
  submit.work.bytes = size;
  submit.work.direction = hal_copy_direction(dst_device, src_device);
  return npu_submit_end(&submit, ze.zeCommandListAppendMemoryCopy(submit.list, dst, src, size, submit.signal,
                                                                  submit.wait_count, submit.waits));
}

/* ---- fills ----------------------------------------------------------------------------------------------------------------- */

/* A pattern that the device takes, at an address that it takes. */
static hal_status_t fill(hal_plugin_stream_t *stream, int32_t device, void *dst, const void *pattern,
                         size_t pattern_size, size_t size) {
  npu_submit_t submit;
  const hal_status_t status = npu_submit_begin(&submit, stream, device, "memory_fill");
  if (status) return status;
  submit.work.kind = HAL_PROFILE_FILL;
  submit.work.bytes = size;
  return npu_submit_end(&submit, ze.zeCommandListAppendMemoryFill(submit.list, dst, pattern, pattern_size, size,
                                                                  submit.signal, submit.wait_count, submit.waits));
}

/* Level Zero wants the address aligned to the pattern, and has a longest one. */
hal_status_t hal_plugin_memory_fill(hal_plugin_stream_t *stream, int32_t device, void *dst, const void *pattern,
                                    size_t pattern_size, size_t size) {
  hal_status_t status = npu_check_alive(device);
  if (!status && stream) status = npu_check_alive(stream->device);
  if (!status) status = hal_fill_check("npu", dst, pattern, pattern_size, size);
  if (status || !size) return status;
  const uint32_t most = npu.devices[device].pattern_bytes;
  pattern_size = hal_fill_shortest(pattern, pattern_size);
  if ((uintptr_t)dst % pattern_size || pattern_size > most)
    return hal_fill_by_copies(stream, device, dst, pattern, pattern_size, size, most, fill);
  return fill(stream, device, dst, pattern, pattern_size, size);
}
