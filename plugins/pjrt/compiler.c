/* compiler.c: the compiler of whole programs: graphs of operators become StableHLO text, which the platform compiles.
 * Programs run in the thread of their stream, except for very short ones. */
#define _POSIX_C_SOURCE 200809L /* strerror_r */
#include <errno.h>
#include <hal/plugin_setting.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "emit.h"
#include "opaque.h"

enum {
  MAX_OPS = 4096,
  SHORT_NS = 10000, /* a run that takes less is faster in the calling thread than waking the stream's thread */
  FEW_BYTES = 4096  /* of a run in the calling thread */
};

/* A device's compiler. */
typedef struct compiler_s {
  int32_t device;
  atomic_ullong again; /* second compilations that succeeded */
  /* The operators by number, filled by the first look-up: NULL, &refused, or the operator. */
  _Atomic(const emit_operator_t *) operators[MAX_OPS];
} compiler_t;

typedef struct program_s {
  emit_program_t emitted;
  pjrt_loaded_t *loaded;
  pjrt_constants_t constants;
  atomic_int is_short;  /* the last run took less than SHORT_NS */
  pjrt_level_t level;   /* of `loaded` */
  uint32_t runs;        /* counted until the second compilation is used */
  pjrt_again_t *again;  /* the second compilation; NULL: it has not begun */
  int32_t site;         /* of `loaded` */
  atomic_ullong *count; /* of second compilations */
  int number;           /* in this process */
  char name[96];        /* for messages */
} program_t;

static compiler_t compilers[PJRT_MAX_DEVICES];
static const emit_operator_t refused;

/* Programs end at such an operator, which runs on its kernel. */
static void log_refused(const char *name) {
  char line[160];
  snprintf(line, sizeof line, "pjrt: the operator '%.80s' is not compiled: it runs on the portable kernel", name);
  hal_host->log(HAL_LOG_INFO, line);
}

static int32_t accepts(void *state, uint32_t op, const char *name, const hal_op_call_t *call) {
  compiler_t *const compiler = state;
  if (op >= MAX_OPS) return 0;
  const emit_operator_t *found = atomic_load_explicit(&compiler->operators[op], memory_order_relaxed);
  if (!found) {
    found = emit_find(name);
    if (!found) found = &refused;
    if (found == &refused) log_refused(name);
    atomic_store_explicit(&compiler->operators[op], found, memory_order_relaxed);
  }
  return found != &refused && emit_takes(found, call);
}

/* ---- compiling --------------------------------------------------------------------------------------------------- */

static void warn_of_dump(const char *folder, int code) {
  static atomic_int warned;
  char reason[128] = "unknown error", line[512];
  if (atomic_exchange(&warned, 1)) return;
  strerror_r(code, reason, sizeof reason);
  snprintf(line, sizeof line,
           "pjrt: programs cannot be written to HAL_PJRT_DUMP='%.200s': %s; set it to a folder that exists", folder,
           reason);
  hal_host->log(HAL_LOG_WARNING, line);
}

/* Writes the text of a program to the folder that HAL_PJRT_DUMP names, unless it is there already. The setting is read
 * at each run, so that a process can choose what to write (torch_backend.xla.stablehlo). */
static void dump(const program_t *program) {
  char path[1024];
  const char *const folder = hal_setting("HAL_PJRT_DUMP");
  if (!folder || !*folder) return;
  snprintf(path, sizeof path, "%.900s/program-%ld-%d.mlir", folder, (long)getpid(), program->number);
  FILE *const file = fopen(path, "wx");
  if (!file) {
    if (errno != EEXIST) warn_of_dump(folder, errno);
    return;
  }
  fwrite(program->emitted.text, 1, program->emitted.size, file);
  fclose(file);
}

static void log_compiled(const program_t *program, int stored, int64_t ns) {
  char line[256];
  snprintf(line, sizeof line, "pjrt: %s a %s in %.1f ms%s", stored ? "loaded" : "compiled", program->name,
           (double)ns * 1e-6, program->level == PJRT_LOW ? ", at low optimization" : "");
  hal_host->log(HAL_LOG_INFO, line);
}

/* Declines further programs: a loop whose shapes vary would compile in each step. */
static hal_status_t decline(void) {
  static atomic_int warned;
  char line[320];
  snprintf(line, sizeof line,
           "pjrt: %d programs were compiled, the limit HAL_PJRT_PROGRAMS; other work runs on the portable kernels. "
           "torch_backend.lazy.compilations() lists them: use fewer shapes, such as by padding, or set a higher limit",
           pjrt.program_limit);
  if (!atomic_exchange(&warned, 1)) hal_host->log(HAL_LOG_WARNING, line);
  return pjrt_error(HAL_UNIMPLEMENTED, "%s", line);
}

/* Compiles the text of a program, at a low level first if that is requested and the platform can. */
static hal_status_t compile_text(program_t *program) {
  const emit_program_t *const emitted = &program->emitted;
  pjrt_failure_t failure;
  int stored = 0;
  const int64_t begin = pjrt_now_ns();
  program->level = pjrt.rising && !pjrt_platform_of(program->site)->plain_options ? PJRT_LOW : PJRT_FULL;
  hal_status_t status = pjrt_compile_cached(emitted->text, emitted->size, program->level, program->site,
                                            &program->loaded, &stored, &failure);
  if (status && program->level == PJRT_LOW) {
    program->level = PJRT_FULL;
    status = pjrt_compile_cached(emitted->text, emitted->size, PJRT_FULL, program->site, &program->loaded, &stored,
                                 &failure);
  }
  if (status) return pjrt_failure_report("the platform cannot compile a program", &failure);
  log_compiled(program, stored, pjrt_now_ns() - begin);
  return HAL_OK;
}

static void destroy(void *state, void *destroyed) {
  program_t *const program = destroyed;
  (void)state;
  pjrt_again_release(program->again);
  pjrt_constants_destroy(&program->constants);
  pjrt_program_release(program->site, program->loaded);
  emit_program_free(&program->emitted);
  hal_host->mem_free(program);
}

static hal_status_t compile(void *state, const hal_ir_t *ir, void **out_program) {
  compiler_t *const compiler = state;
  static atomic_int number;
  if (atomic_load(&number) >= pjrt.program_limit) return decline();
  program_t *const program = hal_host->mem_alloc(sizeof *program, 16);
  if (!program) return pjrt_error(HAL_RESOURCE_EXHAUSTED, "pjrt: no host memory for a program");
  *program = (program_t){.site = compiler->device, .count = &compiler->again, .number = atomic_fetch_add(&number, 1)};
  snprintf(program->name, sizeof program->name, "program of %u operators, %.30s to %.30s", (unsigned)ir->node_count,
           hal_ir_node(ir, 0)->name, hal_ir_node(ir, ir->node_count - 1)->name);
  hal_status_t status = emit_program(ir, &program->emitted);
  if (!status && pjrt_is_small(ir)) program->site = pjrt_single_of(compiler->device);
  if (!status) dump(program);
  if (!status)
    status = pjrt_constants_create(&program->constants, program->site,
                                   program->emitted.double_count ? program->emitted.double_room : 0,
                                   program->emitted.integer_count ? program->emitted.integer_room : 0);
  if (!status) status = compile_text(program);
  if (status)
    destroy(state, program);
  else
    *out_program = program;
  return status;
}

static void text(void *state, const void *described, char *text, size_t capacity) {
  const program_t *const program = described;
  (void)state;
  char level[64] = "";
  if (program->level == PJRT_LOW)
    snprintf(level, sizeof level, ", at low optimization for %u runs", 2 * (unsigned)pjrt.hot);
  if (capacity)
    snprintf(text, capacity, "%u arguments, %u results, %zu bytes of StableHLO%s%s",
             (unsigned)program->emitted.argument_count, (unsigned)program->emitted.result_count, program->emitted.size,
             program->site < PJRT_MAX_DEVICES ? "" : ", in one thread", level);
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

/* A run, followed by the spans of its arguments and results, and the numbers. */
typedef struct queued_s {
  program_t *program;
  pjrt_views_t *views;
  pjrt_flights_t *flights;
  int again;               /* runs the second compilation */
  uint32_t argument_count; /* with the numbers */
} queued_t;

static size_t bytes_of(const emit_program_t *emitted, uint32_t argument_count) {
  const size_t numbers = (emitted->double_count ? emitted->double_room * sizeof(double) : 0) +
                         (emitted->integer_count ? emitted->integer_room * sizeof(int64_t) : 0);
  return sizeof(queued_t) + (argument_count + emitted->result_count) * sizeof(pjrt_span_t) + numbers;
}

/* The program of a run that is due for the second compilation waits for it. The run is always the same one, so that
 * results do not depend on the time that compiling takes. */
static pjrt_loaded_t *loaded_of(const queued_t *queued) {
  pjrt_loaded_t *const again = queued->again ? pjrt_again_wait(queued->program->again) : NULL;
  return again ? again : queued->program->loaded;
}

/* Runs a program whose numbers are in buffers. */
static hal_status_t run_spans(const queued_t *queued, pjrt_buffer_t *const *buffers, char *why) {
  program_t *const program = queued->program;
  const emit_program_t *const emitted = &program->emitted;
  pjrt_span_t *const spans = (pjrt_span_t *)(uintptr_t)(queued + 1);
  uint32_t count = emitted->argument_count, moved;
  for (int kind = 0; kind < 2; kind++)
    if (buffers[kind]) spans[count++] = (pjrt_span_t){NULL, PJRT_PRED, 0, 0, buffers[kind]};
  const pjrt_run_t run = {.program = loaded_of(queued),
                          .site = program->site,
                          .argument_count = count,
                          .result_count = emitted->result_count,
                          .arguments = spans,
                          .results = spans + queued->argument_count,
                          .places = emitted->places,
                          .views = queued->views,
                          .flights = queued->flights,
                          .name = program->name};
  if (pjrt.opaque) return pjrt_opaque_run(&run, why);
  const int64_t begin = pjrt_now_ns();
  const hal_status_t status = pjrt_run(&run, &moved, why);
  atomic_store_explicit(&program->is_short, pjrt_now_ns() - begin < SHORT_NS, memory_order_relaxed);
  return status;
}

static hal_status_t run_program(const void *arguments, char *why) {
  const queued_t *const queued = arguments;
  pjrt_constants_t *const constants = &queued->program->constants;
  const pjrt_span_t *const spans = (const pjrt_span_t *)(const void *)(queued + 1);
  const void *const numbers = spans + queued->argument_count + queued->program->emitted.result_count;
  pjrt_buffer_t *buffers[2];
  hal_status_t status = pjrt_constants_take(constants, numbers, buffers, why);
  if (status) return status;
  status = run_spans(queued, buffers, why);
  if (status)
    pjrt_constants_drop(constants, buffers);
  else
    pjrt_constants_put(constants, numbers, buffers);
  return status;
}

static double double_of(const hal_value_t *value) {
  return value->tag == HAL_VALUE_DOUBLE ? value->u.d : (double)value->u.i;
}

static int64_t integer_of(const hal_op_call_t *call, int32_t argument) {
  if (argument == EMIT_SEED) return (int64_t)call->seed;
  if (argument == EMIT_OFFSET) return (int64_t)call->offset;
  const hal_value_t *const value = &call->args[argument];
  return value->tag == HAL_VALUE_DOUBLE ? (int64_t)value->u.d : value->u.i;
}

static void write_numbers(const emit_program_t *emitted, const hal_ir_run_t *run, char *to) {
  if (emitted->double_count) {
    double *const doubles = (double *)(void *)to;
    memset(doubles, 0, emitted->double_room * sizeof *doubles);
    for (uint32_t i = 0; i < emitted->double_count; i++)
      doubles[i] = double_of(&run->calls[emitted->doubles[i].node]->args[emitted->doubles[i].argument]);
    to += emitted->double_room * sizeof *doubles;
  }
  if (!emitted->integer_count) return;
  int64_t *const integers = (int64_t *)(void *)to;
  memset(integers, 0, emitted->integer_room * sizeof *integers);
  for (uint32_t i = 0; i < emitted->integer_count; i++)
    integers[i] = integer_of(run->calls[emitted->integers[i].node], emitted->integers[i].argument);
}

/* Counts a run. Returns whether it is one of the second compilation, which has begun half of its runs earlier. */
static int count_run(program_t *program) {
  if (program->level == PJRT_FULL) return 0;
  if (program->again && program->runs >= 2 * pjrt.hot) return 1;
  if (++program->runs == pjrt.hot)
    program->again =
        pjrt_again_start(program->emitted.text, program->emitted.size, program->site, program->count, program->name);
  return 0;
}

/* Writes a run, for which `queued` has enough bytes. */
static void write_run(program_t *program, const hal_ir_run_t *run, uint32_t argument_count, queued_t *queued) {
  const emit_program_t *const emitted = &program->emitted;
  *queued = (queued_t){program, pjrt_stream_views(run->plugin_stream), pjrt_stream_flights(run->plugin_stream),
                       count_run(program), argument_count};
  pjrt_span_t *const spans = (pjrt_span_t *)(void *)(queued + 1), *const results = spans + argument_count;
  for (uint32_t i = 0; i < emitted->argument_count; i++)
    spans[i] = (pjrt_span_t){run->buffers[emitted->arguments[i]], emitted->types[i], emitted->counts[i],
                             emitted->copied[i], NULL};
  for (uint32_t k = 0; k < emitted->result_count; k++)
    results[k] =
        (pjrt_span_t){run->buffers[emitted->results[k]], emitted->result_types[k], emitted->result_counts[k], 0, NULL};
  write_numbers(emitted, run, (char *)(results + emitted->result_count));
}

/* Whether a run is in the calling thread: a short one. Other runs would keep other threads from queueing programs of
 * the device. */
static int runs_now(const program_t *program, hal_plugin_stream_t *stream, size_t size) {
  if (!stream) return 1;
  const int is_short = size <= FEW_BYTES && atomic_load_explicit(&program->is_short, memory_order_relaxed);
  return is_short && pjrt_is_idle(stream) && (!program->again || pjrt_again_has_ended(program->again));
}

/* Runs a program, or queues it. */
static hal_status_t start(program_t *program, const hal_ir_run_t *run) {
  const emit_program_t *const emitted = &program->emitted;
  const uint32_t count = emitted->argument_count + (emitted->double_count > 0) + (emitted->integer_count > 0);
  const size_t size = bytes_of(emitted, count);
  _Alignas(16) unsigned char few[FEW_BYTES];
  pjrt_work_t *work;
  if (runs_now(program, run->plugin_stream, size)) {
    queued_t *const queued = size <= sizeof few ? (queued_t *)(void *)few : hal_host->mem_alloc(size, 16);
    if (!queued) return pjrt_error(HAL_RESOURCE_EXHAUSTED, "pjrt: no host memory to run a program");
    write_run(program, run, count, queued);
    const hal_status_t status = pjrt_run_now(run->plugin_stream, program->name, run_program, queued);
    if ((void *)queued != few) hal_host->mem_free(queued);
    return status;
  }
  const hal_status_t status = pjrt_work_new(run->plugin_stream, program->name, run_program, NULL, size, &work);
  if (status) return status;
  write_run(program, run, count, pjrt_work_arguments(work));
  pjrt_work_overlap(work);
  pjrt_work_push(run->plugin_stream, work);
  return HAL_OK;
}

static hal_status_t execute(void *state, void *executed, const hal_ir_run_t *run) {
  (void)state;
  dump(executed);
  return start(executed, run);
}

static uint64_t again(void *state) {
  compiler_t *const compiler = state;
  return atomic_load(&compiler->again);
}

hal_status_t hal_plugin_program_compiler(int32_t device, hal_compiler_t *out_compiler) {
  const hal_status_t status = pjrt_check_device(device);
  if (status) return status;
  compilers[device].device = device;
  atomic_store(&compilers[device].again, 0);
  HAL_SET_FIELD(out_compiler, name, "pjrt");
  if (hal_host->minor >= 5) HAL_SET_FIELD(out_compiler, flags, HAL_COMPILER_WHOLE); /* unknown to older hosts */
  HAL_SET_FIELD(out_compiler, state, &compilers[device]);
  HAL_SET_FIELD(out_compiler, accepts, accepts);
  HAL_SET_FIELD(out_compiler, compile, compile);
  HAL_SET_FIELD(out_compiler, execute, execute);
  HAL_SET_FIELD(out_compiler, text, text);
  HAL_SET_FIELD(out_compiler, destroy, destroy);
  if (hal_host->minor >= 5) HAL_SET_FIELD(out_compiler, again, again);
  return HAL_OK;
}
