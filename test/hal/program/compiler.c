/* compiler.c: a device's compiler: the graphs that it receives, that its programs run instead of the operators with
 * equal results, and its refusals, failures and replacement. The compiler of these tests computes float32 on the
 * host. */
#include <hal/compiler.h>
#include <hal/lazy.h>
#include <hal/log.h>

#include "support.h"

enum { COUNT = 1000, POOL = 6, MOST_NODES = 64 };

static void open_device(void) {
  setenv("HAL_PLUGIN_PATH", PLUGIN_DIR, 1);
  setenv("HAL_ALLOW_UNSAFE_PLUGINS", "1", 1);
  assert_ok(hal_registry_open("fake"));
}

TestSuite(compiler, .init = open_device, .timeout = 120);

/* ---- vectors ---- */

typedef struct vector_s {
  hal_tensor_t tensor;
  int64_t size, stride;
  hal_block_t *block; /* NULL: a view */
} vector_t;

static vector_t vector(float first, float step) {
  static float host[COUNT];
  vector_t v = {.size = COUNT, .stride = 1};
  assert_ok(hal_memory_allocate(0, NULL, sizeof host, &v.block));
  for (int i = 0; i < COUNT; i++) host[i] = first + step * (float)i;
  v.tensor = (hal_tensor_t){
      .struct_size = sizeof v.tensor, .data = hal_memory_block_address(v.block), .ndim = 1, .dtype = HAL_FLOAT32};
  assert_ok(hal_memory_copy(NULL, v.tensor.data, 0, host, HAL_HOST, sizeof host));
  assert_ok(hal_stream_synchronize(NULL));
  return v;
}

static vector_t view(const vector_t *of, int64_t first, int64_t size, int64_t stride) {
  vector_t v = {.tensor = of->tensor, .size = size, .stride = stride * of->stride};
  v.tensor.data = (float *)of->tensor.data + first * of->stride;
  return v;
}

static const float *read_vector(const vector_t *v) {
  static float host[COUNT];
  assert_ok(hal_memory_copy(NULL, host, HAL_HOST, v->tensor.data, 0, (size_t)v->size * sizeof *host));
  assert_ok(hal_stream_synchronize(NULL));
  return host;
}

/* result = name(a, b), or of a alone; add.Tensor has a number. */
static hal_status_t call(const char *name, vector_t a, const vector_t *b, double number, vector_t result) {
  uint32_t op;
  vector_t other = b ? *b : a;
  assert_ok(hal_op_id(name, &op));
  vector_t *const all[] = {&a, &other, &result};
  for (int i = 0; i < 3; i++) {
    all[i]->tensor.sizes = &all[i]->size;
    all[i]->tensor.strides = &all[i]->stride;
  }
  const hal_value_t args[] = {{.tag = HAL_VALUE_TENSOR, .u.t = &a.tensor},
                              {.tag = HAL_VALUE_TENSOR, .u.t = &other.tensor},
                              {.tag = HAL_VALUE_DOUBLE, .u.d = number}};
  const hal_tensor_t *const results[] = {&result.tensor};
  const uint32_t count = !b ? 1 : strcmp(name, "add.Tensor") == 0 ? 3 : 2;
  hal_op_call_t run = {
      .struct_size = sizeof run, .arg_count = count, .result_count = 1, .args = args, .results = results};
  return hal_op_run(0, op, NULL, &run);
}

static void add(vector_t a, vector_t b, double number, vector_t result) {
  assert_ok(call("add.Tensor", a, &b, number, result));
}
static void mul(vector_t a, vector_t b, vector_t result) { assert_ok(call("mul.Tensor", a, &b, 0, result)); }
static void neg(vector_t a, vector_t result) { assert_ok(call("neg", a, NULL, 0, result)); }

static uint32_t next(uint64_t *seed) {
  *seed = *seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
  return (uint32_t)(*seed >> 33);
}

static char logged[4096];
static void keep_logged(int32_t level, const char *message, void *user_data) {
  (void)level, (void)user_data;
  snprintf(logged, sizeof logged, "%s", message);
}

/* ---- the compiler ---- */

/* The memory of a tensor of a node. */
typedef struct place_s {
  uint32_t buffer;
  uint64_t offset;
  int64_t stride;
} place_t;

typedef struct node_s {
  char name[16];
  int64_t size;
  place_t a, b, result;
} node_t;

typedef struct program_s {
  uint32_t count;
  node_t nodes[MOST_NODES];
} program_t;

/* One execution in progress. */
typedef struct execution_s {
  const program_t *program;
  char *buffers[MOST_NODES];
  double numbers[MOST_NODES];
} execution_t;

static struct {
  int is_silent;        /* failures have no message */
  int is_endless;       /* texts fill their buffer, without a terminating 0 */
  void *source;         /* device memory that is read */
  char refused[16];     /* an operator that is not accepted */
  hal_status_t compile; /* returned by compile */
  hal_status_t execute;
  int programs, destroyed;
  char graph[2048]; /* the last graph as text */
} state;

static int32_t accepts(void *self, uint32_t op, const char *name, const hal_op_call_t *run) {
  (void)self, (void)op, (void)run;
  return strcmp(name, state.refused) != 0 && (strcmp(name, "add.Tensor") == 0 || strcmp(name, "mul.Tensor") == 0 ||
                                              strcmp(name, "neg") == 0 || strcmp(name, "_amp_unscale_") == 0);
}

static void note_use(const hal_ir_use_t *use, const char *between) {
  char *const end = state.graph + strlen(state.graph);
  snprintf(end, sizeof state.graph - (size_t)(end - state.graph), "%s%%%u@%u", between, use->value, use->buffer);
}

static void note_graph(const hal_ir_t *ir) {
  state.graph[0] = '\0';
  for (uint32_t n = 0; n < ir->node_count; n++) {
    const hal_ir_node_t *const node = hal_ir_node(ir, n);
    for (uint32_t k = 0; k < node->write_count; k++) {
      note_use(&node->writes[k], "");
      if (!node->writes[k].whole) {
        char *const end = state.graph + strlen(state.graph);
        snprintf(end, sizeof state.graph - (size_t)(end - state.graph), "(of %%%u)", node->writes[k].before);
      }
    }
    strcat(strcat(strcat(state.graph, "="), node->name), "(");
    for (uint32_t k = 0; k < node->read_count; k++) note_use(&node->reads[k], k ? "," : "");
    strcat(state.graph, ") ");
  }
  for (uint32_t b = 0; b < ir->buffer_count; b++) {
    strcat(strcat(state.graph, ir->buffers[b].flags & HAL_IR_INPUT ? "i" : "-"),
           ir->buffers[b].flags & HAL_IR_OUTPUT ? "o" : "-");
    char *const end = state.graph + strlen(state.graph);
    if (ir->buffers[b].reuses)
      snprintf(end, sizeof state.graph - (size_t)(end - state.graph), "<%u", ir->buffers[b].reuses - 1);
  }
}

static place_t place_of(const hal_ir_use_t *use) {
  return (place_t){.buffer = use->buffer, .offset = use->offset, .stride = use->tensor->strides[0]};
}

static hal_status_t compile(void *self, const hal_ir_t *ir, void **out_program) {
  (void)self;
  note_graph(ir);
  if (state.compile && state.is_silent) return state.compile;
  if (state.compile) return hal_error_set(state.compile, "the compiler has no time");
  program_t *const program = calloc(1, sizeof *program);
  program->count = ir->node_count;
  for (uint32_t n = 0; n < ir->node_count; n++) {
    const hal_ir_node_t *const node = hal_ir_node(ir, n);
    snprintf(program->nodes[n].name, sizeof program->nodes[n].name, "%s", node->name);
    program->nodes[n].size = node->writes[0].tensor->sizes[0];
    program->nodes[n].a = place_of(&node->reads[0]);
    program->nodes[n].b = node->read_count > 1 ? place_of(&node->reads[1]) : program->nodes[n].a;
    program->nodes[n].result = place_of(&node->writes[0]);
  }
  state.programs++;
  *out_program = program;
  return HAL_OK;
}

static float *element(const execution_t *execution, place_t place, int64_t i) {
  return (float *)(void *)(execution->buffers[place.buffer] + place.offset) + i * place.stride;
}

static void compute(void *data) {
  execution_t *const execution = data;
  for (uint32_t n = 0; n < execution->program->count; n++) {
    const node_t *const node = &execution->program->nodes[n];
    for (int64_t i = 0; i < node->size; i++) {
      const float a = *element(execution, node->a, i), b = *element(execution, node->b, i);
      float *const result = element(execution, node->result, i);
      *result = *node->name == 'n' ? -a : *node->name == 'm' ? a * b : a + (float)execution->numbers[n] * b;
    }
  }
  free(execution);
}

static hal_status_t execute(void *self, void *compiled, const hal_ir_run_t *run) {
  (void)self;
  const program_t *const program = compiled;
  if (state.execute && state.is_silent) return state.execute;
  if (state.execute) return hal_error_set(state.execute, "the compiler is at lunch");
  execution_t *const execution = calloc(1, sizeof *execution);
  execution->program = program;
  for (uint32_t n = 0; n < program->count; n++) {
    const place_t used[] = {program->nodes[n].a, program->nodes[n].b, program->nodes[n].result};
    for (int k = 0; k < 3; k++) execution->buffers[used[k].buffer] = run->buffers[used[k].buffer];
    if (run->calls[n]->arg_count == 3) execution->numbers[n] = run->calls[n]->args[2].u.d;
  }
  return hal_stream_host_call(run->stream, compute, execution);
}

static void text(void *self, const void *program, char *to, size_t room) {
  (void)self;
  snprintf(to, room, "%u steps", ((const program_t *)program)->count);
  if (state.is_endless) memset(to, 'x', room);
}

static void destroy(void *self, void *program) {
  (void)self;
  free(program);
  state.destroyed++;
}

static uint64_t again(void *self) {
  (void)self;
  return state.destroyed + 7u;
}

static hal_compiler_t compiler_of(uint32_t flags) {
  return (hal_compiler_t){.struct_size = sizeof(hal_compiler_t),
                          .flags = flags,
                          .name = "abacus",
                          .accepts = accepts,
                          .compile = compile,
                          .execute = execute,
                          .text = text,
                          .destroy = destroy,
                          .again = again};
}

static void set_compiler(uint32_t flags) {
  const hal_compiler_t compiler = compiler_of(flags);
  memset(&state, 0, sizeof state);
  assert_ok(hal_compiler_set(0, &compiler));
}

static hal_compiler_info_t info_now(void) {
  hal_compiler_info_t info = {.struct_size = sizeof info};
  assert_ok(hal_compiler_info(0, &info));
  return info;
}

static hal_lazy_t *begin(void) {
  hal_lazy_t *lazy;
  assert_ok(hal_lazy_begin(NULL, NULL, &lazy));
  return lazy;
}

/* ---- graphs ---- */

Test(compiler, a_run_is_a_graph_of_values_and_its_program_computes_the_results) {
  const vector_t a = vector(1, 1), b = vector(2, 0), r = vector(0, 0), s = vector(0, 0);
  set_compiler(0);
  hal_lazy_t *const lazy = begin();
  add(a, b, 3, r);
  mul(r, a, s);
  neg(s, s);
  cr_expect_eq(info_now().compiled, 0, "nothing is compiled before it is queued");
  assert_ok(hal_lazy_flush(lazy));
  cr_expect_str_eq(state.graph, "%2@2=add.Tensor(%0@0,%1@1) %3@3=mul.Tensor(%2@2,%0@0) %4@3=neg(%3@3) ioio-o-o", "%s",
                   state.graph);
  for (int i = 0; i < 2; i++) cr_expect_eq(read_vector(&s)[9], -(10 + 6) * 10.0f);
  const hal_compiler_info_t info = info_now();
  cr_expect(info.compiled == 1 && info.refused == 0 && info.executed == 1 && info.operators == 3 && info.again == 7);
  assert_ok(hal_lazy_end(lazy));
}

Test(compiler, what_is_given_back_inside_is_no_output_and_views_are_parts_of_buffers) {
  const vector_t a = vector(1, 1), r = vector(0, 0);
  vector_t t = vector(0, 0);
  set_compiler(0);
  hal_lazy_t *const lazy = begin();
  neg(a, t);
  add(t, a, 2, r);
  hal_memory_release(t.block);
  neg(view(&r, 0, 10, 2), view(&r, 100, 10, 1));
  assert_ok(hal_lazy_flush(lazy));
  cr_expect_str_eq(state.graph, "%1@1=neg(%0@0) %2@2=add.Tensor(%1@1,%0@0) %3@2(of %2)=neg(%2@2) io---o", "%s",
                   state.graph);
  const float *const host = read_vector(&r);
  cr_expect(host[5] == 6 && host[100] == -1 && host[101] == -3 && host[109] == -19 && host[110] == 111);
  assert_ok(hal_lazy_end(lazy));
}

/* A vector in a new block, with undefined contents. */
static vector_t empty(int64_t size) {
  vector_t v = {.size = size, .stride = 1};
  assert_ok(hal_memory_allocate(0, NULL, (size_t)size * sizeof(float), &v.block));
  v.tensor = (hal_tensor_t){
      .struct_size = sizeof v.tensor, .data = hal_memory_block_address(v.block), .ndim = 1, .dtype = HAL_FLOAT32};
  return v;
}

Test(compiler, memory_that_is_released_and_allocated_again_is_another_buffer) {
  const vector_t a = vector(1, 1), r = vector(0, 0), s = vector(0, 0);
  set_compiler(0);
  hal_lazy_t *const lazy = begin();
  const vector_t first = empty(COUNT);
  neg(a, first);
  add(first, a, 3, r);
  hal_memory_release(first.block);
  const vector_t second = empty(COUNT - 10); /* of the same rounded size */
  cr_assert_eq(first.tensor.data, second.tensor.data);
  neg(view(&r, 0, COUNT - 10, 1), second);
  mul(second, second, view(&s, 0, COUNT - 10, 1));
  assert_ok(hal_lazy_flush(lazy));
  cr_expect_str_eq(state.graph,
                   "%1@1=neg(%0@0) %2@2=add.Tensor(%1@1,%0@0) %3@3=neg(%2@2) %4@4=mul.Tensor(%3@3,%3@3) io---o-o<1-o",
                   "%s", state.graph);
  cr_expect_eq(read_vector(&s)[9], 400);
  assert_ok(hal_lazy_end(lazy));
}

Test(compiler, a_view_that_outlives_another_release_keeps_its_buffer) {
  const vector_t a = vector(1, 1);
  set_compiler(0);
  hal_lazy_t *const lazy = begin();
  vector_t t = empty(COUNT), other = empty(COUNT);
  neg(a, t);
  neg(a, other);
  hal_memory_release(other.block);
  const vector_t half = view(&t, 10, 500, 1);
  neg(half, half);
  assert_ok(hal_lazy_flush(lazy));
  cr_expect_str_eq(state.graph, "%1@1=neg(%0@0) %2@2=neg(%0@0) %3@1(of %1)=neg(%1@1) io-o--", "%s", state.graph);
  assert_ok(hal_lazy_end(lazy));
}

/* Operators on temporaries of several sizes, some of which are released. */
static void run_temporaries(const vector_t *a, const vector_t *result, uint64_t seed) {
  enum { LIVE = 5, OPERATORS = 40 };
  static const int64_t sizes[] = {1, 100, 130, 300, COUNT};
  vector_t live[LIVE] = {{.block = NULL}};
  for (int i = 0; i < OPERATORS; i++) {
    const int at = (int)(next(&seed) % LIVE), from = (int)(next(&seed) % LIVE);
    vector_t t = empty(sizes[next(&seed) % 5]);
    const vector_t whole = live[from].block && live[from].size >= t.size ? live[from] : *a;
    const vector_t operand = view(&whole, 0, t.size, 1);
    if (next(&seed) % 2)
      neg(operand, t);
    else
      add(operand, view(a, 0, t.size, 1), 0.5, t);
    hal_memory_release(live[at].block);
    live[at] = t;
  }
  for (int i = 0; i < LIVE; i++) {
    if (live[i].block) add(view(result, 0, live[i].size, 1), live[i], 1, view(result, 0, live[i].size, 1));
    hal_memory_release(live[i].block);
  }
}

Test(compiler, a_repeated_step_is_the_same_program_wherever_its_memory_lies) {
  enum { STEPS = 6, BALLAST = 16 };
  hal_block_t *ballast[BALLAST] = {NULL};
  const vector_t a = vector(1, 1);
  set_compiler(0);
  for (uint64_t seed = 0; seed < 20; seed++) {
    static float expected[COUNT];
    uint64_t places = seed + 99;
    const vector_t eager = vector(0, 0);
    run_temporaries(&a, &eager, seed);
    memcpy(expected, read_vector(&eager), sizeof expected);
    hal_lazy_t *const lazy = begin();
    const uint64_t before = info_now().compiled;
    for (int step = 0; step < STEPS; step++) {
      for (int i = 0; i < BALLAST; i++) {
        if (next(&places) % 2) continue;
        hal_memory_release(ballast[i]);
        assert_ok(hal_memory_allocate(0, NULL, 1 + next(&places) % 5000, &ballast[i]));
      }
      const vector_t r = vector(0, 0);
      run_temporaries(&a, &r, seed);
      assert_ok(hal_lazy_flush(lazy));
      cr_assert_arr_eq(read_vector(&r), expected, sizeof expected, "seed %d, step %d", (int)seed, step);
      hal_memory_release(r.block);
    }
    cr_expect_eq(info_now().compiled, before + 1, "seed %d: %d programs", (int)seed,
                 (int)(info_now().compiled - before));
    assert_ok(hal_lazy_end(lazy));
    hal_memory_release(eager.block);
  }
  for (int i = 0; i < BALLAST; i++) hal_memory_release(ballast[i]);
}

/* r = r * scale[0], by an operator that updates its result and is not element-wise. */
static void unscale(vector_t scale, vector_t found, vector_t r) {
  vector_t *const all[] = {&scale, &found, &r};
  uint32_t op;
  scale.size = found.size = 1;
  for (int i = 0; i < 3; i++) {
    all[i]->tensor.sizes = &all[i]->size;
    all[i]->tensor.strides = &all[i]->stride;
  }
  const hal_value_t args[] = {{.tag = HAL_VALUE_TENSOR, .u.t = &scale.tensor}};
  const hal_tensor_t *const results[] = {&r.tensor, &found.tensor};
  hal_op_call_t run = {.struct_size = sizeof run, .arg_count = 1, .result_count = 2, .args = args, .results = results};
  assert_ok(hal_op_id("_amp_unscale_", &op));
  assert_ok(hal_op_run(0, op, NULL, &run));
}

Test(compiler, an_operator_that_updates_its_result_makes_it_of_the_value_before) {
  const vector_t scale = vector(0.5f, 0), found = vector(0, 0), r = vector(4, 0);
  set_compiler(0);
  state.compile = HAL_UNIMPLEMENTED;
  hal_lazy_t *const lazy = begin();
  neg(r, r);
  unscale(scale, found, r);
  assert_ok(hal_lazy_flush(lazy));
  cr_expect_str_eq(state.graph, "%1@0=neg(%0@0) %3@0(of %1)%5@2(of %4)=_amp_unscale_(%2@1) ioioio", "%s", state.graph);
  cr_expect_eq(read_vector(&r)[9], -2);
  assert_ok(hal_lazy_end(lazy));
}

Test(compiler, work_is_passed_whole_to_a_compiler_that_wants_it) {
  const vector_t scale = vector(0.5f, 0), found = vector(0, 0), r = vector(4, 0);
  for (int whole = 0; whole < 2; whole++) {
    set_compiler(whole ? HAL_COMPILER_WHOLE : 0);
    state.compile = HAL_UNIMPLEMENTED;
    hal_lazy_t *const lazy = begin();
    for (int i = 0; i < 20; i++) neg(r, r);
    unscale(scale, found, r);
    cr_expect_eq(info_now().compiled, whole ? 0 : 1, "a piece of 16 operators is queued early");
    assert_ok(hal_lazy_flush(lazy));
    cr_expect_eq(info_now().compiled, whole ? 1 : 2);
    assert_ok(hal_lazy_end(lazy));
  }
}

Test(compiler, numbers_and_addresses_are_those_of_the_run_unless_they_are_fixed) {
  for (uint32_t fixed = 0; fixed < 2; fixed++) {
    set_compiler(fixed ? HAL_COMPILER_FIXED_NUMBERS : 0);
    hal_lazy_t *const lazy = begin();
    for (int step = 0; step < 4; step++) {
      const vector_t a = vector((float)step, 1), r = vector(0, 0);
      add(a, a, step, r);
      assert_ok(hal_lazy_flush(lazy));
      cr_expect_eq(read_vector(&r)[10], (10.0f + (float)step) * (1.0f + (float)step));
    }
    cr_expect_eq(info_now().compiled, fixed ? 4 : 1);
    cr_expect_eq(info_now().executed, 4);
    assert_ok(hal_lazy_end(lazy));
  }
}

Test(compiler, other_sizes_strides_and_aliases_are_other_programs) {
  const vector_t a = vector(1, 1), r = vector(0, 0);
  set_compiler(0);
  hal_lazy_t *const lazy = begin();
  const vector_t half = view(&a, 0, 500, 1), every = view(&a, 0, 500, 2), to = view(&r, 0, 500, 1);
  const vector_t from[] = {a, half, every, half, half};
  const vector_t result[] = {r, to, to, half, view(&a, 500, 500, 1)};
  for (int round = 0; round < 2; round++) {
    for (int i = 0; i < 5; i++) {
      neg(from[i], result[i]);
      assert_ok(hal_lazy_flush(lazy));
    }
  }
  cr_expect_eq(info_now().compiled, 5);
  cr_expect_eq(info_now().executed, 10);
  assert_ok(hal_lazy_end(lazy));
}

/* ---- work that is not compiled ---- */

Test(compiler, operators_that_are_not_accepted_part_the_runs_and_keep_their_place) {
  const vector_t a = vector(1, 1), r = vector(0, 0);
  set_compiler(0);
  strcpy(state.refused, "mul.Tensor");
  hal_lazy_t *const lazy = begin();
  add(a, a, 1, r);
  mul(r, r, r);
  neg(r, r);
  assert_ok(hal_lazy_flush(lazy));
  cr_expect_eq(read_vector(&r)[2], -36);
  cr_expect(info_now().compiled == 2 && info_now().executed == 2 && info_now().operators == 2);
  assert_ok(hal_lazy_end(lazy));
}

Test(compiler, a_graph_that_is_refused_or_fails_runs_operator_by_operator) {
  const hal_status_t answers[] = {HAL_UNIMPLEMENTED, HAL_INTERNAL};
  for (int i = 0; i < 2; i++) {
    const vector_t a = vector(1, 1), r = vector(0, 0);
    set_compiler(0);
    state.compile = answers[i];
    hal_lazy_t *const lazy = begin();
    for (int step = 0; step < 3; step++) {
      add(a, a, 1, r);
      neg(r, r);
      assert_ok(hal_lazy_flush(lazy));
      cr_expect_eq(read_vector(&r)[2], -6);
    }
    cr_expect(info_now().compiled == 1 && info_now().refused == 1 && info_now().executed == 0, "it is called once");
    assert_ok(hal_lazy_end(lazy));
  }
}

Test(compiler, a_failed_program_is_reported_with_its_operators_and_later_work_runs) {
  const vector_t a = vector(1, 1), r = vector(0, 0);
  set_compiler(0);
  hal_lazy_t *const lazy = begin();
  add(a, a, 1, r);
  neg(r, r);
  state.execute = HAL_ABORTED;
  assert_fails(
      hal_lazy_flush(lazy), HAL_ABORTED,
      "the compiler 'abacus' could not execute a program of 2 operators (add.Tensor to neg): the compiler is at lunch");
  state.execute = HAL_OK;
  add(a, a, 1, r);
  neg(r, r);
  assert_ok(hal_lazy_flush(lazy));
  cr_expect_eq(read_vector(&r)[2], -6);
  assert_ok(hal_lazy_end(lazy));
}

Test(compiler, commands_after_a_failed_program_are_counted_without_the_program) {
  const vector_t a = vector(1, 1), r = vector(0, 0), inside = vector(0, 0);
  set_compiler(0);
  hal_lazy_t *const lazy = begin();
  state.execute = HAL_ABORTED;
  add(a, a, 1, inside);
  neg(inside, r);
  hal_memory_release(inside.block); /* recorded, but no command */
  assert_fails(hal_lazy_flush(lazy), HAL_ABORTED, "failed to launch; 0 later commands were discarded");
  add(a, a, 1, r);
  neg(r, r);
  assert_ok(hal_memory_fill(NULL, 0, r.tensor.data, "", 1, 64));
  neg(r, r);
  assert_fails(hal_lazy_flush(lazy), HAL_ABORTED, "failed to launch; 2 later commands were discarded");
  assert_ok(hal_lazy_end(lazy));
}

Test(compiler, a_program_failure_without_a_message_is_reported_as_such) {
  const vector_t a = vector(1, 1), r = vector(0, 0);
  hal_stream_t *stream;
  set_compiler(0);
  state.is_silent = 1;
  hal_lazy_t *const lazy = begin();
  state.execute = HAL_ABORTED;
  cr_assert_eq(hal_stream_from_id(0, 9999, &stream), HAL_NOT_FOUND, "a message of another failure");
  neg(a, r);
  assert_fails(hal_lazy_flush(lazy), HAL_ABORTED, "(neg to neg): failed with ABORTED (10) without a message");
  state.compile = HAL_INTERNAL;
  cr_assert_eq(hal_stream_from_id(0, 9999, &stream), HAL_NOT_FOUND);
  hal_log_set_sink(keep_logged, NULL);
  add(a, a, 1, r);
  assert_ok(hal_lazy_flush(lazy));
  hal_log_set_sink(NULL, NULL);
  cr_expect_not_null(strstr(logged, "from now on: failed with INTERNAL (13) without a message"), "%s", logged);
  assert_ok(hal_lazy_end(lazy));
}

static hal_status_t flush_by_copy(void) {
  float host[COUNT];
  return hal_memory_copy(NULL, host, HAL_HOST, state.source, 0, sizeof host);
}

static hal_status_t flush_by_query(void) { return hal_stream_query(NULL); }

/* HAL_UNIMPLEMENTED and HAL_NOT_READY are results for the caller of a function, not failures of deferred work. */
Test(compiler, a_failure_code_is_not_returned_as_the_result_of_the_call_that_flushes) {
  const hal_status_t codes[] = {HAL_UNIMPLEMENTED, HAL_NOT_READY, HAL_INTERNAL};
  hal_status_t (*const ways[])(void) = {flush_by_copy, flush_by_query};
  const vector_t a = vector(1, 1), r = vector(0, 0);
  for (int code = 0; code < 3; code++)
    for (int way = 0; way < 2; way++) {
      set_compiler(0);
      state.execute = codes[code];
      state.source = r.tensor.data;
      hal_lazy_t *const lazy = begin();
      neg(a, r);
      assert_fails(ways[way](), HAL_INTERNAL, "could not execute");
      assert_ok(hal_lazy_end(lazy));
    }
}

/* ---- lifetime ---- */

static char last_told[1024];
static void note_told(void *self, uint64_t origin, const char *what) {
  (void)self, (void)origin;
  snprintf(last_told, sizeof last_told, "%s", what);
}

Test(compiler, a_compiled_program_is_reported_with_the_compilers_text) {
  const hal_lazy_desc_t desc = {.struct_size = sizeof desc, .compiled = note_told};
  const vector_t a = vector(1, 1), r = vector(0, 0);
  hal_lazy_t *lazy;
  set_compiler(0);
  assert_ok(hal_lazy_begin(NULL, &desc, &lazy));
  neg(a, r);
  add(a, r, 1, r);
  assert_ok(hal_lazy_end(lazy));
  cr_expect_str_eq(last_told, "a program of 2 operators for the compiler 'abacus', neg to add.Tensor: 2 steps");
}

Test(compiler, a_text_without_an_end_is_cut) {
  const hal_lazy_desc_t desc = {.struct_size = sizeof desc, .compiled = note_told};
  const vector_t a = vector(1, 1), r = vector(0, 0);
  hal_lazy_t *lazy;
  set_compiler(0);
  state.is_endless = 1;
  assert_ok(hal_lazy_begin(NULL, &desc, &lazy));
  neg(a, r);
  assert_ok(hal_lazy_end(lazy));
  cr_expect_eq(strlen(last_told), sizeof last_told - 1);
}

Test(compiler, it_is_changed_between_recordings_and_its_programs_are_destroyed) {
  const vector_t a = vector(1, 1), r = vector(0, 0);
  const hal_compiler_t compiler = compiler_of(0);
  hal_compiler_t broken = compiler;
  set_compiler(0);
  hal_lazy_t *const lazy = begin();
  neg(a, r);
  assert_fails(hal_compiler_set(0, NULL), HAL_FAILED_PRECONDITION, "a stream is lazy");
  assert_fails(hal_compiler_set(0, &compiler), HAL_FAILED_PRECONDITION, "abacus");
  assert_ok(hal_lazy_end(lazy));
  cr_expect(state.programs == 1 && state.destroyed == 0);
  assert_ok(hal_compiler_set(0, NULL));
  cr_expect_eq(state.destroyed, 1);
  cr_expect_eq(info_now().executed, 0);
  broken.execute = NULL;
  assert_fails(hal_compiler_set(0, &broken), HAL_INVALID_ARGUMENT, "'abacus' lacks one");
  broken = compiler;
  broken.flags |= 1u << 30; /* of a later minor version */
  assert_fails(hal_compiler_set(0, &broken), HAL_UNIMPLEMENTED, "'abacus' has unsupported flags 0x40000000");
  cr_expect_eq(hal_compiler_set(1000, &compiler), HAL_OUT_OF_RANGE);
  cr_expect_eq(hal_compiler_info(1000, &(hal_compiler_info_t){.struct_size = sizeof(hal_compiler_info_t)}),
               HAL_OUT_OF_RANGE);
  hal_lazy_t *const again = begin();
  neg(a, r);
  assert_ok(hal_lazy_end(again));
  cr_expect_eq(state.programs, 1, "without a compiler no program is compiled");
  cr_expect_eq(read_vector(&r)[2], -3);
}

Test(compiler, none_is_set_while_a_stream_is_lazy_that_began_without_one) {
  const hal_lazy_desc_t plain = {.struct_size = sizeof plain, .flags = HAL_LAZY_PLAIN};
  const hal_compiler_t compiler = compiler_of(0);
  for (int i = 0; i < 2; i++) {
    hal_lazy_t *lazy;
    assert_ok(hal_compiler_set(0, NULL));
    assert_ok(hal_lazy_begin(NULL, i ? &plain : NULL, &lazy));
    assert_fails(hal_compiler_set(0, &compiler), HAL_FAILED_PRECONDITION, "a stream is lazy, without a compiler");
    assert_fails(hal_compiler_set(0, NULL), HAL_FAILED_PRECONDITION, "a stream is lazy");
    assert_ok(hal_lazy_end(lazy));
    assert_ok(hal_compiler_set(0, &compiler));
  }
}

Test(compiler, lazy_work_that_outlives_the_devices_ends_without_its_programs) {
  const vector_t a = vector(1, 1), r = vector(0, 0);
  set_compiler(0);
  hal_lazy_t *const lazy = begin();
  neg(a, r);
  assert_ok(hal_lazy_flush(lazy));
  add(a, a, 1, r);
  hal_registry_close();
  cr_expect(state.programs == 2 && state.destroyed == 2); /* closing has also launched the deferred work */
  assert_ok(hal_lazy_end(lazy)); /* under the address sanitizer: must not read destroyed objects */
}

/* ---- equality ---- */

/* A program of random operators over vectors and their views, also in place. */
static void random_program(uint64_t seed, const vector_t *pool) {
  const int steps = 3 + (int)(next(&seed) % 20);
  for (int i = 0; i < steps; i++) {
    vector_t used[3];
    const int64_t size = next(&seed) % 3 ? COUNT : 100 + next(&seed) % 200;
    for (int k = 0; k < 3; k++) {
      const vector_t *const of = &pool[next(&seed) % POOL];
      used[k] = size == COUNT ? *of : view(of, next(&seed) % 300, size, 1 + (k < 2 ? next(&seed) % 2 : 0));
    }
    const uint32_t which = next(&seed) % 4;
    if (which == 0) neg(used[0], used[0]);
    if (which == 1) add(used[0], used[0], 0.5 * (next(&seed) % 3), used[0]);
    if (which == 2) mul(pool[0], pool[1], pool[2 + next(&seed) % (POOL - 2)]);
    if (which == 3 && size == COUNT) add(used[0], used[1], -0.25, used[2]);
  }
}

Test(compiler, random_programs_produce_the_bits_of_operators_that_run_one_by_one, .timeout = 3600) {
  static float expected[POOL][COUNT];
  set_compiler(0);
  const uint64_t programs = random_programs(300);
  for (uint64_t seed = 1; seed <= programs; seed++) {
    for (int lazily = 0; lazily < 2; lazily++) {
      vector_t pool[POOL];
      for (int p = 0; p < POOL; p++) pool[p] = vector((float)p - 2, 0.001f * (float)(p + 1));
      strcpy(state.refused, seed % 3 == 0 ? "mul.Tensor" : seed % 3 == 1 ? "neg" : "");
      hal_lazy_t *const lazy = lazily ? begin() : NULL;
      random_program(seed, pool);
      assert_ok(hal_lazy_end(lazy));
      for (int p = 0; p < POOL; p++) {
        const float *const host = read_vector(&pool[p]);
        if (!lazily) memcpy(expected[p], host, sizeof expected[p]);
        cr_assert_eq(memcmp(expected[p], host, sizeof expected[p]), 0, "program %d, vector %d", (int)seed, p);
        hal_memory_release(pool[p].block);
      }
    }
  }
  cr_expect(info_now().executed >= programs, "%d", (int)info_now().executed);
}
