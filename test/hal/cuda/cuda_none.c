/* Tests of the CUDA plugin on a machine without NVIDIA's driver; skipped if the driver is installed. */
#include "cuda_testing.h"

TestSuite(cuda_none, .fini = close_opencl);

Test(cuda_none, without_a_driver_there_is_no_device_and_the_message_names_what_to_install) {
  void *const driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (driver) cr_skip_test("this machine has a driver");
  assert_fails(open_cuda_with(NULL, NULL), HAL_UNAVAILABLE, "libcuda.so.1 cannot be loaded");
  cr_assert_not_null(strstr(hal_error_message(), "install NVIDIA's driver, of version 465"), "%s", hal_error_message());
  cr_assert_eq(hal_device_count(), 0);
}
