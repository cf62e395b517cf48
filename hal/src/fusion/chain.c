/* chain.c: a group as a chain of host kernels (kernels/pk_chain.h), for devices that are the host's CPU. */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "device/failure.h"
#include "fusion/fuse.h"
#include "hal/host_memory.h"
#include "hal/status.h"
#include "kernels/pk_chain.h"

_Static_assert(HAL_FUSE_POINTERS == CHAIN_POINTERS && HAL_FUSE_NUMBERS == CHAIN_NUMBERS &&
                   HAL_FUSE_STEPS == CHAIN_STEPS,
               "groups fit into chains");

enum {
  MOST_BLOCK = 4096,
  LEAST_BLOCK = 64
}; /* elements: 16 KiB of float32, a third of a core's first-level cache for three operands */

/* Pieces of scratch memory, in bytes per element of a block; each holds one value at a time. */
typedef struct scratch_s {
  uint32_t pieces, bytes;
  struct {
    uint32_t place, size, has;
    int32_t free_from; /* the step from which on it is free */
  } piece[HAL_FUSE_STEPS];
} scratch_t;

/* Returns the last step that reads the value of a step. */
static int32_t last_reader(const hal_fuse_group_t *group, uint32_t value) {
  int32_t last = (int32_t)value;
  for (uint32_t i = value + 1; i < group->steps; i++)
    for (uint32_t k = 1; !group->step[i].dropped && k < group->step[i].kernel->form.operands; k++)
      if (group->step[i].operand[k].value == (int32_t)value) last = (int32_t)i;
  return last;
}

/* Finds a piece for the value of a step: one that is free when the step runs, else a new one. A step may write where it
 * reads, element by element or segment by segment, as in-place operators do, so a piece is used for only one of the
 * two. */
static uint32_t take_piece(scratch_t *scratch, const hal_fuse_group_t *group, uint32_t step) {
  const hal_fuse_operand_t *const result = &group->step[step].operand[0];
  const uint32_t size = result->size;
  const int32_t last = last_reader(group, step);
  for (uint32_t i = 0; i < scratch->pieces; i++)
    if (scratch->piece[i].size == size && scratch->piece[i].has == result->has &&
        scratch->piece[i].free_from <= (int32_t)step) {
      scratch->piece[i].free_from = last;
      return scratch->piece[i].place;
    }
  const uint32_t at = scratch->pieces++, place = (scratch->bytes + size - 1) / size * size;
  scratch->piece[at].place = place;
  scratch->piece[at].size = size;
  scratch->piece[at].has = result->has;
  scratch->piece[at].free_from = last;
  scratch->bytes = place + size;
  return place;
}

static void fill_step(const hal_fuse_step_t *from, const chain_operand_t *values, chain_step_t *step,
                      uint32_t *numbers) {
  const hal_op_form_t *const form = &from->kernel->form;
  memcpy(step->kernel, form->name, sizeof form->name);
  step->form = form->behind ? CHAIN_SEGMENTS : from->rows ? CHAIN_ROWS : form->rows ? CHAIN_RUN : CHAIN_CONTIG;
  step->operands = (uint8_t)form->operands;
  step->numbers = (uint8_t)form->numbers;
  step->narrow = !form->behind && hal_fuse_is_narrow(from);
  if (from->rows) step->rows = *from->rows;
  if (form->behind) memcpy(step->behind, form->behind, sizeof step->behind);
  memcpy(step->flag, from->flag, sizeof step->flag);
  step->divisor = from->reduce.divisor;
  step->final = from->reduce.final;
  for (uint32_t k = 1; k < form->operands; k++) {
    const hal_fuse_operand_t *const operand = &from->operand[k];
    step->operand[k] = operand->value >= 0 ? values[operand->value]
                                           : (chain_operand_t){.size = (uint8_t)operand->size,
                                                               .has = (uint8_t)operand->has,
                                                               .index = (uint16_t)operand->pointer};
  }
  for (uint32_t k = 0; k < form->numbers; k++) {
    step->number[k] = (uint16_t)*numbers;
    *numbers += hal_fuse_number_room(&from->launch->args[form->number_at + k]);
  }
}

/* Chooses the block: as many elements as fit into the cache, whole segments if there are any. Returns 0 if a segment
 * does not fit. */
static int set_block(chain_plan_t *plan, uint64_t segment) {
  const uint64_t unit = segment ? segment : LEAST_BLOCK;
  uint64_t units = MOST_BLOCK / unit ? MOST_BLOCK / unit : 1;
  while (units > 1 && units * unit * plan->scratch > CHAIN_SCRATCH) units /= 2;
  plan->segment = segment ? segment : 1;
  plan->block = units * unit;
  return !segment || plan->block * plan->scratch <= CHAIN_SCRATCH;
}

hal_status_t hal_fuse_chain_make(const hal_fuse_group_t *group, void **out_made) {
  char *address[HAL_FUSE_POINTERS];
  uint32_t store[HAL_FUSE_STEPS], numbers = 0;
  chain_operand_t values[HAL_FUSE_STEPS];
  scratch_t scratch = {.pieces = 0};
  chain_plan_t *const plan = hal_calloc(1, sizeof *plan + group->kept * sizeof plan->step[0]);
  if (!plan) return hal_error_set(HAL_RESOURCE_EXHAUSTED, "the host has no memory for a group of operators");
  hal_fuse_addresses(group, address, store);
  for (uint32_t i = 0; i < group->steps; i++) {
    const hal_fuse_step_t *const from = &group->step[i];
    if (from->dropped) continue;
    const uint32_t index = from->dead ? take_piece(&scratch, group, i) : store[i];
    values[i] = (chain_operand_t){.scratch = from->dead,
                                  .size = (uint8_t)from->operand[0].size,
                                  .has = (uint8_t)from->operand[0].has,
                                  .index = (uint16_t)index};
    chain_step_t *const step = &plan->step[plan->steps++];
    fill_step(from, values, step, &numbers);
    step->operand[0] = values[i];
  }
  plan->scratch = scratch.bytes;
  if (!set_block(plan, group->segment)) {
    hal_free(plan);
    return HAL_UNIMPLEMENTED;
  }
  *out_made = plan;
  return HAL_OK;
}

hal_status_t hal_fuse_chain_launch(const hal_fuse_t *fuse, const hal_fuse_group_t *group,
                                   const hal_fuse_plan_t *fuse_plan, hal_stream_t *stream) {
  const chain_plan_t *const plan = fuse_plan->made;
  char *address[HAL_FUSE_POINTERS];
  uint32_t store[HAL_FUSE_STEPS];
  unsigned char numbers[HAL_FUSE_NUMBERS];
  hal_arg_t args[CHAIN_ARGS];
  const uint32_t pointers = hal_fuse_addresses(group, address, store);
  const uint64_t blocks = group->n / plan->block + (group->n % plan->block != 0);
  hal_fuse_numbers(group, numbers);
  for (uint32_t i = pointers; i < HAL_FUSE_POINTERS; i++) address[i] = address[0]; /* no step reads them */
  for (uint32_t i = 0; i < HAL_FUSE_POINTERS; i++)
    args[i] = (hal_arg_t){.value = &address[i], .size = sizeof address[i], .kind = HAL_ARG_POINTER};
  args[CHAIN_ARG_PLAN] = (hal_arg_t){.value = &plan, .size = sizeof plan, .kind = HAL_ARG_VALUE};
  args[CHAIN_ARG_NUMBERS] = (hal_arg_t){.value = numbers, .size = sizeof numbers, .kind = HAL_ARG_VALUE};
  args[CHAIN_ARG_COUNT] = (hal_arg_t){.value = &group->n, .size = sizeof group->n, .kind = HAL_ARG_VALUE};
  const hal_launch_t launch = {.struct_size = HAL_STRUCT_SIZE(hal_launch_t, args),
                               .grid = {(uint32_t)blocks, 1, 1},
                               .block = {1, 1, 1},
                               .arg_count = CHAIN_ARGS,
                               .args = args};
  return hal_fuse_launch(fuse, hal_fuse_chain_kernel(fuse_plan, fuse->chain), stream, &launch);
}
