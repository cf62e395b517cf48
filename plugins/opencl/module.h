/* module.h: modules and kernels, of module.c and kernel.c. */
#ifndef MODULE_H_
#define MODULE_H_

#include "opencl.h"

/* What an argument of a kernel is. */
enum { OCL_PARAMETER_UNKNOWN, OCL_PARAMETER_VALUE, OCL_PARAMETER_POINTER, OCL_PARAMETER_LOCAL };

struct hal_plugin_kernel_s {
  cl_kernel handle;
  hal_plugin_module_t *module;
  hal_plugin_kernel_t *next;
  pthread_mutex_t lock; /* a cl_kernel keeps its arguments: they are set and the kernel is queued under it */
  size_t most_threads;
  cl_uint arg_count;
  uint8_t parameters[OCL_MAX_ARGS]; /* OCL_PARAMETER_* */
  const char *name;
  hal_name_t *own_name;
};

struct hal_plugin_module_s {
  int32_t device;
  cl_program program;
  pthread_mutex_t lock; /* of the list */
  hal_plugin_kernel_t *kernels;
};

/* Makes a kernel of a module. Errors: HAL_NOT_FOUND. */
hal_status_t ocl_kernel_create(hal_plugin_module_t *module, const char *name, hal_plugin_kernel_t **out_kernel);

void ocl_kernel_destroy(hal_plugin_kernel_t *kernel);

/* Views of buffers that a launch has made (argument.c), and the segment that its last address was in. */
typedef struct ocl_views_s {
  uint32_t count;
  ocl_segment_t near;
  cl_mem views[OCL_MAX_ARGS];
} ocl_views_t;

/* Sets the arguments of a launch on `handle`, the kernel's own, whose lock is held, or another object of it. `views` are released when
 * the kernel is queued, or recorded no more. Errors: HAL_INVALID_ARGUMENT. */
hal_status_t ocl_kernel_set_args(const hal_plugin_kernel_t *kernel, cl_kernel handle, const hal_launch_t *launch,
                                 ocl_views_t *views);
void ocl_views_release(ocl_views_t *views);

/* A launch in the driver's terms: items in all, and of a group. */
static inline void ocl_launch_sizes(const hal_launch_t *launch, cl_uint *out_dimensions, size_t *global,
                                    size_t *local) {
  for (int i = 0; i < 3; i++) {
    local[i] = launch->block[i];
    global[i] = (size_t)launch->grid[i] * launch->block[i];
  }
  *out_dimensions = global[2] > 1 ? 3 : global[1] > 1 ? 2 : 1;
}

#endif /* MODULE_H_ */
