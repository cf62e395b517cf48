/* graph.c: a program as graphs of the plugin, if it captures streams: a run is then one call per graph instead of one
 * per command.
 *
 * The graphs are created at the second run, from the command list, on a separate stream: a first launch may load a
 * kernel, and a program that runs once has no overhead. Commands that no graph may contain (host functions, copies of
 * host memory, numbers that each run generates, operators of the plugin that are not HAL_OP_CAPTURABLE) run between
 * graphs. */
#include <stdio.h>

#include "base/status_internal.h"
#include "capture/program.h"
#include "device/profile_internal.h"
#include "hal/host_memory.h"
#include "hal/log.h"
#include "hal/memory.h"
#include "plugin/call.h"
#include "plugin/slots.h"

enum { LEAST = 3 /* commands: queuing fewer one by one is as fast */ };

/* ---- parts ------------------------------------------------------------------------------------------------------- */

static int fits(const hal_command_t *command, const hal_device_t *device) {
  switch (command->kind) {
    case HAL_COMMAND_LAUNCH:
      return 1;
    case HAL_COMMAND_FILL: /* the default copies from its own host memory */
      return hal_slot_is_provided(&device->plugin->api, HAL_SLOT_memory_fill);
    case HAL_COMMAND_COPY:
      return command->u.copy.dst_device == device->ordinal && command->u.copy.src_device == device->ordinal;
    case HAL_COMMAND_OWN_OP:
      return (command->u.own_op.own->flags & HAL_OP_CAPTURABLE) != 0;
    default:
      return 0;
  }
}

/* Returns the command after the longest part that begins with a command: all of its commands fit, or none does. */
static uint32_t end_of_part(const hal_command_list_t *list, uint32_t begin, const hal_device_t *device) {
  const int fit = fits(&list->commands[begin], device);
  uint32_t end = begin + 1;
  while (end < list->command_count && fits(&list->commands[end], device) == fit) end++;
  return end;
}

/* Splits the command list. Returns 0 when the host has no memory. */
static int split(const hal_program_t *program, hal_program_graphs_t *graphs) {
  const hal_command_list_t *const list = &program->list;
  const hal_device_t *const device = program->device;
  uint32_t count = 0;
  for (uint32_t i = 0; i < list->command_count; i = end_of_part(list, i, device)) count++;
  graphs->parts = hal_calloc(count, sizeof *graphs->parts);
  if (!graphs->parts) return 0;
  for (uint32_t i = 0; i < list->command_count; i = graphs->parts[graphs->part_count++].end)
    graphs->parts[graphs->part_count] = (hal_program_part_t){.begin = i, .end = end_of_part(list, i, device)};
  return 1;
}

static int is_worth_it(const hal_program_t *program, const hal_program_part_t *part) {
  return part->end - part->begin >= LEAST && fits(&program->list.commands[part->begin], program->device);
}

/* ---- capture ----------------------------------------------------------------------------------------------------- */

/* Queues a part's commands on a captured stream. A capture that has begun is always ended. */
static hal_status_t capture(const hal_program_t *program, hal_program_graphs_t *graphs, const hal_program_part_t *part,
                            hal_stream_t *stream, hal_plugin_graph_t **out_graph) {
  hal_plugin_t *const plugin = program->device->plugin;
  hal_status_t status =
      hal_call_capture_begin(plugin, stream->direct.handle, HAL_CAPTURE_RELAXED, hal_memory_pool_id(program->pool));
  if (status) return hal_error_plugin(plugin, HAL_SLOT_capture_begin, status);
  for (uint32_t i = part->begin; i < part->end && !status; i++)
    status = hal_command_list_capture(&program->list, i, stream, &graphs->scratch);
  char message[HAL_FAILURE_BYTES];
  if (status) snprintf(message, sizeof message, "%s", hal_error_message());
  hal_status_t ended = hal_call_capture_end(plugin, stream->direct.handle, out_graph);
  if (ended && ended != HAL_ABORTED && !hal_call_capture_end(plugin, stream->direct.handle, out_graph)) ended = HAL_OK;
  if (ended) *out_graph = NULL;
  if (status) return hal_error_set(status, "%s", message); /* the cause of the failed end, if it failed */
  return hal_error_plugin_made(plugin, HAL_SLOT_capture_end, ended, *out_graph);
}

static hal_status_t make_graph(const hal_program_t *program, hal_program_graphs_t *graphs, hal_program_part_t *part,
                               hal_stream_t *stream) {
  hal_plugin_t *const plugin = program->device->plugin;
  hal_plugin_graph_t *graph = NULL;
  hal_plugin_graph_exec_t *exec = NULL;
  hal_status_t status = capture(program, graphs, part, stream, &graph);
  if (!status) {
    status = hal_call_graph_instantiate(plugin, graph, &exec);
    status = hal_error_plugin_made(plugin, HAL_SLOT_graph_instantiate, status, exec);
  }
  if (graph) HAL_CALL_AFTER(plugin, graph_destroy, graph);
  if (status) return status;
  part->graph = exec;
  graphs->count++;
  return HAL_OK;
}

static hal_status_t make_all(const hal_program_t *program, hal_program_graphs_t *graphs) {
  const hal_stream_desc_t desc = HAL_STREAM_DESC(0);
  hal_device_t *const device = program->device;
  hal_stream_t stream;
  hal_stream_initialize(&stream, device, NULL);
  stream.id = graphs->scratch.stream->id;
  hal_status_t status = hal_call_stream_create(device->plugin, device->ordinal, &desc, &stream.direct.handle);
  if (status) return hal_error_plugin(device->plugin, HAL_SLOT_stream_create, status);
  for (uint32_t i = 0; i < graphs->part_count && !status && stream.direct.handle; i++)
    if (is_worth_it(program, &graphs->parts[i])) status = make_graph(program, graphs, &graphs->parts[i], &stream);
  if (stream.direct.handle) HAL_CALL_AFTER(device->plugin, stream_destroy, stream.direct.handle);
  return status;
}

/* ---- runs -------------------------------------------------------------------------------------------------------- */

static void drop(const hal_program_t *program, hal_program_graphs_t *graphs) {
  if (hal_device_is_alive(program->device)) {
    for (uint32_t i = 0; i < graphs->part_count; i++) {
      if (graphs->parts[i].graph) HAL_CALL_QUIETLY(program->device->plugin, graph_exec_destroy, graphs->parts[i].graph);
    }
  }
  hal_op_kept_release(&graphs->scratch);
  hal_free(graphs->parts);
  *graphs = (hal_program_graphs_t){.state = HAL_GRAPHS_NOT};
}

void hal_program_drop_graphs(hal_program_t *program) { drop(program, &program->graphs); }

/* Creates the graphs of a program that has run before. If that fails, its commands are queued one by one. */
static void make(hal_program_t *program, hal_stream_t *stream) {
  hal_program_graphs_t graphs = {.state = HAL_GRAPHS_MADE, .scratch = {.stream = stream}};
  const hal_status_t status = split(program, &graphs) ? make_all(program, &graphs)
                                                      : hal_error_set(HAL_RESOURCE_EXHAUSTED, "the host has no memory");
  if (status && status != HAL_UNIMPLEMENTED)
    hal_log(HAL_LOG_WARNING,
            "device %s: a program is run command by command, since its plugin could not create a graph: %s",
            program->device->label, hal_error_message());
  if (status || !graphs.count) drop(program, &graphs);
  hal_program_lock(program);
  program->graphs = graphs;
  hal_program_unlock(program);
}

/* Returns whether a run may launch graphs: launches contain the address of the error record of the stream for which
 * they were captured, and a profile reports each operator. */
static int may_launch(const hal_program_t *program, const hal_stream_t *stream) {
  return program->graphs.state == HAL_GRAPHS_MADE && !hal_profile_is_on() &&
         (!program->patch_count || stream == program->graphs.scratch.stream);
}

static hal_status_t queue_commands(const hal_program_t *program, uint32_t begin, uint32_t end, hal_stream_t *stream) {
  const int profiled = hal_profile_is_on();
  for (uint32_t i = begin; i < end; i++)
    HAL_RETURN_IF_ERROR(hal_command_list_queue(&program->list, i, stream, NULL, profiled));
  return HAL_OK;
}

static hal_status_t launch(const hal_program_t *program, const hal_program_part_t *part, hal_stream_t *stream) {
  hal_plugin_t *const plugin = program->device->plugin;
  const hal_status_t status = hal_call_graph_launch(plugin, part->graph, stream->direct.handle);
  if (HAL_LIKELY(!status)) return HAL_OK;
  hal_error_plugin(plugin, HAL_SLOT_graph_launch, status);
  return hal_error_prefix(status, "commands %u to %u of %u of a program, as one graph: ", (unsigned)part->begin + 1,
                          (unsigned)part->end, (unsigned)program->list.command_count);
}

hal_status_t hal_program_queue(hal_program_t *program, hal_stream_t *stream) {
  hal_program_graphs_t *const graphs = &program->graphs;
  const int wanted = graphs->state == HAL_GRAPHS_LATER && !(program->flags & HAL_PROGRAM_COMMANDS) &&
                     !hal_profile_is_on() && program->runs > 1;
  if (HAL_UNLIKELY(wanted) && hal_slot_is_provided(&program->device->plugin->api, HAL_SLOT_capture_begin))
    make(program, stream);
  if (!may_launch(program, stream)) return queue_commands(program, 0, program->list.command_count, stream);
  for (uint32_t i = 0; i < graphs->part_count; i++) {
    const hal_program_part_t *const part = &graphs->parts[i];
    HAL_RETURN_IF_ERROR(part->graph ? launch(program, part, stream)
                                    : queue_commands(program, part->begin, part->end, stream));
  }
  return HAL_OK;
}
