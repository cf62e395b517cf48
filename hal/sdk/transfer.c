/* transfer.c: copies and fills (hal/plugin_transfer.h). */
#include "hal/plugin_transfer.h"

#include <stdio.h>
#include <string.h>

enum { MAX_PATTERN = 16 };

uint32_t hal_copy_direction(int32_t dst_device, int32_t src_device) {
  if (dst_device == src_device) return dst_device == HAL_HOST ? HAL_COPY_UNKNOWN : HAL_COPY_DEVICE_TO_DEVICE;
  if (src_device == HAL_HOST) return HAL_COPY_HOST_TO_DEVICE;
  return dst_device == HAL_HOST ? HAL_COPY_DEVICE_TO_HOST : HAL_COPY_PEER;
}

/* Returns whether rows of `width` bytes end within the address space. */
static int rows_fit(const void *first, size_t pitch, size_t width, size_t height) {
  size_t last_row = 0, size = 0, end = 0;
  return !__builtin_mul_overflow(pitch, height - 1, &last_row) && !__builtin_add_overflow(last_row, width, &size) &&
         !__builtin_add_overflow((size_t)(uintptr_t)first, size, &end);
}

hal_status_t hal_copy_2d_check(const char *plugin, const hal_copy_2d_t *copy) {
  const char *what = NULL;
  char message[320];
  if (copy->dst_pitch < copy->width || copy->src_pitch < copy->width)
    what = "a pitch is less than the width; rows begin at least a width apart";
  else if (!rows_fit(copy->dst, copy->dst_pitch, copy->width, copy->height) ||
           !rows_fit(copy->src, copy->src_pitch, copy->width, copy->height))
    what = "a rectangle ends beyond the address space; copy fewer rows";
  else if (!copy->dst || !copy->src)
    what = "neither address may be NULL";
  if (!what) return HAL_OK;
  snprintf(message, sizeof message, "%s: copy of %zu rows of %zu bytes from %p (pitch %zu) to %p (pitch %zu): %s",
           plugin, copy->height, copy->width, copy->src, copy->src_pitch, copy->dst, copy->dst_pitch, what);
  return hal_host->error_set(HAL_INVALID_ARGUMENT, 0, message);
}

hal_status_t hal_fill_check(const char *plugin, const void *dst, const void *pattern, size_t pattern_size,
                            size_t size) {
  const int known = pattern_size && pattern_size <= MAX_PATTERN && !(pattern_size & (pattern_size - 1));
  char message[256];
  if (!known || size % pattern_size || !pattern)
    snprintf(
        message, sizeof message,
        "%s: fill of %zu bytes with a pattern of %zu bytes; expected a pattern of 1, 2, 4, 8 or 16 bytes that divides "
        "the size",
        plugin, size, pattern_size);
  else if (size && !dst)
    snprintf(message, sizeof message, "%s: fill of %zu bytes at address 0", plugin, size);
  else
    return HAL_OK;
  return hal_host->error_set(HAL_INVALID_ARGUMENT, 0, message);
}

/* A pattern of one byte is valid for any address and any device. */
size_t hal_fill_shortest(const void *pattern, size_t pattern_size) {
  for (size_t i = 1; i < pattern_size; i++)
    if (((const char *)pattern)[i] != ((const char *)pattern)[0]) return pattern_size;
  return 1;
}

hal_status_t hal_fill_by_copies(hal_plugin_stream_t *stream, int32_t device, void *dst, const void *pattern,
                                size_t pattern_size, size_t size, size_t most, hal_fill_fn_t fill) {
  char *const to = dst;
  size_t unit = pattern_size;
  while (unit > 1 && (unit > most || (uintptr_t)dst % unit)) unit /= 2;
  hal_status_t status = HAL_OK;
  for (size_t i = 0; i < pattern_size && !status; i += unit)
    status = fill(stream, device, to + i, (const char *)pattern + i, unit, unit);
  for (size_t done = pattern_size; done < size && !status;) {
    const size_t next = done < size - done ? done : size - done;
    status = hal_plugin_memory_copy(stream, to + done, device, dst, device, next);
    done += next;
  }
  return status;
}
