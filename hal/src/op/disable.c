/* disable.c: operators that answer HAL_UNIMPLEMENTED because somebody said so. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "op/table.h"

static atomic_uchar disabled[HAL_OP_BUILTIN_COUNT];

/* By hal_op_set_enabled, or HAL_DISABLE_OPS, which lists full names ("sort.stable"), first parts ("sort") or "*". */
int hal_op_is_disabled(uint32_t op) {
  if (op >= HAL_OP_BUILTIN_COUNT) return 0;
  if (atomic_load_explicit(&disabled[op], memory_order_relaxed)) return 1;
  const char *const listed = getenv("HAL_DISABLE_OPS"), *const name = hal_op_infos[op].name;
  if (!listed) return 0;
  char first[96];
  snprintf(first, sizeof first, "%.*s", (int)strcspn(name, "."), name);
  return hal_text_lists(listed, "*") || hal_text_lists(listed, name) || hal_text_lists(listed, first);
}

hal_status_t hal_op_set_enabled(uint32_t op, int32_t enabled) {
  if (op >= HAL_OP_BUILTIN_COUNT)
    return hal_error_set(HAL_OUT_OF_RANGE, "operator number %u; the operators that can be disabled are those below %u",
                         (unsigned)op, (unsigned)HAL_OP_BUILTIN_COUNT);
  atomic_store(&disabled[op], !enabled);
  for (int32_t device = 0; device < hal_device_count(); device++) {
    if (!hal_device_is_initialized(device)) continue;
    hal_op_table_t *const table = hal_devices[device].ops;
    pthread_mutex_lock(&table->lock);
    atomic_store_explicit(&table->entries[op].known, 0, memory_order_release);
    pthread_mutex_unlock(&table->lock);
  }
  return HAL_OK;
}
