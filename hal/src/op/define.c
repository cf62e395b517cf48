/* define.c: operators that a library defines at run time: the plugin's implementation takes precedence over the
 * library's. Definitions are valid until the process ends, in a table that only grows. */
#include "op/define.h"

#include "base/life.h"
#include "base/lock.h"
#include "base/status_internal.h"
#include "op/addressed.h"

#include <string.h>

static hal_lock_t lock; /* definitions */
static _Atomic(hal_op_defined_t *) table[HAL_OP_MAX_DEFINED];
static atomic_uint count;

uint32_t hal_op_defined_count(void) { return atomic_load_explicit(&count, memory_order_acquire); }

hal_op_defined_t *hal_op_defined(uint32_t op) {
  const uint32_t number = op - HAL_OP_BUILTIN_COUNT;
  return number < hal_op_defined_count() ? atomic_load_explicit(&table[number], memory_order_acquire) : NULL;
}

int hal_op_defined_find(const char *name, uint32_t *out_op) {
  const uint32_t end = hal_op_count();
  for (uint32_t op = HAL_OP_BUILTIN_COUNT; op < end; op++)
    if (strcmp(name, hal_op_defined(op)->info.name) == 0) {
      *out_op = op;
      return 1;
    }
  return 0;
}

const hal_op_entry_t *hal_op_defined_entry(hal_device_t *device, uint32_t op) {
  hal_op_defined_t *const defined = hal_op_defined(op);
  if (!defined) return NULL;
  hal_op_entry_t *const entry = &defined->entries[device->index];
  if (HAL_UNLIKELY(!atomic_load_explicit(&entry->known, memory_order_acquire)))
    hal_op_entry_find(hal_op_table_of(device), entry, op, &defined->info);
  return entry;
}

/* The launcher of every such operator: calls the library's function with the HAL's device and without a plugin's
 * stream. */
static hal_status_t launch_defined(hal_op_context_t *context, const hal_op_call_t *call) {
  const hal_op_defined_t *const op = hal_op_defined(context->op);
  hal_op_call_t own = {.struct_size = 0};
  memcpy(&own, call, call->struct_size < sizeof own ? call->struct_size : sizeof own);
  own.stream = NULL;
  own.device = context->device->index;
  own.flags &= ~HAL_RUN_PORTABLE;
  const hal_op_call_t *seen;
  hal_op_addressed_t room;
  HAL_RETURN_IF_ERROR(hal_op_address(&own, own.device, &room, &seen));
  const uint64_t mark = hal_error_mark();
  const hal_status_t status = hal_error_since(mark, op->fn(op->state, own.device, context->stream, seen));
  hal_op_addressed_release(&room);
  return status == HAL_OK || status == HAL_UNIMPLEMENTED ? status : hal_error_prefix(status, "%s: ", op->info.name);
}

/* ---- defining ---------------------------------------------------------------------------------------------------- */

static hal_op_defined_t *make(const hal_op_desc_t *desc) {
  const size_t bytes = strlen(desc->name) + 1;
  hal_op_defined_t *op = hal_calloc(1, sizeof *op);
  char *name = hal_malloc(bytes);
  if (!op || !name) {
    hal_free(op);
    hal_free(name);
    return NULL;
  }
  memcpy(name, desc->name, bytes);
  op->info.name = name;
  op->info.argument_count = desc->argument_count;
  op->info.dtypes = UINT64_MAX;
  op->info.launch = op->info.launch_without_kernels = desc->fn ? launch_defined : NULL;
  op->fn = desc->fn;
  op->state = desc->state;
  return op;
}

static hal_status_t add(const hal_op_desc_t *desc, uint32_t *out_number) {
  const uint32_t number = hal_op_defined_count();
  uint32_t taken;
  if (hal_op_defined_find(desc->name, &taken))
    return hal_error_set(HAL_FAILED_PRECONDITION,
                         "the operator \"%s\" is defined already; load one library that defines it", desc->name);
  if (number >= HAL_OP_MAX_DEFINED)
    return hal_error_set(HAL_RESOURCE_EXHAUSTED,
                         "\"%s\" would be operator %u of libraries; the maximum of a process is %d", desc->name,
                         (unsigned)number + 1, HAL_OP_MAX_DEFINED);
  hal_op_defined_t *op = make(desc);
  if (!op) return hal_error_set(HAL_RESOURCE_EXHAUSTED, "no host memory to define the operator \"%s\"", desc->name);
  atomic_store_explicit(&table[number], op, memory_order_release);
  atomic_store_explicit(&count, number + 1, memory_order_release);
  *out_number = number;
  return HAL_OK;
}

hal_status_t hal_op_define(const hal_op_desc_t *desc, uint32_t *out_op) {
  uint32_t number = 0;
  if (!desc || desc->struct_size < HAL_STRUCT_SIZE(hal_op_desc_t, state) || !desc->name || !strstr(desc->name, "::"))
    return hal_error_set(
        HAL_INVALID_ARGUMENT,
        "an operator cannot be defined as \"%s\": pass a complete hal_op_desc_t and a name such as "
        "\"library::operator\"",
        desc && desc->struct_size >= HAL_STRUCT_SIZE(hal_op_desc_t, name) && desc->name ? desc->name : "(null)");
  hal_lock(&lock);
  const hal_status_t status = add(desc, &number);
  hal_unlock(&lock);
  if (!status) *out_op = HAL_OP_BUILTIN_COUNT + number;
  return status;
}
