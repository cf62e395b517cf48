/* copy.c: memory_copy, memory_copy_2d and memory_fill. */
#include <hal/plugin_transfer.h>
#include <stdint.h>
#include <string.h>

#include "capture.h"

enum { MAX_PATTERN = 16 };

/* ---- copies ----------------------------------------------------------------------------------------------------- */

static hal_status_t check_side(int32_t device) { return device == HAL_HOST ? HAL_OK : ocl_check_device(device); }

static uint32_t direction_of(int32_t dst_device, int32_t src_device) {
  if (dst_device == src_device) return HAL_COPY_DEVICE_TO_DEVICE;
  if (src_device == HAL_HOST) return HAL_COPY_HOST_TO_DEVICE;
  return dst_device == HAL_HOST ? HAL_COPY_DEVICE_TO_HOST : HAL_COPY_PEER;
}

/* Copies between two ranges of host memory, in the order of the stream. */
static hal_status_t copy_on_host(hal_plugin_stream_t *stream, void *dst, const void *src, size_t size) {
  if (stream) ocl_work_drain(stream);
  memcpy(dst, src, size);
  return HAL_OK;
}

hal_status_t hal_plugin_memory_copy(hal_plugin_stream_t *stream, void *dst, int32_t dst_device, const void *src,
                                    int32_t src_device, size_t size) {
  if (!size || dst == src) return HAL_OK;
  hal_status_t status = check_side(dst_device);
  if (!status) status = check_side(src_device);
  if (!status && stream) status = ocl_check_device(stream->device);
  if (status) return status;
  if (!dst || !src)
    return ocl_error(HAL_INVALID_ARGUMENT, 0, "opencl: copy of %zu bytes from %p to %p; neither may be NULL", size, src,
                     dst);
  if (ocl_is_captured(stream))
    return dst_device == src_device && dst_device == stream->device ? ocl_capture_copy(stream, dst, src, size)
                                                                    : ocl_capture_refuse(stream, "memory_copy");
  if (dst_device == HAL_HOST && src_device == HAL_HOST) return copy_on_host(stream, dst, src, size);
  ocl_place_t to, from;
  ocl_segment_t near = {.base = NULL};
  status = ocl_place("memory_copy", dst_device, dst, size, &near, &to);
  if (!status) status = ocl_place("memory_copy", src_device, src, size, &near, &from);
  if (status) return status;
  ocl_submit_t submit;
  status = ocl_submit_begin(&submit, stream, dst_device != HAL_HOST ? dst_device : src_device, "memory_copy");
  if (status) return status;
  submit.work.kind = HAL_PROFILE_COPY;
  submit.work.bytes = size;
  submit.work.direction = direction_of(dst_device, src_device);
  return ocl_submit_end(&submit, ocl_enqueue_copy(&submit, &to, &from, size));
}

/* ---- rectangles ------------------------------------------------------------------------------------------------- */

/* Returns the bytes from the first to the end of the last one, whose range hal_copy_2d_check has checked. */
static size_t extent_of(size_t pitch, const hal_copy_2d_t *copy) { return (copy->height - 1) * pitch + copy->width; }

/* Buffers have functions for rectangles; within one buffer only for two of the same pitch. Others are copied by rows.
 * */
hal_status_t hal_plugin_memory_copy_2d(hal_plugin_stream_t *stream, const hal_copy_2d_t *copy) {
  if (!copy->width || !copy->height) return HAL_OK;
  hal_status_t status = hal_copy_2d_check("opencl", copy);
  if (!status) status = check_side(copy->dst_device);
  if (!status) status = check_side(copy->src_device);
  if (!status && stream) status = ocl_check_device(stream->device);
  if (status) return status;
  const int on_host = copy->dst_device == HAL_HOST && copy->src_device == HAL_HOST;
  if (ocl.memory != OCL_MEMORY_BUFFER || ocl_is_captured(stream) || on_host)
    return hal_base_memory_copy_2d(stream, copy);
  ocl_place_t to, from;
  ocl_segment_t near = {.base = NULL};
  status = ocl_place("memory_copy_2d", copy->dst_device, copy->dst, extent_of(copy->dst_pitch, copy), &near, &to);
  if (!status)
    status = ocl_place("memory_copy_2d", copy->src_device, copy->src, extent_of(copy->src_pitch, copy), &near, &from);
  if (status) return status;
  if (to.memory == from.memory && copy->dst_pitch != copy->src_pitch) return hal_base_memory_copy_2d(stream, copy);
  ocl_submit_t submit;
  status = ocl_submit_begin(&submit, stream, copy->dst_device != HAL_HOST ? copy->dst_device : copy->src_device,
                            "memory_copy_2d");
  if (status) return status;
  submit.work.kind = HAL_PROFILE_COPY;
  submit.work.bytes = (uint64_t)copy->width * copy->height;
  submit.work.direction = direction_of(copy->dst_device, copy->src_device);
  return ocl_submit_end(&submit, ocl_enqueue_copy_2d(&submit, &to, &from, copy));
}

/* ---- fills ------------------------------------------------------------------------------------------------------ */

static hal_status_t fill_part(hal_plugin_stream_t *stream, int32_t device, char *dst, const char *pattern,
                              size_t pattern_size, size_t size) {
  ocl_place_t to;
  ocl_submit_t submit;
  ocl_segment_t near = {.base = NULL};
  hal_status_t status = ocl_place("memory_fill", device, dst, size, &near, &to);
  if (!status) status = ocl_submit_begin(&submit, stream, device, "memory_fill");
  if (status) return status;
  submit.work.kind = HAL_PROFILE_FILL;
  submit.work.bytes = size;
  return ocl_submit_end(&submit, ocl_enqueue_fill(&submit, &to, pattern, pattern_size, size));
}

/* Fills the bytes from `begin` to `end` one by one; byte 0 is the first one of the pattern. */
static hal_status_t fill_bytes(hal_plugin_stream_t *stream, int32_t device, char *dst, const char *pattern,
                               size_t pattern_size, size_t begin, size_t end) {
  hal_status_t status = HAL_OK;
  for (size_t i = begin; i < end && !status; i++)
    status = fill_part(stream, device, dst + i, &pattern[i % pattern_size], 1, 1);
  return status;
}

/* OpenCL requires an address that is aligned to the pattern. Between the first and the last aligned address the pattern
 * is rotated. The few bytes before and after are filled separately. */
static hal_status_t fill_unaligned(hal_plugin_stream_t *stream, int32_t device, char *dst, const char *pattern,
                                   size_t pattern_size, size_t size) {
  const size_t gap = (size_t)(-(uintptr_t)dst & (pattern_size - 1)), head = gap < size ? gap : size;
  const size_t end = head + (size - head) / pattern_size * pattern_size;
  char turned[MAX_PATTERN];
  for (size_t i = 0; i < pattern_size; i++) turned[i] = pattern[(head + i) % pattern_size];
  hal_status_t status = fill_bytes(stream, device, dst, pattern, pattern_size, 0, head);
  if (!status && end > head) status = fill_part(stream, device, dst + head, turned, pattern_size, end - head);
  if (!status) status = fill_bytes(stream, device, dst, pattern, pattern_size, end, size);
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
  if (ocl_is_captured(stream))
    return device == stream->device ? ocl_capture_fill(stream, dst, pattern, pattern_size, size)
                                    : ocl_capture_refuse(stream, "memory_fill");
  if ((uintptr_t)dst % pattern_size) return fill_unaligned(stream, device, dst, pattern, pattern_size, size);
  return fill_part(stream, device, dst, pattern, pattern_size, size);
}
