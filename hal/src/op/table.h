/* table.h: what a device has answered about the operators, and what the files of this room share. Private to hal/src/op. */
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

/* A device's answer for one operator, found at the first question: all that a call needs. */
typedef struct hal_op_entry_s {
  atomic_int known; /* 1 when the fields below may be read without the lock */
  uint32_t argument_count, further_count;
  uint64_t portable;        /* dtypes with a portable kernel in the form of the device */
  hal_op_own_t own;         /* the plugin's own op */
  hal_op_launcher_t launch; /* of the portable kernel, or of a library's function; NULL when this device has none */
  const hal_op_info_t *info;
  _Atomic(hal_plugin_kernel_t *) *handles; /* in the table */
} hal_op_entry_t;

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

/* Create is called once under device->lock, destroy by hal_registry_close. */
hal_status_t hal_op_table_create(hal_device_t *device, hal_op_table_t **out_table);
void hal_op_table_destroy(hal_op_table_t *table);

/* Fills an entry that is not known yet: asks the plugin, once. */
void hal_op_entry_find(hal_op_table_t *table, hal_op_entry_t *entry, uint32_t op, const hal_op_info_t *info);

static inline hal_op_entry_t *hal_op_entry(hal_op_table_t *table, uint32_t op) {
  hal_op_entry_t *entry = &table->entries[op];
  if (HAL_UNLIKELY(!atomic_load_explicit(&entry->known, memory_order_acquire)))
    hal_op_entry_find(table, entry, op, &hal_op_infos[op]);
  return entry;
}

/* How often an operator ran, by who answered. */
typedef struct hal_op_counter_s {
  atomic_uint_fast64_t plugin, portable, unimplemented;
  atomic_uint_fast64_t put_off; /* by lazy streams; never set to zero */
} hal_op_counter_t;
extern hal_op_counter_t hal_op_builtin_counters[HAL_OP_BUILTIN_COUNT];

/* The counter of an operator. NULL past the end. */
hal_op_counter_t *hal_op_counter(uint32_t op);

/* Refuses an operator past the end. */
hal_status_t hal_op_unknown(uint32_t op);

/* Counts exactly, by any thread. */
static inline void hal_op_count_one(atomic_uint_fast64_t *counter) {
  atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

#endif /* HAL_SRC_OP_TABLE_H_ */
