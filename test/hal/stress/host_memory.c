/* stress/host_memory.c: four threads on the page-locked host memory of two devices, for the thread sanitizer. Each
 * thread marks its blocks, uses them on streams of both devices and frees them in its own order, while caches are
 * emptied, histories start, stop and are read, and streams make progress. No thread may receive memory that another
 * holds, and at the end all memory and stacks must be freed. A plain program: Criterion forks. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>

#include "../memory/memory_double.h"
#include "recorded.h"

enum { THREADS = 4, HELD = 8, STREAMS = 4 };

typedef struct holder_s {
  uint32_t self, random;
  unsigned char *held[HELD];
  size_t sizes[HELD];
  long wrong;
} holder_t;

static long operations = 20000;

static int mark_of(const holder_t *holder, int at) { return (int)(holder->self * HELD + (uint32_t)at + 1); }

static void take(holder_t *holder, int at) {
  const int32_t own = (int32_t)(holder->self % 2);
  const uint32_t r = holder->random;
  void *address = NULL;
  int32_t device = -1;
  holder->sizes[at] = 1 + (r >> 12) % 20000;
  if (hal_host_allocate(own, holder->sizes[at], &address)) {
    holder->wrong++;
    return;
  }
  holder->held[at] = address;
  memset(address, mark_of(holder, at), holder->sizes[at]);
  holder->wrong += hal_host_find(holder->held[at] + holder->sizes[at] - 1, &device) || device != own;
  hal_stream_t *stream = double_stream((int32_t)(r >> 20) % 2, at % STREAMS);
  double_enqueue(stream, NULL, 0);
  holder->wrong += hal_host_record_stream(address, stream) != HAL_OK;
  if (r % 7 == 0) double_finish(stream);
}

static void give(holder_t *holder, int at) {
  for (size_t i = 0; i < holder->sizes[at]; i += 61) holder->wrong += holder->held[at][i] != mark_of(holder, at);
  holder->wrong += hal_host_free(holder->held[at]) != HAL_OK;
  holder->held[at] = NULL;
}

/* Starts, reads or stops the history of a device. */
static long change_history(uint32_t r) {
  const int32_t device = (int32_t)(r % 2);
  switch (r >> 1 & 7) {
    case 0:
      return hal_host_history_stop(device) != HAL_OK;
    case 1:
    case 2:
      return record(hal_host_history_start, device, r >> 4);
    default:
      return read_history(hal_host_history_read, device);
  }
}

static void *work(void *data) {
  holder_t *holder = data;
  hal_host_stats_t stats = {.struct_size = sizeof(stats)};
  for (long i = 0; i < operations; i++) {
    holder->random = holder->random * 1664525u + 1013904223u; /* Numerical Recipes' generator */
    const int at = (int)(holder->random >> 8) % HELD;
    if (holder->held[at]) {
      give(holder, at);
    } else {
      take(holder, at);
    }
    if (holder->random % 101 == 0) holder->wrong += hal_host_empty_cache(-1) != HAL_OK;
    if (holder->random % 107 == 0) holder->wrong += change_history(holder->random >> 8);
    if (holder->random % 103 == 0) holder->wrong += hal_host_stats(0, &stats) || stats.active_requests.current < 0;
  }
  for (int at = 0; at < HELD; at++) {
    if (holder->held[at]) give(holder, at);
  }
  return NULL;
}

static int64_t bytes_left(int32_t device) {
  hal_host_stats_t stats = {.struct_size = sizeof(stats)};
  hal_host_stats(device, &stats);
  return stats.allocated_bytes.current + stats.active_bytes.current;
}

int main(int argc, char **argv) {
  pthread_t threads[THREADS];
  static holder_t holders[THREADS];
  long wrong = 0;
  if (argc > 1) operations = atol(argv[1]);
  if (double_open(2, 0)) return 1;
  for (uint32_t i = 0; i < THREADS; i++) {
    holders[i] = (holder_t){.self = i, .random = i * 2654435761u + 1};
    if (pthread_create(&threads[i], NULL, work, &holders[i])) return 1;
  }
  for (int i = 0; i < THREADS; i++) {
    pthread_join(threads[i], NULL);
    wrong += holders[i].wrong;
  }
  for (int id = 0; id < 2 * STREAMS; id++) double_finish(double_stream(id % 2, id / 2));
  hal_host_empty_cache(-1);
  const int64_t left = bytes_left(0) + bytes_left(1);
  wrong += double_close() + stacks;
  printf("%d threads, %ld operations each: %lld bytes left, %ld wrong\n", THREADS, operations, (long long)left, wrong);
  return left || wrong;
}
