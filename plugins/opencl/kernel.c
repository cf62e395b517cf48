/* kernel.c: kernels and their launches. */
#include <string.h>

#include "capture.h"
#include "module.h"

/* ---- creation and destruction ----------------------------------------------------------------------------------- */

/* Not every driver reports it, and no driver for every binary. */
static uint8_t parameter_of(cl_kernel handle, cl_uint index) {
  cl_kernel_arg_address_qualifier where = 0;
  if (icd.clGetKernelArgInfo(handle, index, CL_KERNEL_ARG_ADDRESS_QUALIFIER, sizeof where, &where, NULL))
    return OCL_PARAMETER_UNKNOWN;
  switch (where) {
    case CL_KERNEL_ARG_ADDRESS_GLOBAL:
    case CL_KERNEL_ARG_ADDRESS_CONSTANT:
      return OCL_PARAMETER_POINTER;
    case CL_KERNEL_ARG_ADDRESS_LOCAL:
      return OCL_PARAMETER_LOCAL;
    case CL_KERNEL_ARG_ADDRESS_PRIVATE:
      return OCL_PARAMETER_VALUE;
    default:
      return OCL_PARAMETER_UNKNOWN;
  }
}

static hal_status_t read_kernel(hal_plugin_kernel_t *kernel) {
  const ocl_device_t *device = &ocl.devices[kernel->module->device];
  cl_int code =
      icd.clGetKernelInfo(kernel->handle, CL_KERNEL_NUM_ARGS, sizeof kernel->arg_count, &kernel->arg_count, NULL);
  if (code) return ocl_driver_error(code, "opencl: the kernel '%s' does not report its arguments", kernel->name);
  if (kernel->arg_count > OCL_MAX_ARGS)
    return ocl_error(HAL_INVALID_ARGUMENT, 0, "opencl: the kernel '%s' takes %u arguments; the maximum is %d",
                     kernel->name, (unsigned)kernel->arg_count, OCL_MAX_ARGS);
  if (icd.clGetKernelWorkGroupInfo(kernel->handle, device->id, CL_KERNEL_WORK_GROUP_SIZE, sizeof kernel->most_threads,
                                   &kernel->most_threads, NULL) ||
      kernel->most_threads > device->most_threads)
    kernel->most_threads = device->most_threads;
  for (cl_uint i = 0; i < kernel->arg_count; i++) kernel->parameters[i] = parameter_of(kernel->handle, i);
  return HAL_OK;
}

hal_status_t ocl_kernel_create(hal_plugin_module_t *module, const char *name, hal_plugin_kernel_t **out_kernel) {
  cl_int code = CL_SUCCESS;
  hal_plugin_kernel_t *kernel = hal_host->mem_alloc(sizeof *kernel, alignof(hal_plugin_kernel_t));
  hal_name_t *own_name = hal_name_make(name);
  if (!kernel || !own_name) {
    hal_host->mem_free(kernel);
    hal_host->mem_free(own_name);
    return ocl_error(HAL_RESOURCE_EXHAUSTED, 0, "opencl: no host memory for the kernel '%s'", name);
  }
  memset(kernel, 0, sizeof *kernel);
  kernel->own_name = own_name;
  kernel->name = own_name->text;
  kernel->module = module;
  kernel->handle = icd.clCreateKernel(module->program, name, &code);
  if (!code && !kernel->handle) code = CL_INVALID_KERNEL;
  hal_status_t status = HAL_OK;
  if (code == CL_INVALID_KERNEL_NAME)
    status = ocl_error(HAL_NOT_FOUND, code, "opencl: there is no kernel '%s' in the module", name);
  else if (code)
    status = ocl_driver_error(code, "opencl: cannot create the kernel '%s'", name);
  else
    status = read_kernel(kernel);
  if (status) {
    if (kernel->handle) icd.clReleaseKernel(kernel->handle);
    hal_host->mem_free(own_name);
    hal_host->mem_free(kernel);
    return status;
  }
  pthread_mutex_init(&kernel->lock, NULL);
  *out_kernel = kernel;
  return HAL_OK;
}

void ocl_kernel_destroy(hal_plugin_kernel_t *kernel) {
  icd.clReleaseKernel(kernel->handle);
  pthread_mutex_destroy(&kernel->lock);
  hal_name_drop(kernel->own_name, atomic_load(&ocl.keep_names));
  hal_host->mem_free(kernel);
}

hal_status_t hal_plugin_kernel_info(hal_plugin_kernel_t *kernel, uint32_t block_threads, uint32_t shared_bytes,
                                    hal_kernel_info_t *out_info) {
  const hal_status_t status = ocl_check_device(kernel->module->device);
  if (status) return status;
  const ocl_device_t *device = &ocl.devices[kernel->module->device];
  cl_ulong local = 0, private = 0;
  icd.clGetKernelWorkGroupInfo(kernel->handle, device->id, CL_KERNEL_LOCAL_MEM_SIZE, sizeof local, &local, NULL);
  icd.clGetKernelWorkGroupInfo(kernel->handle, device->id, CL_KERNEL_PRIVATE_MEM_SIZE, sizeof private, &private, NULL);
  const cl_ulong left = local < device->local_bytes ? device->local_bytes - local : 0;
  HAL_SET_FIELD(out_info, max_block_threads, (uint32_t)kernel->most_threads);
  HAL_SET_FIELD(out_info, subgroup_size, device->subgroup);
  HAL_SET_FIELD(out_info, shared_bytes, local < UINT32_MAX ? (uint32_t)local : UINT32_MAX);
  HAL_SET_FIELD(out_info, local_bytes, private);
  HAL_SET_FIELD(out_info, max_shared, left < UINT32_MAX ? (uint32_t)left : UINT32_MAX);
  /* OpenCL does not report how many more can run at the same time. */
  HAL_SET_FIELD(out_info, blocks_per_unit, block_threads <= kernel->most_threads && shared_bytes <= left ? 1 : 0);
  return HAL_OK;
}

/* ---- launches --------------------------------------------------------------------------------------------------- */

static hal_status_t refuse_geometry(const hal_plugin_kernel_t *kernel, const hal_launch_t *launch) {
  const uint32_t *grid = launch->grid, *block = launch->block;
  return ocl_error(
      HAL_INVALID_ARGUMENT, 0,
      "opencl: launch of '%s' with grid (%u, %u, %u) and block (%u, %u, %u); no size may be 0, and a block of this "
      "kernel has at most %zu threads on '%s'",
      kernel->name, (unsigned)grid[0], (unsigned)grid[1], (unsigned)grid[2], (unsigned)block[0], (unsigned)block[1],
      (unsigned)block[2], kernel->most_threads, ocl.devices[kernel->module->device].name);
}

/* This plugin supports no attribute, so it accepts a launch whose attributes are all hints. */
static int has_required(const hal_launch_t *launch) {
  if (!HAL_HAS_FIELD(launch, attribute_count)) return 0;
  for (uint32_t i = 0; i < launch->attribute_count; i++)
    if (launch->attributes[i].required) return 1;
  return 0;
}

static hal_status_t check_launch(const hal_plugin_kernel_t *kernel, const hal_plugin_stream_t *stream,
                                 const hal_launch_t *launch) {
  const uint32_t *grid = launch->grid, *block = launch->block;
  hal_status_t status = ocl_check_device(kernel->module->device);
  if (OCL_UNLIKELY(status)) return status;
  if (OCL_UNLIKELY(launch->struct_size < HAL_STRUCT_SIZE(hal_launch_t, args)))
    return ocl_error(HAL_INCOMPATIBLE, 0, "opencl: launch of '%s' with a launch of %zu bytes; rebuild the caller",
                     kernel->name, launch->struct_size);
  if (OCL_UNLIKELY(stream && stream->device != kernel->module->device))
    return ocl_error(HAL_INVALID_ARGUMENT, 0, "opencl: launch of '%s' of device %d on a stream of device %d",
                     kernel->name, (int)kernel->module->device, (int)stream->device);
  if (OCL_UNLIKELY(!grid[0] || !grid[1] || !grid[2] || !block[0] || !block[1] || !block[2] ||
                   block[0] > kernel->most_threads || block[1] > kernel->most_threads ||
                   block[2] > kernel->most_threads || (uint64_t)block[0] * block[1] * block[2] > kernel->most_threads))
    return refuse_geometry(kernel, launch);
  if (OCL_UNLIKELY(launch->shared_bytes))
    return ocl_error(
        HAL_INVALID_ARGUMENT, 0,
        "opencl: launch of '%s' with %u shared bytes; OpenCL has local memory in arguments: pass a HAL_ARG_LOCAL",
        kernel->name, (unsigned)launch->shared_bytes);
  if (OCL_UNLIKELY(has_required(launch)))
    return ocl_error(HAL_UNIMPLEMENTED, 0, "opencl: launch of '%s' with a required attribute; OpenCL supports none",
                     kernel->name);
  return HAL_OK;
}

hal_status_t hal_plugin_kernel_launch(hal_plugin_kernel_t *kernel, hal_plugin_stream_t *stream,
                                      const hal_launch_t *launch) {
  hal_status_t status = check_launch(kernel, stream, launch);
  if (OCL_UNLIKELY(status)) return status;
  if (ocl_is_captured(stream)) return ocl_capture_launch(stream, kernel, launch);
  size_t local[3], global[3];
  cl_uint dimensions;
  ocl_launch_sizes(launch, &dimensions, global, local);
  ocl_submit_t submit;
  ocl_views_t views;
  views.count = 0; /* the rest of the array need not be cleared */
  views.near.base = NULL;
  cl_int code = CL_SUCCESS;
  pthread_mutex_lock(&kernel->lock);
  status = ocl_kernel_set_args(kernel, kernel->handle, launch, &views);
  if (OCL_LIKELY(!status)) status = ocl_submit_begin(&submit, stream, kernel->module->device, "kernel_launch");
  if (OCL_LIKELY(!status)) {
    submit.work.kernel = kernel->name;
    code = icd.clEnqueueNDRangeKernel(submit.queue, kernel->handle, dimensions, NULL, global, local, 0, NULL,
                                      &submit.work.event);
  }
  if (OCL_UNLIKELY(views.count)) ocl_views_release(&views);
  pthread_mutex_unlock(&kernel->lock);
  return OCL_UNLIKELY(status) ? status : ocl_submit_end(&submit, code);
}
