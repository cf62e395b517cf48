/* run.c: who runs a stream's items, and how threads and other streams wait for them.
 *
 * The life of a stream's state, always changed under its lock:
 *
 *   IDLE --enqueue--> QUEUED --claimed by a worker or by a thread that waits--> RUNNING --nothing left--> IDLE
 *   RUNNING --its turn is over and other streams wait--> QUEUED
 *   RUNNING --next item waits for another stream--> PARKED --that stream got there--> QUEUED
 *
 * A parked stream occupies no thread: it stands in the list of waiters of the stream that it waits for. A thread that
 * waits sleeps only while the stream is RUNNING; whenever the stream leaves that state, or reaches `wake_at`, the
 * sleepers are woken, look again, and run the items themselves if nobody else does. So a waiting thread depends on no
 * free worker. */
#define _GNU_SOURCE
#include <limits.h>
#include <sched.h>
#include <time.h>

#include "fake.h"

/* A worker changes to another waiting stream after so many items: a launch of small kernels takes 10 to 100 us then. */
#define TURN_ITEMS 64

/* ---- waking
 * ------------------------------------------------------------------------------------------------------------- */

/* Under the lock: tells the sleepers to look again. Returns whether they must be woken after unlocking. */
static int signal_sleepers(hal_plugin_stream_t *stream) {
  if (!stream->sleepers) return 0;
  atomic_fetch_add_explicit(&stream->signal, 1, memory_order_relaxed);
  return 1;
}

/* Unlocks; hands a stream that has just become QUEUED to the pool, with `much` or little work. Takes no reference of the caller's. */
static void unlock_queued(hal_plugin_stream_t *stream, int much) {
  const int push = !stream->listed;
  stream->listed = 1;
  if (push) fake_stream_ref(stream); /* the list's */
  fake_unlock(&stream->lock);
  if (push && FAKE_UNLIKELY(!fake_pool_push(stream, much))) { /* no thread could be started: the work is done here */
    fake_lock(&stream->lock);
    stream->listed = 0;
    fake_unlock(&stream->lock);
    fake_stream_wait(stream, fake_stream_tail(stream));
    fake_stream_unref(stream);
  }
}

void fake_stream_schedule(hal_plugin_stream_t *stream, int much) {
  stream->state = FAKE_STREAM_QUEUED;
  unlock_queued(stream, much);
}

/* A parked stream may go on. Drops the reference of the list of waiters. */
static void resume(hal_plugin_stream_t *stream) {
  fake_lock(&stream->lock);
  stream->state = FAKE_STREAM_QUEUED;
  stream->wait_stream = NULL;
  const int wake = signal_sleepers(stream);
  unlock_queued(stream, 1);
  if (wake) fake_futex_wake(&stream->signal, INT_MAX);
  fake_stream_unref(stream);
}

/* `wake_at` is reached: wakes the sleepers and resumes the streams whose number is done. */
static void wake_waiters(hal_plugin_stream_t *stream) {
  hal_plugin_stream_t *ready = NULL;
  fake_lock(&stream->lock);
  const uint64_t done = fake_stream_done(stream);
  uint64_t least = UINT64_MAX;
  for (hal_plugin_stream_t **link = &stream->waiters; *link;) {
    hal_plugin_stream_t *waiter = *link;
    if (waiter->wait_number <= done) {
      *link = waiter->wait_next;
      waiter->wait_next = ready;
      ready = waiter;
    } else {
      if (waiter->wait_number < least) least = waiter->wait_number;
      link = &waiter->wait_next;
    }
  }
  atomic_store_explicit(&stream->wake_at, least, memory_order_seq_cst); /* sleepers set it again */
  const int wake = signal_sleepers(stream);
  fake_unlock(&stream->lock);
  if (wake) fake_futex_wake(&stream->signal, INT_MAX);
  while (ready) {
    hal_plugin_stream_t *next = ready->wait_next;
    resume(ready);
    ready = next;
  }
}

/* Under the lock: makes item `number` wake the waiters. Returns whether it is done already. The order, wake_at before
 * done here and done before wake_at in complete(), is why no wake-up is lost. */
static int wake_at(hal_plugin_stream_t *stream, uint64_t number) {
  if (number < atomic_load_explicit(&stream->wake_at, memory_order_relaxed))
    atomic_store_explicit(&stream->wake_at, number, memory_order_seq_cst);
  return atomic_load_explicit(&stream->done, memory_order_seq_cst) >= number;
}

static inline void complete(hal_plugin_stream_t *stream, uint64_t number) {
  atomic_store_explicit(&stream->done, number, memory_order_seq_cst);
  if (FAKE_UNLIKELY(number >= atomic_load_explicit(&stream->wake_at, memory_order_seq_cst))) wake_waiters(stream);
}

/* ---- running
 * ------------------------------------------------------------------------------------------------------------ */

enum { RAN_ALL = 0, RAN_ENOUGH = 1, RAN_TURN = 2, RAN_INTO_WAIT = 3 };

/* HAL_FAKE_DELAY: a pause of random length, so that a missing synchronisation shows. The numbers are splitmix64's of
 * one counter. (No thread-local state: the leak checker of gcc 12 crashes on that of a library opened with dlopen.) */
static void pause_randomly(void) {
  static _Atomic uint64_t counter;
  uint64_t x =
      atomic_fetch_add_explicit(&counter, UINT64_C(0x9E3779B97F4A7C15), memory_order_relaxed) + (uint64_t)fake_now();
  x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
  x = (x ^ x >> 27) * UINT64_C(0x94D049BB133111EB);
  const int64_t ns = (int64_t)((x ^ x >> 31) % ((uint64_t)fake.settings.delay_us * 1000 + 1));
  const struct timespec pause = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
  nanosleep(&pause, NULL);
}

/* A launch with flags: made to fail, or observed. */
static void run_flagged(hal_plugin_stream_t *stream, const fake_item_t *item) {
  const hal_host_kernel_t *kernel = item->u.launch.kernel;
  if (item->flags & FAKE_ITEM_FAULT) {
    fake_stream_fail(stream, HAL_INTERNAL, kernel->name);
    fake_watch_failure(stream->device, kernel->name);
  } else
    fake_run_noted(fake_item_note(item), stream, kernel, item->u.launch.units, item->args);
}

static void run_graph(hal_plugin_stream_t *stream, fake_recording_t *recording) {
  const hal_host_kernel_t *const failed = fake_recording_run(stream, recording);
  if (FAKE_UNLIKELY(failed != NULL)) {
    fake_stream_fail(stream, HAL_INTERNAL, failed->name);
    fake_watch_failure(stream->device, failed->name);
  }
  fake_recording_unref(recording);
}

void fake_run_item(hal_plugin_stream_t *stream, const fake_item_t *item) {
  if (FAKE_UNLIKELY(fake.settings.delay_us)) pause_randomly();
  switch (item->kind) {
    case FAKE_ITEM_LAUNCH:
      if (FAKE_UNLIKELY(item->flags & (FAKE_ITEM_FAULT | FAKE_ITEM_NOTED)))
        run_flagged(stream, item);
      else
        fake_run(stream, item->u.launch.kernel, item->u.launch.units, item->args);
      break;
    case FAKE_ITEM_RECORD:
      fake_event_stamp(item->u.record.event, item->u.record.generation);
      break;
    case FAKE_ITEM_WAIT:
      fake_stream_unref(item->u.wait.stream);
      break; /* the wait is over: run_items looked */
    case FAKE_ITEM_GRAPH:
      run_graph(stream, item->u.graph);
      break;
    default:
      item->u.host.fn(item->u.host.user_data);
      break;
  }
}

/* The stream is claimed by the caller: runs items until item `number` is done, there is no more, or, when `fair`, the
 * turn is over. */
static int run_items(hal_plugin_stream_t *stream, uint64_t number, int fair) {
  uint64_t done = atomic_load_explicit(&stream->done, memory_order_relaxed);
  for (uint32_t ran = 0;; ran++) {
    if (done == fake_stream_tail(stream)) return RAN_ALL;
    if (done >= number) return RAN_ENOUGH;
    if (fair && ran >= TURN_ITEMS && atomic_load_explicit(&fake_pool_work, memory_order_relaxed)) return RAN_TURN;
    const fake_item_t *item = fake_queue_front(stream);
    if (item->kind == FAKE_ITEM_WAIT && fake_stream_done(item->u.wait.stream) < item->u.wait.number)
      return RAN_INTO_WAIT;
    fake_run_item(stream, item);
    fake_queue_pop(stream, item);
    complete(stream, ++done);
  }
}

/* The claimed stream's next item waits for another stream: leaves it with that stream's waiters. Returns 0 when the
 * wait is over after all: the stream is still claimed. */
static int park(hal_plugin_stream_t *stream) {
  const fake_item_t *item = fake_queue_front(stream);
  hal_plugin_stream_t *other = item->u.wait.stream;
  const uint64_t number = item->u.wait.number;
  fake_stream_ref(stream); /* the list's */
  fake_stream_ref(other);  /* the item may be run, and its reference dropped, as soon as `other` knows us */
  fake_lock(&stream->lock);
  stream->state = FAKE_STREAM_PARKED; /* first: once in the list, it may be resumed at any moment */
  stream->wait_stream = other;
  stream->wait_number = number;
  const int wake = signal_sleepers(stream);
  fake_unlock(&stream->lock);
  if (wake) fake_futex_wake(&stream->signal, INT_MAX);

  fake_lock(&other->lock);
  const int over = wake_at(other, number);
  if (!over) {
    stream->wait_next = other->waiters;
    other->waiters = stream;
  }
  fake_unlock(&other->lock);
  fake_stream_unref(other);
  if (!over) return 1;

  fake_lock(&stream->lock); /* nobody else can have taken it out of PARKED: it never was in the list */
  stream->state = FAKE_STREAM_RUNNING;
  stream->wait_stream = NULL;
  fake_unlock(&stream->lock);
  fake_stream_unref(stream);
  return 0;
}

/* Gives up a claim. Returns 0, still claimed, when `unless_work` and items have come meanwhile. */
static int release(hal_plugin_stream_t *stream, int unless_work) {
  fake_lock(&stream->lock);
  const int empty = fake_stream_done(stream) == fake_stream_tail(stream);
  if (!empty && unless_work) {
    fake_unlock(&stream->lock);
    return 0;
  }
  const int wake = signal_sleepers(stream);
  if (empty) {
    stream->state = FAKE_STREAM_IDLE;
    fake_queue_rewind(stream);
    fake_unlock(&stream->lock);
  } else {
    stream->state = FAKE_STREAM_QUEUED;
    unlock_queued(stream, 1);
  }
  if (wake) fake_futex_wake(&stream->signal, INT_MAX);
  return 1;
}

/* The claimed stream has run dry: stays a moment, since a thread that enqueues one small launch after another then
 * finds the worker awake and need not touch the pool. Not where threads wait after every few launches: they would pass each from
 * core to core. Returns whether there are new items. */
static int linger(hal_plugin_stream_t *stream) {
  if (atomic_load_explicit(&stream->amount, memory_order_relaxed) < FAKE_MUCH) return 0;
  const uint64_t done = atomic_load_explicit(&stream->done, memory_order_relaxed);
  fake_pool_look();
  FAKE_SPIN_UNTIL(fake_stream_tail(stream) != done || atomic_load_explicit(&fake_pool_work, memory_order_relaxed));
  fake_pool_leave();
  return fake_stream_tail(stream) != done;
}

int fake_stream_visit(hal_plugin_stream_t *stream) {
  fake_lock(&stream->lock);
  stream->listed = 0;
  const int claimed = stream->state == FAKE_STREAM_QUEUED; /* else a waiting thread was faster */
  if (claimed) stream->state = FAKE_STREAM_RUNNING;
  fake_unlock(&stream->lock);
  while (claimed) {
    const int why = run_items(stream, UINT64_MAX, 1);
    if (why == RAN_INTO_WAIT) {
      if (park(stream)) return 0;
    } else if (why == RAN_TURN) {
      release(stream, 0);
      return 0;
    } else if (!linger(stream) && release(stream, 1)) {
      return !atomic_load_explicit(&fake_pool_work, memory_order_relaxed);
    }
  }
  return 0;
}

/* ---- waiting
 * ------------------------------------------------------------------------------------------------------------ */

/* Runs a stream that the caller has claimed until `number` is done or it must wait for another. */
static void run_claimed(hal_plugin_stream_t *stream, uint64_t number) {
  for (;;) {
    if (run_items(stream, number, 0) != RAN_INTO_WAIT) {
      release(stream, 0);
      return;
    }
    if (park(stream)) return;
  }
}

/* Sleeps until the stream reaches `number`, is signalled, or the time is over (negative = no limit). Does not begin to
 * when the stream is not RUNNING, unless `any_state`: the caller then has something better to do. */
static void sleep_on(hal_plugin_stream_t *stream, uint64_t number, int64_t timeout_ns, int any_state) {
  fake_lock(&stream->lock);
  if (wake_at(stream, number) || (!any_state && stream->state != FAKE_STREAM_RUNNING)) {
    fake_unlock(&stream->lock);
    return;
  }
  stream->sleepers++;
  const uint32_t seen = atomic_load_explicit(&stream->signal, memory_order_relaxed);
  fake_unlock(&stream->lock);
  fake_futex_wait(&stream->signal, seen, timeout_ns);
  fake_lock(&stream->lock);
  stream->sleepers--;
  fake_unlock(&stream->lock);
}

/* One step towards item `number` of the stream: runs it, or helps, or waits. Gives, with a reference, the stream that
 * this one waits for when it is parked, and that stream's number. */
static hal_plugin_stream_t *wait_step(hal_plugin_stream_t *stream, uint64_t number, int *inout_spun,
                                      uint64_t *out_number) {
  fake_lock(&stream->lock);
  const uint32_t state = stream->state;
  hal_plugin_stream_t *other = NULL;
  if (state == FAKE_STREAM_QUEUED) {
    stream->state = FAKE_STREAM_RUNNING;
  } else if (state == FAKE_STREAM_PARKED && stream->wait_stream) {
    other = stream->wait_stream;
    fake_stream_ref(other);
    *out_number = stream->wait_number;
  }
  fake_unlock(&stream->lock);

  if (state == FAKE_STREAM_QUEUED) {
    run_claimed(stream, number);
  } else if (state == FAKE_STREAM_RUNNING && !fake_pool_help(stream)) {
    if (!*inout_spun) {
      FAKE_SPIN_UNTIL(fake_stream_done(stream) >= number);
      *inout_spun = 1;
    } else {
      sleep_on(stream, number, -1, 0);
    }
  }
  return other;
}

void fake_stream_wait(hal_plugin_stream_t *stream, uint64_t number) {
  int spun = 0;
  hal_plugin_stream_t *at =
      stream; /* where the wait stands: the stream, or one that it waits for, however indirectly */
  uint64_t at_number = number;
  while (fake_stream_done(stream) < number) {
    hal_plugin_stream_t *next = NULL;
    uint64_t next_number = 0;
    if (fake_stream_done(at) < at_number)
      next = wait_step(at, at_number, &spun, &next_number);
    else
      sched_yield(); /* `at` got there, and its waiters are just being resumed */
    if (next || fake_stream_done(at) >= at_number) {
      if (at != stream) fake_stream_unref(at);
      at = next ? next : stream;
      at_number = next ? next_number : number;
    }
  }
  if (at != stream) fake_stream_unref(at);
}

int fake_stream_wait_timeout(hal_plugin_stream_t *stream, uint64_t number, int64_t timeout_ns) {
  if (fake_stream_done(stream) >= number) return 1;
  int64_t end = 0;
  if (timeout_ns <= 0) return 0;
  if (__builtin_add_overflow(fake_now(), timeout_ns, &end)) end = INT64_MAX;
  while (fake_stream_done(stream) < number) {
    const int64_t left = end - fake_now();
    if (left <= 0) return 0;
    sleep_on(stream, number, left, 1);
  }
  return 1;
}
