/* memory.c: allocation, fills, and queries of memory. */
#define _GNU_SOURCE
#include <stdio.h>

#include "cts.h"
#include "hal/status.h"

enum { MANY = 48, CYCLES = 64 };
#define MEGA ((size_t)1 << 20)

static size_t alignment_of(const cts_t *t) { return t->info.base_alignment ? t->info.base_alignment : 256; }

void cts_case_memory_alloc(cts_t *t) {
  static const size_t sizes[] = {1, 7, 255, 256, 257, 4096, 4097, 65536, 1000003, 8 << 20};
  void *ptrs[sizeof sizes / sizeof sizes[0]];
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
    ptrs[i] = cts_alloc(t, sizes[i]);
    CTS_CHECK(t, (uintptr_t)ptrs[i] % alignment_of(t) == 0,
              "memory_alloc of %zu bytes returned %p, which is not aligned to %zu bytes", sizes[i], ptrs[i],
              alignment_of(t));
  }
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) cts_free(t, ptrs[i]);
}

void cts_case_memory_distinct(cts_t *t) {
  struct {
    uint8_t *ptr;
    size_t size;
    int32_t device;
  } all[MANY];
  for (int i = 0; i < MANY; i++) {
    all[i].size = (size_t)(i % 7 + 1) * 12345 + (size_t)i;
    all[i].device = i % t->page->device_count;
    void *ptr = NULL;
    CTS_OK(t, memory_alloc, all[i].device, all[i].size, 0, &ptr);
    all[i].ptr = ptr;
    for (int j = 0; j < i; j++)
      CTS_CHECK(t, all[i].ptr + all[i].size <= all[j].ptr || all[j].ptr + all[j].size <= all[i].ptr,
                "memory_alloc returned %zu bytes at %p, which overlap %zu bytes at %p that are in use", all[i].size,
                (void *)all[i].ptr, all[j].size, (void *)all[j].ptr);
  }
  uint8_t *const bytes = cts_host(t, 100000), *const got = cts_host(t, 100000);
  for (int i = 0; i < MANY; i++) {
    cts_noise(bytes, all[i].size, (uint64_t)i);
    CTS_OK(t, memory_copy, NULL, all[i].ptr, all[i].device, bytes, HAL_HOST, all[i].size);
  }
  for (int i = 0; i < MANY; i++) {
    cts_noise(bytes, all[i].size, (uint64_t)i);
    CTS_OK(t, memory_copy, NULL, got, HAL_HOST, all[i].ptr, all[i].device, all[i].size);
    cts_same(t, got, bytes, all[i].size, "memory that was written while other allocations were in use");
    CTS_OK(t, memory_free, all[i].device, all[i].ptr);
  }
}

void cts_case_memory_free_null(cts_t *t) { CTS_STATUS(t, HAL_OK, memory_free, t->device, NULL); }

/* Returns the size of the process's address space. */
static size_t address_space(void) {
  size_t pages = 0;
  FILE *const file = fopen("/proc/self/statm", "re");
  if (file && fscanf(file, "%zu", &pages) != 1) pages = 0;
  if (file) fclose(file);
  return pages * 4096;
}

/* A leak is visible in the driver's free memory, in the process's address space, or when the device is full. Three
 * rounds must each show it: a pool fills once, and other processes allocate memory, too. */
void cts_case_memory_reuse(cts_t *t) {
  const size_t size = 16 * MEGA;
  int64_t least_space = INT64_MAX, least_free = INT64_MAX;
  for (int round = 0; round <= 3; round++) {
    size_t free_before = 0, free_after = 0, total = 0;
    const size_t space = address_space();
    if (CTS_PROVIDES(t, memory_info)) CTS_OK(t, memory_info, t->device, &free_before, &total);
    for (int i = 0; i < CYCLES; i++) cts_free(t, cts_alloc(t, size));
    if (CTS_PROVIDES(t, memory_info)) CTS_OK(t, memory_info, t->device, &free_after, &total);
    const int64_t grown = (int64_t)address_space() - (int64_t)space, taken = (int64_t)free_before - (int64_t)free_after;
    if (round && grown < least_space) least_space = grown; /* the first round fills pools */
    if (round && taken < least_free) least_free = taken;
  }
  const int64_t most = 2 * (int64_t)size;
  CTS_CHECK(t, least_space < most,
            "%d times %zu bytes were allocated and freed, and the process has grown by %lld bytes", CYCLES, size,
            (long long)least_space);
  CTS_CHECK(t, least_free < most,
            "%d times %zu bytes were allocated and freed, and %lld bytes of the device are not free any more", CYCLES,
            size, (long long)least_free);
}

void cts_case_memory_exhausted(cts_t *t) {
  void *ptr = &ptr;
  const size_t huge = SIZE_MAX / 2 - 4095;
  CTS_STATUS(t, HAL_RESOURCE_EXHAUSTED, memory_alloc, t->device, huge, 0, &ptr);
  CTS_GENERAL(t, "with its message set");
  CTS_CHECK(t, hal_error_message()[0], "memory_alloc of %zu bytes failed without a message", huge);
  CTS_GENERAL(t, "are unchanged after a failure");
  CTS_CHECK(t, ptr == &ptr, "memory_alloc failed and wrote %p to its out-parameter", ptr);
  CTS_JUDGE(t, memory_alloc, "HAL_RESOURCE_EXHAUSTED");
  cts_free(t, cts_alloc(t, 4096)); /* and continues */
}

static void fill_one(cts_t *t, hal_plugin_stream_t *stream, uint8_t *device, uint8_t *got, uint8_t *expected,
                     size_t pattern_size, size_t size) {
  enum { GUARD = 64 };
  uint8_t pattern[16];
  cts_noise(pattern, sizeof pattern, pattern_size * 1000 + size);
  memset(expected, 0xc3, size + 2 * GUARD);
  cts_put(t, NULL, device, expected, size + 2 * GUARD);
  CTS_OK(t, memory_fill, stream, t->device, device + GUARD, pattern, pattern_size, size);
  cts_sync(t, stream);
  for (size_t i = 0; i < size; i++) expected[GUARD + i] = pattern[i % pattern_size];
  cts_get(t, NULL, got, device, size + 2 * GUARD);
  char what[96];
  snprintf(what, sizeof what, "a fill of %zu bytes with a pattern of %zu, and 64 bytes on each side", size,
           pattern_size);
  cts_same(t, got, expected, size + 2 * GUARD, what);
}

/* Only at multiples of the pattern: the address of an element is a multiple of its size. */
static void fill_all(cts_t *t, hal_plugin_stream_t *const *streams, int count) {
  static const size_t counts[] = {1, 3, 16, 255, 257, 4099};
  uint8_t *const device = cts_alloc(t, 70000), *const got = cts_host(t, 70000), *const expected = cts_host(t, 70000);
  for (size_t pattern_size = 1; pattern_size <= 16; pattern_size *= 2)
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
      fill_one(t, streams[i % (size_t)count], device + i * pattern_size, got, expected, pattern_size,
               counts[i] * pattern_size);
  CTS_OK(t, memory_fill, streams[0], t->device, device, "x", 1, 0);
  cts_free(t, device);
}

void cts_case_memory_fill(cts_t *t) { fill_all(t, &(hal_plugin_stream_t *){NULL}, 1); }

void cts_case_memory_fill_streams(cts_t *t) {
  hal_plugin_stream_t *const streams[] = {cts_stream(t), NULL, cts_stream(t), cts_stream(t), cts_stream(t)};
  fill_all(t, streams, 5);
}

void cts_case_memory_fill_wrong(cts_t *t) {
  uint8_t pattern[32] = {1};
  void *const device = cts_alloc(t, 4096);
  CTS_STATUS(t, HAL_INVALID_ARGUMENT, memory_fill, NULL, t->device, device, pattern, 3, 12);
  CTS_STATUS(t, HAL_INVALID_ARGUMENT, memory_fill, NULL, t->device, device, pattern, 32, 64);
  CTS_STATUS(t, HAL_INVALID_ARGUMENT, memory_fill, NULL, t->device, device, pattern, 4, 10);
}

void cts_case_memory_info(cts_t *t) {
  size_t free = 1, total = 0;
  cts_alloc(t, 16 * MEGA);
  CTS_OK(t, memory_info, t->device, &free, &total);
  CTS_CHECK(t, total > 0 && free <= total, "memory_info reports %zu free bytes of %zu", free, total);
  CTS_CHECK(t, !t->info.total_memory || total == t->info.total_memory,
            "memory_info reports a total of %zu bytes, device_info %llu", total,
            (unsigned long long)t->info.total_memory);
}

/* Other processes also allocate and free memory, which changes the count: one round of several must show each
 * change. */
void cts_case_memory_info_counts(cts_t *t) {
  enum { PIECES = 4, LOOKS = 5 };
  const size_t size = 32 * MEGA;
  int64_t taken = INT64_MIN, given = INT64_MIN;
  if (t->info.flags & HAL_DEVICE_POOLED) cts_skip(t, "the plugin pools memory: what is free in its pool is not free");
  for (int look = 0; look < LOOKS; look++) {
    size_t before = 0, between = 0, after = 0, total = 0;
    void *pieces[PIECES];
    CTS_OK(t, memory_info, t->device, &before, &total);
    for (int i = 0; i < PIECES; i++) {
      void *piece = NULL;
      if (cts_memory_alloc(t, t->device, size, 0, &piece))
        cts_skip(t, "the device has no %zu bytes for it", PIECES * size);
      CTS_OK(t, memory_fill, NULL, t->device, piece, "", 1,
             size); /* written, because some drivers count memory when it is used */
      pieces[i] = piece;
    }
    CTS_OK(t, memory_info, t->device, &between, &total);
    for (int i = 0; i < PIECES; i++) cts_free(t, pieces[i]);
    CTS_OK(t, memory_info, t->device, &after, &total);
    if ((int64_t)before - (int64_t)between > taken) taken = (int64_t)before - (int64_t)between;
    if ((int64_t)after - (int64_t)between > given) given = (int64_t)after - (int64_t)between;
  }
  const int64_t least = (int64_t)(PIECES * size) / 2;
  CTS_CHECK(t, taken >= least, "%zu bytes were allocated and written, and memory_info reports %lld free bytes less",
            PIECES * size, (long long)taken);
  CTS_CHECK(t, given >= least, "%zu bytes were freed, and memory_info reports %lld free bytes more", PIECES * size,
            (long long)given);
}

/* Offsets and sizes that exceed 32 bits; only a few pages are accessed. */
void cts_case_memory_large(cts_t *t) {
  enum { MARK = 4096 };
  const size_t four = (size_t)4 << 30, size = four + (size_t)1 * MEGA;
  static const int64_t places[] = {0, -4096, 77, -77, 65536}; /* from four gibibytes */
  uint8_t *const marks = cts_host(t, MARK), *const got = cts_host(t, MARK);
  void *ptr = NULL;
  const hal_status_t status = cts_memory_alloc(t, t->device, size, 0, &ptr);
  if (status == HAL_RESOURCE_EXHAUSTED) cts_skip(t, "the device has no %zu bytes in one piece", size);
  cts_expect_ok(t, HAL_SLOT_memory_alloc, status);
  for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
    const size_t at = (size_t)((int64_t)four + places[i]);
    cts_noise(marks, MARK, i + 1);
    cts_put(t, NULL, (uint8_t *)ptr + at, marks, MARK);
    cts_get(t, NULL, got, (uint8_t *)ptr + at, MARK);
    cts_same(t, got, marks, MARK, "bytes beyond four gibibytes of one allocation");
  }
  uint8_t *const low = ptr;
  cts_noise(marks, MARK, 9);
  cts_put(t, NULL, low, marks, MARK);
  CTS_OK(t, memory_fill, NULL, t->device, low + four, "z", 1, MARK);
  cts_get(t, NULL, got, low, MARK);
  cts_same(t, got, marks, MARK, "the beginning of an allocation, of which a place four gibibytes later was filled");
  CTS_OK(t, memory_copy, NULL, low + four, t->device, low, t->device, MARK);
  cts_get(t, NULL, got, low + four, MARK);
  cts_same(t, got, marks, MARK, "bytes copied within one allocation over four gibibytes");
  if (CTS_PROVIDES(t, memory_pointer_info)) {
    hal_pointer_info_t info = {.struct_size = HAL_STRUCT_SIZE(hal_pointer_info_t, kind)};
    CTS_OK(t, memory_pointer_info, low + four + 5, &info);
    CTS_CHECK(t, info.base == ptr && info.size >= size,
              "memory_pointer_info reports base %p and %zu bytes for %zu bytes at %p", info.base, info.size, size, ptr);
  }
  cts_free(t, ptr);
}

void cts_case_memory_pointer_info(cts_t *t) {
  const size_t size = 100000;
  uint8_t *const device = cts_alloc(t, size);
  static const size_t offsets[] = {0, 1, 4096, 99999};
  for (size_t i = 0; i < sizeof offsets / sizeof offsets[0]; i++) {
    hal_pointer_info_t info = {.struct_size = HAL_STRUCT_SIZE(hal_pointer_info_t, kind)};
    CTS_OK(t, memory_pointer_info, device + offsets[i], &info);
    CTS_CHECK(t, info.base == device && info.size >= size && info.size < size + 4 * MEGA,
              "memory_pointer_info reports base %p and %zu bytes for offset %zu of %zu bytes at %p", info.base,
              info.size, offsets[i], size, (void *)device);
    CTS_CHECK(t, info.device == t->device, "memory_pointer_info reports device %d for memory of device %d", info.device,
              t->device);
  }
  int here;
  hal_pointer_info_t info = {.struct_size = HAL_STRUCT_SIZE(hal_pointer_info_t, kind)};
  CTS_JUDGE(t, memory_pointer_info, "HAL_NOT_FOUND = not memory");
  CTS_STATUS(t, HAL_NOT_FOUND, memory_pointer_info, &here, &info);
  cts_free(t, device);
  if (!(t->info.flags & HAL_DEVICE_POOLED)) CTS_STATUS(t, HAL_NOT_FOUND, memory_pointer_info, device, &info);
}

void cts_case_memory_host_visible(cts_t *t) {
  enum { SIZE = 100000 };
  if (!(t->info.flags & HAL_DEVICE_HOST_VISIBLE)) cts_skip(t, "the device does not have HAL_DEVICE_HOST_VISIBLE");
  CTS_GENERAL(t, "HAL_DEVICE_HOST_VISIBLE: ");
  uint8_t *const device = cts_alloc(t, SIZE), *const bytes = cts_host(t, SIZE), *const got = cts_host(t, SIZE);
  cts_noise(bytes, SIZE, 1);
  cts_put(t, NULL, device, bytes, SIZE);
  cts_same(t, device, bytes, SIZE, "device memory read by the host");
  cts_noise(device, SIZE, 2);
  cts_noise(bytes, SIZE, 2);
  cts_get(t, NULL, got, device, SIZE);
  cts_same(t, got, bytes, SIZE, "device memory written by the host");
}

void cts_case_memory_unified(cts_t *t) {
  enum { SIZE = 100000 };
  if (!(t->info.flags & HAL_DEVICE_UNIFIED)) cts_skip(t, "the device does not have HAL_DEVICE_UNIFIED");
  CTS_GENERAL(t, "HAL_DEVICE_UNIFIED: ");
  uint8_t *const ordinary = cts_host(t, SIZE), *const expected = cts_host(t, SIZE);
  const uint32_t pattern = 0x12345678;
  CTS_OK(t, memory_fill, NULL, t->device, ordinary, &pattern, sizeof pattern, SIZE);
  for (size_t i = 0; i < SIZE; i += sizeof pattern) memcpy(expected + i, &pattern, sizeof pattern);
  cts_same(t, ordinary, expected, SIZE, "ordinary memory that the device has filled");
}

void cts_case_memory_host_alloc(cts_t *t) {
  enum { SIZE = 100000 };
  void *host = NULL;
  CTS_OK(t, host_alloc, t->device, SIZE, 0, &host);
  CTS_CHECK(t, host && (uintptr_t)host % 64 == 0, "host_alloc returned %p, which is not aligned to 64 bytes", host);
  uint8_t *const device = cts_alloc(t, SIZE), *const expected = cts_host(t, SIZE);
  cts_noise(expected, SIZE, 3);
  memcpy(host, expected, SIZE);
  cts_put(t, NULL, device, host, SIZE);
  memset(host, 0, SIZE);
  cts_get(t, NULL, host, device, SIZE);
  cts_same(t, host, expected, SIZE, "host memory of host_alloc copied to the device and back");
  CTS_JUDGE(t, host_free, "Frees memory of host_alloc");
  CTS_OK(t, host_free, t->device, host);
}

void cts_case_memory_host_exhausted(cts_t *t) {
  void *ptr = &ptr;
  CTS_STATUS(t, HAL_RESOURCE_EXHAUSTED, host_alloc, t->device, SIZE_MAX / 2 - 4095, 0, &ptr);
  CTS_GENERAL(t, "are unchanged after a failure");
  CTS_CHECK(t, ptr == &ptr, "host_alloc failed and wrote %p to its out-parameter", ptr);
}
