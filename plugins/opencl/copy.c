/* copy.c: memory_copy and memory_fill. */
#include <stdint.h>
#include <string.h>

#include "opencl.h"

enum { MAX_PATTERN = 16 };

/* ---- copies ---------------------------------------------------------------------------------------------------------------- */

static hal_status_t check_side(int32_t device) { return device == HAL_HOST ? HAL_OK : ocl_check_device(device); }

static int32_t device_of(const hal_plugin_stream_t *stream, int32_t dst_device, int32_t src_device) {
  if (stream) return stream->device;
  return dst_device != HAL_HOST ? dst_device : src_device;
}

hal_status_t hal_plugin_memory_copy(hal_plugin_stream_t *stream, void *dst, int32_t dst_device, const void *src,
                                    int32_t src_device, size_t size) {
  if (!size || dst == src) return HAL_OK;
  hal_status_t status = check_side(dst_device);
  if (!status) status = check_side(src_device);
  if (status) return status;
  if (!dst || !src)
    return ocl_error(HAL_INVALID_ARGUMENT, 0, "opencl: copy of %zu bytes from %p to %p; neither may be NULL", size, src,
                     dst);
  const int32_t device = device_of(stream, dst_device, src_device);
  if (device == HAL_HOST) {
    memcpy(dst, src, size);
    return HAL_OK;
  }
  ocl_submit_t submit;
  status = ocl_submit_begin(&submit, stream, device, "memory_copy");
  if (status) return status;
  return ocl_submit_end(&submit,
                        icd.clEnqueueSVMMemcpy(submit.queue, CL_FALSE, dst, src, size, 0, NULL, &submit.work.event));
}

/* ---- fills ----------------------------------------------------------------------------------------------------------------- */

static hal_status_t fill_part(hal_plugin_stream_t *stream, int32_t device, char *dst, const char *pattern,
                              size_t pattern_size, size_t size) {
  ocl_submit_t submit;
  const hal_status_t status = ocl_submit_begin(&submit, stream, device, "memory_fill");
  if (status) return status;
  return ocl_submit_end(
      &submit, icd.clEnqueueSVMMemFill(submit.queue, dst, pattern, pattern_size, size, 0, NULL, &submit.work.event));
}

/* OpenCL wants the address aligned to the pattern: what lies before the first such address, and behind the last whole pattern from
 * there, is filled byte by byte, and the pattern is turned between. */
static hal_status_t fill_unaligned(hal_plugin_stream_t *stream, int32_t device, char *dst, const char *pattern,
                                   size_t pattern_size, size_t size) {
  const size_t head = (size_t)(-(uintptr_t)dst & (pattern_size - 1));
  const size_t body = size > head ? (size - head) / pattern_size * pattern_size : 0;
  char turned[MAX_PATTERN];
  hal_status_t status = HAL_OK;
  for (size_t i = 0; i < pattern_size; i++) turned[i] = pattern[(head + i) % pattern_size];
  if (body) status = fill_part(stream, device, dst + head, turned, pattern_size, body);
  for (size_t i = 0; i < size && !status; i++)
    if (i < head || i >= head + body)
      status = fill_part(stream, device, dst + i, &pattern[i % pattern_size], 1, 1);
    else
      i = head + body - 1;
  return status;
}

hal_status_t hal_plugin_memory_fill(hal_plugin_stream_t *stream, int32_t device, void *dst, const void *pattern,
                                    size_t pattern_size, size_t size) {
  const hal_status_t status = ocl_check_device(device);
  if (status) return status;
  const int known = pattern_size && pattern_size <= MAX_PATTERN && !(pattern_size & (pattern_size - 1));
  if (!known || size % pattern_size || !pattern)
    return ocl_error(
        HAL_INVALID_ARGUMENT, 0,
        "opencl: fill of %zu bytes with a pattern of %zu bytes; the pattern has 1, 2, 4, 8 or 16 bytes and divides "
        "the size",
        size, pattern_size);
  if (!size) return HAL_OK;
  if (!dst) return ocl_error(HAL_INVALID_ARGUMENT, 0, "opencl: fill of %zu bytes at address 0", size);
  if ((uintptr_t)dst % pattern_size) return fill_unaligned(stream, device, dst, pattern, pattern_size, size);
  return fill_part(stream, device, dst, pattern, pattern_size, size);
}
