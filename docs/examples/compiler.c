/* compiler.c: a compiler for lazy programs, in plain C, without torch.
 *
 *   compiler [<plugin name or path>]      default: fake
 *
 * It lowers negations of whole float32 vectors, and executes a sequence of them as one pass on the host, in the order
 * of the stream. A real compiler generates code for the device. It needs a device whose memory the host may read. Exit
 * status: 0 the results are right. */
#include <hal/hal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 1000 };

/* A chain of negations, each of the one before: the last one is the first operand's negation, or that itself. */
typedef struct chain_s {
  uint32_t length, from, to; /* buffers */
} chain_t;

typedef struct work_s {
  const float *from;
  float *to, sign;
} work_t;

static int32_t accepts(void *state, uint32_t op, const char *name, const hal_op_call_t *call) {
  (void)state, (void)op;
  return strcmp(name, "neg") == 0 && call->results[0]->dtype == HAL_FLOAT32 && call->results[0]->ndim == 1 &&
         call->results[0]->sizes[0] == COUNT;
}

/* In SSA form a chain is: each node reads the value that the previous node made. */
static hal_status_t compile(void *state, const hal_ir_t *ir, void **out_program) {
  (void)state;
  for (uint32_t n = 0; n < ir->node_count; n++) {
    const hal_ir_node_t *const node = hal_ir_node(ir, n);
    if (!node->writes[0].whole || node->reads[0].offset) return HAL_UNIMPLEMENTED;
    if (n && node->reads[0].value != hal_ir_node(ir, n - 1)->writes[0].value) return HAL_UNIMPLEMENTED;
    if (n + 1 < ir->node_count && hal_ir_buffer(ir, node->writes[0].buffer)->flags & HAL_IR_OUTPUT)
      return HAL_UNIMPLEMENTED; /* it may be read later */
  }
  chain_t *const chain = malloc(sizeof *chain);
  if (!chain) return hal_error_set(HAL_RESOURCE_EXHAUSTED, "no memory for a chain");
  const hal_ir_node_t *const last = hal_ir_node(ir, ir->node_count - 1);
  *chain = (chain_t){ir->node_count, ir->nodes->reads->buffer, last->writes->buffer};
  *out_program = chain;
  return HAL_OK;
}

static void negate(void *data) {
  work_t *const work = data;
  for (int i = 0; i < COUNT; i++) work->to[i] = work->sign * work->from[i];
  free(work);
}

static hal_status_t execute(void *state, void *program, const hal_ir_run_t *run) {
  (void)state;
  const chain_t *const chain = program;
  work_t *const work = malloc(sizeof *work);
  if (!work) return hal_error_set(HAL_RESOURCE_EXHAUSTED, "no memory to execute a chain");
  *work = (work_t){run->buffers[chain->from], run->buffers[chain->to], chain->length % 2 ? -1.0f : 1.0f};
  return hal_stream_host_call(run->stream, negate, work);
}

static void destroy(void *state, void *program) {
  (void)state;
  free(program);
}

/* result = -operand, on the current stream. */
static hal_status_t queue_neg(const hal_block_t *operand, const hal_block_t *result) {
  const int64_t size = COUNT, stride = 1;
  uint32_t neg;
  HAL_RETURN_IF_ERROR(hal_op_id("neg", &neg));
  hal_tensor_t tensors[2];
  for (int i = 0; i < 2; i++)
    tensors[i] = (hal_tensor_t){.struct_size = sizeof(hal_tensor_t),
                                .data = hal_memory_block_address(i ? result : operand),
                                .sizes = &size,
                                .strides = &stride,
                                .ndim = 1,
                                .dtype = HAL_FLOAT32};
  const hal_value_t argument = {.tag = HAL_VALUE_TENSOR, .u.t = &tensors[0]};
  const hal_tensor_t *const results[1] = {&tensors[1]};
  hal_op_call_t call = {.struct_size = sizeof call,
                        .arg_count = 1,
                        .result_count = 1,
                        .flags = HAL_CALL_DENSE,
                        .args = &argument,
                        .results = results};
  return hal_op_run(0, neg, NULL, &call);
}

/* Three negations. The memory of the first two results is freed: the compiler sees that they are dead. */
static hal_status_t negate_thrice(hal_block_t *const vector[4]) {
  hal_lazy_t *lazy;
  HAL_RETURN_IF_ERROR(hal_lazy_begin(NULL, NULL, &lazy));
  for (int i = 0; i < 3; i++) HAL_RETURN_IF_ERROR(queue_neg(vector[i], vector[i + 1]));
  hal_memory_release(vector[1]);
  hal_memory_release(vector[2]);
  return hal_lazy_end(lazy);
}

int main(int argc, char **argv) {
  const hal_compiler_t compiler = {.struct_size = sizeof compiler,
                                   .name = "negator",
                                   .accepts = accepts,
                                   .compile = compile,
                                   .execute = execute,
                                   .destroy = destroy};
  hal_compiler_info_t info = {.struct_size = sizeof info};
  float host[COUNT];
  hal_block_t *vector[4];
  int wrong = 0;
  for (int i = 0; i < COUNT; i++) host[i] = (float)i;
  hal_status_t status = hal_registry_open(argc > 1 ? argv[1] : "fake");
  if (!status) status = hal_compiler_set(0, &compiler);
  for (int i = 0; i < 4 && !status; i++) status = hal_memory_allocate(0, NULL, sizeof host, &vector[i]);
  if (!status) status = hal_memory_copy(NULL, hal_memory_block_address(vector[0]), 0, host, HAL_HOST, sizeof host);
  if (!status) status = negate_thrice(vector);
  if (!status) status = hal_memory_copy(NULL, host, HAL_HOST, hal_memory_block_address(vector[3]), 0, sizeof host);
  if (!status) status = hal_stream_synchronize(NULL);
  if (!status) status = hal_compiler_info(0, &info);
  if (status) {
    fprintf(stderr, "%s: %s\n", hal_status_name(status), hal_error_message());
    return 1;
  }
  for (int i = 0; i < COUNT; i++) wrong += host[i] != -(float)i;
  printf("%d operators in %d program, %d results are wrong\n", (int)info.operators, (int)info.executed, wrong);
  return wrong != 0;
}
