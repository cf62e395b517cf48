/* collect.c: collects the launches of a group, and determines which of its results must be in memory at its end. */
#include <string.h>

#include "capture/span.h"
#include "fusion/fuse.h"

enum {
  LOOK_AHEAD = 8,  /* commands */
  MOST_FAILED = 16 /* a group ends after this number of commands that use its results and do not belong to it */
};

/* ---- one launch -------------------------------------------------------------------------------------------------- */

static uint64_t number_of(const hal_arg_t *argument) { return *(const uint64_t *)argument->value; }

/* Sets what the operand accesses, and whether it does so in the order of memory. Returns 0 if that exceeds the address
 * space. */
static int set_extent(const pk_rows_t *rows, uint32_t k, uint64_t n, uint32_t size, hal_fuse_operand_t *operand) {
  int64_t low = 0, high = 0, dense = 1, last;
  int overflow = 0;
  operand->plain = 1;
  for (int32_t d = 0; rows && d < rows->ndim; d++) {
    overflow |= __builtin_mul_overflow(rows->size[d] - 1, rows->stride[k][d], &last);
    if (rows->size[d] != 1 && rows->stride[k][d] != dense) operand->plain = 0;
    int64_t *const end = last < 0 ? &low : &high;
    overflow |= __builtin_mul_overflow(dense, rows->size[d], &dense);
    overflow |= __builtin_add_overflow(*end, last, end);
  }
  if (!rows) high = (int64_t)n - 1;
  return !overflow && hal_span_of_elements(operand->address, low, high, size, &operand->low, &operand->high);
}

/* Reads a launch of an element-wise kernel as a step; returns 0 if its result is not in the order of memory. Sets the
 * existing operands. */
static int read_step(const hal_launch_t *launch, const hal_fuse_kernel_t *kernel, hal_fuse_step_t *step, uint64_t *n) {
  const hal_op_form_t *const form = &kernel->form;
  const uint32_t first = form->operands + form->numbers; /* after operands and numbers */
  uint32_t plain = 1;
  *n = 0;
  *step = (hal_fuse_step_t){.launch = launch, .kernel = kernel};
  if (launch->arg_count != first + (form->rows ? 3 : 1)) return 0;
  *n = number_of(&launch->args[first]);
  const pk_rows_t *const rows = form->rows ? launch->args[first + 2].value : NULL;
  for (uint32_t k = 0; k < form->operands; k++) {
    hal_fuse_operand_t *const operand = &step->operand[k];
    operand->address = *(char *const *)launch->args[k].value;
    operand->value = -1;
    operand->size = form->size[k];
    if (!set_extent(rows, k, *n, form->size[k], operand)) {
      *n = 0;
      return 0;
    }
    plain &= operand->plain;
  }
  step->rows = plain ? NULL : rows;
  return *n != 0 && step->operand[0].plain;
}

/* ---- operands ---------------------------------------------------------------------------------------------------- */

static int overlaps(const hal_fuse_operand_t *one, const hal_fuse_operand_t *other) {
  return one->low < other->high && other->low < one->high;
}

static int has_extent(const hal_fuse_operand_t *one, const hal_fuse_operand_t *other) {
  return one->low == other->low && one->high == other->high;
}

/* Returns whether two operands are the same bytes, element by element, or segment by segment. */
static int coincides(const hal_fuse_operand_t *one, const hal_fuse_operand_t *other) {
  return has_extent(one, other) && one->plain && other->plain && one->has == other->has;
}

/* Returns whether a step computes a part of an operand into a result other than its first one, which is only in
 * memory. */
static int computes_beside(const hal_fuse_step_t *step, const hal_fuse_operand_t *operand) {
  for (uint32_t k = 1; k < step->kernel->form.results; k++)
    if (overlaps(operand, &step->operand[k])) return 1;
  return 0;
}

/* Finds the step that computes operand k of a new step; returns 0 if a step computes only a part of it, or in another
 * order. */
static int find_value(const hal_fuse_group_t *group, hal_fuse_step_t *step, uint32_t k) {
  hal_fuse_operand_t *const operand = &step->operand[k];
  for (uint32_t i = group->steps; i-- > 0;) {
    const hal_fuse_operand_t *const result = &group->step[i].operand[0];
    if (computes_beside(&group->step[i], operand)) return 0;
    if (!overlaps(operand, result)) continue;
    operand->value = (int32_t)i;
    if (!has_extent(operand, result) || result->has != CHAIN_EACH_SEGMENT || !hal_fuse_spreads(group, step, k))
      return coincides(operand, result);
    operand->has = CHAIN_EACH_SEGMENT;
    return !hal_fuse_is_narrow(step);
  }
  return 1;
}

/* Returns whether a new step may write its result. Each block of elements goes through all steps before the next one
 * does, so earlier steps must access the same elements there. A dead result is never written there, because a smaller
 * tensor may already have its memory. */
static int may_write_result(const hal_fuse_group_t *group, const hal_fuse_step_t *step, uint32_t which) {
  const hal_fuse_operand_t *const result = &step->operand[which];
  for (uint32_t i = 0; i < group->steps; i++)
    for (uint32_t k = 0; k < group->step[i].kernel->form.operands; k++) {
      const hal_fuse_operand_t *const other = &group->step[i].operand[k];
      const int in_memory = k == 0 ? !group->step[i].dead : other->value < 0;
      if (in_memory && overlaps(result, other) && !coincides(result, other)) return 0;
    }
  for (uint32_t k = which + 1; k < step->kernel->form.operands;
       k++) /* as a separate launch this is valid, in blocks it is not */
    if (overlaps(result, &step->operand[k]) && !coincides(result, &step->operand[k])) return 0;
  return 1;
}

static int may_write(const hal_fuse_group_t *group, const hal_fuse_step_t *step) {
  for (uint32_t which = 0; which < step->kernel->form.results; which++)
    if (!may_write_result(group, step, which)) return 0;
  return 1;
}

/* Returns the number of addresses of memory that the step adds to the group's, and sets their numbers if `takes`. */
static uint32_t take_pointers(hal_fuse_group_t *group, hal_fuse_step_t *step, int takes) {
  uint32_t added = 0;
  for (uint32_t k = 1; k < step->kernel->form.operands; k++) {
    hal_fuse_operand_t *const operand = &step->operand[k];
    if (operand->value >= 0) continue;
    uint32_t at = 0;
    while (at < group->pointers && group->address[at] != operand->address) at++;
    if (at == group->pointers) added++;
    if (!takes) continue;
    if (at == group->pointers) group->address[group->pointers++] = operand->address;
    operand->pointer = at;
  }
  return added;
}

static uint32_t number_bytes(const hal_launch_t *launch, const hal_op_form_t *form) {
  uint32_t bytes = 0;
  for (uint32_t i = 0; i < form->numbers; i++) bytes += hal_fuse_number_room(&launch->args[form->number_at + i]);
  return bytes;
}

/* ---- the group --------------------------------------------------------------------------------------------------- */

static void kill(hal_fuse_group_t *group, hal_fuse_step_t *step) {
  group->live -= !step->dead;
  step->dead = 1;
}

/* Returns whether a new step computes as many elements as the group, in segments of the same length if in any; or as
 * many numbers as there are segments: then all its operands are per segment. */
static int fits(const hal_fuse_group_t *group, hal_fuse_step_t *step, uint64_t n) {
  const uint64_t segment = group->segment;
  if (step->segment && segment && step->segment != segment) return 0;
  if (!group->steps || n == group->n) return 1;
  if (step->segment || !segment || n != group->n / segment + (group->n % segment != 0)) return 0;
  for (uint32_t k = 0; k < step->kernel->form.operands; k++) step->operand[k].has = CHAIN_EACH_SEGMENT;
  return 1;
}

/* Returns whether a group that is one reduction and its surroundings may have a step that otherwise fits. */
static int suits_fold(const hal_fuse_group_t *group, const hal_fuse_step_t *step) {
  if (group->with_segments != HAL_FUSE_SEGMENTS_FOLD || (!group->segment && !step->segment)) return 1;
  if (group->segment) return hal_fuse_is_narrow(step) && !step->segment && !step->rows;
  for (uint32_t i = 0; i < group->steps; i++)
    if (group->step[i].rows) return 0;
  return step->reduce.chunks != 0;
}

/* Adds the step that was read last; returns 0 if the group ends before it. */
static int add(hal_fuse_group_t *group, uint64_t n, uint32_t command) {
  hal_fuse_step_t *const step = &group->step[group->steps];
  const uint32_t operands = step->kernel->form.operands, results = step->kernel->form.results;
  const uint32_t numbers = number_bytes(step->launch, &step->kernel->form);
  if (!fits(group, step, n) || !suits_fold(group, step)) return 0;
  for (uint32_t k = results; k < operands; k++)
    if (!find_value(group, step, k)) return 0;
  if (!may_write(group, step) || group->numbers + numbers > HAL_FUSE_NUMBERS) return 0;
  if (group->pointers + take_pointers(group, step, 0) + group->live + 1 > HAL_FUSE_POINTERS) return 0;
  take_pointers(group, step, 1);
  for (uint32_t k = 1; k < operands; k++)
    if (step->operand[k].value >= 0) group->step[step->operand[k].value].readers++;
  for (uint32_t i = 0; i < group->steps; i++)
    for (uint32_t k = 0; k < results; k++)
      if (overlaps(&step->operand[k], &group->step[i].operand[0]))
        kill(group, &group->step[i]); /* they coincide, or it is dead */
  if (step->segment) group->segment = step->segment;
  group->command[group->steps] = command;
  group->steps++;
  group->numbers += numbers;
  group->live++;
  group->n = group->steps == 1 ? n : group->n;
  return 1;
}

/* Records that memory was released: its contents are dead. */
static void note_freed(hal_fuse_group_t *group, const hal_command_t *command) {
  const uint64_t low = (uint64_t)(uintptr_t)command->u.freed.address, high = low + command->u.freed.size;
  for (uint32_t i = 0; i < group->steps; i++) {
    const hal_fuse_operand_t *const result = &group->step[i].operand[0];
    if (low <= result->low && result->high <= high) kill(group, &group->step[i]);
  }
}

/* Drops steps whose results are unused, the last ones first. */
static void drop(hal_fuse_group_t *group) {
  group->kept = group->steps;
  for (uint32_t i = group->steps; i-- > 0;) {
    hal_fuse_step_t *const step = &group->step[i];
    if (!step->dead || step->readers || step->kernel->form.results > 1) continue;
    step->dropped = 1;
    group->kept--;
    for (uint32_t k = 1; k < step->kernel->form.operands; k++)
      if (step->operand[k].value >= 0) group->step[step->operand[k].value].readers--;
  }
}

/* Reads a launch as a step; returns 0 if it is not one. */
static int read_launch(hal_fuse_t *fuse, const hal_command_list_t *list, const hal_command_t *command,
                       hal_fuse_step_t *step, uint64_t *n) {
  if (command->op == HAL_NO_OP) return 0;
  const hal_fuse_kernel_t *const kernel = hal_fuse_kernel(fuse, list->ops[command->op].op, command->u.launch.kernel);
  if (!kernel || !kernel->form.behind) return kernel && read_step(command->u.launch.launch, kernel, step, n);
  return fuse->group.with_segments && hal_fuse_read_segments(command->u.launch.launch, kernel, step, n);
}

uint32_t hal_fuse_spans(hal_fuse_t *fuse, const hal_command_list_t *list, const hal_command_t *command,
                        hal_span_t *spans) {
  hal_fuse_step_t step;
  uint64_t n = 0;
  const hal_launch_t *const launch = command->u.launch.launch;
  const hal_fuse_kernel_t *const kernel = hal_fuse_kernel(fuse, list->ops[command->op].op, command->u.launch.kernel);
  if (!kernel) return 0;
  if (!kernel->form.behind)
    read_step(launch, kernel, &step, &n); /* if its result is in another order, too */
  else if (!hal_fuse_read_segments(launch, kernel, &step, &n))
    return 0;
  if (!n) return 0;
  for (uint32_t k = 0; k < kernel->form.operands; k++)
    spans[k] =
        (hal_span_t){.low = step.operand[k].low, .high = step.operand[k].high, .writes = k < kernel->form.results};
  return kernel->form.operands;
}

static int moves_bytes(const hal_command_t *command) {
  return command->kind == HAL_COMMAND_COPY || command->kind == HAL_COMMAND_FILL;
}

static int is_done(const hal_accesses_t *accesses, uint32_t number) {
  return accesses->done && accesses->done[number] == HAL_DONE;
}

/* Returns the number of elements of the first launch after a command that is a step: copies and fills before it may
 * belong to it. 0 = there is none. */
static uint64_t elements_behind(hal_fuse_t *fuse, const hal_fuse_work_t *work, uint32_t number) {
  hal_fuse_step_t step;
  uint64_t n;
  for (uint32_t i = number + 1; i < work->limit && i <= number + LOOK_AHEAD; i++) {
    const hal_command_t *const command = &work->list->commands[i];
    if (command->kind == HAL_COMMAND_FREED || moves_bytes(command) || is_done(work->accesses, i)) continue;
    return command->kind == HAL_COMMAND_LAUNCH && read_launch(fuse, work->list, command, &step, &n) ? n : 0;
  }
  return 0;
}

/* Reads a command as the group's next step; returns 0 if it is not one. */
static int read_command(hal_fuse_t *fuse, const hal_fuse_work_t *work, uint32_t number, uint64_t *n) {
  hal_fuse_group_t *const group = &fuse->group;
  const hal_command_t *const command = &work->list->commands[number];
  hal_fuse_step_t *const step = &group->step[group->steps];
  if (command->kind == HAL_COMMAND_LAUNCH) return read_launch(fuse, work->list, command, step, n);
  if (!moves_bytes(command)) return 0;
  *n = group->steps ? group->n : elements_behind(fuse, work, number);
  hal_fuse_bytes_t *const bytes = &group->bytes[group->steps];
  const hal_fuse_kernel_t *const kernel = *n ? hal_fuse_bytes(fuse, command, *n, bytes) : NULL;
  return kernel && read_step(&bytes->launch, kernel, step, n);
}

/* ---- commands between those of the group, which are independent of it -------------------------------------------- */

/* The positions of the group's written memory in the lists of accesses: one for each area. */
typedef struct reach_s {
  uint32_t count;
  uint32_t access[HAL_FUSE_STEPS];
  uint32_t area[HAL_FUSE_STEPS]; /* its first access, which identifies it */
} reach_t;

/* Adds the memory of a step's results. */
static void reach(reach_t *to, hal_accesses_t *accesses, const hal_fuse_step_t *step) {
  for (uint32_t k = 0; k < step->kernel->form.results && to->count < HAL_FUSE_STEPS; k++) {
    const uint32_t first = hal_accesses_at(accesses, step->operand[k].low);
    uint32_t at = 0;
    while (at < to->count && to->area[at] != first) at++;
    if (at < to->count || first == HAL_NO_ACCESS) continue;
    to->access[to->count] = to->area[to->count] = first;
    to->count++;
  }
}

/* Returns the next command after `number` that uses or releases that memory; `limit` = there is none. */
static uint32_t next_access(reach_t *of, const hal_accesses_t *accesses, uint32_t number, uint32_t limit) {
  for (uint32_t i = 0; i < of->count; i++) {
    uint32_t at = of->access[i];
    while (at != HAL_NO_ACCESS && accesses->access[at].command <= number) at = accesses->access[at].next;
    of->access[i] = at;
    if (at != HAL_NO_ACCESS && accesses->access[at].command < limit) limit = accesses->access[at].command;
  }
  return limit;
}

/* Returns whether the step that was read may run before the commands between the group's first command and its own. */
static int may_pass(const hal_fuse_group_t *group, hal_accesses_t *accesses, uint32_t number) {
  const hal_fuse_step_t *const step = &group->step[group->steps];
  for (uint32_t k = 0; k < step->kernel->form.operands; k++)
    if (!hal_accesses_may_pass(accesses, step->operand[k].low, step->operand[k].high, k < step->kernel->form.results,
                               group->begin, number))
      return 0;
  return 1;
}

/* Records that memory was released after commands outside the group: what they read of it is kept. */
static void note_freed_behind(hal_fuse_group_t *group, hal_accesses_t *accesses, uint32_t number,
                              const hal_command_t *command) {
  const uint64_t low = (uint64_t)(uintptr_t)command->u.freed.address, high = low + command->u.freed.size;
  for (uint32_t i = 0; i < group->steps; i++) {
    const hal_fuse_operand_t *const result = &group->step[i].operand[0];
    if (group->step[i].dead || low > result->low || result->high > high || group->command[i] > number) continue;
    if (hal_accesses_may_pass(accesses, result->low, result->high, 1, group->command[i] + 1, number))
      kill(group, &group->step[i]);
  }
}

/* Continues after the first command that is not a step of the group, with commands that use its results and may run
 * earlier. */
static void collect_behind(hal_fuse_t *fuse, const hal_fuse_work_t *work) {
  hal_fuse_group_t *const group = &fuse->group;
  hal_accesses_t *const accesses = work->accesses;
  if (!hal_accesses_make(accesses, fuse, work->list)) return;
  accesses->front = group->begin;
  hal_fuse_mark(group, accesses, HAL_IN_GROUP);
  const uint32_t end = group->end, wall = accesses->wall[end], limit = wall < work->limit ? wall : work->limit;
  reach_t reached = {.count = 0};
  for (uint32_t k = 0; k < group->steps; k++) reach(&reached, accesses, &group->step[k]);
  uint32_t i = end - 1, failed = 0;
  while (failed < MOST_FAILED && (i = next_access(&reached, accesses, i, limit)) < limit) {
    const hal_command_t *const command = &work->list->commands[i];
    uint64_t n;
    if (command->kind == HAL_COMMAND_FREED) {
      note_freed_behind(group, accesses, i, command);
      continue;
    }
    const int fits = group->steps < HAL_FUSE_STEPS && accesses->done[i] == HAL_TO_DO;
    if (!fits || !read_command(fuse, work, i, &n) || !may_pass(group, accesses, i) || !add(group, n, i)) {
      failed++;
      continue;
    }
    accesses->done[i] = HAL_IN_GROUP;
    reach(&reached, accesses, &group->step[group->steps - 1]);
  }
  group->end = end;
}

void hal_fuse_mark(const hal_fuse_group_t *group, hal_accesses_t *accesses, uint8_t mark) {
  for (uint32_t i = 0; accesses->done && i < group->steps; i++) accesses->done[group->command[i]] = mark;
}

/* Continues from a command as long as each one is a step. Returns whether a command is not one. */
static int collect_neighbours(hal_fuse_t *fuse, const hal_fuse_work_t *work) {
  hal_fuse_group_t *const group = &fuse->group;
  for (uint32_t i = group->begin; i < work->limit && group->steps < HAL_FUSE_STEPS; i++) {
    const hal_command_t *const command = &work->list->commands[i];
    uint64_t n;
    if (command->kind == HAL_COMMAND_FREED) {
      if (!group->steps) return 0;
      note_freed(group, command);
      group->end = i + 1;
      continue;
    }
    if (is_done(work->accesses, i)) continue;
    if (!read_command(fuse, work, i, &n) || !add(group, n, i)) return 1;
    group->end = i + 1;
  }
  return 0;
}

uint32_t hal_fuse_collect(hal_fuse_t *fuse, const hal_fuse_work_t *work, uint32_t begin, int with_segments) {
  hal_fuse_group_t *const group = &fuse->group;
  group->steps = group->pointers = group->live = group->numbers = 0;
  group->begin = begin;
  group->segment = 0;
  group->with_segments = with_segments;
  if (collect_neighbours(fuse, work) && group->steps) collect_behind(fuse, work);
  group->common = hal_fuse_share(fuse, group);
  drop(group);
  return group->steps;
}

uint32_t hal_fuse_addresses(const hal_fuse_group_t *group, char *address[HAL_FUSE_POINTERS],
                            uint32_t store[HAL_FUSE_STEPS]) {
  uint32_t count = group->pointers;
  memcpy(address, group->address, count * sizeof *address);
  for (uint32_t i = 0; i < group->steps; i++) {
    uint32_t at = 0;
    if (group->step[i].dead) continue;
    while (at < count && address[at] != group->step[i].operand[0].address) at++;
    if (at == count) address[count++] = group->step[i].operand[0].address;
    store[i] = at;
  }
  return count;
}
