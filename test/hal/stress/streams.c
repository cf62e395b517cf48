/* streams.c: threads with a stream each wait for the events of each other, for the thread and the address sanitizer. In
 * each round a thread fills its block, and copies the block of the next thread when its event allows it. Runs on all
 * devices of the fake plugin, or of the plugin named by the argument; exits with 77 where that has no device. */
#define _POSIX_C_SOURCE 200809L
#include <hal/hal.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "checks.h"

enum { THREADS = 4, ROUNDS = 100, BYTES = 5000, SHIFT = 3, SKIPPED = 77 };

typedef struct user_s {
  int number;
  int32_t device;
  hal_stream_t *stream;
  hal_event_t *filled, *copied;
  hal_block_t *block, *other;
  unsigned char *pinned;
  atomic_int calls;
} user_t;

static user_t users[THREADS];
static pthread_barrier_t barrier;

static unsigned char byte_of(int number, int round) { return (unsigned char)(7 * round + number); }

static void count(void *user) { atomic_fetch_add(&((user_t *)user)->calls, 1); }

static void create(user_t *user) {
  const int32_t device = user->device;
  CHECK_OK(hal_stream_acquire(device, 0, &user->stream));
  CHECK_OK(hal_event_create(device, HAL_EVENT_TIMING, &user->filled));
  CHECK_OK(hal_event_create(device, HAL_EVENT_TIMING, &user->copied));
  CHECK_OK(hal_memory_allocate(device, user->stream, BYTES, &user->block));
  CHECK_OK(hal_memory_allocate(device, user->stream, BYTES, &user->other));
  CHECK_OK(hal_host_allocate(device, BYTES, (void **)&user->pinned));
}

static void destroy(user_t *user) {
  CHECK_OK(hal_host_free(user->pinned));
  hal_memory_release(user->other);
  hal_memory_release(user->block);
  hal_event_destroy(user->copied);
  hal_event_destroy(user->filled);
}

/* Queries events while their threads record them. */
static void query_all(void) {
  for (int i = 0; i < THREADS; i++) {
    const hal_status_t status = hal_event_query(users[i].filled);
    CHECK(status == HAL_OK || status == HAL_NOT_READY);
  }
}

static void check_copy(const user_t *user, const user_t *next, int round) {
  const unsigned char own = byte_of(user->number, round), expected = byte_of(next->number, round);
  for (int i = 0; i < BYTES; i++)
    if (user->pinned[i] != (i < SHIFT ? own : expected)) {
      fprintf(stderr, "thread %d, round %d: byte %d is %d\n", user->number, round, i, user->pinned[i]);
      atomic_fetch_add(&mistakes, 1);
      return;
    }
}

static void run_round(user_t *user, user_t *next, int round) {
  const unsigned char byte = byte_of(user->number, round);
  char *const block = hal_memory_block_address(user->block), *const other = hal_memory_block_address(user->other);
  int64_t ns = -1;
  CHECK_OK(hal_memory_fill(user->stream, user->device, block, &byte, 1, BYTES));
  CHECK_OK(hal_event_record(user->filled, user->stream));
  query_all();
  pthread_barrier_wait(&barrier); /* all events of the round are recorded */
  CHECK_OK(hal_stream_wait_event(user->stream, next->filled));
  CHECK_OK(hal_memory_copy(user->stream, other, user->device, block, user->device, SHIFT));
  CHECK_OK(hal_memory_copy(user->stream, other + SHIFT, user->device,
                           (char *)hal_memory_block_address(next->block) + SHIFT, next->device, BYTES - SHIFT));
  CHECK_OK(hal_memory_copy(user->stream, user->pinned, HAL_HOST, other, user->device, BYTES));
  CHECK_OK(hal_stream_host_call(user->stream, count, user));
  CHECK_OK(hal_event_record(user->copied, user->stream));
  if (round % 3 == 0) CHECK_OK(hal_stream_synchronize(user->stream));
  CHECK_OK(hal_event_synchronize(user->copied));
  CHECK(atomic_load(&user->calls) == round + 1);
  CHECK_OK(hal_event_elapsed(user->filled, user->copied, &ns));
  CHECK(ns >= 0);
  check_copy(user, next, round);
  pthread_barrier_wait(&barrier); /* all copies of the round are done */
}

static void *work(void *argument) {
  user_t *const user = argument, *const next = &users[(user->number + 1) % THREADS];
  create(user);
  pthread_barrier_wait(&barrier);
  for (int round = 0; round < ROUNDS; round++) run_round(user, next, round);
  destroy(user);
  return NULL;
}

int main(int argc, char **argv) {
  pthread_t threads[THREADS];
  hal_registry_add_path(PLUGIN_DIR);
  const hal_status_t opened = hal_registry_open(argc > 1 ? argv[1] : "fake");
  const int devices = hal_device_count();
  if (opened || !devices) {
    fprintf(stderr, "%s\n", hal_error_message());
    return argc > 1 || !KERNEL_PLUGIN_EXISTS ? SKIPPED : 1;
  }
  pthread_barrier_init(&barrier, NULL, THREADS);
  for (int i = 0; i < THREADS; i++) {
    users[i].number = i;
    users[i].device = i / 2 % devices;
    if (pthread_create(&threads[i], NULL, work, &users[i])) return 1;
  }
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  hal_registry_close();
  printf("%d threads, %d rounds, %d devices: %d mistakes\n", THREADS, ROUNDS, devices, atomic_load(&mistakes));
  return atomic_load(&mistakes) != 0;
}
