/* fake_sanitize.c: HAL_FAKE_SANITIZE: programs in C with one error each. Each runs in a process of its own, and the
 * report must have its class, the kernel, the place and the functions of the program that allocated, released and
 * submitted. Programs without an error have no report. */
#define _GNU_SOURCE
#include <hal/hal.h>
#include <hal_op_ids.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TEST_SANITIZED 1 /* the build has no checked kernels */
#else
#define TEST_SANITIZED 0
#endif

enum { FOUND = 77, COUNT = 100 };

#define PART __attribute__((noinline, noclone)) /* a function that reports name */

static char report[1 << 16];

/* ---- what the programs use --------------------------------------------------------------------------------------- */

static void ok(hal_status_t status) {
  if (!status) return;
  fprintf(stderr, "failed: %s: %s\n", hal_status_name(status), hal_error_message());
  _exit(3);
}

PART static hal_block_t *make_block(size_t bytes) {
  hal_block_t *block = NULL;
  ok(hal_memory_allocate(0, NULL, bytes, &block));
  __asm__ volatile("");
  return block;
}

PART static hal_block_t *make_zeros(size_t count) {
  hal_block_t *const block = make_block(count * sizeof(float));
  ok(hal_memory_fill(NULL, 0, hal_memory_block_address(block), "", 1, count * sizeof(float)));
  return block;
}

PART static void drop_block(hal_block_t *block) {
  hal_memory_release(block);
  __asm__ volatile("");
}

static float *floats(hal_block_t *block) { return hal_memory_block_address(block); }

static const char shift_text[] =
    "#define ARGS(X) X(OUT, float, to), X(IN, float, from), X(VALUE, pk_u64, n), X(VALUE, pk_i64, ahead)\n"
    "PK_KERNEL(shift, ARGS) { PK_PROLOGUE(ARGS)\n"
    "  PK_ITEM(i, n) to[i] = from[(pk_i64)i + ahead];\n"
    "}\n";

/* A program's own kernel: to[i] = from[i + ahead]. */
PART static void launch_shift(float *to, const float *from, uint64_t count, int64_t ahead) {
  static hal_kernel_t *kernel;
  if (!kernel) ok(hal_kernel_compile(0, "shift", shift_text, &kernel));
  const hal_arg_t args[] = {{&to, sizeof to, HAL_ARG_POINTER},
                            {&from, sizeof from, HAL_ARG_POINTER},
                            {&count, sizeof count, HAL_ARG_VALUE},
                            {&ahead, sizeof ahead, HAL_ARG_VALUE}};
  ok(hal_kernel_launch_items(kernel, NULL, count, args, 4));
  __asm__ volatile("");
}

/* An operator: to = exp(from). */
PART static void run_exp(float *to, const float *from, int64_t count) {
  const int64_t stride = 1;
  hal_tensor_t tensors[2];
  for (int i = 0; i < 2; i++)
    tensors[i] = (hal_tensor_t){.struct_size = sizeof(hal_tensor_t),
                                .data = i ? (void *)(uintptr_t)from : to,
                                .sizes = &count,
                                .strides = &stride,
                                .ndim = 1,
                                .dtype = HAL_FLOAT32};
  const hal_value_t args[] = {{.tag = HAL_VALUE_TENSOR, .u.t = &tensors[1]}};
  const hal_tensor_t *const results[] = {&tensors[0]};
  hal_op_call_t call = {
      .struct_size = sizeof call, .arg_count = 1, .result_count = 1, .args = args, .results = results};
  ok(hal_op_run(0, HAL_OP_ID_EXP, NULL, &call));
  __asm__ volatile("");
}

static void synchronize(void) { ok(hal_device_synchronize(0)); }

/* ---- programs: memory -------------------------------------------------------------------------------------------- */

static void upload_past_the_end(void) {
  static float host[COUNT + 1];
  ok(hal_memory_copy(NULL, floats(make_block(COUNT * 4)), 0, host, HAL_HOST, sizeof host));
  synchronize();
}

static void download_past_the_end(void) {
  static float host[COUNT + 1];
  ok(hal_memory_copy(NULL, host, HAL_HOST, floats(make_zeros(COUNT)), 0, sizeof host));
  synchronize();
}

static void fill_past_the_end(void) {
  ok(hal_memory_fill(NULL, 0, floats(make_block(COUNT * 4)) + 1, "", 1, COUNT * 4));
  synchronize();
}

static void copy_from_before_the_start(void) {
  ok(hal_memory_copy(NULL, floats(make_zeros(COUNT)), 0, floats(make_zeros(COUNT)) - 4, 0, COUNT * 4));
  synchronize();
}

static void kernel_writes_one_more(void) {
  launch_shift(floats(make_zeros(COUNT)), floats(make_zeros(COUNT + 1)), COUNT + 1, 0);
  synchronize();
}

static void kernel_reads_one_before(void) {
  launch_shift(floats(make_zeros(COUNT)), floats(make_zeros(COUNT)), COUNT, -1);
  synchronize();
}

static void kernel_reads_far_behind(void) {
  hal_block_t *const from = make_zeros(COUNT), *const to = make_zeros(COUNT);
  launch_shift(floats(to), floats(from), 1, 150);
  synchronize();
}

static void operator_with_a_wrong_size(void) {
  run_exp(floats(make_zeros(COUNT)), floats(make_zeros(COUNT / 2)), COUNT);
  synchronize();
}

static void kernel_uses_released_memory(void) {
  hal_block_t *const from = make_zeros(COUNT), *const to = make_zeros(COUNT);
  const float *const stale = floats(from);
  drop_block(from);
  launch_shift(floats(to), stale, COUNT, 0);
  synchronize();
}

static void operator_writes_released_memory(void) {
  hal_block_t *const from = make_zeros(COUNT), *const to = make_zeros(COUNT);
  float *const stale = floats(to);
  drop_block(to);
  run_exp(stale, floats(from), COUNT);
  synchronize();
}

static void download_of_released_memory(void) {
  hal_block_t *const block = make_zeros(COUNT);
  float host[COUNT], *const stale = floats(block);
  drop_block(block);
  synchronize();
  ok(hal_memory_copy(NULL, host, HAL_HOST, stale, 0, sizeof host));
  synchronize();
}

static void write_behind(void *data) { ((float *)data)[COUNT] = 1; }

static void host_function_writes_past_the_end(void) {
  hal_block_t *const block = make_zeros(COUNT);
  ok(hal_stream_host_call(NULL, write_behind, floats(block)));
  synchronize();
  drop_block(block);
  synchronize();
}

/* ---- programs: init ---------------------------------------------------------------------------------------------- */

static void download_of_new_memory(void) {
  float host[COUNT];
  ok(hal_memory_copy(NULL, host, HAL_HOST, floats(make_block(COUNT * 4)), 0, sizeof host));
  synchronize();
}

static void kernel_reads_half_filled(void) {
  hal_block_t *const block = make_block(COUNT * 4);
  ok(hal_memory_fill(NULL, 0, floats(block), "", 1, 60 * 4));
  launch_shift(floats(make_zeros(COUNT)), floats(block), COUNT, 0);
  synchronize();
}

static void operator_reads_new_memory(void) {
  run_exp(floats(make_block(COUNT * 4)), floats(make_block(COUNT * 4)), COUNT);
  synchronize();
}

static void new_memory_is_copied_and_then_read(void) {
  hal_block_t *const from = make_block(COUNT * 4), *const to = make_zeros(COUNT);
  ok(hal_memory_copy(NULL, floats(to) + 50, 0, floats(from), 0, 4));
  run_exp(floats(make_block(COUNT * 4)), floats(to), COUNT);
  synchronize();
}

/* ---- programs: leak ---------------------------------------------------------------------------------------------- */

static void a_block_is_not_released(void) {
  hal_block_t *const kept = make_zeros(COUNT);
  drop_block(make_zeros(COUNT));
  (void)kept;
}

static void a_block_is_not_released_before_the_end(void) {
  make_block(12);
  drop_block(make_zeros(COUNT));
  hal_registry_close();
}

/* ---- programs without an error ----------------------------------------------------------------------------------- */

static void correct(void) {
  float host[COUNT] = {0};
  for (int i = 0; i < 50; i++) {
    hal_block_t *const from = make_block(COUNT * 4), *const to = make_block(COUNT * 4), *const last = make_block(3);
    ok(hal_memory_copy(NULL, floats(from), 0, host, HAL_HOST, sizeof host));
    run_exp(floats(to), floats(from), COUNT);
    launch_shift(floats(from), floats(to), COUNT - 1, 1);
    ok(hal_memory_fill(NULL, 0, hal_memory_block_address(last), "abc", 1, 3));
    ok(hal_memory_copy(NULL, host, HAL_HOST, floats(to), 0, sizeof host));
    drop_block(from); /* queued work still uses them */
    drop_block(last);
    drop_block(to);
  }
  synchronize();
}

/* ---- running them ------------------------------------------------------------------------------------------------ */

typedef struct program_s {
  const char *name;
  void (*run)(void);
  const char *classes, *report[6];
} program_t;

#define PROGRAM(name) #name, name

static const program_t programs[] = {
    {PROGRAM(upload_past_the_end),
     "memory",
     {"memory: access after the end", "memory_copy: write", "0 bytes after the end of the block", ": 400 bytes at",
      "upload_past_the_end", "make_block"}},
    {PROGRAM(download_past_the_end),
     "memory",
     {"memory: access after the end", "memory_copy: read", "0 bytes after the end", "download_past_the_end",
      "make_zeros"}},
    {PROGRAM(fill_past_the_end),
     "memory",
     {"memory: access after the end", "memory_fill: write of 4 bytes", "0 bytes after the end", "fill_past_the_end"}},
    {PROGRAM(copy_from_before_the_start),
     "memory",
     {"memory: access before an allocation", "memory_copy: read", "16 bytes before the block",
      "copy_from_before_the_start"}},
    {PROGRAM(kernel_writes_one_more),
     "memory",
     {"memory: access after the end", "shift: write of 4 bytes", "0 bytes after the end of the block",
      "element 100 of argument 0 (4 bytes each)", "launch_shift", "make_zeros"}},
    {PROGRAM(kernel_reads_one_before),
     "memory",
     {"memory: access before an allocation", "shift: read of 4 bytes", "4 bytes before the block",
      "element -1 of argument 1", "launch_shift"}},
    {PROGRAM(kernel_reads_far_behind),
     "memory",
     {"memory: access after the end", "shift: read of 4 bytes", "200 bytes after the end", "element 150 of argument 1",
      "launch_shift"}},
    {PROGRAM(operator_with_a_wrong_size),
     "memory",
     {"memory: access after the end", "exp_f32_contig: read of 4 bytes; operator exp", "element 50 of argument 1",
      "run_exp", ": 200 bytes at"}},
    {PROGRAM(kernel_uses_released_memory),
     "memory",
     {"memory: access to released memory", "shift: read", "element 0 of argument 1", "released by", "drop_block",
      "launch_shift"}},
    {PROGRAM(operator_writes_released_memory),
     "memory",
     {"memory: access to released memory", "exp_f32_contig: write", "element 0 of argument 0", "drop_block",
      "run_exp"}},
    {PROGRAM(download_of_released_memory),
     "memory",
     {"memory: access to released memory", "memory_copy: read", "drop_block", "download_of_released_memory"}},
    {PROGRAM(host_function_writes_past_the_end),
     "memory",
     {"memory: memory after the end of an allocation was overwritten", "not instrumented", "make_zeros", "drop_block"}},
    {PROGRAM(download_of_new_memory),
     "init",
     {"init: read of memory that was never written", "memory_copy: read of 400 bytes", "element 0",
      "download_of_new_memory", "make_block"}},
    {PROGRAM(kernel_reads_half_filled),
     "init",
     {"init: read of memory that was never written", "shift: read of 4 bytes", "element 60 of argument 1",
      "launch_shift", "make_block"}},
    {PROGRAM(operator_reads_new_memory),
     "init",
     {"init: read of memory that was never written", "exp_f32_contig: read", "operator exp", "element 0 of argument 1",
      "run_exp"}},
    {PROGRAM(new_memory_is_copied_and_then_read),
     "init",
     {"init: read of memory that was never written", "exp_f32_contig: read", "element 50 of argument 1", "run_exp"}},
    {PROGRAM(a_block_is_not_released),
     "leak",
     {"leak: an allocation was not released", ": 400 bytes at", "make_zeros", "a_block_is_not_released"}},
    {PROGRAM(a_block_is_not_released_before_the_end),
     "leak",
     {"leak: an allocation was not released", ": 12 bytes at", "make_block", "a_block_is_not_released_before_the_end"}},
};

/* Runs a program; returns its exit code and writes its standard error to `report`. */
static int run_program(void (*body)(void), const char *classes, int async) {
  int ends[2];
  cr_assert_eq(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGALRM, SIG_DFL);
    alarm(50);
    dup2(ends[1], STDERR_FILENO);
    setenv("HAL_FAKE_SANITIZE", classes, 1);
    setenv("HAL_FAKE_SANITIZE_EXIT_CODE", "77", 1);
    setenv("HAL_FAKE_ASYNC", async ? "1" : "0", 1);
    setenv("HAL_FAKE_THREADS", "2", 1);
    ok(hal_registry_add_path(PLUGIN_DIR));
    ok(hal_registry_open("fake"));
    body();
    exit(0);
  }
  close(ends[1]);
  size_t length = 0;
  ssize_t count;
  while ((count = read(ends[0], report + length, sizeof report - 1 - length)) > 0) length += (size_t)count;
  report[length] = 0;
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static void run_all(int async) {
  if (TEST_SANITIZED) return;
  for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) {
    const program_t *const program = &programs[i];
    const int code = run_program(program->run, program->classes, async);
    cr_expect_eq(code, FOUND, "%s ended with %d:\n%s", program->name, code, report);
    for (size_t j = 0; j < 6 && program->report[j]; j++)
      cr_expect_not_null(strstr(report, program->report[j]), "%s: the report lacks '%s':\n%s", program->name,
                         program->report[j], report);
    const char *const first = strstr(report, "==== fake sanitizer");
    cr_expect(first && !strstr(first + 4, "==== fake sanitizer"), "%s: not one report:\n%s", program->name, report);
  }
}

Test(fake_sanitize, each_error_of_a_program_is_reported_once_with_its_place_and_stacks, .timeout = 120) { run_all(1); }
Test(fake_sanitize, and_without_asynchronous_streams, .timeout = 120) { run_all(0); }

Test(fake_sanitize, a_correct_program_has_no_report, .timeout = 60) {
  if (TEST_SANITIZED) return;
  for (int async = 0; async < 2; async++) {
    cr_expect_eq(run_program(correct, "memory,init,leak", async), 0, "%s", report);
    cr_expect_null(strstr(report, "fake sanitizer"), "%s", report);
  }
}

/* ---- settings ---------------------------------------------------------------------------------------------------- */

static void raise_an_error(void) {
  setenv("HAL_FAKE_SANITIZE_RAISE", "1", 1);
  kernel_reads_half_filled();
}

Test(fake_sanitize, a_finding_is_an_error_of_the_next_synchronization_on_request, .timeout = 60) {
  if (TEST_SANITIZED) return;
  for (int async = 0; async < 2; async++) {
    cr_expect_eq(run_program(raise_an_error, "init", async), 3, "%s", report);
    cr_expect_not_null(strstr(report, "the sanitizer found an error in kernel 'shift'"), "%s", report);
  }
}

static void nothing(void) { synchronize(); }

Test(fake_sanitize, an_invalid_value_is_an_error_that_names_the_classes, .timeout = 60) {
  if (TEST_SANITIZED) return;
  cr_expect_eq(run_program(nothing, "memory,speed", 1), 3, "%s", report);
  cr_expect_not_null(strstr(report, "HAL_FAKE_SANITIZE is 'memory,speed'"), "%s", report);
  setenv("HAL_FAKE_PROTECT", "1", 1);
  cr_expect_eq(run_program(nothing, "memory", 1), 3, "%s", report);
  cr_expect_not_null(strstr(report, "exclude each other"), "%s", report);
}
