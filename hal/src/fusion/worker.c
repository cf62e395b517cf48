/* worker.c: the thread that compiles chains: one per process, of low priority, which exists while there is something to
 * compile. */
#define _GNU_SOURCE /* gettid */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/thread.h"
#include "fusion/emit.h"
#include "hal/host_memory.h"
#include "hal/log.h"
#include "hal/status.h"
#include "op/launch.h"
#include "op/table.h"

/* Lower priority than the threads that compute; not so low that one of them waits long for a lock of malloc or the
 * loader. */
enum { NICER = 5 };

typedef struct job_s {
  struct job_s *next;
  hal_fuse_t *fuse;
  hal_fuse_plan_t *plan;
  char *text;
  char name[HAL_FUSE_NAME];
} job_t;

static struct {
  pthread_mutex_t lock;
  pthread_cond_t changed; /* a job has ended, or the thread has */
  job_t *first;
  const hal_fuse_t *busy; /* the owner of the current job */
  int32_t cancelled;      /* 1 = the result is not needed any more; atomic */
  int running, ending;    /* running: there is a thread; ending: the process ends */
} worker = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void destroy(job_t *job) {
  hal_free(job->text);
  hal_free(job);
}

/* Logs once per device why its chains are not compiled. A missing compiler is not a warning. */
static void give_up(hal_fuse_t *fuse, hal_status_t status) {
  if (atomic_exchange_explicit(&fuse->uncompiled, 1, memory_order_relaxed)) return;
  hal_log(status == HAL_UNIMPLEMENTED ? HAL_LOG_INFO : HAL_LOG_WARNING,
          "device %s: groups of operators of lazy work are not compiled, and run as before, with the same results: %s",
          fuse->device->label, hal_error_message());
}

static int is_cancelled(void) { return hal_is_cancelled(&worker.cancelled); }

/* Takes the lock of compilers unless the job is cancelled meanwhile: another thread's compiler may run for long. */
static int take(pthread_mutex_t *lock) {
  const struct timespec moment = {.tv_nsec = 5000000};
  while (pthread_mutex_trylock(lock)) {
    if (is_cancelled()) return 0;
    nanosleep(&moment, NULL);
  }
  return 1;
}

static void compile(const job_t *job) {
  hal_provider_t *const provider = &hal_op_table_of(job->fuse->device)->provider;
  pthread_mutex_t *const lock = hal_provider_own_lock(provider);
  hal_kernel_t *kernel = NULL;
  if (atomic_load_explicit(&job->fuse->uncompiled, memory_order_relaxed) || !take(lock)) return;
  const hal_status_t status = hal_provider_compile(provider, job->name, job->text, &kernel);
  pthread_mutex_unlock(lock);
  if (!status)
    atomic_store_explicit(&job->plan->compiled, hal_kernel_handle(kernel), memory_order_release);
  else if (!is_cancelled())
    give_up(job->fuse, status);
}

static void *run(void *nothing) {
  const id_t self = (id_t)gettid();
  setpriority(PRIO_PROCESS, self,
              getpriority(PRIO_PROCESS, self) + NICER); /* of this thread, and of the compilers that it starts */
  hal_provider_set_cancellation(&worker.cancelled);
  pthread_mutex_lock(&worker.lock);
  while (worker.first) {
    job_t *const job = worker.first;
    worker.first = job->next;
    worker.busy = job->fuse;
    __atomic_store_n(&worker.cancelled, 0, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&worker.lock);
    compile(job);
    destroy(job);
    pthread_mutex_lock(&worker.lock);
    worker.busy = NULL;
    pthread_cond_broadcast(&worker.changed);
  }
  worker.running = 0;
  pthread_cond_broadcast(&worker.changed);
  pthread_mutex_unlock(&worker.lock);
  return nothing;
}

/* Removes the jobs of a device (NULL = of all), cancels the current one and waits for it. The caller holds the lock. */
static void forget(const hal_fuse_t *fuse) {
  for (job_t **link = &worker.first; *link;) {
    job_t *const job = *link;
    if (fuse && job->fuse != fuse) {
      link = &job->next;
      continue;
    }
    *link = job->next;
    destroy(job);
  }
  while (worker.busy && (!fuse || worker.busy == fuse)) {
    __atomic_store_n(&worker.cancelled, 1, __ATOMIC_RELEASE);
    pthread_cond_wait(&worker.changed, &worker.lock);
  }
}

/* At process exit, cancels the running compiler and waits for it, so that it leaves no files. */
static void end(void) {
  pthread_mutex_lock(&worker.lock);
  worker.ending = 1;
  forget(NULL);
  pthread_mutex_unlock(&worker.lock);
}

static void watch_end(void) { atexit(end); }

/* The caller holds the lock. */
static void start(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, watch_end);
  worker.running = hal_thread_start(NULL, run, NULL) == 0;
}

void hal_fuse_worker_push(hal_fuse_t *fuse, hal_fuse_plan_t *plan, const char *name, char *text) {
  job_t *const job = hal_calloc(1, sizeof *job);
  if (!job) {
    hal_free(text);
    return;
  }
  job->fuse = fuse;
  job->plan = plan;
  job->text = text;
  memcpy(job->name, name, strlen(name) + 1);
  pthread_mutex_lock(&worker.lock);
  job_t **link = &worker.first;
  while (*link) link = &(*link)->next;
  *link = job;
  if (!worker.running && !worker.ending) start();
  if (!worker.running) forget(NULL);
  pthread_mutex_unlock(&worker.lock);
}

void hal_fuse_worker_forget(const hal_fuse_t *fuse) {
  pthread_mutex_lock(&worker.lock);
  forget(fuse);
  pthread_mutex_unlock(&worker.lock);
}

void hal_fuse_worker_after_fork(void) {
  pthread_mutex_init(&worker.lock, NULL);
  pthread_cond_init(&worker.changed, NULL);
  worker.first = NULL; /* of the parent */
  worker.busy = NULL;
  worker.running = 0;
}
