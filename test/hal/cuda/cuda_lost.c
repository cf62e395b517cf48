/* Tests of a lost device by direct calls of the plugin: the host stops its calls after the first failure. */
#include <time.h>

#include "cuda_plugin_testing.h"

TestSuite(cuda_lost, .init = open_plugin);

/* Stores the driver's function in the pointer at `out_function`. */
static void find(const char *name, void *out_function) {
  void *const symbol = dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), name);
  cr_assert_not_null(symbol, "%s", name);
  memcpy(out_function, &symbol, sizeof symbol);
}

static void set_fault(const char *text) {
  int (*set)(const char *) = NULL;
  find("cuda_mock_fault_set", &set);
  cr_assert_eq(set(text), 0, "no fault '%s'", text);
}

/* The first failure is the cause. Work that another stream has queued may end later with another one. */
Test(cuda_lost, the_error_that_came_first_is_kept) {
  enum { LATER = 6, ILLEGAL_ADDRESS = 700 };
  hal_plugin_stream_t *first = NULL, *second = NULL;
  void *more = NULL, *handle = NULL;
  int (*ask)(void *) = NULL; /* cuStreamQuery: a query of the plugin would report the failure, once */
  needs_mock("failures");
  find("cuStreamQuery", &ask);
  OK(api.stream_create(0, &(const hal_stream_desc_t)HAL_STREAM_DESC(0), &first));
  OK(api.stream_create(0, &(const hal_stream_desc_t)HAL_STREAM_DESC(0), &second));
  OK(api.stream_native(second, &handle));
  uint32_t *const word = words_on(0, 64);
  hal_plugin_kernel_t *const kernel = adder(0);
  set_fault("delay=50000,lost=0"); /* 719 */
  OK(queue_add(kernel, first, word, 1));
  for (int i = 0; i < LATER; i++) OK(queue_add(kernel, second, word, 1));
  FAILS(api.stream_synchronize(first), HAL_UNAVAILABLE, "CUDA_ERROR_LAUNCH_FAILED (719)");
  set_fault("code=700,lost=0");
  for (int i = 0; i < 20000 && ask(handle) != ILLEGAL_ADDRESS; i++)
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  FAILS(api.stream_synchronize(second), HAL_UNAVAILABLE, "CUDA_ERROR_ILLEGAL_ADDRESS (700)");
  FAILS(queue_add(kernel, first, word, 1), HAL_UNAVAILABLE, "is lost since CUDA_ERROR_LAUNCH_FAILED (719)");
  FAILS(api.memory_alloc(0, 64, 0, &more), HAL_UNAVAILABLE, "is lost since CUDA_ERROR_LAUNCH_FAILED (719)");
}
