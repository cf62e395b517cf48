/* fake_memory.c: memory of the fake device: limits, statistics, addresses, copies and fills compared with plain
   loops. */
#define _GNU_SOURCE
#include <stdint.h>

#include "fake_support.h"

Test(fake_memory, limit_is_kept_and_named) {
  setenv("HAL_FAKE_MEMORY", "8M", 1);
  setenv("HAL_FAKE_DEVICES", "2", 1);
  open_mode(1, 1);
  size_t left = 0, total = 0;
  void *ptr = NULL, *other = NULL, *none = NULL;
  must(fake_api.memory_alloc(0, 6u << 20, 0, &ptr));
  must(fake_api.memory_info(0, &left, &total));
  cr_assert_eq(total, 8u << 20);
  cr_assert_eq(left, 2u << 20);
  must_fail(fake_api.memory_alloc(0, 3u << 20, 0, &none), HAL_RESOURCE_EXHAUSTED, "HAL_FAKE_MEMORY");
  cr_assert_not_null(strstr(fake_message, "3145728 bytes"));
  cr_assert_not_null(strstr(fake_message, "2097152 are free"));
  cr_assert_null(none);
  must(fake_api.memory_alloc(1, 6u << 20, 0, &other)); /* each device has its own */
  must(fake_api.memory_free(0, ptr));
  must(fake_api.memory_alloc(0, 8u << 20, 0, &ptr));
  hal_device_info_t info = {.struct_size = sizeof info};
  must(fake_api.device_info(0, &info));
  cr_assert_eq(info.total_memory, 8u << 20);
}

Test(fake_memory, impossible_sizes_are_refused) {
  open_mode(1, 1);
  void *ptr = NULL;
  must_fail(fake_api.memory_alloc(0, SIZE_MAX, 0, &ptr), HAL_RESOURCE_EXHAUSTED, "18446744073709551615");
  must_fail(fake_api.memory_alloc(0, SIZE_MAX / 2, 0, &ptr), HAL_RESOURCE_EXHAUSTED, "out of memory");
  must_fail(fake_api.memory_alloc(0, 0, 0, &ptr), HAL_INVALID_ARGUMENT, "0 bytes");
  must_fail(fake_api.memory_alloc(3, 64, 0, &ptr), HAL_INVALID_ARGUMENT, "device 3");
  must_fail(fake_api.host_alloc(0, SIZE_MAX, 0, &ptr), HAL_RESOURCE_EXHAUSTED, "host_alloc");
  cr_assert_null(ptr);
}

Test(fake_memory, addresses_are_aligned_and_usable) {
  open_mode(1, 1);
  hal_device_info_t info = {.struct_size = sizeof info};
  must(fake_api.device_info(0, &info));
  static const size_t sizes[] = {1, 4096, 100000, (2u << 20) - 1, 2u << 20, (20u << 20) + 5};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    char *ptr = new_memory(sizes[i]);
    cr_assert_eq((uintptr_t)ptr % info.base_alignment, 0);
    if (sizes[i] >= 2u << 20) cr_assert_eq((uintptr_t)ptr % (2u << 20), 0, "not aligned to huge pages");
    ptr[0] = 1, ptr[sizes[i] - 1] = 1;
    must(fake_api.memory_free(0, ptr));
  }
}

Test(fake_memory, pointer_info_finds_the_allocation) {
  setenv("HAL_FAKE_DEVICES", "2", 1);
  open_mode(1, 1);
  char *ptr[8], *pinned = NULL;
  for (int i = 0; i < 8; i++) must(fake_api.memory_alloc(i % 2, 10000, 0, (void **)&ptr[i]));
  must(fake_api.host_alloc(0, 5000, 0, (void **)&pinned));
  hal_pointer_info_t info = {.struct_size = sizeof info};
  for (int i = 0; i < 8; i++) {
    must(fake_api.memory_pointer_info(ptr[i] + 9999, &info));
    cr_assert(info.base == ptr[i] && info.size == 10000 && info.device == i % 2 && info.kind == HAL_POINTER_DEVICE);
  }
  must(fake_api.memory_pointer_info(pinned + 1, &info));
  cr_assert(info.base == pinned && info.device == HAL_HOST && info.kind == HAL_POINTER_PINNED);
  cr_assert_eq(fake_api.memory_pointer_info(&info, &info), HAL_NOT_FOUND);
  cr_assert_eq(fake_api.memory_pointer_info(ptr[0] + 10000, &info), HAL_NOT_FOUND);
  must(fake_api.memory_free(0, ptr[0]));
  cr_assert_eq(fake_api.memory_pointer_info(ptr[0], &info), HAL_NOT_FOUND);
  must(fake_api.host_free(0, pinned));
}

Test(fake_memory, wrong_frees_are_refused) {
  setenv("HAL_FAKE_DEVICES", "2", 1);
  open_mode(1, 1);
  char *ptr = new_memory(10000);
  must_fail(fake_api.memory_free(1, ptr), HAL_INVALID_ARGUMENT, "memory_free");
  must_fail(fake_api.memory_free(0, ptr + 64), HAL_INVALID_ARGUMENT, "memory_free");
  must_fail(fake_api.host_free(0, ptr), HAL_INVALID_ARGUMENT, "host_free");
  must(fake_api.memory_free(0, ptr));
  must_fail(fake_api.memory_free(0, ptr), HAL_INVALID_ARGUMENT, "once");
  must(fake_api.memory_free(0, NULL));
}

/* Sizes around each limit: zero, odd, one grain, divided among threads. */
static const size_t copy_sizes[] = {0, 1, 13, 4096, (1u << 20) + 3, (9u << 20) + 7};

static void copies(int async) {
  setenv("HAL_FAKE_DEVICES", "2", 1);
  open_mode(async, 3);
  const size_t most = (9u << 20) + 16;
  hal_plugin_stream_t *stream = new_stream();
  unsigned char *host = malloc(most), *back = malloc(most), *near = new_memory(most), *far = NULL;
  must(fake_api.memory_alloc(1, most, 0, (void **)&far));
  for (size_t i = 0; i < most; i++) host[i] = (unsigned char)(i * 2654435761u >> 13);
  for (size_t k = 0; k < sizeof copy_sizes / sizeof *copy_sizes; k++) {
    const size_t size = copy_sizes[k];
    memset(back, 0xEE, most);
    must(fake_api.memory_copy(stream, near + 1, 0, host, HAL_HOST, size));
    must(fake_api.memory_copy(stream, far + 2, 1, near + 1, 0, size));
    must(fake_api.memory_copy(stream, back + 3, HAL_HOST, far + 2, 1, size));
    must(fake_api.stream_synchronize(stream));
    cr_assert_eq(memcmp(back + 3, host, size), 0, "%zu bytes", size);
    cr_assert_eq(back[2], 0xEE);
    cr_assert_eq(back[3 + size], 0xEE, "%zu bytes", size);
  }
  must_fail(fake_api.memory_copy(stream, near, 0, NULL, HAL_HOST, 5), HAL_INVALID_ARGUMENT, "5 bytes");
  must_fail(fake_api.memory_copy(stream, near, 2, host, HAL_HOST, 5), HAL_INVALID_ARGUMENT, "device 2");
  free(host);
  free(back);
}

Test(fake_memory, copies_are_exact, .timeout = 60) { copies(1); }
Test(fake_memory, copies_are_exact_inline, .timeout = 60) { copies(0); }

static void fills(int async) {
  open_mode(async, 3);
  static const unsigned char pattern[16] = {1, 2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47};
  static const unsigned char same[16] = {9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9};
  static const size_t counts[] = {0, 1, 77, (3u << 20) + 1};
  hal_plugin_stream_t *stream = new_stream();
  unsigned char *data = new_memory(((3u << 20) + 2) * 16 + 8);
  for (size_t width = 1; width <= 16; width *= 2) {
    for (size_t k = 0; k < 8; k++) {
      const unsigned char *from = k & 4 ? same : pattern;
      unsigned char mine[16];
      const size_t size = counts[k & 3] * width;
      unsigned char *at = data + 3; /* memory_fill requires no alignment */
      at[size] = at[-1] = 0xEE;
      memcpy(mine, from, 16);
      must(fake_api.memory_fill(stream, 0, at, mine, width, size));
      memset(mine, 0, sizeof mine); /* the pattern has been copied */
      must(fake_api.stream_synchronize(stream));
      size_t wrong = 0;
      for (size_t i = 0; i < size; i++) wrong += at[i] != from[i % width];
      cr_assert_eq(wrong, 0, "pattern of %zu bytes, %zu bytes", width, size);
      cr_assert(at[size] == 0xEE && at[-1] == 0xEE, "pattern of %zu bytes, %zu bytes: beyond the end", width, size);
    }
  }
  must_fail(fake_api.memory_fill(stream, 0, data, pattern, 3, 9), HAL_INVALID_ARGUMENT, "3 bytes");
  must_fail(fake_api.memory_fill(stream, 0, data, pattern, 4, 9), HAL_INVALID_ARGUMENT, "divides");
  must_fail(fake_api.memory_fill(stream, 0, data, pattern, 32, 64), HAL_INVALID_ARGUMENT, "32");
}

Test(fake_memory, fills_are_exact, .timeout = 120) { fills(1); }
Test(fake_memory, fills_are_exact_inline, .timeout = 120) { fills(0); }
