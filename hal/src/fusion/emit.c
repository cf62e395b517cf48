/* emit.c: a group as one kernel in the portable dialect, for devices that compile source. An item computes one element
 * by the functions of the operators' own templates; values that only the group reads stay in its registers. */
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "device/failure.h"
#include "fusion/emit.h"
#include "hal/host_memory.h"
#include "hal/kernel.h"
#include "hal/status.h"
#include "op/launch.h"
#include "op/source.h"
#include "op/table.h"

enum { MOST_ROWS = 2 /* steps with strides: 248 bytes of the 1024 that OpenCL guarantees for all arguments */ };

static int takes_number(const hal_fuse_step_t *step) {
  const char *const name = step->kernel->form.name;
  const size_t length = strlen(name);
  return length > 2 && strcmp(name + length - 2, "_s") == 0;
}

int hal_fuse_has_first(const hal_fuse_step_t *step) {
  return takes_number(step) || step->segment || strncmp(step->kernel->form.name, "fill_", 5) == 0;
}

/* ---- text -------------------------------------------------------------------------------------------------------- */

/* Adds the functions of the steps, each instance once. */
static hal_status_t add_instances(hal_fuse_text_t *text, const hal_fuse_group_t *group) {
  char instance[HAL_FUSE_NAME], before[HAL_FUSE_NAME];
  hal_fuse_text_add(text, "#define PK_STEPS 1\n");
  for (uint32_t i = 0; i < group->steps; i++) {
    int known = group->step[i].dropped;
    hal_fuse_instance(&group->step[i], instance);
    for (uint32_t k = 0; k < i && !known; k++) {
      hal_fuse_instance(&group->step[k], before);
      known = !group->step[k].dropped && strcmp(before, instance) == 0;
    }
    if (known) continue;
    const size_t size = hal_op_source_step(instance, NULL);
    if (!size) return HAL_UNIMPLEMENTED;
    char *const to = hal_fuse_text_room(text, size);
    if (!to) break;
    text->size += hal_op_source_step(instance, to);
  }
  return HAL_OK;
}

/* Adds one argument: of a kind, a type name of the instance, and a name of a letter and a number. */
static void add_argument(hal_fuse_text_t *text, int how, const char *kind, const char *instance, const char *type,
                         char letter, uint32_t number) {
  if (how == HAL_FUSE_LISTED) hal_fuse_text_add(text, "X(%s, %s%s, ", kind, instance, type);
  if (how == HAL_FUSE_DECLARED) hal_fuse_text_add(text, "%s%s%s ", *kind == 'B' ? "PK_GLOBAL " : "", instance, type);
  hal_fuse_text_add(text, "%s%c%u%s", how == HAL_FUSE_DECLARED && *kind == 'B' ? "*" : "", letter, (unsigned)number,
                    how == HAL_FUSE_LISTED ? "), " : ", ");
}

void hal_fuse_add_arguments(hal_fuse_text_t *text, const hal_fuse_group_t *group, uint32_t pointers, int how) {
  char instance[HAL_FUSE_NAME];
  for (uint32_t i = 0; i < pointers; i++) add_argument(text, how, "BOTH", "", "pk_u8", 'p', i);
  for (uint32_t i = 0; i < group->steps; i++) {
    const hal_fuse_step_t *const step = &group->step[i];
    if (step->dropped) continue;
    hal_fuse_instance(step, instance);
    const uint32_t numbers = step->kernel->form.numbers;
    const int first = hal_fuse_has_first(step);
    if (numbers && first) add_argument(text, how, "NUMBER", instance, "number_t", 'b', i);
    if (numbers > (uint32_t)first) add_argument(text, how, "NUMBER", instance, "numbers_t", 's', i);
    if (step->rows) add_argument(text, how, "STRUCT", "", "pk_rows_t", 'r', i);
  }
}

/* Writes the type in which a step reads an operand. */
static void name_type(const char *instance, uint32_t k, char type[64]) {
  if (strncmp(instance, "where_", 6) == 0 && k == 1)
    memcpy(type, "pk_bool", sizeof "pk_bool");
  else
    snprintf(type, 64, "%soperand_t", instance);
}

/* Adds the functions by which a step reads other steps' results: with the same bits as an element of its own type in
 * memory. A strided copy of float32 is one of integers, and operands may have several names for one type. */
static void add_readers(hal_fuse_text_t *text, const hal_fuse_group_t *group) {
  char instance[HAL_FUSE_NAME], from[HAL_FUSE_NAME], type[64];
  for (uint32_t i = 0; i < group->steps; i++) {
    const hal_fuse_step_t *const step = &group->step[i];
    if (step->dropped) continue;
    hal_fuse_instance(step, instance);
    for (uint32_t k = 1; k < step->kernel->form.operands; k++) {
      if (step->operand[k].value < 0) continue;
      hal_fuse_instance(&group->step[step->operand[k].value], from);
      name_type(instance, k, type);
      hal_fuse_text_add(text, "PK_FN %s fused_read%u_%u(%sresult_t v) { union { %sresult_t from; %s to; } bits; ", type,
                        (unsigned)i, (unsigned)k, from, from, type);
      hal_fuse_text_add(text, "bits.from = v; return bits.to; }\n");
    }
  }
}

hal_status_t hal_fuse_add_functions(hal_fuse_text_t *text, const hal_fuse_group_t *group) {
  HAL_RETURN_IF_ERROR(add_instances(text, group));
  add_readers(text, group);
  return HAL_OK;
}

void hal_fuse_add_operand(hal_fuse_text_t *text, const hal_fuse_step_t *step, uint32_t i, uint32_t k) {
  char type[64], instance[HAL_FUSE_NAME];
  const hal_fuse_operand_t *const operand = &step->operand[k];
  if (operand->value >= 0) {
    hal_fuse_text_add(text, "fused_read%u_%u(v%d)", (unsigned)i, (unsigned)k, (int)operand->value);
    return;
  }
  hal_fuse_instance(step, instance);
  name_type(instance, k, type);
  hal_fuse_text_add(text, "((PK_GLOBAL const %s *)p%u)", type, (unsigned)operand->pointer);
  if (step->rows)
    hal_fuse_text_add(text, "[a%u.offset[%u]]", (unsigned)i, (unsigned)k);
  else
    hal_fuse_text_add(text, "[i]");
}

/* Adds the statements that compute element `i` of step `number` as v<number>. */
static void add_step(hal_fuse_text_t *text, const hal_fuse_group_t *group, uint32_t i) {
  char instance[HAL_FUSE_NAME];
  const hal_fuse_step_t *const step = &group->step[i];
  const hal_op_form_t *const form = &step->kernel->form;
  const int number = takes_number(step);
  const char *comma = "";
  hal_fuse_instance(step, instance);
  if (step->rows)
    hal_fuse_text_add(text, "  pk_cursor_t a%u; pk_cursor_seek(&r%u, %u, i, &a%u);\n", (unsigned)i, (unsigned)i,
                      (unsigned)form->operands, (unsigned)i);
  hal_fuse_text_add(text, "  const %sresult_t v%u = %selement%s(", instance, (unsigned)i, instance, number ? "_s" : "");
  for (uint32_t k = 1; k < form->operands; k++, comma = ", ") {
    hal_fuse_text_add(text, "%s", comma);
    hal_fuse_add_operand(text, step, i, k);
  }
  const int first = hal_fuse_has_first(step);
  if (form->numbers && first) hal_fuse_text_add(text, "%sb%u", comma, (unsigned)i), comma = ", ";
  if (form->numbers > (uint32_t)first) hal_fuse_text_add(text, "%ss%u", comma, (unsigned)i);
  hal_fuse_text_add(text, ");\n");
}

void hal_fuse_add_store(hal_fuse_text_t *text, const hal_fuse_group_t *group, uint32_t i, uint32_t pointer) {
  char instance[HAL_FUSE_NAME];
  hal_fuse_instance(&group->step[i], instance);
  hal_fuse_text_add(text, "  ((PK_GLOBAL %sresult_t *)p%u)[i] = v%u;\n", instance, (unsigned)pointer, (unsigned)i);
}

void hal_fuse_add_steps(hal_fuse_text_t *text, const hal_fuse_group_t *group, uint32_t begin, uint32_t end,
                        const uint32_t store[HAL_FUSE_STEPS]) {
  for (uint32_t i = begin; i < end; i++)
    if (!group->step[i].dropped) add_step(text, group, i);
  for (uint32_t i = begin; i < end; i++)
    if (!group->step[i].dead) hal_fuse_add_store(text, group, i, store[i]);
}

static void add_elements(hal_fuse_text_t *text, const hal_fuse_group_t *group, uint32_t pointers,
                         const uint32_t store[HAL_FUSE_STEPS]) {
  hal_fuse_text_add(text, "#define FUSED_ARGS(X) ");
  hal_fuse_add_arguments(text, group, pointers, HAL_FUSE_LISTED);
  hal_fuse_text_add(text, "X(VALUE, pk_u64, n)\n");
  hal_fuse_text_add(text, "PK_KERNEL(FUSED_NAME, FUSED_ARGS) { PK_PROLOGUE(FUSED_ARGS)\n PK_ITEM(i, n) {\n");
  hal_fuse_add_steps(text, group, 0, group->steps, store);
  hal_fuse_text_add(text, " }\n}\n");
}

/* ---- kernels ----------------------------------------------------------------------------------------------------- */

/* The object that a plan launches. */
typedef struct made_s {
  hal_kernel_t *kernel;
} made_t;

/* Returns whether the device computes such a group efficiently with an item for each element: on devices with few wide
 * cores the row form of one operator divides once for a whole row. */
static int suits(const hal_fuse_t *fuse, const hal_fuse_group_t *group) {
  uint32_t rows = 0;
  for (uint32_t i = 0; i < group->steps; i++) rows += !group->step[i].dropped && group->step[i].rows != NULL;
  if (group->n > (uint64_t)INT32_MAX * HAL_OP_BLOCK) return 0;
  if (group->segment) return !rows && hal_fuse_suits_fold(group);
  return rows <= MOST_ROWS && (!rows || hal_op_table_of(fuse->device)->target.group_threads != 1);
}

char *hal_fuse_named(const hal_fuse_text_t *text, char name[HAL_FUSE_NAME]) {
  hal_hash_t hash = hal_hash_begin();
  hal_hash_add(&hash, text->data, text->size);
  snprintf(name, HAL_FUSE_NAME, "fused_%016llx", (unsigned long long)hal_hash_low(&hash));
  hal_fuse_text_t whole = {.data = NULL};
  hal_fuse_text_add(&whole, "#define FUSED_NAME %s\n", name);
  char *const to = whole.failed ? NULL : hal_fuse_text_room(&whole, text->size);
  if (to) memcpy(to, text->data, text->size + 1);
  if (to) return whole.data;
  hal_free(whole.data);
  return NULL;
}

static hal_status_t compile(const hal_fuse_t *fuse, hal_fuse_text_t *text, made_t *made) {
  char name[HAL_FUSE_NAME], *const whole = hal_fuse_named(text, name);
  const hal_status_t status =
      whole ? hal_kernel_compile(fuse->device->index, name, whole, &made->kernel) : HAL_RESOURCE_EXHAUSTED;
  hal_free(whole);
  return status;
}

hal_status_t hal_fuse_source_make(hal_fuse_t *fuse, const hal_fuse_group_t *group, void **out_made) {
  char *address[HAL_FUSE_POINTERS];
  uint32_t store[HAL_FUSE_STEPS];
  if (!suits(fuse, group)) return HAL_UNIMPLEMENTED;
  made_t *const made = hal_calloc(1, sizeof *made);
  hal_fuse_text_t text = {.data = NULL};
  hal_status_t status = made ? hal_fuse_add_functions(&text, group) : HAL_RESOURCE_EXHAUSTED;
  if (!status) {
    const uint32_t pointers = hal_fuse_addresses(group, address, store);
    if (hal_fuse_fold_of(group) == HAL_FUSE_STEPS)
      add_elements(&text, group, pointers, store);
    else
      hal_fuse_add_fold(&text, group, pointers, store);
    status = text.failed ? HAL_RESOURCE_EXHAUSTED : compile(fuse, &text, made);
  }
  hal_free(text.data);
  if (status) {
    hal_free(made);
    if (status == HAL_RESOURCE_EXHAUSTED)
      return hal_error_set(status, "the host has no memory for a group of operators");
    return status;
  }
  *out_made = made;
  return HAL_OK;
}

/* Returns the number of segments per group of the device's: if one item loops, enough for one thread. */
static uint64_t segments_of_item(const hal_fuse_t *fuse, const hal_fuse_group_t *group) {
  enum { ENOUGH = 4096 /* elements, as for the blocks of rows */ };
  return hal_op_table_of(fuse->device)->target.group_threads != 1 || group->segment >= ENOUGH ? 1
                                                                                              : ENOUGH / group->segment;
}

hal_status_t hal_fuse_source_launch(const hal_fuse_t *fuse, const hal_fuse_group_t *group, void *made,
                                    hal_stream_t *stream) {
  char *address[HAL_FUSE_POINTERS];
  uint32_t store[HAL_FUSE_STEPS], count = 0, threads = HAL_OP_BLOCK;
  hal_arg_t args[HAL_FUSE_POINTERS + 3 * HAL_FUSE_STEPS + 4];
  const uint32_t pointers = hal_fuse_addresses(group, address, store), fold = hal_fuse_fold_of(group);
  uint64_t groups = (group->n + HAL_OP_BLOCK - 1) / HAL_OP_BLOCK, segment = group->segment, per_group = 1;
  int64_t divisor = 0;
  for (; count < pointers; count++)
    args[count] = (hal_arg_t){.value = &address[count], .size = sizeof address[0], .kind = HAL_ARG_POINTER};
  for (uint32_t i = 0; i < group->steps; i++) {
    const hal_fuse_step_t *const step = &group->step[i];
    const hal_op_form_t *const form = &step->kernel->form;
    if (step->dropped) continue;
    for (uint32_t k = 0; k < form->numbers; k++) args[count++] = step->launch->args[form->number_at + k];
    if (step->rows) args[count++] = (hal_arg_t){.value = step->rows, .size = sizeof *step->rows, .kind = HAL_ARG_VALUE};
  }
  args[count++] = (hal_arg_t){.value = &group->n, .size = sizeof group->n, .kind = HAL_ARG_VALUE};
  if (fold != HAL_FUSE_STEPS) {
    const uint64_t segments = group->n / segment + (group->n % segment != 0);
    per_group = segments_of_item(fuse, group);
    divisor = group->step[fold].reduce.divisor;
    groups = segments / per_group + (segments % per_group != 0);
    threads = hal_op_table_of(fuse->device)->target.group_threads;
    args[count++] = (hal_arg_t){.value = &segment, .size = sizeof segment, .kind = HAL_ARG_VALUE};
    args[count++] = (hal_arg_t){.value = &per_group, .size = sizeof per_group, .kind = HAL_ARG_VALUE};
    args[count++] = (hal_arg_t){.value = &divisor, .size = sizeof divisor, .kind = HAL_ARG_VALUE};
  }
  const hal_launch_t launch = {.struct_size = HAL_STRUCT_SIZE(hal_launch_t, args),
                               .grid = {(uint32_t)groups, 1, 1},
                               .block = {threads, 1, 1},
                               .arg_count = count,
                               .args = args};
  return hal_fuse_launch(fuse, hal_kernel_handle(((const made_t *)made)->kernel), stream, &launch);
}
