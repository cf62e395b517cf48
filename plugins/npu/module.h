/* module.h: modules and kernels; implemented in module.c and kernel.c. */
#ifndef MODULE_H_
#define MODULE_H_

#include <hal/plugin_clang.h>
#include <hal/plugin_spirv.h>

#include "npu.h"

struct hal_plugin_kernel_s {
  ze_kernel_handle_t handle;
  hal_plugin_module_t *module;
  hal_plugin_kernel_t *next;
  /* A kernel stores its arguments and its size, so they are set and it is appended while this lock is held */
  pthread_mutex_t lock;
  hal_spirv_signature_t signature; /* because the driver would accept a number as an address */
  uint32_t block[3];
  uint32_t local_bytes, private_bytes, subgroup;
  hal_name_t *name;
};

struct hal_plugin_module_s {
  int32_t device;
  ze_module_handle_t handle;
  uint32_t *words; /* its SPIR-V, which describes the arguments of kernels */
  size_t word_count;
  pthread_mutex_t lock; /* guards the list */
  hal_plugin_kernel_t *kernels;
};

/* Creates a kernel of a module. Errors: HAL_NOT_FOUND. */
hal_status_t npu_kernel_create(hal_plugin_module_t *module, const char *name, hal_plugin_kernel_t **out_kernel);
void npu_kernel_destroy(hal_plugin_kernel_t *kernel);

#endif /* MODULE_H_ */
