/* disable.c: operators that are disabled by the application or the environment: they return HAL_UNIMPLEMENTED. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "op/table.h"

enum { UNKNOWN = 0, ENABLED = 1, DISABLED = 2 };
static atomic_uchar states[HAL_OP_BUILTIN_COUNT];

/* HAL_DISABLE_OPS lists full names ("sort.stable"), first parts ("sort") or "*". */
static int is_listed(uint32_t op) {
  const char *const listed = getenv("HAL_DISABLE_OPS"), *const name = hal_op_infos[op].name;
  if (!listed) return 0;
  char first[96];
  snprintf(first, sizeof first, "%.*s", (int)strcspn(name, "."), name);
  return hal_text_lists(listed, "*") || hal_text_lists(listed, name) || hal_text_lists(listed, first);
}

/* The environment is read once per operator, unless hal_op_set_enabled was called for it. */
int32_t hal_op_enabled(uint32_t op) {
  if (op >= HAL_OP_BUILTIN_COUNT) return 1;
  unsigned char state = atomic_load_explicit(&states[op], memory_order_relaxed);
  if (state == UNKNOWN) {
    unsigned char unknown = UNKNOWN;
    state = is_listed(op) ? DISABLED : ENABLED;
    if (!atomic_compare_exchange_strong(&states[op], &unknown, state)) state = unknown;
  }
  return state == ENABLED;
}

hal_status_t hal_op_set_enabled(uint32_t op, int32_t enabled) {
  if (op >= HAL_OP_BUILTIN_COUNT)
    return hal_error_set(HAL_OUT_OF_RANGE, "operator number %u cannot be disabled; expected a number below %u",
                         (unsigned)op, (unsigned)HAL_OP_BUILTIN_COUNT);
  atomic_store(&states[op], enabled ? ENABLED : DISABLED);
  for (int32_t device = 0; device < hal_device_count(); device++) {
    if (!hal_device_is_initialized(device)) continue;
    hal_op_table_t *const table = hal_op_table_of(&hal_devices[device]);
    hal_mutex_lock_and_defer(&table->lock);
    atomic_store_explicit(&table->entries[op].known, 0, memory_order_release);
    hal_mutex_unlock_and_run(&table->lock);
  }
  return HAL_OK;
}
