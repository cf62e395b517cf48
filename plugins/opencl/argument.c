/* argument.c: the arguments of a launch, by kind of memory.
 *
 * If memory consists of buffer objects, an address is a buffer and an offset in it. Portable kernels are then built
 * with
 * PK_POINTER_OFFSETS: they take an offset, a ulong, after each pointer. A program's own kernels do not, which their
 * number
 * of arguments shows. They receive a view of the buffer that begins at the offset, which the device must be able to
 * address. */
#include <string.h>

#include "module.h"

static hal_status_t refuse_arg(const hal_plugin_kernel_t *kernel, uint32_t index, uint32_t parameter,
                               const hal_arg_t *arg) {
  static const char *const kinds[] = {"a value", "a pointer", "local memory"};
  static const char *const wanted[] = {"something else", "a value", "a pointer", "local memory"};
  return ocl_error(HAL_INVALID_ARGUMENT, 0,
                   "opencl: argument %u of '%s' is %s of %u bytes at %p; the kernel takes %s. A pointer has %zu bytes, "
                   "no size is 0, "
                   "and only local memory has no address",
                   (unsigned)index, kernel->name, arg->kind < 3 ? kinds[arg->kind] : "of an unknown kind",
                   (unsigned)arg->size, arg->value, wanted[parameter], sizeof(void *));
}

void ocl_views_release(ocl_views_t *views) { /* queued kernels keep a reference */
  while (views->count) icd.clReleaseMemObject(views->views[--views->count]);
}

/* Replaces `*memory` by a view that begins at `offset` and has `left` bytes. */
static hal_status_t make_view(const hal_plugin_kernel_t *kernel, uint32_t index, size_t offset, size_t left,
                              ocl_views_t *views, cl_mem *memory) {
  const cl_uint alignment = ocl.devices[kernel->module->device].alignment;
  const cl_buffer_region region = {.origin = offset, .size = left};
  cl_int code = CL_SUCCESS;
  if (offset % alignment || !left)
    return ocl_error(
        HAL_INVALID_ARGUMENT, 0,
        "opencl: argument %u of '%s' is %zu bytes after the start of its allocation; without shared virtual memory a "
        "kernel that "
        "takes no offsets needs a multiple of %u. Copy it to the start of an allocation, or build the kernel with "
        "PK_POINTER_OFFSETS",
        (unsigned)index, kernel->name, offset, (unsigned)alignment);
  *memory = icd.clCreateSubBuffer(*memory, CL_MEM_READ_WRITE, CL_BUFFER_CREATE_TYPE_REGION, &region, &code);
  if (!code && !*memory) code = CL_INVALID_MEM_OBJECT;
  if (code)
    return ocl_driver_error(code, "opencl: argument %u of '%s' is not a valid view of its buffer", (unsigned)index,
                            kernel->name);
  views->views[views->count++] = *memory;
  return HAL_OK;
}

/* Finds the segment of an operand that is in another segment than the one before. */
static __attribute__((noinline)) hal_status_t find_segment(const hal_plugin_kernel_t *kernel, void *address,
                                                           ocl_segment_t *near) {
  ocl_place_t place;
  return ocl_place("kernel_launch", kernel->module->device, address, 0, near, &place);
}

/* Sets a pointer if memory consists of buffer objects; advances `*at`, the index of the parameter. */
static hal_status_t set_buffer(const hal_plugin_kernel_t *kernel, cl_kernel handle, uint32_t index, void *address,
                               int offsets, cl_uint *at, ocl_views_t *views) {
  ocl_segment_t *const near = &views->near;
  hal_status_t status = HAL_OK;
  cl_mem memory = NULL;
  cl_ulong offset = 0;
  if (address) {
    if (OCL_UNLIKELY(!near->base || (uintptr_t)address - (uintptr_t)near->base >= near->size))
      status = find_segment(kernel, address, near);
    memory = near->memory;
    offset = (uintptr_t)address - (uintptr_t)near->base;
    if (OCL_UNLIKELY(!status && offset && !offsets))
      status = make_view(kernel, index, offset, near->size - offset, views, &memory);
    if (OCL_UNLIKELY(status)) return status;
  }
  cl_int code = icd.clSetKernelArg(handle, (*at)++, sizeof memory, memory ? &memory : NULL);
  if (offsets && !code) code = icd.clSetKernelArg(handle, (*at)++, sizeof offset, &offset);
  if (code) return ocl_driver_error(code, "opencl: argument %u of '%s' was refused", (unsigned)index, kernel->name);
  return HAL_OK;
}

static cl_int set_pointer(cl_kernel handle, cl_uint at, void *address) {
  if (ocl.memory == OCL_MEMORY_USM) return ocl.usm.set_arg(handle, at, address);
  return icd.clSetKernelArgSVMPointer(handle, at, address);
}

/* Sets one argument. The driver reads the value during the call. */
static hal_status_t set_arg(const hal_plugin_kernel_t *kernel, cl_kernel handle, uint32_t index, const hal_arg_t *arg,
                            int offsets, cl_uint *at, ocl_views_t *views) {
  const uint32_t parameter = kernel->parameters[*at];
  cl_int code = CL_SUCCESS;
  if (OCL_UNLIKELY(arg->kind > HAL_ARG_LOCAL || (parameter && parameter != arg->kind + 1) || !arg->size ||
                   !arg->value != (arg->kind == HAL_ARG_LOCAL) ||
                   (arg->kind == HAL_ARG_POINTER && arg->size != sizeof(void *))))
    return refuse_arg(kernel, index, parameter, arg);
  if (arg->kind == HAL_ARG_POINTER) {
    void *address;
    memcpy(&address, arg->value, sizeof address);
    if (ocl.memory == OCL_MEMORY_BUFFER) return set_buffer(kernel, handle, index, address, offsets, at, views);
    code = set_pointer(handle, (*at)++, address);
  } else {
    code = icd.clSetKernelArg(handle, (*at)++, arg->size, arg->value);
  }
  if (OCL_LIKELY(!code)) return HAL_OK;
  return ocl_driver_error(code, "opencl: argument %u of '%s' of %u bytes was refused", (unsigned)index, kernel->name,
                          (unsigned)arg->size);
}

hal_status_t ocl_kernel_set_args(const hal_plugin_kernel_t *kernel, cl_kernel handle, const hal_launch_t *launch,
                                 ocl_views_t *views) {
  uint32_t pointers = 0;
  if (ocl.memory == OCL_MEMORY_BUFFER && kernel->arg_count != launch->arg_count)
    for (uint32_t i = 0; i < launch->arg_count; i++) pointers += launch->args[i].kind == HAL_ARG_POINTER;
  const int offsets = pointers && kernel->arg_count == launch->arg_count + pointers;
  if (OCL_UNLIKELY(launch->arg_count != kernel->arg_count && !offsets))
    return ocl_error(HAL_INVALID_ARGUMENT, 0, "opencl: launch of '%s' with %u arguments; it takes %u", kernel->name,
                     (unsigned)launch->arg_count, (unsigned)kernel->arg_count);
  cl_uint at = 0;
  for (uint32_t i = 0; i < launch->arg_count; i++) {
    const hal_status_t status = set_arg(kernel, handle, i, &launch->args[i], offsets, &at, views);
    if (OCL_UNLIKELY(status)) return status;
  }
  return HAL_OK;
}
