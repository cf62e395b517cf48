/* Tests of what the SDK has for plugins beyond the defaults: a library opened at run time (hal/plugin_library.h) and a thread with a
 * queue (hal/plugin_worker.h). */
#define _POSIX_C_SOURCE 200809L
#include <criterion/criterion.h>
#include <hal/plugin_library.h>
#include <hal/plugin_worker.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static char message[2048];
static hal_status_t error_set(hal_status_t code, int64_t native_code, const char *text) {
  (void)native_code;
  snprintf(message, sizeof message, "%s", text);
  return code;
}
static int memory_is_short;
static void *mem_alloc(size_t size, size_t alignment) {
  (void)alignment;
  return memory_is_short ? NULL : malloc(size);
}
static const hal_host_api_t host = {
    .struct_size = sizeof host, .error_set = error_set, .mem_alloc = mem_alloc, .mem_free = free};
static void begin(void) { hal_host = &host; }
TestSuite(tools, .init = begin, .timeout = 60);

/* ---- a library ---------------------------------------------------------------------------------------------------------------- */

typedef struct calls_s {
  double (*cos)(double);
  double (*none)(double);
} calls_t;
static calls_t calls;
static const hal_library_symbol_t symbols[] = {{"cos", offsetof(calls_t, cos), 0},
                                               {"acme_fly", offsetof(calls_t, none), 1}};
static const hal_library_symbol_t strict[] = {{"cos", offsetof(calls_t, cos), 0},
                                              {"acme_fly", offsetof(calls_t, none), 0}};

Test(tools, a_library_is_found_by_the_first_name_that_there_is_and_its_functions_work) {
  hal_library_t library = {
      "mine", {"libacme.so.9", "libm.so.6"}, "install acme", symbols, 2, &calls, HAL_LIBRARY_CLOSED};
  calls.none = (double (*)(double))abort;
  cr_assert_eq(hal_library_open(&library), HAL_OK, "%s", message);
  cr_assert_eq(calls.cos(0), 1);
  cr_assert_null((void *)(uintptr_t)calls.none); /* optional, and not there */
  calls.cos = NULL;
  cr_assert_eq(hal_library_open(&library), HAL_OK);
  cr_assert_null((void *)(uintptr_t)calls.cos); /* a second call does nothing */
}

Test(tools, a_library_that_is_not_there_is_named_with_what_to_install_and_asked_for_again) {
  hal_library_t library = {
      "mine", {"libacme.so.9", "libacme.so"}, "install acme", symbols, 2, &calls, HAL_LIBRARY_CLOSED};
  for (int i = 0; i < 2; i++) {
    message[0] = '\0';
    cr_assert_eq(hal_library_open(&library), HAL_UNAVAILABLE);
    cr_assert_not_null(strstr(message, "mine: libacme.so.9 cannot be loaded"), "%s", message);
    cr_assert_not_null(strstr(message, "install acme"), "%s", message);
  }
}

Test(tools, a_library_that_lacks_a_symbol_is_refused_by_the_symbols_name_and_leaves_the_table) {
  hal_library_t library = {"mine", {"libm.so.6"}, "install acme 9", strict, 2, &calls, HAL_LIBRARY_CLOSED};
  cr_assert_eq(hal_library_open(&library), HAL_UNAVAILABLE);
  cr_assert_not_null(strstr(message, "libm.so.6 is too old: it lacks acme_fly; install acme 9"), "%s", message);
  cr_assert_null((void *)(uintptr_t)calls.cos);
}

/* ---- a worker ----------------------------------------------------------------------------------------------------------------- */

typedef struct step_s {
  hal_worker_item_t item;
  int number, pause_ms;
  hal_worker_t *worker; /* to which the step gives another one */
} step_t;
static int order[4096];
static _Atomic int ran;

static void take(hal_worker_item_t *item);

static uint64_t push(hal_worker_t *worker, int number, int pause_ms, hal_worker_t *next) {
  step_t *const step = malloc(sizeof *step);
  *step = (step_t){{.run = take}, number, pause_ms, next};
  return hal_worker_push(worker, &step->item);
}

static void take(hal_worker_item_t *item) {
  step_t *const step = (step_t *)item;
  nanosleep(&(struct timespec){.tv_nsec = step->pause_ms * 1000000L}, NULL);
  order[atomic_fetch_add(&ran, 1)] = step->number;
  if (step->worker) push(step->worker, step->number + 1000, 0, NULL);
  free(step);
}

Test(tools, a_worker_does_its_items_in_order_and_counts_them) {
  enum { ITEMS = 1000 };
  hal_worker_t *worker;
  cr_assert_eq(hal_worker_start(&worker), HAL_OK);
  cr_assert_eq(hal_worker_queued(worker), 0);
  for (int i = 0; i < ITEMS; i++) cr_assert_eq(push(worker, i, 0, NULL), (uint64_t)i + 1);
  cr_assert_eq(hal_worker_queued(worker), ITEMS);
  hal_worker_wait(worker, ITEMS);
  cr_assert_eq(hal_worker_done(worker), ITEMS);
  for (int i = 0; i < ITEMS; i++) cr_assert_eq(order[i], i);
  hal_worker_stop(worker);
}

Test(tools, a_worker_runs_behind_the_callers_back_and_a_wait_ends_with_its_item) {
  hal_worker_t *worker;
  cr_assert_eq(hal_worker_start(&worker), HAL_OK);
  const uint64_t first = push(worker, 0, 50, NULL);
  push(worker, 1, 300, NULL);
  cr_assert_eq(hal_worker_done(worker), 0);
  hal_worker_wait(worker, first);
  cr_assert_eq(hal_worker_done(worker), 1); /* and not yet the second, which takes longer */
  hal_worker_stop(worker);
  cr_assert_eq(atomic_load(&ran), 2);
}

Test(tools, a_worker_that_is_stopped_does_what_is_queued_and_what_that_queues) {
  hal_worker_t *worker;
  cr_assert_eq(hal_worker_start(&worker), HAL_OK);
  for (int i = 0; i < 100; i++) push(worker, i, i == 0 ? 20 : 0, worker);
  hal_worker_stop(worker);
  cr_assert_eq(atomic_load(&ran), 200);
  for (int i = 0; i < 200; i++) cr_assert_eq(order[i], i < 100 ? i : 900 + i);
  hal_worker_stop(NULL);
}

Test(tools, a_worker_without_memory_is_refused) {
  hal_worker_t *worker = NULL;
  memory_is_short = 1;
  cr_assert_eq(hal_worker_start(&worker), HAL_RESOURCE_EXHAUSTED);
  cr_assert_null(worker);
  cr_assert_neq(message[0], '\0');
}
