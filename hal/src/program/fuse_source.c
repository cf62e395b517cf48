/* fuse_source.c: a group as one kernel in the portable dialect, for devices that compile source. An item computes one element by the functions
 * of the operators' own templates; what only the group reads stays in its registers. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "device/failure.h"
#include "hal/host_memory.h"
#include "hal/kernel.h"
#include "hal/status.h"
#include "op/queue.h"
#include "op/source.h"
#include "op/table.h"
#include "program/fuse.h"

enum { MOST_ROWS = 2 /* steps with strides: 248 bytes of the 1024 that OpenCL guarantees for all arguments */ };

/* Text that grows; `failed` once there was no memory. */
typedef struct text_s {
  char *data;
  size_t size, room;
  int failed;
} text_t;

static char *room_for(text_t *text, size_t size) {
  if (text->room - text->size < size + 1) {
    const size_t room = 2 * (text->size + size) + 1024;
    char *const grown = hal_malloc(room);
    if (!grown) {
      text->failed = 1;
      return NULL;
    }
    if (text->size) memcpy(grown, text->data, text->size);
    hal_free(text->data);
    text->data = grown;
    text->room = room;
  }
  return text->data + text->size;
}

static void add(text_t *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void add(text_t *text, const char *format, ...) {
  char line[512];
  va_list arguments;
  va_start(arguments, format);
  const int length = vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  char *const to = length >= 0 && (size_t)length < sizeof line ? room_for(text, (size_t)length) : NULL;
  if (!to) {
    text->failed = 1;
    return;
  }
  memcpy(to, line, (size_t)length + 1);
  text->size += (size_t)length;
}

/* ---- names ------------------------------------------------------------------------------------------------------------------- */

static int ends_with(const char *name, const char *end) {
  const size_t length = strlen(name), tail = strlen(end);
  return length > tail && strcmp(name + length - tail, end) == 0;
}

/* The instance of a step's kernel: "add_f32_" of "add_f32_contig_s". */
static void instance_of(const hal_fuse_step_t *step, char instance[48]) {
  static const char *const variants[] = {"contig", "contig_s", "rows", "rows_s"};
  const char *const name = step->kernel->form.name;
  size_t length = strlen(name);
  for (size_t i = 0; i < 4; i++)
    if (ends_with(name, variants[i])) length = strlen(name) - strlen(variants[i]);
  memcpy(instance, name, length);
  instance[length] = '\0';
}

static int takes_number(const hal_fuse_step_t *step) { return ends_with(step->kernel->form.name, "_s"); }

/* ---- text -------------------------------------------------------------------------------------------------------------------- */

/* Adds the functions of the steps, each instance once. HAL_UNIMPLEMENTED: one has none. */
static hal_status_t add_functions(text_t *text, const hal_fuse_group_t *group) {
  char instance[48], before[48];
  add(text, "#define PK_STEPS 1\n");
  for (uint32_t i = 0; i < group->steps; i++) {
    int known = group->step[i].dropped;
    instance_of(&group->step[i], instance);
    for (uint32_t k = 0; k < i && !known; k++) {
      instance_of(&group->step[k], before);
      known = !group->step[k].dropped && strcmp(before, instance) == 0;
    }
    if (known) continue;
    const size_t size = hal_op_source_step(instance, NULL);
    if (!size) return HAL_UNIMPLEMENTED;
    char *const to = room_for(text, size);
    if (!to) break;
    text->size += hal_op_source_step(instance, to);
  }
  return HAL_OK;
}

/* The list of the kernel's arguments: addresses, then of each step its numbers and its rows, then the number of elements. */
static void add_arguments(text_t *text, const hal_fuse_group_t *group, uint32_t pointers) {
  char instance[48];
  add(text, "#define FUSED_ARGS(X) ");
  for (uint32_t i = 0; i < pointers; i++) add(text, "X(BOTH, pk_u8, p%u), ", (unsigned)i);
  for (uint32_t i = 0; i < group->steps; i++) {
    const hal_fuse_step_t *const step = &group->step[i];
    if (step->dropped) continue;
    instance_of(step, instance);
    const uint32_t numbers = step->kernel->form.numbers;
    const int first = takes_number(step) || strncmp(instance, "fill_", 5) == 0;
    if (numbers && first) add(text, "X(NUMBER, %snumber_t, b%u), ", instance, (unsigned)i);
    if (numbers > (uint32_t)first) add(text, "X(NUMBER, %snumbers_t, s%u), ", instance, (unsigned)i);
    if (step->rows) add(text, "X(STRUCT, pk_rows_t, r%u), ", (unsigned)i);
  }
  add(text, "X(VALUE, pk_u64, n)\n");
}

/* Writes the type in which a step reads an operand. */
static void name_type(const char *instance, uint32_t k, char type[64]) {
  if (strncmp(instance, "where_", 6) == 0 && k == 1)
    memcpy(type, "pk_bool", sizeof "pk_bool");
  else
    snprintf(type, 64, "%soperand_t", instance);
}

/* Adds the functions by which a step reads what others computed: the same bits as an element of its own type, as if they had been to memory. A
 * strided copy of float32 is one of integers, and of numbers beside others there are several names for a type. */
static void add_readers(text_t *text, const hal_fuse_group_t *group) {
  char instance[48], from[48], type[64];
  for (uint32_t i = 0; i < group->steps; i++) {
    const hal_fuse_step_t *const step = &group->step[i];
    if (step->dropped) continue;
    instance_of(step, instance);
    for (uint32_t k = 1; k < step->kernel->form.operands; k++) {
      if (step->operand[k].value < 0) continue;
      instance_of(&group->step[step->operand[k].value], from);
      name_type(instance, k, type);
      add(text, "PK_FN %s fused_read%u_%u(%sresult_t v) { union { %sresult_t from; %s to; } bits; ", type, (unsigned)i,
          (unsigned)k, from, from, type);
      add(text, "bits.from = v; return bits.to; }\n");
    }
  }
}

static void add_operand(text_t *text, const hal_fuse_step_t *step, const char *instance, uint32_t i, uint32_t k) {
  char type[64];
  const hal_fuse_operand_t *const operand = &step->operand[k];
  if (operand->value >= 0) {
    add(text, "fused_read%u_%u(v%d)", (unsigned)i, (unsigned)k, (int)operand->value);
    return;
  }
  name_type(instance, k, type);
  add(text, "((PK_GLOBAL const %s *)p%u)", type, (unsigned)operand->pointer);
  if (step->rows)
    add(text, "[a%u.offset[%u]]", (unsigned)i, (unsigned)k);
  else
    add(text, "[i]");
}

static void add_step(text_t *text, const hal_fuse_group_t *group, uint32_t i) {
  char instance[48];
  const hal_fuse_step_t *const step = &group->step[i];
  const hal_op_form_t *const form = &step->kernel->form;
  const int number = takes_number(step);
  const char *comma = "";
  instance_of(step, instance);
  if (step->rows)
    add(text, "  pk_cursor_t a%u; pk_cursor_seek(&r%u, %u, i, &a%u);\n", (unsigned)i, (unsigned)i,
        (unsigned)form->operands, (unsigned)i);
  add(text, "  const %sresult_t v%u = %selement%s(", instance, (unsigned)i, instance, number ? "_s" : "");
  for (uint32_t k = 1; k < form->operands; k++, comma = ", ") {
    add(text, "%s", comma);
    add_operand(text, step, instance, i, k);
  }
  const int first = number || strncmp(instance, "fill_", 5) == 0;
  if (form->numbers && first) add(text, "%sb%u", comma, (unsigned)i), comma = ", ";
  if (form->numbers > (uint32_t)first) add(text, "%ss%u", comma, (unsigned)i);
  add(text, ");\n");
}

/* Values are stored behind all loads: an address may be read as one operand and written as another. */
static void add_body(text_t *text, const hal_fuse_group_t *group, const uint32_t store[HAL_FUSE_STEPS]) {
  char instance[48];
  add(text, "PK_KERNEL(FUSED_NAME, FUSED_ARGS) { PK_PROLOGUE(FUSED_ARGS)\n PK_ITEM(i, n) {\n");
  for (uint32_t i = 0; i < group->steps; i++)
    if (!group->step[i].dropped) add_step(text, group, i);
  for (uint32_t i = 0; i < group->steps; i++) {
    if (group->step[i].dead) continue;
    instance_of(&group->step[i], instance);
    add(text, "  ((PK_GLOBAL %sresult_t *)p%u)[i] = v%u;\n", instance, (unsigned)store[i], (unsigned)i);
  }
  add(text, " }\n}\n");
}

/* ---- kernels ----------------------------------------------------------------------------------------------------------------- */

/* What a plan launches. */
typedef struct made_s {
  hal_kernel_t *kernel;
} made_t;

/* Tells whether the device computes such a group well by an item for each element: where cores are few and wide, the row form of one
 * operator divides once for a whole row. */
static int suits(const hal_fuse_t *fuse, const hal_fuse_group_t *group) {
  uint32_t rows = 0;
  for (uint32_t i = 0; i < group->steps; i++) rows += !group->step[i].dropped && group->step[i].rows != NULL;
  if (group->n > (uint64_t)INT32_MAX * HAL_OP_BLOCK) return 0;
  return rows <= MOST_ROWS && (!rows || fuse->device->ops->target.group_threads != 1);
}

static hal_status_t compile(const hal_fuse_t *fuse, text_t *text, made_t *made) {
  char name[48];
  hal_hash_t hash = hal_hash_begin();
  hal_hash_add(&hash, text->data, text->size);
  snprintf(name, sizeof name, "fused_%016llx", (unsigned long long)hal_hash_low(&hash));
  text_t whole = {.data = NULL};
  add(&whole, "#define FUSED_NAME %s\n", name);
  char *const to = whole.failed ? NULL : room_for(&whole, text->size);
  if (to) memcpy(to, text->data, text->size + 1);
  const hal_status_t status =
      to ? hal_kernel_compile(fuse->device->index, name, whole.data, &made->kernel) : HAL_RESOURCE_EXHAUSTED;
  hal_free(whole.data);
  return status;
}

hal_status_t hal_fuse_source_make(hal_fuse_t *fuse, const hal_fuse_group_t *group, void **out_made) {
  char *address[HAL_FUSE_POINTERS];
  uint32_t store[HAL_FUSE_STEPS];
  if (!suits(fuse, group)) return HAL_UNIMPLEMENTED;
  made_t *const made = hal_calloc(1, sizeof *made);
  text_t text = {.data = NULL};
  hal_status_t status = made ? add_functions(&text, group) : HAL_RESOURCE_EXHAUSTED;
  if (!status) {
    const uint32_t pointers = hal_fuse_addresses(group, address, store);
    add_readers(&text, group);
    add_arguments(&text, group, pointers);
    add_body(&text, group, store);
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

hal_status_t hal_fuse_source_launch(const hal_fuse_t *fuse, const hal_fuse_group_t *group, void *made,
                                    hal_stream_t *stream) {
  char *address[HAL_FUSE_POINTERS];
  uint32_t store[HAL_FUSE_STEPS], count = 0;
  hal_arg_t args[HAL_FUSE_POINTERS + 3 * HAL_FUSE_STEPS + 1];
  const uint32_t pointers = hal_fuse_addresses(group, address, store);
  for (; count < pointers; count++)
    args[count] = (hal_arg_t){.value = &address[count], .size = sizeof address[0], .kind = HAL_ARG_POINTER};
  for (uint32_t i = 0; i < group->steps; i++) {
    const hal_fuse_step_t *const step = &group->step[i];
    const hal_op_form_t *const form = &step->kernel->form;
    if (step->dropped) continue;
    for (uint32_t k = 0; k < form->numbers; k++) args[count++] = step->launch->args[form->operands + k];
    if (step->rows) args[count++] = (hal_arg_t){.value = step->rows, .size = sizeof *step->rows, .kind = HAL_ARG_VALUE};
  }
  args[count++] = (hal_arg_t){.value = &group->n, .size = sizeof group->n, .kind = HAL_ARG_VALUE};
  const uint64_t blocks = (group->n + HAL_OP_BLOCK - 1) / HAL_OP_BLOCK;
  const hal_launch_t launch = {.struct_size = HAL_STRUCT_SIZE(hal_launch_t, args),
                               .grid = {(uint32_t)blocks, 1, 1},
                               .block = {HAL_OP_BLOCK, 1, 1},
                               .arg_count = count,
                               .args = args};
  hal_plugin_t *const plugin = fuse->device->plugin;
  hal_plugin_kernel_t *const kernel = hal_kernel_handle(((const made_t *)made)->kernel);
  return hal_error_plugin(plugin, HAL_SLOT_kernel_launch,
                          hal_call_kernel_launch(plugin, kernel, stream->handle, &launch));
}
