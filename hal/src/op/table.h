/* table.h: query results of a device's operators, and declarations for the files of this component. Private to
 * hal/src. */
#ifndef HAL_SRC_OP_TABLE_H_
#define HAL_SRC_OP_TABLE_H_

#include <pthread.h>

#include "hal/op.h"
#include "hal_op_ids.h"
#include "op/internal.h"
#include "op/own.h"
#include "op/provider.h"
#include "op/target.h"

#define HAL_OP_BUILTIN_COUNT HAL_OP_ID_COUNT

/* A device's query result for one operator, determined at its first call: everything that a call needs. */
typedef struct hal_op_entry_s {
  atomic_int known; /* 1 if the fields below may be read without the lock */
  uint32_t argument_count, further_count;
  uint64_t portable;        /* dtypes with a portable kernel in the form of the device */
  hal_op_own_t own;         /* the plugin's own op */
  hal_op_launcher_t launch; /* of the portable kernel, or of a library's function; NULL if this device has none */
  const hal_op_info_t *info;
  _Atomic(hal_plugin_kernel_t *) *handles; /* in the table */
} hal_op_entry_t;

typedef struct hal_op_table_s hal_op_table_t;
struct hal_op_table_s {
  hal_device_t *device;
  pthread_mutex_t lock; /* finding ops, modules and kernels */
  hal_provider_t provider;
  hal_op_target_t target;
  hal_op_entry_t entries[HAL_OP_BUILTIN_COUNT];
  _Atomic(hal_plugin_kernel_t *) handles[HAL_OP_HANDLE_COUNT];
};

/* Dtypes with a portable kernel in the form of the device. */
static inline uint64_t hal_op_table_dtypes(const hal_op_table_t *table, const hal_op_info_t *info) {
  return info->dtypes | (table->target.form != HAL_FORM_HOST ? info->device_dtypes : 0);
}

/* Returns the table of a ready device. */
static inline hal_op_table_t *hal_op_table_of(const hal_device_t *device) {
  return hal_device_slot(device, HAL_COMPONENT_OP);
}

/* Create is called once under device->lock, destroy by hal_registry_close (device/slot.h). */
hal_status_t hal_op_table_create(hal_device_t *device, hal_op_table_t **out_table);
void hal_op_table_destroy(hal_op_table_t *table);

/* Fills an entry at the first call: queries the plugin once. */
void hal_op_entry_find(hal_op_table_t *table, hal_op_entry_t *entry, uint32_t op, const hal_op_info_t *info);

static inline hal_op_entry_t *hal_op_entry(hal_op_table_t *table, uint32_t op) {
  hal_op_entry_t *entry = &table->entries[op];
  if (HAL_UNLIKELY(!atomic_load_explicit(&entry->known, memory_order_acquire)))
    hal_op_entry_find(table, entry, op, &hal_op_infos[op]);
  return entry;
}

/* How often an operator ran, by implementation. */
typedef struct hal_op_counter_s {
  atomic_uint_fast64_t plugin, portable, unimplemented;
  atomic_uint_fast64_t
      slots[HAL_COMPONENTS - HAL_COMPONENT_CAPTURE]; /* slots of higher components (device/slot.h); not reset */
} hal_op_counter_t;
extern hal_op_counter_t hal_op_builtin_counters[HAL_OP_BUILTIN_COUNT];

/* Returns the counter of an operator; NULL past the last one. */
hal_op_counter_t *hal_op_counter(uint32_t op);

/* Returns the counter of a component above op/ for an operator; NULL past the last one. */
static inline atomic_uint_fast64_t *hal_op_counter_slot(uint32_t op, int component) {
  hal_op_counter_t *const counter = hal_op_counter(op);
  return counter ? &counter->slots[component - HAL_COMPONENT_CAPTURE] : NULL;
}

/* Returns HAL_OUT_OF_RANGE for an operator past the last one. */
hal_status_t hal_op_unknown(uint32_t op);

/* Increments a counter atomically; any thread. */
static inline void hal_op_count_one(atomic_uint_fast64_t *counter) {
  atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

#endif /* HAL_SRC_OP_TABLE_H_ */
