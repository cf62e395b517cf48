/* count.c: how many times each operator ran, by implementation. */
#include <string.h>

#include "op/define.h"
#include "op/table.h"

hal_op_counter_t hal_op_builtin_counters[HAL_OP_BUILTIN_COUNT];

hal_op_counter_t *hal_op_counter(uint32_t op) {
  if (op < HAL_OP_BUILTIN_COUNT) return &hal_op_builtin_counters[op];
  hal_op_defined_t *const defined = hal_op_defined(op);
  return defined ? &defined->counter : NULL;
}

hal_status_t hal_op_unknown(uint32_t op) {
  return hal_error_set(HAL_OUT_OF_RANGE, "unknown operator number %u; this process has %u operators", (unsigned)op,
                       (unsigned)hal_op_count());
}

hal_status_t hal_op_counts(uint32_t op, hal_op_counts_t *out_counts) {
  const hal_op_counter_t *const counter = hal_op_counter(op);
  if (!counter) return hal_op_unknown(op);
  const hal_op_counts_t result = {
      .struct_size = out_counts->struct_size,
      .plugin = atomic_load_explicit(&counter->plugin, memory_order_relaxed),
      .portable = atomic_load_explicit(&counter->portable, memory_order_relaxed),
      .unimplemented = atomic_load_explicit(&counter->unimplemented, memory_order_relaxed),
  };
  memcpy(out_counts, &result, out_counts->struct_size < sizeof result ? out_counts->struct_size : sizeof result);
  return HAL_OK;
}

void hal_op_reset_counts(void) {
  const uint32_t ops = hal_op_count();
  for (uint32_t op = 0; op < ops; op++) {
    hal_op_counter_t *const counter = hal_op_counter(op);
    atomic_store_explicit(&counter->plugin, 0, memory_order_relaxed);
    atomic_store_explicit(&counter->portable, 0, memory_order_relaxed);
    atomic_store_explicit(&counter->unimplemented, 0, memory_order_relaxed);
  }
}
