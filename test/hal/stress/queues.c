/* queues.c: threads acquire and release the queue of a stream while others use the stream, for the thread and the
 * address sanitizer. A queue that a thread holds must remain valid when its recording ends. One thread owns each
 * recording and compares its own results; work that other threads record by accident writes to memory that is not
 * read. Runs on the plugin of five functions, or the plugin named by the argument. */
#define _POSIX_C_SOURCE 200809L
#include <hal/hal.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checks.h"

enum { USERS = 3, ROUNDS = 600, BYTES = 4096 };

static atomic_int running;
static hal_stream_t *captured, *lazy;

static void *block_of(hal_stream_t *stream, hal_block_t **block) {
  CHECK_OK(hal_memory_allocate(0, stream, BYTES, block));
  return hal_memory_block_address(*block);
}

static void check_bytes(const void *address, uint8_t expected) {
  uint8_t bytes[BYTES];
  CHECK_OK(hal_memory_copy(NULL, bytes, HAL_HOST, address, 0, BYTES));
  CHECK_OK(hal_stream_synchronize(NULL));
  for (size_t i = 0; i < BYTES; i++)
    if (bytes[i] != expected) {
      fprintf(stderr, "byte %zu is %d instead of %d\n", i, bytes[i], expected);
      atomic_fetch_add(&mistakes, 1);
      return;
    }
}

/* Records and destroys programs. Work of other threads may invalidate one, which then does not run. */
static void *capture(void *unused) {
  hal_block_t *block;
  hal_stream_t *other;
  (void)unused;
  void *const address = block_of(NULL, &block);
  CHECK_OK(hal_stream_acquire(0, 0, &other));
  for (int round = 0; round < ROUNDS; round++) {
    hal_program_t *program;
    const uint8_t byte = (uint8_t)round;
    CHECK_OK(hal_program_begin(captured, NULL, &program));
    const hal_status_t filled = hal_memory_fill(captured, 0, address, &byte, 1, BYTES);
    const hal_status_t ended = hal_program_end(program);
    if (!filled && !ended) {
      CHECK_OK(hal_program_run(program, other));
      CHECK_OK(hal_stream_synchronize(other));
      check_bytes(address, byte);
    }
    hal_program_destroy(program);
  }
  hal_memory_release(block);
  atomic_fetch_sub(&running, 1);
  return NULL;
}

static void *defer(void *unused) {
  hal_block_t *block;
  (void)unused;
  void *const address = block_of(NULL, &block);
  for (int round = 0; round < ROUNDS; round++) {
    hal_lazy_t *recording;
    const uint8_t byte = (uint8_t)round;
    CHECK_OK(hal_lazy_begin(lazy, NULL, &recording));
    CHECK_OK(hal_memory_fill(lazy, 0, address, &byte, 1, BYTES));
    CHECK_OK(hal_lazy_end(recording));
    CHECK_OK(hal_stream_synchronize(lazy));
    check_bytes(address, byte);
  }
  hal_memory_release(block);
  atomic_fetch_sub(&running, 1);
  return NULL;
}

/* The errors of calls that a recording refuses, and of work after its end. */
static void may_fail(hal_status_t status) { (void)status; }

/* Uses both streams in all ways that acquire a queue. A program that is recorded meanwhile may refuse some of it. */
static void *use(void *seed) {
  hal_event_t *event;
  hal_stream_t *const streams[] = {captured, lazy};
  const uint8_t byte = 0xEE;
  CHECK_OK(hal_event_create(0, 0, &event));
  for (unsigned turn = (unsigned)(uintptr_t)seed; atomic_load(&running); turn++) {
    hal_stream_t *const stream = streams[turn / 7 % 2];
    hal_block_t *block;
    switch (turn % 7) {
      case 0:
        if (stream == lazy) CHECK_OK(hal_stream_synchronize(stream));
        break;
      case 1:
        (void)hal_stream_is_recorded(stream);
        break;
      case 2:
        CHECK_OK(hal_memory_empty_cache(0));
        break;
      case 3:
        CHECK_OK(hal_device_synchronize(0));
        break;
      case 4:
        may_fail(hal_event_record(event, stream));
        may_fail(hal_event_query(event));
        break;
      case 5:
        if (hal_memory_allocate(0, NULL, BYTES, &block)) break;
        if (stream == lazy) may_fail(hal_memory_fill(stream, 0, hal_memory_block_address(block), &byte, 1, BYTES));
        if (stream == lazy) CHECK_OK(hal_memory_record_stream(block, stream));
        hal_memory_release(block);
        break;
      default:
        may_fail(hal_stream_query(stream));
    }
  }
  hal_event_destroy(event);
  return NULL;
}

int main(int argc, char **argv) {
  pthread_t owners[2], users[USERS];
  if (hal_registry_open(argc > 1 ? argv[1] : FIXTURE_DIR "/libhal_five.so")) {
    fprintf(stderr, "%s\n", hal_error_message());
    return 1;
  }
  CHECK_OK(hal_stream_acquire(0, 0, &captured));
  CHECK_OK(hal_stream_acquire(0, 0, &lazy));
  atomic_store(&running, 2);
  CHECK(!pthread_create(&owners[0], NULL, capture, NULL) && !pthread_create(&owners[1], NULL, defer, NULL));
  for (uintptr_t i = 0; i < USERS; i++) CHECK(!pthread_create(&users[i], NULL, use, (void *)(i * 5)));
  for (int i = 0; i < 2; i++) pthread_join(owners[i], NULL);
  for (int i = 0; i < USERS; i++) pthread_join(users[i], NULL);
  hal_registry_close();
  printf("%d mistakes\n", atomic_load(&mistakes));
  return atomic_load(&mistakes) != 0;
}
