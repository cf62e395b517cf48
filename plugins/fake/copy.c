/* copy.c: memory_copy and memory_fill. The memory of all devices is host memory, so both are launches of two internal
 * kernels, which are queued, divided among threads and ordered like any other. */
#include <stdint.h>
#include <string.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "protect.h"
#include "sanitize/sanitize.h"

/* Copies and fills larger than the caches of a core use non-temporal stores: a plain store first reads the line that it
 * overwrites, which makes a fill of 64 MiB 1.4 to 5 times slower. Smaller ones remain in the cache for the next access.
 * */
#define STREAM_BYTES (8u << 20)
#define AT_ONCE_BYTES 1024
#define BLOCK 16   /* bytes of a store; a multiple of the pattern */
#define PIECE 2048 /* bytes of a repeated copy */

/* Stores `count` blocks at `dst`, which is aligned, with non-temporal stores; the source advances by `step` bytes per
 * block, 0 = a pattern. */
#if defined(__SSE2__)
static void store_blocks(char *dst, const char *src, size_t step, size_t count) {
  for (size_t i = 0; i < count; i++)
    _mm_stream_si128((__m128i *)(void *)(dst + i * BLOCK),
                     _mm_loadu_si128((const __m128i *)(const void *)(src + i * step)));
  _mm_sfence(); /* such stores are not ordered with others, such as the one that marks the item as done */
}
#else
static void store_blocks(char *dst, const char *src, size_t step, size_t count) {
  for (size_t i = 0; i < count; i++) memcpy(dst + i * BLOCK, src + i * step, BLOCK);
}
#endif

/* Stores blocks of one pattern in the caches: copies a piece of the first ones by memcpy, which selects the widest
 * stores of the CPU. */
static void repeat_block(char *dst, const char *block, size_t count) {
  char piece[PIECE];
  const size_t size = count * BLOCK, filled = size < PIECE ? size : PIECE;
  for (size_t i = 0; i < filled; i += BLOCK) memcpy(piece + i, block, BLOCK);
  for (size_t i = 0; i < size; i += PIECE) memcpy(dst + i, piece, size - i < PIECE ? size - i : PIECE);
}

/* Returns whether all bytes of a block are equal, such as zeros. */
static int is_one_byte(const char *block) {
  for (size_t i = 1; i < BLOCK; i++)
    if (block[i] != block[0]) return 0;
  return 1;
}

/* Returns the number of bytes from `dst` to the first aligned block, of `size`. */
static size_t head_of(const char *dst, size_t size) {
  const size_t head = (size_t)(-(uintptr_t)dst & (BLOCK - 1));
  return head < size ? head : size;
}

static void copy_range(const hal_host_range_t *range, void *const *args) {
  char *const dst = *(char *const *)args[0] + range->begin;
  const char *const src = *(const char *const *)args[1] + range->begin;
  const size_t size = range->end - range->begin, total = *(const size_t *)args[2];
  if (FAKE_UNLIKELY(fake.settings.sanitize) && !fake_check_copy(dst, src, size)) return;
  if (total < STREAM_BYTES) {
    memcpy(dst, src, size);
    return;
  }
  const size_t head = head_of(dst, size), blocks = (size - head) / BLOCK, end = head + blocks * BLOCK;
  memcpy(dst, src, head);
  store_blocks(dst + head, src + head, BLOCK, blocks);
  memcpy(dst + end, src + end, size - end);
}

/* The pattern fills a block; `begin` bytes of the destination precede the range. */
static void fill_range(const hal_host_range_t *range, void *const *args) {
  char *const dst = *(char *const *)args[0] + range->begin;
  const unsigned char *const pattern = args[1];
  const size_t size = range->end - range->begin, total = *(const size_t *)args[2];
  if (FAKE_UNLIKELY(fake.settings.sanitize) && !fake_check_write(dst, size)) return;
  const size_t head = head_of(dst, size), blocks = (size - head) / BLOCK;
  char turned[BLOCK];
  for (size_t i = 0; i < BLOCK; i++) turned[i] = (char)pattern[(range->begin + head + i) % BLOCK];
  for (size_t i = 0; i < head; i++) dst[i] = (char)pattern[(range->begin + i) % BLOCK];
  if (total >= STREAM_BYTES)
    store_blocks(dst + head, turned, 0, blocks);
  else if (is_one_byte(turned))
    memset(dst + head, turned[0], blocks * BLOCK);
  else
    repeat_block(dst + head, turned, blocks);
  for (size_t i = head + blocks * BLOCK; i < size; i++) dst[i] = turned[(i - head) % BLOCK];
}

static const hal_host_kernel_t copy_kernel = {"memory_copy", copy_range, 3, HAL_HOST_ITEMS, FAKE_COPY_GRAIN, 0};
static const hal_host_kernel_t fill_kernel = {"memory_fill", fill_range, 3, HAL_HOST_ITEMS, FAKE_COPY_GRAIN, 0};

/* Copies immediately if the size is so small that queueing takes longer, and nothing is queued on the stream; returns
 * whether it did. Not used if items are delayed, counted or recorded. The lock prevents other threads from queueing
 * meanwhile. */
static int copy_at_once(hal_plugin_stream_t *stream, void *dst, const void *src, size_t size) {
  const fake_settings_t *settings = &fake.settings;
  if (size > AT_ONCE_BYTES || !stream || !settings->async || fake_is_captured(stream)) return 0;
  if (FAKE_UNLIKELY(settings->delay_us || settings->fault || settings->protect)) return 0;
  if (fake_stream_done(stream) != fake_stream_tail(stream)) return 0;
  fake_lock(&stream->lock);
  const int first = fake_stream_done(stream) == fake_stream_tail(stream);
  if (first) memcpy(dst, src, size);
  fake_unlock(&stream->lock);
  return first;
}

hal_status_t fake_copy_check(void *dst, int32_t dst_device, const void *src, int32_t src_device, size_t size) {
  if (!dst || !src || dst_device < HAL_HOST || src_device < HAL_HOST || dst_device >= fake.device_count ||
      src_device >= fake.device_count)
    return fake_error(HAL_INVALID_ARGUMENT, 0,
                      "fake: copy of %zu bytes from %p on device %d to %p on device %d; the devices are 0 to %d, and "
                      "-1 is the host",
                      size, src, (int)src_device, dst, (int)dst_device, (int)fake.device_count - 1);
  return HAL_OK;
}

hal_status_t hal_plugin_memory_copy(hal_plugin_stream_t *stream, void *dst, int32_t dst_device, const void *src,
                                    int32_t src_device, size_t size) {
  if (!size || dst == src) return HAL_OK;
  const hal_status_t checked = fake_copy_check(dst, dst_device, src, src_device, size);
  if (checked) return checked;
  void *to = dst, *from = (void *)(uintptr_t)src;
  fake_noted_t room;
  const fake_note_t *note = NULL;
  if (fake_takes_notes(stream)) note = fake_note_copy(&room, stream, dst_device, src_device, size);
  if (FAKE_UNLIKELY(fake.settings.protect)) {
    hal_status_t status = fake_protect_range("memory_copy", dst_device, dst, size, &to);
    if (!status) status = fake_protect_range("memory_copy", src_device, src, size, &from);
    if (status) return status;
  }
  if (!note && copy_at_once(stream, to, from, size)) return HAL_OK;
  const hal_arg_t args[] = {
      {&to, sizeof to, HAL_ARG_POINTER}, {&from, sizeof from, HAL_ARG_POINTER}, {&size, sizeof size, HAL_ARG_VALUE}};
  return fake_submit(stream, &copy_kernel, size, args, 3, note);
}

hal_status_t hal_plugin_memory_fill(hal_plugin_stream_t *stream, int32_t device, void *dst, const void *pattern,
                                    size_t pattern_size, size_t size) {
  const hal_status_t status = fake_check_device(device);
  if (status) return status;
  const int known = pattern_size && pattern_size <= 16 && !(pattern_size & (pattern_size - 1));
  if (!known || size % pattern_size || !pattern)
    return fake_error(HAL_INVALID_ARGUMENT, 0,
                      "fake: fill of %zu bytes with a pattern of %zu bytes; the pattern has 1, 2, 4, "
                      "8 or 16 bytes and divides the size",
                      size, pattern_size);
  if (!size) return HAL_OK;
  if (!dst) return fake_error(HAL_INVALID_ARGUMENT, 0, "fake: fill of %zu bytes at address 0", size);
  if (FAKE_UNLIKELY(fake.settings.protect)) {
    const hal_status_t found = fake_protect_range("memory_fill", device, dst, size, &dst);
    if (found) return found;
  }
  fake_noted_t room;
  const fake_note_t *note = NULL;
  if (fake_takes_notes(stream)) note = fake_note_fill(&room, stream, device, size);
  char block[BLOCK];
  for (size_t i = 0; i < BLOCK; i += pattern_size) memcpy(block + i, pattern, pattern_size);
  const hal_arg_t args[] = {
      {&dst, sizeof dst, HAL_ARG_POINTER}, {block, sizeof block, HAL_ARG_VALUE}, {&size, sizeof size, HAL_ARG_VALUE}};
  return fake_submit(stream, &fill_kernel, size, args, 3, note);
}
