/* verdict.c: the operators and dtypes that a device can run, determined at the first query of an operator and
 * cached. */
#include "op/define.h"
#include "op/table.h"

hal_status_t hal_op_table_create(hal_device_t *device, hal_op_table_t **out_table) {
  hal_op_table_t *table = hal_calloc(1, sizeof *table);
  if (!table)
    return hal_error_set(HAL_RESOURCE_EXHAUSTED, "no host memory for the operator table of device %s (%zu bytes)",
                         device->label, sizeof *table);
  table->device = device;
  hal_provider_init(&table->provider, device);
  table->target = hal_op_target_make(table->provider.form, device->info.compute_units, device->info.subgroup_size,
                                     device->info.max_shared_bytes);
  pthread_mutex_init(&table->lock, NULL);
  *out_table = table;
  return HAL_OK;
}

void hal_op_table_destroy(hal_op_table_t *table) {
  if (!table) return;
  hal_provider_close(&table->provider);
  pthread_mutex_destroy(&table->lock);
  hal_free(table);
}

void hal_op_entry_find(hal_op_table_t *table, hal_op_entry_t *entry, uint32_t op, const hal_op_info_t *info) {
  hal_mutex_lock_and_defer(&table->lock);
  if (!atomic_load_explicit(&entry->known, memory_order_relaxed)) {
    entry->own = (hal_op_own_t){.fn = NULL};
    entry->launch = NULL;
    if (hal_op_enabled(op)) {
      hal_op_own_find(table->device, info->name, &entry->own);
      entry->launch = table->provider.dialect ? info->launch : info->launch_without_kernels;
    }
    entry->portable = entry->launch ? hal_op_table_dtypes(table, info) : 0;
    entry->argument_count = info->argument_count;
    entry->further_count = info->further_count;
    entry->info = info;
    entry->handles = &table->handles[info->first_handle];
    atomic_store_explicit(&entry->known, 1, memory_order_release);
  }
  hal_mutex_unlock_and_run(&table->lock);
}

/* Returns the entry of any operator; NULL if there is no such device or operator. */
static const hal_op_entry_t *entry_of(int32_t device, uint32_t op) {
  hal_device_t *owner;
  if (hal_device_get(device, &owner)) return NULL;
  return HAL_LIKELY(op < HAL_OP_BUILTIN_COUNT) ? hal_op_entry(hal_op_table_of(owner), op)
                                               : hal_op_defined_entry(owner, op);
}

static __attribute__((noinline)) uint64_t find_dtypes(int32_t device, uint32_t op) {
  const hal_op_entry_t *entry = entry_of(device, op);
  return !entry ? 0 : entry->own.dtypes | entry->portable;
}

/* Every call of an operator calls this first. Without other calls in it, it has no stack frame. */
uint64_t hal_op_dtypes(int32_t device, uint32_t op) {
  const hal_device_t *const owner = hal_device_find_ready(device);
  if (HAL_UNLIKELY(!owner || op >= HAL_OP_BUILTIN_COUNT)) return find_dtypes(device, op);
  const hal_op_entry_t *const entry = &hal_op_table_of(owner)->entries[op];
  const int is_known = atomic_load_explicit(&entry->known, memory_order_acquire);
  return HAL_LIKELY(is_known) ? entry->own.dtypes | entry->portable : find_dtypes(device, op);
}

uint64_t hal_op_portable_dtypes(int32_t device, uint32_t op) {
  const hal_op_entry_t *entry = entry_of(device, op);
  return entry ? entry->portable : 0;
}

int32_t hal_op_takes_channels_last(int32_t device, uint32_t op) {
  const hal_op_entry_t *entry = entry_of(device, op);
  return entry && (!entry->info->device_images || hal_op_table_of(&hal_devices[device])->target.form != HAL_FORM_HOST);
}

uint64_t hal_op_own_dtypes(int32_t device, uint32_t op) {
  const hal_op_entry_t *entry = entry_of(device, op);
  return entry ? entry->own.dtypes : 0;
}
