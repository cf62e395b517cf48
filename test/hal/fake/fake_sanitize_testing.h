/* fake_sanitize_testing.h: programs that run under HAL_FAKE_SANITIZE in a process of their own, and their reports. */
#ifndef TEST_HAL_FAKE_SANITIZE_TESTING_H_
#define TEST_HAL_FAKE_SANITIZE_TESTING_H_

#include <hal/hal.h>
#include <hal_op_ids.h>
#include <string.h>

#include "fake_child.h"
#include "support.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TEST_SANITIZED 1 /* the build has no checked kernels */
#else
#define TEST_SANITIZED 0
#endif

enum { FOUND = 77, COUNT = 100 };

#define PART __attribute__((noinline, noclone, unused)) /* a function that reports name */

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

PART static float *floats(hal_block_t *block) { return hal_memory_block_address(block); }

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

PART static void synchronize(void) { ok(hal_device_synchronize(0)); }

/* ---- running them ------------------------------------------------------------------------------------------------ */

typedef struct program_s {
  const char *name;
  void (*run)(void);
  const char *classes, *report[8];
} program_t;

#define PROGRAM(name) #name, name

static int is_async;

static inline void run_child(const void *data) {
  const program_t *const program = data;
  setenv("HAL_FAKE_SANITIZE", program->classes, 1);
  setenv("HAL_FAKE_SANITIZE_EXIT_CODE", "77", 1);
  setenv("HAL_FAKE_ASYNC", is_async ? "1" : "0", 1);
  setenv("HAL_FAKE_THREADS", "2", 1);
  ok(hal_registry_add_path(PLUGIN_DIR));
  ok(hal_registry_open("fake"));
  program->run();
  if (strcmp(program->classes, "race") == 0) synchronize(); /* work that never runs accesses nothing */
  exit(0);
}

/* Runs a program; returns its exit code and writes its standard error to `report`. */
static inline int run_program(void (*body)(void), const char *classes, int async) {
  const program_t program = {.run = body, .classes = classes};
  is_async = async;
  const int status = run_in_child(run_child, &program, report, sizeof report);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

/* Each program must have one report, with all its texts. */
static inline void run_programs(const program_t *programs, size_t count, int async) {
  if (TEST_SANITIZED) return;
  for (size_t i = 0; i < count; i++) {
    const program_t *const program = &programs[i];
    const int code = run_program(program->run, program->classes, async);
    cr_expect_eq(code, FOUND, "%s ended with %d:\n%s", program->name, code, report);
    for (size_t j = 0; j < 8 && program->report[j]; j++)
      cr_expect_not_null(strstr(report, program->report[j]), "%s: the report lacks '%s':\n%s", program->name,
                         program->report[j], report);
    const char *const first = strstr(report, "==== fake sanitizer");
    cr_expect(first && !strstr(first + 4, "==== fake sanitizer"), "%s: not one report:\n%s", program->name, report);
  }
}

#endif /* TEST_HAL_FAKE_SANITIZE_TESTING_H_ */
