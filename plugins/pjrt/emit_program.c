/* emit_program.c: whole programs. Arguments are the buffers whose first value is read, followed by the numbers of a
 * run. A result is aliased with the argument of its buffer, so that it is written in place. If programs compute in
 * memory of the host, the buffer of each result is an argument for that reason. */
#include <string.h>

#include "emit.h"

/* ---- operators --------------------------------------------------------------------------------------------------- */

static const emit_operator_t operators[] = {
#define PJRT_OPERATOR(name, takes, emit, operands, program) {name, takes, emit, operands, program},
#include "pjrt_operators.inc"
#undef PJRT_OPERATOR
};

const emit_operator_t *emit_find(const char *name) {
  size_t low = 0, high = sizeof operators / sizeof *operators;
  while (low < high) {
    const size_t middle = (low + high) / 2;
    const int order = strcmp(name, operators[middle].name);
    if (order == 0) return &operators[middle];
    *(order < 0 ? &high : &low) = order < 0 ? middle : middle + 1;
  }
  return NULL;
}

static int takes_tensor(const hal_tensor_t *tensor, int is_result) {
  if (!tensor) return 1;
  if (!emit_type_of(tensor->dtype) || tensor->ndim > EMIT_RANK) return 0;
  for (int32_t d = 0; d < tensor->ndim; d++) {
    if (tensor->sizes[d] == 0) return 0;
    if (is_result && tensor->strides[d] == 0 && tensor->sizes[d] != 1) return 0; /* repeated elements */
  }
  return 1;
}

static int takes_value(const hal_value_t *value) {
  if (value->tag == HAL_VALUE_COMPLEX || value->tag == HAL_VALUE_SCALAR_LIST) return 0;
  if (value->tag == HAL_VALUE_TENSOR) return takes_tensor(value->u.t, 0);
  if (value->tag != HAL_VALUE_TENSOR_LIST) return 1;
  for (uint32_t i = 0; i < value->count; i++)
    if (!value->u.tl[i] || !takes_tensor(value->u.tl[i], 0)) return 0;
  return 1;
}

int emit_takes(const emit_operator_t *operator_of_call, const hal_op_call_t *call) {
  if (call->random_state || !call->result_count) return 0;
  for (uint32_t i = 0; i < call->arg_count; i++)
    if (!takes_value(&call->args[i])) return 0;
  for (uint32_t i = 0; i < call->result_count; i++)
    if (!takes_tensor(call->results[i], 1)) return 0;
  return !operator_of_call->takes || operator_of_call->takes(call);
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static void *take(emit_t *e, size_t count, size_t size) {
  void *const piece = hal_host->mem_alloc((count ? count : 1) * size, 16);
  if (!piece && !e->status) e->status = HAL_RESOURCE_EXHAUSTED;
  if (piece) memset(piece, 0, (count ? count : 1) * size);
  return piece;
}

/* Counts the numbers of all calls: the sizes of %nf and %ni. */
static void count_numbers(emit_t *e) {
  for (uint32_t n = 0; n < e->ir->node_count; n++) {
    const hal_op_call_t *const call = hal_ir_node(e->ir, n)->call;
    for (uint32_t i = 0; i < call->arg_count; i++) {
      e->double_room += call->args[i].tag == HAL_VALUE_DOUBLE;
      e->integer_room += call->args[i].tag == HAL_VALUE_INT;
    }
    e->integer_room += 2; /* seed and offset */
  }
  e->doubles = take(e, e->double_room, sizeof *e->doubles);
  e->integers = take(e, e->integer_room, sizeof *e->integers);
}

/* A buffer has the dtype of its first use. */
static void type_buffer(emit_t *e, const hal_ir_use_t *use) {
  if (!use->tensor || use->buffer == HAL_IR_NO_BUFFER || e->buffers[use->buffer].type) return;
  emit_buffer_t *const buffer = &e->buffers[use->buffer];
  const uint64_t bytes = hal_ir_buffer(e->ir, use->buffer)->size;
  buffer->type = emit_type_of(use->tensor->dtype);
  buffer->count = (int64_t)(bytes / (uint64_t)emit_bytes(buffer->type));
  if (bytes % (uint64_t)emit_bytes(buffer->type)) emit_refuse(e, "the size of a buffer is no multiple of its dtype's");
  buffer->now = (value_t){.id = -1 - (int32_t)use->buffer, .type = buffer->type, .rank = 1, .sizes = {buffer->count}};
}

static void type_buffers(emit_t *e) {
  e->buffers = take(e, e->ir->buffer_count, sizeof *e->buffers);
  for (uint32_t n = 0; n < e->ir->node_count && !e->status; n++) {
    const hal_ir_node_t *const node = hal_ir_node(e->ir, n);
    for (uint32_t k = 0; k < node->read_count; k++) type_buffer(e, hal_ir_read(node, k));
    for (uint32_t k = 0; k < node->write_count; k++) type_buffer(e, hal_ir_write(node, k));
  }
}

/* ---- arguments and results --------------------------------------------------------------------------------------- */

static int is_output(const emit_t *e, uint32_t buffer) {
  return (hal_ir_buffer(e->ir, buffer)->flags & HAL_IR_OUTPUT) != 0 && e->buffers[buffer].written;
}

static int is_argument(const emit_t *e, uint32_t buffer) {
  return e->buffers[buffer].read || (!pjrt.opaque && is_output(e, buffer));
}

/* An argument whose memory a later buffer reuses as a result is copied before the run, since the platform may write
 * results before it has read all arguments. */
static void mark_reused(emit_t *e, emit_program_t *program) {
  for (uint32_t b = 0; b < e->ir->buffer_count; b++) {
    uint32_t earlier = is_output(e, b) ? hal_ir_buffer(e->ir, b)->reuses : 0;
    for (; earlier; earlier = hal_ir_buffer(e->ir, earlier - 1)->reuses)
      for (uint32_t i = 0; i < program->argument_count; i++)
        if (program->arguments[i] == earlier - 1) program->copied[i] = 1;
  }
}

static void take_lists(emit_t *e, emit_program_t *program) {
  const uint32_t count = e->ir->buffer_count;
  program->arguments = take(e, count, sizeof *program->arguments);
  program->results = take(e, count, sizeof *program->results);
  program->result_types = take(e, count, sizeof *program->result_types);
  program->result_counts = take(e, count, sizeof *program->result_counts);
  program->places = take(e, count, sizeof *program->places);
  program->copied = take(e, count, sizeof *program->copied);
  program->types = take(e, count, sizeof *program->types);
  program->counts = take(e, count, sizeof *program->counts);
}

static void list_result(const emit_t *e, emit_program_t *program, uint32_t buffer, uint32_t place) {
  const uint32_t k = program->result_count++;
  program->results[k] = buffer;
  program->result_types[k] = e->buffers[buffer].type;
  program->result_counts[k] = e->buffers[buffer].count;
  program->places[k] = place;
}

static void list_arguments(emit_t *e, emit_program_t *program) {
  take_lists(e, program);
  for (uint32_t b = 0; b < e->ir->buffer_count && !e->status; b++) {
    const uint32_t i = program->argument_count;
    if (is_argument(e, b)) {
      program->arguments[i] = b;
      program->types[i] = e->buffers[b].type;
      program->counts[i] = e->buffers[b].count;
      program->argument_count++;
    }
    if (is_output(e, b)) list_result(e, program, b, is_argument(e, b) ? i : PJRT_NO_PLACE);
  }
  if (!e->status) mark_reused(e, program);
}

static void put_head(emit_t *e, const emit_program_t *program) {
  uint32_t results = 0;
  emit_put(e, "module @program {\n  func.func @main(");
  for (uint32_t i = 0; i < program->argument_count; i++) {
    const uint32_t b = program->arguments[i];
    emit_put(e, "%s%%b%u: tensor<%lldx%s>", i ? ", " : "", (unsigned)b, (long long)program->counts[i],
             emit_element(program->types[i]));
    while (results < program->result_count && program->results[results] < b) results++; /* both are in order */
    if (is_output(e, b)) emit_put(e, " {tf.aliasing_output = %u : i32}", (unsigned)results);
  }
  const char *separator = program->argument_count ? ", " : "";
  if (e->double_count) {
    emit_put(e, "%s%%nf: tensor<%uxf64>", separator, (unsigned)e->double_room);
    separator = ", ";
  }
  if (e->integer_count) emit_put(e, "%s%%ni: tensor<%uxi64>", separator, (unsigned)e->integer_room);
  emit_put(e, ") -> (");
  for (uint32_t k = 0; k < program->result_count; k++)
    emit_put(e, "%s%s", k ? ", " : "", emit_type(e->buffers[program->results[k]].now).s);
  emit_put(e, ") {\n");
}

static void put_return(emit_t *e, const emit_program_t *program) {
  emit_put(e, "    return");
  for (uint32_t k = 0; k < program->result_count; k++)
    emit_put(e, "%s%s", k ? ", " : " ", emit_name(e->buffers[program->results[k]].now).s);
  for (uint32_t k = 0; k < program->result_count; k++)
    emit_put(e, "%s%s", k ? ", " : " : ", emit_type(e->buffers[program->results[k]].now).s);
  emit_put(e, "\n  }\n}\n");
}

/* The head, whose arguments are known only after the body, which is in `e->text`. */
static void assemble(emit_t *e, emit_program_t *program) {
  emit_text_t body = e->text;
  e->text = (emit_text_t){NULL, 0, 0};
  put_head(e, program);
  if (body.size) emit_put(e, "%.*s", (int)body.size, body.data);
  put_return(e, program);
  hal_host->mem_free(body.data);
  program->text = e->text.data;
  program->size = e->text.size;
  e->text = (emit_text_t){NULL, 0, 0};
}

hal_status_t emit_program(const hal_ir_t *ir, emit_program_t *out_program) {
  emit_t e = {.ir = ir};
  *out_program = (emit_program_t){.text = NULL};
  count_numbers(&e);
  type_buffers(&e);
  for (uint32_t n = 0; n < ir->node_count && !e.status; n++) {
    e.node = hal_ir_node(ir, n);
    e.node_number = n;
    const emit_operator_t *const one = emit_find(e.node->name);
    if (one)
      one->emit(&e);
    else
      emit_refuse(&e, "the operator is not supported");
  }
  e.node = NULL;
  for (uint32_t b = 0; b < ir->buffer_count && !e.status; b++)
    if (hal_ir_buffer(ir, b)->flags & HAL_IR_OUTPUT) emit_flush(&e, b);
  if (!e.status) list_arguments(&e, out_program);
  if (!e.status) assemble(&e, out_program);
  out_program->doubles = e.doubles, out_program->double_count = e.double_count;
  out_program->integers = e.integers, out_program->integer_count = e.integer_count;
  out_program->double_room = e.double_room, out_program->integer_room = e.integer_room;
  hal_host->mem_free(e.text.data);
  hal_host->mem_free(e.buffers);
  hal_host->mem_free(e.pending);
  if (!e.status) return HAL_OK;
  emit_program_free(out_program);
  if (e.status == HAL_RESOURCE_EXHAUSTED) return pjrt_error(e.status, "pjrt: no host memory for a program");
  return pjrt_error(e.status, "pjrt: %s", e.why);
}

void emit_program_free(emit_program_t *program) {
  hal_host->mem_free(program->text);
  hal_host->mem_free(program->arguments);
  hal_host->mem_free(program->results);
  hal_host->mem_free(program->result_types);
  hal_host->mem_free(program->result_counts);
  hal_host->mem_free(program->places);
  hal_host->mem_free(program->copied);
  hal_host->mem_free(program->types);
  hal_host->mem_free(program->counts);
  hal_host->mem_free(program->doubles);
  hal_host->mem_free(program->integers);
  *program = (emit_program_t){.text = NULL};
}
