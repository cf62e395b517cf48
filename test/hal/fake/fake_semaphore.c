/* fake_semaphore.c: timeline semaphores of the fake device: waiting occupies no worker; other processes, inline
 * mode, forks, and invalid handles. The conformance suite (semaphore) tests the contract. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "../ipc_handle.h"
#include "fake_support.h"

TestSuite(fake_semaphore, .fini = close_plugin, .timeout = 60);

typedef hal_plugin_semaphore_t semaphore_t;

static semaphore_t *make(uint64_t value, uint32_t flags) {
  semaphore_t *semaphore = NULL;
  must(fake_api.semaphore_create(0, value, flags, &semaphore));
  return semaphore;
}

static uint64_t value_of(semaphore_t *semaphore) {
  uint64_t value = 0;
  must(fake_api.semaphore_value(semaphore, &value));
  return value;
}

static ipc_handle_t export(semaphore_t *semaphore) {
  ipc_handle_t handle = {.size = 0};
  must(fake_api.semaphore_export(semaphore, 0, handle.bytes, sizeof handle.bytes, &handle.size));
  return handle;
}

static semaphore_t *open_it(const ipc_handle_t *handle) {
  semaphore_t *semaphore = NULL;
  must(fake_api.semaphore_open(0, handle->bytes, handle->size, 0, &semaphore));
  return semaphore;
}

static int count_entries(const char *path) {
  int count = 0;
  DIR *const folder = opendir(path);
  cr_assert_not_null(folder);
  while (readdir(folder)) count++;
  closedir(folder);
  return count;
}
static int threads(void) { return count_entries("/proc/self/task"); }
static int files(void) { return count_entries("/proc/self/fd"); }

static int threads_fall_to(int expected) {
  for (int i = 0; i < 2000 && threads() > expected; i++) fake_sleep_ms(1);
  return threads() <= expected;
}

/* ---- scheduling ---- */

/* With one worker, many streams wait and another stream runs. */
static void many_wait(uint32_t flags) {
  enum { STREAMS = 20 };
  hal_plugin_stream_t *streams[STREAMS], *const other = new_stream();
  float *const sum = new_floats(1, 0), *const one = new_floats(1, 1);
  semaphore_t *const semaphore = make(3, flags);
  for (uint64_t i = 0; i < STREAMS; i++) {
    streams[i] = new_stream();
    must(fake_api.stream_wait_semaphore(streams[i], semaphore, 4 + i));
    add_ones(streams[i], sum, one, 1);
    must(fake_api.stream_signal_semaphore(streams[i], semaphore, 5 + i));
  }
  add_ones(other, one, one, 1);
  must(fake_api.stream_synchronize(other));
  cr_assert(one[0] == 2 && sum[0] == 0 && value_of(semaphore) == 3);
  cr_assert_eq(fake_api.stream_query(streams[0]), HAL_NOT_READY);
  must(fake_api.stream_signal_semaphore(other, semaphore, 4)); /* no thread synchronizes it */
  must(fake_api.semaphore_wait(semaphore, 4 + STREAMS, INT64_MAX));
  for (int i = 0; i < STREAMS; i++) {
    must(fake_api.stream_synchronize(streams[i]));
    must(fake_api.stream_destroy(streams[i]));
  }
  cr_assert_eq(sum[0], 2.0f * STREAMS);
  must(fake_api.semaphore_destroy(semaphore));
  must(fake_api.stream_destroy(other));
}

Test(fake_semaphore, streams_that_wait_occupy_no_worker) {
  open_mode(1, 1);
  many_wait(0);
}
Test(fake_semaphore, streams_that_wait_for_a_semaphore_between_processes_occupy_no_worker) {
  open_mode(1, 1);
  many_wait(HAL_SEMAPHORE_INTERPROCESS);
}
Test(fake_semaphore, streams_that_wait_with_pauses_before_their_items) {
  setenv("HAL_FAKE_DELAY", "300", 1);
  open_mode(1, 2);
  many_wait(HAL_SEMAPHORE_INTERPROCESS);
}

Test(fake_semaphore, a_semaphore_has_a_thread_only_while_a_stream_waits_for_other_processes) {
  open_mode(1, 1);
  hal_plugin_stream_t *const stream = new_stream();
  semaphore_t *const own = make(0, 0), *const shared = make(0, HAL_SEMAPHORE_INTERPROCESS);
  add_ones(stream, new_floats(1, 0), new_floats(1, 0), 1);
  must(fake_api.stream_synchronize(stream));
  const int before = threads();
  must(fake_api.stream_wait_semaphore(stream, own, 1));
  cr_assert_leq(threads(), before + 1, "the worker, perhaps");
  const int with_worker = threads();
  for (uint64_t i = 1; i <= 10; i++) must(fake_api.stream_wait_semaphore(stream, shared, i));
  cr_assert_leq(threads(), with_worker + 2);
  must(fake_api.semaphore_set(own, 1));
  for (uint64_t i = 1; i <= 10; i++) must(fake_api.semaphore_set(shared, i));
  must(fake_api.stream_synchronize(stream));
  cr_assert(threads_fall_to(with_worker), "%d threads, %d before", threads(), with_worker);
  must(fake_api.stream_wait_semaphore(stream, shared, 11)); /* and anew */
  must(fake_api.semaphore_destroy(shared));                 /* the wait keeps it ... */
  must(fake_api.semaphore_destroy(own));
  cr_assert_eq(fake_api.stream_query(stream), HAL_NOT_READY);
  exit(0); /* the process exits even so */
}

Test(fake_semaphore, a_poisoned_semaphore_fails_the_streams_that_wait_and_no_others) {
  open_mode(1, 2);
  hal_plugin_stream_t *const before = new_stream(), *const after = new_stream(), *const other = new_stream();
  semaphore_t *const semaphore = make(0, HAL_SEMAPHORE_INTERPROCESS);
  float *const sum = new_floats(1, 0), *const one = new_floats(1, 1);
  hal_stream_error_t error = {.struct_size = sizeof error};
  must(fake_api.stream_wait_semaphore(before, semaphore, 1));
  add_ones(before, sum, one, 1);
  must(fake_api.stream_signal_semaphore(other, semaphore, HAL_SEMAPHORE_POISON));
  must_fail(fake_api.stream_synchronize(before), HAL_ABORTED, "the semaphore is poisoned");
  must(fake_api.stream_synchronize(before)); /* reported once */
  must(fake_api.stream_error(before, &error));
  cr_assert(error.status == HAL_ABORTED && strstr(error.message, "the semaphore is poisoned"), "%s", error.message);
  must(fake_api.stream_wait_semaphore(after, semaphore, 0));
  must_fail(fake_api.stream_synchronize(after), HAL_ABORTED, "the semaphore is poisoned");
  must_fail(fake_api.semaphore_wait(semaphore, 0, 0), HAL_ABORTED, "semaphore_wait: the semaphore is poisoned");
  must_fail(fake_api.stream_wait_semaphore(NULL, semaphore, 0), HAL_ABORTED, "the semaphore is poisoned");
  must(fake_api.stream_synchronize(other));
  must(fake_api.semaphore_destroy(semaphore));
}

Test(fake_semaphore, captured_streams_refuse_semaphores) {
  open_mode(1, 2);
  hal_plugin_stream_t *const stream = new_stream();
  semaphore_t *const semaphore = make(1, 0);
  hal_plugin_graph_t *graph = NULL;
  must(fake_api.capture_begin(stream, HAL_CAPTURE_RELAXED, 0));
  must_fail(fake_api.stream_signal_semaphore(stream, semaphore, 2), HAL_FAILED_PRECONDITION, "captured stream");
  must_fail(fake_api.stream_wait_semaphore(stream, semaphore, 1), HAL_FAILED_PRECONDITION, "captured stream");
  must(fake_api.capture_end(stream, &graph));
  must(fake_api.graph_destroy(graph));
  cr_assert_eq(value_of(semaphore), 1);
  must(fake_api.semaphore_destroy(semaphore));
}

/* ---- inline ---- */

static void *set_later(void *semaphore) {
  fake_sleep_ms(20);
  must(fake_api.semaphore_set(semaphore, 1));
  fake_sleep_ms(20);
  must(fake_api.semaphore_set(semaphore, HAL_SEMAPHORE_POISON));
  return NULL;
}

Test(fake_semaphore, inline_waits_block_the_caller) {
  open_mode(0, 1);
  pthread_t thread;
  hal_plugin_stream_t *const stream = new_stream();
  semaphore_t *const semaphore = make(0, 0);
  cr_assert_eq(pthread_create(&thread, NULL, set_later, semaphore), 0);
  must(fake_api.stream_wait_semaphore(stream, semaphore, 1));
  cr_assert_geq(value_of(semaphore), 1);
  must(fake_api.stream_wait_semaphore(stream, semaphore, 2));
  must_fail(fake_api.stream_synchronize(stream), HAL_ABORTED, "the semaphore is poisoned");
  cr_assert_eq(pthread_join(thread, NULL), 0);
  must(fake_api.semaphore_destroy(semaphore));
  semaphore_t *const other = make(0, 0);
  must(fake_api.stream_signal_semaphore(stream, other, 7));
  must(fake_api.stream_signal_semaphore(NULL, other, 6));
  cr_assert_eq(value_of(other), 7);
  must(fake_api.semaphore_destroy(other));
}

/* ---- other processes ---- */

typedef struct shared_s {
  ipc_handle_t there, back;
  atomic_int stage;
  int number;
} shared_t;

static shared_t *shared;

static void begin_shared(void) {
  shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  cr_assert_neq(shared, MAP_FAILED);
}
static void reach(int stage) { atomic_store(&shared->stage, stage); }
static void await(int stage) {
  while (atomic_load(&shared->stage) < stage) fake_sleep_ms(1);
}
static void count_up(void *unused) {
  (void)unused;
  shared->number++;
}

enum { ROUNDS = 300 };

/* Streams of two processes exchange increasing values; neither host waits before the end. */
static void ping_pong(semaphore_t *wait_for, uint64_t first, semaphore_t *then) {
  hal_plugin_stream_t *const stream = new_stream();
  for (uint64_t i = 0; i < ROUNDS; i++) {
    must(fake_api.stream_wait_semaphore(stream, wait_for, first + i));
    must(fake_api.stream_host_call(stream, count_up, NULL));
    must(fake_api.stream_signal_semaphore(stream, then, i + 1));
  }
  must(fake_api.stream_synchronize(stream));
}

static void ping_pong_in(int async) {
  begin_shared();
  const pid_t child = fork();
  open_mode(async, 1);
  if (!child) {
    await(1);
    semaphore_t *const there = open_it(&shared->there), *const back = open_it(&shared->back);
    ping_pong(there, 1, back);
    must(fake_api.semaphore_destroy(there));
    must(fake_api.semaphore_destroy(back));
    _exit(0);
  }
  semaphore_t *const there = make(0, HAL_SEMAPHORE_INTERPROCESS), *const back = make(0, HAL_SEMAPHORE_INTERPROCESS);
  shared->there = export(there);
  shared->back = export(back);
  reach(1);
  ping_pong(back, 0, there);
  int state = 1;
  must(fake_api.semaphore_wait(back, ROUNDS, INT64_C(20000000000)));
  cr_assert_eq(waitpid(child, &state, 0), child);
  cr_assert(WIFEXITED(state) && WEXITSTATUS(state) == 0, "%d", state);
  cr_assert_eq(shared->number, 2 * ROUNDS);
}

Test(fake_semaphore, streams_of_two_processes_take_turns) { ping_pong_in(1); }
Test(fake_semaphore, streams_of_two_processes_take_turns_inline) { ping_pong_in(0); }

/* The process that created the semaphore exits without a notification: other processes keep it, and an error set by
   one of them ends the waits of the others. */
Test(fake_semaphore, poison_of_another_process_ends_the_waits_of_this_one) {
  begin_shared();
  const pid_t child = fork();
  open_mode(1, 1);
  if (!child) {
    semaphore_t *const semaphore = make(5, HAL_SEMAPHORE_INTERPROCESS);
    shared->there = export(semaphore);
    reach(1);
    await(2);
    fake_sleep_ms(10);
    fake_api.semaphore_set(semaphore, HAL_SEMAPHORE_POISON);
    raise(SIGKILL);
  }
  await(1);
  hal_plugin_stream_t *const stream = new_stream();
  semaphore_t *const semaphore = open_it(&shared->there), *const again = open_it(&shared->there);
  cr_assert_eq(value_of(semaphore), 5);
  must(fake_api.stream_wait_semaphore(stream, again, 6));
  reach(2);
  must_fail(fake_api.semaphore_wait(semaphore, 6, INT64_C(20000000000)), HAL_ABORTED, "poisoned");
  must_fail(fake_api.stream_synchronize(stream), HAL_ABORTED, "poisoned");
  waitpid(child, NULL, 0);
  cr_assert_eq(value_of(semaphore), HAL_SEMAPHORE_POISON);
  semaphore_t *third = NULL;
  must_fail(fake_api.semaphore_open(0, shared->there.bytes, shared->there.size, 0, &third), HAL_NOT_FOUND,
            "check that the process is alive");
  must_fail(fake_api.semaphore_export(semaphore, 0, NULL, 0, &shared->back.size), HAL_FAILED_PRECONDITION,
            "in this process");
  must(fake_api.semaphore_destroy(semaphore));
  must(fake_api.semaphore_destroy(again));
}

/* A child of fork has the semaphores, but none of the waiting threads. */
Test(fake_semaphore, a_forked_child_starts_anew) {
  begin_shared();
  open_mode(1, 1);
  hal_plugin_stream_t *const stream = new_stream();
  semaphore_t *const semaphore = make(0, HAL_SEMAPHORE_INTERPROCESS), *const own = make(2, 0);
  must(fake_api.stream_wait_semaphore(stream, semaphore, 1));
  cr_assert_eq(fake_api.stream_synchronize_timeout(stream, 20000000), HAL_NOT_READY);
  const pid_t child = fork();
  if (!child) {
    must_fail(fake_api.stream_synchronize(stream), HAL_ABORTED, "was forked");
    must(fake_api.stream_wait_semaphore(stream, semaphore, 2));
    must(fake_api.semaphore_set(own, 3));
    cr_assert_eq(fake_api.stream_query(stream), HAL_NOT_READY);
    must(fake_api.semaphore_set(semaphore, 1));
    await(1);
    must(fake_api.stream_synchronize(stream));
    const ipc_handle_t handle = export(semaphore); /* with the child's number */
    must(fake_api.semaphore_destroy(open_it(&handle)));
    must(fake_api.semaphore_destroy(semaphore));
    must(fake_api.semaphore_destroy(own));
    _exit(0);
  }
  int state = 1;
  must(fake_api.stream_synchronize(stream));
  cr_assert_eq(value_of(own), 2);
  must(fake_api.semaphore_set(semaphore, 2));
  reach(1);
  cr_assert_eq(waitpid(child, &state, 0), child);
  cr_assert(WIFEXITED(state) && WEXITSTATUS(state) == 0, "%d", state);
  must(fake_api.semaphore_destroy(semaphore));
  must(fake_api.semaphore_destroy(own));
}

Test(fake_semaphore, files_are_given_back) {
  open_mode(1, 1);
  hal_plugin_stream_t *const stream = new_stream();
  must(fake_api.semaphore_destroy(make(0, HAL_SEMAPHORE_INTERPROCESS)));
  const int before = files();
  for (int i = 0; i < 100; i++) {
    semaphore_t *const semaphore = make(0, HAL_SEMAPHORE_INTERPROCESS);
    const ipc_handle_t handle = export(semaphore);
    semaphore_t *const opened = open_it(&handle);
    must(fake_api.stream_wait_semaphore(stream, opened, 1));
    must(fake_api.stream_signal_semaphore(NULL, semaphore, 1));
    must(fake_api.stream_synchronize(stream));
    must(fake_api.semaphore_destroy(semaphore));
    must(fake_api.semaphore_destroy(opened));
  }
  for (int i = 0; i < 2000 && files() > before; i++) fake_sleep_ms(1); /* watchers that are about to end */
  cr_assert_leq(files(), before);
}
