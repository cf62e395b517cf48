/* hal_own_op.c: the cost of a plugin's own operator for a call that it does not run: declined by the function, by
 * the descriptor, and with hal_op_run_own. The operator itself is a function that stores one number, so that the
 * overhead dominates. There is no baseline: no other library queries a vendor's operators.
 *
 *   bench_hal_own_op [path of libhal_takes_ops.so, a test plugin] [calls per run]
 *
 * Each row is the best of many short runs, since any disturbance makes a run longer. A call has three tensors of
 * four dimensions, one of them a result. */
#define _XOPEN_SOURCE 700
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "hal/hal.h"

enum { RUNS = 300, ALLOWED_NS = 50 };

static const int64_t sizes[] = {2, 3, 4, 5}, strides[] = {60, 20, 5, 1}, last[] = {60, 1, 15, 3};
static float number;
static hal_tensor_t tensors[3];
static const hal_tensor_t *results[] = {&tensors[2]};
static hal_value_t args[2];
static hal_op_call_t call;
static uint32_t op;

static double now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static void must(hal_status_t status) {
  if (!status) return;
  fprintf(stderr, "%s\n", hal_error_message());
  exit(1);
}

static hal_status_t answer(void *state, int32_t device, hal_stream_t *stream, const hal_op_call_t *run) {
  (void)state, (void)device, (void)stream;
  *(float *)run->results[0]->data = 1;
  return HAL_OK;
}

static void run(void) { must(hal_op_run(0, op, NULL, &call)); }

static void run_own(void) {
  if (hal_op_run_own(0, op, NULL, &call) != HAL_UNIMPLEMENTED) exit(1);
}

static void query(void) {
  int32_t verdict;
  must(hal_op_query(0, op, &call, &verdict));
}

static uint32_t op_of(const char *name) {
  uint32_t found = 0;
  const hal_op_desc_t desc = {.struct_size = sizeof desc, .name = name, .argument_count = 2, .fn = answer};
  if (hal_op_id(name, &found)) must(hal_op_define(&desc, &found));
  return found;
}

/* Nanoseconds of a call of the operator, declined in one of the three ways. */
static double measure(void (*way)(void), const char *name, hal_dtype_t dtype, const int64_t *layout, long calls) {
  double best = 1e300;
  op = op_of(name);
  for (int i = 0; i < 3; i++) tensors[i].dtype = dtype, tensors[i].strides = layout;
  for (int repetition = 0; repetition < RUNS; repetition++) {
    const double start = now_ns();
    for (long i = 0; i < calls; i++) way();
    const double each = (now_ns() - start) / (double)calls;
    if (each < best) best = each;
  }
  return best;
}

static void print(const char *text, double ns) { printf("%-66s %7.1f ns\n", text, ns); }

static void compare(long calls) {
  const double none = measure(run, "test::nobodys", HAL_FLOAT32, strides, calls);
  const double function = measure(run, "test::declines", HAL_FLOAT32, strides, calls) - none;
  const double dtype = measure(run, "test::dense32", HAL_BFLOAT16, strides, calls) - none;
  const double layout = measure(run, "test::dense32", HAL_FLOAT32, last, calls) - none;
  print("a call of an operator that the plugin does not have", none);
  print("declined by the function: more than that", function);
  print("declined by the descriptor's dtypes: more than that", dtype);
  print("declined by the descriptor's layouts: more than that", layout);
  const double alone = measure(run_own, "test::declines", HAL_FLOAT32, strides, calls);
  print("hal_op_run_own, declined by the function", alone);
  print("hal_op_query with a query of the plugin's", measure(query, "test::even", HAL_FLOAT32, strides, calls));
  const double worst = function > dtype ? function > layout ? function : layout : dtype > layout ? dtype : layout;
  printf("worst decline %.1f ns, at most %d allowed: %s\n", worst, ALLOWED_NS, worst <= ALLOWED_NS ? "yes" : "NO");
}

int main(int argument_count, char **arguments) {
  char own[PATH_MAX], plugin[2 * PATH_MAX];
  const long calls = argument_count > 2 ? strtol(arguments[2], NULL, 10) : 3000;
  if (calls <= 0 || !realpath(arguments[0], own)) {
    fprintf(stderr, "usage: %s [path of libhal_takes_ops.so] [calls per run]\n", arguments[0]);
    return 2;
  }
  snprintf(plugin, sizeof plugin, "%s/plugins/libhal_takes_ops.so", dirname(own));
  must(hal_registry_open(argument_count > 1 ? arguments[1] : plugin));
  for (int i = 0; i < 3; i++)
    tensors[i] = (hal_tensor_t){
        .struct_size = sizeof tensors[i], .data = &number, .sizes = sizes, .strides = strides, .ndim = 4};
  for (int i = 0; i < 2; i++) args[i] = (hal_value_t){.tag = HAL_VALUE_TENSOR, .u.t = &tensors[i]};
  call =
      (hal_op_call_t){.struct_size = sizeof call, .arg_count = 2, .result_count = 1, .args = args, .results = results};
  compare(calls);
  hal_registry_close();
  return 0;
}
