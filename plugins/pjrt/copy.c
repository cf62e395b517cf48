/* copy.c: copies and fills. All memory, or its mirror, is in this process, so devices do not matter. */
#include <string.h>

#include "opaque.h"

typedef struct copy_s {
  void *dst;
  const void *src;
  size_t size;
} copy_t;

static hal_status_t run_copy(const void *arguments, char *why) {
  const copy_t *const copy = arguments;
  if (pjrt.opaque) {
    const hal_status_t status = pjrt_opaque_write(copy->dst, copy->size, why);
    return status ? status : pjrt_opaque_read(copy->dst, copy->src, copy->size, why);
  }
  memcpy(copy->dst, copy->src, copy->size);
  return HAL_OK;
}

hal_status_t hal_plugin_memory_copy(hal_plugin_stream_t *stream, void *dst, int32_t dst_device, const void *src,
                                    int32_t src_device, size_t size) {
  (void)dst_device, (void)src_device;
  const copy_t copy = {dst, src, size};
  return size ? pjrt_submit(stream, "memory_copy", run_copy, &copy, sizeof copy) : HAL_OK;
}

typedef struct fill_s {
  unsigned char *dst;
  size_t size, pattern_size;
  unsigned char pattern[16]; /* copied before the call returns */
} fill_t;

/* Writes the pattern once, and then copies that double. */
static hal_status_t run_fill(const void *arguments, char *why) {
  const fill_t *const fill = arguments;
  const hal_status_t status = pjrt.opaque ? pjrt_opaque_write(fill->dst, fill->size, why) : HAL_OK;
  if (status) return status;
  if (fill->pattern_size == 1) {
    memset(fill->dst, fill->pattern[0], fill->size);
    return HAL_OK;
  }
  memcpy(fill->dst, fill->pattern, fill->pattern_size);
  for (size_t done = fill->pattern_size; done < fill->size;) {
    const size_t part = fill->size - done < done ? fill->size - done : done;
    memcpy(fill->dst + done, fill->dst, part);
    done += part;
  }
  return HAL_OK;
}

hal_status_t hal_plugin_memory_fill(hal_plugin_stream_t *stream, int32_t device, void *dst, const void *pattern,
                                    size_t pattern_size, size_t size) {
  (void)device;
  fill_t fill = {.dst = dst, .size = size, .pattern_size = pattern_size};
  if (!pattern_size || pattern_size > sizeof fill.pattern || (pattern_size & (pattern_size - 1)) || size % pattern_size)
    return pjrt_error(HAL_INVALID_ARGUMENT,
                      "pjrt: invalid pattern of %zu bytes: expected 1, 2, 4, 8 or 16 bytes, of which the size %zu is a "
                      "multiple",
                      pattern_size, size);
  memcpy(fill.pattern, pattern, pattern_size);
  return size ? pjrt_submit(stream, "memory_fill", run_fill, &fill, sizeof fill) : HAL_OK;
}
