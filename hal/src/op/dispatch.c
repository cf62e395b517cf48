/* dispatch.c: runs a call: the plugin's own op, else the portable kernel or the library's function, else
 * HAL_UNIMPLEMENTED. */
#include "device/profile_internal.h"
#include "op/define.h"
#include "op/launch.h"
#include "op/table.h"

/* The objects of one call. Functions that are not inlined get a copy, so that the usual path has them in registers. */
typedef struct target_s {
  const hal_op_entry_t *entry;
  hal_op_counter_t *counter;
  hal_device_t *device;
  hal_stream_t *stream;
  hal_queue_t *queue; /* of the stream */
  uint32_t op;
} target_t;

static inline int is_wrong(const hal_op_entry_t *entry, const hal_op_call_t *call) {
  return !call || call->struct_size < HAL_STRUCT_SIZE(hal_op_call_t, offset) ||
         call->arg_count - entry->argument_count > entry->further_count || (!call->args && call->arg_count) ||
         !call->results || !call->result_count;
}

static __attribute__((noinline)) hal_status_t refuse(target_t target, const hal_op_call_t *call) {
  const hal_op_info_t *info = target.entry->info;
  if (!call || call->struct_size < HAL_STRUCT_SIZE(hal_op_call_t, offset))
    return hal_error_set(HAL_INVALID_ARGUMENT, "%s: the call is NULL or its struct_size is smaller than %llu",
                         info->name, (unsigned long long)HAL_STRUCT_SIZE(hal_op_call_t, offset));
  if (call->arg_count - info->argument_count > info->further_count)
    return hal_error_set(HAL_INVALID_ARGUMENT, "%s: the call has %u arguments, the operator has %u", info->name,
                         (unsigned)call->arg_count, (unsigned)(info->argument_count + info->further_count));
  if ((call->arg_count && !call->args) || !call->results || call->result_count == 0)
    return hal_error_set(HAL_INVALID_ARGUMENT, "%s: the call has no arguments or no results", info->name);
  return hal_error_set(HAL_INVALID_ARGUMENT, "%s: the stream belongs to device %s, the call is for device %s",
                       info->name, target.stream->device->label, target.device->label);
}

/* Finds the implementations of an operator that a library defined. */
static __attribute__((noinline)) hal_status_t find_defined(hal_device_t *device, uint32_t op,
                                                           hal_op_defined_t **out_defined,
                                                           const hal_op_entry_t **out_entry) {
  hal_op_defined_t *const defined = *out_defined = hal_op_defined(op);
  if (!defined)
    return hal_error_set(HAL_INVALID_ARGUMENT,
                         "unknown operator number %u; this process has %u operators (hal_op_id finds one by name)",
                         (unsigned)op, (unsigned)hal_op_count());
  *out_entry = hal_op_defined_entry(device, op);
  return HAL_OK;
}

/* Finds and checks everything that a call needs. */
static inline hal_status_t find(int32_t device, uint32_t op, hal_stream_t *stream, const hal_op_call_t *call,
                                target_t *target) {
  hal_device_t *owner;
  HAL_RETURN_IF_ERROR(hal_device_get(device, &owner));
  target->device = owner;
  target->stream = stream = hal_stream_or_current(owner, stream);
  target->queue = hal_stream_queue(stream);
  target->op = op;
  if (HAL_UNLIKELY(op >= HAL_OP_BUILTIN_COUNT)) {
    hal_op_defined_t *defined;
    const hal_op_entry_t *entry;
    HAL_RETURN_IF_ERROR(find_defined(owner, op, &defined, &entry));
    target->entry = entry;
    target->counter = &defined->counter;
  } else {
    target->entry = hal_op_entry(hal_op_table_of(owner), op);
    target->counter = &hal_op_builtin_counters[op];
  }
  return HAL_UNLIKELY(is_wrong(target->entry, call) || stream->device != owner) ? refuse(*target, call) : HAL_OK;
}

/* As find, and also writes stream and device into the call. */
static inline hal_status_t prepare(int32_t device, uint32_t op, hal_stream_t *stream, hal_op_call_t *call,
                                   target_t *target) {
  HAL_RETURN_IF_ERROR(find(device, op, stream, call, target));
  call->stream = target->stream->direct.handle;
  call->device = target->device->ordinal;
  return HAL_OK;
}

/* Calls the plugin's own op, which exists; it may decline. */
static __attribute__((noinline)) hal_status_t call_own(target_t target, hal_op_call_t *call) {
  const hal_status_t status =
      hal_op_own_call(&target.entry->own, hal_op_error_name(target.op), target.stream, NULL, call);
  if (!status) hal_op_count_one(&target.counter->plugin);
  return status;
}

void hal_op_context_of(const hal_op_context_t *context, uint32_t op, hal_op_context_t *out_context) {
  const hal_op_entry_t *const entry = hal_op_entry(hal_op_table_of(context->device), op);
  *out_context = *context;
  out_context->info = entry->info;
  out_context->handles = entry->handles;
  out_context->op = op;
}

/* Checks the values of operands in which some values are an error (`device_assert` of codegen/operators), if they are
 * tensors of a dtype that can hold such values. */
static __attribute__((noinline)) hal_status_t check_operands(const hal_op_context_t *of, const hal_op_call_t *call) {
  hal_op_context_t context;
  hal_op_context_of(of, of->info->check, &context);
  const hal_op_entry_t *const entry = hal_op_entry(hal_op_table_of(of->device), of->info->check);
  if (!entry->launch) return HAL_OK;
  for (uint32_t i = 0; of->info->checked >> i; i++) {
    if (!(of->info->checked >> i & 1) || call->args[i].tag != HAL_VALUE_TENSOR) continue;
    const hal_value_t args[] = {call->args[i], {.tag = HAL_VALUE_INT, .u.i = i}};
    const hal_op_call_t operand = {.struct_size = sizeof operand, .args = args, .arg_count = 2};
    const hal_status_t status = entry->launch(&context, &operand);
    if (status && status != HAL_UNIMPLEMENTED) return status;
  }
  return HAL_OK;
}

/* Returns whether a tensor has elements before its address: strides are negative in `flip`. */
static int begins_before(const hal_tensor_t *tensor) {
  int is_before = 0;
  for (int32_t d = 0; d < tensor->ndim; d++) {
    if (tensor->sizes[d] == 0) return 0;
    is_before |= tensor->sizes[d] > 1 && tensor->strides[d] < 0;
  }
  return is_before;
}

/* Returns the bytes from a tensor's address to its end. */
static uint64_t extent_of(const hal_tensor_t *tensor) {
  uint64_t last = 0;
  for (int32_t d = 0; d < tensor->ndim; d++) {
    if (tensor->sizes[d] == 0) return 0;
    if (tensor->strides[d] > 0) last += (uint64_t)(tensor->sizes[d] - 1) * (uint64_t)tensor->strides[d];
  }
  return (last + 1) * hal_op_dtype_size(tensor->dtype);
}

static hal_status_t check_extent(const hal_op_context_t *context, const hal_tensor_t *tensor) {
  const uint64_t most = context->device->info.max_binding;
  if (!tensor) return HAL_OK;
  if (HAL_UNLIKELY(begins_before(tensor)))
    return hal_error_set(HAL_UNIMPLEMENTED,
                         "%s: an operand with a negative stride, but kernels of device %s access memory only from an "
                         "address on (max_binding in device_info)",
                         hal_op_error_name(context->called), context->device->label);
  if (extent_of(tensor) <= most) return HAL_OK;
  return hal_error_set(HAL_UNIMPLEMENTED,
                       "%s: an operand of %llu bytes, but kernels of device %s access at most %llu from an address "
                       "(max_binding in device_info)",
                       hal_op_error_name(context->called), (unsigned long long)extent_of(tensor),
                       context->device->label, (unsigned long long)most);
}

/* Returns whether a call is within all limits of the device's launches, before any of them is queued. */
static __attribute__((noinline)) hal_status_t check_limits(const hal_op_context_t *of, const hal_op_entry_t *entry,
                                                           const hal_op_call_t *call) {
  hal_op_context_t context = *of;
  context.elsewhere = HAL_OP_PLANS;
  for (uint32_t i = 0; of->device->info.max_binding && i < call->result_count; i++)
    HAL_RETURN_IF_ERROR(check_extent(of, call->results[i]));
  for (uint32_t i = 0; of->device->info.max_binding && i < call->arg_count; i++) {
    const hal_value_t *const value = &call->args[i];
    if (value->tag == HAL_VALUE_TENSOR) HAL_RETURN_IF_ERROR(check_extent(of, value->u.t));
    for (uint32_t k = 0; value->tag == HAL_VALUE_TENSOR_LIST && k < value->count; k++)
      HAL_RETURN_IF_ERROR(check_extent(of, value->u.tl[k]));
  }
  return entry->launch(&context, call);
}

/* Launches the portable kernel, or calls the library's function. */
static inline hal_status_t launch(const target_t *target, const hal_op_call_t *call, hal_recorded_op_t *recorded,
                                  uint32_t elsewhere) {
  const hal_op_entry_t *const entry = target->entry;
  hal_op_context_t context = {.info = entry->info,
                              .device = target->device,
                              .stream = target->stream,
                              .queue = target->queue,
                              .handles = entry->handles,
                              .op = target->op,
                              .called = target->op,
                              .group_threads = hal_op_table_of(target->device)->target.group_threads,
                              .few_loops = hal_op_table_of(target->device)->target.few_loops,
                              .recorded = recorded,
                              .elsewhere = elsewhere};
  if (HAL_UNLIKELY(target->device->plans_first | entry->info->checked)) {
    if (target->device->plans_first && target->op < HAL_OP_BUILTIN_COUNT)
      HAL_RETURN_IF_ERROR(check_limits(&context, entry, call));
    if (entry->info->checked) HAL_RETURN_IF_ERROR(check_operands(&context, call));
  }
  return entry->launch(&context, call);
}

/* ---- streams with another queue than the direct one -------------------------------------------------------------- */

/* Passes the plugin's own op to the queue if its positive verdict is binding, because a recorded op cannot fall back
 * when it is called later. The queue handles an op whose verdict is known only when it is called. */
static hal_status_t record_own(const target_t *target, hal_op_call_t *call, hal_recorded_op_t *recorded) {
  (void)recorded; /* of the thread */
  const hal_op_own_t *const own = &target->entry->own;
  const hal_status_t verdict = hal_op_own_query(own, target->device, call);
  if (verdict && verdict != HAL_NOT_READY) return HAL_UNIMPLEMENTED;
  const hal_status_t status =
      target->queue->calls->own_op(target->queue, own, hal_op_error_name(target->op), call, verdict);
  if (status == HAL_NOT_READY) return call_own(*target, call);
  if (!status) hal_op_count_one(&target->counter->plugin);
  return status;
}

static inline hal_status_t record(const target_t *target, hal_op_call_t *call, hal_recorded_op_t *recorded) {
  hal_status_t status = HAL_UNIMPLEMENTED;
  if (HAL_UNLIKELY(target->entry->own.fn != NULL) && !(call->flags & HAL_RUN_PORTABLE))
    status = record_own(target, call, recorded);
  if (status != HAL_UNIMPLEMENTED) return status;
  if (target->entry->launch) status = launch(target, call, recorded, HAL_OP_QUEUES);
  if (status == HAL_OK) hal_op_count_one(&target->counter->portable);
  if (status == HAL_UNIMPLEMENTED) hal_op_count_one(&target->counter->unimplemented);
  return status;
}

/* Runs one of the two as an operator of the recording. */
static inline hal_status_t run_recorded(const target_t *target, hal_op_call_t *call,
                                        hal_status_t (*way)(const target_t *, hal_op_call_t *, hal_recorded_op_t *)) {
  hal_thread_t *const thread = &hal_thread;
  hal_queue_t *const queue = target->queue;
  hal_recorded_op_t recorded = {.outer = thread->recorded_op, .op = target->op};
  if (!queue->calls->begin_op(queue, &recorded, call)) return way(target, call, recorded.outer);
  thread->recorded_op = &recorded;
  const hal_status_t status = way(target, call, &recorded);
  thread->recorded_op = recorded.outer;
  queue->calls->end_op(queue, &recorded);
  return status;
}

static inline hal_status_t run_direct(const target_t *target, hal_op_call_t *call) {
  const hal_op_entry_t *const entry = target->entry;
  hal_status_t status = HAL_UNIMPLEMENTED;
  if (HAL_UNLIKELY(entry->own.fn != NULL) && !(call->flags & HAL_RUN_PORTABLE)) {
    status = call_own(*target, call);
    if (status != HAL_UNIMPLEMENTED) return status;
  }
  if (HAL_LIKELY(entry->launch != NULL)) {
    status = launch(target, call, NULL, 0);
    if (HAL_LIKELY(!status)) {
      hal_op_count_one(&target->counter->portable);
      return HAL_OK;
    }
  }
  if (status == HAL_UNIMPLEMENTED) hal_op_count_one(&target->counter->unimplemented);
  return status;
}
/* Returns whether the queue does not record the operator; then the target's queue is the direct one. */
static inline int passes(target_t *target, const hal_op_call_t *call) {
  const hal_queue_calls_t *const calls = target->queue->calls;
  if (HAL_LIKELY(!calls->passes)) return 0;
  const int own = target->entry->own.fn && !(call->flags & HAL_RUN_PORTABLE);
  if (!calls->passes(target->queue, target->op, own, call)) return 0;
  target->queue = &target->stream->direct.queue;
  return 1;
}

/* `own`: only the plugin's own operator. */
static __attribute__((noinline)) hal_status_t run_elsewhere(target_t target, hal_op_call_t *call, int own) {
  if (!passes(&target, call))
    return own ? run_recorded(&target, call, record_own) : run_recorded(&target, call, record);
  hal_recorded_op_t *const outer = hal_thread.recorded_op;
  hal_thread.recorded_op = &hal_passing_op;
  const hal_status_t status = own ? call_own(target, call) : run_direct(&target, call);
  hal_thread.recorded_op = outer;
  return status;
}

/* Whether the stream's queue is not the direct one. This is the only place that needs to know, to avoid a call per
 * kernel launch: everything else uses the functions of the queue. */
static inline int goes_elsewhere(const target_t *target) { return target->queue != &target->stream->direct.queue; }

static inline hal_status_t run(int32_t device, uint32_t op, hal_stream_t *stream, hal_op_call_t *call) {
  target_t target;
  HAL_RETURN_IF_ERROR(prepare(device, op, stream, call, &target));
  if (HAL_UNLIKELY(goes_elsewhere(&target))) return run_elsewhere(target, call, 0);
  return run_direct(&target, call);
}

hal_status_t hal_op_plan(int32_t device, uint32_t op, hal_stream_t *stream, const hal_op_call_t *call) {
  target_t target;
  HAL_RETURN_IF_ERROR(find(device, op, stream, call, &target));
  const hal_op_entry_t *const entry = target.entry;
  /* a library's function has no plan mode */
  if (!entry->launch || op >= HAL_OP_BUILTIN_COUNT) return HAL_UNIMPLEMENTED;
  return launch(&target, call, NULL, HAL_OP_PLANS);
}

/* Out of line, so that the path without a profile stays short. */
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

/* What a recording declines depends on the recording too, so only direct calls report that a decline is constant. */
static hal_status_t call_own_only(target_t target, hal_op_call_t *call) {
  const hal_status_t status = call_own(target, call);
  if (status == HAL_UNIMPLEMENTED && hal_op_own_declines_alike(&target.entry->own, call))
    call->flags |= HAL_RUN_DECLINED_ALIKE;
  return status;
}

hal_status_t hal_op_run_own(int32_t device, uint32_t op, hal_stream_t *stream, hal_op_call_t *call) {
  target_t target;
  HAL_RETURN_IF_ERROR(prepare(device, op, stream, call, &target));
  call->flags &= ~(HAL_RUN_PORTABLE | HAL_RUN_DECLINED_ALIKE);
  if (!target.entry->own.fn) return HAL_UNIMPLEMENTED;
  if (HAL_UNLIKELY(goes_elsewhere(&target))) return run_elsewhere(target, call, 1);
  if (!hal_profile_is_on()) return call_own_only(target, call);
  const uint32_t outer = hal_profile_begin_op(op);
  const hal_status_t status = call_own_only(target, call);
  hal_profile_end_op(outer);
  return status;
}

/* ---- verdicts ---------------------------------------------------------------------------------------------------- */

hal_status_t hal_op_query(int32_t device, uint32_t op, hal_op_call_t *call, int32_t *out_verdict) {
  target_t target;
  HAL_RETURN_IF_ERROR(prepare(device, op, NULL, call, &target));
  hal_status_t own = HAL_UNIMPLEMENTED;
  if (!(call->flags & HAL_RUN_PORTABLE)) own = hal_op_own_query(&target.entry->own, target.device, call);
  if (own != HAL_UNIMPLEMENTED || (target.entry->launch && op >= HAL_OP_BUILTIN_COUNT)) {
    *out_verdict = own == HAL_OK ? HAL_VERDICT_OWN : HAL_VERDICT_UNSURE;
    return HAL_OK;
  }
  const hal_status_t status = hal_op_plan(device, op, target.stream, call);
  if (status && status != HAL_UNIMPLEMENTED) return status;
  *out_verdict = status ? HAL_VERDICT_NONE : HAL_VERDICT_PORTABLE;
  return HAL_OK;
}
