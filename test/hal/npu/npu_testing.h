/* npu_testing.h: the Level Zero plugin on the CPU driver of test/doubles, with the system's loader. */
#ifndef TEST_HAL_NPU_TESTING_H_
#define TEST_HAL_NPU_TESTING_H_

#include <dlfcn.h>
#include <stdlib.h>

#include "opencl/opencl_testing.h"

static inline void use_double(const char *devices) {
  setenv("ZE_ENABLE_ALT_DRIVERS", ZE_DRIVER, 1);
  setenv("ZE_CPU_DEVICES", devices, 1);
  setenv("HAL_TEST_PLUGIN", "npu", 1);
}

static inline void open_npu(void) {
  use_double("2");
  open_opencl();
}

/* Returns a function of the driver (test/doubles/ze_cpu_driver/README.md), which is loaded at the first use of a
   device. */
static inline void *driver_function(const char *name) {
  hal_device_info_t info = {.struct_size = sizeof info};
  assert_ok(hal_device_info(0, &info));
  void *const driver = dlopen(ZE_DRIVER, RTLD_NOW | RTLD_NOLOAD);
  cr_assert_not_null(driver, "%s is not loaded", ZE_DRIVER);
  void *const symbol = dlsym(driver, name);
  cr_assert_not_null(symbol);
  dlclose(driver); /* the plugin keeps it */
  return symbol;
}

/* Sets faults of the driver, "name=number,...". */
static inline void set_fault(const char *text) {
  int (*set)(const char *) = NULL;
  void *const symbol = driver_function("ze_cpu_fault_set");
  memcpy(&set, &symbol, sizeof symbol);
  cr_assert_eq(set(text), 0, "no fault '%s'", text);
}

/* Returns a bit for each queue of the group for which lists were created. */
static inline uint32_t queues_used(void) {
  uint32_t (*indices)(void) = NULL;
  void *const symbol = driver_function("ze_cpu_queue_indices");
  memcpy(&indices, &symbol, sizeof symbol);
  return indices();
}

#endif /* TEST_HAL_NPU_TESTING_H_ */
