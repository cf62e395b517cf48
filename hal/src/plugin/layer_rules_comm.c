/* layer_rules_comm.c: the rules of the collectives' ops, beyond those for all ops. */
#include <stdint.h>

#include "base/dtype.h"
#include "plugin/call.h"
#include "plugin/layer_rules.h"

static hal_live_t *comm_of(const hal_layer_call_t *call, const char *name) {
  return hal_live_find(&state_of(call)->lives, HAL_LIVE_COMM, (uintptr_t)value_of(call, name));
}

size_t hal_validate_ranks(hal_plugin_t *plugin, const hal_plugin_comm_t *comm) {
  hal_lives_t *const lives = &plugin->validate->lives;
  hal_mutex_lock_and_defer(&lives->lock);
  const hal_live_t *const live = hal_live_find(lives, HAL_LIVE_COMM, (uintptr_t)comm);
  const size_t ranks = live ? live->size : 0;
  hal_mutex_unlock_and_run(&lives->lock);
  return ranks;
}

/* ---- capabilities of the library, ids ---- */

hal_status_t hal_rule_after_comm_info(hal_layer_call_t *call, hal_status_t status) {
  const hal_comm_info_t *const info = &WRITTEN(call, 0, hal_comm_info_t);
  if (call->outs[0].size < HAL_STRUCT_SIZE(hal_comm_info_t, name)) return status;
  if (!has_end(info->name, sizeof info->name))
    return hal_validate_fault(call->plugin, call->slot, "name has no NUL within its %zu bytes; cut it",
                              sizeof info->name);
  if (info->id_bytes && info->id_bytes <= HAL_COMM_ID_BYTES && info->ops) return status;
  return hal_validate_fault(call->plugin, call->slot,
                            "the plugin reported ids of %u bytes and operators 0x%llx; ids have 1 to %d bytes, and "
                            "without an operator the result is UNIMPLEMENTED",
                            info->id_bytes, (unsigned long long)info->ops, HAL_COMM_ID_BYTES);
}

hal_status_t hal_rule_before_unique_id(hal_layer_call_t *call) {
  if (value_of(call, "id") || !value_of(call, "room")) return HAL_OK;
  return hal_validate_misuse(call, "id is NULL for %zu bytes; pass memory, or a size of 0",
                             (size_t)value_of(call, "room"));
}

hal_status_t hal_rule_after_unique_id(hal_layer_call_t *call, hal_status_t status) {
  const size_t size = WRITTEN(call, 0, size_t);
  if (size && size <= HAL_COMM_ID_BYTES) return status;
  return hal_validate_fault(call->plugin, call->slot, "the plugin returned an id of %zu bytes; it has 1 to %d", size,
                            HAL_COMM_ID_BYTES);
}

/* ---- lifetime of communicators ---- */

static hal_status_t check_desc(const hal_layer_call_t *call, const hal_comm_desc_t *desc) {
  if (desc->flags & ~(HAL_COMM_NONBLOCKING | HAL_COMM_DETERMINISTIC))
    return hal_validate_misuse(call, "desc->flags is 0x%x; pass flags of plugin_op.h (HAL_COMM_NONBLOCKING ...)",
                               desc->flags);
  return desc->name ? HAL_OK : hal_validate_misuse(call, "desc->name is NULL; pass a string, which may be empty");
}

hal_status_t hal_rule_before_comm_create(hal_layer_call_t *call) {
  const hal_comm_desc_t *const desc = (const hal_comm_desc_t *)value_of(call, "desc");
  HAL_RETURN_IF_ERROR(check_desc(call, desc));
  if (!desc->id || !desc->id_size)
    return hal_validate_misuse(call, "an id of %zu bytes at %p; pass the result of comm_unique_id on one rank",
                               desc->id_size, desc->id);
  if (desc->size < 1 || desc->rank < 0 || desc->rank >= desc->size)
    return hal_validate_misuse(call, "rank %d of %d; ranks are 0 to size - 1", desc->rank, desc->size);
  call->ranks = desc->size;
  return HAL_OK;
}

hal_status_t hal_rule_after_comm_create(hal_layer_call_t *call, hal_status_t status) {
  call->made->size = (size_t)call->ranks;
  return status;
}

/* For comm_split and comm_shrink. */
hal_status_t hal_rule_before_comm_part(hal_layer_call_t *call) {
  HAL_RETURN_IF_ERROR(check_desc(call, (const hal_comm_desc_t *)value_of(call, "desc")));
  const int is_split = call->slot == HAL_SLOT_comm_split;
  if (is_split && (int32_t)value_of(call, "color") < -1)
    return hal_validate_misuse(call, "color is %d; a color is 0 or more, and -1 joins no communicator",
                               (int)value_of(call, "color"));
  if (is_split || value_of(call, "count")) return HAL_OK;
  return hal_validate_misuse(call, "no rank is excluded; pass those that have ended");
}

hal_status_t hal_rule_after_comm_part(hal_layer_call_t *call, hal_status_t status) {
  const hal_live_t *const parent = comm_of(call, "parent");
  if (parent) call->made->device = parent->device;
  if (call->slot != HAL_SLOT_comm_split) return status;
  const int joins = (int32_t)value_of(call, "color") >= 0;
  if (joins == (WRITTEN(call, 0, void *) != NULL)) return status;
  return hal_validate_fault(call->plugin, call->slot, "the plugin returned %s communicator for color %d",
                            joins ? "no" : "a", (int)value_of(call, "color"));
}

hal_status_t hal_rule_after_comm_query(hal_layer_call_t *call, hal_status_t status) {
  const hal_comm_state_t *const state = &WRITTEN(call, 0, hal_comm_state_t);
  if (call->outs[0].size < HAL_STRUCT_SIZE(hal_comm_state_t, message)) return status;
  if (!has_end(state->message, sizeof state->message))
    return hal_validate_fault(call->plugin, call->slot, "message has no NUL within its %zu bytes; cut it",
                              sizeof state->message);
  const int has_failed = state->state == HAL_COMM_FAILED || state->state == HAL_COMM_ABORTED;
  if (state->state < HAL_COMM_CREATING || state->state > HAL_COMM_ABORTED || has_failed != (state->error != HAL_OK))
    return hal_validate_fault(call->plugin, call->slot,
                              "the plugin returned state %u with error %d; FAILED and ABORTED have an error, CREATING "
                              "and READY have none",
                              state->state, (int)state->error);
  if (state->done <= state->started && state->started <= state->queued) return status;
  return hal_validate_fault(call->plugin, call->slot,
                            "the plugin counted %llu calls done, %llu started and %llu queued; a call is queued "
                            "before it starts, and ends last",
                            (unsigned long long)state->done, (unsigned long long)state->started,
                            (unsigned long long)state->queued);
}

/* The record remains while the call waits, because another thread may call comm_abort. */
hal_status_t hal_rule_before_comm_destroy(hal_layer_call_t *call) {
  hal_live_t *const comm = comm_of(call, "comm");
  if (comm) comm->flags = 1;
  return HAL_OK;
}

hal_status_t hal_rule_after_comm_destroy(hal_layer_call_t *call, hal_status_t status) {
  hal_live_t *comm = comm_of(call, "comm");
  /* The plugin may have used the address for a new communicator meanwhile. */
  while (comm && (comm->kind != HAL_LIVE_COMM || comm->address != (uintptr_t)value_of(call, "comm") || !comm->flags))
    comm = comm->next;
  if (!comm) return status;
  hal_live_remove(&state_of(call)->lives, comm);
  hal_free(comm);
  return status;
}

/* ---- collectives ---- */

/* Elements that a rank sends or receives, in blocks: one for each rank, one, or none. */
enum { NONE, ONE, EACH };
static const struct {
  uint8_t send, recv;
} shapes[] = {
    [HAL_COMM_ALL_REDUCE] = {ONE, ONE},  [HAL_COMM_BROADCAST] = {ONE, ONE},       [HAL_COMM_REDUCE] = {ONE, ONE},
    [HAL_COMM_ALL_GATHER] = {ONE, EACH}, [HAL_COMM_REDUCE_SCATTER] = {EACH, ONE}, [HAL_COMM_ALL_TO_ALL] = {EACH, EACH},
    [HAL_COMM_SEND] = {ONE, NONE},       [HAL_COMM_RECV] = {NONE, ONE},           [HAL_COMM_BARRIER] = {NONE, NONE},
    [HAL_COMM_GATHER] = {ONE, EACH},     [HAL_COMM_SCATTER] = {EACH, ONE},
};
enum { OPS = sizeof shapes / sizeof *shapes };

/* Checks one side's memory. NULL is allowed if this rank may not use it; a size that arrays determine is not known
 * here. */
static hal_status_t check_side(const hal_layer_call_t *call, const hal_live_t *comm, const hal_collective_t *desc,
                               uint8_t shape, const void *address, const uint64_t *counts, const char *what) {
  size_t size;
  if (shape == NONE || !address || !desc->count || counts) return HAL_OK;
  if (shape == EACH && !comm->size) return HAL_OK;
  if (__builtin_mul_overflow((size_t)desc->count, hal_dtype_size(desc->dtype), &size) ||
      __builtin_mul_overflow(size, shape == EACH ? comm->size : 1, &size))
    return hal_validate_misuse(call, "%s: %llu elements for each rank exceed the address space", what,
                               (unsigned long long)desc->count);
  return hal_validate_range(call, what, address, size, comm->device);
}

static hal_status_t check_collective(const hal_layer_call_t *call, const hal_live_t *comm,
                                     const hal_collective_t *desc) {
  const uint32_t flags = HAL_COLLECTIVE_SCALE_ON_DEVICE | HAL_COLLECTIVE_FLOAT32_SUM | HAL_COLLECTIVE_DETERMINISTIC;
  if (!desc || desc->struct_size < HAL_STRUCT_SIZE(hal_collective_t, fingerprint))
    return hal_validate_misuse(call, "desc is NULL, or its struct_size is too small; set it by HAL_STRUCT_SIZE");
  if (desc->op >= OPS || (desc->flags & ~flags))
    return hal_validate_misuse(call, "operator %u with flags 0x%x; pass HAL_COMM_* and HAL_COLLECTIVE_*", desc->op,
                               desc->flags);
  if (desc->op == HAL_COMM_BARRIER) return HAL_OK;
  if (!hal_dtype_size(desc->dtype))
    return hal_validate_misuse(call, "dtype is %d; pass a dtype of plugin.h", (int)desc->dtype);
  if (comm->size && (desc->peer < 0 || (size_t)desc->peer >= comm->size))
    return hal_validate_misuse(call, "peer is %d in a communicator of %zu ranks", (int)desc->peer, comm->size);
  HAL_RETURN_IF_ERROR(check_side(call, comm, desc, shapes[desc->op].send, desc->send, desc->send_counts, "desc->send"));
  return check_side(call, comm, desc, shapes[desc->op].recv, desc->recv, desc->recv_counts, "desc->recv");
}

hal_status_t hal_rule_before_comm_submit(hal_layer_call_t *call) {
  const char *const calls = (const char *)value_of(call, "calls");
  const size_t count = (size_t)value_of(call, "count"), stride = (size_t)value_of(call, "stride");
  hal_lives_t *const lives = &state_of(call)->lives;
  size_t size;
  if (!count) return HAL_OK;
  if (!calls || stride < sizeof(hal_comm_call_t) || __builtin_mul_overflow(count, stride, &size))
    return hal_validate_misuse(call, "%zu calls at %p with a stride of %zu bytes; an element has at least %zu", count,
                               (const void *)calls, stride, sizeof(hal_comm_call_t));
  for (size_t i = 0; i < count; i++) {
    hal_comm_call_t one;
    memcpy(&one, calls + i * stride, sizeof one);
    const hal_live_t *const comm = hal_live_find(lives, HAL_LIVE_COMM, (uintptr_t)one.comm);
    const hal_live_t *const stream = hal_live_find(lives, HAL_LIVE_STREAM, (uintptr_t)one.stream);
    if (!comm || (one.stream && !stream))
      return hal_validate_misuse(call, "call %zu: %s %p is not alive; pass one of the plugin's", i,
                                 comm ? "stream" : "communicator", comm ? (void *)one.stream : (void *)one.comm);
    if (stream && stream->device != comm->device)
      return hal_validate_misuse(call, "call %zu: the stream is of device %d and the communicator of device %d", i,
                                 stream->device, comm->device);
    HAL_RETURN_IF_ERROR(check_collective(call, comm, one.desc));
  }
  return HAL_OK;
}

hal_status_t hal_rule_before_comm_register(hal_layer_call_t *call) {
  const hal_live_t *const comm = comm_of(call, "comm");
  return hal_validate_range(call, "ptr", (const void *)value_of(call, "ptr"), (size_t)value_of(call, "size"),
                            comm ? comm->device : 0);
}

hal_status_t hal_rule_after_comm_register(hal_layer_call_t *call, hal_status_t status) {
  const hal_live_t *const comm = comm_of(call, "comm");
  if (comm) call->made->device = comm->device;
  return status;
}
