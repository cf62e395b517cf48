/* module.h: modules and kernels; implemented in module.c and kernel.c. */
#ifndef MODULE_H_
#define MODULE_H_

#include "opencl.h"

/* The kind of a kernel's argument. */
enum { OCL_PARAMETER_UNKNOWN, OCL_PARAMETER_VALUE, OCL_PARAMETER_POINTER, OCL_PARAMETER_LOCAL };

struct hal_plugin_kernel_s {
  cl_kernel handle;
  hal_plugin_module_t *module;
  hal_plugin_kernel_t *next;
  /* A cl_kernel stores its arguments, so they are set and the kernel is queued while this lock is held */
  pthread_mutex_t lock;
  size_t most_threads;
  cl_uint arg_count;
  uint8_t parameters[OCL_MAX_ARGS]; /* OCL_PARAMETER_* */
  const char *name;
  hal_name_t *own_name;
};

struct hal_plugin_module_s {
  int32_t device;
  cl_program program;
  pthread_mutex_t lock; /* guards the list */
  hal_plugin_kernel_t *kernels;
};

/* Creates a kernel of a module. Errors: HAL_NOT_FOUND. */
hal_status_t ocl_kernel_create(hal_plugin_module_t *module, const char *name, hal_plugin_kernel_t **out_kernel);

void ocl_kernel_destroy(hal_plugin_kernel_t *kernel);

/* Views of buffers that a launch has created (argument.c), and the segment of its last address. */
typedef struct ocl_views_s {
  uint32_t count;
  ocl_segment_t near;
  cl_mem views[OCL_MAX_ARGS];
} ocl_views_t;

/* Sets the arguments of a launch on `handle`, the kernel's own one, whose lock the caller holds, or another object of
 * it. The caller releases `views` when the kernel is queued, or no longer recorded. Errors: HAL_INVALID_ARGUMENT. */
hal_status_t ocl_kernel_set_args(const hal_plugin_kernel_t *kernel, cl_kernel handle, const hal_launch_t *launch,
                                 ocl_views_t *views);
void ocl_views_release(ocl_views_t *views);

/* Converts a launch to the driver's terms: the total number of items, and that of a group. */
static inline void ocl_launch_sizes(const hal_launch_t *launch, cl_uint *out_dimensions, size_t *global,
                                    size_t *local) {
  for (int i = 0; i < 3; i++) {
    local[i] = launch->block[i];
    global[i] = (size_t)launch->grid[i] * launch->block[i];
  }
  *out_dimensions = global[2] > 1 ? 3 : global[1] > 1 ? 2 : 1;
}

#endif /* MODULE_H_ */
