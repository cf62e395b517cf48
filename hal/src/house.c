/* house.c: where the rooms meet. A lower room calls a higher one only through the tables defined here; this is the one
 * file that includes all of them. */
#include "base/host_malloc.h"
#include "base/life.h"
#include "base/log_internal.h"
#include "base/status_internal.h"
#include "compile/ir.h"
#include "device/device.h"
#include "device/hooks.h"
#include "device/profile_internal.h"
#include "fusion/fuse.h"
#include "memory/allocator.h"
#include "op/own.h"
#include "op/table.h"
#include "plugin/hooks.h"
#include "plugin/layer_validate.h"
#include "plugin/loader.h"

/* ---- forks ---- */

/* A driver that was started, or is starting, belongs to the parent: no device may be used here, which the missing ready
 * flags enforce. */
static void after_fork(void) {
  int touched = 0;
  for (int32_t i = 0; i < hal_registry.plugin_count; i++) {
    hal_plugin_t *const plugin = &hal_registry.plugins[i];
    touched |= atomic_load(&plugin->state) == HAL_PLUGIN_READY || plugin->init_begun;
    hal_validate_after_fork(plugin);
  }
  if (touched) atomic_store(&hal_life.forked, 1);
  hal_device_after_fork();
  hal_profile_after_fork();
  hal_fuse_worker_after_fork();
  hal_registry_after_fork();
}

const hal_life_hooks_t hal_life_hooks = {.after_fork = after_fork};

/* ---- devices, for the registry ---- */

/* Memory of one device may wait for streams of another, so all are drained first. */
static void close_devices(void) {
  for (int32_t i = 0; i < hal_registry.device_count; i++) hal_device_drain(&hal_devices[i]);
  for (int32_t i = 0; i < hal_registry.device_count; i++) hal_device_close(&hal_devices[i]);
}

const hal_registry_hooks_t hal_registry_hooks = {.added = hal_device_add, .closing = close_devices};

hal_host_api_t hal_host_api = {
    .struct_size = HAL_STRUCT_SIZE(hal_host_api_t, extensions),
    .major = HAL_ABI_MAJOR,
    .minor = HAL_ABI_MINOR,
    .error_set = hal_error_from_plugin,
    .log = hal_log_from_plugin,
    .mem_alloc = hal_malloc_aligned,
    .mem_free = hal_free,
    .profile_correlation = hal_profile_correlation,
    .scratch_alloc = hal_op_scratch_for_plugin,
};

/* ---- memory and operators, for devices ---- */

static hal_status_t build_parts(hal_device_t *device) {
  HAL_RETURN_IF_ERROR(hal_allocator_create(device, &device->allocator));
  const hal_status_t status = hal_op_table_create(device, &device->ops);
  if (!status) return HAL_OK;
  hal_allocator_destroy(device->allocator);
  device->allocator = NULL;
  return status;
}

/* The allocator's records stay for the blocks that somebody still holds. */
static void close_parts(hal_device_t *device) {
  hal_compiler_destroy(device->programs);
  device->programs = NULL;
  device->compiler_known = 0;
  hal_fuse_destroy(device->fuse);
  device->fuse = NULL;
  hal_op_table_destroy(device->ops);
  device->ops = NULL;
  hal_allocator_close(device->allocator);
}

static void drain_parts(hal_device_t *device) { hal_allocator_drain(device->allocator); }

const hal_device_hooks_t hal_device_hooks = {.build = build_parts,
                                             .drain = drain_parts,
                                             .close = close_parts,
                                             .poll = hal_memory_poll,
                                             .op_name = hal_op_name,
                                             .op_error_name = hal_op_error_name,
                                             .op_argument = hal_op_argument,
                                             .ops_of_kernel = hal_op_names_of_kernel};
