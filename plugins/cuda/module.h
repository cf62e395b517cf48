/* module.h: modules and kernels; implemented in module.c, kernel.c and compile.c. */
#ifndef MODULE_H_
#define MODULE_H_

#include "compiler_api.h"
#include "cuda_plugin.h"

struct hal_plugin_kernel_s {
  CUfunction handle;
  hal_plugin_module_t *module;
  hal_plugin_kernel_t *next;
  int arg_count;                 /* -1: the driver is too old to report it */
  uint32_t sizes[CUDA_MAX_ARGS]; /* of the arguments, in bytes */
  int most_threads, shared_bytes;
  atomic_int most_shared; /* current maximum of a launch in bytes; more must be enabled first */
  hal_name_t *name;
};

struct hal_plugin_module_s {
  int32_t device;
  CUmodule handle;
  char *image; /* the driver's input: a cubin or PTX */
  size_t image_size;
  pthread_mutex_t lock; /* guards the list */
  hal_plugin_kernel_t *kernels;
};

/* Creates a kernel of a module; the context is current. Errors: HAL_NOT_FOUND. */
hal_status_t cuda_kernel_create(hal_plugin_module_t *module, const char *name, hal_plugin_kernel_t **out_kernel);
void cuda_kernel_destroy(hal_plugin_kernel_t *kernel);

/* Opens NVRTC; a second call returns immediately. Thread-safe. Errors: HAL_UNAVAILABLE, with what to install. */
hal_status_t cuda_compiler_open(void);

/* Compiles CUDA C to a cubin of the device, or to PTX if NVRTC does not support the device. The result ends with a NUL;
 * free it with hal_host->mem_free.
 * Errors: HAL_INVALID_ARGUMENT with the compiler's log, HAL_UNAVAILABLE = there is no compiler, with what to install.
 * */
hal_status_t cuda_compile(const cuda_device_t *device, const hal_module_desc_t *desc, char **out_image,
                          size_t *out_size);

/* Returns the relevant part of a compiler's log: from its first error on. */
const char *cuda_log_error(const char *log);

#endif /* MODULE_H_ */
