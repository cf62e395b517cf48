/* threads.c: many threads use the HAL at once, for the thread sanitizer: first use of plugin and devices, pools of
 * streams, generators, events, kernels, messages, log. A plain program, since Criterion cannot run under that
 * sanitizer. Each thread checks its results; the exit status is the number of errors. */
#define _POSIX_C_SOURCE 200809L
#include <hal/hal.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "checks.h"

enum { THREADS = 8, ROUNDS = 200, BLOCKS = 3 };

static pthread_barrier_t start;
static atomic_ullong blocks_seen; /* sum of the reserved offsets */

static void use_streams(int32_t device, int round) {
  hal_stream_t *stream, *current, *found;
  hal_event_t *first, *second;
  int64_t ns = -1;
  CHECK_OK(hal_stream_acquire(device, round % 2 ? -1 : 0, &stream));
  CHECK_OK(hal_stream_from_id(device, hal_stream_id(stream), &found));
  CHECK(found == stream);
  CHECK_OK(hal_stream_set_current(stream, NULL));
  CHECK_OK(hal_stream_current(device, &current));
  CHECK(current == stream);
  CHECK_OK(hal_event_create(device, HAL_EVENT_TIMING, &first));
  CHECK_OK(hal_event_create(device, HAL_EVENT_TIMING, &second));
  CHECK_OK(hal_event_record(first, NULL));
  CHECK_OK(hal_event_record(second, stream));
  CHECK_OK(hal_event_elapsed(first, second, &ns));
  CHECK(ns >= 0);
  CHECK_OK(hal_stream_wait_event(stream, first));
  CHECK_OK(hal_stream_query(stream));
  hal_event_destroy(first);
  hal_event_destroy(second);
}

static void use_generator(int32_t device) {
  hal_generator_t *generator;
  uint64_t seed, offset;
  CHECK_OK(hal_generator_default(device, &generator));
  hal_generator_reserve(generator, BLOCKS, &seed, &offset);
  CHECK(seed == HAL_DEFAULT_SEED);
  CHECK(offset % BLOCKS == 0);
  if (device == 0) atomic_fetch_add(&blocks_seen, offset);
}

static void *work(void *argument) {
  const int number = (int)(intptr_t)argument;
  pthread_barrier_wait(&start);
  for (int round = 0; round < ROUNDS; round++) {
    const int32_t device = (number + round) % hal_device_count();
    char wanted[64];
    CHECK_OK(hal_device_set_current(device));
    use_streams(device, round);
    use_generator(device);
    CHECK_OK(hal_device_synchronize(device));
    CHECK(hal_device_ensure(1000 + number) == HAL_OUT_OF_RANGE);
    snprintf(wanted, sizeof wanted, "device %d is out of range", 1000 + number);
    CHECK(strstr(hal_error_message(), wanted) != NULL);
    CHECK(hal_device_current() == device);
  }
  return NULL;
}

int main(void) {
  pthread_t threads[THREADS];
  hal_generator_t *generator;
  CHECK_OK(hal_registry_open(FIXTURE_DIR "/libhal_tally.so," FIXTURE_DIR "/libhal_five.so"));
  CHECK(hal_device_count() == 4);
  if (atomic_load(&mistakes)) return 1;
  pthread_barrier_init(&start, NULL, THREADS);
  for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, work, (void *)(intptr_t)i);
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  /* Each block was reserved once: the offsets 0, 3, 6, ... of device 0. */
  CHECK_OK(hal_generator_default(0, &generator));
  const uint64_t end = hal_generator_offset(generator), uses = end / BLOCKS;
  CHECK(uses == (uint64_t)THREADS * ROUNDS / 4);
  CHECK(atomic_load(&blocks_seen) == (uint64_t)BLOCKS * uses * (uses - 1) / 2);
  hal_registry_close();
  printf("%d threads, %d rounds: %d mistakes\n", THREADS, ROUNDS, atomic_load(&mistakes));
  return atomic_load(&mistakes);
}
