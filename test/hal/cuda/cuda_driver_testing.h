/* cuda_driver_testing.h: whether a test runs on the mock driver or on NVIDIA's driver (test/cuda_hardware.py). */
#ifndef TEST_HAL_CUDA_DRIVER_TESTING_H_
#define TEST_HAL_CUDA_DRIVER_TESTING_H_

#include <criterion/criterion.h>
#include <dlfcn.h>
#include <stdint.h>
#include <string.h>

static inline int is_on_mock(void) {
  void *const driver = dlopen("libcuda.so.1", RTLD_NOW);
  return !driver || dlsym(driver, "cuda_mock_fault_set");
}

/* Skips the test on NVIDIA's driver, on which a test can choose neither the number of devices nor a failure. */
static inline void needs_mock(const char *what) {
  if (!is_on_mock()) cr_skip_test("requires the mock driver: %s", what);
}

static inline void needs_two_devices(int32_t count) {
  if (count < 2) cr_skip_test("there is one device only");
}

#endif /* TEST_HAL_CUDA_DRIVER_TESTING_H_ */
