/* program.c: a plugin's compiler of whole programs, with the graph of result = -a + alpha * b, whose first value is
 * dead afterwards. */
#include <stdio.h>

#include "cts.h"
#include "hal/status.h"

enum { COUNT = 1000, BYTES = COUNT * sizeof(float), OFFSET = 8 /* elements of a buffer before a tensor */ };
enum { A, B, TEMPORARY, RESULT, BUFFERS };

/* Elements of a graph of a host of a later minor version: longer than this version's, by bytes that are not numbers. */
typedef struct node_s {
  hal_ir_node_t node;
  uint64_t later[3];
} node_t;
typedef struct buffer_s {
  hal_ir_buffer_t buffer;
  uint64_t later;
} buffer_t;
typedef struct use_s {
  hal_ir_use_t use;
  uint64_t later[2];
} use_t;

/* Two calls as the host records them, and the graph of both; all of it belongs to the host. */
typedef struct graph_s {
  hal_tensor_t tensors[BUFFERS];
  int64_t size, stride;
  hal_value_t negated, added[3];
  const hal_tensor_t *results[2];
  hal_op_call_t calls[2];
  const hal_op_call_t *both[2];
  use_t uses[5];
  node_t nodes[2];
  buffer_t buffers[BUFFERS];
  hal_ir_t ir;
} graph_t;

static void describe(cts_t *t, graph_t *graph, void *const addresses[BUFFERS], double alpha) {
  graph->size = COUNT, graph->stride = 1;
  for (int i = 0; i < BUFFERS; i++)
    graph->tensors[i] = (hal_tensor_t){.struct_size = HAL_STRUCT_SIZE(hal_tensor_t, flags),
                                       .data = (float *)addresses[i] + (i == B ? OFFSET : 0),
                                       .sizes = &graph->size,
                                       .strides = &graph->stride,
                                       .ndim = 1,
                                       .dtype = HAL_FLOAT32,
                                       .device = t->device};
  graph->negated = (hal_value_t){.tag = HAL_VALUE_TENSOR, .u.t = &graph->tensors[A]};
  graph->added[0] = (hal_value_t){.tag = HAL_VALUE_TENSOR, .u.t = &graph->tensors[TEMPORARY]};
  graph->added[1] = (hal_value_t){.tag = HAL_VALUE_TENSOR, .u.t = &graph->tensors[B]};
  graph->added[2] = (hal_value_t){.tag = HAL_VALUE_DOUBLE, .u.d = alpha};
  graph->results[0] = &graph->tensors[TEMPORARY], graph->results[1] = &graph->tensors[RESULT];
  for (int i = 0; i < 2; i++) {
    graph->calls[i] = (hal_op_call_t){.struct_size = HAL_STRUCT_SIZE(hal_op_call_t, host),
                                      .device = t->device,
                                      .arg_count = i ? 3 : 1,
                                      .result_count = 1,
                                      .flags = HAL_CALL_DENSE,
                                      .args = i ? graph->added : &graph->negated,
                                      .results = &graph->results[i]};
    graph->both[i] = &graph->calls[i];
  }
}

static void set_use(graph_t *graph, int number, uint32_t buffer, uint32_t value, int written) {
  graph->uses[number].use = (hal_ir_use_t){.tensor = &graph->tensors[buffer],
                                           .buffer = buffer,
                                           .value = value,
                                           .offset = buffer == B ? OFFSET * sizeof(float) : 0,
                                           .whole = written,
                                           .before = written ? UINT32_MAX : 0};
}

static void make_graph(graph_t *graph, uint32_t neg, uint32_t add) {
  memset(graph->uses, 0xA5, sizeof graph->uses);
  memset(graph->nodes, 0xA5, sizeof graph->nodes);
  memset(graph->buffers, 0xA5, sizeof graph->buffers);
  set_use(graph, 0, A, 0, 0), set_use(graph, 1, TEMPORARY, 2, 1);
  set_use(graph, 2, TEMPORARY, 2, 0), set_use(graph, 3, B, 1, 0);
  set_use(graph, 4, RESULT, 3, 1);
  for (int i = 0; i < 2; i++)
    graph->nodes[i].node = (hal_ir_node_t){.struct_size = sizeof(node_t),
                                           .op = i ? add : neg,
                                           .read_count = i ? 2 : 1,
                                           .write_count = 1,
                                           .use_size = sizeof(use_t),
                                           .name = i ? "add.Tensor" : "neg",
                                           .call = &graph->calls[i],
                                           .reads = &graph->uses[i ? 2 : 0].use,
                                           .writes = &graph->uses[i ? 4 : 1].use};
  for (uint32_t i = 0; i < BUFFERS; i++)
    graph->buffers[i].buffer = (hal_ir_buffer_t){.size = BYTES + (i == B ? OFFSET * sizeof(float) : 0),
                                                 .first_value = i == A   ? 0
                                                                : i == B ? 1
                                                                         : i,
                                                 .last_value = i == A   ? 0
                                                               : i == B ? 1
                                                                        : i,
                                                 .flags = i == RESULT      ? HAL_IR_OUTPUT
                                                          : i == TEMPORARY ? 0
                                                                           : HAL_IR_INPUT | HAL_IR_OUTPUT};
  graph->ir = (hal_ir_t){.struct_size = HAL_STRUCT_SIZE(hal_ir_t, reserved),
                         .node_count = 2,
                         .buffer_count = BUFFERS,
                         .value_count = 4,
                         .node_size = sizeof(node_t),
                         .nodes = &graph->nodes->node,
                         .buffers = &graph->buffers->buffer,
                         .buffer_size = sizeof(buffer_t)};
}

/* Executes the program on other memory and with other numbers than it was compiled for, after work that is held. */
static void run(cts_t *t, const hal_compiler_t *compiler, void *program, double alpha, uint64_t seed) {
  static cts_gate_t gate;
  static graph_t graph;
  const int held = cts_is_async(t);
  hal_plugin_stream_t *const stream = cts_stream(t);
  float *const a = (float *)(void *)cts_host(t, BYTES), *const b = (float *)(void *)cts_host(t, BYTES),
               *const got = (float *)(void *)cts_host(t, BYTES);
  void *addresses[BUFFERS];
  for (int i = 0; i < BUFFERS; i++) addresses[i] = cts_alloc(t, BYTES + OFFSET * sizeof(float));
  for (int i = 0; i < COUNT; i++) a[i] = (float)(i + (int)seed), b[i] = (float)(3 * i % 17) * 0.25f;
  if (held) cts_gate_close(t, &gate, stream);
  cts_put(t, stream, addresses[A], a, BYTES);
  cts_put(t, stream, (float *)addresses[B] + OFFSET, b, BYTES);
  describe(t, &graph, addresses, alpha);
  hal_ir_run_t with = {.struct_size = HAL_STRUCT_SIZE(hal_ir_run_t, plugin_stream),
                       .buffers = addresses,
                       .calls = graph.both,
                       .plugin_stream = stream};
  cts_enter(t, HAL_SLOT_program_compiler); /* a crash or a wait is that of the function of program_compiler */
  const hal_status_t status =
      cts_leave(t, HAL_SLOT_program_compiler, compiler->execute(compiler->state, program, &with));
  CTS_CHECK(t, !status, "execute returned %s: %s", hal_status_name(status), hal_error_message());
  memset(&graph, 0xff, sizeof graph), memset(&with, 0xff, sizeof with); /* copied by now */
  cts_get(t, stream, got, addresses[RESULT], BYTES);
  if (held) cts_gate_open(&gate);
  cts_sync(t, stream);
  for (int i = 0; i < COUNT; i++) {
    const double expected = -(double)a[i] + alpha * (double)b[i];
    CTS_CHECK(t, (double)got[i] == expected, "element %d of a program of neg and add.Tensor is %.9g instead of %.9g", i,
              (double)got[i], expected);
  }
  for (int i = 0; i < BUFFERS; i++) cts_free(t, addresses[i]);
  free(a), free(b), free(got);
}

void cts_case_program_compiler(cts_t *t) {
  static graph_t graph;
  hal_compiler_t compiler = {.struct_size = HAL_STRUCT_SIZE(hal_compiler_t, destroy)};
  void *addresses[BUFFERS], *program = NULL;
  char text[64] = "";
  const hal_status_t found = cts_program_compiler(t, t->device, &compiler);
  if (found == HAL_NOT_FOUND) cts_skip(t, "program_compiler returned that this device has none");
  cts_expect_ok(t, HAL_SLOT_program_compiler, found);
  CTS_JUDGE(t, program_compiler, "name and accepts");
  CTS_CHECK(t, compiler.name && compiler.accepts && compiler.compile && compiler.execute && compiler.destroy,
            "program_compiler returned HAL_OK without name, accepts, compile, execute or destroy");
  CTS_JUDGE(t, program_compiler, "as far apart as the graph specifies");
  for (int i = 0; i < BUFFERS; i++) addresses[i] = cts_alloc(t, BYTES + OFFSET * sizeof(float));
  describe(t, &graph, addresses, 2);
  const uint32_t neg = cts_operator_number("neg"), add = cts_operator_number("add.Tensor");
  make_graph(&graph, neg, add);
  if (!compiler.accepts(compiler.state, neg, "neg", &graph.calls[0]) ||
      !compiler.accepts(compiler.state, add, "add.Tensor", &graph.calls[1]))
    cts_skip(t,
             "the compiler '%.100s' accepts neg and add.Tensor of float32 not both: the suite knows no other program",
             compiler.name);
  cts_enter(t, HAL_SLOT_program_compiler);
  const hal_status_t status =
      cts_leave(t, HAL_SLOT_program_compiler, compiler.compile(compiler.state, &graph.ir, &program));
  if (status == HAL_UNIMPLEMENTED)
    cts_skip(t, "the compiler '%.100s' refused a program of neg and add.Tensor", compiler.name);
  CTS_CHECK(t, !status, "compile returned %s: %s", hal_status_name(status), hal_error_message());
  CTS_JUDGE(t, program_compiler, "Returns the device's compiler");
  memset(&graph, 0xff, sizeof graph); /* it was valid until compile returned */
  for (int i = 0; i < BUFFERS; i++) cts_free(t, addresses[i]);
  if (compiler.text) compiler.text(compiler.state, program, text, sizeof text);
  CTS_CHECK(t, memchr(text, 0, sizeof text), "text wrote no terminating 0");
  for (uint64_t i = 0; i < 3; i++)
    run(t, &compiler, program, compiler.flags & HAL_COMPILER_FIXED_NUMBERS ? 2 : 2 + (double)i, i);
  compiler.destroy(compiler.state, program);
}
