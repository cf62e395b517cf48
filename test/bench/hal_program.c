/* hal_program.c: the cost of a recorded operator: x + y of 16 floats run immediately (hal_op_run), recorded, and run
 * from a program, per operator. The baseline of a program is the HAL's own eager call.
 *
 *   bench_hal_program [plugin name or path, default fake]
 *
 * Each row is the best of many runs of 1,000 operators, since any disturbance makes a run longer. Run it with
 * HAL_FAKE_ASYNC=0, where the kernel is part of both, and without. Targets: 150 ns for a recorded operator; a run of
 * one at most as long as hal_op_run. If the plugin has graphs, the last rows are the same runs without them. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "hal/hal.h"

enum { OPS = 1000, RUNS = 200, ELEMENTS = 16, RECORD_NS = 150 };

static const int64_t sizes[] = {ELEMENTS}, strides[] = {1};
static hal_tensor_t tensors[3];
static const hal_tensor_t *results[] = {&tensors[2]};
static hal_value_t args[3];
static hal_op_call_t call;
static hal_stream_t *stream;
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

static void make_call(void) {
  for (int i = 0; i < 3; i++) {
    hal_block_t *block;
    must(hal_memory_allocate(0, NULL, ELEMENTS * sizeof(float), &block));
    tensors[i] = (hal_tensor_t){.struct_size = sizeof tensors[i],
                                .data = hal_memory_block_address(block),
                                .sizes = sizes,
                                .strides = strides,
                                .ndim = 1,
                                .dtype = HAL_FLOAT32};
  }
  args[0] = (hal_value_t){.tag = HAL_VALUE_TENSOR, .u.t = &tensors[0]};
  args[1] = (hal_value_t){.tag = HAL_VALUE_TENSOR, .u.t = &tensors[1]};
  args[2] = (hal_value_t){.tag = HAL_VALUE_DOUBLE, .u.d = 1};
  call = (hal_op_call_t){.struct_size = sizeof call,
                         .arg_count = 3,
                         .result_count = 1,
                         .flags = HAL_CALL_DENSE,
                         .args = args,
                         .results = results};
}

static void add_all(void) {
  for (int i = 0; i < OPS; i++) must(hal_op_run(0, op, stream, &call));
}

static hal_program_t *record(uint32_t flags) {
  hal_program_t *program;
  const hal_program_desc_t desc = {.struct_size = sizeof desc, .flags = flags};
  must(hal_program_begin(stream, &desc, &program));
  add_all();
  must(hal_program_end(program));
  return program;
}

static double best_eager(void) {
  double best = 1e300;
  for (int i = 0; i < RUNS; i++) {
    const double start = now_ns();
    add_all();
    const double each = (now_ns() - start) / OPS;
    if (each < best) best = each;
    must(hal_stream_synchronize(stream));
  }
  return best;
}

static double best_record(void) {
  double best = 1e300;
  for (int i = 0; i < RUNS; i++) {
    const double start = now_ns();
    hal_program_t *const program = record(0);
    const double each = (now_ns() - start) / OPS;
    if (each < best) best = each;
    hal_program_destroy(program);
  }
  return best;
}

/* The cost of a run for the caller, and until its work is done; whether it used graphs. */
typedef struct replay_s {
  double queued, done;
  int graphs;
} replay_t;

static replay_t best_run(uint32_t flags) {
  replay_t best = {1e300, 1e300, 0};
  hal_program_info_t info = {.struct_size = sizeof info};
  hal_program_t *const program = record(flags);
  for (int i = 0; i < RUNS; i++) {
    const double start = now_ns();
    must(hal_program_run(program, stream));
    const double queued = (now_ns() - start) / OPS;
    must(hal_stream_synchronize(stream));
    const double done = (now_ns() - start) / OPS;
    if (queued < best.queued) best.queued = queued;
    if (done < best.done) best.done = done;
  }
  must(hal_program_info(program, &info));
  best.graphs = info.graphs != 0;
  hal_program_destroy(program);
  return best;
}

static void print_replay(const char *what, const replay_t *replay, double target) {
  printf("%-44s %9.1f ns, until it is done %.1f", what, replay->queued, replay->done);
  if (target) printf(", target %.1f", target);
  printf("\n");
}

int main(int argument_count, char **arguments) {
  must(hal_registry_open(argument_count > 1 ? arguments[1] : "fake"));
  must(hal_stream_acquire(0, 0, &stream));
  must(hal_op_id("add.Tensor", &op));
  make_call();
  const double eager = best_eager(), recorded = best_record();
  const replay_t replayed = best_run(0);
  printf("%-44s %9.1f ns\n", "hal_op_run of x + y, 16 floats", eager);
  printf("%-44s %9.1f ns, target %d\n", "the same recorded", recorded, RECORD_NS);
  print_replay(replayed.graphs ? "the same from hal_program_run, graphs" : "the same from hal_program_run", &replayed,
               eager);
  if (replayed.graphs) {
    const replay_t commands = best_run(HAL_PROGRAM_COMMANDS);
    print_replay("the same, command by command", &commands, 0);
  }
  return recorded > RECORD_NS || replayed.queued > eager;
}
