/* copy.c: memory_copy, memory_copy_2d and memory_fill. */
#include <hal/plugin_transfer.h>
#include <stdint.h>
#include <string.h>

#include "npu.h"

/* ---- copies ----------------------------------------------------------------------------------------------------- */

static hal_status_t check_side(int32_t device) { return device == HAL_HOST ? HAL_OK : npu_check_alive(device); }

/* Copies between two ranges of host memory, in the order of the stream. */
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

/* ---- rectangles ------------------------------------------------------------------------------------------------- */

/* The driver's extents and pitches have 32 bits, those of row copies have no such limit. */
static int fits(const hal_copy_2d_t *copy) {
  return copy->width <= UINT32_MAX && copy->height <= UINT32_MAX && copy->dst_pitch <= UINT32_MAX &&
         copy->src_pitch <= UINT32_MAX;
}

hal_status_t hal_plugin_memory_copy_2d(hal_plugin_stream_t *stream, const hal_copy_2d_t *copy) {
  if (!copy->width || !copy->height) return HAL_OK;
  hal_status_t status = hal_copy_2d_check("npu", copy);
  if (!status) status = check_side(copy->dst_device);
  if (!status) status = check_side(copy->src_device);
  if (!status && stream) status = npu_check_alive(stream->device);
  if (status) return status;
  const int32_t device = copy->dst_device != HAL_HOST ? copy->dst_device : copy->src_device;
  if (device == HAL_HOST || !fits(copy)) return hal_base_memory_copy_2d(stream, copy);
  npu_submit_t submit;
  status = npu_submit_begin(&submit, stream, device, "memory_copy_2d");
  if (status) return status;
  submit.work.kind = HAL_PROFILE_COPY;
  submit.work.bytes = (uint64_t)copy->width * copy->height;
  submit.work.direction = hal_copy_direction(copy->dst_device, copy->src_device);
  const ze_copy_region_t region = {.width = (uint32_t)copy->width, .height = (uint32_t)copy->height}; /* depth 0: 2D */
  return npu_submit_end(&submit, ze.zeCommandListAppendMemoryCopyRegion(
                                     submit.list, copy->dst, &region, (uint32_t)copy->dst_pitch, 0, copy->src, &region,
                                     (uint32_t)copy->src_pitch, 0, submit.signal, submit.wait_count, submit.waits));
}

/* ---- fills ------------------------------------------------------------------------------------------------------ */

/* Fills with a pattern and an address that the device supports. */
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

/* Level Zero requires an address that is aligned to the pattern, and limits the length of the pattern. */
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
