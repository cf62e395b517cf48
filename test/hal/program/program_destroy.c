/* program_destroy.c: programs that are destroyed, or run, while other programs record streams that they used. */
#include <semaphore.h>

#include "../op/op_numbers.h"
#include "hal/host_memory.h"
#include "hal/lazy.h"
#include "support.h"

TestSuite(program_destroy, .init = open_device, .timeout = 240);

enum { COUNT = 1000, BYTES = COUNT * sizeof(float) };

static hal_stream_t *new_stream(void) {
  hal_stream_t *stream;
  must(hal_stream_acquire(0, 0, &stream));
  return stream;
}

static tensor_t *floats(float value) {
  const int64_t count = COUNT;
  tensor_t *const t = tensor_new(HAL_FLOAT32, 1, &count, CONTIGUOUS);
  for (int i = 0; i < COUNT; i++) ((float *)(void *)t->host)[i] = value;
  tensor_upload(t);
  return t;
}

static float first(tensor_t *t) {
  tensor_download(t);
  return ((float *)(void *)t->host)[0];
}

/* result = a + b */
static void add(hal_stream_t *stream, const tensor_t *a, const tensor_t *b, const tensor_t *result) {
  const hal_value_t args[] = {of_tensor(a), of_tensor(b), of_double(1)};
  const hal_tensor_t *const results[] = {&result->desc};
  uint32_t op;
  must(hal_op_id("add.Tensor", &op));
  hal_op_call_t call = {
      .struct_size = sizeof call, .arg_count = 3, .result_count = 1, .args = args, .results = results};
  must(hal_op_run(0, op, stream, &call));
}

/* A program that adds a to r, with its own block. */
static hal_program_t *recorded(hal_stream_t *stream, const tensor_t *a, const tensor_t *r, void **out_memory) {
  hal_program_t *program;
  hal_block_t *block;
  must(hal_stream_synchronize(NULL));
  must(hal_program_begin(stream, NULL, &program));
  must(hal_memory_allocate(0, stream, BYTES, &block));
  if (out_memory) *out_memory = hal_memory_block_address(block);
  hal_memory_release(block);
  add(stream, r, a, r);
  must(hal_program_end(program));
  return program;
}

/* Keeps a stream busy until the gate is opened. */
static void wait_at(void *gate) { sem_wait(gate); }
static void block_stream(hal_stream_t *stream, sem_t *gate) {
  sem_init(gate, 0, 0);
  must(hal_stream_host_call(stream, wait_at, gate));
}

typedef struct scene_s {
  hal_stream_t *one, *two, *three;
  tensor_t *a, *r, *other;
  hal_program_t *old, *fresh;
  void *memory;
  sem_t gate;
} scene_t;

/* An old program, recorded on stream one, whose last run on stream two has not ended. */
static scene_t *run_old(void) {
  static scene_t scene;
  scene = (scene_t){.one = new_stream(), .two = new_stream(), .three = new_stream()};
  scene.a = floats(1), scene.r = floats(0), scene.other = floats(0);
  scene.old = recorded(scene.one, scene.a, scene.r, &scene.memory);
  must(hal_program_run(scene.old, scene.one));
  must(hal_program_run(scene.old, scene.one));
  block_stream(scene.two, &scene.gate);
  must(hal_program_run(scene.old, scene.two));
  return &scene;
}

/* Ends the new recording, opens the gate, runs the new program on a stream, and checks both results. */
static void finish(scene_t *scene, hal_stream_t *stream) {
  must(hal_program_end(scene->fresh));
  sem_post(&scene->gate);
  must(hal_program_run(scene->fresh, stream));
  must(hal_device_synchronize(0));
  cr_expect_eq(first(scene->r), 3);
  cr_expect_eq(first(scene->other), 1);
  hal_program_destroy(scene->fresh);
  tensor_free(scene->a), tensor_free(scene->r), tensor_free(scene->other);
}

static hal_program_info_t info_of(const hal_program_t *program) {
  hal_program_info_t info = {.struct_size = sizeof info};
  must(hal_program_info(program, &info));
  return info;
}

Test(program_destroy, the_stream_of_an_old_program_is_recorded_by_another) {
  scene_t *const scene = run_old();
  must(hal_program_begin(scene->one, NULL, &scene->fresh));
  hal_program_destroy(scene->old);
  cr_expect_not(info_of(scene->fresh).invalidated);
  add(scene->one, scene->a, scene->other, scene->other);
  finish(scene, scene->three);
}

Test(program_destroy, the_stream_of_the_last_run_is_recorded_by_another) {
  scene_t *const scene = run_old();
  must(hal_program_begin(scene->two, NULL, &scene->fresh));
  hal_program_destroy(scene->old);
  cr_expect_null(hal_program_of_stream(scene->one), "the stream joined a recording that is not its own");
  add(scene->two, scene->a, scene->other, scene->other);
  cr_expect_eq(info_of(scene->fresh).commands, 1);
  finish(scene, scene->two);
}

Test(program_destroy, during_its_own_recording_after_a_run_of_an_older_one) {
  scene_t *const scene = run_old();
  hal_program_t *unfinished;
  must(hal_program_begin(scene->one, NULL, &scene->fresh));
  must(hal_program_begin(scene->three, NULL, &unfinished));
  hal_program_destroy(unfinished);
  hal_program_destroy(scene->old);
  add(scene->one, scene->a, scene->other, scene->other);
  finish(scene, scene->one);
}

Test(program_destroy, a_run_follows_the_last_one_whose_stream_is_recorded) {
  scene_t *const scene = run_old();
  must(hal_program_begin(scene->two, NULL, &scene->fresh));
  must(hal_program_run(scene->old, scene->three));
  cr_expect_null(hal_program_of_stream(scene->three), "the stream joined a recording that is not its own");
  cr_expect_eq(hal_stream_query(scene->three), HAL_NOT_READY, "the run did not wait for the one before it");
  add(scene->two, scene->a, scene->other, scene->other);
  sem_post(&scene->gate);
  must(hal_stream_synchronize(scene->three));
  cr_expect_eq(first(scene->r), 4);
  must(hal_program_end(scene->fresh));
  hal_program_destroy(scene->fresh), hal_program_destroy(scene->old);
}

/* Returns whether an allocation of the stream reuses the old program's memory. */
static int gets_memory(scene_t *scene, hal_stream_t *stream) {
  hal_block_t *block;
  must(hal_memory_allocate(0, stream, BYTES, &block));
  const int same = hal_memory_block_address(block) == scene->memory;
  hal_memory_release(block);
  return same;
}

static int64_t reserved(void) {
  hal_memory_stats_t stats = {.struct_size = sizeof stats};
  must(hal_memory_empty_cache(0));
  must(hal_memory_stats(0, &stats));
  return stats.reserved_bytes[HAL_POOL_ALL].current;
}

Test(program_destroy, the_memory_returns_after_the_last_run_and_not_before) {
  scene_t *const scene = run_old();
  hal_program_destroy(scene->old);
  cr_expect_not(gets_memory(scene, scene->one), "a queued run still uses the memory");
  sem_post(&scene->gate);
  must(hal_device_synchronize(0));
  const int64_t before = reserved();
  for (int i = 0; i < 3; i++) {
    hal_program_t *const again = recorded(scene->one, scene->a, scene->r, NULL);
    for (int run = 0; run < i; run++) must(hal_program_run(again, scene->two));
    hal_program_destroy(again);
  }
  must(hal_device_synchronize(0));
  cr_expect_eq(reserved(), before);
  cr_expect_eq(first(scene->r), 6);
}

/* Memory that a joined stream allocated in the recording. */
Test(program_destroy, the_memory_of_a_joined_stream_returns_after_the_last_run) {
  hal_stream_t *const one = new_stream(), *const side = new_stream(), *const two = new_stream();
  hal_program_t *program;
  hal_event_t *fork;
  hal_block_t *block;
  sem_t gate;
  must(hal_event_create(0, 0, &fork));
  must(hal_program_begin(one, NULL, &program));
  must(hal_event_record(fork, one));
  must(hal_stream_wait_event(side, fork));
  must(hal_memory_allocate(0, side, BYTES, &block));
  void *const memory = hal_memory_block_address(block);
  const uint32_t word = 7;
  must(hal_memory_fill(side, 0, memory, &word, sizeof word, BYTES));
  hal_memory_release(block);
  must(hal_program_end(program));
  block_stream(two, &gate);
  must(hal_program_run(program, two));
  hal_program_destroy(program);
  must(hal_memory_allocate(0, side, BYTES, &block));
  cr_expect_neq(hal_memory_block_address(block), memory, "a queued run still writes to the memory");
  sem_post(&gate);
  must(hal_device_synchronize(0));
  hal_memory_release(block);
  hal_event_destroy(fork);
}
