/* op_define.c: operators that a library defines at run time: found at the plugin first, then in the library itself. The
 * definitions live as long as the process, in a table that only grows. */
#include "op/define.h"

#include <string.h>

#include "op/internal.h"

/* What one device's plugin answered for the operator. */
typedef struct verdict_s {
  atomic_int known; /* 1 when the fields below may be read without the lock */
  hal_op_fn_t fn;
  void *state;
} verdict_t;

typedef struct defined_s {
  char *name;
  uint32_t argument_count;
  hal_op_own_fn_t fn;
  void *state;
  verdict_t verdicts[HAL_MAX_DEVICES];
  atomic_uint_fast64_t plugin, own, unimplemented;
} defined_t;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* definitions and verdicts */
static _Atomic(defined_t *) table[HAL_OP_MAX_DEFINED];
static atomic_uint count;

uint32_t hal_op_defined_count(void) { return atomic_load_explicit(&count, memory_order_acquire); }

static defined_t *get(uint32_t number) {
  return number < hal_op_defined_count() ? atomic_load_explicit(&table[number], memory_order_acquire) : NULL;
}

const char *hal_op_defined_name(uint32_t number) {
  const defined_t *op = get(number);
  return op ? op->name : NULL;
}

hal_status_t hal_op_defined_find(const char *name, uint32_t *out_number) {
  for (uint32_t number = 0; number < hal_op_defined_count(); number++)
    if (strcmp(name, get(number)->name) == 0) {
      *out_number = number;
      return HAL_OK;
    }
  return HAL_NOT_FOUND;
}

/* ---- defining ---------------------------------------------------------------------------------------------------- */

static defined_t *make(const hal_op_desc_t *desc) {
  const size_t bytes = strlen(desc->name) + 1;
  defined_t *op = hal_calloc(1, sizeof *op);
  char *name = hal_malloc(bytes);
  if (!op || !name) {
    hal_free(op);
    hal_free(name);
    return NULL;
  }
  memcpy(name, desc->name, bytes);
  op->name = name;
  op->argument_count = desc->argument_count;
  op->fn = desc->fn;
  op->state = desc->state;
  return op;
}

static hal_status_t add(const hal_op_desc_t *desc, uint32_t *out_number) {
  const uint32_t number = hal_op_defined_count();
  uint32_t taken;
  if (hal_op_defined_find(desc->name, &taken) == HAL_OK)
    return hal_error_set(HAL_FAILED_PRECONDITION,
                         "the operator \"%s\" is defined already; load one library that defines it", desc->name);
  if (number >= HAL_OP_MAX_DEFINED)
    return hal_error_set(HAL_RESOURCE_EXHAUSTED, "\"%s\" would be operator %u of libraries; a process has room for %d",
                         desc->name, (unsigned)number + 1, HAL_OP_MAX_DEFINED);
  defined_t *op = make(desc);
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
        "an operator cannot be defined as \"%s\": give a whole hal_op_desc_t and a name like "
        "\"library::operator\"",
        desc && desc->struct_size >= HAL_STRUCT_SIZE(hal_op_desc_t, name) && desc->name ? desc->name : "(null)");
  pthread_mutex_lock(&lock);
  const hal_status_t status = add(desc, &number);
  pthread_mutex_unlock(&lock);
  if (!status) *out_op = hal_op_builtin_count() + number;
  return status;
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

/* Asks the plugin, once per device. */
static void ask_plugin(defined_t *op, hal_device_t *device) {
  verdict_t *verdict = &op->verdicts[device->index];
  pthread_mutex_lock(&lock);
  if (!atomic_load_explicit(&verdict->known, memory_order_relaxed)) {
    hal_op_fn_t fn = NULL;
    void *state = NULL;
    const hal_status_t status = hal_call_op_find(device->plugin, device->ordinal, op->name, &fn, &state);
    if (status == HAL_OK) {
      verdict->fn = fn;
      verdict->state = state;
    } else if (status != HAL_NOT_FOUND && status != HAL_UNIMPLEMENTED) {
      hal_error_plugin(device->plugin, HAL_SLOT_op_find, status);
      hal_log(HAL_LOG_WARNING, "device %d: op_find(\"%s\") failed with %s: %s; the library's own function is used",
              (int)device->index, op->name, hal_status_name(status), hal_error_message());
    }
    atomic_store_explicit(&verdict->known, 1, memory_order_release);
  }
  pthread_mutex_unlock(&lock);
}

static const verdict_t *verdict_of(defined_t *op, hal_device_t *device) {
  verdict_t *verdict = &op->verdicts[device->index];
  if (HAL_UNLIKELY(!atomic_load_explicit(&verdict->known, memory_order_acquire))) ask_plugin(op, device);
  return verdict;
}

uint64_t hal_op_defined_dtypes(hal_device_t *device, uint32_t number) {
  defined_t *op = get(number);
  if (!op) return 0;
  return op->fn || verdict_of(op, device)->fn ? UINT64_MAX : 0;
}

static hal_status_t check_call(const defined_t *op, const hal_device_t *device, const hal_stream_t *stream,
                               const hal_op_call_t *call) {
  if (!call || call->struct_size < HAL_STRUCT_SIZE(hal_op_call_t, offset))
    return hal_error_set(HAL_INVALID_ARGUMENT, "%s: the call is NULL or its struct_size is smaller than %llu", op->name,
                         (unsigned long long)HAL_STRUCT_SIZE(hal_op_call_t, offset));
  if (call->arg_count != op->argument_count)
    return hal_error_set(HAL_INVALID_ARGUMENT, "%s: %u arguments were given, the operator has %u", op->name,
                         (unsigned)call->arg_count, (unsigned)op->argument_count);
  if ((call->arg_count && !call->args) || !call->results || call->result_count == 0)
    return hal_error_set(HAL_INVALID_ARGUMENT, "%s: the call has no arguments or no results", op->name);
  if (stream->device != device)
    return hal_error_set(HAL_INVALID_ARGUMENT, "%s: the stream belongs to device %d, the call is for device %d",
                         op->name, (int)stream->device->index, (int)device->index);
  return HAL_OK;
}

/* Counts an answer and completes a failure's message. */
static hal_status_t finish(const defined_t *op, atomic_uint_fast64_t *counter, hal_status_t status) {
  if (status == HAL_OK) atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
  return status == HAL_OK || status == HAL_UNIMPLEMENTED ? status : hal_error_prefix(status, "%s: ", op->name);
}

hal_status_t hal_op_defined_run(hal_device_t *device, uint32_t number, hal_stream_t *stream, hal_op_call_t *call) {
  defined_t *op = get(number);
  if (!op)
    return hal_error_set(HAL_INVALID_ARGUMENT,
                         "operator number %u; this process has %u operators (hal_op_id finds one by name)",
                         (unsigned)(hal_op_builtin_count() + number), (unsigned)hal_op_count());
  HAL_RETURN_IF_ERROR(check_call(op, device, stream, call));
  const verdict_t *verdict = verdict_of(op, device);
  hal_status_t status = HAL_UNIMPLEMENTED;
  if (verdict->fn) {
    call->stream = stream->handle;
    call->device = device->ordinal;
    hal_op_set_devices(call, device->ordinal);
    status = verdict->fn(verdict->state, call);
    if (status && status != HAL_UNIMPLEMENTED) hal_error_plugin(device->plugin, HAL_SLOT_op_find, status);
    status = finish(op, &op->plugin, status);
  }
  if (status == HAL_UNIMPLEMENTED && op->fn) {
    call->stream = NULL;
    call->device = device->index;
    hal_op_set_devices(call, device->index);
    status = finish(op, &op->own, op->fn(op->state, device->index, stream, call));
  }
  if (status == HAL_UNIMPLEMENTED) atomic_fetch_add_explicit(&op->unimplemented, 1, memory_order_relaxed);
  return status;
}

/* ---- counts ------------------------------------------------------------------------------------------------------ */

int hal_op_defined_counts(uint32_t number, hal_op_counts_t *out_counts) {
  const defined_t *op = get(number);
  if (!op) return 0;
  out_counts->plugin = atomic_load_explicit(&op->plugin, memory_order_relaxed);
  out_counts->portable = atomic_load_explicit(&op->own, memory_order_relaxed);
  out_counts->unimplemented = atomic_load_explicit(&op->unimplemented, memory_order_relaxed);
  return 1;
}

void hal_op_defined_reset_counts(void) {
  for (uint32_t number = 0; number < hal_op_defined_count(); number++) {
    defined_t *op = get(number);
    atomic_store_explicit(&op->plugin, 0, memory_order_relaxed);
    atomic_store_explicit(&op->own, 0, memory_order_relaxed);
    atomic_store_explicit(&op->unimplemented, 0, memory_order_relaxed);
  }
}
