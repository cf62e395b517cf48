/* segments.c: kernels that reduce or normalize segments of adjacent elements, as steps of groups. */
#include "fusion/fuse.h"

/* The segments of a launch. */
typedef struct shape_s {
  uint64_t count, length;
  const pk_rows_t *kept;     /* NULL: contiguous */
  const pk_reduce_t *reduce; /* NULL: none */
} shape_t;

/* Reads the arguments after the operands; returns 0 if the launch has other arguments than the kernel. */
static int read_behind(const hal_launch_t *launch, const hal_op_form_t *form, hal_fuse_step_t *step, shape_t *shape) {
  uint32_t i = 0, flags = 0;
  for (; i < CHAIN_BEHIND && form->behind[i] != CHAIN_END; i++) {
    if (form->operands + i >= launch->arg_count) return 0;
    const void *const value = launch->args[form->operands + i].value;
    switch (form->behind[i]) {
      case CHAIN_KEPT:
        shape->kept = value;
        break;
      case CHAIN_COUNT:
        shape->count = *(const uint64_t *)value;
        break;
      case CHAIN_LENGTH:
        shape->length = (uint64_t) * (const int64_t *)value;
        break;
      case CHAIN_REDUCE:
        shape->reduce = value;
        break;
      case CHAIN_FLAG:
        step->flag[flags++] = *(const int32_t *)value;
        break;
      default:
        break;
    }
  }
  return launch->arg_count == form->operands + i;
}

/* Returns whether segments, and the operands of each, are contiguous: an element's distance is 1, that of rows of the
 * operands with elements is `length`, that of operands with a number for each segment `each`. */
static int lies_dense(const shape_t *shape, const hal_op_form_t *form, uint64_t length, uint64_t each) {
  const pk_rows_t *const kept = shape->kept;
  for (uint32_t k = 0; kept && k < form->operands && k < PK_ROW_OPERANDS; k++) {
    int64_t distance = (int64_t)(form->has[k] == CHAIN_EACH_ELEMENT ? length : each);
    for (int32_t d = 0; d < kept->ndim; d++) {
      if (kept->size[d] != 1 && kept->stride[k][d] != distance) return 0;
      distance *= kept->size[d];
    }
  }
  return 1;
}

/* A stage of a reduction: its segments are the chunks of rows. Returns the number of elements; 0 = the chunks of
 * several rows, the last of each of which is shorter. */
static uint64_t elements_of_stage(const pk_reduce_t *reduce, uint64_t units) {
  const uint64_t rows = units / (uint64_t)reduce->chunks;
  if (reduce->stride != 1 || reduce->with_c) return 0;
  if (reduce->chunks > 1 && rows > 1 && reduce->n % reduce->chunk) return 0;
  return rows * (uint64_t)reduce->n;
}

static void set_operand(hal_fuse_step_t *step, uint32_t k, uint64_t numbers) {
  const hal_op_form_t *const form = &step->kernel->form;
  hal_fuse_operand_t *const operand = &step->operand[k];
  const int accumulates = k == 0 && step->reduce.chunks && !step->reduce.final;
  operand->address = *(char *const *)step->launch->args[k].value;
  operand->value = -1;
  operand->has = form->has[k];
  operand->plain = operand->has != CHAIN_EACH_PLACE;
  operand->size = accumulates ? form->accumulator : form->size[k];
  operand->low = (uint64_t)(uintptr_t)operand->address;
  operand->high = operand->low + numbers * operand->size;
}

int hal_fuse_read_segments(const hal_launch_t *launch, const hal_fuse_kernel_t *kernel, hal_fuse_step_t *step,
                           uint64_t *n) {
  const hal_op_form_t *const form = &kernel->form;
  shape_t shape = {.kept = NULL, .reduce = NULL};
  *step = (hal_fuse_step_t){.launch = launch, .kernel = kernel};
  if (!read_behind(launch, form, step, &shape)) return 0;
  if (shape.reduce) {
    step->reduce = *shape.reduce;
    shape.length = (uint64_t)(step->reduce.chunks == 1 ? step->reduce.n : step->reduce.chunk);
    *n = elements_of_stage(&step->reduce, shape.count);
    if (!*n || !lies_dense(&shape, form, (uint64_t)step->reduce.n, (uint64_t)step->reduce.chunks)) return 0;
  } else {
    *n = shape.count * shape.length;
    if (!lies_dense(&shape, form, shape.length, 1)) return 0;
  }
  if (*n == 0 || shape.length < 2 || shape.length > CHAIN_SCRATCH / form->accumulator) return 0;
  step->segment = shape.length;
  uint32_t places = 0;
  for (uint32_t k = 0; k < form->operands; k++) {
    const uint64_t count[] = {*n, shape.count, shape.length};
    const int missing = form->has[k] == CHAIN_EACH_PLACE && !step->flag[places++]; /* then the address is arbitrary */
    set_operand(step, k, missing ? 0 : count[form->has[k]]);
  }
  return 1;
}

int hal_fuse_spreads(const hal_fuse_group_t *group, const hal_fuse_step_t *step, uint32_t k) {
  const pk_rows_t *const rows = step->rows;
  int64_t distance = 1;
  if (!rows || !group->segment || rows->size[0] != (int64_t)group->segment || rows->stride[k][0] != 0) return 0;
  for (int32_t d = 1; d < rows->ndim; d++) {
    if (rows->size[d] != 1 && rows->stride[k][d] != distance) return 0;
    distance *= rows->size[d];
  }
  return 1;
}
