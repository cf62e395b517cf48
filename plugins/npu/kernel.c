/* kernel.c: kernels and their launches. */
#include <string.h>

#include "module.h"

/* ---- creation and destruction ----------------------------------------------------------------------------------- */

static hal_status_t read_kernel(hal_plugin_kernel_t *kernel) {
  ze_kernel_properties_t facts = {.stype = ZE_STRUCTURE_TYPE_KERNEL_PROPERTIES};
  const ze_result_t code = ze.zeKernelGetProperties(kernel->handle, &facts);
  if (code) return npu_driver_error(code, "npu: the kernel '%s' does not report its arguments", kernel->name->text);
  const hal_plugin_module_t *const module = kernel->module;
  if (!hal_spirv_signature(module->words, module->word_count, kernel->name->text, &kernel->signature) ||
      facts.numKernelArgs != kernel->signature.count)
    return npu_error(
        HAL_INTERNAL, 0,
        "npu: the kernel '%s' takes %u arguments according to the driver, but %u in its SPIR-V; load the module again",
        kernel->name->text, (unsigned)facts.numKernelArgs, (unsigned)kernel->signature.count);
  if (facts.numKernelArgs > NPU_MAX_ARGS)
    return npu_error(HAL_INVALID_ARGUMENT, 0, "npu: the kernel '%s' takes %u arguments; the maximum is %d",
                     kernel->name->text, (unsigned)facts.numKernelArgs, NPU_MAX_ARGS);
  kernel->local_bytes = facts.localMemSize;
  kernel->private_bytes = facts.privateMemSize + facts.spillMemSize;
  kernel->subgroup = facts.maxSubgroupSize;
  return HAL_OK;
}

static hal_status_t make_handle(hal_plugin_kernel_t *kernel) {
  const ze_kernel_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_KERNEL_DESC, .pKernelName = kernel->name->text};
  ze_result_t code = ze.zeKernelCreate(kernel->module->handle, &desc, &kernel->handle);
  if (!code && !kernel->handle) code = ZE_RESULT_ERROR_UNKNOWN;
  if (code == ZE_RESULT_ERROR_INVALID_KERNEL_NAME)
    return npu_error(HAL_NOT_FOUND, (int64_t)code, "npu: there is no kernel '%s' in the module", desc.pKernelName);
  if (code) return npu_driver_error(code, "npu: cannot create the kernel '%s'", desc.pKernelName);
  return read_kernel(kernel);
}

hal_status_t npu_kernel_create(hal_plugin_module_t *module, const char *name, hal_plugin_kernel_t **out_kernel) {
  hal_plugin_kernel_t *kernel = hal_host->mem_alloc(sizeof *kernel, alignof(hal_plugin_kernel_t));
  hal_name_t *own_name = hal_name_make(name);
  hal_status_t status = HAL_RESOURCE_EXHAUSTED;
  if (!kernel || !own_name) {
    npu_error(status, 0, "npu: no host memory for the kernel '%s'", name);
    goto cleanup;
  }
  *kernel = (hal_plugin_kernel_t){.module = module, .name = own_name};
  status = make_handle(kernel);
  if (status) {
    if (kernel->handle) ze.zeKernelDestroy(kernel->handle);
    goto cleanup;
  }
  pthread_mutex_init(&kernel->lock, NULL);
  *out_kernel = kernel;
  return HAL_OK;
cleanup:
  if (own_name) hal_name_drop(own_name, 0);
  hal_host->mem_free(kernel);
  return status;
}

void npu_kernel_destroy(hal_plugin_kernel_t *kernel) {
  ze.zeKernelDestroy(kernel->handle);
  pthread_mutex_destroy(&kernel->lock);
  hal_name_drop(kernel->name, atomic_load(&npu.keep_names));
  hal_host->mem_free(kernel);
}

hal_status_t hal_plugin_kernel_info(hal_plugin_kernel_t *kernel, uint32_t block_threads, uint32_t shared_bytes,
                                    hal_kernel_info_t *out_info) {
  const hal_status_t status = npu_check_device(kernel->module->device);
  if (status) return status;
  const ze_device_compute_properties_t *limits = &npu.devices[kernel->module->device].compute;
  const uint32_t local = kernel->local_bytes, most = limits->maxSharedLocalMemory,
                 left = local < most ? most - local : 0;
  HAL_SET_FIELD(out_info, max_block_threads, limits->maxTotalGroupSize);
  HAL_SET_FIELD(out_info, subgroup_size, kernel->subgroup);
  HAL_SET_FIELD(out_info, shared_bytes, local);
  HAL_SET_FIELD(out_info, local_bytes, kernel->private_bytes);
  HAL_SET_FIELD(out_info, max_shared, left);
  /* Level Zero 1.4 does not report how many more can run at the same time. */
  HAL_SET_FIELD(out_info, blocks_per_unit, block_threads <= limits->maxTotalGroupSize && shared_bytes <= left ? 1 : 0);
  return HAL_OK;
}

/* ---- launches --------------------------------------------------------------------------------------------------- */

static hal_status_t refuse_geometry(const hal_plugin_kernel_t *kernel, const hal_launch_t *launch) {
  const uint32_t *grid = launch->grid, *block = launch->block;
  const npu_device_t *const device = &npu.devices[kernel->module->device];
  const ze_device_compute_properties_t *limits = &device->compute;
  return npu_error(
      HAL_INVALID_ARGUMENT, 0,
      "npu: launch of '%s' with grid (%u, %u, %u) and block (%u, %u, %u); no size may be 0, a block has at most "
      "%u threads, (%u, %u, %u) of them, and a grid (%u, %u, %u) blocks on '%s'",
      kernel->name->text, (unsigned)grid[0], (unsigned)grid[1], (unsigned)grid[2], (unsigned)block[0],
      (unsigned)block[1], (unsigned)block[2], (unsigned)limits->maxTotalGroupSize, (unsigned)limits->maxGroupSizeX,
      (unsigned)limits->maxGroupSizeY, (unsigned)limits->maxGroupSizeZ, (unsigned)limits->maxGroupCountX,
      (unsigned)limits->maxGroupCountY, (unsigned)limits->maxGroupCountZ, device->facts.name);
}

static int geometry_fits(const ze_device_compute_properties_t *limits, const uint32_t *grid, const uint32_t *block) {
  return grid[0] && grid[1] && grid[2] && block[0] && block[1] && block[2] && block[0] <= limits->maxGroupSizeX &&
         block[1] <= limits->maxGroupSizeY && block[2] <= limits->maxGroupSizeZ && grid[0] <= limits->maxGroupCountX &&
         grid[1] <= limits->maxGroupCountY && grid[2] <= limits->maxGroupCountZ &&
         (uint64_t)block[0] * block[1] <= limits->maxTotalGroupSize &&
         (uint64_t)block[0] * block[1] * block[2] <= limits->maxTotalGroupSize;
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
  const int32_t device = kernel->module->device;
  const hal_status_t status = npu_check_alive(device);
  if (NPU_UNLIKELY(status)) return status;
  if (NPU_UNLIKELY(launch->struct_size < HAL_STRUCT_SIZE(hal_launch_t, args)))
    return npu_error(HAL_INCOMPATIBLE, 0, "npu: launch of '%s' with a launch of %zu bytes; rebuild the caller",
                     kernel->name->text, launch->struct_size);
  if (NPU_UNLIKELY(stream && stream->device != device))
    return npu_error(HAL_INVALID_ARGUMENT, 0, "npu: launch of '%s' of device %d on a stream of device %d",
                     kernel->name->text, (int)device, (int)stream->device);
  if (NPU_UNLIKELY(!geometry_fits(&npu.devices[device].compute, launch->grid, launch->block)))
    return refuse_geometry(kernel, launch);
  if (NPU_UNLIKELY(launch->shared_bytes))
    return npu_error(HAL_INVALID_ARGUMENT, 0,
                     "npu: launch of '%s' with %u shared bytes; Level Zero has local memory in arguments: pass a "
                     "HAL_ARG_LOCAL",
                     kernel->name->text, (unsigned)launch->shared_bytes);
  if (NPU_UNLIKELY(launch->arg_count != kernel->signature.count))
    return npu_error(HAL_INVALID_ARGUMENT, 0, "npu: launch of '%s' with %u arguments; it takes %u", kernel->name->text,
                     (unsigned)launch->arg_count, (unsigned)kernel->signature.count);
  if (NPU_UNLIKELY(has_required(launch)))
    return npu_error(HAL_UNIMPLEMENTED, 0,
                     "npu: launch of '%s' with a required attribute; Level Zero 1.4 supports none", kernel->name->text);
  return HAL_OK;
}

static hal_status_t refuse_arg(const hal_plugin_kernel_t *kernel, uint32_t index, const hal_arg_t *arg,
                               ze_result_t code) {
  static const char *const kinds[] = {"a value", "a pointer", "local memory"};
  return npu_error(
      HAL_INVALID_ARGUMENT, (int64_t)code,
      "npu: argument %u of '%s' is %s of %u bytes at %p%s%s; the kernel takes %s of %u bytes (0: any). A pointer "
      "has %zu bytes, no size is 0, and only local memory has no address",
      (unsigned)index, kernel->name->text, arg->kind < 3 ? kinds[arg->kind] : "of an unknown kind", (unsigned)arg->size,
      arg->value, code ? ", which the driver refuses with " : "", code ? npu_error_name(code) : "",
      kinds[kernel->signature.kinds[index]], (unsigned)kernel->signature.sizes[index], sizeof(void *));
}

/* Sets the arguments and the size of a launch. The driver reads the values during the call. The caller holds the
 * kernel's lock. */
static hal_status_t set_up(hal_plugin_kernel_t *kernel, const hal_launch_t *launch) {
  const uint32_t *const block = launch->block;
  for (uint32_t i = 0; i < launch->arg_count; i++) {
    const hal_arg_t *const arg = &launch->args[i];
    ze_result_t code = ZE_RESULT_SUCCESS;
    const uint32_t size = kernel->signature.sizes[i];
    if (NPU_UNLIKELY(arg->kind != kernel->signature.kinds[i] || !arg->size || (size && arg->size != size) ||
                     !arg->value != (arg->kind == HAL_ARG_LOCAL)))
      return refuse_arg(kernel, i, arg, code);
    code = ze.zeKernelSetArgumentValue(kernel->handle, i, arg->size, arg->value);
    if (NPU_UNLIKELY(code)) return refuse_arg(kernel, i, arg, code);
  }
  if (kernel->block[0] == block[0] && kernel->block[1] == block[1] && kernel->block[2] == block[2]) return HAL_OK;
  const ze_result_t code = ze.zeKernelSetGroupSize(kernel->handle, block[0], block[1], block[2]);
  if (NPU_UNLIKELY(code)) return refuse_geometry(kernel, launch);
  memcpy(kernel->block, block, sizeof kernel->block);
  return HAL_OK;
}

hal_status_t hal_plugin_kernel_launch(hal_plugin_kernel_t *kernel, hal_plugin_stream_t *stream,
                                      const hal_launch_t *launch) {
  hal_status_t status = check_launch(kernel, stream, launch);
  if (NPU_UNLIKELY(status)) return status;
  const ze_group_count_t grid = {launch->grid[0], launch->grid[1], launch->grid[2]};
  npu_submit_t submit;
  ze_result_t code = ZE_RESULT_SUCCESS;
  pthread_mutex_lock(&kernel->lock);
  status = set_up(kernel, launch);
  if (NPU_LIKELY(!status)) status = npu_submit_begin(&submit, stream, kernel->module->device, "kernel_launch");
  if (NPU_LIKELY(!status)) {
    submit.work.kernel = kernel->name->text;
    code = ze.zeCommandListAppendLaunchKernel(submit.list, kernel->handle, &grid, submit.signal, submit.wait_count,
                                              submit.waits);
  }
  pthread_mutex_unlock(&kernel->lock);
  return NPU_UNLIKELY(status) ? status : npu_submit_end(&submit, code);
}
