/* Tests of the OpenCL plugin's memory: unaligned copies and fills, copies between devices, limits, pinned memory. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "opencl_testing.h"

TestSuite(opencl_memory, .init = open_opencl, .fini = close_opencl);

enum { BYTES = 4096 };

static void fill_numbers(unsigned char *bytes, size_t size, unsigned seed) {
  for (size_t i = 0; i < size; i++) bytes[i] = (unsigned char)(seed = seed * 1664525u + 1013904223u, seed >> 24);
}

Test(opencl_memory, copies_keep_every_byte_at_any_alignment_and_size) {
  static const size_t offsets[] = {0, 1, 3, 7, 16, 129, 1000}, sizes[] = {0, 1, 2, 15, 64, 1001};
  unsigned char there[BYTES], back[BYTES], expected[BYTES];
  char *const a = device_bytes(0, BYTES), *const b = device_bytes(0, BYTES);
  fill_numbers(there, BYTES, 1);
  for (size_t i = 0; i < sizeof offsets / sizeof *offsets; i++)
    for (size_t j = 0; j < sizeof sizes / sizeof *sizes; j++) {
      const size_t from = offsets[i], to = offsets[(i + j) % 7], size = sizes[j];
      memset(expected, 0x5a, BYTES);
      memcpy(expected + to, there + from, size);
      assert_ok(hal_memory_copy(NULL, a, 0, there, HAL_HOST, BYTES));
      assert_ok(hal_memory_fill(NULL, 0, b, &(char){0x5a}, 1, BYTES));
      assert_ok(hal_memory_copy(NULL, b + to, 0, a + from, 0, size));
      assert_ok(hal_memory_copy(NULL, back, HAL_HOST, b, 0, BYTES));
      assert_ok(hal_device_synchronize(0));
      cr_assert_arr_eq(back, expected, BYTES, "%zu bytes from %zu to %zu", size, from, to);
    }
}

Test(opencl_memory, fills_repeat_every_pattern_at_every_address) {
  unsigned char pattern[16], back[256], expected[256];
  char *const memory = device_bytes(0, 256);
  fill_numbers(pattern, sizeof pattern, 7);
  for (size_t bytes = 1; bytes <= 16; bytes *= 2)
    for (size_t offset = 0; offset < 18; offset++)
      for (size_t count = 0; count <= 5; count++) {
        memset(expected, 0, sizeof expected);
        for (size_t i = 0; i < count * bytes; i++) expected[offset + i] = pattern[i % bytes];
        assert_ok(hal_memory_fill(NULL, 0, memory, &(char){0}, 1, 256));
        assert_ok(hal_memory_fill(NULL, 0, memory + offset, pattern, bytes, count * bytes));
        assert_ok(hal_memory_copy(NULL, back, HAL_HOST, memory, 0, 256));
        assert_ok(hal_device_synchronize(0));
        cr_assert_arr_eq(back, expected, 256, "%zu patterns of %zu bytes at %zu", count, bytes, offset);
      }
}

Test(opencl_memory, the_host_may_access_the_memory_that_the_device_reports_and_the_kind_is_as_set) {
  hal_device_info_t info = {.struct_size = sizeof info};
  assert_ok(hal_device_info(0, &info));
  const int visible = (info.flags & HAL_DEVICE_HOST_VISIBLE) != 0;
  if (*memory_kind()) cr_assert_eq(visible, strcmp(memory_kind(), "svm-fine") == 0);
  cr_assert(info.flags & HAL_DEVICE_ASYNC);
  cr_assert_gt(info.total_memory, 0);
  cr_assert_gt(info.compute_units, 0);
  cr_assert_gt(info.max_block_threads, 0);
  if (visible) {
    char *const memory = device_bytes(0, 64);
    assert_ok(hal_memory_fill(NULL, 0, memory, &(char){9}, 1, 64));
    assert_ok(hal_device_synchronize(0));
    cr_assert_eq(memory[63], 9);
  }
}

Test(opencl_memory, the_host_cannot_access_a_buffer) {
  if (strcmp(memory_kind(), "buffer")) cr_skip_test("not the kind of memory that promises it");
  int state = 0;
  volatile char *const memory = device_bytes(0, 64);
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGSEGV, SIG_DFL);
    memory[0] = 1;
    _exit(0);
  }
  cr_assert_eq(waitpid(child, &state, 0), child);
  cr_assert(WIFSIGNALED(state) && WTERMSIG(state) == SIGSEGV, "state %d", state);
}

Test(opencl_memory, more_than_the_drivers_allocation_limit_is_out_of_memory_and_names_the_limit) {
  hal_block_t *block;
  hal_device_info_t info = {.struct_size = sizeof info};
  assert_ok(hal_device_info(0, &info));
  const hal_status_t status = hal_memory_allocate(0, NULL, info.total_memory / 16 * 15, &block);
  if (!status) cr_skip_test("this device can allocate all of its memory at once");
  cr_assert_eq(status, HAL_RESOURCE_EXHAUSTED);
  cr_assert_not_null(strstr(hal_error_message(), "CL_DEVICE_MAX_MEM_ALLOC_SIZE"), "%s", hal_error_message());
  device_bytes(0, 64); /* and the device goes on */
}

Test(opencl_memory, pinned_memory_is_written_by_the_host_and_copied_by_the_device) {
  void *pinned = NULL;
  unsigned char back[BYTES];
  int32_t device = -1;
  char *const memory = device_bytes(0, BYTES);
  assert_ok(hal_host_allocate(0, BYTES, &pinned));
  assert_ok(hal_host_find(pinned, &device));
  cr_assert_eq(device, 0);
  fill_numbers(pinned, BYTES, 3);
  assert_ok(hal_memory_copy(NULL, memory, 0, pinned, HAL_HOST, BYTES));
  assert_ok(hal_memory_copy(NULL, back, HAL_HOST, memory, 0, BYTES));
  assert_ok(hal_device_synchronize(0));
  cr_assert_arr_eq(back, pinned, BYTES);
  memset(pinned, 0, BYTES);
  assert_ok(hal_memory_copy(NULL, pinned, HAL_HOST, memory, 0, BYTES));
  assert_ok(hal_device_synchronize(0));
  cr_assert_arr_eq(back, pinned, BYTES);
  assert_ok(hal_host_free(pinned));
  assert_ok(hal_host_empty_cache(-1));
}

Test(opencl_memory, copies_cross_devices) {
  if (hal_device_count() < 2) cr_skip_test("one device; POCL_DEVICES=\"pthread pthread\" makes two");
  unsigned char there[BYTES], back[BYTES];
  int32_t accessible = 0;
  char *const here = device_bytes(0, BYTES), *const other = device_bytes(1, BYTES);
  fill_numbers(there, BYTES, 5);
  assert_ok(hal_device_can_access_peer(0, 1, &accessible));
  cr_assert_eq(accessible, 1);
  assert_ok(hal_memory_copy(NULL, here, 0, there, HAL_HOST, BYTES));
  assert_ok(hal_device_synchronize(0));
  assert_ok(hal_memory_copy(NULL, other + 3, 1, here + 1, 0, BYTES - 3));
  assert_ok(hal_device_synchronize(1));
  assert_ok(hal_memory_copy(NULL, back, HAL_HOST, other + 3, 1, BYTES - 3));
  assert_ok(hal_device_synchronize(1));
  cr_assert_arr_eq(back, there + 1, BYTES - 3);
}
