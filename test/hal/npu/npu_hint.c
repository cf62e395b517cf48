/* Tests of memory hints on the Level Zero plugin: only hints for shared memory reach the driver. */
#include "npu_testing.h"

TestSuite(npu_hint, .fini = close_opencl, .timeout = 120);

enum { ROOM = 1 << 16 };

/* Calls each hint for memory of device 0, and compares the number of calls that reach the driver. */
static void expect_hints(int prefetches, int advice) {
  void (*read)(int *, int *) = NULL;
  int prefetched = 0, advised = 0;
  char *const memory = device_bytes(0, ROOM);
  hal_stream_t *stream = NULL;
  assert_ok(hal_stream_acquire(0, 0, &stream));
  assert_ok(hal_memory_prefetch(0, stream, memory, ROOM, 0));
  assert_ok(hal_memory_prefetch(0, NULL, memory + 100, 1000, 0));
  assert_ok(hal_memory_prefetch(0, NULL, memory, ROOM, HAL_HOST)); /* the driver lacks this call and the next one */
  assert_ok(hal_memory_prefetch(0, NULL, memory, ROOM, 1));
  for (uint32_t i = HAL_ADVICE_READ_MOSTLY; i <= HAL_ADVICE_NOT_ACCESSED; i++) {
    assert_ok(hal_memory_advise(0, memory, ROOM, i, 1));
    assert_ok(hal_memory_advise(0, memory, ROOM, i, HAL_HOST));
  }
  assert_ok(hal_stream_synchronize(stream));
  void *const symbol = driver_function("ze_cpu_hints");
  memcpy(&read, &symbol, sizeof symbol);
  read(&prefetched, &advised);
  cr_assert(prefetched == prefetches && advised == advice, "%d prefetches, %d pieces of advice", prefetched, advised);
}

Test(npu_hint, of_shared_memory_they_reach_the_driver) {
  setenv("HAL_NPU_MEMORY", "shared", 1);
  open_npu();
  expect_hints(2, 6);
}

Test(npu_hint, of_the_devices_own_memory_none_does) {
  setenv("HAL_NPU_MEMORY", "device", 1);
  open_npu();
  expect_hints(0, 0);
}
