/* semaphore.c: timeline semaphores. A semaphore's value is a number in a page, which processes may share
 * (hal/plugin_shared_event.h). Within the process a proxy has the same number (proxy.c): a stream that waits is BLOCKED
 * on it, as on another stream, and occupies no worker. A signal is an item of the stream.
 *
 * A thread that raises the number raises the proxy of its own handle, and wakes the threads that sleep on the page:
 * host threads that wait, and in other processes the watcher. An interprocess semaphore has that thread only while a
 * stream waits for it. */
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "hal/plugin_flags.h"
#include "sanitize/sanitize.h"
#include "schedule.h"

#define KIND "fake.sem"

/* Maximum sleep on a page: a process may be killed after it has raised the number and before it has woken the waiting
 * threads. */
#define LOOK_NS 100000000

typedef struct page_s {
  _Atomic uint64_t value;
  atomic_uint turn;     /* changes with the value; the word that sleepers read */
  atomic_uint sleepers; /* those of a killed process remain counted, and cost a system call at each signal */
} page_t;

_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2, "processes share the number without a lock");

struct hal_plugin_semaphore_s {
  atomic_uint refs; /* the owner's, the watcher's, and one for each queued signal */
  page_t *page;     /* `own`, or a mapped file */
  page_t own;
  int file; /* of the process that created it, else -1 */
  hal_shared_handle_t handle;
  hal_plugin_stream_t *timeline; /* the proxy: a reference */
  fake_lock_t lock;              /* guards the next two members */
  uint64_t awaited;              /* the greatest value that a stream waits for */
  int watched;                   /* there is a watcher */
  hal_plugin_semaphore_t *next, *previous;
  fake_history_t *history; /* of the signals, with the class race of HAL_FAKE_SANITIZE */
};

/* All semaphores of the process, for the child of a fork. */
static struct {
  fake_lock_t lock;
  hal_plugin_semaphore_t *first;
} all;

/* ---- the number ---- */

static void raise_to(hal_plugin_semaphore_t *semaphore, uint64_t value) {
  page_t *const page = semaphore->page;
  uint64_t old = atomic_load(&page->value);
  while (old < value && !atomic_compare_exchange_weak(&page->value, &old, value)) continue;
  if (old < value) {
    atomic_fetch_add(&page->turn, 1);
    if (atomic_load(&page->sleepers)) fake_futex_wake_shared(&page->turn);
  }
  fake_stream_raise(semaphore->timeline, atomic_load(&page->value));
}

/* Sleeps while the value is `seen`, at most LOOK_NS or `timeout_ns`. */
static void sleep_on(page_t *page, uint64_t seen, int64_t timeout_ns) {
  atomic_fetch_add(&page->sleepers, 1);
  const uint32_t turn = atomic_load(&page->turn);
  if (atomic_load(&page->value) == seen)
    fake_futex_wait_shared(&page->turn, turn, timeout_ns < LOOK_NS ? timeout_ns : LOOK_NS);
  atomic_fetch_sub(&page->sleepers, 1);
}

/* Waits on the calling thread. `end`: by fake_now. */
static hal_status_t wait_here(hal_plugin_semaphore_t *semaphore, uint64_t value, int64_t end) {
  for (;;) {
    const uint64_t now = atomic_load(&semaphore->page->value);
    if (now == HAL_SEMAPHORE_POISON) return HAL_ABORTED;
    if (now >= value) return HAL_OK;
    const int64_t left = end == INT64_MAX ? INT64_MAX : end - fake_now();
    if (left <= 0) return HAL_NOT_READY;
    sleep_on(semaphore->page, now, left);
  }
}

/* ---- creation and destruction ---- */

static void unref(hal_plugin_semaphore_t *semaphore) {
  if (atomic_fetch_sub_explicit(&semaphore->refs, 1, memory_order_acq_rel) != 1) return;
  fake_lock(&all.lock);
  if (semaphore->previous)
    semaphore->previous->next = semaphore->next;
  else if (all.first == semaphore)
    all.first = semaphore->next;
  if (semaphore->next) semaphore->next->previous = semaphore->previous;
  fake_unlock(&all.lock);
  if (semaphore->page != &semaphore->own) hal_shared_file_unmap(semaphore->page, sizeof *semaphore->page);
  if (semaphore->file >= 0) close(semaphore->file);
  fake_history_drop(semaphore->history);
  if (semaphore->timeline) fake_stream_unref(semaphore->timeline); /* waiting streams have references to it */
  hal_host->mem_free(semaphore);
}

static hal_status_t make(int32_t device, int is_shared, hal_plugin_semaphore_t **out_semaphore) {
  hal_plugin_semaphore_t *const semaphore = hal_host->mem_alloc(sizeof *semaphore, alignof(hal_plugin_semaphore_t));
  hal_plugin_stream_t *const timeline = semaphore ? fake_proxy_make(device, 0, UINT64_MAX) : NULL;
  if (!timeline) {
    hal_host->mem_free(semaphore);
    return fake_error(HAL_RESOURCE_EXHAUSTED, 0, "fake: no host memory for a semaphore; free some memory");
  }
  memset(semaphore, 0, sizeof *semaphore);
  semaphore->page = &semaphore->own;
  semaphore->file = -1;
  semaphore->timeline = timeline;
  if (fake_races()) semaphore->history = fake_history_make(is_shared);
  atomic_store_explicit(&semaphore->refs, 1, memory_order_relaxed);
  fake_lock(&all.lock);
  semaphore->next = all.first;
  if (all.first) all.first->previous = semaphore;
  all.first = semaphore;
  fake_unlock(&all.lock);
  *out_semaphore = semaphore;
  return HAL_OK;
}

/* Maps the file as the semaphore's page. */
static hal_status_t map_page(hal_plugin_semaphore_t *semaphore, int file) {
  page_t *const page = hal_shared_file_map(file, sizeof *page);
  if (!page)
    return fake_error(HAL_RESOURCE_EXHAUSTED, 0, "fake: the memory of an interprocess semaphore cannot be mapped");
  semaphore->page = page;
  return HAL_OK;
}

hal_status_t hal_plugin_semaphore_create(int32_t device, uint64_t value, uint32_t flags,
                                         hal_plugin_semaphore_t **out_semaphore) {
  hal_plugin_semaphore_t *semaphore = NULL;
  hal_status_t status = fake_check_device(device);
  if (!status) status = hal_flags_check("fake: semaphore_create", flags, HAL_SEMAPHORE_INTERPROCESS);
  if (!status) status = make(device, flags & HAL_SEMAPHORE_INTERPROCESS, &semaphore);
  if (status) return status;
  if (flags & HAL_SEMAPHORE_INTERPROCESS) {
    status = hal_shared_file_create(KIND, sizeof(page_t), &semaphore->file, &semaphore->handle);
    if (status)
      fake_error(status, 0, "fake: the system provides no file for an interprocess semaphore; close some files");
    else
      status = map_page(semaphore, semaphore->file);
  }
  if (status) {
    unref(semaphore);
    return status;
  }
  raise_to(semaphore, value);
  *out_semaphore = semaphore;
  return HAL_OK;
}

hal_status_t hal_plugin_semaphore_destroy(hal_plugin_semaphore_t *semaphore) {
  if (semaphore) unref(semaphore);
  return HAL_OK;
}

/* ---- between processes ---- */

hal_status_t hal_plugin_semaphore_export(hal_plugin_semaphore_t *semaphore, uint32_t flags, void *handle, size_t room,
                                         size_t *out_size) {
  const hal_status_t status = hal_flags_check("fake: semaphore_export", flags, 0);
  if (status) return status;
  if (semaphore->file < 0)
    return fake_error(HAL_FAILED_PRECONDITION, 0,
                      "fake: semaphore_export of a semaphore that was not created with HAL_SEMAPHORE_INTERPROCESS in "
                      "this process; create it with that flag");
  hal_shared_handle_t parcel = semaphore->handle;
  parcel.process = (int32_t)getpid(); /* a forked child has the file, too */
  hal_handle_write(&parcel, sizeof parcel, handle, room, out_size);
  return HAL_OK;
}

/* Maps the file of a handle. */
static hal_status_t find_page(const hal_shared_handle_t *parcel, hal_plugin_semaphore_t *semaphore) {
  size_t size = 0;
  int file = -1;
  hal_status_t status = hal_shared_file_open(KIND, parcel, &file, &size);
  if (!status) {
    status = size == sizeof(page_t) ? map_page(semaphore, file) : HAL_NOT_FOUND;
    close(file);
  }
  if (status == HAL_INVALID_ARGUMENT)
    return fake_error(status, 0, "fake: invalid handle of a semaphore; pass a handle of semaphore_export");
  if (status == HAL_NOT_FOUND)
    return fake_error(status, 0,
                      "fake: a semaphore of process %d cannot be opened; check that the process is alive, belongs to "
                      "this user, and has "
                      "not destroyed the semaphore",
                      (int)parcel->process);
  return status;
}

hal_status_t hal_plugin_semaphore_open(int32_t device, const void *handle, size_t handle_size, uint32_t flags,
                                       hal_plugin_semaphore_t **out_semaphore) {
  hal_shared_handle_t parcel;
  hal_plugin_semaphore_t *semaphore = NULL;
  hal_status_t status = fake_check_device(device);
  if (!status) status = hal_flags_check("fake: semaphore_open", flags, 0);
  if (!status) status = hal_handle_read("fake: semaphore_open", handle, handle_size, &parcel, sizeof parcel);
  if (!status) status = make(device, 1, &semaphore);
  if (status) return status;
  status = find_page(&parcel, semaphore);
  if (status)
    unref(semaphore);
  else
    *out_semaphore = semaphore;
  return status;
}

/* ---- the order of work (sanitize/clock.h) ---- */

/* A timeline's later work is after the signals that raised the number to a value. */
static void put_after(hal_plugin_semaphore_t *semaphore, uint64_t value, fake_timeline_t *timeline) {
  if (FAKE_LIKELY(!fake_races())) return;
  fake_clock_t *const clock = fake_history_find(semaphore->history, value);
  fake_timeline_wait(timeline, clock);
  fake_clock_drop(clock);
}

/* Adds a signal with a clock, whose reference it releases. */
static void add_signal(hal_plugin_semaphore_t *semaphore, uint64_t value, fake_clock_t *clock) {
  if (FAKE_LIKELY(!clock)) return;
  fake_history_add(semaphore->history, value, clock);
  fake_clock_drop(clock);
}

/* ---- the host ---- */

hal_status_t hal_plugin_semaphore_value(hal_plugin_semaphore_t *semaphore, uint64_t *out_value) {
  *out_value = atomic_load(&semaphore->page->value);
  put_after(semaphore, *out_value, NULL);
  return HAL_OK;
}

hal_status_t hal_plugin_semaphore_set(hal_plugin_semaphore_t *semaphore, uint64_t value) {
  add_signal(semaphore, value, fake_race_now(NULL));
  raise_to(semaphore, value);
  return HAL_OK;
}

static hal_status_t poisoned(const char *call) { return fake_error(HAL_ABORTED, 0, "fake: %s: " FAKE_POISONED, call); }

hal_status_t hal_plugin_semaphore_wait(hal_plugin_semaphore_t *semaphore, uint64_t value, int64_t timeout_ns) {
  int64_t end = 0;
  if (timeout_ns < 0 || __builtin_add_overflow(fake_now(), timeout_ns, &end)) end = timeout_ns < 0 ? 0 : INT64_MAX;
  const hal_status_t status = wait_here(semaphore, value, end);
  if (!status) put_after(semaphore, value, NULL);
  return status == HAL_ABORTED ? poisoned("semaphore_wait") : status;
}

/* ---- streams ---- */

static hal_status_t check_stream(const hal_plugin_stream_t *stream, const char *call) {
  if (FAKE_LIKELY(!stream || !fake_is_captured(stream))) return HAL_OK;
  return fake_error(HAL_FAILED_PRECONDITION, 0,
                    "fake: %s on a captured stream; signal semaphores and wait for them outside of the capture", call);
}

void fake_semaphore_signal(hal_plugin_semaphore_t *semaphore, uint64_t value, fake_clock_t *clock) {
  add_signal(semaphore, value, clock);
  raise_to(semaphore, value);
  unref(semaphore);
}

hal_status_t hal_plugin_stream_signal_semaphore(hal_plugin_stream_t *stream, hal_plugin_semaphore_t *semaphore,
                                                uint64_t value) {
  const hal_status_t status = check_stream(stream, "stream_signal_semaphore");
  if (status) return status;
  if (!fake_queues(stream)) {
    if (stream) fake_lock(&stream->lock); /* another thread may be running an item of it */
    if (stream) fake_unlock(&stream->lock);
    add_signal(semaphore, value, fake_race_now(stream));
    raise_to(semaphore, value);
    return HAL_OK;
  }
  fake_clock_t *const clock = fake_race_now(stream);
  fake_item_t *const item = fake_queue_reserve(stream, sizeof *item, FAKE_ITEM_SIGNAL);
  if (!item) {
    fake_clock_drop(clock);
    return fake_queue_refused(stream);
  }
  atomic_fetch_add_explicit(&semaphore->refs, 1, memory_order_relaxed);
  item->u.signal.semaphore = semaphore;
  item->u.signal.value = value;
  item->u.signal.clock = clock;
  fake_queue_commit(stream, item);
  return HAL_OK;
}

/* The watcher: raises the proxy to the value that other handles have set, until no stream waits. */
static void *watch(void *argument) {
  hal_plugin_semaphore_t *const semaphore = argument;
  fake_thread_name();
  for (int over = 0; !over;) {
    const uint64_t value = atomic_load(&semaphore->page->value);
    fake_stream_raise(semaphore->timeline, value);
    fake_lock(&semaphore->lock);
    over = value >= semaphore->awaited;
    if (over) semaphore->watched = 0;
    fake_unlock(&semaphore->lock);
    if (!over) sleep_on(semaphore->page, value, LOOK_NS);
  }
  unref(semaphore);
  return NULL;
}

/* Ensures that the page is watched until its value is at least this. */
static hal_status_t ensure_watched(hal_plugin_semaphore_t *semaphore, uint64_t value) {
  if (semaphore->page == &semaphore->own) return HAL_OK; /* no other handle raises it */
  fake_lock(&semaphore->lock);
  const uint64_t before = semaphore->awaited;
  if (value > before) semaphore->awaited = value;
  int failed = 0;
  if (!semaphore->watched) {
    atomic_fetch_add_explicit(&semaphore->refs, 1, memory_order_relaxed);
    failed = !fake_thread_start(watch, semaphore);
    semaphore->watched = !failed;
  }
  if (failed) semaphore->awaited = before;
  fake_unlock(&semaphore->lock);
  if (!failed) return HAL_OK;
  unref(semaphore);
  return fake_error(HAL_RESOURCE_EXHAUSTED, 0,
                    "fake: the system provides no thread to wait for a semaphore of another process; end some threads");
}

hal_status_t hal_plugin_stream_wait_semaphore(hal_plugin_stream_t *stream, hal_plugin_semaphore_t *semaphore,
                                              uint64_t value) {
  hal_status_t status = check_stream(stream, "stream_wait_semaphore");
  if (status) return status;
  const uint64_t now = atomic_load(&semaphore->page->value);
  if (now >= value && now != HAL_SEMAPHORE_POISON) {
    put_after(semaphore, value, fake_timeline_of(stream));
    return HAL_OK;
  }
  if (!stream || !fake.settings.async) {
    status = wait_here(semaphore, value, INT64_MAX);
    put_after(semaphore, value, fake_timeline_of(stream));
    if (status && !stream) return poisoned("stream_wait_semaphore");
    if (status) fake_stream_fail(stream, HAL_ABORTED, FAKE_POISONED);
    return HAL_OK;
  }
  fake_stream_raise(semaphore->timeline, now); /* possibly raised by another process, and not seen yet */
  status = ensure_watched(semaphore, value);
  if (status) return status;
  fake_promise_t *const promise = fake_races() ? fake_timeline_promise(&stream->timeline, semaphore->history) : NULL;
  return fake_stream_wait_number(stream, semaphore->timeline, value, promise);
}

/* ---- fork ---- */

void fake_semaphore_fork_prepare(void) { fake_lock(&all.lock); }
void fake_semaphore_fork_parent(void) { fake_unlock(&all.lock); }
void fake_semaphore_fork_child(void) {
  fake_lock_reset(&all.lock);
  for (hal_plugin_semaphore_t *semaphore = all.first; semaphore; semaphore = semaphore->next) {
    fake_lock_reset(&semaphore->lock);
    fake_proxy_fork_child(semaphore->timeline);
    semaphore->watched = 0;
  }
}
