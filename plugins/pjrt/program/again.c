/* again.c: programs that are compiled twice (HAL_PJRT_OPTIMIZE=rising): first at a low level of optimization, which
 * takes less time, and again in a thread of this file when they have run often. The thread holds no lock while it
 * compiles. */
#include <hal/plugin_setting.h>
#include <hal/plugin_worker.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../pjrt.h"

enum { NAME_BYTES = 96 };

struct pjrt_again_s {
  hal_worker_item_t item; /* the first member, so that the worker's pointer is that of the whole struct */
  int users;              /* the program, and the queued item */
  int cancelled, ended;
  uint64_t number;
  int32_t site;
  atomic_ullong *count;  /* of those that succeeded */
  pjrt_loaded_t *loaded; /* NULL: not compiled */
  char name[NAME_BYTES]; /* of the program */
  size_t size;
  char text[];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the following, and the structs */
static pthread_cond_t some_ended = PTHREAD_COND_INITIALIZER;
static hal_worker_t *worker;
static uint64_t last_number, cancelled_number; /* of the compilations that were queued, and of the cancelled ones */

hal_status_t pjrt_again_read(void) {
  const char *const setting = hal_setting("HAL_PJRT_OPTIMIZE"), *const hot = hal_setting("HAL_PJRT_HOT");
  char *end = NULL;
  pjrt.rising = setting && strcmp(setting, "rising") == 0;
  pjrt.hot = PJRT_HOT;
  if (setting && *setting && !pjrt.rising && strcmp(setting, "whole") != 0)
    return pjrt_error(HAL_INVALID_ARGUMENT, "pjrt: invalid HAL_PJRT_OPTIMIZE='%.40s': expected 'whole' or 'rising'",
                      setting);
  if (!hot || !*hot) return HAL_OK;
  const long runs = strtol(hot, &end, 10);
  if (*end || runs < 1 || runs > INT_MAX / 2)
    return pjrt_error(HAL_INVALID_ARGUMENT, "pjrt: invalid HAL_PJRT_HOT='%.40s': expected 1 to %d", hot, INT_MAX / 2);
  pjrt.hot = (uint32_t)runs;
  return HAL_OK;
}

/* ---- the thread -------------------------------------------------------------------------------------------------- */

static void drop(pjrt_again_t *again) {
  pthread_mutex_lock(&lock);
  const int left = --again->users;
  pthread_mutex_unlock(&lock);
  if (left) return;
  pjrt_program_release(again->site, again->loaded);
  hal_host->mem_free(again);
}

static void report(const pjrt_again_t *again, int stored, int64_t ns, hal_status_t status,
                   const pjrt_failure_t *failure) {
  char line[480];
  if (status)
    snprintf(line, sizeof line, "pjrt: a %s cannot be compiled again, and remains at low optimization: %.300s",
             again->name, failure->text);
  else
    snprintf(line, sizeof line, "pjrt: %s a %s again in %.1f ms", stored ? "loaded" : "compiled", again->name,
             (double)ns * 1e-6);
  hal_host->log(status ? HAL_LOG_WARNING : HAL_LOG_INFO, line);
}

static int is_cancelled(const pjrt_again_t *again) {
  pthread_mutex_lock(&lock);
  const int cancelled = again->cancelled || again->number <= cancelled_number;
  pthread_mutex_unlock(&lock);
  return cancelled;
}

static void compile(hal_worker_item_t *item) {
  pjrt_again_t *const again = (pjrt_again_t *)item;
  pjrt_failure_t failure = {.status = HAL_OK};
  pjrt_loaded_t *loaded = NULL;
  int stored = 0;
  if (!is_cancelled(again)) {
    const int64_t begin = pjrt_now_ns();
    const hal_status_t status =
        pjrt_compile_cached(again->text, again->size, PJRT_FULL, again->site, &loaded, &stored, &failure);
    if (!is_cancelled(again)) report(again, stored, pjrt_now_ns() - begin, status, &failure);
  }
  if (loaded) atomic_fetch_add(again->count, 1);
  pthread_mutex_lock(&lock);
  again->loaded = loaded;
  again->ended = 1;
  pthread_cond_broadcast(&some_ended);
  pthread_mutex_unlock(&lock);
  drop(again);
}

/* ---- compilations ------------------------------------------------------------------------------------------------ */

/* Returns the thread's queue. NULL = there is none, which is logged. At the end of the process, the platform's library
 * destroys objects that a compilation uses. It was loaded before the thread was started, so the function is called
 * earlier. */
static hal_worker_t *start_worker(void) {
  static const char line[] = "pjrt: no thread to compile programs again: they remain at low optimization";
  pthread_mutex_lock(&lock);
  if (!worker && atexit(pjrt_again_cancel) == 0 && hal_worker_start(&worker)) worker = NULL;
  hal_worker_t *const started = worker;
  pthread_mutex_unlock(&lock);
  if (!started) hal_host->log(HAL_LOG_WARNING, line);
  return started;
}

pjrt_again_t *pjrt_again_start(const char *text, size_t size, int32_t site, atomic_ullong *count, const char *name) {
  hal_worker_t *const started = start_worker();
  pjrt_again_t *const again = started ? hal_host->mem_alloc(sizeof *again + size, _Alignof(pjrt_again_t)) : NULL;
  if (!again) return NULL;
  *again = (pjrt_again_t){.item.run = compile, .users = 2, .site = site, .count = count, .size = size};
  snprintf(again->name, sizeof again->name, "%s", name);
  memcpy(again->text, text, size);
  pthread_mutex_lock(&lock);
  again->number = ++last_number;
  pthread_mutex_unlock(&lock);
  hal_worker_push(started, &again->item);
  return again;
}

pjrt_loaded_t *pjrt_again_wait(pjrt_again_t *again) {
  pthread_mutex_lock(&lock);
  while (!again->ended) pthread_cond_wait(&some_ended, &lock);
  pjrt_loaded_t *const loaded = again->loaded;
  pthread_mutex_unlock(&lock);
  return loaded;
}

int pjrt_again_has_ended(pjrt_again_t *again) {
  pthread_mutex_lock(&lock);
  const int ended = again->ended;
  pthread_mutex_unlock(&lock);
  return ended;
}

void pjrt_again_release(pjrt_again_t *again) {
  if (!again) return;
  pthread_mutex_lock(&lock);
  again->cancelled = 1;
  pthread_mutex_unlock(&lock);
  drop(again);
}

void pjrt_again_cancel(void) {
  if (atomic_load(&pjrt.forked)) return; /* the thread is the parent's */
  pthread_mutex_lock(&lock);
  cancelled_number = last_number;
  hal_worker_t *const started = worker;
  pthread_mutex_unlock(&lock);
  if (started) hal_worker_wait(started, hal_worker_queued(started));
}
