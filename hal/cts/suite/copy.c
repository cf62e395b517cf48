/* copy.c: bytes are copied to their destination, and nowhere else. */
#include <stdio.h>

#include "cts.h"

enum { ROOM = 1 << 21 };
static const size_t sizes[] = {1, 2, 3, 15, 64, 255, 256, 257, 4095, 4097, 65537, (1 << 20) + 13};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

void cts_case_copy_round_trip(cts_t *t) {
  uint8_t *const device = cts_alloc(t, ROOM), *const bytes = cts_host(t, ROOM), *const got = cts_host(t, ROOM);
  for (int i = 0; i < SIZES; i++) {
    cts_noise(bytes, sizes[i], (uint64_t)i + 1);
    cts_put(t, NULL, device, bytes, sizes[i]);
    cts_get(t, NULL, got, device, sizes[i]);
    cts_same(t, got, bytes, sizes[i], "bytes copied to the device and back");
  }
  cts_free(t, device);
}

/* Writes noise to the whole of device memory, then other noise to a part of it, and checks all of it; each on the next
 * of the streams. */
static void copy_to_offsets(cts_t *t, hal_plugin_stream_t *const *streams, int count) {
  static const size_t offsets[] = {0, 1, 3, 8, 129, 4096, 70001};
  int turn = 0;
  uint8_t *const device = cts_alloc(t, ROOM), *const all = cts_host(t, ROOM), *const part = cts_host(t, ROOM),
                 *const got = cts_host(t, ROOM);
  CTS_GENERAL(t, "ptr + offset` is valid in every call");
  for (int i = 0; i < SIZES; i++)
    for (size_t j = 0; j < sizeof offsets / sizeof offsets[0]; j++) {
      const size_t whole = sizes[i] + offsets[j] + 64;
      hal_plugin_stream_t *const stream = streams[turn++ % count];
      cts_noise(all, whole, 5);
      cts_put(t, NULL, device, all, whole);
      cts_noise(part, sizes[i], 6);
      cts_put(t, stream, device + offsets[j], part, sizes[i]);
      memcpy(all + offsets[j], part, sizes[i]);
      cts_get(t, stream, got, device, whole);
      cts_sync(t, stream);
      char what[128];
      snprintf(what, sizeof what, "memory after a copy of %zu bytes to offset %zu of it", sizes[i], offsets[j]);
      cts_same(t, got, all, whole, what);
      memset(got, 0, whole);
      cts_get(t, stream, got, device + offsets[j], sizes[i]);
      cts_sync(t, stream);
      snprintf(what, sizeof what, "%zu bytes copied from offset %zu", sizes[i], offsets[j]);
      cts_same(t, got, part, sizes[i], what);
    }
  cts_free(t, device);
}

void cts_case_copy_offsets(cts_t *t) { copy_to_offsets(t, &(hal_plugin_stream_t *){NULL}, 1); }

void cts_case_copy_streams(cts_t *t) {
  hal_plugin_stream_t *const streams[] = {cts_stream(t), cts_stream(t), NULL, cts_stream(t), cts_stream(t)};
  copy_to_offsets(t, streams, 5);
}

static void copy_between(cts_t *t, int32_t from, int32_t to, hal_plugin_stream_t *stream) {
  static const size_t froms[] = {0, 7, 4096}, tos[] = {0, 64, 4099};
  void *source = NULL, *target = NULL;
  uint8_t *const bytes = cts_host(t, ROOM), *const expected = cts_host(t, ROOM), *const got = cts_host(t, ROOM);
  CTS_OK(t, memory_alloc, from, ROOM, 0, &source);
  CTS_OK(t, memory_alloc, to, ROOM, 0, &target);
  cts_noise(bytes, ROOM, 7);
  CTS_OK(t, memory_copy, NULL, source, from, bytes, HAL_HOST, ROOM);
  for (int i = 0; i < SIZES; i++)
    for (int j = 0; j < 3; j++) {
      const size_t whole = tos[j] + sizes[i] + 64;
      memset(expected, 0x11, whole);
      CTS_OK(t, memory_copy, NULL, target, to, expected, HAL_HOST, whole);
      CTS_OK(t, memory_copy, stream, (uint8_t *)target + tos[j], to, (uint8_t *)source + froms[j], from, sizes[i]);
      cts_sync(t, stream);
      memcpy(expected + tos[j], bytes + froms[j], sizes[i]);
      CTS_OK(t, memory_copy, NULL, got, HAL_HOST, target, to, whole);
      char what[160];
      snprintf(what, sizeof what,
               "memory after a copy of %zu bytes from offset %zu (device %d) to offset %zu (device %d)", sizes[i],
               froms[j], from, tos[j], to);
      cts_same(t, got, expected, whole, what);
    }
  CTS_OK(t, memory_copy, NULL, got, HAL_HOST, source, from, ROOM);
  cts_same(t, got, bytes, ROOM, "the source of copies");
}

void cts_case_copy_within(cts_t *t) { copy_between(t, t->device, t->device, NULL); }

void cts_case_copy_within_streams(cts_t *t) {
  for (int i = 0; i < 3; i++) copy_between(t, t->device, t->device, cts_stream(t));
}

void cts_case_copy_between_devices(cts_t *t) {
  hal_plugin_stream_t *stream = NULL;
  copy_between(t, 0, 1, NULL);
  copy_between(t, 1, 0, NULL);
  CTS_OK(t, stream_create, 1, &(const hal_stream_desc_t)HAL_STREAM_DESC(0), &stream);
  copy_between(t, 0, 1, stream);
  copy_between(t, 1, 0, stream);
}

void cts_case_copy_nothing(cts_t *t) {
  int here = 7;
  void *const device = cts_alloc(t, 64);
  CTS_STATUS(t, HAL_OK, memory_copy, NULL, NULL, t->device, NULL, HAL_HOST, 0);
  CTS_STATUS(t, HAL_OK, memory_copy, NULL, NULL, HAL_HOST, NULL, t->device, 0);
  CTS_STATUS(t, HAL_OK, memory_copy, NULL, &here, HAL_HOST, device, t->device, 0);
  CTS_STATUS(t, HAL_OK, memory_copy, NULL, (void *)16, t->device, (const void *)32, t->device, 0);
  CTS_CHECK(t, here == 7, "a copy of 0 bytes wrote something");
}
