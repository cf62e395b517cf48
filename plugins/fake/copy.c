/* copy.c: memory_copy and memory_fill. All devices live in the host's memory, so that both are launches of two kernels
 * of our own, queued, divided among threads and ordered like any other. */
#include <string.h>

#include "fake.h"

/* Bytes worth a thread of their own: 1 MiB takes about 100 us from memory, waking a worker 5 to 50 us. */
#define COPY_GRAIN (1u << 20)

static void copy_range(const hal_host_range_t *range, void *const *args) {
  char *dst = *(char *const *)args[0];
  const char *src = *(const char *const *)args[1];
  memcpy(dst + range->begin, src + range->begin, range->end - range->begin);
}

/* Units are patterns. memcpy of a constant size is one store, at any alignment. */
#define FILL_RANGE(size)                                                                        \
  static void fill_range_##size(const hal_host_range_t *range, void *const *args) {             \
    char *dst = *(char *const *)args[0];                                                        \
    unsigned char pattern[size];                                                                \
    memcpy(pattern, args[1], size);                                                             \
    for (uint64_t i = range->begin; i < range->end; i++) memcpy(dst + i * size, pattern, size); \
  }
FILL_RANGE(2)
FILL_RANGE(4)
FILL_RANGE(8)
FILL_RANGE(16)

static void fill_range_1(const hal_host_range_t *range, void *const *args) {
  memset(*(char *const *)args[0] + range->begin, *(const unsigned char *)args[1], range->end - range->begin);
}

static const hal_host_kernel_t copy_kernel = {"memory_copy", copy_range, 2, HAL_HOST_ITEMS, COPY_GRAIN, 0};
static const hal_host_kernel_t fill_kernels[] = {
    {"memory_fill_1", fill_range_1, 2, HAL_HOST_ITEMS, COPY_GRAIN, 0},
    {"memory_fill_2", fill_range_2, 2, HAL_HOST_ITEMS, COPY_GRAIN / 2, 0},
    {"memory_fill_4", fill_range_4, 2, HAL_HOST_ITEMS, COPY_GRAIN / 4, 0},
    {"memory_fill_8", fill_range_8, 2, HAL_HOST_ITEMS, COPY_GRAIN / 8, 0},
    {"memory_fill_16", fill_range_16, 2, HAL_HOST_ITEMS, COPY_GRAIN / 16, 0},
};

hal_status_t hal_plugin_memory_copy(hal_plugin_stream_t *stream, void *dst, int32_t dst_device, const void *src,
                                    int32_t src_device, size_t size) {
  if (!size || dst == src) return HAL_OK;
  if (!dst || !src || dst_device < HAL_HOST || src_device < HAL_HOST || dst_device >= fake.device_count ||
      src_device >= fake.device_count)
    return fake_error(HAL_INVALID_ARGUMENT, 0,
                      "fake: copy of %zu bytes from %p on device %d to %p on device %d; the devices are 0 to %d, and "
                      "-1 is the host",
                      size, src, (int)src_device, dst, (int)dst_device, (int)fake.device_count - 1);
  void *to = dst, *from = (void *)(uintptr_t)src;
  fake_note_t room;
  const fake_note_t *note = NULL;
  if (fake_profile_any()) note = fake_note_copy(&room, stream, dst_device, src_device, size);
  if (FAKE_UNLIKELY(fake.settings.protect)) {
    hal_status_t status = fake_protect_range("memory_copy", dst_device, dst, size, &to);
    if (!status) status = fake_protect_range("memory_copy", src_device, src, size, &from);
    if (status) return status;
  }
  const hal_arg_t args[] = {{&to, sizeof to, HAL_ARG_POINTER}, {&from, sizeof from, HAL_ARG_POINTER}};
  return fake_submit(stream, &copy_kernel, size, args, 2, note);
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
  fake_note_t room;
  const fake_note_t *note = NULL;
  if (fake_profile_any()) note = fake_note_fill(&room, stream, device, size);
  /* Zeros, and whatever repeats one byte, take the fastest way. */
  const int bytes = pattern_size == 1 || !memcmp(pattern, (const char *)pattern + 1, pattern_size - 1);
  const hal_host_kernel_t *kernel = &fill_kernels[bytes ? 0 : __builtin_ctzll(pattern_size)];
  const hal_arg_t args[] = {{&dst, sizeof dst, HAL_ARG_POINTER}, {pattern, (uint32_t)pattern_size, HAL_ARG_VALUE}};
  return fake_submit(stream, kernel, bytes ? size : size / pattern_size, args, 2, note);
}
