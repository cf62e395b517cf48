/* copy_many.c: memory_copy_2d and memory_copy_batch: launches of two internal kernels, as in copy.c. */
#include <hal/plugin_transfer.h>
#include <string.h>

#include "protect.h"
#include "sanitize/sanitize.h"

/* ---- rectangles ---- */

/* The items are the bytes of the rows in sequence: a part may begin and end within a row. */
static void copy_rows_range(const hal_host_range_t *range, void *const *args) {
  char *const dst = *(char *const *)args[0];
  const char *const src = *(const char *const *)args[1];
  const size_t dst_pitch = *(const size_t *)args[2], src_pitch = *(const size_t *)args[3];
  const size_t width = *(const size_t *)args[4];
  for (size_t at = range->begin; at < range->end;) {
    const size_t row = at / width, column = at % width, left = range->end - at;
    const size_t size = left < width - column ? left : width - column;
    char *const to = dst + row * dst_pitch + column;
    const char *const from = src + row * src_pitch + column;
    at += size;
    if (FAKE_UNLIKELY(fake.settings.sanitize) && !fake_check_copy(to, from, size)) continue;
    memcpy(to, from, size);
  }
}

static const hal_host_kernel_t rows_kernel = {"memory_copy_2d", copy_rows_range, 5, HAL_HOST_ITEMS, FAKE_COPY_GRAIN, 0};

/* Returns the bytes from the first to the end of the last one. */
static size_t extent_of(size_t pitch, const hal_copy_2d_t *copy) { return (copy->height - 1) * pitch + copy->width; }

hal_status_t hal_plugin_memory_copy_2d(hal_plugin_stream_t *stream, const hal_copy_2d_t *copy) {
  size_t bytes = 0;
  if (!copy->width || !copy->height) return HAL_OK;
  hal_status_t status = hal_copy_2d_check("fake", copy);
  if (!status && __builtin_mul_overflow(copy->width, copy->height, &bytes))
    status = fake_error(HAL_INVALID_ARGUMENT, 0, "fake: copy of %zu rows of %zu bytes; copy fewer", copy->height,
                        copy->width);
  if (!status) status = fake_copy_check(copy->dst, copy->dst_device, copy->src, copy->src_device, bytes);
  if (status) return status;
  void *to = copy->dst, *from = (void *)(uintptr_t)copy->src;
  fake_noted_t room;
  const fake_note_t *note = NULL;
  if (fake_takes_notes(stream)) note = fake_note_copy(&room, stream, copy->dst_device, copy->src_device, bytes);
  if (FAKE_UNLIKELY(fake.settings.protect)) {
    status = fake_protect_range("memory_copy_2d", copy->dst_device, to, extent_of(copy->dst_pitch, copy), &to);
    if (!status)
      status = fake_protect_range("memory_copy_2d", copy->src_device, from, extent_of(copy->src_pitch, copy), &from);
    if (status) return status;
  }
  const hal_arg_t args[] = {{&to, sizeof to, HAL_ARG_POINTER},
                            {&from, sizeof from, HAL_ARG_POINTER},
                            {&copy->dst_pitch, sizeof copy->dst_pitch, HAL_ARG_VALUE},
                            {&copy->src_pitch, sizeof copy->src_pitch, HAL_ARG_VALUE},
                            {&copy->width, sizeof copy->width, HAL_ARG_VALUE}};
  return fake_submit(stream, &rows_kernel, bytes, args, 5, note);
}

/* ---- several ranges ---- */

/* Ranges per item of the queue, whose values have a maximum size (FAKE_MAX_ARG_BYTES). */
enum { AT_ONCE = 32 };

typedef struct range_s {
  char *dst;
  const char *src;
  size_t begin, end; /* of the concatenated ranges */
} range_t;
_Static_assert(AT_ONCE * sizeof(range_t) <= FAKE_MAX_ARG_BYTES, "the ranges are one value");

static void copy_ranges(const hal_host_range_t *range, void *const *args) {
  const range_t *const ranges = args[0];
  const size_t count = *(const size_t *)args[1];
  for (size_t i = 0; i < count; i++) {
    const size_t begin = ranges[i].begin > range->begin ? ranges[i].begin : range->begin;
    const size_t end = ranges[i].end < range->end ? ranges[i].end : range->end;
    if (begin >= end) continue;
    memcpy(ranges[i].dst + (begin - ranges[i].begin), ranges[i].src + (begin - ranges[i].begin), end - begin);
  }
}

static const hal_host_kernel_t batch_kernel = {"memory_copy_batch", copy_ranges, 2, HAL_HOST_ITEMS, FAKE_COPY_GRAIN, 0};

static hal_status_t add_range(const hal_copy_t *copy, range_t *ranges, size_t *inout_count) {
  const size_t begin = *inout_count ? ranges[*inout_count - 1].end : 0;
  range_t range = {.dst = copy->dst, .src = copy->src, .begin = begin};
  if (!copy->size || copy->dst == copy->src) return HAL_OK;
  hal_status_t status = fake_copy_check(copy->dst, copy->dst_device, copy->src, copy->src_device, copy->size);
  if (!status && __builtin_add_overflow(begin, copy->size, &range.end))
    status = fake_error(HAL_INVALID_ARGUMENT, 0, "fake: copies of more bytes than there are addresses");
  if (!status && FAKE_UNLIKELY(fake.settings.protect)) {
    void *to = NULL, *from = NULL;
    status = fake_protect_range("memory_copy_batch", copy->dst_device, copy->dst, copy->size, &to);
    if (!status) status = fake_protect_range("memory_copy_batch", copy->src_device, copy->src, copy->size, &from);
    range.dst = to, range.src = from;
  }
  if (!status) ranges[(*inout_count)++] = range;
  return status;
}

hal_status_t hal_plugin_memory_copy_batch(hal_plugin_stream_t *stream, const hal_copy_t *copies, size_t count,
                                          size_t stride) {
  if (fake_takes_notes(stream)) /* a record for each, and nodes of a recording */
    return hal_base_memory_copy_batch(stream, copies, count, stride);
  hal_status_t status = HAL_OK;
  for (size_t i = 0; i < count && !status;) {
    range_t ranges[AT_ONCE];
    size_t used = 0;
    for (; i < count && used < AT_ONCE && !status; i++)
      status = add_range((const hal_copy_t *)(const void *)((const char *)copies + i * stride), ranges, &used);
    if (status || !used) continue;
    const hal_arg_t args[] = {{ranges, (uint32_t)(used * sizeof *ranges), HAL_ARG_VALUE},
                              {&used, sizeof used, HAL_ARG_VALUE}};
    status = fake_submit(stream, &batch_kernel, ranges[used - 1].end, args, 2, NULL);
  }
  return status;
}
