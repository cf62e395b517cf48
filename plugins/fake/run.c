/* run.c: running a stream's items, and waits between streams: rules 1 and 3 of schedule.h.
 *
 * No wake-up is lost: a thread that waits for item n stores n in `wake_at` and then reads `done`; the thread that runs
 * the stream stores `done` and then reads `wake_at`. */
#define _GNU_SOURCE
#include <limits.h>
#include <time.h>

#include "schedule.h"

/* After this many items a worker changes to another stream that is ready: 10 to 100 us for launches of small kernels.
 * */
#define TURN_ITEMS 64

/* ---- READY ------------------------------------------------------------------------------------------------------ */

/* Signals the threads that sleep on the stream to check again; the caller holds the lock. Returns whether they must be
 * woken after unlocking. */
static int signal_sleepers(hal_plugin_stream_t *stream) {
  if (!stream->sleepers) return 0;
  atomic_fetch_add_explicit(&stream->signal, 1, memory_order_relaxed);
  return 1;
}

static void unlock_and_wake_sleepers(hal_plugin_stream_t *stream) {
  const int wake = signal_sleepers(stream);
  fake_unlock(&stream->lock);
  if (wake) fake_futex_wake(&stream->signal, INT_MAX);
}

/* Unlocks a stream that has just become READY, and adds it to the pool's list. It may still be there, if a waiting
 * thread has run it. */
static void unlock_ready(hal_plugin_stream_t *stream, int wake) {
  const int push = !stream->listed;
  stream->listed = 1;
  if (push) fake_stream_ref(stream); /* the list's reference */
  fake_unlock(&stream->lock);
  if (push && FAKE_UNLIKELY(!fake_pool_push(stream, wake))) { /* no thread could be started, so the work runs here */
    fake_lock(&stream->lock);
    stream->listed = 0;
    fake_unlock(&stream->lock);
    fake_stream_wait(stream, fake_stream_tail(stream));
    fake_stream_unref(stream);
  }
}

void fake_stream_make_ready(hal_plugin_stream_t *stream, int wake) {
  stream->state = FAKE_STREAM_READY;
  unlock_ready(stream, wake);
}

/* ---- BLOCKED ---------------------------------------------------------------------------------------------------- */

/* Continues a BLOCKED stream. Releases the reference of the list of waiters. */
static void unblock(hal_plugin_stream_t *stream) {
  fake_lock(&stream->lock);
  stream->state = FAKE_STREAM_READY;
  stream->wait_stream = NULL;
  const int wake = signal_sleepers(stream);
  unlock_ready(stream, 1);
  if (wake) fake_futex_wake(&stream->signal, INT_MAX);
  fake_stream_unref(stream);
}

int fake_stream_wake_at(hal_plugin_stream_t *stream, uint64_t number) {
  if (number < atomic_load_explicit(&stream->wake_at, memory_order_relaxed))
    atomic_store_explicit(&stream->wake_at, number, memory_order_seq_cst);
  return atomic_load_explicit(&stream->done, memory_order_seq_cst) >= number;
}

/* Removes the streams whose item is done from the list of waiters, and sets `wake_at` for the others; threads set it
 * again. The caller holds the lock. */
static hal_plugin_stream_t *take_waiters(hal_plugin_stream_t *stream) {
  hal_plugin_stream_t *ready = NULL;
  const uint64_t done = fake_stream_done(stream);
  uint64_t least = UINT64_MAX;
  for (hal_plugin_stream_t **link = &stream->waiters; *link;) {
    hal_plugin_stream_t *const waiter = *link;
    if (waiter->wait_number <= done) {
      *link = waiter->wait_next;
      waiter->wait_next = ready;
      ready = waiter;
    } else {
      if (waiter->wait_number < least) least = waiter->wait_number;
      link = &waiter->wait_next;
    }
  }
  atomic_store_explicit(&stream->wake_at, least, memory_order_seq_cst);
  return ready;
}

/* `wake_at` is reached: wakes threads and unblocks streams. */
static void wake_waiters(hal_plugin_stream_t *stream) {
  fake_lock(&stream->lock);
  hal_plugin_stream_t *ready = take_waiters(stream);
  unlock_and_wake_sleepers(stream);
  while (ready) {
    hal_plugin_stream_t *const next = ready->wait_next;
    unblock(ready);
    ready = next;
  }
}

static inline void complete(hal_plugin_stream_t *stream, uint64_t number) {
  atomic_store_explicit(&stream->done, number, memory_order_seq_cst);
  if (FAKE_UNLIKELY(number >= atomic_load_explicit(&stream->wake_at, memory_order_seq_cst))) wake_waiters(stream);
}

void fake_stream_complete(hal_plugin_stream_t *stream, uint64_t number) { complete(stream, number); }

void fake_stream_raise(hal_plugin_stream_t *proxy, uint64_t number) {
  uint64_t done = atomic_load_explicit(&proxy->done, memory_order_seq_cst);
  while (done < number && !atomic_compare_exchange_weak(&proxy->done, &done, number)) continue;
  if (number >= atomic_load_explicit(&proxy->wake_at, memory_order_seq_cst)) wake_waiters(proxy);
}

/* The next item of the claimed stream waits for another stream: makes the stream BLOCKED and releases the claim.
 * Returns 0 if the wait has ended meanwhile; then the stream is still claimed. */
static int block(hal_plugin_stream_t *stream) {
  const fake_item_t *const item = fake_queue_front(stream);
  hal_plugin_stream_t *const other = item->u.wait.stream;
  const uint64_t number = item->u.wait.number;
  fake_stream_ref(stream); /* the list's reference */
  /* The item may be run, and its reference released, as soon as this stream is in the list of `other` */
  fake_stream_ref(other);
  fake_lock(&stream->lock);
  stream->state = FAKE_STREAM_BLOCKED; /* set first: once in the list, it may be unblocked at any time */
  stream->wait_stream = other;
  stream->wait_number = number;
  unlock_and_wake_sleepers(stream);

  fake_lock(&other->lock);
  const int over = fake_stream_wake_at(other, number);
  if (!over) {
    stream->wait_next = other->waiters;
    other->waiters = stream;
  }
  fake_unlock(&other->lock);
  fake_stream_unref(other);
  if (!over) return 1;

  fake_lock(&stream->lock); /* no other thread can have unblocked it, because it was never in the list */
  stream->state = FAKE_STREAM_RUNNING;
  stream->wait_stream = NULL;
  fake_unlock(&stream->lock);
  fake_stream_unref(stream);
  return 0;
}

/* ---- RUNNING ---------------------------------------------------------------------------------------------------- */

/* HAL_FAKE_DELAY: a pause of random length, which reveals missing synchronization. The numbers are splitmix64 of one
 * counter. (No thread-local state: the leak checker of gcc 12 crashes on that of a library opened with dlopen.) */
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

/* A launch with flags: one that fails on purpose, or is recorded. */
static void run_flagged(hal_plugin_stream_t *stream, const fake_item_t *item) {
  const hal_host_kernel_t *kernel = item->u.launch.kernel;
  if (item->flags & FAKE_ITEM_FAULT) {
    fake_stream_fail(stream, HAL_INTERNAL, kernel->name);
    fake_watch_failure(stream->device, kernel->name);
  } else
    fake_run_noted(fake_item_note(item), stream, kernel, &item->u.launch.range, item->args);
  if (item->flags & FAKE_ITEM_NOTED) fake_note_end(fake_item_note(item));
}

static void run_graph(hal_plugin_stream_t *stream, const fake_item_t *item) {
  fake_recording_t *const recording = item->u.graph;
  fake_trace_t *const trace = item->flags & FAKE_ITEM_TRACED ? fake_item_trace(item) : NULL;
  const hal_host_kernel_t *const failed = fake_recording_run(stream, recording, trace);
  if (trace) fake_clock_drop(trace->clock);
  if (FAKE_UNLIKELY(failed != NULL)) {
    fake_stream_fail(stream, HAL_INTERNAL, failed->name);
    fake_watch_failure(stream->device, failed->name);
  }
  fake_recording_unref(recording);
}

/* Ends a wait, which run_items has checked. A proxy with all numbers done is that of a poisoned semaphore. */
static void end_wait(hal_plugin_stream_t *stream, const fake_item_t *item) {
  hal_plugin_stream_t *const other = item->u.wait.stream;
  if (FAKE_UNLIKELY(item->u.wait.promise != NULL)) fake_promise_keep(item->u.wait.promise, item->u.wait.number);
  if (FAKE_UNLIKELY(fake_stream_done(other) == HAL_SEMAPHORE_POISON))
    fake_stream_fail(stream, HAL_ABORTED, FAKE_POISONED);
  fake_stream_unref(other);
}

/* Another thread may wait for the function, by a variable of the program. */
static void end_call(const fake_trace_t *trace) {
  fake_timeline_ran(trace);
  fake_clock_drop(trace->clock);
}

void fake_run_item(hal_plugin_stream_t *stream, const fake_item_t *item) {
  if (FAKE_UNLIKELY(fake.settings.delay_us)) pause_randomly();
  switch (item->kind) {
    case FAKE_ITEM_LAUNCH:
      if (FAKE_UNLIKELY(item->flags & (FAKE_ITEM_FAULT | FAKE_ITEM_NOTED)))
        run_flagged(stream, item);
      else
        fake_run(stream, item->u.launch.kernel, &item->u.launch.range, item->args);
      break;
    case FAKE_ITEM_RECORD:
      fake_event_stamp(item->u.record.event, item->u.record.generation);
      break;
    case FAKE_ITEM_WAIT:
      end_wait(stream, item);
      break;
    case FAKE_ITEM_GRAPH:
      run_graph(stream, item);
      break;
    case FAKE_ITEM_SIGNAL:
      fake_semaphore_signal(item->u.signal.semaphore, item->u.signal.value, item->u.signal.clock);
      break;
    default:
      item->u.host.fn(item->u.host.user_data);
      if (FAKE_UNLIKELY(item->flags & FAKE_ITEM_TRACED)) end_call(fake_item_trace(item));
      break;
  }
}

/* The reason why run_items ended. */
enum { QUEUE_EMPTY, NUMBER_DONE, TURN_OVER, MUST_WAIT };

/* The caller has claimed the stream: runs items until item `number` is done, the queue is empty, the next item waits
 * for another stream or, if `fair`, the turn is over. */
static int run_items(hal_plugin_stream_t *stream, uint64_t number, int fair) {
  uint64_t done = atomic_load_explicit(&stream->done, memory_order_relaxed);
  for (uint32_t ran = 0;; ran++) {
    if (done == fake_stream_tail(stream)) return QUEUE_EMPTY;
    if (done >= number) return NUMBER_DONE;
    if (fair && ran >= TURN_ITEMS && atomic_load_explicit(&fake_pool_work, memory_order_relaxed)) return TURN_OVER;
    const fake_item_t *item = fake_queue_front(stream);
    if (item->kind == FAKE_ITEM_WAIT && fake_stream_done(item->u.wait.stream) < item->u.wait.number) return MUST_WAIT;
    fake_run_item(stream, item);
    fake_queue_pop(stream, item);
    complete(stream, ++done);
  }
}

/* Releases the claim: the stream is then IDLE or READY. Returns 0, still claimed, if `unless_work` and the queue is not
 * empty. */
static int give_up(hal_plugin_stream_t *stream, int unless_work) {
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
    fake_stream_make_ready(stream, 1);
  }
  if (wake) fake_futex_wake(&stream->signal, INT_MAX);
  return 1;
}

/* Rule 4: the queue of the claimed stream is empty. Waits for its next item, or for other work. Not used if threads
 * wait after every few launches, because the stream would move between cores. Returns whether there are new items. */
static int search_in(hal_plugin_stream_t *stream) {
  if (atomic_load_explicit(&stream->backlog, memory_order_relaxed) < FAKE_BACKLOG) return 0;
  const uint64_t done = atomic_load_explicit(&stream->done, memory_order_relaxed);
  fake_pool_begin_search();
  FAKE_SPIN_UNTIL(fake_stream_tail(stream) != done || atomic_load_explicit(&fake_pool_work, memory_order_relaxed));
  fake_pool_end_search();
  return fake_stream_tail(stream) != done;
}

int fake_stream_serve(hal_plugin_stream_t *stream) {
  fake_lock(&stream->lock);
  stream->listed = 0;
  const int claimed = stream->state == FAKE_STREAM_READY; /* otherwise a waiting thread has claimed it */
  if (claimed) stream->state = FAKE_STREAM_RUNNING;
  fake_unlock(&stream->lock);
  while (claimed) {
    switch (run_items(stream, UINT64_MAX, 1)) {
      case MUST_WAIT:
        if (block(stream)) return 0;
        break;
      case TURN_OVER:
        give_up(stream, 0);
        return 0;
      default:
        if (!search_in(stream) && give_up(stream, 1))
          return !atomic_load_explicit(&fake_pool_work, memory_order_relaxed);
        break;
    }
  }
  return 0;
}

void fake_stream_run_claimed(hal_plugin_stream_t *stream, uint64_t number) {
  while (run_items(stream, number, 0) == MUST_WAIT)
    if (block(stream)) return;
  give_up(stream, 0);
}
