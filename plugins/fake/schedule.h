/* schedule.h: the scheduling policy: which thread runs the items of a stream, and when threads sleep and wake. Private.
 *
 * A stream is an in-order queue of items. One thread at a time runs them: the thread that has claimed the stream. The
 * state of a stream changes with its lock held:
 *
 *   IDLE    --item enqueued--------------------------------> READY
 *   READY   --claimed by a worker or a waiting thread------> RUNNING
 *   RUNNING --queue empty----------------------------------> IDLE
 *   RUNNING --turn over, and other work is ready-----------> READY
 *   RUNNING --next item waits for another stream-----------> BLOCKED
 *   BLOCKED --that stream has done the item waited for-----> READY
 *
 * One pool of workers serves all streams of all devices. The policy:
 *
 * 1. Order of work. A worker takes a part of a parallel launch that needs helpers, else the first READY stream of the
 *    urgent list (priority < 0), else of the normal list. It runs the stream until its queue is empty, or until its
 *    turn is over: TURN_ITEMS items, while other work is ready.
 * 2. Threads that wait. A thread that synchronizes does not only sleep. It claims the stream if no thread has, helps
 *    with the stream's parallel launch, and follows a BLOCKED stream to the one that it waits for. So it does not
 *    depend
 *    on an idle worker. It sleeps only while another thread runs the stream, and is woken when that thread releases the
 *    stream or reaches the item.
 * 3. BLOCKED streams occupy no thread. They are in the list of waiters of the stream that they wait for. For a
 *    semaphore, or an event of another process, that is a proxy (proxy.c). A separate thread waits for other processes.
 * 4. Idle workers. A worker without work searches for FAKE_SPIN_NS, yielding its core from time to time, and sleeps. At
 *    most half of the workers search. A worker whose stream has just become empty waits as long for the next item of
 *    that stream, so that a thread that enqueues one small launch after another wakes no worker.
 * 5. Wake-ups. A thread that makes work ready wakes one sleeping worker, unless one is searching. A thread that takes
 *    work while more is ready does the same. So an enqueue causes at most one wake-up, and all workers that are
 *    needed start one after another.
 * 6. Small backlogs wake no worker. A thread that reads a result after every few small launches runs them itself (2),
 *    before a sleeping worker would start. A stream's backlog counts the items enqueued since a thread last waited for
 *    it; below FAKE_BACKLOG no worker is woken. One of the sleeping workers, the poller, sleeps with a timeout instead:
 *    from FAKE_POLL_NS, growing to FAKE_LONGEST_POLL_NS. It runs items that no thread has waited for. After
 *    FAKE_POLLS_NS without work there is no poller, and small backlogs wake a worker, too.
 * 7. Parallel launches. The thread that runs a launch computes alone until waking or joining helpers is worth its cost
 *    for the rest, or not at all if the same launch took long the last time. Then helpers join it (1, 2).
 *
 * With HAL_FAKE_ASYNC=0 items run in the calling thread, and the pool only has helpers for parallel launches.
 *
 * Files: pool.c has the workers (1, 4, 5, 6), run.c runs a claimed stream (1, 3), wait.c has the threads that wait
 * (2), parallel.c the parallel launches (7). */
#ifndef HAL_FAKE_SCHEDULE_H_
#define HAL_FAKE_SCHEDULE_H_

#include "fake.h"

/* Weights for FAKE_BACKLOG: a launch that is worth several threads, a graph, or a signal counts as many, other items as
 * one. */
#define FAKE_BACKLOG 4u

/* ---- run.c: a stream's items ------------------------------------------------------------------------------------ */
/* Makes an IDLE stream READY, passes it to the pool and unlocks it. `wake`: the backlog is large enough for a worker.
 * */
void fake_stream_make_ready(hal_plugin_stream_t *stream, int wake);
/* For a worker that has removed the stream from the pool's list: claims it, unless a waiting thread has, and runs it.
 * Returns whether the worker has already searched for work without success. */
int fake_stream_serve(hal_plugin_stream_t *stream);
/* Runs a stream that the caller has claimed until item `number` is done or the stream is BLOCKED. */
void fake_stream_run_claimed(hal_plugin_stream_t *stream, uint64_t number);
/* Item `number` of a stream that the caller has claimed is done: wakes its waiters. */
void fake_stream_complete(hal_plugin_stream_t *stream, uint64_t number);
/* Raises the number of done items of a proxy, unless it is greater: wakes its waiters. Any number of threads may call
 * it. */
void fake_stream_raise(hal_plugin_stream_t *proxy, uint64_t number);
/* Makes item `number` wake the stream's waiters; the caller holds the lock. Returns whether it is done already. */
int fake_stream_wake_at(hal_plugin_stream_t *stream, uint64_t number);

/* ---- proxy.c: proxies for events and semaphores that streams wait for ------------------------------------------- */
/* Creates a proxy of which `done` of `tail` items are done; the caller owns its reference. NULL: no host memory. */
hal_plugin_stream_t *fake_proxy_make(int32_t device, uint64_t done, uint64_t tail);
void fake_proxy_fork_child(hal_plugin_stream_t *proxy);
/* Starts a thread that blocks signals, which are for the program's own threads. Returns whether it runs. */
int fake_thread_start(void *(*main)(void *), void *argument);
/* Names the calling thread as one of those. */
void fake_thread_name(void);

/* ---- parallel.c: parallel launches ------------------------------------------------------------------------------ */
/* A launch that several threads compute. It is on the stack of the thread that started it. */
typedef struct fake_parallel_s {
  const hal_host_kernel_t *kernel;
  void *const *args;
  uint64_t first, units, part; /* the parts are counted from `first` on */
  hal_plugin_stream_t *owner;
  struct fake_parallel_s *next;                    /* in the pool's list, guarded by its lock, as is the next member */
  uint32_t helpers_wanted;                         /* number of further threads that may join */
  atomic_uint helpers;                             /* threads that joined and have not left; see HELPERS_AWAITED */
  alignas(FAKE_CACHE_LINE) _Atomic uint64_t begin; /* first unit that no thread has taken */
} fake_parallel_t;

/* Computes parts as a thread that has joined the launch, and leaves it. */
void fake_parallel_help(fake_parallel_t *launch);

/* ---- pool.c: the workers ---------------------------------------------------------------------------------------- */
/* Number of READY streams and helpers needed, which a worker could take. Changes with the pool's lock held; read
 * without it as a hint. */
extern atomic_uint fake_pool_work;

/* Starts the workers if there are none. Returns whether there are. */
int fake_pool_start(void);
/* Adds a READY stream to its list, taking ownership of a reference. Wakes a worker if none is searching; without `wake`
 * only if there is no poller, either. Returns 0 if there are no workers; the caller then runs the stream itself. */
int fake_pool_push(hal_plugin_stream_t *stream, int wake);
/* Wakes a worker if work is ready and none is searching, after a backlog in a list has grown. */
void fake_pool_wake(void);
/* Returns whether a worker is searching: a hint. */
int fake_pool_is_searching(void);
/* The calling worker counts as searching between the two calls; the second wakes another worker if there is work for
 * it. */
void fake_pool_begin_search(void);
void fake_pool_end_search(void);
/* Offers a parallel launch to helpers, and withdraws it. */
void fake_pool_offer(fake_parallel_t *launch);
void fake_pool_withdraw(fake_parallel_t *launch);
/* Joins the parallel launch of `owner`, if there is one that needs helpers. Returns whether it did. */
int fake_pool_help(const hal_plugin_stream_t *owner);

#endif /* HAL_FAKE_SCHEDULE_H_ */
