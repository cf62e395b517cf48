/* data.c: memory, streams and bytes for the cases. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <time.h>

#include "cts.h"

void *cts_alloc(cts_t *t, size_t size) {
  void *ptr = NULL;
  CTS_OK(t, memory_alloc, t->device, size, 0, &ptr);
  CTS_CHECK(t, ptr, "memory_alloc of %zu bytes returned HAL_OK and no address", size);
  return ptr;
}

void cts_free(cts_t *t, void *ptr) { CTS_OK(t, memory_free, t->device, ptr); }

uint8_t *cts_host(cts_t *t, size_t size) {
  uint8_t *const bytes = calloc(1, size ? size : 1);
  CTS_CHECK(t, bytes, "error of the suite: no host memory for %zu bytes", size);
  return bytes;
}

uint8_t *cts_pinned(cts_t *t, size_t size) {
  void *bytes = NULL;
  if (!size || !t->page->provided[HAL_SLOT_host_alloc]) return cts_host(t, size);
  CTS_OK(t, host_alloc, t->device, size, 0, &bytes);
  return memset(bytes, 0, size);
}

hal_plugin_stream_t *cts_stream(cts_t *t) {
  hal_plugin_stream_t *stream = NULL;
  CTS_OK(t, stream_create, t->device, &(const hal_stream_desc_t)HAL_STREAM_DESC(0), &stream);
  return stream;
}

hal_plugin_event_t *cts_event(cts_t *t, uint32_t flags) {
  hal_plugin_event_t *event = NULL;
  CTS_OK(t, event_create, t->device, flags, &event);
  return event;
}

void cts_put(cts_t *t, hal_plugin_stream_t *stream, void *device_ptr, const void *host, size_t size) {
  CTS_OK(t, memory_copy, stream, device_ptr, t->device, host, HAL_HOST, size);
}

void cts_get(cts_t *t, hal_plugin_stream_t *stream, void *host, const void *device_ptr, size_t size) {
  CTS_OK(t, memory_copy, stream, host, HAL_HOST, device_ptr, t->device, size);
}

void cts_sync(cts_t *t, hal_plugin_stream_t *stream) { CTS_OK(t, stream_synchronize, stream); }

void cts_noise(void *bytes, size_t size, uint64_t seed) {
  uint8_t *const to = bytes;
  uint64_t state = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
  for (size_t i = 0; i < size; i++) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17; /* xorshift64, Marsaglia 2003 */
    to[i] = (uint8_t)(state >> 24);
  }
}

void cts_same(cts_t *t, const void *got, const void *expected, size_t size, const char *what) {
  const uint8_t *const a = got, *const b = expected;
  if (memcmp(a, b, size) == 0) return;
  size_t first = 0, wrong = 0;
  for (size_t i = size; i-- > 0;)
    if (a[i] != b[i]) first = i, wrong++;
  cts_fail(t, "%s: %zu of %zu bytes are wrong, the first at %zu: 0x%02x instead of 0x%02x", what, wrong, size, first,
           a[first], b[first]);
}

int64_t cts_now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

void cts_nap(void) { nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL); }
