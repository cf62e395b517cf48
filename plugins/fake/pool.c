/* pool.c: the worker threads of the process. One pool serves all streams of all devices; it starts with the first
 * queued item and is rebuilt on demand after a fork.
 *
 * A worker takes, in this order: a seat in a running parallel launch, the next stream of the urgent list, of the normal
 * list. Without work it looks at `fake_pool_work` for a moment and then sleeps on a word of its own; one of the sleepers
 * wakes by itself now and then (a nap), so that little work need not wake anybody. Everything
 * else is under one lock, so that "nothing to do, going to sleep" and "here is work, is somebody looking?" exclude each
 * other. Whoever takes work while there is more wakes the next worker, so that an enqueue pays for one wake-up at most.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "fake.h"

/* Parts of a parallel launch per thread: enough that a thread which the system interrupts does not hold up the launch
 * by more than about an eighth. */
#define PARTS_PER_THREAD 8

/* The thread that starts a launch computes at least this part of it alone, to see how long the rest would take, unless it is known. */
#define FIRST_STEP 256

#define KNOWN_LAUNCHES 512

/* A sleeping thread takes 5 to 50 us to come, and whoever wakes it about 5. One that is looking for work comes within one. */
#define WORTH_WAKING_NS 60e3
#define WORTH_SHARING_NS 6e3

/* A launch that is being computed by several threads. Lives on the stack of the thread that started it. */
typedef struct job_s {
  const hal_host_kernel_t *kernel;
  void *const *args;
  uint64_t units, part;
  const hal_plugin_stream_t *owner;
  struct job_s *next;
  uint32_t seats;      /* under the pool's lock: how many more threads may join */
  atomic_uint helpers; /* threads that joined and have not left; HELPERS_WAITED when the starter sleeps on it */
  alignas(FAKE_CACHE_LINE) _Atomic uint64_t begin; /* first unit that nobody has taken */
} job_t;

#define HELPERS_WAITED 0x80000000u

typedef struct worker_s {
  alignas(FAKE_CACHE_LINE) atomic_uint signal; /* 1 = wake up */
  struct worker_s *next_idle;
  uint32_t asleep; /* under the pool's lock: in the list of idle workers */
  uint32_t index;
} worker_t;

typedef struct stream_list_s {
  hal_plugin_stream_t *first, *last;
} stream_list_t;

static struct {
  fake_lock_t lock, start_lock;
  atomic_int started;
  uint32_t workers;    /* threads that were started */
  atomic_uint alive;   /* threads that have not ended */
  atomic_uint looking; /* workers that are awake and look for work; changed under the lock */
  int stopping;
  worker_t *idle;   /* asleep, the last one first: its caches are warm */
  worker_t *napper; /* the one of them that wakes by itself */
  job_t *jobs;
  stream_list_t urgent, normal;
  worker_t worker[FAKE_MAX_THREADS];
} pool;

atomic_uint fake_pool_work;

/* ---- under the lock
 * ----------------------------------------------------------------------------------------------------- */

static void add_work(uint32_t count) { atomic_fetch_add_explicit(&fake_pool_work, count, memory_order_relaxed); }
static void remove_work(uint32_t count) { atomic_fetch_sub_explicit(&fake_pool_work, count, memory_order_relaxed); }

/* Takes a worker out of the list of idle ones. */
static void leave_idle(worker_t *worker) {
  worker_t **link = &pool.idle;
  while (*link != worker) link = &(*link)->next_idle;
  *link = worker->next_idle;
  worker->asleep = 0;
  if (pool.napper == worker) pool.napper = NULL;
}

/* Takes a sleeping worker that ought to wake, when there is work and nobody is looking. */
static worker_t *next_to_wake(int much) {
  worker_t *worker = pool.idle;
  if (!worker || pool.looking || (!much && pool.napper)) return NULL;
  if (!atomic_load_explicit(&fake_pool_work, memory_order_relaxed)) return NULL;
  leave_idle(worker);
  return worker;
}

static hal_plugin_stream_t *pop_stream(stream_list_t *list) {
  hal_plugin_stream_t *stream = list->first;
  if (!stream) return NULL;
  list->first = stream->ready_next;
  if (!list->first) list->last = NULL;
  remove_work(1);
  return stream;
}

static job_t *take_seat(const hal_plugin_stream_t *owner) {
  for (job_t *job = pool.jobs; job; job = job->next) {
    if (!job->seats || (owner && job->owner != owner)) continue;
    job->seats--;
    remove_work(1);
    atomic_fetch_add_explicit(&job->helpers, 1, memory_order_relaxed);
    return job;
  }
  return NULL;
}

/* ---- waking and sleeping
 * ------------------------------------------------------------------------------------------------ */

static void wake(worker_t *worker) {
  if (!worker) return;
  atomic_store_explicit(&worker->signal, 1, memory_order_release);
  fake_futex_wake(&worker->signal, 1);
}

static void unlock_and_wake(int much) {
  worker_t *worker = next_to_wake(much);
  fake_unlock(&pool.lock);
  wake(worker);
}

void fake_pool_rouse(void) {
  fake_lock(&pool.lock);
  unlock_and_wake(1);
}

void fake_pool_look(void) {
  fake_lock(&pool.lock);
  pool.looking++;
  fake_unlock(&pool.lock);
}

void fake_pool_leave(void) {
  fake_lock(&pool.lock);
  pool.looking--;
  unlock_and_wake(1);
}

/* ---- how long launches take
 * -------------------------------------------------------------------------------------------------- */

/* What launches of a kernel and a number of units took the last time, in nanoseconds of one thread: the lower half; the upper one says which
 * they are. One that takes another's place only makes that a new one. */
static _Atomic uint64_t known[KNOWN_LAUNCHES];

static uint64_t name_of(const hal_host_kernel_t *kernel, uint64_t units) {
  const uint64_t name = ((uint64_t)(uintptr_t)kernel ^ units << 20) * UINT64_C(0x9E3779B97F4A7C15);
  return name ^ name >> 32;
}

/* 0 = not known. */
static double expect(uint64_t name) {
  const uint64_t found = atomic_load_explicit(&known[name % KNOWN_LAUNCHES], memory_order_relaxed);
  return found >> 32 == name >> 32 ? (double)(found & UINT32_MAX) : 0;
}

static void learn(uint64_t name, double ns) {
  const uint64_t took = ns < (double)UINT32_MAX ? (uint64_t)ns : UINT32_MAX;
  atomic_store_explicit(&known[name % KNOWN_LAUNCHES], name >> 32 << 32 | took, memory_order_relaxed);
}

/* Whether others should help with what takes so long. */
static int is_worth_sharing(double ns) {
  return ns > (atomic_load_explicit(&pool.looking, memory_order_relaxed) ? WORTH_SHARING_NS : WORTH_WAKING_NS);
}

/* ---- parallel launches
 * -------------------------------------------------------------------------------------------------- */

/* Returns the units done. */
static uint64_t run_parts(job_t *job) {
  for (uint64_t done = 0;;) {
    hal_host_range_t range;
    range.begin = atomic_fetch_add_explicit(&job->begin, job->part, memory_order_relaxed);
    if (range.begin >= job->units) return done;
    range.end = job->units - range.begin < job->part ? job->units : range.begin + job->part;
    fake_compute(job->kernel, &range, job->args);
    done += range.end - range.begin;
  }
}

static void help(job_t *job) {
  run_parts(job);
  /* From here on the job may be gone; waking a word that is no futex any more does nothing. */
  if (atomic_fetch_sub_explicit(&job->helpers, 1, memory_order_acq_rel) == (HELPERS_WAITED | 1))
    fake_futex_wake(&job->helpers, 1);
}

static void wait_for_helpers(job_t *job) {
  FAKE_SPIN_UNTIL(!atomic_load_explicit(&job->helpers, memory_order_acquire));
  unsigned helpers = atomic_load_explicit(&job->helpers, memory_order_acquire);
  while (helpers & ~HELPERS_WAITED) {
    if (helpers & HELPERS_WAITED ||
        atomic_compare_exchange_weak_explicit(&job->helpers, &helpers, helpers | HELPERS_WAITED, memory_order_acq_rel,
                                              memory_order_acquire))
      fake_futex_wait(&job->helpers, helpers | HELPERS_WAITED, -1);
    helpers = atomic_load_explicit(&job->helpers, memory_order_acquire);
  }
}

int fake_pool_help(const hal_plugin_stream_t *owner) {
  if (!atomic_load_explicit(&fake_pool_work, memory_order_relaxed)) return 0;
  fake_lock(&pool.lock);
  job_t *job = take_seat(owner);
  fake_unlock(&pool.lock);
  if (job) help(job);
  return job != NULL;
}

/* ---- workers
 * ------------------------------------------------------------------------------------------------------------ */

/* Looks for work once. Under the lock on entry, not on exit; 1 = did something, *out_spun as of fake_stream_visit. */
static int work_once(int *out_spun) {
  job_t *job = take_seat(NULL);
  hal_plugin_stream_t *stream = job ? NULL : pop_stream(&pool.urgent);
  if (!job && !stream) stream = pop_stream(&pool.normal);
  if (!job && !stream) return 0;
  unlock_and_wake(1);
  *out_spun = 0;
  if (job) {
    help(job);
  } else {
    *out_spun = fake_stream_visit(stream);
    fake_stream_unref(stream); /* the list's */
  }
  return 1;
}

static int is_woken(worker_t *self) { return atomic_load_explicit(&self->signal, memory_order_acquire) != 0; }

/* The napper's sleep, not under the lock: till it is woken, or finds work, and then leaves the list by itself, or till
 * nothing came for long. */
static void nap(worker_t *self) {
  int64_t left = FAKE_NAPS_NS;
  for (int64_t length = FAKE_NAP_NS; !is_woken(self);
       length = length < FAKE_LONGEST_NAP_NS ? length + length / 2 : length) {
    fake_futex_wait(&self->signal, 0, length);
    left -= length;
    if (left > 0 && !atomic_load_explicit(&fake_pool_work, memory_order_relaxed)) continue;
    fake_lock(&pool.lock);
    const int work = atomic_load_explicit(&fake_pool_work, memory_order_relaxed) != 0;
    const int alone = self->asleep; /* else somebody has just taken it out of the list, and wakes it */
    if (alone && work) leave_idle(self);
    if (alone && left <= 0) pool.napper = NULL;
    fake_unlock(&pool.lock);
    if (alone && work) atomic_store_explicit(&self->signal, 1, memory_order_relaxed);
    if (work || left <= 0) return;
  }
}

/* Under the lock on entry, not on exit. */
static void sleep_until_woken(worker_t *self) {
  const int naps = fake.settings.async && !pool.napper && !pool.stopping;
  atomic_store_explicit(&self->signal, 0, memory_order_relaxed);
  self->next_idle = pool.idle;
  self->asleep = 1;
  pool.idle = self;
  if (naps) pool.napper = self;
  fake_unlock(&pool.lock);
  if (naps) nap(self);
  while (!is_woken(self)) fake_futex_wait(&self->signal, 0, -1);
}

static void look_for_work(void) {
  FAKE_SPIN_FOR(fake.settings.async ? FAKE_SPIN_NS : FAKE_HELPER_SPIN_NS,
                atomic_load_explicit(&fake_pool_work, memory_order_relaxed));
}

static void *worker_main(void *argument) {
  worker_t *self = argument;
  char name[16];
  snprintf(name, sizeof name, "hal-fake-%u", (unsigned)self->index % 10000);
  pthread_setname_np(pthread_self(), name);
  int spun = 0;
  fake_lock(&pool.lock);
  while (!pool.stopping) {
    if (work_once(&spun)) {
      fake_lock(&pool.lock);
    } else if (spun || (pool.looking && pool.looking * 2 >= fake.settings.threads)) { /* half of them look at most */
      sleep_until_woken(self);
      fake_lock(&pool.lock);
      spun = 0;
    } else {
      pool.looking++;
      fake_unlock(&pool.lock);
      look_for_work();
      fake_lock(&pool.lock);
      pool.looking--;
      spun = 1;
    }
  }
  fake_unlock(&pool.lock);
  atomic_fetch_sub_explicit(&pool.alive, 1, memory_order_release);
  return NULL;
}

/* Starts the threads; they take no signals, which belong to the program's own threads, but those of their own faults: a
 * handler (fault.c, a sanitizer's) does not run for a fault whose signal is blocked. */
static void start_threads(void) {
  static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
  sigset_t all, old;
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes)) return;
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED); /* nobody joins: a process may end at any time */
  sigfillset(&all);
  for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) sigdelset(&all, faults[i]);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  const uint32_t wanted = fake.settings.async ? fake.settings.threads : fake.settings.threads - 1;
  pool.workers = 0;
  while (pool.workers < wanted) {
    worker_t *worker = &pool.worker[pool.workers];
    pthread_t thread;
    worker->index = pool.workers;
    atomic_fetch_add_explicit(&pool.alive, 1, memory_order_relaxed);
    if (pthread_create(&thread, &attributes, worker_main, worker)) {
      atomic_fetch_sub_explicit(&pool.alive, 1, memory_order_relaxed);
      break;
    }
    pool.workers++;
  }
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  pthread_attr_destroy(&attributes);
  if (pool.workers < wanted) {
    char message[160];
    snprintf(message, sizeof message, "fake: the system gave %u of %u worker threads; work goes on with these",
             (unsigned)pool.workers, (unsigned)wanted);
    hal_host->log(HAL_LOG_WARNING, message);
  }
}

/* Whether there are workers. */
static int ensure_started(void) {
  if (FAKE_UNLIKELY(!atomic_load_explicit(&pool.started, memory_order_acquire))) {
    fake_lock(&pool.start_lock);
    if (!atomic_load_explicit(&pool.started, memory_order_relaxed)) {
      start_threads();
      atomic_store_explicit(&pool.started, 1, memory_order_release);
    }
    fake_unlock(&pool.start_lock);
  }
  return pool.workers != 0;
}

int fake_pool_push(hal_plugin_stream_t *stream, int much) {
  if (!ensure_started()) return 0;
  stream_list_t *list = stream->priority < 0 ? &pool.urgent : &pool.normal;
  fake_lock(&pool.lock);
  stream->ready_next = NULL;
  if (list->last)
    list->last->ready_next = stream;
  else
    list->first = stream;
  list->last = stream;
  add_work(1);
  unlock_and_wake(much);
  return 1;
}

/* How many units a step of about `units` has: no fewer than are worth one. Large steps of items end at whole cache lines and
 * vectors; small ones may be rows, for which that means nothing. */
static uint64_t step_of(const hal_host_kernel_t *kernel, uint64_t units) {
  if (units < kernel->grain) units = kernel->grain;
  return kernel->unit == HAL_HOST_ITEMS && units >= 32768 ? (units + 1023) & ~UINT64_C(1023) : units;
}

/* Computes on the calling thread, in steps that double, until the rest would take so long that another thread is worth calling: how
 * long a unit takes is known only when some are done, since it depends on the arguments. Returns the units done, and how long they took. */
static uint64_t run_alone(const job_t *job, double *out_ns) {
  const int64_t start = fake_now();
  uint64_t step = step_of(job->kernel, job->units / FIRST_STEP + 1), done = 0;
  for (;;) {
    const hal_host_range_t range = {done, job->units - done < step ? job->units : done + step};
    fake_compute(job->kernel, &range, job->args);
    done = range.end;
    *out_ns = (double)(fake_now() - start);
    if (done == job->units || is_worth_sharing(*out_ns / (double)done * (double)(job->units - done))) return done;
    step = step < job->part / 2 ? 2 * step : job->part;
  }
}

/* Computes the rest together with others. Returns the units that this thread has done. */
static uint64_t run_shared(job_t *job) {
  fake_lock(&pool.lock);
  job->next = pool.jobs;
  pool.jobs = job;
  add_work(job->seats);
  unlock_and_wake(1);
  const uint64_t done = run_parts(job);
  fake_lock(&pool.lock);
  job_t **link = &pool.jobs;
  while (*link != job) link = &(*link)->next;
  *link = job->next;
  remove_work(job->seats);
  fake_unlock(&pool.lock);
  return done;
}

void fake_pool_parallel(hal_plugin_stream_t *owner, const hal_host_kernel_t *kernel, uint64_t units,
                        void *const *args) {
  const uint64_t threads = fake.settings.threads, name = name_of(kernel, units);
  job_t job = {.kernel = kernel, .args = args, .units = units, .owner = owner};
  job.part = step_of(kernel, units / (threads * PARTS_PER_THREAD) + 1);
  double ns = 0;
  int shared = 0;
  uint64_t done = is_worth_sharing(expect(name)) ? 0 : run_alone(&job, &ns);
  if (done < units) {
    const uint64_t others = (units - done - 1) / job.part;
    if (ensure_started() && others) job.seats = (uint32_t)(others < threads - 1 ? others : threads - 1);
    atomic_store_explicit(&job.begin, done, memory_order_relaxed);
    const int64_t start = fake_now();
    shared = job.seats != 0;
    done += shared ? run_shared(&job) : run_parts(&job);
    ns += (double)(fake_now() - start);
  }
  if (done) learn(name, ns / (double)done * (double)units);
  if (shared) wait_for_helpers(&job);
}

void fake_pool_stop(void) {
  fake_lock(&pool.lock);
  pool.stopping = 1;
  worker_t *idle = pool.idle;
  pool.idle = pool.napper = NULL;
  for (worker_t *worker = idle; worker; worker = worker->next_idle) worker->asleep = 0;
  fake_unlock(&pool.lock);
  while (idle) {
    worker_t *next = idle->next_idle;
    wake(idle);
    idle = next;
  }
  const struct timespec moment = {.tv_nsec = 1000000};
  for (int i = 0; i < 1000 && atomic_load_explicit(&pool.alive, memory_order_acquire); i++) nanosleep(&moment, NULL);
}

/* ---- fork: the child has none of the threads
 * ---------------------------------------------------------------------------- */

void fake_pool_fork_prepare(void) {
  fake_lock(&pool.start_lock);
  fake_lock(&pool.lock);
}

void fake_pool_fork_parent(void) {
  fake_unlock(&pool.lock);
  fake_unlock(&pool.start_lock);
}

void fake_pool_fork_child(void) {
  pool.jobs = NULL;
  pool.idle = pool.napper = NULL;
  pool.urgent = pool.normal = (stream_list_t){NULL, NULL};
  pool.looking = 0;
  pool.workers = 0;
  atomic_store_explicit(&pool.alive, 0, memory_order_relaxed);
  atomic_store_explicit(&fake_pool_work, 0, memory_order_relaxed);
  atomic_store_explicit(&pool.started, 0, memory_order_relaxed);
  fake_lock_reset(&pool.lock);
  fake_lock_reset(&pool.start_lock);
}
