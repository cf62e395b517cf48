/* ir.c: graphs of recorded operators: determines which tensors share a buffer, and which value each of them reads or
 * produces. */
#include "compile/ir.h"

#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/status_internal.h"
#include "capture/span.h"
#include "hal/host_memory.h"
#include "hal/op.h"
#include "hal_op_ids.h"
#include "op/internal.h"

enum { NO_VALUE = 0xFFFFFFFFu };

/* Memory that tensors access. `current` is 1 + the number of the lifetime to which an access belongs now; `last` is
 * that of the latest lifetime; 0 = none. */
typedef struct span_s {
  char *low, *high;
  uint32_t current, last;
} span_t;

/* The accesses of a span until its memory is released: a buffer. */
typedef struct lifetime_s {
  char *low, *high;
  uint32_t end;     /* index after the last command that accesses it */
  uint32_t earlier; /* 1 + the number of the previous lifetime of the same memory; 0 = none */
  uint32_t buffer;  /* HAL_IR_NO_BUFFER until its first use is assigned */
  int released;     /* the memory was released after its last use: the buffer is dead after the graph */
} lifetime_t;

typedef struct making_s {
  hal_arena_t *arena;
  const hal_command_list_t *list;
  int32_t ordinal;
  hal_ir_graph_t *graph;
  span_t *spans;
  lifetime_t *lifetimes;
  uint32_t *lifetime_of; /* of each use */
  hal_ir_use_t *uses;
  uint32_t span_count, lifetime_count;
  hal_status_t status;
} making_t;

static void *take(making_t *making, size_t count, size_t size) {
  void *const piece = count ? hal_arena_take(making->arena, count * size) : NULL;
  if (piece) memset(piece, 0, count * size);
  if (count && !piece)
    making->status = hal_error_set(HAL_RESOURCE_EXHAUSTED, "the host has no memory for a graph of operators");
  return piece;
}

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

/* Computes the bytes that a tensor accesses. Returns as hal_span_of_tensor. */
static int span_of(const hal_tensor_t *tensor, span_t *span) {
  uint64_t low, high;
  const int has_memory = hal_span_of_tensor(tensor, &low, &high);
  if (has_memory <= 0) return has_memory;
  span->low = (char *)(uintptr_t)low;
  span->high = (char *)(uintptr_t)high;
  return 1;
}

/* Returns whether a tensor is contiguous. */
static int is_dense(const hal_tensor_t *tensor) {
  int64_t expected = 1;
  for (int32_t d = tensor->ndim - 1; d >= 0; d--) {
    if (tensor->sizes[d] != 1 && tensor->strides[d] != expected) return 0;
    if (__builtin_mul_overflow(expected, tensor->sizes[d], &expected)) return 0;
  }
  return 1;
}

static uint32_t count_value(const hal_value_t *value) {
  return value->tag == HAL_VALUE_TENSOR ? value->u.t != NULL : value->tag == HAL_VALUE_TENSOR_LIST ? value->count : 0;
}

static uint32_t count_reads(const hal_op_call_t *call) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < call->arg_count; i++) count += count_value(&call->args[i]);
  return count;
}

static void add_use(making_t *making, hal_ir_use_t *use, const hal_tensor_t *tensor) {
  span_t span = {.low = NULL};
  use->tensor = tensor;
  use->buffer = HAL_IR_NO_BUFFER;
  use->value = use->before = NO_VALUE;
  if (!tensor) return;
  if (tensor->device != making->ordinal) {
    making->status = HAL_UNIMPLEMENTED;
    return;
  }
  const int has_memory = span_of(tensor, &span);
  if (has_memory < 0) making->status = HAL_UNIMPLEMENTED;
  if (has_memory > 0) making->spans[making->span_count++] = span;
}

static void add_reads(making_t *making, hal_ir_use_t *uses, const hal_op_call_t *call) {
  for (uint32_t i = 0; i < call->arg_count; i++) {
    const hal_value_t *const value = &call->args[i];
    const uint32_t count = count_value(value);
    for (uint32_t k = 0; k < count; k++)
      add_use(making, uses++, value->tag == HAL_VALUE_TENSOR ? value->u.t : value->u.tl[k]);
  }
}

/* ---- lifetimes --------------------------------------------------------------------------------------------------- */

static int compare_spans(const void *one, const void *other) {
  const span_t *const a = one, *const b = other;
  return (a->low > b->low) - (a->low < b->low);
}

/* Merges spans that overlap. */
static void merge_spans(making_t *making) {
  uint32_t count = 0;
  qsort(making->spans, making->span_count, sizeof *making->spans, compare_spans);
  for (uint32_t i = 0; i < making->span_count; i++) {
    span_t *const last = count ? &making->spans[count - 1] : NULL;
    if (last && making->spans[i].low < last->high) {
      if (making->spans[i].high > last->high) last->high = making->spans[i].high;
      continue;
    }
    making->spans[count++] = making->spans[i];
  }
  making->span_count = count;
}

static span_t *span_at(const making_t *making, const char *address) {
  uint32_t low = 0, high = making->span_count;
  while (high - low > 1) {
    const uint32_t middle = (low + high) / 2;
    *(making->spans[middle].low <= address ? &low : &high) = middle;
  }
  return &making->spans[low];
}

/* Adds an access of a node whose commands end at `end` to the lifetime of its memory. */
static void extend_lifetime(making_t *making, const hal_ir_use_t *use, uint32_t end) {
  span_t accessed;
  if (!use->tensor || span_of(use->tensor, &accessed) <= 0) return;
  span_t *const span = span_at(making, accessed.low);
  if (!span->current) {
    making->lifetimes[making->lifetime_count] =
        (lifetime_t){.low = accessed.low, .high = accessed.high, .earlier = span->last, .buffer = HAL_IR_NO_BUFFER};
    span->current = span->last = ++making->lifetime_count;
  }
  lifetime_t *const lifetime = &making->lifetimes[span->current - 1];
  if (accessed.low < lifetime->low) lifetime->low = accessed.low;
  if (accessed.high > lifetime->high) lifetime->high = accessed.high;
  if (end > lifetime->end) lifetime->end = end;
  making->lifetime_of[use - making->uses] = span->current - 1;
}

/* Ends lifetimes at the release of memory, if nothing else in their spans was accessed. */
static void end_lifetimes(making_t *making, uint32_t number) {
  const hal_command_t *const command = &making->list->commands[number];
  char *const low = (char *)(uintptr_t)command->u.freed.address, *const high = low + command->u.freed.size;
  const span_t *const last = making->spans + making->span_count;
  if (!making->span_count) return;
  for (span_t *span = span_at(making, low); span < last && span->low < high; span++) {
    lifetime_t *const lifetime = span->current ? &making->lifetimes[span->current - 1] : NULL;
    if (!lifetime || lifetime->end > number || low > lifetime->low || lifetime->high > high) continue;
    lifetime->released = 1;
    span->current = 0;
  }
}

/* Finds the lifetimes of memory, in the order of the commands. */
static void list_lifetimes(making_t *making, uint32_t begin, uint32_t end) {
  const hal_ir_graph_t *const graph = making->graph;
  for (uint32_t i = begin, n = 0; i < end; i++) {
    const hal_command_t *const command = &making->list->commands[i];
    if (command->kind == HAL_COMMAND_FREED) end_lifetimes(making, i);
    if (command->op == HAL_NO_OP || making->list->ops[command->op].first != i) continue;
    const hal_ir_node_t *const node = &graph->nodes[n];
    for (uint32_t k = 0; k < node->read_count; k++) extend_lifetime(making, &node->reads[k], graph->ends[n]);
    for (uint32_t k = 0; k < node->write_count; k++) extend_lifetime(making, &node->writes[k], graph->ends[n]);
    n++;
  }
}

/* ---- buffers ----------------------------------------------------------------------------------------------------- */

/* Assigns a buffer to a tensor. Buffers are numbered by first use, independent of addresses. */
static void place(making_t *making, hal_ir_use_t *use) {
  span_t accessed;
  hal_ir_graph_t *const graph = making->graph;
  if (!use->tensor || span_of(use->tensor, &accessed) <= 0) return;
  lifetime_t *const lifetime = &making->lifetimes[making->lifetime_of[use - making->uses]];
  if (lifetime->buffer == HAL_IR_NO_BUFFER) {
    const lifetime_t *const earlier = lifetime->earlier ? &making->lifetimes[lifetime->earlier - 1] : NULL;
    lifetime->buffer = graph->ir.buffer_count++;
    graph->addresses[lifetime->buffer] = lifetime->low;
    graph->buffers[lifetime->buffer] = (hal_ir_buffer_t){.size = (uint64_t)(lifetime->high - lifetime->low),
                                                         .first_value = NO_VALUE,
                                                         .last_value = NO_VALUE,
                                                         .flags = lifetime->released ? 0 : HAL_IR_OUTPUT,
                                                         .reuses = earlier ? earlier->buffer + 1 : 0};
  }
  use->buffer = lifetime->buffer;
  use->offset = (uint64_t)((char *)use->tensor->data - lifetime->low);
  use->whole = accessed.low == lifetime->low && accessed.high == lifetime->high && is_dense(use->tensor);
}

/* Returns the value in a buffer; it is an input of the graph if no node has written it. */
static uint32_t held_by(hal_ir_graph_t *graph, hal_ir_buffer_t *buffer) {
  if (buffer->last_value == NO_VALUE) {
    buffer->first_value = buffer->last_value = graph->ir.value_count++;
    buffer->flags |= HAL_IR_INPUT;
  }
  return buffer->last_value;
}

static void read_value(making_t *making, hal_ir_use_t *use) {
  place(making, use);
  if (use->buffer == HAL_IR_NO_BUFFER) return;
  use->value = held_by(making->graph, &making->graph->buffers[use->buffer]);
  use->whole = 0;
}

static void write_value(making_t *making, uint32_t op, hal_ir_use_t *use) {
  hal_ir_graph_t *const graph = making->graph;
  place(making, use);
  if (use->buffer == HAL_IR_NO_BUFFER) return;
  if (op < HAL_OP_ID_COUNT && hal_op_infos[op].updates) use->whole = 0; /* the operator also reads the result */
  hal_ir_buffer_t *const buffer = &graph->buffers[use->buffer];
  use->before = use->whole ? buffer->last_value : held_by(graph, buffer);
  use->value = graph->ir.value_count++;
  if (buffer->first_value == NO_VALUE) buffer->first_value = use->value;
  buffer->last_value = use->value;
}

/* ---- graphs ------------------------------------------------------------------------------------------------------ */

/* Lists the operators of the commands, and their tensors. */
static void list_nodes(making_t *making, uint32_t begin, uint32_t end) {
  hal_ir_graph_t *const graph = making->graph;
  uint32_t uses = 0;
  for (uint32_t i = begin; i < end; i++) {
    const hal_command_t *const command = &making->list->commands[i];
    const hal_program_op_t *const op = command->op == HAL_NO_OP ? NULL : &making->list->ops[command->op];
    if (!op || op->first != i) continue;
    const uint32_t n = graph->ir.node_count++;
    graph->calls[n] = op->call;
    graph->ends[n] = op->last + 1;
    graph->nodes[n] = (hal_ir_node_t){.struct_size = sizeof *graph->nodes,
                                      .op = op->op,
                                      .name = hal_op_name(op->op),
                                      .call = op->call,
                                      .read_count = count_reads(op->call),
                                      .write_count = op->call->result_count,
                                      .use_size = sizeof(hal_ir_use_t)};
    uses += graph->nodes[n].read_count + graph->nodes[n].write_count;
  }
  hal_ir_use_t *use = making->uses = take(making, uses, sizeof *use);
  making->lifetimes = take(making, uses, sizeof *making->lifetimes);
  making->lifetime_of = take(making, uses, sizeof *making->lifetime_of);
  making->spans = take(making, uses, sizeof *making->spans);
  graph->buffers = take(making, uses, sizeof *graph->buffers);
  graph->addresses = take(making, uses, sizeof *graph->addresses);
  for (uint32_t n = 0; n < graph->ir.node_count && !making->status; n++) {
    hal_ir_node_t *const node = &graph->nodes[n];
    node->reads = use;
    add_reads(making, use, node->call);
    use += node->read_count;
    node->writes = use;
    for (uint32_t k = 0; k < node->write_count; k++) add_use(making, use++, node->call->results[k]);
  }
}

hal_status_t hal_ir_make(hal_arena_t *arena, const hal_command_list_t *list, uint32_t begin, uint32_t end,
                         int32_t ordinal, hal_ir_graph_t *out_graph) {
  making_t making = {.arena = arena, .list = list, .ordinal = ordinal, .graph = out_graph};
  *out_graph = (hal_ir_graph_t){.ir = {.struct_size = sizeof out_graph->ir,
                                       .node_size = sizeof(hal_ir_node_t),
                                       .buffer_size = sizeof(hal_ir_buffer_t)}};
  out_graph->nodes = take(&making, end - begin, sizeof *out_graph->nodes);
  out_graph->calls = take(&making, end - begin, sizeof *out_graph->calls);
  out_graph->ends = take(&making, end - begin, sizeof *out_graph->ends);
  if (making.status) return making.status;
  list_nodes(&making, begin, end);
  if (making.status) return making.status;
  merge_spans(&making);
  list_lifetimes(&making, begin, end);
  for (uint32_t n = 0; n < out_graph->ir.node_count; n++) {
    hal_ir_node_t *const node = &out_graph->nodes[n];
    for (uint32_t k = 0; k < node->read_count; k++) read_value(&making, (hal_ir_use_t *)(uintptr_t)&node->reads[k]);
    for (uint32_t k = 0; k < node->write_count; k++)
      write_value(&making, node->op, (hal_ir_use_t *)(uintptr_t)&node->writes[k]);
  }
  out_graph->ir.nodes = out_graph->nodes;
  out_graph->ir.buffers = out_graph->buffers;
  return making.status;
}

/* ---- keys -------------------------------------------------------------------------------------------------------- */

static void put(hal_ir_key_t *key, const void *data, size_t size) {
  if (key->size + size > key->room) {
    const size_t room = 2 * (key->size + size) + 4096;
    unsigned char *const grown = key->failed ? NULL : hal_malloc(room);
    key->failed |= !grown;
    if (!grown) return;
    if (key->size) memcpy(grown, key->bytes, key->size);
    hal_free(key->bytes);
    key->bytes = grown;
    key->room = room;
  }
  if (size) memcpy(key->bytes + key->size, data, size);
  key->size += size;
}

static void put_number(hal_ir_key_t *key, uint64_t number) { put(key, &number, sizeof number); }

static void put_use(hal_ir_key_t *key, const hal_ir_use_t *use) {
  const hal_tensor_t *const tensor = use->tensor;
  put_number(key, (uint64_t)use->buffer << 32 |
                      (tensor ? (uint64_t)(uint32_t)tensor->dtype << 8 | (uint64_t)tensor->ndim : 0xFF));
  if (!tensor) return;
  put_number(key, use->offset);
  put(key, tensor->sizes, (size_t)tensor->ndim * sizeof *tensor->sizes);
  put(key, tensor->strides, (size_t)tensor->ndim * sizeof *tensor->strides);
}

/* Returns whether an argument is a number of any type (ATen's Scalar): an integer among them is neither a size nor a
 * dimension. */
static int is_scalar(const hal_ir_node_t *node, uint32_t argument) {
  if (node->op >= HAL_OP_ID_COUNT) return 0;
  const hal_op_info_t *const info = &hal_op_infos[node->op];
  return argument >= info->operands && argument < (uint32_t)info->operands + info->scalars;
}

static void put_value(hal_ir_key_t *key, const hal_value_t *value, int numbers) {
  put_number(key, (uint64_t)value->tag << 32 | value->count);
  switch (value->tag) {
    case HAL_VALUE_NONE:
    case HAL_VALUE_TENSOR:
    case HAL_VALUE_TENSOR_LIST: /* the uses determine them */
      put_number(key, value->tag == HAL_VALUE_TENSOR && value->u.t);
      break;
    case HAL_VALUE_STRING:
      put(key, value->u.s, value->u.s ? strlen(value->u.s) + 1 : 0);
      break;
    case HAL_VALUE_INT_LIST:
      put(key, value->u.il, value->count * sizeof *value->u.il);
      break;
    case HAL_VALUE_BOOL_LIST:
      put(key, value->u.bl, value->count);
      break;
    case HAL_VALUE_SCALAR_LIST:
      for (uint32_t i = 0; i < value->count; i++) put_value(key, &value->u.vl[i], numbers);
      break;
    case HAL_VALUE_DOUBLE_LIST:
      if (numbers) put(key, value->u.dl, value->count * sizeof *value->u.dl);
      break;
    case HAL_VALUE_COMPLEX:
      if (numbers) put(key, value->u.dl, 2 * sizeof *value->u.dl);
      break;
    case HAL_VALUE_DOUBLE:
      if (numbers) put(key, &value->u.d, sizeof value->u.d);
      break;
    default:
      put_number(key, (uint64_t)value->u.i);
  }
}

void hal_ir_write_key(const hal_ir_graph_t *graph, int numbers, hal_ir_key_t *key) {
  put_number(key, (uint64_t)graph->ir.node_count << 32 | graph->ir.buffer_count);
  for (uint32_t b = 0; b < graph->ir.buffer_count; b++) {
    put_number(key, graph->buffers[b].size);
    put_number(key, graph->buffers[b].reuses);
    put_number(key, graph->buffers[b].flags | ((uint64_t)(uintptr_t)graph->addresses[b] & 255)
                                                  << 32); /* and its alignment */
  }
  for (uint32_t n = 0; n < graph->ir.node_count; n++) {
    const hal_ir_node_t *const node = &graph->nodes[n];
    put_number(key, (uint64_t)node->op << 32 | node->call->arg_count << 8 | node->call->flags);
    for (uint32_t i = 0; i < node->call->arg_count; i++) {
      const hal_value_t *const value = &node->call->args[i];
      if (!numbers && value->tag == HAL_VALUE_INT && is_scalar(node, i))
        put_number(key, value->tag);
      else
        put_value(key, value, numbers);
    }
    for (uint32_t k = 0; k < node->read_count; k++) put_use(key, &node->reads[k]);
    for (uint32_t k = 0; k < node->write_count; k++) put_use(key, &node->writes[k]);
  }
}

void hal_ir_free_key(hal_ir_key_t *key) { hal_free(key->bytes); }
