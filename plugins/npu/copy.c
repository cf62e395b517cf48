/* copy.c: memory_copy and memory_fill. */
#include <stdint.h>
#include <string.h>

#include "npu.h"

enum { MAX_PATTERN = 16 };

/* ---- copies ---------------------------------------------------------------------------------------------------------------- */

static hal_status_t check_side(int32_t device) { return device == HAL_HOST ? HAL_OK : npu_check_alive(device); }

static uint32_t direction_of(int32_t dst_device, int32_t src_device) {
  if (dst_device == src_device) return HAL_COPY_DEVICE_TO_DEVICE;
  if (src_device == HAL_HOST) return HAL_COPY_HOST_TO_DEVICE;
  return dst_device == HAL_HOST ? HAL_COPY_DEVICE_TO_HOST : HAL_COPY_PEER;
}

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
  submit.work.direction = direction_of(dst_device, src_device);
  return npu_submit_end(&submit, ze.zeCommandListAppendMemoryCopy(submit.list, dst, src, size, submit.signal,
                                                                  submit.wait_count, submit.waits));
}

/* ---- fills ----------------------------------------------------------------------------------------------------------------- */

static hal_status_t fill_part(hal_plugin_stream_t *stream, int32_t device, char *dst, const char *pattern,
                              size_t pattern_size, size_t size) {
  npu_submit_t submit;
  const hal_status_t status = npu_submit_begin(&submit, stream, device, "memory_fill");
  if (status) return status;
  submit.work.kind = HAL_PROFILE_FILL;
  submit.work.bytes = size;
  return npu_submit_end(&submit, ze.zeCommandListAppendMemoryFill(submit.list, dst, pattern, pattern_size, size,
                                                                  submit.signal, submit.wait_count, submit.waits));
}

/* A pattern whose bytes are all one is a pattern of one byte, which any address and any device takes. */
static size_t shortest(const char *pattern, size_t size) {
  for (size_t i = 1; i < size; i++)
    if (pattern[i] != pattern[0]) return size;
  return 1;
}

/* Level Zero wants the address aligned to the pattern, and has a longest one: otherwise one turn is written byte by byte, and copied to
 * ever longer ranges behind it. */
static hal_status_t fill_by_copies(hal_plugin_stream_t *stream, int32_t device, char *dst, const char *pattern,
                                   size_t pattern_size, size_t size) {
  hal_status_t status = HAL_OK;
  for (size_t i = 0; i < pattern_size && !status; i++) status = fill_part(stream, device, dst + i, &pattern[i], 1, 1);
  for (size_t done = pattern_size; done < size && !status;) {
    const size_t next = done < size - done ? done : size - done;
    status = hal_plugin_memory_copy(stream, dst + done, device, dst, device, next);
    done += next;
  }
  return status;
}

hal_status_t hal_plugin_memory_fill(hal_plugin_stream_t *stream, int32_t device, void *dst, const void *pattern,
                                    size_t pattern_size, size_t size) {
  hal_status_t status = npu_check_alive(device);
  if (!status && stream) status = npu_check_alive(stream->device);
  if (status) return status;
  const int known = pattern_size && pattern_size <= MAX_PATTERN && !(pattern_size & (pattern_size - 1));
  if (!known || size % pattern_size || !pattern)
    return npu_error(
        HAL_INVALID_ARGUMENT, 0,
        "npu: fill of %zu bytes with a pattern of %zu bytes; the pattern has 1, 2, 4, 8 or 16 bytes and divides "
        "the size",
        size, pattern_size);
  if (!size) return HAL_OK;
  if (!dst) return npu_error(HAL_INVALID_ARGUMENT, 0, "npu: fill of %zu bytes at address 0", size);
  pattern_size = shortest(pattern, pattern_size);
  if ((uintptr_t)dst % pattern_size || pattern_size > npu.devices[device].pattern_bytes)
    return fill_by_copies(stream, device, dst, pattern, pattern_size, size);
  return fill_part(stream, device, dst, pattern, pattern_size, size);
}
