/* threads.c: functions called from many threads at once. A thread records its findings; the case's own thread reports
 * them. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <sched.h>
#include <stdio.h>

#include "cts.h"
#include "hal/status.h"

enum { THREADS = 8, ROUNDS = 300, BLOCK = 20000, SIZE = 1 << 15, QUEUED = 60 };

typedef struct worker_s {
  cts_t *t;
  pthread_t thread;
  int number;
  hal_plugin_stream_t *stream;
  atomic_int *counter;
  char found[256];
} worker_t;

static pthread_barrier_t together;

/* Calls bypass the page, where only one thread at a time can record its call. */
#define CALL(worker, name, ...) hal_call_##name((worker)->t->plugin, __VA_ARGS__)
#define WORKER_OK(worker, name, ...)                                                                           \
  do {                                                                                                         \
    const hal_status_t status_ = CALL(worker, name, __VA_ARGS__);                                              \
    if (status_ && !(worker)->found[0])                                                                        \
      snprintf((worker)->found, sizeof(worker)->found, #name " returned %s: %.150s", hal_status_name(status_), \
               hal_error_message());                                                                           \
  } while (0)

static void run_all(cts_t *t, worker_t *workers, void *(*body)(void *)) {
  CTS_GENERAL(t, "may be called from any thread");
  if (pthread_barrier_init(&together, NULL, THREADS)) cts_fail(t, "error of the suite: no barrier");
  for (int i = 0; i < THREADS; i++) {
    workers[i].t = t, workers[i].number = i;
    if (pthread_create(&workers[i].thread, NULL, body, &workers[i]))
      cts_fail(t, "error of the suite: no thread can be made");
  }
  for (int i = 0; i < THREADS; i++) pthread_join(workers[i].thread, NULL);
  for (int i = 0; i < THREADS; i++)
    CTS_CHECK(t, !workers[i].found[0], "with %d threads at once: %s", THREADS, workers[i].found);
  CTS_GENERAL(t, "is thread-safe unless its comment excludes it");
}

/* Two threads that got the same memory see each other's bytes. */
static void *allocate(void *data) {
  worker_t *const worker = data;
  const int32_t device = worker->t->device;
  uint8_t *const bytes = malloc(BLOCK), *const got = malloc(BLOCK);
  pthread_barrier_wait(&together);
  for (int round = 0; bytes && got && round < ROUNDS && !worker->found[0]; round++) {
    void *ptr = NULL;
    WORKER_OK(worker, memory_alloc, device, BLOCK, 0, &ptr);
    if (worker->found[0]) break;
    cts_noise(bytes, BLOCK, (uint64_t)(worker->number * ROUNDS + round));
    for (int again = 0; again < 3; again++) {
      WORKER_OK(worker, memory_copy, NULL, ptr, device, bytes, HAL_HOST, BLOCK);
      sched_yield();
      WORKER_OK(worker, memory_copy, NULL, got, HAL_HOST, ptr, device, BLOCK);
      if (!worker->found[0] && memcmp(got, bytes, BLOCK))
        snprintf(worker->found, sizeof worker->found,
                 "memory that memory_alloc returned to one thread was written by another (%p)", ptr);
    }
    WORKER_OK(worker, memory_free, device, ptr);
  }
  free(bytes), free(got);
  return NULL;
}

void cts_case_threads_allocate(cts_t *t) {
  static worker_t workers[THREADS];
  run_all(t, workers, allocate);
}

static void count(void *data) { atomic_fetch_add((atomic_int *)data, 1); }

/* Each with its own stream and event. */
static void *use_stream(void *data) {
  worker_t *const worker = data;
  const int32_t device = worker->t->device;
  uint8_t *const bytes = malloc(SIZE), *const got = malloc(SIZE);
  void *a = NULL, *b = NULL;
  WORKER_OK(worker, memory_alloc, device, SIZE, 0, &a);
  WORKER_OK(worker, memory_alloc, device, SIZE, 0, &b);
  pthread_barrier_wait(&together);
  for (int round = 0; bytes && got && round < ROUNDS / 10 && !worker->found[0]; round++) {
    hal_plugin_stream_t *stream = NULL;
    hal_plugin_event_t *event = NULL;
    WORKER_OK(worker, stream_create, device, &(const hal_stream_desc_t)HAL_STREAM_DESC(0), &stream);
    WORKER_OK(worker, event_create, device, 0, &event);
    if (worker->found[0]) break;
    cts_noise(bytes, SIZE, (uint64_t)(worker->number * ROUNDS + round));
    WORKER_OK(worker, memory_copy, stream, a, device, bytes, HAL_HOST, SIZE);
    WORKER_OK(worker, memory_copy, stream, b, device, a, device, SIZE);
    WORKER_OK(worker, memory_copy, stream, got, HAL_HOST, b, device, SIZE);
    WORKER_OK(worker, event_record, event, stream);
    WORKER_OK(worker, event_synchronize, event);
    if (!worker->found[0] && memcmp(got, bytes, SIZE))
      snprintf(worker->found, sizeof worker->found, "a thread's stream produced wrong bytes");
    WORKER_OK(worker, stream_synchronize, stream);
    WORKER_OK(worker, event_destroy, event);
    WORKER_OK(worker, stream_destroy, stream);
  }
  WORKER_OK(worker, memory_free, device, a);
  WORKER_OK(worker, memory_free, device, b);
  free(bytes), free(got);
  return NULL;
}

void cts_case_threads_streams(cts_t *t) {
  static worker_t workers[THREADS];
  run_all(t, workers, use_stream);
}

static void *share_stream(void *data) {
  worker_t *const worker = data;
  pthread_barrier_wait(&together);
  for (int i = 0; i < QUEUED; i++) {
    WORKER_OK(worker, stream_host_call, worker->stream, count, worker->counter);
    if (i % 16 == 0) WORKER_OK(worker, stream_synchronize, worker->stream);
  }
  WORKER_OK(worker, stream_synchronize, worker->stream);
  return NULL;
}

void cts_case_threads_one_stream(cts_t *t) {
  static worker_t workers[THREADS];
  static atomic_int counter;
  hal_plugin_stream_t *const stream = cts_stream(t);
  for (int i = 0; i < THREADS; i++) workers[i].stream = stream, workers[i].counter = &counter;
  run_all(t, workers, share_stream);
  CTS_CHECK(t, atomic_load(&counter) == THREADS * QUEUED,
            "%d threads queued %d host functions in one stream, and %d ran", THREADS, THREADS * QUEUED,
            atomic_load(&counter));
}

/* ---- memory of all sizes, with bytes of its owner ---- */
enum { HELD = 6, STRESS_ROUNDS = 400, LARGEST = 1 << 18 };

typedef struct piece_s {
  uint8_t *memory;
  size_t size;
  uint64_t pattern;
} piece_t;

static void take_piece(worker_t *worker, piece_t *piece, uint64_t random) {
  void *ptr = NULL;
  piece->size = (random >> 20) % (random & 1 ? LARGEST : 3000) / 8 * 8 + 8;
  piece->pattern = random * UINT64_C(0x9e3779b97f4a7c15) + (uint64_t)worker->number;
  WORKER_OK(worker, memory_alloc, worker->t->device, piece->size, 0, &ptr);
  piece->memory = ptr;
  if (ptr && !worker->found[0])
    WORKER_OK(worker, memory_fill, NULL, worker->t->device, ptr, &piece->pattern, sizeof piece->pattern, piece->size);
}

/* Checks that the memory still has the bytes with which it was filled, and frees it. */
static void return_piece(worker_t *worker, piece_t *piece, uint64_t *got) {
  WORKER_OK(worker, memory_copy, NULL, got, HAL_HOST, piece->memory, worker->t->device, piece->size);
  for (size_t i = 0; i < piece->size / 8 && !worker->found[0]; i++)
    if (got[i] != piece->pattern)
      snprintf(worker->found, sizeof worker->found,
               "memory of %zu bytes was filled by one thread, and has other bytes from byte %zu on", piece->size,
               i * 8);
  WORKER_OK(worker, memory_free, worker->t->device, piece->memory);
  piece->memory = NULL;
}

static void *stress(void *data) {
  worker_t *const worker = data;
  piece_t pieces[HELD] = {{.memory = NULL}};
  uint64_t *const got = malloc(LARGEST + 8), random = (uint64_t)worker->number + 1;
  pthread_barrier_wait(&together);
  for (int round = 0; got && round < STRESS_ROUNDS && !worker->found[0]; round++) {
    random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    piece_t *const piece = &pieces[(random >> 33) % HELD];
    if (piece->memory)
      return_piece(worker, piece, got);
    else
      take_piece(worker, piece, random);
  }
  for (int i = 0; got && i < HELD; i++)
    if (pieces[i].memory && !worker->found[0]) return_piece(worker, &pieces[i], got);
  free(got);
  return NULL;
}

void cts_case_threads_stress(cts_t *t) {
  worker_t workers[THREADS] = {{.t = NULL}};
  run_all(t, workers, stress);
}
