/* semaphore.c: timeline semaphores on the host: values, waits of the host, poison, threads. The host uses the plugin's
 * or the archive's. */
#define _POSIX_C_SOURCE 200809L
#include "semaphore.h"

#include <pthread.h>
#include <stdio.h>

enum { THREADS = 6, RAISES = 400 };

#define A_WHILE_NS INT64_C(60000000000)

hal_plugin_semaphore_t *cts_semaphore(cts_t *t, uint64_t value, uint32_t flags) {
  hal_plugin_semaphore_t *semaphore = NULL;
  CTS_OK(t, semaphore_create, t->device, value, flags, &semaphore);
  CTS_CHECK(t, semaphore, "semaphore_create returned HAL_OK and no semaphore");
  return semaphore;
}

void cts_semaphore_check(cts_t *t, hal_plugin_semaphore_t *semaphore, uint64_t expected, const char *when) {
  uint64_t value = ~expected;
  CTS_OK(t, semaphore_value, semaphore, &value);
  CTS_CHECK(t, value == expected, "the value is %llu instead of %llu, %s", (unsigned long long)value,
            (unsigned long long)expected, when);
}

void cts_case_semaphore_value(cts_t *t) {
  static const uint64_t values[] = {0, 1, 7, UINT64_C(1) << 32, UINT64_C(1) << 63, HAL_SEMAPHORE_POISON - 1};
  enum { COUNT = sizeof values / sizeof *values };
  for (int flags = 0; flags < 2; flags++)
    for (int i = COUNT; i-- > 0;) {
      CTS_JUDGE(t, semaphore_create, "Creates a semaphore");
      hal_plugin_semaphore_t *const semaphore = cts_semaphore(t, values[i], flags ? HAL_SEMAPHORE_INTERPROCESS : 0);
      cts_semaphore_check(t, semaphore, values[i], "after semaphore_create with it");
      for (int to = 0; to < COUNT; to++) {
        CTS_JUDGE(t, semaphore_set, "not greater than the present one changes nothing");
        CTS_OK(t, semaphore_set, semaphore, values[to]);
        cts_semaphore_check(t, semaphore, values[to > i ? to : i], "after semaphore_set");
      }
      CTS_JUDGE(t, semaphore_value, "HAL_SEMAPHORE_POISON if it is poisoned");
      CTS_OK(t, semaphore_set, semaphore, HAL_SEMAPHORE_POISON);
      cts_semaphore_check(t, semaphore, HAL_SEMAPHORE_POISON, "after semaphore_set with HAL_SEMAPHORE_POISON");
      CTS_JUDGE(t, semaphore_set, "poisons it permanently");
      CTS_OK(t, semaphore_set, semaphore, 5);
      cts_semaphore_check(t, semaphore, HAL_SEMAPHORE_POISON, "after semaphore_set of a poisoned semaphore");
      CTS_JUDGE(t, semaphore_destroy, "Destroys a semaphore");
      CTS_OK(t, semaphore_destroy, semaphore);
    }
}

/* Two semaphores are two numbers. */
void cts_case_semaphore_apart(cts_t *t) {
  hal_plugin_semaphore_t *semaphores[8];
  for (uint64_t i = 0; i < 8; i++) semaphores[i] = cts_semaphore(t, i, i % 2 ? HAL_SEMAPHORE_INTERPROCESS : 0);
  for (uint64_t i = 0; i < 8; i++) CTS_OK(t, semaphore_set, semaphores[i], 100 + i);
  for (uint64_t i = 0; i < 8; i++)
    cts_semaphore_check(t, semaphores[i], 100 + i, "of one of eight semaphores that were set");
  for (int i = 0; i < 8; i++) CTS_OK(t, semaphore_destroy, semaphores[i]);
}

/* ---- waits of the host ---- */

typedef struct later_s {
  hal_plugin_t *plugin;
  hal_plugin_semaphore_t *semaphore;
  uint64_t value;
  atomic_int set;
} later_t;

/* Calls bypass the page, on which the case's own thread records its calls. */
static void *set_it(void *data) {
  later_t *const later = data;
  for (int i = 0; i < 30; i++) cts_nap();
  atomic_store(&later->set, 1);
  if (hal_call_semaphore_set(later->plugin, later->semaphore, later->value)) abort();
  return NULL;
}

void cts_semaphore_set_later(cts_t *t, hal_plugin_semaphore_t *semaphore, uint64_t value, atomic_int **out_set) {
  pthread_t thread;
  later_t *const later = calloc(1, sizeof *later); /* for the thread, until the child ends */
  if (!later) cts_fail(t, "error of the suite: no host memory");
  *later = (later_t){.plugin = t->plugin, .semaphore = semaphore, .value = value};
  if (pthread_create(&thread, NULL, set_it, later)) cts_fail(t, "error of the suite: no thread can be made");
  pthread_detach(thread);
  *out_set = &later->set;
}

void cts_case_semaphore_wait(cts_t *t) {
  atomic_int *was_set;
  hal_plugin_semaphore_t *const semaphore = cts_semaphore(t, 3, 0);
  CTS_JUDGE(t, semaphore_wait, "Waits on the host");
  CTS_STATUS(t, HAL_OK, semaphore_wait, semaphore, 0, 0);
  CTS_STATUS(t, HAL_OK, semaphore_wait, semaphore, 3, 0);
  CTS_STATUS(t, HAL_OK, semaphore_wait, semaphore, 2, A_WHILE_NS);
  CTS_JUDGE(t, semaphore_wait, "HAL_NOT_READY = the time is over");
  CTS_STATUS(t, HAL_NOT_READY, semaphore_wait, semaphore, 4, 0);
  const int64_t begin = cts_now_ns();
  CTS_STATUS(t, HAL_NOT_READY, semaphore_wait, semaphore, 4, 30000000);
  const int64_t took = cts_now_ns() - begin;
  CTS_CHECK(t, took >= 30000000, "semaphore_wait of 30 ms returned HAL_NOT_READY after %lld us",
            (long long)took / 1000);
  cts_semaphore_check(t, semaphore, 3, "after waits that ended without it");
  CTS_JUDGE(t, semaphore_wait, "Waits on the host");
  cts_semaphore_set_later(t, semaphore, 9, &was_set); /* more than the wait needs */
  CTS_STATUS(t, HAL_OK, semaphore_wait, semaphore, 5, A_WHILE_NS);
  CTS_CHECK(t, atomic_load(was_set), "semaphore_wait of 5 returned while the value was 3");
  cts_semaphore_check(t, semaphore, 9, "after semaphore_set by another thread");
  CTS_OK(t, semaphore_destroy, semaphore);
}

void cts_case_semaphore_poison(cts_t *t) {
  atomic_int *was_set;
  for (int flags = 0; flags < 2; flags++) {
    hal_plugin_semaphore_t *const semaphore = cts_semaphore(t, 3, flags ? HAL_SEMAPHORE_INTERPROCESS : 0);
    CTS_JUDGE(t, semaphore_set, "each waiter, host or stream");
    cts_semaphore_set_later(t, semaphore, HAL_SEMAPHORE_POISON, &was_set);
    CTS_STATUS(t, HAL_ABORTED, semaphore_wait, semaphore, 4, A_WHILE_NS);
    CTS_CHECK(t, atomic_load(was_set), "semaphore_wait returned HAL_ABORTED before the semaphore was poisoned");
    CTS_JUDGE(t, semaphore_wait, "HAL_ABORTED = it is poisoned");
    CTS_STATUS(t, HAL_ABORTED, semaphore_wait, semaphore, 4, 0);
    CTS_STATUS(t, HAL_ABORTED, semaphore_wait, semaphore, 3, A_WHILE_NS); /* also a value that it had */
    CTS_OK(t, semaphore_destroy, semaphore);
  }
  hal_plugin_semaphore_t *const born = cts_semaphore(t, HAL_SEMAPHORE_POISON, 0);
  CTS_STATUS(t, HAL_ABORTED, semaphore_wait, born, 0, A_WHILE_NS);
  CTS_OK(t, semaphore_destroy, born);
}

/* ---- threads ---- */

typedef struct worker_s {
  hal_plugin_t *plugin;
  hal_plugin_semaphore_t *semaphore;
  uint64_t number;
  hal_status_t status;
  pthread_t thread;
} worker_t;

/* Raises to every value of the thread, and waits for each value of its neighbor. */
static void *take_turns(void *data) {
  worker_t *const worker = data;
  for (uint64_t i = 0; i < RAISES && !worker->status; i++) {
    const uint64_t value = i * THREADS + worker->number;
    worker->status = hal_call_semaphore_wait(worker->plugin, worker->semaphore, value, A_WHILE_NS);
    if (!worker->status) worker->status = hal_call_semaphore_set(worker->plugin, worker->semaphore, value + 1);
  }
  return NULL;
}

/* Raises by all values, lower ones last: the greatest of all stays. */
static void *race(void *data) {
  worker_t *const worker = data;
  for (uint64_t i = RAISES; i-- > 0 && !worker->status;)
    worker->status = hal_call_semaphore_set(worker->plugin, worker->semaphore, 1 + i * THREADS + worker->number);
  return NULL;
}

static void run_all(cts_t *t, hal_plugin_semaphore_t *semaphore, void *(*body)(void *), const char *what) {
  static worker_t workers[THREADS];
  for (uint64_t i = 0; i < THREADS; i++) {
    workers[i] = (worker_t){.plugin = t->plugin, .semaphore = semaphore, .number = i};
    if (pthread_create(&workers[i].thread, NULL, body, &workers[i]))
      cts_fail(t, "error of the suite: no thread can be made");
  }
  for (int i = 0; i < THREADS; i++) pthread_join(workers[i].thread, NULL);
  for (int i = 0; i < THREADS; i++)
    CTS_CHECK(t, !workers[i].status, "%d threads %s: one got status %d", THREADS, what, (int)workers[i].status);
  cts_semaphore_check(t, semaphore, (uint64_t)RAISES * THREADS, "the greatest one that threads raised it to");
}

void cts_case_semaphore_threads(cts_t *t) {
  hal_plugin_semaphore_t *const turns = cts_semaphore(t, 0, 0), *const races = cts_semaphore(t, 0, 0);
  CTS_GENERAL(t, "may be called from any thread");
  run_all(t, races, race, "raise a semaphore");
  run_all(t, turns, take_turns, "wait for a semaphore in turns");
  CTS_OK(t, semaphore_destroy, turns);
  CTS_OK(t, semaphore_destroy, races);
}
