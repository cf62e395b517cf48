/* hal_memory.c: nanoseconds per cached allocation and release, including statistics, compared with malloc/free and
 * posix_memalign(512)/free in the same run.
 *
 *   bench_hal_memory            one line per size and number of threads; the last line evaluates the slowest
 *   bench_hal_memory hit N      N pairs of the 64-byte hit only, for callgrind
 *   bench_hal_memory host N     the same for page-locked host memory
 *
 * The line of the history is the cost of a recorded event without stacks: a pair has three. The same for page-locked
 * host memory, with the cost of a pair that is not recorded.
 *
 * The device is the tests' mock device: a cache hit never reaches the plugin. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <time.h>

#include "../hal/memory/memory_double.h"

/* The project's target for one thread, and a stretch target. */
#define TARGET_NS 100.0
#define STRETCH_NS 40.0
#define TARGET_EVENT_NS 300.0

enum { MAX_THREADS = 8, REPEATS = 5 };

typedef void (*pair_fn_t)(size_t size);

static void pair_hal(size_t size) {
  hal_block_t *block = NULL;
  if (hal_memory_allocate(0, NULL, size, &block)) abort();
  hal_memory_release(block);
}

static void pair_host(size_t size) {
  void *memory = NULL;
  if (hal_host_allocate(0, size, &memory) || hal_host_free(memory)) abort();
}

static void pair_malloc(size_t size) {
  void *memory = malloc(size);
  __asm__ volatile("" : : "r"(memory) : "memory"); /* otherwise the compiler would remove the pair */
  free(memory);
}

static void pair_memalign(size_t size) {
  void *memory = NULL;
  if (posix_memalign(&memory, 512, size)) abort();
  __asm__ volatile("" : : "r"(memory) : "memory");
  free(memory);
}

typedef struct job_s {
  pair_fn_t pair;
  size_t size;
  long count;
} job_t;

static void *run(void *data) {
  const job_t *job = data;
  for (long i = 0; i < job->count; i++) job->pair(job->size);
  return NULL;
}

static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Returns nanoseconds of wall time per pair of one thread, the best of several runs, which is the least disturbed. */
static double measure(pair_fn_t pair, size_t size, int threads, long count) {
  double best = 1e30;
  for (int repeat = 0; repeat < REPEATS; repeat++) {
    pthread_t ids[MAX_THREADS];
    job_t job = {.pair = pair, .size = size, .count = count};
    const double start = seconds();
    if (threads == 1) run(&job);
    for (int i = 0; i < threads && threads > 1; i++) {
      if (pthread_create(&ids[i], NULL, run, &job)) abort();
    }
    for (int i = 0; i < threads && threads > 1; i++) pthread_join(ids[i], NULL);
    const double each = (seconds() - start) * 1e9 / (double)count;
    if (each < best) best = each;
  }
  return best;
}

/* Returns nanoseconds per recorded event, of the slower of a small and a large block. */
static double measure_history(void) {
  const hal_memory_history_desc_t desc = {.struct_size = sizeof(desc), .max_events = 100000};
  if (hal_memory_history_start(0, &desc)) abort();
  const double small = measure(pair_hal, 64, 1, 200000) / 3, large = measure(pair_hal, 4 << 20, 1, 200000) / 3;
  if (hal_memory_history_stop(0)) abort();
  return small > large ? small : large;
}

/* The same for page-locked host memory. */
static double measure_host_history(void) {
  const hal_memory_history_desc_t desc = {.struct_size = sizeof(desc), .max_events = 100000};
  if (hal_host_history_start(0, &desc)) abort();
  const double recorded = measure(pair_host, 64, 1, 200000);
  if (hal_host_history_stop(0)) abort();
  printf("pair of host memory: %.1f ns, recorded %.1f ns\n", measure(pair_host, 64, 1, 200000), recorded);
  return recorded / 3;
}

int main(int argc, char **argv) {
  static const size_t sizes[] = {64, 4096, 1 << 20, 4 << 20, 64 << 20};
  double worst = 0;
  hal_block_t *held[3];
  if (double_open(1, 0)) return 1;
  /* Adjacent blocks in use, so that the cache is not one empty segment. */
  for (int i = 0; i < 3; i++) {
    if (hal_memory_allocate(0, NULL, i < 2 ? 1000 : 3 << 20, &held[i])) return 1;
  }
  if (argc > 2) {
    const pair_fn_t pair = strcmp(argv[1], "host") ? pair_hal : pair_host;
    pair(64);
    run(&(job_t){.pair = pair, .size = 64, .count = atol(argv[2])});
    for (int i = 0; i < 3; i++) hal_memory_release(held[i]);
    return double_close() != 0;
  }
  printf("%12s %8s %12s %12s %22s   ns per pair and thread\n", "bytes", "threads", "hal", "malloc",
         "posix_memalign(512)");
  for (int threads = 1; threads <= MAX_THREADS; threads += MAX_THREADS - 1) {
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
      const long count = threads == 1 ? 1000000 : 200000, others = sizes[i] < 100000 ? count : count / 100;
      pair_hal(sizes[i]);
      const double ours = measure(pair_hal, sizes[i], threads, count);
      const double plain = measure(pair_malloc, sizes[i], threads, others);
      const double aligned = measure(pair_memalign, sizes[i], threads, others);
      if (threads == 1 && ours > worst) worst = ours;
      printf("%12zu %8d %12.1f %12.1f %22.1f\n", sizes[i], threads, ours, plain, aligned);
    }
  }
  const double event = measure_history();
  printf("recorded event without a stack: %.1f ns; target %.0f: %s\n", event, TARGET_EVENT_NS,
         event <= TARGET_EVENT_NS ? "met" : "missed");
  const double host_event = measure_host_history();
  printf("recorded event of host memory without a stack: %.1f ns; target %.0f: %s\n", host_event, TARGET_EVENT_NS,
         host_event <= TARGET_EVENT_NS ? "met" : "missed");
  for (int i = 0; i < 3; i++) hal_memory_release(held[i]);
  printf("worst row of one thread: %.1f ns; target %.0f: %s; stretch %.0f: %s\n", worst, TARGET_NS,
         worst <= TARGET_NS ? "met" : "missed", STRETCH_NS, worst <= STRETCH_NS ? "met" : "missed");
  return double_close() != 0 || worst > TARGET_NS || event > TARGET_EVENT_NS || host_event > TARGET_EVENT_NS;
}
