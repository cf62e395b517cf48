/* kernel.c: modules and kernels that a program brings. */
#include "hal/kernel.h"

#include <string.h>

#include "device/profile_internal.h"
#include "hal/device.h"
#include "hal/log.h"
#include "hal/memory.h"
#include "hal/status.h"
#include "op/launch.h"
#include "plugin/call.h"

struct hal_kernel_s {
  hal_plugin_kernel_t *handle;
  hal_device_t *device;
  struct hal_kernel_s *next; /* of the same module */
  uint32_t group_threads;    /* threads of a block in group kernels */
  char name[];
};

struct hal_module_s {
  hal_plugin_module_t *handle;
  hal_device_t *device;
  hal_lock_t lock; /* the list of kernels */
  hal_kernel_t *kernels;
};

hal_kernel_t *hal_kernel_wrap(hal_device_t *device, hal_plugin_kernel_t *handle, uint32_t group_threads,
                              const char *name) {
  const size_t bytes = strlen(name) + 1;
  hal_kernel_t *const kernel = hal_malloc(sizeof *kernel + bytes);
  if (!kernel) return NULL;
  *kernel = (hal_kernel_t){.handle = handle, .device = device, .group_threads = group_threads};
  memcpy(kernel->name, name, bytes);
  return kernel;
}

hal_plugin_kernel_t *hal_kernel_handle(const hal_kernel_t *kernel) { return kernel->handle; }

hal_status_t hal_module_load(int32_t device, const hal_module_desc_t *desc, hal_module_t **out_module) {
  hal_device_t *found;
  HAL_RETURN_IF_ERROR(hal_device_get(device, &found));
  hal_module_t *const module = hal_malloc(sizeof *module);
  if (!module)
    return hal_error_set(HAL_RESOURCE_EXHAUSTED, "out of host memory while loading a module for device %s",
                         found->label);
  *module = (hal_module_t){.device = found};
  hal_status_t status = hal_call_module_load(found->plugin, found->ordinal, desc, &module->handle);
  status = hal_error_plugin_made(found->plugin, HAL_SLOT_module_load, status, module->handle);
  if (status) {
    hal_free(module);
    return hal_error_prefix(status, "loading a module in the dialect '%s' (device %s accepts '%s'): ",
                            desc->dialect ? desc->dialect : "", found->label, found->info.dialects);
  }
  hal_device_add_object(found);
  *out_module = module;
  return HAL_OK;
}

void hal_module_unload(hal_module_t *module) {
  if (!module) return;
  hal_device_t *const device = module->device;
  if (hal_device_is_alive(device)) {
    hal_stream_drain_all(device); /* including work that has failed */
    const hal_status_t status = hal_call_module_unload(device->plugin, module->handle);
    hal_error_plugin(device->plugin, HAL_SLOT_module_unload, status);
    if (status)
      hal_log(HAL_LOG_WARNING, "while unloading a module of device %s: %s", device->label, hal_error_message());
  }
  for (hal_kernel_t *kernel = module->kernels, *next; kernel; kernel = next) {
    next = kernel->next;
    hal_free(kernel);
  }
  hal_device_remove_object(device);
  hal_free(module);
}

hal_status_t hal_module_set_name(hal_module_t *module, const char *name) {
  return hal_device_name_object("hal_module_set_name", module->device, HAL_OBJECT_MODULE, module->handle, name);
}

static hal_status_t make_kernel(hal_module_t *module, const char *name, hal_kernel_t **out_kernel) {
  hal_plugin_t *const plugin = module->device->plugin;
  hal_plugin_kernel_t *handle = NULL;
  hal_status_t status = hal_call_kernel_get(plugin, module->handle, name, &handle);
  status = hal_error_plugin_made(plugin, HAL_SLOT_kernel_get, status, handle);
  if (status) return hal_error_prefix(status, "kernel '%s': ", name);
  hal_kernel_t *const kernel = hal_kernel_wrap(module->device, handle, HAL_OP_GROUP_BLOCK, name);
  if (!kernel) return hal_error_set(HAL_RESOURCE_EXHAUSTED, "out of host memory while looking up kernel '%s'", name);
  kernel->next = module->kernels;
  module->kernels = kernel;
  *out_kernel = kernel;
  return HAL_OK;
}

hal_status_t hal_kernel_get(hal_module_t *module, const char *name, hal_kernel_t **out_kernel) {
  HAL_RETURN_IF_ERROR(hal_device_check_alive(module->device));
  hal_lock_and_defer(&module->lock);
  hal_kernel_t *kernel = module->kernels;
  while (kernel && strcmp(kernel->name, name)) kernel = kernel->next;
  const hal_status_t status = kernel ? HAL_OK : make_kernel(module, name, &kernel);
  hal_unlock_and_run(&module->lock);
  if (!status) *out_kernel = kernel;
  return status;
}

hal_status_t hal_module_export(hal_module_t *module, void *data, size_t room, size_t *out_size) {
  hal_device_t *device = module->device;
  HAL_RETURN_IF_ERROR(hal_device_get(device->index, &device)); /* the device may have been shut down */
  const hal_status_t status = hal_call_module_export(device->plugin, module->handle, data, room, out_size);
  return hal_error_plugin(device->plugin, HAL_SLOT_module_export, status);
}

/* Returns the properties of a kernel if the plugin does not report them. */
static hal_kernel_info_t info_of_device(const hal_device_t *device, uint32_t block_threads, uint32_t shared_bytes) {
  const hal_device_info_t *const about = &device->info;
  const int fits = (!about->max_block_threads || block_threads <= about->max_block_threads) &&
                   shared_bytes <= about->max_shared_bytes;
  return (hal_kernel_info_t){.max_block_threads = about->max_block_threads,
                             .subgroup_size = about->subgroup_size,
                             .max_shared = about->max_shared_bytes,
                             .blocks_per_unit = fits ? 1 : 0};
}

hal_status_t hal_kernel_info(hal_kernel_t *kernel, uint32_t block_threads, uint32_t shared_bytes,
                             hal_kernel_info_t *out_info) {
  hal_device_t *device = kernel->device;
  HAL_RETURN_IF_ERROR(hal_device_get(device->index, &device));
  if (!block_threads)
    return hal_error_set(HAL_INVALID_ARGUMENT, "kernel '%s': blocks of 0 threads; expected at least 1", kernel->name);
  const size_t known = HAL_STRUCT_SIZE(hal_kernel_info_t, blocks_per_unit);
  hal_kernel_info_t info = {.struct_size = known};
  const hal_status_t status = hal_call_kernel_info(device->plugin, kernel->handle, block_threads, shared_bytes, &info);
  if (status && status != HAL_UNIMPLEMENTED) return hal_error_plugin(device->plugin, HAL_SLOT_kernel_info, status);
  if (status) info = info_of_device(device, block_threads, shared_bytes);
  info.struct_size = out_info->struct_size < known ? out_info->struct_size : known;
  memcpy(out_info, &info, info.struct_size);
  return HAL_OK;
}

/* Checks a launch and its arguments before the plugin reads them, or a recording copies them. */
static hal_status_t check_launch(const hal_kernel_t *kernel, const hal_launch_t *launch) {
  if (HAL_UNLIKELY(launch->struct_size < HAL_STRUCT_SIZE(hal_launch_t, args)))
    return hal_error_set(HAL_INCOMPATIBLE,
                         "kernel '%s': struct_size of the launch is %zu; set it, or rebuild the caller", kernel->name,
                         launch->struct_size);
  for (int i = 0; i < 3; i++)
    if (HAL_UNLIKELY(launch->grid[i] == 0 || launch->block[i] == 0))
      return hal_error_set(HAL_INVALID_ARGUMENT,
                           "kernel '%s': grid and block must be at least 1 in each dimension, but "
                           "dimension %d has grid %u and block %u",
                           kernel->name, i, launch->grid[i], launch->block[i]);
  if (HAL_UNLIKELY(launch->arg_count > 0 && !launch->args))
    return hal_error_set(HAL_INVALID_ARGUMENT, "kernel '%s': argument_count is %u, and args is NULL", kernel->name,
                         launch->arg_count);
  if (HAL_UNLIKELY(HAL_HAS_FIELD(launch, attribute_count) && launch->attribute_count && !launch->attributes))
    return hal_error_set(HAL_INVALID_ARGUMENT, "kernel '%s': attribute_count is %u, and attributes is NULL",
                         kernel->name, launch->attribute_count);
  for (uint32_t i = 0; i < launch->arg_count; i++) {
    const hal_arg_t *const arg = &launch->args[i];
    const int is_local = arg->kind == HAL_ARG_LOCAL;
    if (HAL_UNLIKELY(arg->kind > HAL_ARG_LOCAL || !arg->size || (arg->value == NULL) != is_local ||
                     (arg->kind == HAL_ARG_POINTER && arg->size != sizeof(void *))))
      return hal_error_set(HAL_INVALID_ARGUMENT,
                           "kernel '%s': argument %u has kind %u, %u bytes at %p; a value has its address and size, a "
                           "pointer the address of a device address and %zu bytes, local memory no address",
                           kernel->name, i, arg->kind, arg->size, arg->value, sizeof(void *));
  }
  return HAL_OK;
}

/* Checks the geometry of a program's kernel: it may use the number of blocks, so the launch cannot be divided. */
static hal_status_t check_grid(const hal_kernel_t *kernel, const hal_launch_t *launch) {
  const hal_device_info_t *const info = &kernel->device->info;
  for (int i = 0; i < 3; i++) {
    const uint64_t threads = (uint64_t)launch->grid[i] * launch->block[i];
    if (HAL_UNLIKELY((info->max_grid[i] && launch->grid[i] > info->max_grid[i]) ||
                     (info->max_threads && threads > info->max_threads)))
      return hal_error_set(HAL_INVALID_ARGUMENT,
                           "kernel '%s': %u blocks of %u threads in dimension %d, but device %s launches at most %u "
                           "blocks and %llu threads (0: no limit); launch it several times",
                           kernel->name, launch->grid[i], launch->block[i], i, kernel->device->label, info->max_grid[i],
                           (unsigned long long)info->max_threads);
  }
  return HAL_OK;
}

/* Returns whether the memory of each address of a program's kernel ends within the device's limit: the host does not
 * know how much of it the kernel accesses. */
static hal_status_t check_bindings(const hal_kernel_t *kernel, const hal_launch_t *launch) {
  const uint64_t most = kernel->device->info.max_binding;
  for (uint32_t i = 0; most && i < launch->arg_count; i++) {
    const char *address;
    hal_block_t *block;
    if (launch->args[i].kind != HAL_ARG_POINTER) continue;
    memcpy(&address, launch->args[i].value, sizeof address);
    if (!address || hal_memory_find_block(address, &block)) continue;
    const char *const begin = hal_memory_block_address(block);
    const uint64_t left = hal_memory_block_size(block) - (uint64_t)(address - begin);
    if (left > most)
      return hal_error_set(HAL_UNIMPLEMENTED,
                           "kernel '%s': the memory of argument %u continues for %llu bytes, but kernels of device %s "
                           "access at most %llu from an address (max_binding in device_info)",
                           kernel->name, (unsigned)i, (unsigned long long)left, kernel->device->label,
                           (unsigned long long)most);
  }
  return HAL_OK;
}

/* Queues a launch; `is_divisible`: the host may launch it in parts. */
static hal_status_t launch_kernel(hal_kernel_t *kernel, hal_stream_t *stream, const hal_launch_t *launch,
                                  int is_divisible) {
  hal_device_t *const device = kernel->device;
  HAL_RETURN_IF_ERROR(hal_device_check_alive(device));
  stream = hal_stream_or_current(device, stream);
  if (HAL_UNLIKELY(stream->device != device))
    return hal_error_set(HAL_INVALID_ARGUMENT,
                         "kernel '%s' of device %s cannot be launched on a stream of device %s; use a stream of "
                         "its device",
                         kernel->name, device->label, stream->device->label);
  HAL_RETURN_IF_ERROR(check_launch(kernel, launch));
  HAL_RETURN_IF_ERROR(check_bindings(kernel, launch));
  if (!is_divisible) HAL_RETURN_IF_ERROR(check_grid(kernel, launch));
  if (is_divisible && HAL_UNLIKELY(!hal_op_grid_is_small(device, launch->grid[0])))
    HAL_RETURN_IF_ERROR(hal_op_grid_check(device, kernel->name, launch->grid[0], launch->block[0]));
  hal_queue_t *const queue = hal_stream_queue(stream);
  return HAL_PROFILE_CALL(queue->calls->launch(queue, hal_thread.recorded_op, kernel->handle, launch));
}

hal_status_t hal_kernel_launch(hal_kernel_t *kernel, hal_stream_t *stream, const hal_launch_t *launch) {
  return launch_kernel(kernel, stream, launch, 0);
}

/* One-dimensional launches with the block sizes that the portable dialect requires. */
static hal_status_t launch_blocks(hal_kernel_t *kernel, hal_stream_t *stream, uint64_t blocks, uint32_t block,
                                  const hal_arg_t *args, uint32_t arg_count) {
  if (blocks == 0) return HAL_OK;
  if (blocks > INT32_MAX)
    return hal_error_set(HAL_OUT_OF_RANGE, "kernel '%s': %llu blocks of %u are more than 2^31 - 1; split the operand",
                         kernel->name, (unsigned long long)blocks, (unsigned)block);
  const hal_launch_t launch = {.struct_size = HAL_STRUCT_SIZE(hal_launch_t, args),
                               .grid = {(uint32_t)blocks, 1, 1},
                               .block = {block, 1, 1},
                               .arg_count = arg_count,
                               .args = args};
  return launch_kernel(kernel, stream, &launch, 1);
}

hal_status_t hal_kernel_launch_items(hal_kernel_t *kernel, hal_stream_t *stream, uint64_t items, const hal_arg_t *args,
                                     uint32_t arg_count) {
  const uint64_t blocks = items / HAL_OP_BLOCK + (items % HAL_OP_BLOCK != 0);
  return launch_blocks(kernel, stream, blocks, HAL_OP_BLOCK, args, arg_count);
}

hal_status_t hal_kernel_launch_groups(hal_kernel_t *kernel, hal_stream_t *stream, uint64_t groups,
                                      const hal_arg_t *args, uint32_t arg_count) {
  return launch_blocks(kernel, stream, groups, kernel->group_threads, args, arg_count);
}
