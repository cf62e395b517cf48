/* host_memory_fake.c: page-locked host memory on the fake device, whose streams are delayed by HAL_FAKE_DELAY. */
#define _POSIX_C_SOURCE 200809L
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support.h"

enum { COUNT = 100000, ROUNDS = 20 };

TestSuite(host_memory_fake, .timeout = 120);

static void open_late(void) {
  setenv("HAL_FAKE_DEVICES", "2", 1);
  setenv("HAL_FAKE_DELAY", "20000", 1);
  assert_ok(hal_registry_add_path(PLUGIN_DIR));
  assert_ok(hal_registry_open("fake"));
}

static void *take(size_t size) {
  void *address = NULL;
  assert_ok(hal_host_allocate(0, size, &address));
  return address;
}

Test(host_memory_fake, memory_freed_while_a_late_stream_copies_keeps_its_values) {
  static unsigned char back[ROUNDS][COUNT];
  hal_block_t *block[ROUNDS];
  hal_stream_t *stream;
  open_late();
  assert_ok(hal_stream_acquire(0, 0, &stream));
  for (int i = 0; i < ROUNDS; i++) {
    assert_ok(hal_memory_allocate(0, stream, COUNT, &block[i]));
    void *staging = take(COUNT); /* one that no copy reads */
    memset(staging, i + 1, COUNT);
    assert_ok(hal_host_record_stream(staging, stream));
    assert_ok(hal_memory_copy(stream, hal_memory_block_address(block[i]), 0, staging, HAL_HOST, COUNT));
    assert_ok(hal_host_free(staging));
  }
  cr_assert_eq(hal_stream_query(stream), HAL_NOT_READY, "no thread waited: HAL_FAKE_DELAY delays the stream");
  for (int i = 0; i < ROUNDS; i++) {
    assert_ok(hal_memory_copy(stream, back[i], HAL_HOST, hal_memory_block_address(block[i]), 0, COUNT));
    hal_memory_release(block[i]);
  }
  assert_ok(hal_stream_synchronize(stream));
  for (int i = 0; i < ROUNDS; i++) {
    for (size_t k = 0; k < COUNT; k++) cr_assert_eq(back[i][k], i + 1, "round %d, byte %zu", i, k);
  }
  hal_host_stats_t stats = {.struct_size = sizeof stats};
  assert_ok(hal_host_empty_cache(-1));
  assert_ok(hal_host_stats(0, &stats));
  cr_assert_eq(stats.allocations.current, 0);
}

Test(host_memory_fake, kernels_address_page_locked_memory_of_their_own_plugin_only) {
  char *pinned = NULL, pageable[64];
  void *there = NULL;
  hal_block_t *block = NULL;
  assert_ok(hal_registry_add_path(PLUGIN_DIR));
  assert_ok(hal_registry_open("fake," FIXTURE("tally")));
  assert_ok(hal_host_allocate(0, 100, (void **)&pinned));
  assert_ok(hal_host_device_pointer(pinned + 7, 0, &there));
  cr_assert_eq(there, pinned + 7);
  there = NULL;
  assert_fails(hal_host_device_pointer(pageable, 0, &there), HAL_NOT_FOUND, "is not page-locked");
  assert_fails(hal_host_device_pointer(pinned, 99, &there), HAL_OUT_OF_RANGE, "device 99");
  assert_fails(hal_host_device_pointer(pinned, 1, &there), HAL_NOT_FOUND, "hal_host_allocate(1, ...)");
  assert_ok(hal_memory_allocate(0, NULL, 64, &block));
  assert_fails(hal_host_device_pointer(hal_memory_block_address(block), 0, &there), HAL_NOT_FOUND, "not page-locked");
  cr_assert_null(there);
  assert_ok(hal_host_free(pinned));
}

Test(host_memory_fake, host_statistics_of_an_unused_device_are_zero_and_do_not_initialize_it) {
  hal_host_stats_t stats;
  memset(&stats, 0xff, sizeof stats);
  stats.struct_size = sizeof stats;
  open_late();
  assert_ok(hal_host_stats(1, &stats));
  cr_assert_eq(stats.struct_size, sizeof stats);
  for (size_t i = sizeof(size_t); i < sizeof stats; i++) cr_assert_eq(((const char *)&stats)[i], 0, "byte %zu", i);
  assert_ok(hal_host_reset_peak_stats(1));
  assert_ok(hal_host_reset_accumulated_stats(1));
  cr_assert_not(hal_device_is_initialized(0));
  cr_assert_not(hal_device_is_initialized(1));
  assert_fails(hal_host_stats(2, &stats), HAL_OUT_OF_RANGE, "device 2");
  assert_fails(hal_host_reset_peak_stats(-1), HAL_OUT_OF_RANGE, "device -1");
}

Test(host_memory_fake, closing_waits_for_streams_of_every_device) {
  hal_stream_t *streams[2];
  void *address[2];
  open_late();
  for (int32_t device = 0; device < 2; device++) {
    assert_ok(hal_stream_acquire(device, 0, &streams[device]));
    assert_ok(hal_host_allocate(device, COUNT, &address[device]));
  }
  hal_block_t *block[2];
  for (int32_t device = 0; device < 2; device++) { /* each stream reads the other device's memory */
    assert_ok(hal_memory_allocate(device, streams[device], COUNT, &block[device]));
    assert_ok(hal_host_record_stream(address[!device], streams[device]));
    assert_ok(hal_memory_copy(streams[device], hal_memory_block_address(block[device]), device, address[!device],
                              HAL_HOST, COUNT));
  }
  for (int i = 0; i < 2; i++) {
    assert_ok(hal_host_free(address[i]));
    hal_memory_release(block[i]);
  }
  hal_registry_close();
  int32_t device;
  cr_assert_eq(hal_host_find(address[0], &device), HAL_NOT_FOUND);
  cr_assert_eq(hal_memory_find(address[0], &device), HAL_NOT_FOUND, "no plugin may be queried after its shutdown");
}

/* The calls of a forked child on memory of its parent. Returns 0 if all behave as documented. */
static int child(char *pinned) {
  void *address = NULL;
  int32_t device;
  if (pinned[COUNT - 1] != 9) return 1; /* it is host memory and still mapped */
  if (hal_host_find(pinned, &device) != HAL_NOT_FOUND) return 2;
  if (hal_host_record_stream(pinned, NULL) != HAL_NOT_FOUND) return 3;
  if (hal_host_free(pinned) != HAL_OK) return 4;
  if (hal_host_empty_cache(-1) != HAL_OK) return 5;
  if (hal_host_allocate(0, 64, &address) != HAL_FAILED_PRECONDITION) return 6;
  if (hal_memory_find(pinned, &device) != HAL_NOT_FOUND) return 7;
  return pinned[0] == 9 ? 0 : 8;
}

Test(host_memory_fake, a_forked_child_reads_and_drops_its_parents_memory) {
  int status = -1;
  open_late();
  char *pinned = take(COUNT);
  memset(pinned, 9, COUNT);
  const pid_t forked = fork();
  if (forked == 0) _exit(child(pinned));
  cr_assert_eq(waitpid(forked, &status, 0), forked);
  cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status 0x%x", status);
  int32_t device = -1;
  assert_ok(hal_host_find(pinned + COUNT - 1, &device));
  cr_assert_eq(pinned[0], 9);
  assert_ok(hal_host_free(pinned));
}
