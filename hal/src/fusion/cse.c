/* cse.c: steps of a group that compute what an earlier one has computed. */
#include <string.h>

#include "fusion/fuse.h"

/* Returns whether two operands are equal: the value of a step, or memory that no earlier step has written. */
static int is_same_operand(const hal_fuse_operand_t *one, const hal_fuse_operand_t *other) {
  if (one->value != other->value || one->has != other->has || one->size != other->size) return 0;
  return one->value >= 0 || (one->address == other->address && one->low == other->low && one->high == other->high);
}

static int are_same_rows(const hal_fuse_step_t *one, const hal_fuse_step_t *other) {
  if (!one->rows || !other->rows) return !one->rows && !other->rows;
  const size_t bytes = (size_t)one->rows->ndim * sizeof one->rows->size[0];
  if (one->rows->ndim != other->rows->ndim || memcmp(one->rows->size, other->rows->size, bytes) != 0) return 0;
  for (uint32_t k = 0; k < one->kernel->form.operands; k++)
    if (memcmp(one->rows->stride[k], other->rows->stride[k], bytes) != 0) return 0;
  return 1;
}

static int are_same_numbers(const hal_fuse_step_t *one, const hal_fuse_step_t *other) {
  const hal_op_form_t *const form = &one->kernel->form;
  for (uint32_t i = 0; i < form->numbers; i++) {
    const hal_arg_t *const a = &one->launch->args[form->number_at + i], *const b =
                                                                            &other->launch->args[form->number_at + i];
    if (a->size != b->size || memcmp(a->value, b->value, a->size) != 0) return 0;
  }
  return one->segment == other->segment && memcmp(one->flag, other->flag, sizeof one->flag) == 0 &&
         one->reduce.chunks == other->reduce.chunks && one->reduce.final == other->reduce.final &&
         one->reduce.divisor == other->reduce.divisor;
}

/* Returns whether a step computes the same as an earlier one. */
static int is_common(const hal_fuse_step_t *step, const hal_fuse_step_t *earlier) {
  const hal_op_form_t *const form = &step->kernel->form;
  if (step->kernel != earlier->kernel || form->results != 1 || step->operand[0].has != earlier->operand[0].has)
    return 0;
  for (uint32_t k = 1; k < form->operands; k++)
    if (!is_same_operand(&step->operand[k], &earlier->operand[k])) return 0;
  return are_same_rows(step, earlier) && are_same_numbers(step, earlier);
}

/* Makes later steps read the result of the earlier step instead. */
static void read_earlier(hal_fuse_group_t *group, uint32_t number, uint32_t earlier) {
  for (uint32_t i = number + 1; i < group->steps; i++)
    for (uint32_t k = 1; k < group->step[i].kernel->form.operands; k++) {
      hal_fuse_operand_t *const operand = &group->step[i].operand[k];
      if (operand->value != (int32_t)number) continue;
      operand->value = (int32_t)earlier;
      group->step[earlier].readers++;
      group->step[number].readers--;
    }
}

/* Replaces a step whose result is kept by a copy of the earlier step's result, if there is a kernel that moves as many
 * bytes. */
static void copy_earlier(const hal_fuse_t *fuse, hal_fuse_group_t *group, uint32_t number, uint32_t earlier) {
  hal_fuse_step_t *const step = &group->step[number];
  const hal_fuse_kernel_t *const copy = hal_fuse_copy_of(fuse, step->operand[0].size);
  if (!copy) return;
  for (uint32_t k = 1; k < step->kernel->form.operands; k++)
    if (step->operand[k].value >= 0) group->step[step->operand[k].value].readers--;
  hal_fuse_operand_t from = group->step[earlier].operand[0];
  from.value = (int32_t)earlier;
  *step = (hal_fuse_step_t){
      .launch = step->launch, .kernel = copy, .operand = {step->operand[0], from}, .readers = step->readers};
  group->step[earlier].readers++;
}

uint32_t hal_fuse_share(const hal_fuse_t *fuse, hal_fuse_group_t *group) {
  uint32_t shared = 0;
  for (uint32_t i = 1; i < group->steps; i++) {
    hal_fuse_step_t *const step = &group->step[i];
    if (!step->kernel->handle) continue; /* copies and fills: nothing is faster */
    if (step->segment && group->with_segments != HAL_FUSE_SEGMENTS_ALL) continue;
    for (uint32_t earlier = 0; earlier < i; earlier++) {
      if (!is_common(step, &group->step[earlier])) continue;
      read_earlier(group, i, earlier);
      if (!step->dead) copy_earlier(fuse, group, i, earlier);
      shared++;
      break;
    }
  }
  return shared;
}
