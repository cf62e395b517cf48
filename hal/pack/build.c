/* build.c: compiles the modules of a pack with several threads, and ends compilations that take too long. */
#define _POSIX_C_SOURCE 200809L /* strdup */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/host_malloc.h"
#include "hal/plugin.h"
#include "hal/status.h"
#include "kernel_text.h"
#include "op/provider.h"
#include "op/source.h"
#include "packing.h"

enum { MOST_JOBS = 64, SPIRV_HEAD = 5, SPIRV_CAPABILITY = 17, SPIRV_FLOAT64 = 10 };
enum { CHECK_MS = 100, REPORT_SECONDS = 5 };

/* A thread that compiles. `kernel` is NULL between two modules. */
typedef struct worker_s {
  struct build_s *build;
  pthread_t thread;
  const char *kernel;
  double since;
  int32_t cancelled; /* the module has taken longer than the limit; read by hal_is_cancelled */
} worker_t;

typedef struct build_s {
  const packing_t *packing;
  packed_t *modules;
  size_t count, next, done, failed; /* guarded by `lock`, as the workers' kernel and since */
  pthread_mutex_t lock;
  pthread_cond_t change;
  worker_t workers[MOST_JOBS];
} build_t;

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* Returns whether a module in SPIR-V needs double precision. */
static int has_double(const void *data, size_t size) {
  const uint32_t *const words = data;
  const size_t count = size / sizeof *words;
  for (size_t at = SPIRV_HEAD; at + 1 < count && (words[at] & 0xffff) == SPIRV_CAPABILITY; at += words[at] >> 16) {
    if (words[at + 1] == SPIRV_FLOAT64) return 1;
    if (words[at] >> 16 == 0) break;
  }
  return 0;
}

static void compile(const packing_t *packing, packed_t *module, const char *text, size_t size, const int32_t *cancelled,
                    char *log) {
  const char *const options = module->of_suite ? "" : hal_provider_options(packing->source, module->form, text);
  const packing_source_t source = {.kernel = module->kernel,
                                   .text = text,
                                   .size = size,
                                   .options = options,
                                   .fp64 = module->fp64,
                                   .cancelled = cancelled};
  if (packing->plugin)
    module->data = packing_by_device(module->kernel, &module->size, log);
  else if (packing->compiler)
    module->data = packing_by_command(packing->compiler, &source, &module->size, log);
  else
    module->data = packing_by_clang(&source, &module->size, log);
  module->key = hal_pack_key(packing->source, options, module->fp64, text, size);
  module->key_without = hal_pack_key(packing->source, options, 0, text, size);
  /* A module without double-precision numbers also serves devices without double precision. */
  module->same_without = module->data && module->fp64 && packing->without_fp64 &&
                         !hal_provider_needs_fp64(module->kernel) && strncmp(packing->dialect, "spirv", 5) == 0 &&
                         !has_double(module->data, module->size);
}

/* Returns the text of the suite's kernels in a dialect, in memory that the caller frees; NULL: no memory. */
static char *suite_text(const char *dialect, int with_doubles, size_t *out_size) {
  const cts_language_t *language = cts_languages;
  while (strcmp(language->dialect, dialect) != 0) language++; /* hal-pack takes no other dialect */
  const char *const text = with_doubles ? language->doubles : language->source;
  *out_size = strlen(text);
  char *const copy = hal_malloc(*out_size + 1);
  if (copy) memcpy(copy, text, *out_size + 1);
  return copy;
}

static hal_status_t read_source(const build_t *build, const packed_t *module, char **out_text, size_t *out_size) {
  if (!module->of_suite) return hal_op_source(module->kernel, out_text, out_size);
  *out_text = suite_text(build->packing->source, module->fp64, out_size);
  return *out_text ? HAL_OK : hal_error_set(HAL_RESOURCE_EXHAUSTED, "no host memory for a source");
}

/* Compiles one module. Returns whether it failed. */
static int build_one(const build_t *build, packed_t *module, const int32_t *cancelled) {
  char log[PACKING_LOG] = "", *text = NULL;
  size_t size = 0;
  if (read_source(build, module, &text, &size))
    snprintf(log, sizeof log, "%s", hal_error_message());
  else
    compile(build->packing, module, text, size, cancelled, log);
  hal_free(text);
  if (module->data) return 0;
  if (hal_is_cancelled(cancelled))
    snprintf(log, sizeof log, "took longer than the limit of %g s; --limit sets another", build->packing->limit);
  module->why = strdup(log);
  return 1;
}

static void *work(void *data) {
  worker_t *const worker = data;
  build_t *const build = worker->build;
  pthread_mutex_lock(&build->lock);
  while (build->next < build->count) {
    packed_t *const module = &build->modules[build->next++];
    worker->kernel = module->kernel;
    worker->since = now();
    __atomic_store_n(&worker->cancelled, 0, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&build->lock);
    const int failed = build_one(build, module, &worker->cancelled);
    pthread_mutex_lock(&build->lock);
    worker->kernel = NULL;
    build->done++;
    build->failed += (size_t)failed;
  }
  pthread_cond_signal(&build->change);
  pthread_mutex_unlock(&build->lock);
  return NULL;
}

/* Cancels what has taken too long. Returns the worker that has compiled its module for longest, or NULL. */
static const worker_t *check_limits(build_t *build, double time) {
  const worker_t *slowest = NULL;
  for (size_t i = 0; i < MOST_JOBS; i++) {
    worker_t *const worker = &build->workers[i];
    if (!worker->kernel) continue;
    if (!slowest || worker->since < slowest->since) slowest = worker;
    if (build->packing->limit > 0 && time - worker->since > build->packing->limit)
      __atomic_store_n(&worker->cancelled, 1, __ATOMIC_RELEASE);
  }
  return slowest;
}

/* Waits until all modules are done; prints the progress. */
static void supervise(build_t *build) {
  double reported = now();
  pthread_mutex_lock(&build->lock);
  while (build->done < build->count) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += CHECK_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    pthread_cond_timedwait(&build->change, &build->lock, &until);
    const double time = now();
    const worker_t *const slowest = check_limits(build, time);
    if (build->packing->quiet || !slowest || time - reported < REPORT_SECONDS) continue;
    fprintf(stderr, "hal-pack: %zu of %zu modules, %s for %.0f s\n", build->done, build->count, slowest->kernel,
            time - slowest->since);
    reported = time;
  }
  pthread_mutex_unlock(&build->lock);
}

size_t packing_compile(const packing_t *packing, packed_t *modules, size_t count) {
  build_t build = {.packing = packing, .modules = modules, .count = count};
  const long wanted = packing->plugin || packing->jobs < 1 ? 1 : packing->jobs < MOST_JOBS ? packing->jobs : MOST_JOBS;
  long started = 0;
  pthread_mutex_init(&build.lock, NULL);
  pthread_cond_init(&build.change, NULL);
  for (; started < wanted; started++) {
    build.workers[started].build = &build;
    if (pthread_create(&build.workers[started].thread, NULL, work, &build.workers[started])) break;
  }
  if (started)
    supervise(&build);
  else /* no thread: without a limit */
    work(&(worker_t){.build = &build});
  for (long i = 0; i < started; i++) pthread_join(build.workers[i].thread, NULL);
  pthread_cond_destroy(&build.change);
  pthread_mutex_destroy(&build.lock);
  return build.failed;
}
