/* lazy_repeated.c: a repeated step of lazy work has the same groups, wherever the allocator places its memory, and
 * the results of eager work; on the device that HAL_TEST_PLUGIN names, asynchronous or not. */
#include <math.h>

#include "lazy_testing.h"

enum { LIVE = 12, COMMANDS = 200, STEPS = 7, BALLAST = 24, SIDES = 6 };

static void open_inline(void) {
  setenv("HAL_FAKE_ASYNC", "0", 1);
  open_device();
}

static void open_asynchronous(void) {
  setenv("HAL_FAKE_ASYNC", "1", 1);
  setenv("HAL_FAKE_DELAY", "30", 1); /* maximum in microseconds: the device is idle at other points in each step */
  open_device();
}

TestSuite(lazy_repeated, .timeout = 240);

/* ---- a step ---- */

/* A square matrix in its own block. */
typedef struct matrix_s {
  int64_t sizes[2], strides[2];
  hal_block_t *block;
  hal_tensor_t desc;
} matrix_t;

static uint32_t below(uint64_t *state, uint32_t bound) { return next_random(state) % bound; }

static size_t bytes_of(const matrix_t *m) { return (size_t)(m->sizes[0] * m->sizes[1]) * sizeof(float); }

/* From less than a granule of the allocator to more than the largest small block. */
static matrix_t make(uint32_t kind) {
  static const int64_t sides[SIDES] = {8, 16, 24, 40, 100, 520};
  matrix_t m = {.sizes = {sides[kind], sides[kind]}, .strides = {sides[kind], 1}};
  must(hal_memory_allocate(0, NULL, bytes_of(&m), &m.block));
  m.desc = (hal_tensor_t){
      .struct_size = sizeof m.desc, .data = hal_memory_block_address(m.block), .ndim = 2, .dtype = HAL_FLOAT32};
  return m;
}

static hal_value_t value_of(matrix_t *m) {
  m->desc.sizes = m->sizes;
  m->desc.strides = m->strides;
  return (hal_value_t){.tag = HAL_VALUE_TENSOR, .u.t = &m->desc};
}

static void fill(const matrix_t *m, float number) {
  must(hal_memory_fill(NULL, 0, m->desc.data, &number, sizeof number, bytes_of(m)));
}

/* One operator on matrices of one size. Values stay bounded. */
static void compute(uint64_t *state, matrix_t *a, matrix_t *b, matrix_t *result) {
  static const char *const unary_names[] = {"sigmoid", "neg", "abs", "cos"};
  const uint32_t which = below(state, 8);
  const hal_value_t args[] = {value_of(a), value_of(b), of_double(-0.5)};
  value_of(result);
  if (which < 4)
    must(queue(unary_names[which], args, 1, &result->desc));
  else if (which < 7 || result->desc.data == a->desc.data || result->desc.data == b->desc.data || a->sizes[0] > 100)
    must(queue("add.Tensor", args, 3, &result->desc));
  else
    must(queue("mm", args, 2, &result->desc));
}

/* The matrices that a step reads at its beginning, one for each size, and those that exist at its end. */
typedef struct step_s {
  matrix_t first[SIDES], live[LIVE];
  uint32_t kind[LIVE];
} step_t;

static matrix_t *any_of(step_t *step, uint64_t *state, uint32_t kind) {
  const uint32_t at = below(state, LIVE);
  return step->live[at].block && step->kind[at] == kind ? &step->live[at] : &step->first[kind];
}

/* Runs the operators of a seed: some in place, most with new results, in blocks that are released in between. */
static void run_step(step_t *step, uint64_t seed) {
  uint64_t state = seed * 7919 + 1;
  for (uint32_t i = 0; i < LIVE; i++) { /* of the step before, like gradients */
    hal_memory_release(step->live[i].block);
    step->live[i].block = NULL;
  }
  for (uint32_t i = 0; i < COMMANDS; i++) {
    const uint32_t kind = below(&state, 16) ? below(&state, SIDES - 1) : SIDES - 1, at = below(&state, LIVE);
    matrix_t *const a = any_of(step, &state, kind), *const b = any_of(step, &state, kind);
    if (below(&state, 4) == 0 && a != &step->first[kind]) {
      compute(&state, a, b, a);
      continue;
    }
    matrix_t result = make(kind);
    compute(&state, a, b, &result);
    if (below(&state, 3) == 0) { /* its operands may be released first */
      hal_memory_release(result.block);
      continue;
    }
    hal_memory_release(step->live[at].block);
    step->live[at] = result;
    step->kind[at] = kind;
  }
}

static void begin_step(step_t *step) {
  *step = (step_t){.kind = {0}};
  for (uint32_t kind = 0; kind < SIDES; kind++) {
    step->first[kind] = make(kind);
    fill(&step->first[kind], 0.0625f * (float)(kind + 1));
  }
}

static void end_step(step_t *step) {
  for (uint32_t i = 0; i < LIVE; i++) hal_memory_release(step->live[i].block);
  for (uint32_t kind = 0; kind < SIDES; kind++) hal_memory_release(step->first[kind].block);
}

/* A number computed from the values of all matrices. */
static uint64_t read_step(const step_t *step) {
  static unsigned char host[520 * 520 * sizeof(float)];
  uint64_t sum = 0;
  for (uint32_t i = 0; i < LIVE; i++) {
    if (!step->live[i].block) continue;
    must(hal_memory_copy(NULL, host, HAL_HOST, step->live[i].desc.data, 0, bytes_of(&step->live[i])));
    must(hal_stream_synchronize(NULL));
    for (size_t k = 0; k < bytes_of(&step->live[i]); k++) sum = sum * 31 + host[k];
  }
  return sum;
}

/* ---- the addresses of its memory ---- */

/* Blocks that move later allocations to other addresses: some are released, others are allocated. */
static void move_places(hal_block_t *ballast[BALLAST], uint64_t *state) {
  for (uint32_t i = 0; i < BALLAST; i++) {
    if (below(state, 2)) continue;
    hal_memory_release(ballast[i]);
    must(hal_memory_allocate(0, NULL, 1 + below(state, below(state, 8) ? 6000 : 3 << 20), &ballast[i]));
  }
}

/* The increments of the counters that depend on a step's groups. */
static void count_step(hal_lazy_t *lazy, hal_lazy_info_t *before, uint64_t counts[6]) {
  const hal_lazy_info_t now = info_of(lazy);
  counts[0] = now.compiled - before->compiled;
  counts[1] = now.queued - before->queued;
  counts[2] = now.groups - before->groups;
  counts[3] = now.fused - before->fused;
  counts[4] = now.dropped - before->dropped;
  counts[5] = now.flushes - before->flushes;
  *before = now;
}

/* Repeats a step with its memory at changing addresses. */
static void repeat(uint64_t seed) {
  step_t step, eager;
  hal_block_t *ballast[BALLAST] = {NULL};
  uint64_t state = seed + 17, places = 0, last = 0, counts[STEPS][6];
  hal_lazy_info_t info = {.struct_size = 0};
  begin_step(&eager);
  for (int i = 0; i < 2; i++) run_step(&eager, seed);
  const uint64_t expected = read_step(&eager);
  end_step(&eager);
  begin_step(&step);
  must(hal_stream_synchronize(NULL));
  hal_lazy_t *const lazy = begin();
  for (int i = 0; i < STEPS; i++) {
    move_places(ballast, &state);
    run_step(&step, seed);
    must(hal_lazy_flush(lazy));
    count_step(lazy, &info, counts[i]);
    if (!compiles()) cr_assert_eq(read_step(&step), expected, "seed %d, step %d: other results", (int)seed, i);
    uint64_t place = 0;
    for (uint32_t k = 0; k < LIVE; k++) place = place * 31 + (uint64_t)(uintptr_t)step.live[k].desc.data;
    places += i > 0 && place != last;
    last = place;
  }
  must(hal_lazy_end(lazy));
  for (int i = 2; i < STEPS; i++)
    for (int k = 0; k < 6; k++)
      cr_assert_eq(counts[i][k], k ? counts[1][k] : 0, "seed %d, step %d: count %d is %d and was %d", (int)seed, i, k,
                   (int)counts[i][k], (int)counts[1][k]);
  cr_assert(places == STEPS - 1 && counts[1][2] > 5, "seed %d: the memory moved %d times, and there are %d groups",
            (int)seed, (int)places, (int)counts[1][2]);
  end_step(&step);
  for (uint32_t i = 0; i < BALLAST; i++) hal_memory_release(ballast[i]);
}

static void repeat_all(void) {
  const uint64_t seeds = compiles() ? 1 : 12;
  if (!fuses()) return;
  for (uint64_t seed = 0; seed < seeds; seed++) repeat(seed);
}

Test(lazy_repeated, a_repeated_step_has_the_same_groups_wherever_its_memory_lies, .init = open_inline) { repeat_all(); }

Test(lazy_repeated, also_on_an_asynchronous_device, .init = open_asynchronous) { repeat_all(); }

/* ---- memory that deferred work may use ---- */

static hal_memory_stats_t stats_now(void) {
  hal_memory_stats_t stats = {.struct_size = sizeof stats};
  must(hal_memory_stats(0, &stats));
  return stats;
}

static hal_block_t *block_of(size_t size) {
  hal_block_t *block;
  must(hal_memory_allocate(0, NULL, size, &block));
  return block;
}

/* Begins deferred work with one operator. */
static hal_lazy_t *begin_pending(const tensor_t *a) {
  hal_lazy_t *const lazy = begin();
  unary("neg", a, a);
  return lazy;
}

Test(lazy_repeated, while_work_is_deferred_released_memory_goes_to_requests_of_its_size, .init = open_inline) {
  tensor_t *const a = floats(1, 1);
  hal_lazy_t *const lazy = begin_pending(a);
  const hal_memory_stats_t before = stats_now();
  hal_block_t *const first = block_of(5000), *const second = block_of(5000);
  const char *const places[] = {hal_memory_block_address(first), hal_memory_block_address(second)};
  hal_memory_release(first);
  hal_memory_release(second);
  hal_block_t *const other = block_of(4000), *const same = block_of(4700), *const next = block_of(5000);
  const char *const place = hal_memory_block_address(other);
  cr_expect(place + 4000 <= places[0] || places[0] + 5120 <= place, "another rounded size");
  cr_expect(place + 4000 <= places[1] || places[1] + 5120 <= place, "another rounded size");
  cr_expect_eq(hal_memory_block_address(same), places[1], "the same rounded size, and the last one first");
  cr_expect_eq(hal_memory_block_address(next), places[0]);
  hal_memory_release(same);
  hal_memory_release(next);
  hal_memory_release(other);
  must(hal_lazy_flush(lazy));
  const hal_memory_stats_t after = stats_now();
  cr_expect_eq(after.allocation[HAL_POOL_ALL].current, before.allocation[HAL_POOL_ALL].current);
  cr_expect_eq(after.requested_bytes[HAL_POOL_ALL].current, before.requested_bytes[HAL_POOL_ALL].current);
  cr_expect_eq(after.inactive_split[HAL_POOL_ALL].current, before.inactive_split[HAL_POOL_ALL].current);
  cr_expect_eq(after.inactive_split_bytes[HAL_POOL_ALL].current, before.inactive_split_bytes[HAL_POOL_ALL].current);
  must(hal_lazy_end(lazy));
}

Test(lazy_repeated, held_memory_is_used_before_a_request_fails_and_given_back_on_request, .init = open_inline) {
  enum { MEGA = 1 << 20 };
  tensor_t *const a = floats(1, 1);
  hal_lazy_t *const lazy = begin_pending(a);
  must(hal_memory_set_limit(0, 64 * MEGA));
  for (int i = 0; i < 6; i++) { /* of changing sizes, as many as the limit allows at once */
    hal_block_t *const large = block_of((size_t)(40 + i) * MEGA);
    hal_memory_release(large);
  }
  must(hal_memory_empty_cache(0));
  cr_expect_eq(stats_now().reserved_bytes[HAL_POOL_LARGE].current, 0, "what is held is free for the device");
  cr_expect_eq(stats_now().inactive_split_bytes[HAL_POOL_LARGE].current, 0);
  must(hal_lazy_end(lazy));
  cr_expect_eq(at(a, 3), -4);
}
