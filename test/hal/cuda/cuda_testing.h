/* cuda_testing.h: the CUDA plugin on the libraries of test/doubles/cuda_mock, which LD_LIBRARY_PATH names. */
#ifndef TEST_HAL_CUDA_TESTING_H_
#define TEST_HAL_CUDA_TESTING_H_

#include "cuda_driver_testing.h"
#include "opencl/opencl_testing.h"

static inline hal_status_t open_cuda_with(const char *name, const char *value) {
  setenv("HAL_TEST_PLUGIN", "cuda", 1);
  if (name && !strncmp(name, "CUDA_MOCK", 13)) needs_mock(name);
  if (name) setenv(name, value, 1);
  assert_ok(hal_registry_add_path(PLUGIN_DIR));
  return hal_registry_open("cuda");
}

/* Two devices, both in use. */
static inline void open_cuda(void) {
  hal_device_info_t info = {.struct_size = sizeof info};
  setenv("CUDA_MOCK_DEVICES", "2", 1);
  assert_ok(open_cuda_with(NULL, NULL));
  assert_ok(hal_device_info(0, &info));
}

/* A function of the mock driver that the plugin has loaded. */
static inline void *driver_symbol(const char *name) {
  void *const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  cr_assert_not_null(driver, "libcuda.so.1 is not loaded");
  void *const symbol = dlsym(driver, name);
  cr_assert_not_null(symbol, "%s", name);
  return symbol;
}

/* Sets faults of the driver, "name=number,...": test/doubles/cuda_mock/README.md. */
static inline void set_fault(const char *text) {
  int (*set)(const char *) = NULL;
  needs_mock(text);
  void *const symbol = driver_symbol("cuda_mock_fault_set");
  memcpy(&set, &symbol, sizeof symbol);
  cr_assert_eq(set(text), 0, "no fault '%s'", text);
}

#endif /* TEST_HAL_CUDA_TESTING_H_ */
