/* compiler.c: the compilers of devices, and their compiled programs. */
#include <stdio.h>
#include <string.h>

#include "base/status_internal.h"
#include "compile/ir.h"
#include "device/device.h"
#include "fusion/fuse.h"
#include "fusion/metric.h"
#include "hal/host_memory.h"
#include "hal/log.h"
#include "hal/op.h"
#include "plugin/call.h"

enum {
  MOST_PROGRAMS = 4096
}; /* limits the memory for shapes that keep changing: further graphs are queued as they were recorded */

/* A graph that was compiled, or that the compiler declined. */
typedef struct compiled_s {
  uint64_t hash;
  int refused;
  void *program; /* the compiler's */
  size_t size;
  unsigned char key[];
} compiled_t;

struct hal_programs_s {
  hal_compiler_t compiler;
  hal_device_t *device;
  hal_compiler_info_t info; /* under the lock of the device's slot */
  hal_lock_t lock;          /* for the following fields */
  hal_arena_t arena;
  hal_ir_key_t key;
  compiled_t **table; /* by hash */
  uint32_t count, room;
  int warned; /* a warning about too many programs was logged */
};

/* The compiler of a device: its slot. */
struct hal_device_compiler_s {
  hal_lock_t query_lock; /* for `known`; held while the host queries the plugin for its compiler */
  int known;             /* the application has set one, or the plugin was queried */
  hal_lock_t lock;       /* for the following fields */
  hal_programs_t *programs;
  uint32_t lazy_streams; /* number of lazy streams that may use the programs */
};

static hal_device_compiler_t *slot_of(const hal_device_t *device) {
  return hal_device_slot(device, HAL_COMPONENT_COMPILE);
}

/* ---- setting ----------------------------------------------------------------------------------------------------- */

static void destroy_programs(hal_programs_t *programs) {
  if (!programs) return;
  for (uint32_t i = 0; i < programs->room; i++) {
    if (!programs->table[i]) continue;
    if (!programs->table[i]->refused) programs->compiler.destroy(programs->compiler.state, programs->table[i]->program);
    hal_free(programs->table[i]);
  }
  hal_free(programs->table);
  hal_ir_free_key(&programs->key);
  hal_arena_destroy(&programs->arena);
  hal_free(programs);
}

hal_status_t hal_device_compiler_create(hal_device_t *device, hal_device_compiler_t **out_compiler) {
  hal_device_compiler_t *const compiler = hal_calloc(1, sizeof *compiler);
  if (!compiler)
    return hal_error_set(HAL_RESOURCE_EXHAUSTED, "device %s: the host has no memory for its compiler", device->label);
  *out_compiler = compiler;
  return HAL_OK;
}

void hal_device_compiler_close(hal_device_compiler_t *compiler) {
  hal_lock(&compiler->lock);
  hal_programs_t *const programs = compiler->programs;
  compiler->programs = NULL;
  hal_unlock(&compiler->lock);
  destroy_programs(programs);
}

void hal_device_compiler_destroy(hal_device_compiler_t *compiler) {
  if (!compiler) return;
  hal_device_compiler_close(compiler);
  hal_free(compiler);
}

static hal_status_t make_programs(hal_device_t *device, const hal_compiler_t *compiler, hal_programs_t **out_programs) {
  hal_compiler_t known = {.struct_size = 0};
  *out_programs = NULL;
  if (!compiler) return HAL_OK;
  memcpy(&known, compiler, compiler->struct_size < sizeof known ? compiler->struct_size : sizeof known);
  if (!known.name || !known.accepts || !known.compile || !known.execute || !known.destroy)
    return hal_error_set(
        HAL_INVALID_ARGUMENT,
        "a compiler needs a name and the functions accepts, compile, execute and destroy; '%s' lacks one",
        known.name ? known.name : "");
  const uint32_t unknown = known.flags & ~(HAL_COMPILER_FIXED_NUMBERS | HAL_COMPILER_WHOLE);
  if (unknown)
    return hal_error_set(HAL_UNIMPLEMENTED,
                         "the compiler '%s' has unsupported flags 0x%x; use a torch_backend of its version", known.name,
                         (unsigned)unknown);
  hal_programs_t *const programs = hal_calloc(1, sizeof *programs);
  if (!programs) return hal_error_set(HAL_RESOURCE_EXHAUSTED, "the host has no memory for a compiler");
  programs->compiler = known;
  programs->device = device;
  *out_programs = programs;
  return HAL_OK;
}

/* Queries the plugin. The caller holds the slot's `query_lock`. */
static void query_plugin(hal_device_t *device) {
  hal_compiler_t compiler = {.struct_size = sizeof compiler};
  hal_programs_t *programs = NULL;
  hal_status_t status = hal_call_program_compiler(device->plugin, device->ordinal, &compiler);
  if (status == HAL_NOT_FOUND) return;
  if (status) hal_error_plugin(device->plugin, HAL_SLOT_program_compiler, status);
  if (!status) status = make_programs(device, &compiler, &programs);
  if (status)
    hal_log(HAL_LOG_WARNING, "device %s: lazy work runs on kernels, since its plugin's compiler cannot be used: %s",
            device->label, hal_error_message());
  hal_device_compiler_t *const slot = slot_of(device);
  hal_lock(&slot->lock);
  slot->programs = programs;
  hal_unlock(&slot->lock);
}

/* Determines the compiler: queries the plugin once, unless the application has set a compiler or NULL. Other threads
 * wait meanwhile. */
static void determine(hal_device_t *device, int query) {
  hal_device_compiler_t *const slot = slot_of(device);
  hal_lock_and_defer(&slot->query_lock);
  if (query && !slot->known) query_plugin(device);
  slot->known = 1;
  hal_unlock_and_run(&slot->query_lock);
}

hal_status_t hal_compiler_set(int32_t device, const hal_compiler_t *compiler) {
  hal_device_t *found;
  hal_programs_t *programs;
  hal_status_t status = HAL_OK;
  HAL_RETURN_IF_ERROR(hal_device_get(device, &found));
  HAL_RETURN_IF_ERROR(make_programs(found, compiler, &programs));
  determine(found, 0);
  hal_device_compiler_t *const slot = slot_of(found);
  hal_lock(&slot->lock);
  hal_programs_t *const before = slot->programs;
  if (!slot->lazy_streams)
    slot->programs = programs;
  else
    status = hal_error_set(HAL_FAILED_PRECONDITION, "device %s: a stream is lazy, %s%s%s; call hal_lazy_end first",
                           found->label, before ? "with programs of the compiler '" : "without a compiler",
                           before ? before->compiler.name : "", before ? "'" : "");
  hal_unlock(&slot->lock);
  if (!status && before) hal_stream_drain_all(found); /* the next synchronization of a stream reports its failure */
  destroy_programs(status ? programs : before);
  return status;
}

hal_status_t hal_compiler_info(int32_t device, hal_compiler_info_t *out_info) {
  hal_device_t *found;
  hal_compiler_info_t info = {.struct_size = 0};
  HAL_RETURN_IF_ERROR(hal_device_get(device, &found));
  hal_device_compiler_t *const slot = slot_of(found);
  hal_lock(&slot->lock);
  hal_programs_t *const programs = slot->programs;
  if (programs) info = programs->info;
  if (programs && programs->compiler.again) info.again = programs->compiler.again(programs->compiler.state);
  hal_unlock(&slot->lock);
  info.struct_size = out_info->struct_size < sizeof info ? out_info->struct_size : sizeof info;
  memcpy(out_info, &info, info.struct_size);
  return HAL_OK;
}

hal_programs_t *hal_compiler_enter(hal_device_t *device, int compiles) {
  hal_device_compiler_t *const slot = slot_of(device);
  if (compiles) determine(device, 1);
  hal_lock(&slot->lock);
  hal_programs_t *const programs = compiles ? slot->programs : NULL;
  slot->lazy_streams++;
  hal_unlock(&slot->lock);
  return programs;
}

void hal_compiler_leave(hal_device_t *device) {
  hal_device_compiler_t *const slot = slot_of(device);
  hal_lock(&slot->lock);
  slot->lazy_streams--;
  hal_unlock(&slot->lock);
}

/* Adds to the counts of a compiler. */
static void count(hal_programs_t *programs, const hal_compiler_info_t *more) {
  hal_device_compiler_t *const slot = slot_of(programs->device);
  hal_lock(&slot->lock);
  programs->info.compiled += more->compiled;
  programs->info.refused += more->refused;
  programs->info.executed += more->executed;
  programs->info.operators += more->operators;
  hal_unlock(&slot->lock);
}

int hal_compiler_takes_whole(const hal_programs_t *programs) {
  return programs && (programs->compiler.flags & HAL_COMPILER_WHOLE) != 0;
}

int hal_compiler_accepts(const hal_programs_t *programs, uint32_t op, const hal_op_call_t *call) {
  const char *const name = hal_op_name(op);
  return name && programs->compiler.accepts(programs->compiler.state, op, name, call) != 0;
}

/* ---- programs ---------------------------------------------------------------------------------------------------- */

static uint64_t hash_key(const hal_ir_key_t *key) {
  uint64_t hash = key->size;
  for (size_t i = 0; i + 8 <= key->size; i += 8) { /* the rest is compared, not hashed */
    uint64_t word;
    memcpy(&word, key->bytes + i, sizeof word);
    hash ^= word;
    hash ^= hash >> 32; /* Fibonacci hashing, after folding the upper half */
    hash *= UINT64_C(0x9E3779B97F4A7C15);
  }
  return hash ^ hash >> 29;
}

/* Doubles the table when it is half full. */
static int make_room(hal_programs_t *programs) {
  if (2 * programs->count < programs->room) return 1;
  const uint32_t room = programs->room ? 2 * programs->room : 64;
  compiled_t **const table = hal_calloc(room, sizeof *table);
  if (!table) return 0;
  for (uint32_t i = 0; i < programs->room; i++) {
    if (!programs->table[i]) continue;
    uint64_t at = programs->table[i]->hash & (room - 1);
    while (table[at]) at = (at + 1) & (room - 1);
    table[at] = programs->table[i];
  }
  hal_free(programs->table);
  programs->table = table;
  programs->room = room;
  return 1;
}

/* Finds the entry for the key's program in the table. */
static compiled_t **place_of(hal_programs_t *programs, uint64_t hash) {
  const hal_ir_key_t *const key = &programs->key;
  uint64_t at = hash & (programs->room - 1);
  for (compiled_t *one; (one = programs->table[at]); at = (at + 1) & (programs->room - 1))
    if (one->hash == hash && one->size == key->size && memcmp(one->key, key->bytes, key->size) == 0) break;
  return &programs->table[at];
}

/* Reports a compiled program to the observer. */
static void report_compiled(const hal_programs_t *programs, const hal_ir_graph_t *graph, const compiled_t *compiled,
                            hal_command_list_observer_t *observer, uint64_t origin) {
  char text[1024];
  const hal_ir_t *const ir = &graph->ir;
  const int written =
      snprintf(text, sizeof text, "a program of %u operators for the compiler '%s', %s to %s%s", ir->node_count,
               programs->compiler.name, hal_ir_node(ir, 0)->name, hal_ir_node(ir, ir->node_count - 1)->name,
               compiled->refused ? ", which it declined" : ": ");
  if (!compiled->refused && programs->compiler.text && written > 0 && (size_t)written < sizeof text)
    programs->compiler.text(programs->compiler.state, compiled->program, text + written, sizeof text - (size_t)written);
  text[sizeof text - 1] = '\0'; /* whatever the compiler has written */
  observer->compiled(observer, origin, text);
}

static compiled_t *compile(hal_programs_t *programs, hal_ir_graph_t *graph, uint64_t hash) {
  compiled_t *const compiled = hal_calloc(1, sizeof *compiled + programs->key.size);
  if (!compiled) return NULL;
  compiled->hash = hash;
  compiled->size = programs->key.size;
  memcpy(compiled->key, programs->key.bytes, programs->key.size);
  const int64_t begin = hal_metric_begin();
  const uint64_t mark = hal_error_mark();
  const hal_status_t status =
      hal_error_since(mark, programs->compiler.compile(programs->compiler.state, &graph->ir, &compiled->program));
  hal_fuse_t *const fuse = hal_device_slot_peek(programs->device, HAL_COMPONENT_FUSION);
  if (fuse) hal_metric_end(&fuse->metrics, HAL_LAZY_COMPILE_NS, begin);
  compiled->refused = status != HAL_OK;
  if (status && status != HAL_UNIMPLEMENTED)
    hal_log(HAL_LOG_WARNING,
            "device %s: the compiler '%s' failed on %u operators (%s to %s), which run one by one from now on: %s",
            programs->device->label, programs->compiler.name, graph->ir.node_count, graph->nodes[0].name,
            graph->nodes[graph->ir.node_count - 1].name, hal_error_message());
  count(programs, &(hal_compiler_info_t){.compiled = 1, .refused = status != HAL_OK});
  return compiled;
}

/* Finds the program of the graph, or creates it; NULL = there is no memory, or there are too many programs. */
static compiled_t *find(hal_programs_t *programs, hal_ir_graph_t *graph, hal_command_list_observer_t *observer,
                        uint64_t origin) {
  programs->key.size = 0;
  hal_ir_write_key(graph, programs->compiler.flags & HAL_COMPILER_FIXED_NUMBERS, &programs->key);
  if (programs->key.failed || !make_room(programs)) {
    programs->key.failed = 0;
    return NULL;
  }
  const uint64_t hash = hash_key(&programs->key);
  compiled_t **const place = place_of(programs, hash);
  if (*place) return *place;
  if (programs->count == MOST_PROGRAMS) {
    if (!programs->warned)
      hal_log(HAL_LOG_WARNING,
              "device %s: the compiler '%s' has compiled %d different programs, the maximum: further ones run "
              "operator by operator",
              programs->device->label, programs->compiler.name, MOST_PROGRAMS);
    programs->warned = 1;
    return NULL;
  }
  *place = compile(programs, graph, hash);
  if (!*place) return NULL;
  programs->count++;
  if (observer) report_compiled(programs, graph, *place, observer, origin);
  return *place;
}

/* ---- queueing ---------------------------------------------------------------------------------------------------- */

void hal_compiler_prepare(hal_command_list_t *list) {
  for (uint32_t i = list->command_count; i-- > 0;)
    if (list->commands[i].op != HAL_NO_OP) list->ops[list->commands[i].op].first = i;
  for (uint32_t i = 0; i < list->command_count; i++)
    if (list->commands[i].op != HAL_NO_OP) list->ops[list->commands[i].op].last = i;
}

/* Returns the operator of a command, if it may be in a program. */
static const hal_program_op_t *operator_of(const hal_command_list_t *list, uint32_t number) {
  const hal_command_t *const command = &list->commands[number];
  const hal_program_op_t *const op = command->op == HAL_NO_OP ? NULL : &list->ops[command->op];
  return op && op->call && op->complete ? op : NULL;
}

/* Returns the command after the sequence of accepted operators that begins at `begin`, or `begin` if there is none. The
 * sequence contains all commands of each operator. */
static uint32_t end_of_run(const hal_command_list_t *list, uint32_t begin) {
  uint32_t end = begin;
  for (; end < list->command_count; end++) {
    if (list->commands[end].kind == HAL_COMMAND_FREED) continue;
    const hal_program_op_t *const op = operator_of(list, end);
    if (!op || op->first < begin) break;
  }
  for (uint32_t i = begin; i < end; i++) { /* commands of one operator may be separated by those of another thread */
    const hal_program_op_t *const op = list->commands[i].kind == HAL_COMMAND_FREED ? NULL : operator_of(list, i);
    if (!op || op->last < end) continue;
    end = op->first;
    i = begin - 1;
  }
  return end;
}

uint32_t hal_compiler_next(const hal_command_list_t *list, uint32_t begin) {
  while (begin < list->command_count && !operator_of(list, begin)) begin++;
  return begin;
}

static int has_operator(const hal_command_list_t *list, uint32_t begin, uint32_t end) {
  for (uint32_t i = begin; i < end; i++)
    if (list->commands[i].kind != HAL_COMMAND_FREED) return 1;
  return 0;
}

static hal_status_t queue_run(hal_programs_t *programs, const hal_command_list_t *list, uint32_t begin, uint32_t end,
                              hal_stream_t *stream, hal_command_list_observer_t *observer, int *out_queued) {
  hal_ir_graph_t graph;
  hal_arena_rewind(&programs->arena);
  const hal_status_t status = hal_ir_make(&programs->arena, list, begin, end, programs->device->ordinal, &graph);
  if (status == HAL_UNIMPLEMENTED) return HAL_OK;
  HAL_RETURN_IF_ERROR(status);
  const compiled_t *const compiled = find(programs, &graph, observer, list->ops[list->commands[begin].op].origin);
  if (!compiled || compiled->refused) return HAL_OK;
  const hal_ir_run_t run = {.struct_size = sizeof run,
                            .stream = stream,
                            .buffers = (void *const *)graph.addresses,
                            .calls = (const hal_op_call_t *const *)graph.calls,
                            .plugin_stream = stream->direct.handle};
  const uint64_t mark = hal_error_mark();
  const hal_status_t executed =
      hal_error_since(mark, programs->compiler.execute(programs->compiler.state, compiled->program, &run));
  if (executed)
    return hal_error_prefix(
        executed, "the compiler '%s' could not execute a program of %u operators (%s to %s): ", programs->compiler.name,
        graph.ir.node_count, graph.nodes[0].name, graph.nodes[graph.ir.node_count - 1].name);
  count(programs, &(hal_compiler_info_t){.executed = 1, .operators = graph.ir.node_count});
  *out_queued = 1;
  return HAL_OK;
}

hal_status_t hal_compiler_queue(hal_programs_t *programs, hal_command_list_t *list, uint32_t begin,
                                hal_stream_t *stream, hal_command_list_observer_t *observer, uint32_t *out_end,
                                int *out_queued) {
  const uint32_t end = list->commands[begin].kind == HAL_COMMAND_FREED ? begin : end_of_run(list, begin);
  *out_end = end > begin ? end : begin + 1;
  *out_queued = 0;
  if (end == begin || !has_operator(list, begin, end)) return HAL_OK;
  hal_lock(&programs->lock);
  const hal_status_t status = queue_run(programs, list, begin, end, stream, observer, out_queued);
  hal_unlock(&programs->lock);
  return status;
}
