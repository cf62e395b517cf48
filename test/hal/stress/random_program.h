/* random_program.h: random programs: operators, copies, fills, random numbers, host functions and waits over parts of
 * vectors, on two streams, with blocks that are released and allocated meanwhile. The seed determines the commands, or
 * the bytes of `script`, if it is set. */
#ifndef TEST_HAL_STRESS_RANDOM_PROGRAM_H_
#define TEST_HAL_STRESS_RANDOM_PROGRAM_H_

#include <hal/hal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "timed.h"

/* Values of vectors are parts of `EDGE` x `EDGE` floats. The first vectors stay, the others are temporary blocks. */
enum { VECTORS = 5, TEMPORARIES = 4, SLOTS = VECTORS + TEMPORARIES, STREAMS = 2, COMMANDS = 100 };
enum { EDGE = 8, PIECE = EDGE * EDGE, PIECES = 5, FLOATS = PIECES * PIECE, CALLS = 64 };

#define MUST(call)                                                                        \
  do {                                                                                    \
    if ((call) != HAL_OK) {                                                               \
      fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, hal_error_message()); \
      exit(1);                                                                            \
    }                                                                                     \
  } while (0)

/* ---- a run ------------------------------------------------------------------------------------------------------ */

/* Vectors, streams, and which of them the next command is for. */
typedef struct run_s {
  hal_stream_t *streams[STREAMS];
  hal_block_t *blocks[SLOTS];
  hal_event_t *event;
  hal_generator_t *generator;
  float *data[SLOTS];
  int current, is_recorded;
  uint64_t read; /* a sum of the values that were copied to the host */
} run_t;

static float uploads[8][FLOATS]; /* of the host: the same for all runs */

static void run_begin(run_t *run) {
  *run = (run_t){.current = 0};
  MUST(hal_stream_default(0, &run->streams[0]));
  MUST(hal_stream_acquire(0, 0, &run->streams[1]));
  MUST(hal_event_create(0, 0, &run->event));
  MUST(hal_generator_create(1, &run->generator));
  for (int i = 0; i < 8; i++)
    for (int k = 0; k < FLOATS; k++) uploads[i][k] = (float)((k * 7 + i * 13) % 17 - 8) / 16;
  for (int v = 0; v < VECTORS; v++) {
    MUST(hal_memory_allocate(0, run->streams[0], sizeof uploads[0], &run->blocks[v]));
    run->data[v] = hal_memory_block_address(run->blocks[v]);
    MUST(hal_memory_copy(run->streams[0], run->data[v], 0, uploads[v], HAL_HOST, sizeof uploads[0]));
  }
  MUST(hal_stream_synchronize(run->streams[0]));
}

static void run_end(run_t *run, float values[VECTORS][FLOATS]) {
  MUST(hal_device_synchronize(0));
  for (int v = 0; v < VECTORS; v++)
    MUST(hal_memory_copy(run->streams[0], values[v], HAL_HOST, run->data[v], 0, sizeof values[v]));
  MUST(hal_stream_synchronize(run->streams[0]));
  for (int v = 0; v < SLOTS; v++) hal_memory_release(run->blocks[v]);
  hal_event_destroy(run->event);
  hal_generator_destroy(run->generator);
}

static hal_stream_t *stream_of(const run_t *run) { return run->streams[run->current]; }

/* ---- operators -------------------------------------------------------------------------------------------------- */

static uint32_t add_op, unary_ops[3], sum_op, product_op, uniform_op;
static int has_operators; /* the device runs kernels; random numbers it has in any case */

static void find_operators(void) {
  MUST(hal_op_id("add.Tensor", &add_op));
  MUST(hal_op_id("neg", &unary_ops[0]));
  MUST(hal_op_id("abs", &unary_ops[1]));
  MUST(hal_op_id("sigmoid", &unary_ops[2]));
  MUST(hal_op_id("sum.dim_IntList", &sum_op));
  MUST(hal_op_id("mm", &product_op));
  MUST(hal_op_id("uniform", &uniform_op));
  has_operators = hal_op_dtypes(0, add_op) != 0;
}

/* Some rows of a vector. */
typedef struct part_s {
  int slot, first; /* in floats */
  int64_t sizes[2], strides[2];
  hal_tensor_t desc;
} part_t;

static void part_set(part_t *part, const run_t *run, int slot, int first, int rows) {
  *part = (part_t){.slot = slot, .first = first, .sizes = {rows, EDGE}, .strides = {EDGE, 1}};
  part->desc = (hal_tensor_t){.struct_size = sizeof part->desc,
                              .data = run->data[slot] + first,
                              .sizes = part->sizes,
                              .strides = part->strides,
                              .ndim = 2,
                              .dtype = HAL_FLOAT32};
}

static size_t bytes_of(const part_t *part) { return (size_t)(part->sizes[0] * part->sizes[1]) * sizeof(float); }

static int is_at(const part_t *a, const part_t *b) { return a->slot == b->slot && a->first == b->first; }

/* Whether parts of one size share memory. */
static int overlap(const part_t *a, const part_t *b) {
  return a->slot == b->slot && abs(a->first - b->first) < a->sizes[0] * EDGE;
}

static hal_value_t value_of(const part_t *part) { return (hal_value_t){.tag = HAL_VALUE_TENSOR, .u.t = &part->desc}; }

static void operate(const run_t *run, uint32_t op, const hal_value_t *args, uint32_t count, const part_t *result) {
  const hal_tensor_t *const results[] = {&result->desc};
  hal_draw_t draw = {.seed = 0};
  if (op == uniform_op)
    MUST(hal_generator_draw(run->generator, stream_of(run), (bytes_of(result) / sizeof(float) + 3) / 4, &draw));
  hal_op_call_t call = {.struct_size = sizeof call,
                        .arg_count = count,
                        .result_count = 1,
                        .args = args,
                        .results = results,
                        .seed = draw.seed,
                        .offset = draw.offset,
                        .random_state = draw.random_state};
  MUST(hal_op_run(0, op, stream_of(run), &call));
}

static void add(const run_t *run, const part_t *a, const part_t *b, double number, const part_t *result) {
  const hal_value_t args[] = {value_of(a), value_of(b), {.tag = HAL_VALUE_DOUBLE, .u.d = number}};
  operate(run, add_op, args, 3, result);
}

static void fill(const run_t *run, const part_t *part, float number) {
  MUST(hal_memory_fill(stream_of(run), 0, part->desc.data, &number, sizeof number, bytes_of(part)));
}

static void copy(const run_t *run, const part_t *from, const part_t *to) {
  MUST(hal_memory_copy(stream_of(run), to->desc.data, 0, from->desc.data, 0, bytes_of(from)));
}

/* ---- commands --------------------------------------------------------------------------------------------------- */

static const uint8_t *script; /* a byte for each choice, the next of which `state` numbers */
static size_t script_size;

static uint32_t below(uint64_t *state, uint32_t bound) {
  if (!script) return (uint32_t)(timed_random(state) >> 33) % bound;
  return *state < script_size ? script[(*state)++] % bound : 0;
}

/* The left halves of the rows of `from` into those of `to`, which it does not overlap. */
static void copy_columns(const run_t *run, const part_t *from, const part_t *to) {
  const hal_copy_2d_t desc = {.struct_size = sizeof desc,
                              .dst = to->desc.data,
                              .src = from->desc.data,
                              .dst_pitch = EDGE * sizeof(float),
                              .src_pitch = EDGE * sizeof(float),
                              .width = EDGE / 2 * sizeof(float),
                              .height = (size_t)from->sizes[0]};
  MUST(hal_memory_copy_2d(stream_of(run), &desc));
}

/* A block is replaced by another one, all of which is written before it is read. */
static void replace(run_t *run, int slot, uint64_t *state) {
  static const int sizes[] = {FLOATS, FLOATS, 2 * FLOATS, 40 * FLOATS, 900 * FLOATS};
  const size_t size = (size_t)sizes[below(state, 5)] * sizeof(float);
  part_t part, source;
  if (run->blocks[slot] && below(state, 2))
    for (int i = 0; i < STREAMS; i++) MUST(hal_memory_record_stream(run->blocks[slot], run->streams[i]));
  else if (run->blocks[slot])
    MUST(hal_memory_record_stream(run->blocks[slot], stream_of(run)));
  hal_memory_release(run->blocks[slot]);
  MUST(hal_memory_allocate(0, stream_of(run), size, &run->blocks[slot]));
  run->data[slot] = hal_memory_block_address(run->blocks[slot]);
  part_set(&part, run, slot, 0, PIECES * EDGE);
  part_set(&source, run, (int)below(state, VECTORS), 0, PIECES * EDGE);
  if (below(state, 2))
    fill(run, &part, 0.25f);
  else if (has_operators)
    add(run, &source, &source, -0.5, &part);
  else
    copy(run, &source, &part);
}

/* The other stream goes on, after this one. */
static void hop(run_t *run) {
  MUST(hal_event_record(run->event, stream_of(run)));
  run->current = (run->current + 1) % STREAMS;
  MUST(hal_stream_wait_event(stream_of(run), run->event));
}

static void read_part(run_t *run, const part_t *part) {
  uint32_t words[FLOATS];
  if (run->is_recorded) return;
  MUST(hal_memory_copy(stream_of(run), words, HAL_HOST, part->desc.data, 0, bytes_of(part)));
  MUST(hal_stream_synchronize(stream_of(run)));
  for (size_t i = 0; i < bytes_of(part) / sizeof(float); i++) {
    float number;
    memcpy(&number, &words[i], sizeof number);
    run->read = run->read * 31 + (number != number ? 1 : words[i]);
  }
}

static void do_nothing(void *data) { (void)data; }

/* Commands of the host that leave all values as they are. */
static void wait_or_query(const run_t *run, uint32_t which) {
  if (which == 0) MUST(hal_stream_host_call(stream_of(run), do_nothing, NULL));
  if (run->is_recorded) return;
  if (which == 1) MUST(hal_stream_synchronize(stream_of(run)));
  if (which == 2) MUST(hal_memory_empty_cache(0));
  if (which == 3 && hal_stream_query(stream_of(run)) != HAL_NOT_READY) MUST(hal_stream_query(stream_of(run)));
}

static void operate_any(const run_t *run, uint32_t kind, const part_t *a, const part_t *b, const part_t *r) {
  const hal_value_t args[] = {value_of(a), value_of(b)};
  const int is_over = is_at(a, r) || is_at(b, r);
  if (kind < 6) {
    add(run, a, b, kind % 2 ? 0.25 : -0.5, r);
  } else if (kind < 9) {
    operate(run, unary_ops[kind - 6], args, 1, r);
  } else if (kind == 9 && !is_over && a->sizes[0] == EDGE) {
    operate(run, product_op, args, 2, r);
  } else if (kind == 10 && !is_over) {
    const int64_t last = 1;
    const hal_value_t of[] = {value_of(a), {.tag = HAL_VALUE_INT_LIST, .count = 1, .u.il = &last}};
    part_t sums = *r;
    sums.desc.sizes = sums.sizes, sums.desc.strides = sums.strides;
    sums.sizes[1] = sums.strides[0] = 1;
    operate(run, sum_op, of, 2, &sums);
  }
}

static void move_any(run_t *run, uint32_t kind, const part_t *a, const part_t *r, uint64_t *state) {
  const hal_value_t limits[] = {{.tag = HAL_VALUE_DOUBLE, .u.d = -1}, {.tag = HAL_VALUE_DOUBLE, .u.d = 1}};
  const uint32_t number = below(state, 8);
  switch (kind) {
    case 0:
    case 1:
      if (!overlap(a, r)) copy(run, a, r);
      break;
    case 2:
      fill(run, r, 0.125f * (float)number);
      break;
    case 3:
      if (!overlap(a, r)) copy_columns(run, a, r);
      break;
    case 4:
      MUST(hal_memory_copy(stream_of(run), r->desc.data, 0, uploads[number], HAL_HOST, bytes_of(r)));
      break;
    case 5:
      operate(run, uniform_op, limits, 2, r);
      break;
    case 6:
      if (number < 2) read_part(run, a);
      break;
    default:
      wait_or_query(run, number);
  }
}

static void part_any(part_t *part, const run_t *run, uint64_t *state, uint32_t pieces) {
  int slot = (int)below(state, SLOTS);
  if (!run->blocks[slot]) slot %= VECTORS;
  part_set(part, run, slot, (int)below(state, 2 * (PIECES - pieces) + 1) * PIECE / 2, (int)pieces * EDGE);
}

/* Runs the commands of a seed. At the end the first stream waits for the other, and the temporaries are released. */
static void run_commands(run_t *run, uint64_t seed) {
  uint64_t state = script ? 0 : seed * 7919 + 1;
  for (int i = 0; i < COMMANDS && !(script && state >= script_size); i++) {
    part_t a, b, r;
    const uint32_t what = below(&state, 16), pieces = 1 + below(&state, 3), kind = below(&state, 11);
    part_any(&a, run, &state, pieces), part_any(&b, run, &state, pieces), part_any(&r, run, &state, pieces);
    if (what == 0)
      hop(run);
    else if (what < 3)
      replace(run, VECTORS + (int)below(&state, TEMPORARIES), &state);
    else if (what < 10 && has_operators && (is_at(&a, &r) || !overlap(&a, &r)) && (is_at(&b, &r) || !overlap(&b, &r)))
      operate_any(run, kind, &a, &b, &r);
    else
      move_any(run, kind % 8, &a, &r, &state);
  }
  for (int slot = VECTORS; slot < SLOTS; slot++) {
    if (run->blocks[slot]) MUST(hal_memory_record_stream(run->blocks[slot], stream_of(run)));
    hal_memory_release(run->blocks[slot]);
    run->blocks[slot] = NULL;
  }
  if (run->current) hop(run);
}

#endif /* TEST_HAL_STRESS_RANDOM_PROGRAM_H_ */
