/* text.c: the contents of a program, as numbers and as text. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "capture/program.h"
#include "hal/op.h"
#include "hal/status.h"
#include "hal_op_ids.h"

/* Locks a program that is read, not changed. */
static hal_program_t *locked(const hal_program_t *program) {
  hal_program_t *const own = (hal_program_t *)(uintptr_t)program;
  hal_program_lock(own);
  return own;
}

hal_status_t hal_program_info(const hal_program_t *program, hal_program_info_t *out_info) {
  hal_program_t *const own = locked(program);
  uint32_t counts[HAL_COMMAND_KINDS] = {0};
  for (uint32_t i = 0; i < own->list.command_count; i++) counts[own->list.commands[i].kind]++;
  hal_program_info_t info = {.struct_size = out_info->struct_size,
                             .recording = own->recording != 0,
                             .invalidated = own->invalidated != HAL_OK,
                             .commands = own->list.command_count,
                             .launches = counts[HAL_COMMAND_LAUNCH],
                             .copies = counts[HAL_COMMAND_COPY],
                             .fills = counts[HAL_COMMAND_FILL],
                             .draws = counts[HAL_COMMAND_DRAW] + counts[HAL_COMMAND_RANDOM],
                             .own_ops = counts[HAL_COMMAND_OWN_OP],
                             .host_calls = counts[HAL_COMMAND_HOST_CALL],
                             .streams = own->stream_count,
                             .runs = own->runs,
                             .owned_bytes = own->list.arena.bytes + own->list.command_room * sizeof *own->list.commands,
                             .graphs = own->graphs.count};
  for (uint32_t i = 0; i < own->graphs.part_count; i++)
    if (own->graphs.parts[i].graph) info.captured += own->graphs.parts[i].end - own->graphs.parts[i].begin;
  for (const hal_program_source_t *source = own->sources; source; source = source->next) info.random += source->blocks;
  hal_program_unlock(own);
  info.submissions = counts[HAL_COMMAND_SUBMISSION];
  memcpy(out_info, &info, info.struct_size < sizeof info ? info.struct_size : sizeof info);
  return HAL_OK;
}

/* ---- text -------------------------------------------------------------------------------------------------------- */

/* Text that is counted, and written as far as it fits. */
typedef struct writer_s {
  char *text;
  size_t room, size;
} writer_t;

static void add(writer_t *writer, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void add(writer_t *writer, const char *format, ...) {
  va_list arguments;
  const size_t left = writer->size < writer->room ? writer->room - writer->size : 0;
  va_start(arguments, format);
  const int length = vsnprintf(left ? writer->text + writer->size : NULL, left, format, arguments);
  va_end(arguments);
  if (length > 0) writer->size += (size_t)length;
}

static void add_command(writer_t *writer, const hal_command_t *command) {
  switch (command->kind) {
    case HAL_COMMAND_LAUNCH: {
      const hal_launch_t *const launch = command->u.launch.launch;
      add(writer, "launch of %ux%ux%u blocks of %ux%ux%u with %u arguments", launch->grid[0], launch->grid[1],
          launch->grid[2], launch->block[0], launch->block[1], launch->block[2], launch->arg_count);
      break;
    }
    case HAL_COMMAND_COPY:
      add(writer, "copy of %zu bytes%s%s", command->u.copy.size,
          command->u.copy.src_device == HAL_HOST ? " from the host" : "",
          command->u.copy.dst_device == HAL_HOST ? " to the host" : "");
      break;
    case HAL_COMMAND_FILL:
      add(writer, "fill of %zu bytes", command->u.fill.size);
      break;
    case HAL_COMMAND_RANDOM:
      add(writer, "%" PRIu64 " random numbers", command->u.random->count);
      break;
    case HAL_COMMAND_DRAW:
      add(writer, "seed and %" PRIu64 " blocks of random numbers of the run", command->u.draw->blocks);
      break;
    case HAL_COMMAND_OWN_OP:
      add(writer, "operator of the plugin");
      break;
    case HAL_COMMAND_FREED:
      add(writer, "%zu bytes are released", command->u.freed.size);
      break;
    case HAL_COMMAND_SUBMISSION:
      add(writer, "%s", command->u.submission->name);
      break;
    default:
      add(writer, "host function");
  }
}

/* Returns the implementation of an operator, which its first command that computes determines: the plugin, a portable
 * kernel, a library, a function of the host; otherwise only the device's own copies, fills and random numbers.
 * Operators that fall back to the CPU are not recorded. */
static const char *verdict_of(const hal_command_list_t *list, uint32_t index, uint32_t command) {
  for (uint32_t i = command; i < list->command_count; i++) {
    if (list->commands[i].op != index) continue;
    if (list->commands[i].kind == HAL_COMMAND_OWN_OP) return "plugin";
    if (list->commands[i].kind == HAL_COMMAND_HOST_CALL) return "host";
    if (list->commands[i].kind == HAL_COMMAND_LAUNCH)
      return list->ops[index].op < HAL_OP_ID_COUNT ? "portable" : "library";
  }
  return "native";
}

/* The subject of the text. */
typedef struct subject_s {
  const hal_command_list_t *list;
  const char *title;
  const hal_lazy_desc_t *desc; /* describes where operators were called; NULL = unknown */
} subject_t;

static void add_op(writer_t *writer, const subject_t *subject, uint32_t index, uint32_t command) {
  const hal_program_op_t *const op = &subject->list->ops[index];
  const char *const name = hal_op_name(op->op);
  char where[256] = "";
  if (op->origin && subject->desc && subject->desc->describe)
    snprintf(where, sizeof where, "%c%llu%c", HAL_ORIGIN_MARK, (unsigned long long)op->origin, HAL_ORIGIN_MARK);
  add(writer, "%s%s, %s%s%s", name ? name : "operator", op->text ? op->text : "",
      verdict_of(subject->list, index, command), *where ? ", " : "", where);
}

static void write_lines(writer_t *writer, const subject_t *subject) {
  const hal_command_list_t *const list = subject->list;
  uint32_t last = HAL_NO_OP;
  add(writer, "%s: %u commands\n", subject->title, list->command_count);
  for (uint32_t i = 0; i < list->command_count; i++) {
    const hal_command_t *const command = &list->commands[i];
    if (command->op != last && command->op != HAL_NO_OP) {
      add_op(writer, subject, command->op, i);
      add(writer, "\n");
    }
    last = command->op;
    add(writer, "  %%%u = ", i);
    add_command(writer, command);
    add(writer, "\n");
  }
}

/* Adds a name to a label in quotes, because libraries may use any characters in names. */
static void add_quoted(writer_t *writer, const char *name) {
  for (; *name; name++) add(writer, *name == '"' || *name == '\\' ? "\\%c" : "%c", *name);
}

static void write_dot(writer_t *writer, const subject_t *subject) {
  const hal_command_list_t *const list = subject->list;
  add(writer, "digraph program {\n  node [shape=box];\n");
  for (uint32_t i = 0; i < list->command_count; i++) {
    const hal_command_t *const command = &list->commands[i];
    add(writer, "  n%u [label=\"", i);
    if (command->op != HAL_NO_OP) {
      const char *const name = hal_op_name(list->ops[command->op].op);
      add_quoted(writer, name ? name : "operator");
      add(writer, ", %s\\n", verdict_of(list, command->op, i));
    }
    add_command(writer, command);
    add(writer, "\"];\n");
    if (i) add(writer, "  n%u -> n%u;\n", i - 1, i);
  }
  add(writer, "}\n");
}

/* Writes the text, unless `text` is NULL. Returns its length. */
static size_t put(const subject_t *subject, uint32_t format, char *text, size_t room) {
  writer_t writer = {.text = text, .room = text ? room : 0};
  if (format == HAL_PROGRAM_LINES)
    write_lines(&writer, subject);
  else
    write_dot(&writer, subject);
  return writer.size;
}

hal_status_t hal_command_list_check_format(uint32_t format) {
  if (format == HAL_PROGRAM_LINES || format == HAL_PROGRAM_DOT) return HAL_OK;
  return hal_error_set(HAL_INVALID_ARGUMENT, "unknown format %u; expected 0 (lines) or 1 (dot)", (unsigned)format);
}

hal_status_t hal_command_list_text(const hal_command_list_t *list, const char *title, const hal_lazy_desc_t *desc,
                                   uint32_t format, char *text, size_t room, size_t *out_size) {
  const subject_t subject = {.list = list, .title = title, .desc = desc};
  HAL_RETURN_IF_ERROR(hal_command_list_check_format(format));
  *out_size = put(&subject, format, NULL, 0) + 1;
  if (text && room >= *out_size) put(&subject, format, text, room);
  return HAL_OK;
}

hal_status_t hal_program_text(const hal_program_t *program, uint32_t format, char *text, size_t room,
                              size_t *out_size) {
  char title[160];
  hal_program_t *const own = locked(program);
  snprintf(title, sizeof title, "program of device %s", own->device->label);
  const hal_status_t status =
      own->recording
          ? hal_error_set(HAL_FAILED_PRECONDITION, "the program is being recorded; end the recording to read it")
          : hal_command_list_text(&own->list, title, NULL, format, text, room, out_size);
  hal_program_unlock(own);
  return status;
}
