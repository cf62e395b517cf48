/* components.c: connects the components. A lower component calls a higher one only through the tables defined here;
 * this is the only file that includes all of them. */
#include "base/host_malloc.h"
#include "base/life.h"
#include "base/log_internal.h"
#include "base/stack.h"
#include "base/status_internal.h"
#include "compile/ir.h"
#include "device/device.h"
#include "device/hooks.h"
#include "device/profile_internal.h"
#include "fusion/fuse.h"
#include "hal/plugin_records.h"
#include "lazy/lazy.h"
#include "memory/allocator.h"
#include "op/own.h"
#include "op/table.h"
#include "plugin/hooks.h"
#include "plugin/layer_validate.h"
#include "plugin/loader.h"

/* ---- forks ---- */

/* A driver that was initialized, or is being initialized, belongs to the parent: no device may be used here. The ready
 * flags, which are clear, enforce that. */
static void after_fork(void) {
  int in_use = 0;
  hal_borrow_after_fork(); /* called also while a thread opens the first plugin, which is not in the registry yet */
  for (int32_t i = 0; i < hal_registry.plugin_count; i++) {
    hal_plugin_t *const plugin = &hal_registry.plugins[i];
    in_use |= atomic_load(&plugin->state) == HAL_PLUGIN_READY || plugin->init_begun;
    hal_validate_after_fork(plugin);
  }
  if (in_use) atomic_store(&hal_life.forked, 1);
  hal_device_after_fork();
  hal_profile_after_fork();
  hal_fuse_worker_after_fork();
  hal_lazy_after_fork();
  hal_registry_after_fork();
}

const hal_life_hooks_t hal_life_hooks = {.after_fork = after_fork};

/* ---- devices, for the registry ---- */

/* Memory of one device may wait for streams of another, so all devices are drained first. */
static void close_devices(void) {
  hal_lazy_idle_close();
  for (int32_t i = 0; i < hal_registry.device_count; i++)
    hal_device_drain(&hal_devices[i], "hal_registry_close", "closing");
  for (int32_t i = 0; i < hal_registry.device_count; i++) hal_device_close(&hal_devices[i]);
}

const hal_registry_hooks_t hal_registry_hooks = {.added = hal_device_add, .closing = close_devices};

static void drain_memory(void) {
  for (int32_t i = 0; i < hal_registry.device_count; i++)
    if (hal_device_is_alive(&hal_devices[i]) && hal_allocator_of(&hal_devices[i]))
      hal_allocator_drain(hal_allocator_of(&hal_devices[i]));
}

/* Constant, but the chain of extensions grows at its beginning (hal_registry_offer). */
static const hal_stacks_t stacks = {
    .base = {.struct_size = HAL_STRUCT_SIZE(hal_stacks_t, drain), .name = HAL_STACKS},
    .capture = hal_stack_capture,
    .describe = hal_stack_describe,
    .operators = hal_op_names_of_kernel,
    .is_unchecked = hal_stack_is_unchecked,
    .drain = drain_memory,
};

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
    .extensions = &stacks.base,
};

/* ---- slots of devices (device/slot.h) ---- */

static hal_status_t create_allocator(hal_device_t *device, void **out_data) {
  hal_allocator_t *allocator = NULL;
  const hal_status_t status = hal_allocator_create(device, &allocator);
  *out_data = allocator;
  return status;
}

static void destroy_allocator(void *data) { hal_allocator_destroy(data); }
static void close_allocator(void *data) { hal_allocator_close(data); }

static hal_status_t create_op_table(hal_device_t *device, void **out_data) {
  hal_op_table_t *table = NULL;
  const hal_status_t status = hal_op_table_create(device, &table);
  *out_data = table;
  return status;
}

static void destroy_op_table(void *data) { hal_op_table_destroy(data); }

static hal_status_t create_fuse(hal_device_t *device, void **out_data) {
  hal_fuse_t *fuse = NULL;
  const hal_status_t status = hal_fuse_create(device, &fuse);
  *out_data = fuse;
  return status;
}

static void destroy_fuse(void *data) { hal_fuse_destroy(data); }

static hal_status_t create_compiler(hal_device_t *device, void **out_data) {
  hal_device_compiler_t *compiler = NULL;
  const hal_status_t status = hal_device_compiler_create(device, &compiler);
  *out_data = compiler;
  return status;
}

static void destroy_compiler(void *data) { hal_device_compiler_destroy(data); }
static void close_compiler(void *data) { hal_device_compiler_close(data); }

static void trim(hal_device_t *device) { hal_allocator_trim(hal_allocator_of(device)); }
static uint64_t blocks(hal_device_t *device) { return hal_allocator_blocks(hal_allocator_of(device)); }
static void drain(hal_device_t *device) { hal_allocator_drain(hal_allocator_of(device)); }

const hal_device_hooks_t hal_device_hooks = {
    .slots =
        {
            /* Closed, not destroyed: the application may still hold blocks. */
            [HAL_COMPONENT_MEMORY] = {.create = create_allocator,
                                      .destroy = destroy_allocator,
                                      .close = close_allocator},
            [HAL_COMPONENT_OP] = {.create = create_op_table, .destroy = destroy_op_table},
            /* On demand, because it is large and only lazy streams need it. */
            [HAL_COMPONENT_FUSION] = {.create = create_fuse, .destroy = destroy_fuse, .on_demand = 1},
            /* Closed, not destroyed: a lazy stream may end later. */
            [HAL_COMPONENT_COMPILE] = {.create = create_compiler, .destroy = destroy_compiler, .close = close_compiler},
        },
    .drain = drain,
    .trim = trim,
    .blocks = blocks,
    .poll = hal_memory_poll,
    .op_name = hal_op_name,
    .op_error_name = hal_op_error_name,
    .op_argument = hal_op_argument,
    .ops_of_kernel = hal_op_names_of_kernel,
};
