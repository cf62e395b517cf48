/* op.c: operators: the table of this build, what a device can run, and the way of a call: the plugin's own op, else the
 * portable kernel, else HAL_UNIMPLEMENTED. */
#include "hal/op.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/profile_internal.h"
#include "op/define.h"
#include "op/internal.h"
#include "op/iterator.h"

#include "hal_op_variants.h"

#include "hal_op_table.inc"

#define OP_COUNT ((uint32_t)(sizeof hal_op_infos / sizeof hal_op_infos[0]))
#define FAMILY_COUNT ((uint32_t)(sizeof hal_op_families / sizeof hal_op_families[0]))

/* The device's answer for one operator, found at the first question: all that a call needs. */
typedef struct hal_op_entry_s {
  atomic_int known; /* 1 when the fields below may be read without the lock */
  uint32_t argument_count;
  hal_op_fn_t fn; /* the plugin's own op, NULL when there is none */
  void *state;
  hal_op_launcher_t launch; /* of the portable kernel, NULL when there is none for this device */
  const hal_op_info_t *info;
  _Atomic(hal_plugin_kernel_t *) *handles; /* in the table */
} hal_op_entry_t;

struct hal_op_table_s {
  hal_device_t *device;
  pthread_mutex_t lock; /* finding ops, modules and kernels */
  int portable;         /* the device takes the host's portable kernels */
  hal_plugin_module_t *modules[FAMILY_COUNT];
  int module_missing[FAMILY_COUNT];
  hal_op_entry_t entries[OP_COUNT];
  _Atomic(hal_plugin_kernel_t *) handles[HAL_OP_HANDLE_COUNT];
};

static struct { atomic_uint_fast64_t plugin, portable, unimplemented; } counts[OP_COUNT];

char hal_op_no_kernel;

static const struct {
  uint8_t number, size;
  const char *token;
} dtype_table[HAL_OP_DTYPE_SLOTS] = HAL_OP_DTYPE_TABLE;

#define NO 0xff
/* clang-format off */
const uint8_t hal_op_dtype_slots[32] = {
    0, 1, 2, 3, 4, 8, 5, 6, NO, 10, 11, 7, /* u8 i8 i16 i32 i64 f16 f32 f64, three complex, bool */
    NO, NO, NO, 9, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, 12, 13, 14, NO, NO}; /* bf16; u16 u32 u64 */
/* clang-format on */

/* ---- the list ---------------------------------------------------------------------------------------------------- */

uint32_t hal_op_builtin_count(void) { return OP_COUNT; }

uint32_t hal_op_count(void) { return OP_COUNT + hal_op_defined_count(); }

const char *hal_op_name(uint32_t op) {
  return op < OP_COUNT ? hal_op_infos[op].name : hal_op_defined_name(op - OP_COUNT);
}

const char *hal_op_argument(uint32_t op, uint32_t argument) {
  return op < OP_COUNT && argument < hal_op_infos[op].argument_count ? hal_op_infos[op].arguments[argument] : NULL;
}

hal_status_t hal_op_id(const char *name, uint32_t *out_op) {
  for (uint32_t op = 0; name && op < OP_COUNT; op++)
    if (strcmp(name, hal_op_infos[op].name) == 0) {
      *out_op = op;
      return HAL_OK;
    }
  uint32_t defined;
  if (name && hal_op_defined_find(name, &defined) == HAL_OK) {
    *out_op = OP_COUNT + defined;
    return HAL_OK;
  }
  return hal_error_set(HAL_NOT_FOUND,
                       "no operator is called \"%s\"; names are \"name.overload\" as in codegen/ops.yaml, or those "
                       "that a library defined",
                       name ? name : "(null)");
}

/* ---- per device -------------------------------------------------------------------------------------------------- */

/* Tells whether a comma list of dialects has `dialect`. */
static int accepts(const char *dialects, const char *dialect) {
  const size_t length = strlen(dialect);
  for (const char *at = dialects; *at;) {
    const char *end = strchr(at, ',');
    const size_t size = end ? (size_t)(end - at) : strlen(at);
    if (size == length && memcmp(at, dialect, length) == 0) return 1;
    at += size + (end != NULL);
  }
  return 0;
}

hal_status_t hal_op_table_create(hal_device_t *device, hal_op_table_t **out_table) {
  hal_op_table_t *table = hal_calloc(1, sizeof *table);
  if (!table)
    return hal_error_set(HAL_RESOURCE_EXHAUSTED, "no host memory for the operator table of device %s (%zu bytes)",
                         device->label, sizeof *table);
  table->device = device;
  table->portable = accepts(device->info.dialects, "native");
  pthread_mutex_init(&table->lock, NULL);
  *out_table = table;
  return HAL_OK;
}

void hal_op_table_destroy(hal_op_table_t *table) {
  if (!table) return;
  for (uint32_t family = 0; family < FAMILY_COUNT; family++)
    if (table->modules[family]) hal_call_module_unload(table->device->plugin, table->modules[family]);
  pthread_mutex_destroy(&table->lock);
  hal_free(table);
}

/* Gives the family's module, loaded at the first call; the lock is held. */
static hal_status_t module_of(hal_op_table_t *table, uint32_t family, hal_plugin_module_t **out_module) {
  if (table->module_missing[family]) return HAL_UNIMPLEMENTED;
  if (!table->modules[family]) {
    const char *name = hal_op_families[family];
    const hal_module_desc_t desc = {.struct_size = HAL_STRUCT_SIZE(hal_module_desc_t, size),
                                    .dialect = "native",
                                    .options = "",
                                    .data = name,
                                    .size = strlen(name)};
    const hal_status_t status =
        hal_call_module_load(table->device->plugin, table->device->ordinal, &desc, &table->modules[family]);
    if (status == HAL_UNIMPLEMENTED || status == HAL_NOT_FOUND) {
      table->module_missing[family] = 1;
      return HAL_UNIMPLEMENTED;
    }
    if (status) {
      hal_error_plugin(table->device->plugin, HAL_SLOT_module_load, status);
      return hal_error_prefix(status, "while loading the portable kernels of the family \"%s\": ", name);
    }
  }
  *out_module = table->modules[family];
  return HAL_OK;
}

hal_status_t hal_op_kernel_find(hal_op_context_t *context, hal_dtype_t dtype, uint32_t variant,
                                hal_plugin_kernel_t **out_kernel) {
  const hal_op_info_t *info = context->info;
  hal_op_table_t *table = context->device->ops;
  const uint32_t slot = hal_op_dtype_slots[dtype];
  _Atomic(hal_plugin_kernel_t *) *handle = &context->handles[slot * info->variant_count + variant];
  hal_plugin_kernel_t *kernel = NULL;
  hal_status_t status = HAL_OK;
  char name[96];

  pthread_mutex_lock(&table->lock);
  kernel = atomic_load_explicit(handle, memory_order_relaxed);
  if (!kernel) {
    hal_plugin_module_t *module = NULL;
    status = info->dtypes >> dtype & 1 ? module_of(table, info->family, &module) : HAL_UNIMPLEMENTED;
    if (!status) {
      snprintf(name, sizeof name, "%s_%s_%s", info->kernel, dtype_table[slot].token, info->variants[variant]);
      status = hal_call_kernel_get(table->device->plugin, module, name, &kernel);
      if (status && status != HAL_NOT_FOUND) {
        hal_error_plugin(table->device->plugin, HAL_SLOT_kernel_get, status);
        hal_error_prefix(status, "while looking for the kernel \"%s\": ", name);
      }
    }
    if (status == HAL_UNIMPLEMENTED || status == HAL_NOT_FOUND) {
      kernel = (hal_plugin_kernel_t *)(void *)&hal_op_no_kernel;
      status = HAL_OK;
    }
    if (!status) atomic_store_explicit(handle, kernel, memory_order_release);
  }
  pthread_mutex_unlock(&table->lock);
  if (status) return status;
  if ((void *)kernel == (void *)&hal_op_no_kernel) return HAL_UNIMPLEMENTED;
  *out_kernel = kernel;
  return HAL_OK;
}

hal_status_t hal_op_launch_failed(const hal_op_context_t *context, hal_status_t status) {
  if (status == HAL_UNIMPLEMENTED) return status;
  hal_error_plugin(context->device->plugin, HAL_SLOT_kernel_launch, status);
  return hal_error_prefix(status, "%s: ", context->info->name);
}

static atomic_uchar disabled[OP_COUNT];

/* Tells whether calls of the operator shall answer HAL_UNIMPLEMENTED: hal_op_set_enabled, or HAL_DISABLE_OPS, which lists
 * full names ("sort.stable"), first parts ("sort") or "*". */
static int is_disabled(uint32_t op) {
  if (atomic_load_explicit(&disabled[op], memory_order_relaxed)) return 1;
  const char *const listed = getenv("HAL_DISABLE_OPS");
  if (!listed) return 0;
  char first[96];
  snprintf(first, sizeof first, "%.*s", (int)strcspn(hal_op_infos[op].name, "."), hal_op_infos[op].name);
  return accepts(listed, "*") || accepts(listed, hal_op_infos[op].name) || accepts(listed, first);
}

/* Asks the plugin for its op, once; an op that was asked for is cached whatever the answer. */
static void entry_find(hal_op_table_t *table, uint32_t op) {
  hal_op_entry_t *entry = &table->entries[op];
  const hal_op_info_t *info = &hal_op_infos[op];
  pthread_mutex_lock(&table->lock);
  if (!atomic_load_explicit(&entry->known, memory_order_relaxed)) {
    const int off = is_disabled(op);
    hal_op_fn_t fn = NULL;
    void *state = NULL;
    const hal_status_t status =
        off ? HAL_NOT_FOUND : hal_call_op_find(table->device->plugin, table->device->ordinal, info->name, &fn, &state);
    entry->fn = status == HAL_OK ? fn : NULL;
    entry->state = state;
    if (status != HAL_OK && status != HAL_NOT_FOUND && status != HAL_UNIMPLEMENTED) {
      hal_error_plugin(table->device->plugin, HAL_SLOT_op_find, status);
      hal_log(HAL_LOG_WARNING, "device %s: op_find(\"%s\") failed with %s: %s; the portable kernel is used",
              table->device->label, info->name, hal_status_name(status), hal_error_message());
    }
    entry->argument_count = info->argument_count;
    entry->launch = off                                    ? NULL
                    : table->portable                      ? info->launch
                    : info->launch == hal_op_launch_random ? hal_op_fill_random
                                                           : NULL;
    entry->info = info;
    entry->handles = &table->handles[info->first_handle];
    atomic_store_explicit(&entry->known, 1, memory_order_release);
  }
  pthread_mutex_unlock(&table->lock);
}

static inline hal_op_entry_t *entry_of(hal_op_table_t *table, uint32_t op) {
  hal_op_entry_t *entry = &table->entries[op];
  if (HAL_UNLIKELY(!atomic_load_explicit(&entry->known, memory_order_acquire))) entry_find(table, op);
  return entry;
}

uint64_t hal_op_dtypes(int32_t device, uint32_t op) {
  hal_device_t *owner;
  if (hal_device_get(device, &owner)) return 0;
  if (HAL_UNLIKELY(op >= OP_COUNT)) return hal_op_defined_dtypes(owner, op - OP_COUNT);
  const hal_op_entry_t *entry = entry_of(owner->ops, op);
  return entry->fn ? UINT64_MAX : entry->launch ? entry->info->dtypes : 0;
}

hal_status_t hal_op_set_enabled(uint32_t op, int32_t enabled) {
  if (op >= OP_COUNT)
    return hal_error_set(HAL_OUT_OF_RANGE, "operator number %u; the operators that can be disabled are those below %u",
                         (unsigned)op, (unsigned)OP_COUNT);
  atomic_store(&disabled[op], !enabled);
  for (int32_t device = 0; device < hal_device_count(); device++) {
    if (!hal_device_is_initialized(device)) continue;
    hal_op_table_t *const table = hal_runtime.devices[device].ops;
    pthread_mutex_lock(&table->lock);
    atomic_store_explicit(&table->entries[op].known, 0, memory_order_release);
    pthread_mutex_unlock(&table->lock);
  }
  return HAL_OK;
}

/* ---- a call ------------------------------------------------------------------------------------------------------ */

/* Writes the plugin's ordinal into a descriptor, which the caller lends us for the call (op.h). */
static void set_device(const hal_tensor_t *tensor, int32_t ordinal) {
  if (tensor) ((hal_tensor_t *)(uintptr_t)tensor)->device = ordinal;
}

void hal_op_set_devices(const hal_op_call_t *call, int32_t ordinal) {
  for (uint32_t i = 0; i < call->arg_count; i++) {
    const hal_value_t *value = &call->args[i];
    if (value->tag == HAL_VALUE_TENSOR) set_device(value->u.t, ordinal);
    for (uint32_t j = 0; value->tag == HAL_VALUE_TENSOR_LIST && j < value->count; j++)
      set_device(value->u.tl[j], ordinal);
  }
  for (uint32_t i = 0; i < call->result_count; i++) set_device(call->results[i], ordinal);
}

static __attribute__((noinline)) hal_status_t refuse_call(int32_t device, uint32_t op, const hal_stream_t *stream,
                                                          const hal_op_call_t *call) {
  const hal_op_info_t *info = &hal_op_infos[op];
  if (!call || call->struct_size < HAL_STRUCT_SIZE(hal_op_call_t, offset))
    return hal_error_set(HAL_INVALID_ARGUMENT, "%s: the call is NULL or its struct_size is smaller than %llu",
                         info->name, (unsigned long long)HAL_STRUCT_SIZE(hal_op_call_t, offset));
  if (call->arg_count != info->argument_count)
    return hal_error_set(HAL_INVALID_ARGUMENT, "%s: %u arguments were given, the operator has %u", info->name,
                         (unsigned)call->arg_count, (unsigned)info->argument_count);
  if ((call->arg_count && !call->args) || !call->results || call->result_count == 0)
    return hal_error_set(HAL_INVALID_ARGUMENT, "%s: the call has no arguments or no results", info->name);
  return hal_error_set(HAL_INVALID_ARGUMENT, "%s: the stream belongs to device %s, the call is for device %s",
                       info->name, stream->device->label, hal_device_label(device));
}

static inline int is_wrong(const hal_op_entry_t *entry, const hal_op_call_t *call) {
  return !call || call->struct_size < HAL_STRUCT_SIZE(hal_op_call_t, offset) ||
         call->arg_count != entry->argument_count || (!call->args && call->arg_count) || !call->results ||
         !call->result_count;
}

/* Counts exactly, by any thread. */
static inline void count(atomic_uint_fast64_t *counter) { atomic_fetch_add_explicit(counter, 1, memory_order_relaxed); }

/* Asks the plugin's own op: HAL_UNIMPLEMENTED = take the portable kernel. */
static __attribute__((noinline)) hal_status_t run_own(const hal_op_entry_t *entry, hal_device_t *device,
                                                      hal_op_call_t *call) {
  hal_op_set_devices(call, device->ordinal);
  const hal_status_t status = entry->fn(entry->state, call);
  if (status == HAL_OK || status == HAL_UNIMPLEMENTED) return status;
  hal_error_plugin(device->plugin, HAL_SLOT_op_find, status);
  return hal_error_prefix(status, "%s: ", entry->info->name);
}

/* Looks through the operands in which some values are an error (`check` of codegen/ops.yaml), where they are tensors of a
 * dtype that can hold them. */
static __attribute__((noinline)) hal_status_t check_operands(const hal_op_context_t *of, const hal_op_call_t *call) {
  const hal_op_entry_t *entry = entry_of(of->device->ops, of->info->check);
  hal_op_context_t context = *of;
  if (!entry->launch) return HAL_OK;
  context.info = entry->info;
  context.handles = entry->handles;
  for (uint32_t i = 0; of->info->checked >> i; i++) {
    if (!(of->info->checked >> i & 1) || call->args[i].tag != HAL_VALUE_TENSOR) continue;
    const hal_value_t args[] = {call->args[i], {.tag = HAL_VALUE_INT, .u.i = i}};
    const hal_op_call_t operand = {.struct_size = sizeof operand, .args = args, .arg_count = 2};
    const hal_status_t status = entry->launch(&context, &operand);
    if (status && status != HAL_UNIMPLEMENTED) return status;
  }
  return HAL_OK;
}

static inline hal_status_t run(int32_t device, uint32_t op, hal_stream_t *stream, hal_op_call_t *call) {
  hal_device_t *owner;
  HAL_RETURN_IF_ERROR(hal_device_get(device, &owner));
  stream = hal_stream_or_current(owner, stream);
  if (HAL_UNLIKELY(op >= OP_COUNT)) return hal_op_defined_run(owner, op - OP_COUNT, stream, call);
  const hal_op_entry_t *entry = entry_of(owner->ops, op);
  if (HAL_UNLIKELY(is_wrong(entry, call) || stream->device != owner)) return refuse_call(device, op, stream, call);
  call->stream = stream->handle;
  call->device = owner->ordinal;
  hal_status_t status = HAL_UNIMPLEMENTED;
  if (HAL_UNLIKELY(entry->fn != NULL)) {
    status = run_own(entry, owner, call);
    if (!status) count(&counts[op].plugin);
    if (status != HAL_UNIMPLEMENTED) return status;
  }
  if (HAL_LIKELY(entry->launch != NULL)) {
    hal_op_context_t context = {
        .info = entry->info, .device = owner, .stream = stream, .handles = entry->handles, .op = op};
    if (HAL_UNLIKELY(entry->info->checked)) HAL_RETURN_IF_ERROR(check_operands(&context, call));
    status = entry->launch(&context, call);
    if (HAL_LIKELY(!status)) {
      count(&counts[op].portable);
      return HAL_OK;
    }
  }
  if (status == HAL_UNIMPLEMENTED) count(&counts[op].unimplemented);
  return status;
}

/* Out of line, so that the way without a profile stays short. */
static __attribute__((noinline)) hal_status_t run_profiled(int32_t device, uint32_t op, hal_stream_t *stream,
                                                           hal_op_call_t *call) {
  const uint32_t outer = hal_profile_begin_op(op);
  const hal_status_t status = run(device, op, stream, call);
  hal_profile_end_op(outer);
  return status;
}

hal_status_t hal_op_run(int32_t device, uint32_t op, hal_stream_t *stream, hal_op_call_t *call) {
  return hal_profile_is_on() ? run_profiled(device, op, stream, call) : run(device, op, stream, call);
}

/* ---- counts ------------------------------------------------------------------------------------------------------ */

hal_status_t hal_op_counts(uint32_t op, hal_op_counts_t *out_counts) {
  hal_op_counts_t result = {.struct_size = out_counts->struct_size};
  if (op < OP_COUNT) {
    result.plugin = atomic_load_explicit(&counts[op].plugin, memory_order_relaxed);
    result.portable = atomic_load_explicit(&counts[op].portable, memory_order_relaxed);
    result.unimplemented = atomic_load_explicit(&counts[op].unimplemented, memory_order_relaxed);
  } else if (!hal_op_defined_counts(op - OP_COUNT, &result)) {
    return hal_error_set(HAL_OUT_OF_RANGE, "operator number %u; this process has %u operators", (unsigned)op,
                         (unsigned)hal_op_count());
  }
  memcpy(out_counts, &result, out_counts->struct_size < sizeof result ? out_counts->struct_size : sizeof result);
  return HAL_OK;
}

void hal_op_reset_counts(void) {
  hal_op_defined_reset_counts();
  for (uint32_t op = 0; op < OP_COUNT; op++) {
    atomic_store_explicit(&counts[op].plugin, 0, memory_order_relaxed);
    atomic_store_explicit(&counts[op].portable, 0, memory_order_relaxed);
    atomic_store_explicit(&counts[op].unimplemented, 0, memory_order_relaxed);
  }
}
