/* ir.c: graphs of recorded operators: which tensors share memory, and which value each of them reads or makes. */
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

/* Memory that tensors access. */
typedef struct span_s {
  char *low, *high;
  hal_ir_use_t *use; /* the first one of the graph that lies in it, once spans are buffers */
} span_t;

typedef struct making_s {
  hal_arena_t *arena;
  const hal_tape_t *tape;
  int32_t ordinal;
  hal_ir_graph_t *graph;
  span_t *spans;
  uint32_t span_count;
  hal_status_t status;
} making_t;

static void *take(making_t *making, size_t count, size_t size) {
  void *const piece = count ? hal_arena_take(making->arena, count * size) : NULL;
  if (piece) memset(piece, 0, count * size);
  if (count && !piece)
    making->status = hal_error_set(HAL_RESOURCE_EXHAUSTED, "the host has no memory for a graph of operators");
  return piece;
}

/* ---- tensors ---------------------------------------------------------------------------------------------------------------- */

/* The bytes that a tensor accesses. Returns as hal_span_of_tensor. */
static int span_of(const hal_tensor_t *tensor, span_t *span) {
  uint64_t low, high;
  const int has_memory = hal_span_of_tensor(tensor, &low, &high);
  if (has_memory <= 0) return has_memory;
  span->low = (char *)(uintptr_t)low;
  span->high = (char *)(uintptr_t)high;
  return 1;
}

/* Whether a tensor's elements lie one behind the other in their order. */
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
  span_t span = {.use = NULL};
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

/* ---- buffers ---------------------------------------------------------------------------------------------------------------- */

static int compare_spans(const void *one, const void *other) {
  const span_t *const a = one, *const b = other;
  return (a->low > b->low) - (a->low < b->low);
}

/* Makes spans that overlap one. */
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

/* Gives a tensor its buffer: numbered by first use, whatever the addresses are. */
static void place(making_t *making, hal_ir_use_t *use) {
  span_t touched;
  hal_ir_graph_t *const graph = making->graph;
  if (!use->tensor || span_of(use->tensor, &touched) <= 0) return;
  span_t *const span = span_at(making, touched.low);
  if (!span->use) {
    span->use = use;
    use->buffer = graph->ir.buffer_count++;
    graph->addresses[use->buffer] = span->low;
    graph->buffers[use->buffer] =
        (hal_ir_buffer_t){.size = (uint64_t)(span->high - span->low), .first_value = NO_VALUE, .last_value = NO_VALUE};
  }
  use->buffer = span->use->buffer;
  use->offset = (uint64_t)((char *)use->tensor->data - span->low);
  use->whole = touched.low == span->low && touched.high == span->high && is_dense(use->tensor);
}

/* The value that a buffer holds; one from outside where nobody has written it. */
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
  if (op < HAL_OP_ID_COUNT && hal_op_infos[op].updates) use->whole = 0; /* its result is made of what is there */
  hal_ir_buffer_t *const buffer = &graph->buffers[use->buffer];
  use->before = use->whole ? buffer->last_value : held_by(graph, buffer);
  use->value = graph->ir.value_count++;
  if (buffer->first_value == NO_VALUE) buffer->first_value = use->value;
  buffer->last_value = use->value;
}

/* Finds which buffers nobody can read afterwards: their memory was given back behind their last use. */
static void find_outputs(making_t *making, uint32_t begin, uint32_t end) {
  hal_ir_graph_t *const graph = making->graph;
  uint32_t *const last = take(making, graph->ir.buffer_count, sizeof *last);
  if (making->status) return;
  for (uint32_t n = 0; n < graph->ir.node_count; n++) {
    const hal_ir_node_t *const node = &graph->nodes[n];
    for (uint32_t k = 0; k < node->read_count; k++)
      if (node->reads[k].buffer != HAL_IR_NO_BUFFER) last[node->reads[k].buffer] = graph->ends[n];
    for (uint32_t k = 0; k < node->write_count; k++)
      if (node->writes[k].buffer != HAL_IR_NO_BUFFER) last[node->writes[k].buffer] = graph->ends[n];
  }
  for (uint32_t b = 0; b < graph->ir.buffer_count; b++) graph->buffers[b].flags |= HAL_IR_OUTPUT;
  for (uint32_t i = begin; i < end; i++) {
    const hal_command_t *const command = &making->tape->commands[i];
    if (command->kind != HAL_COMMAND_FREED) continue;
    const char *const low = command->u.freed.address, *const high = low + command->u.freed.size;
    for (uint32_t b = 0; b < graph->ir.buffer_count; b++)
      if (last[b] <= i && low <= graph->addresses[b] && graph->addresses[b] + graph->buffers[b].size <= high)
        graph->buffers[b].flags &= ~HAL_IR_OUTPUT;
  }
}

/* ---- graphs ----------------------------------------------------------------------------------------------------------------- */

/* Lists the operators of the commands, and their tensors. */
static void list_nodes(making_t *making, uint32_t begin, uint32_t end) {
  hal_ir_graph_t *const graph = making->graph;
  uint32_t uses = 0;
  for (uint32_t i = begin; i < end; i++) {
    const hal_command_t *const command = &making->tape->commands[i];
    const hal_program_op_t *const op = command->op == HAL_NO_OP ? NULL : &making->tape->ops[command->op];
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
  hal_ir_use_t *use = take(making, uses, sizeof *use);
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

hal_status_t hal_ir_make(hal_arena_t *arena, const hal_tape_t *tape, uint32_t begin, uint32_t end, int32_t ordinal,
                         hal_ir_graph_t *out_graph) {
  making_t making = {.arena = arena, .tape = tape, .ordinal = ordinal, .graph = out_graph};
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
  for (uint32_t n = 0; n < out_graph->ir.node_count; n++) {
    hal_ir_node_t *const node = &out_graph->nodes[n];
    for (uint32_t k = 0; k < node->read_count; k++) read_value(&making, (hal_ir_use_t *)(uintptr_t)&node->reads[k]);
    for (uint32_t k = 0; k < node->write_count; k++)
      write_value(&making, node->op, (hal_ir_use_t *)(uintptr_t)&node->writes[k]);
  }
  find_outputs(&making, begin, end);
  out_graph->ir.nodes = out_graph->nodes;
  out_graph->ir.buffers = out_graph->buffers;
  return making.status;
}

/* ---- keys ------------------------------------------------------------------------------------------------------------------- */

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

/* Whether an argument is a number that may be of any type (ATen's Scalar): an integer among them is no size and no dimension. */
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
    case HAL_VALUE_TENSOR_LIST: /* the uses say them */
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
    put_number(key, graph->buffers[b].flags | ((uint64_t)(uintptr_t)graph->addresses[b] & 255)
                                                  << 32); /* and how it is aligned */
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
