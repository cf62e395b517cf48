/* copy.c: copies and fills. */
#include <string.h>

#include "device/profile_internal.h"
#include "memory/copy.h"
#include "memory/internal.h"

/* Bytes per step of a copy through the host. They fit in a second-level cache, so that the second half of a step reads
 * from there what the first half wrote. */
#define STAGE_BYTES HAL_MEM_MIB

hal_status_t hal_copy_sides(const char *call, int32_t dst_device, int32_t src_device, hal_copy_sides_t *out_sides) {
  *out_sides = (hal_copy_sides_t){.to = NULL};
  if (dst_device != HAL_HOST) HAL_RETURN_IF_ERROR(hal_device_get(dst_device, &out_sides->to));
  if (src_device != HAL_HOST) HAL_RETURN_IF_ERROR(hal_device_get(src_device, &out_sides->from));
  out_sides->own = out_sides->to ? out_sides->to : out_sides->from;
  if (out_sides->own) return HAL_OK;
  return hal_error_set(HAL_INVALID_ARGUMENT, "%s: both sides are host memory; at least one must be a device", call);
}

/* Copies between devices through host memory, in pieces, after all work queued so far on `stream` and on the source's
 * current stream. The copy is done on return. */
static hal_status_t copy_staged(hal_stream_t *stream, void *dst, hal_device_t *to, const void *src, hal_device_t *from,
                                size_t size) {
  const size_t step = size < STAGE_BYTES ? size : STAGE_BYTES;
  hal_status_t status = hal_stream_synchronize(stream);
  if (!status) status = hal_stream_synchronize(hal_stream_or_current(from, NULL));
  if (!status) status = hal_stream_synchronize(hal_stream_or_current(to, NULL));
  if (status) return status;
  hal_plugin_t *plugin = NULL;
  char *stage = hal_malloc(step);
  if (!stage) {
    return hal_error_set(HAL_RESOURCE_EXHAUSTED,
                         "hal_memory_copy: the host has no memory for the %zu bytes to stage a copy from device %s "
                         "to device %s",
                         step, from->label, to->label);
  }
  for (size_t done = 0; done < size && !status; done += step) {
    const size_t count = size - done < step ? size - done : step;
    plugin = from->plugin;
    status = HAL_PROFILE_CALL(
        hal_call_memory_copy(plugin, NULL, stage, HAL_HOST, (const char *)src + done, from->ordinal, count));
    if (status) break;
    plugin = to->plugin;
    status =
        HAL_PROFILE_CALL(hal_call_memory_copy(plugin, NULL, (char *)dst + done, to->ordinal, stage, HAL_HOST, count));
  }
  hal_free(stage);
  return status ? hal_error_plugin(plugin, HAL_SLOT_memory_copy, status) : HAL_OK;
}

static int overlap(const void *a, const void *b, size_t size) {
  const uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;
  return x < y ? y - x < size : x - y < size;
}

hal_status_t hal_copy_check_stream(const char *call, const hal_stream_t *stream, int32_t dst_device,
                                   int32_t src_device) {
  if (stream->device->index == dst_device || stream->device->index == src_device) return HAL_OK;
  return hal_error_set(
      HAL_INVALID_ARGUMENT,
      "%s: the stream of device %s cannot be used for a copy from device %s to device %s; use a stream of "
      "one of them",
      call, stream->device->label, hal_device_label(src_device), hal_device_label(dst_device));
}

hal_status_t hal_copy_check(const char *call, const hal_stream_t *stream, const hal_copy_t *copy) {
  HAL_RETURN_IF_ERROR(hal_copy_check_stream(call, stream, copy->dst_device, copy->src_device));
  if (!copy->size) return HAL_OK;
  if (!copy->dst || !copy->src) {
    return hal_error_set(HAL_INVALID_ARGUMENT, "%s: %zu bytes %s address NULL", call, copy->size,
                         copy->dst ? "from" : "to");
  }
  if (copy->dst_device == copy->src_device && overlap(copy->dst, copy->src, copy->size)) {
    return hal_error_set(HAL_INVALID_ARGUMENT, "%s: %zu bytes from %p to %p of device %s overlap", call, copy->size,
                         copy->src, copy->dst, hal_device_label(copy->dst_device));
  }
  return HAL_OK;
}

hal_status_t hal_memory_copy(hal_stream_t *stream, void *dst, int32_t dst_device, const void *src, int32_t src_device,
                             size_t size) {
  static const char call[] = "hal_memory_copy";
  const hal_copy_t copy = {dst, src, size, dst_device, src_device};
  hal_copy_sides_t sides;
  HAL_RETURN_IF_ERROR(hal_copy_sides(call, dst_device, src_device, &sides));
  stream = hal_stream_or_current(sides.own, stream);
  HAL_RETURN_IF_ERROR(hal_copy_check(call, stream, &copy));
  if (!size) return HAL_OK;
  hal_queue_t *const queue = hal_stream_queue(stream);
  if (hal_copy_is_foreign(&sides)) {
    HAL_RETURN_IF_ERROR(queue->calls->require(queue, "a copy between devices of two plugins"));
    return copy_staged(stream, dst, sides.to, src, sides.from, size);
  }
  const hal_status_t status = HAL_PROFILE_CALL(
      queue->calls->copy(queue, dst, hal_copy_ordinal(sides.to), src, hal_copy_ordinal(sides.from), size));
  if (HAL_LIKELY(status != HAL_UNIMPLEMENTED)) return status;
  if (sides.to && sides.from) return copy_staged(stream, dst, sides.to, src, sides.from, size);
  return hal_error_plugin(sides.own->plugin, HAL_SLOT_memory_copy, status);
}

hal_status_t hal_memory_fill(hal_stream_t *stream, int32_t index, void *dst, const void *pattern, size_t pattern_size,
                             size_t size) {
  hal_device_t *device;
  HAL_RETURN_IF_ERROR(hal_device_get(index, &device));
  stream = hal_stream_or_current(device, stream);
  if (stream->device != device) {
    return hal_error_set(HAL_INVALID_ARGUMENT, "hal_memory_fill: the stream of device %s cannot be used for device %s",
                         stream->device->label, device->label);
  }
  if (!pattern || !pattern_size || pattern_size > 16 || (pattern_size & (pattern_size - 1))) {
    return hal_error_set(HAL_INVALID_ARGUMENT,
                         "hal_memory_fill: invalid pattern of %zu bytes; expected 1, 2, 4, 8 or 16",
                         pattern ? pattern_size : (size_t)0);
  }
  if (size % pattern_size) {
    return hal_error_set(HAL_INVALID_ARGUMENT,
                         "hal_memory_fill: invalid size of %zu bytes; expected a multiple of the pattern's %zu", size,
                         pattern_size);
  }
  if (!size) return HAL_OK;
  if (!dst) return hal_error_set(HAL_INVALID_ARGUMENT, "hal_memory_fill: %zu bytes at address NULL", size);
  hal_queue_t *const queue = hal_stream_queue(stream);
  return HAL_PROFILE_CALL(queue->calls->fill(queue, dst, pattern, pattern_size, size));
}
