/* copy.c: copies and fills. */
#include <string.h>

#include "device/profile_internal.h"
#include "memory/internal.h"

/* Bytes per step of a copy that goes through the host: fits a second-level cache, so the second half of a step reads
 * what the first half wrote from there. */
#define STAGE_BYTES HAL_MEM_MIB

/* One side of a copy. */
typedef struct side_s {
  hal_device_t *device; /* NULL = host */
  int32_t ordinal;      /* the plugin's own, or HAL_HOST */
} side_t;

static hal_status_t side_get(int32_t index, side_t *out_side) {
  *out_side = (side_t){.ordinal = HAL_HOST};
  if (index == HAL_HOST) return HAL_OK;
  HAL_RETURN_IF_ERROR(hal_device_get(index, &out_side->device));
  out_side->ordinal = out_side->device->ordinal;
  return HAL_OK;
}

/* Copies between devices through host memory: after everything queued so far on `stream` and on the source's current
 * stream, piece by piece, finished on return. */
static hal_status_t copy_staged(hal_stream_t *stream, void *dst, side_t to, const void *src, side_t from, size_t size) {
  const size_t step = size < STAGE_BYTES ? size : STAGE_BYTES;
  hal_status_t status = hal_stream_synchronize(stream);
  if (!status) status = hal_stream_synchronize(hal_stream_or_current(from.device, NULL));
  if (!status) status = hal_stream_synchronize(hal_stream_or_current(to.device, NULL));
  if (status) return status;
  hal_plugin_t *plugin = NULL;
  char *stage = hal_malloc(step);
  if (!stage) {
    return hal_error_set(HAL_RESOURCE_EXHAUSTED,
                         "hal_memory_copy: the host has no %zu bytes to stage a copy from device %s "
                         "to device %s",
                         step, from.device->label, to.device->label);
  }
  for (size_t done = 0; done < size && !status; done += step) {
    const size_t count = size - done < step ? size - done : step;
    plugin = from.device->plugin;
    status = HAL_PROFILE_CALL(
        hal_call_memory_copy(plugin, NULL, stage, HAL_HOST, (const char *)src + done, from.ordinal, count));
    if (status) break;
    plugin = to.device->plugin;
    status =
        HAL_PROFILE_CALL(hal_call_memory_copy(plugin, NULL, (char *)dst + done, to.ordinal, stage, HAL_HOST, count));
  }
  hal_free(stage);
  return status ? hal_error_plugin(plugin, HAL_SLOT_memory_copy, status) : HAL_OK;
}

static int overlap(const void *a, const void *b, size_t size) {
  const uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;
  return x < y ? y - x < size : x - y < size;
}

static hal_status_t check_copy(const hal_stream_t *stream, const void *dst, int32_t dst_device, const void *src,
                               int32_t src_device, size_t size) {
  if (stream->device->index != dst_device && stream->device->index != src_device) {
    return hal_error_set(
        HAL_INVALID_ARGUMENT,
        "hal_memory_copy: a stream of device %s was given for a copy from device %s to device %s; take a stream of one "
        "of them",
        stream->device->label, hal_device_label(src_device), hal_device_label(dst_device));
  }
  if (!size) return HAL_OK;
  if (!dst || !src) {
    return hal_error_set(HAL_INVALID_ARGUMENT, "hal_memory_copy: %zu bytes %s address NULL", size, dst ? "from" : "to");
  }
  if (dst_device == src_device && overlap(dst, src, size)) {
    return hal_error_set(HAL_INVALID_ARGUMENT, "hal_memory_copy: %zu bytes from %p to %p of device %s overlap", size,
                         src, dst, hal_device_label(dst_device));
  }
  return HAL_OK;
}

hal_status_t hal_memory_copy(hal_stream_t *stream, void *dst, int32_t dst_device, const void *src, int32_t src_device,
                             size_t size) {
  side_t to, from;
  HAL_RETURN_IF_ERROR(side_get(dst_device, &to));
  HAL_RETURN_IF_ERROR(side_get(src_device, &from));
  hal_device_t *device = to.device ? to.device : from.device;
  if (!device) {
    return hal_error_set(HAL_INVALID_ARGUMENT,
                         "hal_memory_copy: both sides are host memory; at least one must be a device");
  }
  stream = hal_stream_or_current(device, stream);
  HAL_RETURN_IF_ERROR(check_copy(stream, dst, dst_device, src, src_device, size));
  if (!size) return HAL_OK;
  hal_queue_t *const queue = hal_stream_queue(stream);
  if (to.device && from.device && to.device->plugin != from.device->plugin) {
    HAL_RETURN_IF_ERROR(queue->calls->require(queue, "a copy between devices of two plugins"));
    return copy_staged(stream, dst, to, src, from, size);
  }
  const hal_status_t status = HAL_PROFILE_CALL(queue->calls->copy(queue, dst, to.ordinal, src, from.ordinal, size));
  if (HAL_LIKELY(status != HAL_UNIMPLEMENTED)) return status;
  if (to.device && from.device) return copy_staged(stream, dst, to, src, from, size);
  return hal_error_plugin(device->plugin, HAL_SLOT_memory_copy, status);
}

hal_status_t hal_memory_fill(hal_stream_t *stream, int32_t index, void *dst, const void *pattern, size_t pattern_size,
                             size_t size) {
  hal_device_t *device;
  HAL_RETURN_IF_ERROR(hal_device_get(index, &device));
  stream = hal_stream_or_current(device, stream);
  if (stream->device != device) {
    return hal_error_set(HAL_INVALID_ARGUMENT, "hal_memory_fill: a stream of device %s was given for device %s",
                         stream->device->label, device->label);
  }
  if (!pattern || !pattern_size || pattern_size > 16 || (pattern_size & (pattern_size - 1))) {
    return hal_error_set(HAL_INVALID_ARGUMENT, "hal_memory_fill: a pattern of %zu bytes; it must have 1, 2, 4, 8 or 16",
                         pattern ? pattern_size : (size_t)0);
  }
  if (size % pattern_size) {
    return hal_error_set(HAL_INVALID_ARGUMENT, "hal_memory_fill: %zu bytes are no multiple of the pattern's %zu", size,
                         pattern_size);
  }
  if (!size) return HAL_OK;
  if (!dst) return hal_error_set(HAL_INVALID_ARGUMENT, "hal_memory_fill: %zu bytes at address NULL", size);
  hal_queue_t *const queue = hal_stream_queue(stream);
  return HAL_PROFILE_CALL(queue->calls->fill(queue, dst, pattern, pattern_size, size));
}
