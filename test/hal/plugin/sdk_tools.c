/* Tests of the SDK's helpers beyond the defaults: a library opened at run time (hal/plugin_library.h), a thread with
 * a queue (hal/plugin_worker.h), and fills by copies (hal/plugin_transfer.h). */
#define _POSIX_C_SOURCE 200809L
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <hal/plugin_library.h>
#include <hal/plugin_transfer.h>
#include <hal/plugin_worker.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "plugin/sdk_testing.h"

TestSuite(tools, .init = begin, .timeout = 60);

/* ---- a library ---- */

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

/* Like libraries with a lookup function. */
static void *find(void *handle, size_t index) { return index ? NULL : dlsym(handle, "sin"); }

Test(tools, a_library_with_its_own_lookup_function_is_queried_through_it) {
  hal_library_t library = {"mine", {"libm.so.6"}, "install acme 9", symbols, 2, &calls, HAL_LIBRARY_CLOSED};
  library.find = find;
  cr_assert_eq(hal_library_open(&library), HAL_OK, "%s", message);
  cr_assert_eq(calls.cos(0.0), 0.0);
  cr_assert_null(calls.none);
}

Test(tools, a_missing_library_is_named_with_what_to_install_and_opened_again) {
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

/* ---- a worker ---- */

typedef struct step_s {
  hal_worker_item_t item;
  int number, pause_ms;
  hal_worker_t *worker; /* the step adds another item to this one */
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

Test(tools, a_worker_runs_asynchronously_and_a_wait_ends_with_its_item) {
  hal_worker_t *worker;
  cr_assert_eq(hal_worker_start(&worker), HAL_OK);
  const uint64_t first = push(worker, 0, 50, NULL);
  push(worker, 1, 300, NULL);
  cr_assert_eq(hal_worker_done(worker), 0);
  hal_worker_wait(worker, first);
  cr_assert_eq(hal_worker_done(worker), 1); /* and not yet the second one, which takes longer */
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

/* ---- a thread that takes the place of a worker ---- */

Test(tools, a_thread_runs_an_item_in_place_of_a_worker_that_has_none) {
  hal_worker_t *worker;
  cr_assert_eq(hal_worker_start(&worker), HAL_OK);
  cr_assert_eq(hal_worker_begin(worker), 1);
  cr_assert_eq(hal_worker_begin(worker), 0); /* one thread at a time */
  cr_assert_eq(push(worker, 7, 0, NULL), 2);
  nanosleep(&(struct timespec){.tv_nsec = 50000000L}, NULL);
  cr_assert_eq(atomic_load(&ran), 0); /* the queued item follows the one of this thread */
  cr_assert_eq(hal_worker_done(worker), 0);
  hal_worker_end(worker);
  hal_worker_wait(worker, 2);
  cr_assert_eq(order[0], 7);
  cr_assert_eq(hal_worker_begin(worker), 3);
  hal_worker_end(worker);
  cr_assert_eq(hal_worker_done(worker), 3);
  hal_worker_stop(worker);
}

Test(tools, a_worker_with_items_is_not_replaced) {
  hal_worker_t *worker;
  cr_assert_eq(hal_worker_start(&worker), HAL_OK);
  push(worker, 0, 300, NULL); /* runs, or is still queued */
  cr_assert_eq(hal_worker_begin(worker), 0);
  hal_worker_wait(worker, 1);
  cr_assert_eq(hal_worker_begin(worker), 2);
  hal_worker_end(worker);
  hal_worker_stop(worker);
}

/* Threads that run an item themselves or queue it, whichever is possible. */
enum { SHARING = 4, SHARED_ITEMS = 500 };
static int shared_total; /* only items access it */

static void add_one(hal_worker_item_t *item) {
  shared_total++;
  free(item);
}

static void *share(void *worker) {
  for (int i = 0; i < SHARED_ITEMS; i++) {
    hal_worker_item_t *const item = malloc(sizeof *item);
    *item = (hal_worker_item_t){.run = add_one};
    if (hal_worker_begin(worker)) {
      item->run(item);
      hal_worker_end(worker);
    } else {
      hal_worker_push(worker, item);
    }
  }
  return NULL;
}

Test(tools, items_of_threads_and_of_their_worker_never_run_at_the_same_time) {
  hal_worker_t *worker;
  pthread_t threads[SHARING];
  cr_assert_eq(hal_worker_start(&worker), HAL_OK);
  for (int i = 0; i < SHARING; i++) cr_assert_eq(pthread_create(&threads[i], NULL, share, worker), 0);
  for (int i = 0; i < SHARING; i++) pthread_join(threads[i], NULL);
  hal_worker_wait(worker, SHARING * SHARED_ITEMS);
  cr_assert_eq(hal_worker_done(worker), SHARING * SHARED_ITEMS);
  cr_assert_eq(shared_total, SHARING * SHARED_ITEMS);
  hal_worker_stop(worker);
}

/* ---- the queue of a worker has a limit ---- */

enum { DEPTH = 1024 };
static atomic_int is_open, more_queued;

static void pause_ms(int ms) { nanosleep(&(struct timespec){.tv_nsec = ms * 1000000L}, NULL); }

static void hold(hal_worker_item_t *item) {
  free(item);
  while (!atomic_load(&is_open)) pause_ms(1);
}

static void *push_more(void *worker) {
  for (int i = 0; i < 2 * DEPTH; i++) {
    push(worker, i, 0, NULL);
    atomic_fetch_add(&more_queued, 1);
  }
  return NULL;
}

Test(tools, a_thread_that_queues_faster_than_a_worker_runs_waits_for_it) {
  hal_worker_t *worker;
  pthread_t thread;
  hal_worker_item_t *const first = malloc(sizeof *first);
  cr_assert_eq(hal_worker_start(&worker), HAL_OK);
  *first = (hal_worker_item_t){.run = hold};
  hal_worker_push(worker, first);
  cr_assert_eq(pthread_create(&thread, NULL, push_more, worker), 0);
  while (atomic_load(&more_queued) < DEPTH - 1) pause_ms(1);
  pause_ms(50);
  cr_assert_eq(atomic_load(&more_queued), DEPTH - 1); /* the worker has not run the first item */
  cr_assert_eq(hal_worker_queued(worker), DEPTH);
  atomic_store(&is_open, 1);
  pthread_join(thread, NULL);
  hal_worker_stop(worker);
}

/* An item of each of two workers fills the queue of the other one. */
static void fill_other(hal_worker_item_t *item) {
  step_t *const step = (step_t *)item;
  for (int i = 0; i < 2 * DEPTH; i++) push(step->worker, i, 0, NULL);
  free(step);
}

Test(tools, an_item_may_queue_more_than_a_workers_limit) {
  hal_worker_t *workers[2];
  for (int i = 0; i < 2; i++) cr_assert_eq(hal_worker_start(&workers[i]), HAL_OK);
  for (int i = 0; i < 2; i++) {
    step_t *const step = malloc(sizeof *step);
    *step = (step_t){.item.run = fill_other, .worker = workers[!i]};
    hal_worker_push(workers[i], &step->item);
  }
  for (int i = 0; i < 2; i++) hal_worker_wait(workers[i], 1); /* the other worker's queue is complete then */
  for (int i = 0; i < 2; i++) hal_worker_wait(workers[i], 2 * DEPTH + 1);
  for (int i = 0; i < 2; i++) hal_worker_stop(workers[i]);
}

Test(tools, a_worker_without_memory_is_refused) {
  hal_worker_t *worker = NULL;
  memory_is_short = 1;
  cr_assert_eq(hal_worker_start(&worker), HAL_RESOURCE_EXHAUSTED);
  cr_assert_null(worker);
  cr_assert_neq(message[0], '\0');
}

/* ---- fills ---- */

enum { MOST_BYTES = 4 };
static size_t widest;

/* A device that accepts patterns of at most four bytes, at addresses that are multiples of their size. */
static hal_status_t fill_narrow(hal_plugin_stream_t *stream, int32_t device, void *dst, const void *pattern,
                                size_t pattern_size, size_t size) {
  (void)stream, (void)device;
  cr_assert(pattern_size <= MOST_BYTES && (uintptr_t)dst % pattern_size == 0 && size == pattern_size);
  if (pattern_size > widest) widest = pattern_size;
  memcpy(dst, pattern, size);
  return HAL_OK;
}

Test(tools, a_pattern_that_the_device_has_no_call_for_is_filled_by_copies_at_any_address) {
  static _Alignas(16) unsigned char room[256], expected[256];
  unsigned char pattern[16];
  for (int i = 0; i < 16; i++) pattern[i] = (unsigned char)(i + 1);
  for (size_t bytes = 2; bytes <= 16; bytes *= 2)
    for (size_t offset = 0; offset < 17; offset++)
      for (size_t count = 1; count < 6; count++) {
        memset(room, 0, sizeof room);
        memset(expected, 0, sizeof expected);
        for (size_t i = 0; i < bytes * count; i++) expected[offset + i] = pattern[i % bytes];
        cr_assert_eq(hal_fill_by_copies(NULL, 0, room + offset, pattern, bytes, bytes * count, MOST_BYTES, fill_narrow),
                     HAL_OK);
        cr_assert_arr_eq(room, expected, sizeof room, "%zu patterns of %zu bytes at %zu", count, bytes, offset);
      }
  cr_assert_eq(widest, MOST_BYTES);
  cr_assert_eq(hal_fill_by_copies(NULL, 0, room, pattern, 16, 64, 0, fill_narrow),
               HAL_OK); /* a device that reports 0 receives bytes */
}

Test(tools, wrong_fills_are_refused_by_the_plugins_name_with_their_numbers) {
  char room[16];
  const struct {
    const void *dst, *pattern;
    size_t pattern_size, size;
    const char *says;
  } rows[] = {{room, room, 3, 6, "a pattern of 3 bytes"},    {room, room, 0, 6, "a pattern of 0 bytes"},
              {room, room, 32, 64, "a pattern of 32 bytes"}, {room, room, 4, 6, "fill of 6 bytes"},
              {room, NULL, 4, 8, "fill of 8 bytes"},         {NULL, room, 4, 8, "at address 0"}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    cr_assert_eq(hal_fill_check("mine", rows[i].dst, rows[i].pattern, rows[i].pattern_size, rows[i].size),
                 HAL_INVALID_ARGUMENT);
    cr_assert(strncmp(message, "mine: ", 6) == 0 && strstr(message, rows[i].says), "%s", message);
  }
  cr_assert_eq(hal_fill_check("mine", NULL, room, 4, 0), HAL_OK);
  cr_assert_eq(hal_fill_shortest("\7\7\7\7", 4), 1);
  cr_assert_eq(hal_fill_shortest("\7\7\7\1", 4), 4);
}

Test(tools, a_copys_direction_is_that_of_its_sides) {
  cr_assert_eq(hal_copy_direction(0, HAL_HOST), HAL_COPY_HOST_TO_DEVICE);
  cr_assert_eq(hal_copy_direction(HAL_HOST, 0), HAL_COPY_DEVICE_TO_HOST);
  cr_assert_eq(hal_copy_direction(1, 1), HAL_COPY_DEVICE_TO_DEVICE);
  cr_assert_eq(hal_copy_direction(1, 0), HAL_COPY_PEER);
  cr_assert_eq(hal_copy_direction(HAL_HOST, HAL_HOST), HAL_COPY_UNKNOWN);
}

/* ---- queries by markers ---- */

static int busy_polls; /* the number of further polls before the marker completes; negative: it never completes */
static int is_busy(hal_plugin_stream_t *stream) {
  (void)stream;
  return busy_polls < 0 || busy_polls-- > 0;
}

Test(sdk_tools, a_marker_that_completes_is_seen_and_one_that_does_not_is_waited_for_twice_as_long_each_time) {
  enum { FIRST_NS = 50000, MOST_NS = 20000000 };
  int64_t patience = 0, expected = FIRST_NS;
  busy_polls = 0;
  cr_assert_eq(hal_marker_query(&patience, is_busy, NULL), HAL_OK);
  busy_polls = 3; /* immediately, unless this thread waits for a processor */
  while (hal_marker_query(&patience, is_busy, NULL)) cr_assert_geq(busy_polls, 0);
  cr_assert_eq(patience, 0);
  busy_polls = -1;
  for (int i = 0; i < 12; i++) {
    cr_assert_eq(hal_marker_query(&patience, is_busy, NULL), HAL_NOT_READY);
    if (expected < MOST_NS) expected *= 2;
    cr_assert_eq(patience, i < 9 ? expected : patience, "call %d: %lld", i, (long long)patience);
    cr_assert_leq(patience, 2 * MOST_NS);
  }
  busy_polls = 0;
  cr_assert_eq(hal_marker_query(&patience, is_busy, NULL), HAL_OK);
  cr_assert_eq(patience, 0); /* begins anew */
}
