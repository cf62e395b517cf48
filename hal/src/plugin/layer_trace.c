/* layer_trace.c: see layer_trace.h. */
#define _POSIX_C_SOURCE 200809L
#include "plugin/layer_trace.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/describe.h"
#include "base/dtype.h"
#include "base/log_internal.h"
#include "base/text.h"
#include "hal/log.h"

enum { MAX_DEPTH = 8, LINE_BYTES = 1024 };

/* Start times of the calls that this thread is running; defaults call other ops, so they nest. */
static _Thread_local struct {
  int depth;
  int64_t start_ns[MAX_DEPTH];
} trace;

typedef struct line_s {
  char text[LINE_BYTES];
} line_t;

#define PUT(line, ...) hal_text_append((line)->text, sizeof(line)->text, __VA_ARGS__)

/* ---- arguments --------------------------------------------------------------------------------------------------- */

static void put_launch(line_t *line, const hal_launch_t *launch) {
  PUT(line, "grid %ux%ux%u, block %ux%ux%u, %u arguments", launch->grid[0], launch->grid[1], launch->grid[2],
      launch->block[0], launch->block[1], launch->block[2], launch->arg_count);
}

static void put_copy_2d(line_t *line, const hal_copy_2d_t *copy) {
  PUT(line, "%zu rows of %zu bytes, %p of device %d (pitch %zu) to %p of device %d (pitch %zu)", copy->height,
      copy->width, copy->src, (int)copy->src_device, copy->src_pitch, copy->dst, (int)copy->dst_device,
      copy->dst_pitch);
}

/* Writes an argument of the plugin. */
static void put_argument(line_t *line, const hal_argument_t *argument) {
  const void *const address = (const void *)argument->value;
  PUT(line, "%s=", argument->name);
  switch (argument->type) {
    case HAL_TYPE_I32:
    case HAL_TYPE_I64:
      PUT(line, "%lld", (long long)argument->value);
      return;
    case HAL_TYPE_U32:
    case HAL_TYPE_SIZE:
      PUT(line, "%llu", (unsigned long long)argument->value);
      return;
    case HAL_TYPE_TEXT:
      PUT(line, address ? "\"%.120s\"" : "NULL", (const char *)address);
      return;
    case HAL_TYPE_LAUNCH:
      put_launch(line, address);
      return;
    case HAL_TYPE_STREAM_DESC:
      PUT(line, "priority %d, engine %u, flags 0x%x", (int)((const hal_stream_desc_t *)address)->priority,
          (unsigned)((const hal_stream_desc_t *)address)->engine,
          (unsigned)((const hal_stream_desc_t *)address)->flags);
      return;
    case HAL_TYPE_COPY_2D:
      put_copy_2d(line, address);
      return;
    case HAL_TYPE_COMM_DESC:
      PUT(line, "\"%.64s\", rank %d of %d, flags 0x%x", ((const hal_comm_desc_t *)address)->name,
          (int)((const hal_comm_desc_t *)address)->rank, (int)((const hal_comm_desc_t *)address)->size,
          (unsigned)((const hal_comm_desc_t *)address)->flags);
      return;
    case HAL_TYPE_MODULE_DESC:
      PUT(line, "%.32s, %zu bytes", ((const hal_module_desc_t *)address)->dialect,
          ((const hal_module_desc_t *)address)->size);
      return;
    case HAL_TYPE_RANDOM:
      PUT(line, "distribution %d, %llu of %s", (int)((const hal_random_t *)address)->distribution,
          (unsigned long long)((const hal_random_t *)address)->count,
          hal_dtype_name(((const hal_random_t *)address)->dtype));
      return;
    default:
      PUT(line, address ? "%p" : "NULL", address);
  }
}

static uint32_t class_of(uint32_t type) {
#define HAL_TYPE_CLASS(name, type, class) HAL_CLASS_##class,
  static const uint8_t classes[] = {HAL_ARGUMENT_TYPES(HAL_TYPE_CLASS)};
#undef HAL_TYPE_CLASS
  return classes[type];
}

static int is_answer(const hal_argument_t *argument) {
  const uint32_t class = class_of(argument->type);
  return class == HAL_CLASS_MADE || class == HAL_CLASS_OUT || class == HAL_CLASS_STRUCT;
}

/* Writes a result of the plugin. */
static void put_answer(line_t *line, const hal_argument_t *argument) {
  const void *const at = (const void *)argument->value;
  void *made;
  if (!at) return;
  PUT(line, ", %s=", argument->name);
  if (class_of(argument->type) == HAL_CLASS_MADE) {
    memcpy(&made, at, sizeof made);
    PUT(line, made ? "%p" : "NULL", made);
    return;
  }
  switch (argument->type) {
    case HAL_TYPE_OUT_I32:
      PUT(line, "%d", (int)*(const int32_t *)at);
      return;
    case HAL_TYPE_OUT_U32:
      PUT(line, "%u", (unsigned)*(const uint32_t *)at);
      return;
    case HAL_TYPE_OUT_I64:
      PUT(line, "%lld", (long long)*(const int64_t *)at);
      return;
    case HAL_TYPE_OUT_SIZE:
      PUT(line, "%zu", *(const size_t *)at);
      return;
    case HAL_TYPE_INFO:
      PUT(line, "\"%.64s\"", ((const hal_plugin_info_t *)at)->name ? ((const hal_plugin_info_t *)at)->name : "");
      return;
    case HAL_TYPE_DEVICE_INFO:
      PUT(line, "\"%.64s\", flags 0x%llx, dialects \"%.64s\"", ((const hal_device_info_t *)at)->name,
          (unsigned long long)((const hal_device_info_t *)at)->flags, ((const hal_device_info_t *)at)->dialects);
      return;
    case HAL_TYPE_COMM_INFO:
      PUT(line, "\"%.32s\", flags 0x%x", ((const hal_comm_info_t *)at)->name,
          (unsigned)((const hal_comm_info_t *)at)->flags);
      return;
    case HAL_TYPE_COMM_STATE:
      PUT(line, "state %u, error %d", (unsigned)((const hal_comm_state_t *)at)->state,
          (int)((const hal_comm_state_t *)at)->error);
      return;
    case HAL_TYPE_COMPILER:
      PUT(line, "\"%.64s\"", ((const hal_compiler_t *)at)->name ? ((const hal_compiler_t *)at)->name : "");
      return;
    case HAL_TYPE_OP_OWN:
      PUT(line, "dtypes 0x%llx, layouts %u", (unsigned long long)((const hal_op_own_t *)at)->dtypes,
          (unsigned)((const hal_op_own_t *)at)->layouts);
      return;
    default:
      PUT(line, "...");
  }
}

/* ---- lines ------------------------------------------------------------------------------------------------------- */

static void head(line_t *line, int depth, const char *mark, const hal_plugin_t *plugin) {
  line->text[0] = '\0';
  PUT(line, "trace: %*s%s%s.", 2 * (depth < MAX_DEPTH ? depth : MAX_DEPTH), "", mark,
      plugin->info.name ? plugin->info.name : "plugin");
}

static void start_clock(void) {
  if (trace.depth < MAX_DEPTH) trace.start_ns[trace.depth] = hal_clock_ns();
  trace.depth++;
}

static int64_t stop_clock(void) {
  const int64_t end = hal_clock_ns();
  trace.depth--;
  return trace.depth < MAX_DEPTH ? end - trace.start_ns[trace.depth] : 0;
}

void hal_trace_begin(const hal_layer_call_t *call) {
  line_t line;
  head(&line, trace.depth, "> ", call->plugin);
  PUT(&line, "%s(", hal_registry_slot_name(call->slot));
  const char *comma = "";
  for (uint32_t i = 0; i < call->count; i++) {
    if (is_answer(&call->arguments[i])) continue;
    PUT(&line, "%s", comma);
    put_argument(&line, &call->arguments[i]);
    comma = ", ";
  }
  PUT(&line, ")");
  hal_log_write(HAL_LOG_INFO, line.text);
  start_clock();
}

void hal_trace_end(const hal_layer_call_t *call, hal_status_t status) {
  const int64_t taken = stop_clock();
  line_t line;
  head(&line, trace.depth, "", call->plugin);
  PUT(&line, "%s -> %s, %lld ns", hal_registry_slot_name(call->slot), hal_status_name(status), (long long)taken);
  for (uint32_t i = 0; !status && i < call->count; i++)
    if (is_answer(&call->arguments[i])) put_answer(&line, &call->arguments[i]);
  hal_log_write(HAL_LOG_INFO, line.text);
}

void hal_trace_begin_op(const hal_plugin_t *plugin, const char *what, const char *name, const hal_op_call_t *run) {
  line_t line;
  head(&line, trace.depth, "> ", plugin);
  PUT(&line, "op %s %s(", what, name);
  hal_describe_arguments(line.text, sizeof line.text, run);
  PUT(&line, ") into (");
  hal_describe_results(line.text, sizeof line.text, run);
  PUT(&line, "), device=%d, stream=%p", (int)run->device, (void *)run->stream);
  hal_log_write(HAL_LOG_INFO, line.text);
  start_clock();
}

void hal_trace_end_op(const hal_plugin_t *plugin, const char *what, const char *name, hal_status_t status) {
  const int64_t taken = stop_clock();
  line_t line;
  head(&line, trace.depth, "", plugin);
  PUT(&line, "op %s %s -> %s, %lld ns", what, name, hal_status_name(status), (long long)taken);
  hal_log_write(HAL_LOG_INFO, line.text);
}
