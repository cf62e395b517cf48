/* cse.c: common subexpressions: if an operator of one launch computes the same as an earlier one, its results are
 * copied. */
#include <string.h>

#include "device/profile_internal.h"
#include "lazy/lazy.h"
#include "op/internal.h"

/* Returns the index of the result at an address; the number of spans if there is none. */
static uint32_t result_at(const hal_program_op_t *op, uint64_t address) {
  uint32_t i = 0;
  while (i < op->span_count && !(op->spans[i].writes && op->spans[i].low == address)) i++;
  return i;
}

static uint64_t address_of(const hal_arg_t *argument) { return (uint64_t)(uintptr_t) * (void *const *)argument->value; }

/* Returns whether all results are dense, overlap no other span, and are pointer arguments of the launch. */
static int owns_results(const hal_program_op_t *op, const hal_launch_t *launch) {
  uint32_t results = 0;
  for (uint32_t i = 0; i < op->span_count; i++) {
    const hal_span_t *const span = &op->spans[i];
    if (!span->writes) continue;
    int is_written = 0;
    if (!span->dense) return 0;
    for (uint32_t k = 0; k < op->span_count; k++)
      if (k != i && op->spans[k].low < span->high && span->low < op->spans[k].high) return 0;
    for (uint32_t k = 0; k < launch->arg_count; k++)
      is_written |= launch->args[k].kind == HAL_ARG_POINTER && address_of(&launch->args[k]) == span->low;
    if (!is_written) return 0;
    results++;
  }
  return results != 0;
}

/* Returns the operator of a launch, if the operator has no other launch and the launch reads only its operands; else
 * NULL. */
static const hal_program_op_t *operator_of(const hal_command_list_t *list, uint32_t number) {
  const hal_command_t *const command = &list->commands[number];
  if (command->kind != HAL_COMMAND_LAUNCH || command->op == HAL_NO_OP) return NULL;
  const hal_program_op_t *const op = &list->ops[command->op];
  const hal_launch_t *const launch = command->u.launch.launch;
  if (!op->spans || hal_op_infos[op->op].updates || (number && command[-1].op == command->op)) return NULL;
  if (number + 1 < list->command_count && command[1].op == command->op) return NULL;
  for (uint32_t i = 0; i < launch->arg_count; i++) {
    if (launch->args[i].kind != HAL_ARG_POINTER) continue;
    const uint64_t address = address_of(&launch->args[i]);
    uint32_t k = 0;
    while (k < op->span_count && (address < op->spans[k].low || address >= op->spans[k].high)) k++;
    if (k == op->span_count) return NULL;
  }
  return owns_results(op, launch) ? op : NULL;
}

static uint64_t mix(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) * UINT64_C(0x9E3779B97F4A7C15);
  return hash ^ hash >> 32;
}

/* Returns a hash of the kernel, the addresses it reads and the sizes of its results. */
static uint64_t hash_of(const hal_program_op_t *op, const hal_command_t *command) {
  uint64_t hash = mix(op->op, (uint64_t)(uintptr_t)command->u.launch.kernel);
  for (uint32_t i = 0; i < op->span_count; i++)
    hash = mix(hash, op->spans[i].writes ? op->spans[i].high - op->spans[i].low : op->spans[i].low);
  return hash;
}

static int are_same_arguments(const hal_program_op_t *one, const hal_launch_t *a, const hal_program_op_t *other,
                              const hal_launch_t *b) {
  for (uint32_t i = 0; i < a->arg_count; i++) {
    const hal_arg_t *const x = &a->args[i], *const y = &b->args[i];
    if (x->kind != y->kind || x->size != y->size) return 0;
    if (x->kind == HAL_ARG_POINTER) {
      const uint32_t result = result_at(one, address_of(x));
      if (result != result_at(other, address_of(y))) return 0;
      if (result == one->span_count && address_of(x) != address_of(y)) return 0;
    } else if (x->kind == HAL_ARG_VALUE && memcmp(x->value, y->value, x->size) != 0) {
      return 0;
    }
  }
  return 1;
}

static int has_attributes(const hal_launch_t *launch) {
  return HAL_HAS_FIELD(launch, attribute_count) && launch->attribute_count;
}

/* Returns whether two operators compute the same from equal operands. */
static int is_same(const hal_command_list_t *list, uint32_t number, uint32_t earlier) {
  const hal_command_t *const one = &list->commands[number], *const other = &list->commands[earlier];
  const hal_program_op_t *const op = &list->ops[one->op], *const first = &list->ops[other->op];
  const hal_launch_t *const a = one->u.launch.launch, *const b = other->u.launch.launch;
  if (op->op != first->op || op->span_count != first->span_count || one->u.launch.kernel != other->u.launch.kernel ||
      a->arg_count != b->arg_count || a->shared_bytes != b->shared_bytes || has_attributes(a) || has_attributes(b) ||
      memcmp(a->grid, b->grid, sizeof a->grid) != 0 || memcmp(a->block, b->block, sizeof a->block) != 0)
    return 0;
  for (uint32_t i = 0; i < op->span_count; i++) {
    const hal_span_t *const x = &op->spans[i], *const y = &first->spans[i];
    if (x->writes != y->writes || x->high - x->low != y->high - y->low || (!x->writes && x->low != y->low)) return 0;
    if (x->writes && x->low != y->low && x->low < y->high && y->low < x->high) return 0;
  }
  return are_same_arguments(op, a, first, b);
}

/* Returns whether the operands and results of the earlier operator were neither written nor released since. */
static int is_still_there(hal_lazy_t *lazy, uint32_t number, uint32_t earlier) {
  const hal_command_list_t *const list = &lazy->list;
  const hal_program_op_t *const first = &list->ops[list->commands[earlier].op];
  if (!hal_fuse_accesses(lazy->fuse, &lazy->accesses, list) || lazy->accesses.wall[earlier + 1] < number) return 0;
  for (uint32_t i = 0; i < first->span_count; i++)
    if (hal_accesses_is_changed(&lazy->accesses, &first->spans[i], earlier, number)) return 0;
  return 1;
}

static hal_status_t copy_result(hal_lazy_t *lazy, uint32_t number, uint32_t earlier) {
  const hal_command_list_t *const list = &lazy->list;
  const hal_program_op_t *const op = &list->ops[list->commands[number].op];
  const hal_program_op_t *const first = &list->ops[list->commands[earlier].op];
  hal_stream_t *const stream = lazy->program.stream;
  const int32_t ordinal = stream->device->ordinal;
  for (uint32_t i = 0; i < op->span_count; i++) {
    const hal_span_t *const to = &op->spans[i], *const from = &first->spans[i];
    if (!to->writes || to->low == from->low) continue;
    const hal_status_t status =
        hal_call_memory_copy(stream->device->plugin, stream->direct.handle, (void *)(uintptr_t)to->low, ordinal,
                             (const void *)(uintptr_t)from->low, ordinal, to->high - to->low);
    HAL_RETURN_IF_ERROR(hal_error_plugin(stream->device->plugin, HAL_SLOT_memory_copy, status));
    lazy->info.queued++;
  }
  return HAL_OK;
}

hal_status_t hal_lazy_copy(hal_lazy_t *lazy, uint32_t number, uint32_t earlier) {
  hal_command_bracket_t bracket;
  if (HAL_LIKELY(!hal_profile_is_on())) return copy_result(lazy, number, earlier);
  hal_command_begin_call(&lazy->list.commands[number], HAL_PROFILE_NO_OP, &bracket);
  const hal_status_t status = copy_result(lazy, number, earlier);
  hal_command_end_call(&bracket);
  return status;
}

hal_status_t hal_lazy_share(hal_lazy_t *lazy, uint32_t number, int *out_done) {
  const hal_command_list_t *const list = &lazy->list;
  hal_lazy_seen_t *const seen = &lazy->seen;
  const hal_program_op_t *const op = operator_of(list, number);
  *out_done = 0;
  if (!op) return HAL_OK;
  const uint64_t hash = hash_of(op, &list->commands[number]);
  for (uint32_t i = 0; i < HAL_LAZY_SEEN && i < seen->count; i++) {
    const uint32_t earlier = seen->command[i];
    if (seen->hash[i] != hash || !is_same(list, number, earlier) || !is_still_there(lazy, number, earlier)) continue;
    *out_done = 1;
    lazy->info.common++;
    hal_schedule_note(lazy->schedules.making, number, earlier);
    return hal_lazy_copy(lazy, number, earlier);
  }
  const uint32_t at = seen->count++ % HAL_LAZY_SEEN;
  seen->hash[at] = hash;
  seen->command[at] = number;
  return HAL_OK;
}
