/* comm_waiter.c: threads that wait for collectives and run them (HAL_COMM_WAITER_RUNS, HAL_COMM_CALLER_WAITS). The
 * test's own transport records which thread calls it, and waits at closed gates. */
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "hal/comm.h"
#include "support.h"

enum { COUNT = 4, RANKS = 2, MOST = 16 };
static const int64_t second = 1000000000;

/* ---- a transport with a gate ---- */

static struct {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  int is_closed, aborted, running, destroyed_while_running;
  unsigned ran;
  uint64_t counts[MOST]; /* of the calls, in their order */
  pthread_t threads[MOST];
} gate = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static hal_status_t move(void *context, const hal_collective_t *calls, uint32_t count, int64_t timeout_ns) {
  (void)context, (void)count, (void)timeout_ns;
  pthread_mutex_lock(&gate.lock);
  gate.counts[gate.ran % MOST] = calls->count;
  gate.threads[gate.ran++ % MOST] = pthread_self();
  gate.running++;
  pthread_cond_broadcast(&gate.changed);
  while (gate.is_closed && !gate.aborted) pthread_cond_wait(&gate.changed, &gate.lock);
  gate.running--;
  const int aborted = gate.aborted;
  pthread_mutex_unlock(&gate.lock);
  return aborted ? hal_error_set(HAL_ABORTED, "the gate was aborted") : HAL_OK;
}

static void stop(void *context, const char *reason) {
  (void)context, (void)reason;
  pthread_mutex_lock(&gate.lock);
  gate.aborted = 1;
  pthread_cond_broadcast(&gate.changed);
  pthread_mutex_unlock(&gate.lock);
}

static void destroy(void *context) {
  (void)context;
  pthread_mutex_lock(&gate.lock);
  gate.destroyed_while_running = gate.running;
  pthread_mutex_unlock(&gate.lock);
}

static void set_gate(int is_closed) {
  pthread_mutex_lock(&gate.lock);
  gate.is_closed = is_closed;
  pthread_cond_broadcast(&gate.changed);
  pthread_mutex_unlock(&gate.lock);
}

static void await_calls(unsigned count) {
  pthread_mutex_lock(&gate.lock);
  while (gate.ran < count) pthread_cond_wait(&gate.changed, &gate.lock);
  pthread_mutex_unlock(&gate.lock);
}

/* ---- the arguments of `done` ---- */

typedef struct end_s {
  _Atomic int count;
  hal_status_t status;
  pthread_t thread;
} end_t;

static void done(void *user_data, hal_status_t status) {
  end_t *const end = user_data;
  end->status = status;
  end->thread = pthread_self();
  atomic_fetch_add(&end->count, 1);
}

/* Waits for `done`, which no caller triggers. */
static void await_end(end_t *end) {
  for (int i = 0; i < 20000 && !atomic_load(&end->count); i++) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  cr_assert_eq(atomic_load(&end->count), 1, "the work was not run");
}

static int is_self(pthread_t thread) { return pthread_equal(thread, pthread_self()); }

/* ---- the communicator ---- */

static hal_comm_t *comm;
static hal_stream_t *stream;
static hal_block_t *memory;

static void begin(void) {
  setenv("HAL_PLUGIN_PATH", PLUGIN_DIR, 0);
  assert_ok(hal_registry_open("fake"));
  assert_ok(hal_stream_acquire(0, 0, &stream));
  assert_ok(hal_memory_allocate(0, stream, MOST * sizeof(float), &memory));
  const hal_comm_config_t config = {
      .struct_size = sizeof config,
      .size = RANKS,
      .name = "test",
      .transport = {sizeof(hal_comm_transport_t), NULL, "test", move, stop, destroy, HAL_COMM_COMPARES_CALLS}};
  assert_ok(hal_comm_create(&config, &comm));
}

static void end(void) {
  hal_comm_destroy(comm, 10 * second);
  cr_expect_eq(gate.destroyed_while_running, 0);
  hal_memory_release(memory);
  hal_registry_close();
}

TestSuite(comm_waiter, .init = begin, .fini = end, .timeout = 120);

static hal_collective_t call_of(uint32_t op, uint64_t count) {
  return (hal_collective_t){.struct_size = sizeof(hal_collective_t),
                            .op = op,
                            .dtype = HAL_FLOAT32,
                            .peer = 1,
                            .send = hal_memory_block_address(memory),
                            .recv = hal_memory_block_address(memory),
                            .count = count};
}

static hal_comm_work_t *submit(uint32_t flags, uint64_t count, end_t *end) {
  const hal_collective_t call = call_of(HAL_COMM_ALL_REDUCE, count);
  const hal_comm_entry_t entry = {.struct_size = sizeof entry, .flags = flags};
  hal_comm_work_t *work;
  assert_ok(hal_comm_submit_logged(comm, stream, &call, 1, 0, &entry, end ? done : NULL, end, &work));
  return work;
}

static void finish(hal_comm_work_t *work) {
  assert_ok(hal_comm_work_wait(work, stream, 0));
  hal_comm_work_release(work);
}

/* ---- events ---- */

static void fail_later_events(void) {
  setenv("HAL_LAYERS", "fault", 1);
  setenv("HAL_FAULT", "event_create:9,event_create:10,event_create:11", 1);
  begin();
}

TestSuite(comm_waiter_events, .init = fail_later_events, .fini = end, .timeout = 120);

Test(comm_waiter_events, works_use_those_of_works_that_have_ended) {
  for (int i = 0; i < 50; i++) finish(submit(i % 2 ? HAL_COMM_CALLER_WAITS : 0, COUNT, NULL));
}

/* ---- `done` that waits for later works ---- */

typedef struct nested_s {
  end_t end;
  uint32_t flags;
  int64_t timeout_ns;
  int left;
} nested_t;

static void submit_and_wait(void *user_data, hal_status_t status) {
  nested_t *const nested = user_data;
  if (nested->left-- > 0) {
    const hal_collective_t call = call_of(HAL_COMM_ALL_REDUCE, COUNT + 1);
    const hal_comm_entry_t entry = {.struct_size = sizeof entry, .flags = nested->flags};
    hal_comm_work_t *work;
    status = hal_comm_submit_logged(comm, stream, &call, 1, 0, &entry, submit_and_wait, nested, &work);
    if (!status) status = hal_comm_work_wait(work, stream, nested->timeout_ns);
    if (!status) hal_comm_work_release(work);
  }
  if (status) nested->end.status = status;
  nested->end.thread = pthread_self();
  atomic_fetch_add(&nested->end.count, 1);
}

Test(comm_waiter, done_may_wait_for_later_works) {
  static const uint32_t flags[] = {0, HAL_COMM_WAITER_RUNS, HAL_COMM_CALLER_WAITS};
  for (unsigned i = 0; i < 18; i++) {
    nested_t nested = {.flags = flags[i % 3], .timeout_ns = i / 9 ? 5 * second : 0, .left = 3};
    const hal_collective_t call = call_of(HAL_COMM_ALL_REDUCE, COUNT);
    const hal_comm_entry_t entry = {.struct_size = sizeof entry, .flags = flags[i / 3 % 3]};
    hal_comm_work_t *work;
    assert_ok(hal_comm_submit_logged(comm, stream, &call, 1, 0, &entry, submit_and_wait, &nested, &work));
    finish(work);
    for (int ms = 0; ms < 20000 && atomic_load(&nested.end.count) < 4; ms++)
      nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    cr_assert_eq(atomic_load(&nested.end.count), 4);
    assert_ok(nested.end.status);
  }
  finish(submit(HAL_COMM_CALLER_WAITS, COUNT, NULL));
}

/* ---- the thread that runs a work ---- */

Test(comm_waiter, a_caller_that_waits_runs_the_work) {
  for (int i = 0; i < MOST; i++) {
    end_t end = {0};
    finish(submit(HAL_COMM_CALLER_WAITS, COUNT, &end));
    cr_assert_eq(atomic_load(&end.count), 1);
    cr_assert(is_self(end.thread) && is_self(gate.threads[i]) && !end.status);
  }
  end_t end = {0};
  hal_comm_work_t *const work = submit(HAL_COMM_CALLER_WAITS, COUNT, &end);
  assert_ok(hal_comm_work_synchronize(work, 0));
  cr_expect(is_self(end.thread));
  hal_comm_work_release(work);
}

Test(comm_waiter, without_a_flag_a_thread_of_the_hal_runs_the_work) {
  end_t end = {0};
  finish(submit(0, COUNT, &end));
  await_end(&end); /* it runs on another thread and may return after the wait */
  cr_expect(!is_self(end.thread) && !is_self(gate.threads[0]));
  const hal_collective_t call = call_of(HAL_COMM_ALL_REDUCE, COUNT);
  const hal_comm_entry_t older = {.struct_size = offsetof(hal_comm_entry_t, flags), .flags = HAL_COMM_CALLER_WAITS};
  end_t other = {0};
  hal_comm_work_t *work;
  assert_ok(hal_comm_submit_logged(comm, stream, &call, 1, 0, &older, done, &other, &work));
  finish(work);
  await_end(&other);
  cr_expect(!is_self(other.thread));
}

Test(comm_waiter, a_waiter_may_run_a_work_that_the_thread_was_woken_for) {
  for (int i = 0; i < 200; i++) {
    end_t end = {0};
    finish(submit(HAL_COMM_WAITER_RUNS, COUNT, &end));
    await_end(&end);
    cr_assert_eq(end.status, HAL_OK);
  }
  cr_expect_eq(gate.ran, 200);
}

static void *wait_for(void *work) {
  const hal_status_t status = hal_comm_work_wait(work, stream, 0);
  return status ? work : NULL;
}

Test(comm_waiter, two_threads_may_wait_for_one_work) {
  pthread_t threads[2];
  end_t end = {0};
  set_gate(1);
  hal_comm_work_t *const work = submit(HAL_COMM_CALLER_WAITS, COUNT, &end);
  for (int i = 0; i < 2; i++) cr_assert_eq(pthread_create(&threads[i], NULL, wait_for, work), 0);
  await_calls(1);
  set_gate(0);
  for (int i = 0; i < 2; i++) {
    void *failed;
    pthread_join(threads[i], &failed);
    cr_expect_null(failed);
  }
  cr_expect_eq(gate.ran, 1);
  cr_expect_eq(atomic_load(&end.count), 1);
  cr_expect(pthread_equal(end.thread, threads[0]) || pthread_equal(end.thread, threads[1]));
  hal_comm_work_release(work);
}

/* ---- order ---- */

Test(comm_waiter, a_work_before_runs_first) {
  hal_comm_work_t *const first = submit(HAL_COMM_CALLER_WAITS, 1, NULL);
  hal_comm_work_t *const second = submit(HAL_COMM_CALLER_WAITS, 2, NULL);
  finish(second);
  cr_expect(gate.ran == 2 && gate.counts[0] == 1 && gate.counts[1] == 2);
  assert_ok(hal_comm_work_query(first));
  hal_comm_work_release(first);
}

/* The thread of the HAL runs the first work while the caller waits for the second one, which it may run. */
Test(comm_waiter, a_work_that_another_thread_runs_comes_first) {
  set_gate(1);
  hal_comm_work_t *const first = submit(0, 1, NULL);
  await_calls(1);
  hal_comm_work_t *const second = submit(HAL_COMM_CALLER_WAITS, 2, NULL);
  pthread_t thread;
  cr_assert_eq(pthread_create(&thread, NULL, wait_for, second), 0);
  nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
  cr_expect_eq(gate.ran, 1);
  set_gate(0);
  void *failed;
  pthread_join(thread, &failed);
  cr_expect_null(failed);
  cr_expect(gate.ran == 2 && gate.counts[1] == 2);
  hal_comm_work_release(first);
  hal_comm_work_release(second);
}

/* The waiter of the next work does not run a work without the flag. */
Test(comm_waiter, only_works_with_the_flag_are_run_by_waiters) {
  for (int i = 0; i < 100; i++) {
    end_t first = {0};
    hal_comm_work_t *const before = submit(0, 1, &first);
    finish(submit(HAL_COMM_CALLER_WAITS, 2, NULL));
    await_end(&first);
    cr_assert(!is_self(first.thread));
    hal_comm_work_release(before);
  }
}

/* ---- no thread waits ---- */

Test(comm_waiter, a_work_that_is_released_runs) {
  end_t end = {0};
  hal_comm_work_release(submit(HAL_COMM_CALLER_WAITS, COUNT, &end));
  await_end(&end);
  cr_expect(!is_self(end.thread) && !end.status);
}

Test(comm_waiter, a_work_that_is_queried_runs) {
  end_t end = {0};
  hal_comm_work_t *const work = submit(HAL_COMM_CALLER_WAITS, COUNT, &end);
  hal_status_t status = hal_comm_work_query(work);
  cr_expect(status == HAL_NOT_READY || status == HAL_OK);
  await_end(&end);
  assert_ok(hal_comm_work_query(work));
  hal_comm_work_release(work);
}

Test(comm_waiter, a_work_runs_with_the_next_one) {
  end_t first = {0}, second = {0};
  hal_comm_work_t *const work = submit(HAL_COMM_CALLER_WAITS, 1, &first);
  hal_comm_work_t *const next = submit(0, 2, &second);
  await_end(&first);
  await_end(&second);
  cr_expect(gate.counts[0] == 1 && gate.counts[1] == 2);
  hal_comm_work_release(work);
  hal_comm_work_release(next);
}

Test(comm_waiter, a_wait_with_a_time_ends_and_the_work_goes_on) {
  end_t end = {0};
  set_gate(1);
  hal_comm_work_t *const work = submit(HAL_COMM_CALLER_WAITS, COUNT, &end);
  assert_fails(hal_comm_work_wait(work, stream, second / 20), HAL_NOT_READY, "it goes on");
  await_calls(1);
  cr_expect(!is_self(gate.threads[0]));
  set_gate(0);
  finish(work);
  await_end(&end);
}

/* ---- failures and destruction ---- */

Test(comm_waiter, an_abort_ends_a_waiter_that_runs_the_work) {
  end_t end = {0};
  pthread_t thread;
  set_gate(1);
  hal_comm_work_t *const work = submit(HAL_COMM_CALLER_WAITS, COUNT, &end);
  cr_assert_eq(pthread_create(&thread, NULL, wait_for, work), 0);
  await_calls(1);
  hal_comm_abort(comm, "a test");
  void *failed;
  pthread_join(thread, &failed);
  cr_expect_eq(failed, work);
  cr_expect(atomic_load(&end.count) == 1 && end.status == HAL_ABORTED && pthread_equal(end.thread, thread));
  assert_fails(hal_comm_work_wait(work, stream, 0), HAL_ABORTED, "a test");
  hal_comm_work_release(work);
}

Test(comm_waiter, an_abort_ends_a_work_that_has_not_begun) {
  end_t end = {0};
  hal_comm_work_t *const work = submit(HAL_COMM_CALLER_WAITS, COUNT, &end);
  hal_comm_abort(comm, "a test");
  await_end(&end);
  cr_expect_eq(end.status, HAL_ABORTED);
  assert_fails(hal_comm_work_wait(work, stream, 0), HAL_ABORTED, "a test");
  hal_comm_work_release(work);
}

/* The transport is destroyed after the waiter has left it; `end` checks that. */
Test(comm_waiter, a_communicator_is_destroyed_while_a_waiter_runs) {
  pthread_t thread;
  set_gate(1);
  hal_comm_work_t *const work = submit(HAL_COMM_CALLER_WAITS, COUNT, NULL);
  cr_assert_eq(pthread_create(&thread, NULL, wait_for, work), 0);
  await_calls(1);
  hal_comm_destroy(comm, 0);
  comm = NULL;
  void *failed;
  pthread_join(thread, &failed);
  cr_expect_eq(failed, work);
  hal_comm_work_release(work);
}

Test(comm_waiter, a_communicator_is_destroyed_with_a_work_that_has_not_begun) {
  end_t end = {0};
  hal_comm_work_t *const work = submit(HAL_COMM_CALLER_WAITS, COUNT, &end);
  hal_comm_destroy(comm, 10 * second);
  comm = NULL;
  cr_expect(atomic_load(&end.count) == 1 && !end.status);
  hal_comm_work_release(work);
}

/* ---- SEND and RECV ---- */

Test(comm_waiter, one_message_is_run_by_its_waiter) {
  const hal_collective_t call = call_of(HAL_COMM_SEND, COUNT);
  const hal_comm_entry_t entry = {.struct_size = sizeof entry, .flags = HAL_COMM_CALLER_WAITS};
  end_t end = {0};
  hal_comm_work_t *work;
  assert_ok(hal_comm_submit_logged(comm, stream, &call, 1, 0, &entry, done, &end, &work));
  finish(work);
  cr_expect(is_self(end.thread));
}

/* Both must be in progress at the same time. */
Test(comm_waiter, a_bracket_of_messages_is_run_by_threads_of_the_hal) {
  const hal_collective_t calls[] = {call_of(HAL_COMM_SEND, 1), call_of(HAL_COMM_RECV, 2)};
  const hal_comm_entry_t entry = {.struct_size = sizeof entry, .flags = HAL_COMM_CALLER_WAITS};
  end_t end = {0};
  hal_comm_work_t *work;
  set_gate(1);
  assert_ok(hal_comm_submit_logged(comm, stream, calls, 2, 0, &entry, done, &end, &work));
  await_calls(2);
  set_gate(0);
  finish(work);
  await_end(&end);
  cr_expect(!is_self(gate.threads[0]) && !is_self(gate.threads[1]));
}

Test(comm_waiter, unknown_flags_are_refused) {
  const hal_collective_t call = call_of(HAL_COMM_ALL_REDUCE, COUNT);
  const hal_comm_entry_t entry = {.struct_size = sizeof entry, .flags = 8};
  hal_comm_work_t *work;
  assert_fails(hal_comm_submit_logged(comm, stream, &call, 1, 0, &entry, NULL, NULL, &work), HAL_INVALID_ARGUMENT,
               "unknown flags 0x8");
}
