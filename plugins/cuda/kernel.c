/* kernel.c: kernels and their launches. */
#include <string.h>

#include "module.h"

/* ---- creation and destruction ----------------------------------------------------------------------------------- */

/* Reads the sizes of the arguments, if the driver reports them: 12.4 and later. */
static hal_status_t read_arguments(hal_plugin_kernel_t *kernel) {
  size_t offset = 0, bytes = 0, count = 0;
  kernel->arg_count = -1;
  if (!drv.cuFuncGetParamInfo) return HAL_OK;
  for (; !drv.cuFuncGetParamInfo(kernel->handle, count, &offset, &bytes); count++)
    if (count < CUDA_MAX_ARGS) kernel->sizes[count] = (uint32_t)bytes;
  if (count > CUDA_MAX_ARGS)
    return cuda_error(HAL_INVALID_ARGUMENT, 0, "cuda: the kernel '%s' takes %zu arguments; the maximum is %d",
                      kernel->name->text, count, CUDA_MAX_ARGS);
  kernel->arg_count = (int)count;
  return HAL_OK;
}

static hal_status_t make_handle(hal_plugin_kernel_t *kernel) {
  const char *const name = kernel->name->text;
  int shared = 0;
  CUresult code = drv.cuModuleGetFunction(&kernel->handle, kernel->module->handle, name);
  if (!code && !kernel->handle) code = CUDA_ERROR_NOT_FOUND;
  if (code == CUDA_ERROR_NOT_FOUND)
    return cuda_error(HAL_NOT_FOUND, (int64_t)code, "cuda: there is no kernel '%s' in the module", name);
  if (!code)
    code = drv.cuFuncGetAttribute(&kernel->most_threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, kernel->handle);
  if (!code) code = drv.cuFuncGetAttribute(&kernel->shared_bytes, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, kernel->handle);
  if (!code) code = drv.cuFuncGetAttribute(&shared, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, kernel->handle);
  cuda_device_noticed(kernel->module->device, code);
  if (code) return cuda_driver_error(code, "cuda: cannot create the kernel '%s'", name);
  atomic_init(&kernel->most_shared, shared);
  return read_arguments(kernel);
}

hal_status_t cuda_kernel_create(hal_plugin_module_t *module, const char *name, hal_plugin_kernel_t **out_kernel) {
  hal_plugin_kernel_t *const kernel = hal_host->mem_alloc(sizeof *kernel, alignof(hal_plugin_kernel_t));
  hal_name_t *const own_name = hal_name_make(name);
  hal_status_t status = HAL_RESOURCE_EXHAUSTED;
  if (!kernel || !own_name) {
    cuda_error(status, 0, "cuda: no host memory for the kernel '%s'", name);
    goto cleanup;
  }
  memset(kernel, 0, sizeof *kernel);
  kernel->module = module;
  kernel->name = own_name;
  status = make_handle(kernel);
  if (status) goto cleanup;
  *out_kernel = kernel;
  return HAL_OK;
cleanup:
  if (own_name) hal_name_drop(own_name, 0);
  hal_host->mem_free(kernel);
  return status;
}

void cuda_kernel_destroy(hal_plugin_kernel_t *kernel) {
  cuda_streams_forget(kernel->module->device, kernel->name->text);
  hal_name_drop(kernel->name, atomic_load(&cuda.keep_names));
  hal_host->mem_free(kernel);
}

/* Returns the shared memory that a launch may request in addition to the kernel's own. */
static int room_for_shared(const hal_plugin_kernel_t *kernel) {
  const int most = cuda.devices[kernel->module->device].most_shared_bytes;
  return kernel->shared_bytes < most ? most - kernel->shared_bytes : 0;
}

hal_status_t hal_plugin_kernel_info(hal_plugin_kernel_t *kernel, uint32_t block_threads, uint32_t shared_bytes,
                                    hal_kernel_info_t *out_info) {
  cuda_scope_t scope;
  int registers = 0, local = 0, blocks = 0;
  hal_status_t status = cuda_check_alive(kernel->module->device);
  if (!status) status = cuda_enter(kernel->module->device, &scope);
  if (status) return status;
  CUresult code = drv.cuFuncGetAttribute(&registers, CU_FUNC_ATTRIBUTE_NUM_REGS, kernel->handle);
  if (!code) code = drv.cuFuncGetAttribute(&local, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, kernel->handle);
  if (!code && block_threads && block_threads <= (uint32_t)kernel->most_threads &&
      shared_bytes <= (uint32_t)room_for_shared(kernel))
    code = drv.cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel->handle, (int)block_threads, shared_bytes);
  cuda_leave(&scope);
  cuda_device_noticed(kernel->module->device, code);
  if (code)
    return cuda_driver_error(code, "cuda: the kernel '%s' does not report its requirements", kernel->name->text);
  HAL_SET_FIELD(out_info, max_block_threads, (uint32_t)kernel->most_threads);
  HAL_SET_FIELD(out_info, subgroup_size, (uint32_t)cuda.devices[kernel->module->device].warp);
  HAL_SET_FIELD(out_info, registers, (uint32_t)registers);
  HAL_SET_FIELD(out_info, shared_bytes, (uint32_t)kernel->shared_bytes);
  HAL_SET_FIELD(out_info, local_bytes, (uint64_t)local);
  HAL_SET_FIELD(out_info, max_shared, (uint32_t)room_for_shared(kernel));
  HAL_SET_FIELD(out_info, blocks_per_unit, (uint32_t)blocks);
  return HAL_OK;
}

/* ---- launches --------------------------------------------------------------------------------------------------- */

static hal_status_t refuse_geometry(const hal_plugin_kernel_t *kernel, const hal_launch_t *launch) {
  const uint32_t *grid = launch->grid, *block = launch->block;
  const cuda_device_t *const device = &cuda.devices[kernel->module->device];
  return cuda_error(HAL_INVALID_ARGUMENT, 0,
                    "cuda: launch of '%s' with grid (%u, %u, %u) and block (%u, %u, %u); no size may be 0, a block has "
                    "at most %d threads, "
                    "(%d, %d, %d) of them, and a grid (%d, %d, %d) blocks on '%s'",
                    kernel->name->text, (unsigned)grid[0], (unsigned)grid[1], (unsigned)grid[2], (unsigned)block[0],
                    (unsigned)block[1], (unsigned)block[2], kernel->most_threads, device->most_block[0],
                    device->most_block[1], device->most_block[2], device->most_grid[0], device->most_grid[1],
                    device->most_grid[2], device->name);
}

static int geometry_fits(const hal_plugin_kernel_t *kernel, const uint32_t *grid, const uint32_t *block) {
  const cuda_device_t *const device = &cuda.devices[kernel->module->device];
  uint64_t threads = 1;
  for (int i = 0; i < 3; i++) {
    if (!grid[i] || !block[i] || grid[i] > (uint32_t)device->most_grid[i] || block[i] > (uint32_t)device->most_block[i])
      return 0;
    threads *= block[i];
  }
  return threads <= (uint64_t)kernel->most_threads;
}

static hal_status_t refuse_arg(const hal_plugin_kernel_t *kernel, uint32_t index, const hal_arg_t *arg) {
  static const char *const kinds[] = {"a value", "a pointer", "local memory"};
  return cuda_error(
      HAL_INVALID_ARGUMENT, 0,
      "cuda: argument %u of '%s' is %s of %u bytes at %p; the kernel takes %u bytes (0: any). A pointer "
      "has %zu bytes, no "
      "size is 0, every argument has an address, and shared memory of a block is requested by shared_bytes",
      (unsigned)index, kernel->name->text, arg->kind < 3 ? kinds[arg->kind] : "of an unknown kind", (unsigned)arg->size,
      arg->value, (unsigned)kernel->sizes[index], sizeof(void *));
}

/* Returns the addresses of the values, which the driver reads. If the driver does not report the number of arguments,
 * missing ones are replaced by zeros, because it would read beyond the end of the list. */
static hal_status_t take_arguments(const hal_plugin_kernel_t *kernel, const hal_launch_t *launch,
                                   void *values[CUDA_MAX_ARGS]) {
  static const char zeros[4096];
  const uint32_t count = launch->arg_count;
  if (CUDA_UNLIKELY(kernel->arg_count >= 0 ? count != (uint32_t)kernel->arg_count : count > CUDA_MAX_ARGS))
    return cuda_error(HAL_INVALID_ARGUMENT, 0, "cuda: launch of '%s' with %u arguments; it takes %d",
                      kernel->name->text, (unsigned)count, kernel->arg_count >= 0 ? kernel->arg_count : CUDA_MAX_ARGS);
  for (uint32_t i = 0; i < count; i++) {
    const hal_arg_t *const arg = &launch->args[i];
    if (CUDA_UNLIKELY(arg->kind > HAL_ARG_POINTER || !arg->value || !arg->size ||
                      (arg->kind == HAL_ARG_POINTER && arg->size != sizeof(void *)) ||
                      (kernel->arg_count >= 0 && arg->size != kernel->sizes[i])))
      return refuse_arg(kernel, i, arg);
    values[i] = (void *)(uintptr_t)arg->value;
  }
  if (CUDA_UNLIKELY(kernel->arg_count < 0))
    for (uint32_t i = count; i < CUDA_MAX_ARGS; i++) values[i] = (void *)(uintptr_t)zeros;
  return HAL_OK;
}

/* More than the default limit of every device must be enabled for the kernel first. */
static hal_status_t allow_shared(hal_plugin_kernel_t *kernel, uint32_t bytes) {
  if (CUDA_LIKELY(bytes <= (uint32_t)atomic_load_explicit(&kernel->most_shared, memory_order_relaxed))) return HAL_OK;
  cuda_scope_t scope;
  const int most = room_for_shared(kernel);
  hal_status_t status = cuda_enter(kernel->module->device, &scope);
  if (status) return status;
  const CUresult code =
      bytes > (uint32_t)most
          ? CUDA_ERROR_INVALID_VALUE
          : drv.cuFuncSetAttribute(kernel->handle, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, most);
  cuda_leave(&scope);
  if (code)
    return cuda_error(
        HAL_INVALID_ARGUMENT, (int64_t)code,
        "cuda: launch of '%s' with %u shared bytes; the maximum is %d on '%s' in addition to the kernel's own",
        kernel->name->text, (unsigned)bytes, most, cuda.devices[kernel->module->device].name);
  atomic_store(&kernel->most_shared, most);
  return HAL_OK;
}

static hal_status_t check_launch(hal_plugin_kernel_t *kernel, const hal_plugin_stream_t *stream,
                                 const hal_launch_t *launch) {
  const int32_t device = kernel->module->device;
  if (CUDA_UNLIKELY(launch->struct_size < HAL_STRUCT_SIZE(hal_launch_t, args)))
    return cuda_error(HAL_INCOMPATIBLE, 0, "cuda: launch of '%s' with a launch of %zu bytes; rebuild the caller",
                      kernel->name->text, launch->struct_size);
  if (CUDA_UNLIKELY(stream && stream->device != device))
    return cuda_error(HAL_INVALID_ARGUMENT, 0, "cuda: launch of '%s' of device %d on a stream of device %d",
                      kernel->name->text, (int)device, (int)stream->device);
  const hal_status_t status = cuda_check_alive(device);
  if (CUDA_UNLIKELY(status)) return status;
  if (CUDA_UNLIKELY(!geometry_fits(kernel, launch->grid, launch->block))) return refuse_geometry(kernel, launch);
  return allow_shared(kernel, launch->shared_bytes);
}

/* ---- attributes ------------------------------------------------------------------------------------------------- */

/* Returns the driver's constant for an attribute, 0 if it has none. */
static int translate(const hal_launch_attribute_t *from, CUlaunchAttribute *to) {
  memset(to, 0, sizeof *to);
  switch (from->kind) {
    case HAL_LAUNCH_CLUSTER:
      to->id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
      to->value.clusterDim.x = from->x, to->value.clusterDim.y = from->y, to->value.clusterDim.z = from->z;
      return 1;
    case HAL_LAUNCH_COOPERATIVE:
      to->id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
      to->value.cooperative = from->x != 0;
      return 1;
    case HAL_LAUNCH_PRIORITY:
      to->id = CU_LAUNCH_ATTRIBUTE_PRIORITY;
      to->value.priority = (int)from->x;
      return 1;
    case HAL_LAUNCH_CARVEOUT:
      to->id = CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT;
      to->value.sharedMemCarveout = from->x;
      return 1;
    case HAL_LAUNCH_OVERLAP:
      to->id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
      to->value.programmaticStreamSerializationAllowed = from->x != 0;
      return 1;
    default:
      return 0;
  }
}

enum { MOST_ATTRIBUTES = 8 };

/* Returns the attributes that the driver supports; -1 = a required one is unsupported. */
static int take_attributes(const hal_launch_t *launch, int required_only, CUlaunchAttribute *list) {
  int count = 0;
  for (uint32_t i = 0; i < launch->attribute_count; i++) {
    const hal_launch_attribute_t *const one = &launch->attributes[i];
    if (!one->required && required_only) continue;
    if (drv.cuLaunchKernelEx && count < MOST_ATTRIBUTES && translate(one, &list[count]))
      count++;
    else if (one->required)
      return -1;
  }
  return count;
}

static CUresult launch_plain(CUfunction function, const hal_launch_t *launch, CUstream stream, void **values) {
  const uint32_t *const grid = launch->grid, *const block = launch->block;
  return drv.cuLaunchKernel(function, grid[0], grid[1], grid[2], block[0], block[1], block[2], launch->shared_bytes,
                            stream, values, NULL);
}

/* Launches with all attributes, or only with the required ones if the device refuses hints. CUDA_ERROR_NOT_SUPPORTED =
 * a required one is unsupported. */
static CUresult launch_with(CUfunction function, const hal_launch_t *launch, CUstream stream, void **values) {
  CUlaunchAttribute list[MOST_ATTRIBUTES];
  CUresult code = CUDA_ERROR_NOT_SUPPORTED;
  for (int required_only = 0; required_only < 2 && code; required_only++) {
    const int count = take_attributes(launch, required_only, list);
    if (count < 0) return CUDA_ERROR_NOT_SUPPORTED;
    if (!count) return launch_plain(function, launch, stream, values);
    const CUlaunchConfig config = {.gridDimX = launch->grid[0],
                                   .gridDimY = launch->grid[1],
                                   .gridDimZ = launch->grid[2],
                                   .blockDimX = launch->block[0],
                                   .blockDimY = launch->block[1],
                                   .blockDimZ = launch->block[2],
                                   .sharedMemBytes = launch->shared_bytes,
                                   .hStream = stream,
                                   .attrs = list,
                                   .numAttrs = (unsigned)count};
    code = drv.cuLaunchKernelEx(&config, function, values, NULL);
    if (cuda_error_is_fatal(code)) break;
  }
  return code;
}

hal_status_t hal_plugin_kernel_launch(hal_plugin_kernel_t *kernel, hal_plugin_stream_t *stream,
                                      const hal_launch_t *launch) {
  void *values[CUDA_MAX_ARGS];
  cuda_submit_t submit;
  hal_status_t status = check_launch(kernel, stream, launch);
  if (CUDA_LIKELY(!status)) status = take_arguments(kernel, launch, values);
  if (CUDA_LIKELY(!status)) status = cuda_submit_begin(&submit, stream, kernel->module->device, "kernel_launch");
  if (CUDA_UNLIKELY(status)) return status;
  submit.work.kernel = kernel->name->text;
  const int has_attributes = HAL_HAS_FIELD(launch, attribute_count) && launch->attribute_count;
  return cuda_submit_end(&submit, CUDA_UNLIKELY(has_attributes)
                                      ? launch_with(kernel->handle, launch, submit.handle, values)
                                      : launch_plain(kernel->handle, launch, submit.handle, values));
}
