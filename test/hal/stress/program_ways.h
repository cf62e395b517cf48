/* program_ways.h: runs a random program in three ways, which must have the same results: directly, deferred, and
 * recorded and run again. */
#ifndef TEST_HAL_STRESS_PROGRAM_WAYS_H_
#define TEST_HAL_STRESS_PROGRAM_WAYS_H_

#include <hal/lazy.h>
#include <hal/program.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "random_program.h"

/* ---- three ways to run a program -------------------------------------------------------------------------------- */

static void run_directly(run_t *run, uint64_t seed, int rounds) {
  for (int round = 0; round < rounds; round++) run_commands(run, seed);
}

static uint64_t groups; /* of commands that ran as one kernel, in all programs */

/* Defers the work of one stream or of both, in small and large pieces. Repeated work is replayed by schedules. */
static void run_lazily(run_t *run, uint64_t seed, int rounds) {
  static const uint32_t pieces[] = {0, 1, 7, UINT32_MAX};
  const hal_lazy_desc_t desc = {
      .struct_size = sizeof desc, .flags = seed % 5 == 4 ? HAL_LAZY_PLAIN : 0, .piece = pieces[seed / 5 % 4]};
  hal_lazy_t *lazy[STREAMS] = {NULL};
  for (int i = 0; i < (seed % 3 ? STREAMS : 1); i++) MUST(hal_lazy_begin(run->streams[i], &desc, &lazy[i]));
  for (int round = 0; round < rounds; round++) {
    run_commands(run, seed);
    for (int i = 0; seed % 2 && i < STREAMS; i++)
      if (lazy[i]) MUST(hal_lazy_flush(lazy[i]));
  }
  for (int i = 0; i < STREAMS; i++) {
    hal_lazy_info_t info = {.struct_size = sizeof info};
    if (lazy[i]) MUST(hal_lazy_info(lazy[i], &info));
    groups += info.groups;
    MUST(hal_lazy_end(lazy[i]));
  }
}

static void run_recorded(run_t *run, uint64_t seed, int rounds) {
  const hal_program_desc_t desc = {.struct_size = sizeof desc, .flags = (uint32_t)(seed / 2 % 4)};
  hal_program_t *program;
  run->is_recorded = 1;
  MUST(hal_program_begin(run->streams[0], &desc, &program));
  run_commands(run, seed);
  MUST(hal_program_end(program));
  for (int round = 0; round < rounds; round++) MUST(hal_program_run(program, run->streams[seed % STREAMS]));
  MUST(hal_stream_synchronize(run->streams[seed % STREAMS]));
  hal_program_destroy(program);
}

/* ---- comparison ------------------------------------------------------------------------------------------------- */

typedef void (*way_t)(run_t *run, uint64_t seed, int rounds);

/* What a program leaves in its vectors, and a sum of what it has read meanwhile. */
typedef struct result_s {
  float value[VECTORS][FLOATS];
  uint64_t read;
} result_t;

static result_t result_of(way_t way, uint64_t seed, int rounds) {
  static result_t result;
  run_t run;
  run_begin(&run);
  way(&run, seed, rounds);
  result.read = run.read;
  run_end(&run, result.value);
  return result;
}

static int is_same(float a, float b) { return !memcmp(&a, &b, sizeof a) || (isnan(a) && isnan(b)); }

static int differs(uint64_t seed, const char *name, const result_t *expected, const result_t *found) {
  for (int v = 0; v < VECTORS; v++)
    for (int i = 0; i < FLOATS; i++)
      if (!is_same(expected->value[v][i], found->value[v][i])) {
        fprintf(stderr, "seed %llu, %s: vector %d, element %d is %g instead of %g\n", (unsigned long long)seed, name, v,
                i, (double)found->value[v][i], (double)expected->value[v][i]);
        return 1;
      }
  return 0;
}

static int check(uint64_t seed) {
  static result_t expected, found;
  const int rounds = 1 + (int)(seed % 4);
  expected = result_of(run_directly, seed, rounds);
  found = result_of(run_lazily, seed, rounds);
  int mistakes = differs(seed, "deferred", &expected, &found);
  if (expected.read != found.read) {
    fprintf(stderr, "seed %llu: deferred work has read other values\n", (unsigned long long)seed);
    mistakes++;
  }
  found = result_of(run_recorded, seed, rounds);
  return mistakes + differs(seed, "recorded", &expected, &found);
}

#endif /* TEST_HAL_STRESS_PROGRAM_WAYS_H_ */
