/* program.c: a compiler of whole programs, for dense float32 tensors on a device whose memory the host can access. A
 * program is a list of steps over buffers; its execution is one host function on the stream. */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <time.h>

#include "whole.h"

enum step_kind { ADD, SUB, NEG, ABS, KINDS };
static const char *const names[KINDS] = {"add.Tensor", "sub.Tensor", "neg", "abs"};

typedef struct place_s {
  uint32_t buffer;
  uint64_t offset;
} place_t;

typedef struct step_s {
  enum step_kind kind;
  int64_t count;
  place_t a, b, result;
} step_t;

typedef struct program_s {
  uint32_t count, buffers;
  step_t steps[];
} program_t;

typedef struct execution_s { /* with the numbers and addresses of one run */
  program_t *program;        /* a copy: it may be destroyed when this is queued */
  float *numbers;
  char **addresses;
} execution_t;

static int32_t accepts(void *state, uint32_t op, const char *name, const hal_op_call_t *call) {
  (void)state, (void)op;
  for (int kind = 0; kind < KINDS; kind++)
    if (strcmp(name, names[kind]) == 0) return (call->flags & HAL_CALL_DENSE) && call->results[0]->dtype == HAL_FLOAT32;
  return 0;
}

static place_t place_of(const hal_ir_use_t *use) { return (place_t){use->buffer, use->offset}; }

static hal_status_t compile(void *state, const hal_ir_t *ir, void **out_program) {
  program_t *const program = calloc(1, sizeof *program + ir->node_count * sizeof(step_t));
  (void)state;
  if (!program) return whole_refuse(HAL_RESOURCE_EXHAUSTED, "whole: no memory for a program");
  program->count = ir->node_count, program->buffers = ir->buffer_count;
  for (uint32_t n = 0; n < ir->node_count; n++) {
    const hal_ir_node_t *const node = hal_ir_node(ir, n);
    const hal_tensor_t *const tensor = node->writes[0].tensor;
    step_t *const step = &program->steps[n];
    while (strcmp(node->name, names[step->kind])) step->kind++;
    step->a = place_of(&node->reads[0]), step->b = place_of(hal_ir_read(node, node->read_count - 1));
    step->result = place_of(&node->writes[0]);
    step->count = 1;
    for (int32_t d = 0; d < tensor->ndim; d++) step->count *= tensor->sizes[d];
  }
  *out_program = program;
  return HAL_OK;
}

static void drop(execution_t *execution) {
  free(execution->program), free(execution->numbers), free(execution->addresses), free(execution);
}

static float *at(const execution_t *execution, place_t place) {
  return (float *)(void *)(execution->addresses[place.buffer] + place.offset);
}

static void compute(void *data) {
  execution_t *const execution = data;
  for (uint32_t n = 0; n < execution->program->count; n++) {
    const step_t *const step = &execution->program->steps[n];
    for (int64_t i = 0; i < step->count; i++) {
      const float a = at(execution, step->a)[i], b = at(execution, step->b)[i];
      const float number = execution->numbers[n];
      float *const result = &at(execution, step->result)[i];
      *result = step->kind == NEG ? -a : step->kind == ABS ? fabsf(a) : a + (step->kind == SUB ? -number : number) * b;
    }
  }
  drop(execution);
}

static float number_of(const hal_op_call_t *call) {
  const hal_value_t *const value = call->arg_count > 2 ? &call->args[2] : NULL;
  return !value ? 1 : value->tag == HAL_VALUE_DOUBLE ? (float)value->u.d : (float)value->u.i;
}

static hal_status_t execute(void *state, void *compiled, const hal_ir_run_t *run) {
  const program_t *const program = compiled;
  const size_t size = sizeof *program + program->count * sizeof(step_t);
  execution_t *const execution = calloc(1, sizeof *execution);
  (void)state;
  if (!execution) return whole_refuse(HAL_RESOURCE_EXHAUSTED, "whole: no memory to execute a program");
  execution->program = malloc(size);
  execution->numbers = calloc(program->count + 1, sizeof(float));
  execution->addresses = calloc(program->buffers + 1, sizeof(char *));
  if (!execution->program || !execution->numbers || !execution->addresses)
    return drop(execution), whole_refuse(HAL_RESOURCE_EXHAUSTED, "whole: no memory to execute a program");
  memcpy(execution->program, program, size);
  memcpy(execution->addresses, run->buffers, program->buffers * sizeof(char *));
  for (uint32_t n = 0; n < program->count; n++) execution->numbers[n] = number_of(run->calls[n]);
  const hal_status_t status = whole_good.stream_host_call(run->plugin_stream, compute, execution);
  if (status) drop(execution);
  return status;
}

static void destroy(void *state, void *program) { (void)state, free(program); }

hal_status_t whole_program_compiler(int32_t device, hal_compiler_t *out_compiler) {
  hal_device_info_t info = {.struct_size = sizeof info};
  const char *const slow = getenv("HAL_WHOLE_COMPILER_MS"); /* delay of the reply, for tests of concurrent queries */
  if (whole_good.device_info(device, &info) || !(info.flags & HAL_DEVICE_HOST_VISIBLE)) return HAL_NOT_FOUND;
  if (slow) nanosleep(&(struct timespec){.tv_nsec = 1000000 * strtol(slow, NULL, 10)}, NULL);
  const size_t size = out_compiler->struct_size;
  const hal_compiler_t own = {.struct_size = size,
                              .name = "whole",
                              .accepts = accepts,
                              .compile = compile,
                              .execute = execute,
                              .destroy = destroy};
  memcpy(out_compiler, &own, size < sizeof own ? size : sizeof own);
  return HAL_OK;
}
