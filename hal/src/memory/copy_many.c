/* copy_many.c: copies of rectangles and of several ranges: one call of the plugin if it supports them, else a copy of
 * each row or range. */
#include <string.h>

#include "device/profile_internal.h"
#include "memory/copy.h"
#include "memory/internal.h"

/* ---- rectangles ---- */

/* Bytes from the beginning of the first row to the end of the last; 0 = they do not fit in the address space. */
static size_t extent_of(const void *first, size_t pitch, size_t width, size_t height) {
  size_t size = 0, end = 0;
  if (__builtin_mul_overflow(pitch, height - 1, &size) || __builtin_add_overflow(size, width, &size)) return 0;
  return __builtin_add_overflow((size_t)(uintptr_t)first, size, &end) ? 0 : size;
}

/* Returns whether rows of the two rectangles share a byte. Interleaved rows, such as those of two columns of a matrix,
 * share none. Visits the rows of both in the order of their addresses. */
static int rectangles_share(const hal_copy_2d_t *desc, size_t dst_extent, size_t src_extent) {
  const uintptr_t dst = (uintptr_t)desc->dst, src = (uintptr_t)desc->src;
  if (dst < src ? src - dst >= dst_extent : dst - src >= src_extent) return 0;
  for (size_t i = 0, j = 0; i < desc->height && j < desc->height;) {
    const uintptr_t a = dst + i * desc->dst_pitch, b = src + j * desc->src_pitch;
    if (a < b ? b - a < desc->width : a - b < desc->width) return 1;
    if (a < b)
      i++;
    else
      j++;
  }
  return 0;
}

static hal_status_t check_rectangle(const hal_copy_2d_t *desc) {
  const size_t width = desc->width, height = desc->height;
  if (desc->dst_pitch < width || desc->src_pitch < width)
    return hal_error_set(HAL_INVALID_ARGUMENT,
                         "hal_memory_copy_2d: invalid pitch %zu: rows of %zu bytes begin at least %zu bytes apart",
                         desc->dst_pitch < desc->src_pitch ? desc->dst_pitch : desc->src_pitch, width, width);
  if (!desc->dst || !desc->src)
    return hal_error_set(HAL_INVALID_ARGUMENT, "hal_memory_copy_2d: %zu rows of %zu bytes %s address NULL", height,
                         width, desc->dst ? "from" : "to");
  const size_t dst_extent = extent_of(desc->dst, desc->dst_pitch, width, height);
  const size_t src_extent = extent_of(desc->src, desc->src_pitch, width, height);
  if (!dst_extent || !src_extent)
    return hal_error_set(HAL_INVALID_ARGUMENT,
                         "hal_memory_copy_2d: %zu rows with pitches %zu and %zu end beyond the address space", height,
                         desc->dst_pitch, desc->src_pitch);
  if (desc->dst_device == desc->src_device && rectangles_share(desc, dst_extent, src_extent))
    return hal_error_set(HAL_INVALID_ARGUMENT,
                         "hal_memory_copy_2d: %zu rows of %zu bytes from %p to %p of device %s overlap", height, width,
                         desc->src, desc->dst, hal_device_label(desc->dst_device));
  return HAL_OK;
}

/* Copies row by row with hal_memory_copy, which stages copies that no plugin supports. */
static hal_status_t copy_rows(hal_stream_t *stream, const hal_copy_2d_t *desc) {
  hal_status_t status = HAL_OK;
  for (size_t row = 0; row < desc->height && !status; row++)
    status = hal_memory_copy(stream, (char *)desc->dst + row * desc->dst_pitch, desc->dst_device,
                             (const char *)desc->src + row * desc->src_pitch, desc->src_device, desc->width);
  return status;
}

hal_status_t hal_memory_copy_2d(hal_stream_t *stream, const hal_copy_2d_t *desc) {
  static const char call[] = "hal_memory_copy_2d";
  const size_t size = HAL_STRUCT_SIZE(hal_copy_2d_t, src_device);
  hal_copy_sides_t sides;
  if (!desc || desc->struct_size < size)
    return hal_error_set(HAL_INVALID_ARGUMENT, "%s: struct_size is %zu, and the struct has %zu bytes", call,
                         desc ? desc->struct_size : (size_t)0, size);
  HAL_RETURN_IF_ERROR(hal_copy_sides(call, desc->dst_device, desc->src_device, &sides));
  stream = hal_stream_or_current(sides.own, stream);
  HAL_RETURN_IF_ERROR(hal_copy_check_stream(call, stream, desc->dst_device, desc->src_device));
  if (!desc->width || !desc->height) return HAL_OK;
  HAL_RETURN_IF_ERROR(check_rectangle(desc));
  if (hal_copy_is_foreign(&sides)) return copy_rows(stream, desc);
  hal_queue_t *const queue = hal_stream_queue(stream);
  hal_copy_2d_t own = {.struct_size = size};
  memcpy((char *)&own + sizeof own.struct_size, (const char *)desc + sizeof own.struct_size,
         size - sizeof own.struct_size);
  own.dst_device = hal_copy_ordinal(sides.to);
  own.src_device = hal_copy_ordinal(sides.from);
  const hal_status_t status = HAL_PROFILE_CALL(queue->calls->copy_2d(queue, &own));
  return status == HAL_UNIMPLEMENTED ? copy_rows(stream, desc) : status;
}

/* ---- several ranges ---- */

/* Copies that are translated at a time, on the stack. */
enum { AT_ONCE = 64 };

/* Checks a copy and translates it to the plugin's ordinals. Sets `*out_foreign` to 1 if no plugin supports it. */
static hal_status_t translate(const hal_stream_t *stream, const hal_copy_t *copy, size_t number, hal_copy_t *out_own,
                              int *out_foreign) {
  static const char call[] = "hal_memory_copy_batch";
  hal_copy_sides_t sides;
  hal_status_t status = hal_copy_sides(call, copy->dst_device, copy->src_device, &sides);
  if (!status) status = hal_copy_check(call, stream, copy);
  if (status) return hal_error_prefix(status, "copy %zu: ", number);
  *out_own = *copy;
  out_own->dst_device = hal_copy_ordinal(sides.to);
  out_own->src_device = hal_copy_ordinal(sides.from);
  *out_foreign |= hal_copy_is_foreign(&sides);
  return HAL_OK;
}

/* The array of a caller. */
typedef struct list_s {
  const char *first;
  size_t stride;
} list_t;

static const hal_copy_t *copy_at(const list_t *list, size_t number) {
  return (const hal_copy_t *)(const void *)(list->first + number * list->stride);
}

static hal_status_t copy_each(hal_stream_t *stream, const list_t *list, size_t first, size_t count) {
  hal_status_t status = HAL_OK;
  for (size_t i = first; i < first + count && !status; i++) {
    const hal_copy_t *const copy = copy_at(list, i);
    status = hal_memory_copy(stream, copy->dst, copy->dst_device, copy->src, copy->src_device, copy->size);
  }
  return status;
}

static hal_status_t copy_some(hal_stream_t *stream, const list_t *list, size_t first, size_t count) {
  hal_copy_t own[AT_ONCE];
  size_t used = 0;
  int foreign = 0;
  for (size_t i = first; i < first + count; i++) {
    HAL_RETURN_IF_ERROR(translate(stream, copy_at(list, i), i, &own[used], &foreign));
    used += own[used].size != 0; /* plugins need not handle empty copies */
  }
  if (!used) return HAL_OK;
  hal_queue_t *const queue = hal_stream_queue(stream);
  const hal_status_t status =
      foreign ? HAL_UNIMPLEMENTED : HAL_PROFILE_CALL(queue->calls->copy_batch(queue, own, used));
  return status == HAL_UNIMPLEMENTED ? copy_each(stream, list, first, count) : status;
}

hal_status_t hal_memory_copy_batch(hal_stream_t *stream, const hal_copy_t *copies, size_t count, size_t stride) {
  const list_t list = {(const char *)copies, stride};
  hal_copy_sides_t sides;
  size_t size = 0;
  if (!count) return HAL_OK;
  if (!copies || stride < sizeof *copies || __builtin_mul_overflow(count, stride, &size))
    return hal_error_set(HAL_INVALID_ARGUMENT,
                         "hal_memory_copy_batch: %zu copies at %p with a stride of %zu bytes: a copy has at least %zu",
                         count, (const void *)copies, stride, sizeof *copies);
  HAL_RETURN_IF_ERROR(hal_copy_sides("hal_memory_copy_batch", copies->dst_device, copies->src_device, &sides));
  stream = hal_stream_or_current(sides.own, stream);
  hal_status_t status = HAL_OK;
  for (size_t done = 0; done < count && !status; done += AT_ONCE)
    status = copy_some(stream, &list, done, count - done < AT_ONCE ? count - done : AT_ONCE);
  return status;
}
