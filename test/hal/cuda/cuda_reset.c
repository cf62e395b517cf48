/* Tests of device reset, hints and names on the CUDA plugin. */
#include "cuda_testing.h"

TestSuite(cuda_reset, .init = open_cuda, .fini = close_opencl, .timeout = 120);

/* A kernel of the test, which is unloaded afterwards. */
static hal_status_t launch(char *to) {
  hal_module_t *module;
  hal_kernel_t *kernel;
  const hal_arg_t args[] = {POINTER(to)};
  assert_ok(load_source(0, SLOW_SOURCE, "", &module));
  assert_ok(hal_kernel_get(module, "add_one", &kernel));
  hal_status_t status = launch_1d(kernel, NULL, 1, 1, args, 1);
  if (!status) status = hal_device_synchronize(0);
  hal_module_unload(module);
  return status;
}

static hal_status_t count_to_one(void) {
  hal_block_t *block = NULL;
  uint32_t number = 0;
  HAL_RETURN_IF_ERROR(hal_memory_allocate(0, NULL, 4, &block));
  char *const to = hal_memory_block_address(block);
  hal_status_t status = hal_memory_fill(NULL, 0, to, &number, 4, 4);
  if (!status) status = launch(to);
  if (!status) status = hal_memory_copy(NULL, &number, HAL_HOST, to, 0, 4);
  if (!status) status = hal_device_synchronize(0);
  hal_memory_release(block);
  cr_assert(status || number == 1, "%u", (unsigned)number);
  return status;
}

Test(cuda_reset, a_lost_device_works_again) {
  for (int i = 0; i < 2; i++) {
    assert_ok(count_to_one());
    set_fault("code=700,lost=1");
    assert_fails(count_to_one(), HAL_UNAVAILABLE, "");
    set_fault("lost=-1");
    assert_fails(count_to_one(), HAL_UNAVAILABLE, "is lost");
    assert_ok(hal_device_reset(0));
  }
  assert_ok(count_to_one());
}

Test(cuda_reset, a_driver_that_does_not_reset_leaves_the_device_unavailable_until_it_does) {
  assert_ok(count_to_one());
  set_fault("reset=1");
  assert_fails(hal_device_reset(0), HAL_UNAVAILABLE, "cannot be reset");
  cr_assert_not_null(strstr(hal_error_message(), "CUDA_ERROR_DEVICE_UNAVAILABLE"), "%s", hal_error_message());
  assert_fails(count_to_one(), HAL_UNAVAILABLE, "is lost");
}

static void count_hints(int *out_prefetches, int *out_advice) {
  void (*read)(int *, int *) = NULL;
  void *const symbol = driver_symbol("cuda_mock_hints");
  memcpy(&read, &symbol, sizeof symbol);
  read(out_prefetches, out_advice);
}

Test(cuda_hints, hints_reach_the_driver_for_memory_that_moves, .fini = close_opencl, .timeout = 120) {
  static char bytes[8192];
  int prefetches = 0, advice = 0;
  hal_block_t *block;
  needs_mock("CUDA_MOCK_PAGEABLE");
  setenv("CUDA_MOCK_PAGEABLE", "1", 1);
  open_cuda();
  assert_ok(hal_memory_allocate(0, NULL, 4096, &block));
  void *const fixed = hal_memory_block_address(block);
  assert_ok(hal_memory_prefetch(0, NULL, fixed, 4096, HAL_HOST)); /* does not move: no call */
  assert_ok(hal_memory_advise(0, fixed, 4096, HAL_ADVICE_PREFERRED, HAL_HOST));
  count_hints(&prefetches, &advice);
  cr_assert(prefetches == 0 && advice == 0);
  assert_ok(hal_memory_prefetch(0, NULL, bytes, sizeof bytes, 0));
  assert_ok(hal_memory_prefetch(0, NULL, bytes, sizeof bytes, HAL_HOST));
  assert_ok(hal_memory_prefetch(0, NULL, bytes, sizeof bytes, 1));
  for (uint32_t i = HAL_ADVICE_READ_MOSTLY; i <= HAL_ADVICE_NOT_ACCESSED; i++)
    assert_ok(hal_memory_advise(0, bytes, sizeof bytes, i, i % 2 ? 0 : HAL_HOST));
  count_hints(&prefetches, &advice);
  cr_assert(prefetches == 3 && advice == 6, "%d prefetches, %d pieces of advice", prefetches, advice);
  hal_memory_release(block);
}

Test(cuda_reset, without_such_memory_no_hint_is_an_error) {
  static char bytes[64];
  int prefetches = 0, advice = 0;
  assert_ok(hal_memory_prefetch(0, NULL, bytes, sizeof bytes, 0));
  assert_ok(hal_memory_advise(0, bytes, sizeof bytes, HAL_ADVICE_ACCESSED, 0));
  if (!is_on_mock()) return;
  count_hints(&prefetches, &advice);
  cr_assert(prefetches == 0 && advice == 0);
}
