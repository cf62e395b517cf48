/* watch.c: the thread that watches the works of vendors' libraries, one for all communicators of the process. If no
 * work is queued, it sleeps without a limit. Otherwise it sleeps until the next deadline or for a slice, then queries
 * the library and the transport for failures. */
#define _GNU_SOURCE /* pthread_setname_np */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/life.h"
#include "base/thread.h"
#include "comm/log.h"
#include "comm/vendor/vendor.h"
#include "device/failure.h"
#include "hal/status.h"
#include "plugin/call.h"

static const int64_t slice_ns = 100 * 1000 * 1000;

/* `until` and `has_news` are sequentially consistent: a thread that adds a work writes `has_news` and then reads
 * `until`, the watch writes `until` and then reads `has_news`. One of the two sees the other. */
static struct {
  pthread_mutex_t lock;
  pthread_cond_t woken, looked; /* the watch has to look; it has looked at a communicator */
  pthread_once_t once;
  hal_comm_vendor_t *first;
  int has_thread;
  uint64_t round;
  _Atomic int64_t until; /* when the watch looks next; 0 = it is looking */
  atomic_int has_news;
} watch = {.lock = PTHREAD_MUTEX_INITIALIZER, .looked = PTHREAD_COND_INITIALIZER, .once = PTHREAD_ONCE_INIT};

/* ---- works ---- */

/* Wakes the watch if it would look too late for a deadline. */
static void notify(int64_t deadline_ns) {
  atomic_store(&watch.has_news, 1);
  const int64_t until = atomic_load(&watch.until);
  if (until != INT64_MAX && until <= deadline_ns) return;
  pthread_mutex_lock(&watch.lock);
  pthread_cond_signal(&watch.woken);
  pthread_mutex_unlock(&watch.lock);
}

void hal_comm_watch_add(hal_comm_vendor_t *vendor, hal_comm_work_t *work) {
  hal_comm_t *const comm = vendor->comm;
  if (atomic_exchange(&work->is_watched, 1)) return;
  if (__builtin_add_overflow(hal_clock_ns(), work->timeout_ns, &work->deadline_ns)) work->deadline_ns = INT64_MAX;
  const int64_t deadline_ns = work->deadline_ns;
  work->position = hal_failure_next_position(comm->out);
  atomic_fetch_add(&work->references, 1);
  pthread_mutex_lock(&comm->lock);
  work->watched_next = NULL;
  *vendor->last = work;
  vendor->last = &work->watched_next;
  pthread_mutex_unlock(&comm->lock);
  notify(deadline_ns);
}

static hal_comm_work_t *first_of(hal_comm_vendor_t *vendor) {
  pthread_mutex_lock(&vendor->comm->lock);
  hal_comm_work_t *const work = vendor->first;
  pthread_mutex_unlock(&vendor->comm->lock);
  return work;
}

/* Removes the first work, which has ended or failed. */
static void retire(hal_comm_vendor_t *vendor, hal_comm_work_t *work) {
  pthread_mutex_lock(&vendor->comm->lock);
  if (!(vendor->first = work->watched_next)) vendor->last = &vendor->first;
  pthread_mutex_unlock(&vendor->comm->lock);
  hal_comm_log_end(work->log, hal_comm_failure_get(&work->failure));
  hal_comm_work_release(work);
}

/* Removes the works that are done or have failed; a work that is being queued stays. */
static void retire_ended(hal_comm_vendor_t *vendor) {
  for (hal_comm_work_t *work; (work = first_of(vendor)) && atomic_load(&work->queued); retire(vendor, work))
    if (!atomic_load(&work->failure.set) && hal_comm_event_poll(work->end) == HAL_NOT_READY) return;
}

/* ---- failures ---- */

static hal_status_t check_library(hal_comm_vendor_t *vendor, const char *what) {
  hal_comm_state_t state = {.struct_size = sizeof state, .bad_rank = -1};
  const hal_status_t status = hal_call_comm_query(vendor->plugin, vendor->handle, &state);
  char rank[32] = "";
  if (status)
    return hal_error_prefix(hal_error_plugin(vendor->plugin, HAL_SLOT_comm_query, status), "%s: library %s: ", what,
                            vendor->info.name);
  if (state.state != HAL_COMM_FAILED && state.state != HAL_COMM_ABORTED) return HAL_OK;
  if (state.bad_rank >= 0) snprintf(rank, sizeof rank, ", rank %d", state.bad_rank);
  return hal_error_set(state.error ? state.error : HAL_INTERNAL, "%s: library %s has failed: %s (native code %lld%s)",
                       what, vendor->info.name, *state.message ? state.message : "no reason reported",
                       (long long)state.native_code, rank);
}

/* If the library fails because a rank has ended, the transport may know which process it was. */
static hal_status_t name_rank(hal_comm_vendor_t *vendor, const char *what, hal_status_t status) {
  const hal_comm_transport_t *const transport = &vendor->comm->transport;
  char library[HAL_COMM_MESSAGE];
  snprintf(library, sizeof library, "%s", hal_error_message());
  const hal_status_t ended = transport->query ? transport->query(transport->context) : HAL_OK;
  if (!ended) return hal_error_set(status, "%s", library);
  char rank[HAL_COMM_MESSAGE];
  snprintf(rank, sizeof rank, "%s", hal_error_message());
  const size_t prefix = strlen(what);
  const char *const cause =
      !strncmp(library, what, prefix) ? library + prefix + strspn(library + prefix, ": ") : library;
  return hal_error_set(ended, "%s: %s; %s", what, rank, cause);
}

/* A rank that has ended may have completed its part: data that it has sent arrives within a slice. */
static hal_status_t check_ranks(hal_comm_vendor_t *vendor, const char *what) {
  const hal_comm_transport_t *const transport = &vendor->comm->transport;
  const hal_status_t status = transport->query ? transport->query(transport->context) : HAL_OK;
  if (!status) vendor->strikes = 0;
  if (!status || ++vendor->strikes < 2) return HAL_OK;
  return hal_error_prefix(status, "%s: ", what);
}

typedef struct late_s {
  char what[HAL_COMM_WHAT], first[HAL_COMM_WHAT];
  int64_t timeout_ns, next_ns; /* of the late work, 0 = no work is late; the next deadline */
} late_t;

static void find_late(hal_comm_vendor_t *vendor, int64_t now, late_t *out) {
  *out = (late_t){.next_ns = INT64_MAX};
  pthread_mutex_lock(&vendor->comm->lock);
  for (const hal_comm_work_t *work = vendor->first; work; work = work->watched_next) {
    if (work == vendor->first) hal_comm_work_text(work, out->first);
    if (work->deadline_ns < out->next_ns) out->next_ns = work->deadline_ns;
    if (work->deadline_ns > now || out->timeout_ns) continue;
    hal_comm_work_text(work, out->what);
    out->timeout_ns = work->timeout_ns;
  }
  pthread_mutex_unlock(&vendor->comm->lock);
}

static hal_status_t report_late(hal_comm_vendor_t *vendor, const late_t *late) {
  hal_comm_state_t state = {.struct_size = sizeof state, .bad_rank = -1};
  char counts[96] = "", before[32 + sizeof late->first] = "";
  if (!hal_call_comm_query(vendor->plugin, vendor->handle, &state) && state.queued)
    snprintf(counts, sizeof counts, "; of %llu calls it has started %llu and done %llu",
             (unsigned long long)state.queued, (unsigned long long)state.started, (unsigned long long)state.done);
  if (strcmp(late->first, late->what)) snprintf(before, sizeof before, ", after %s", late->first);
  return hal_error_set(HAL_NOT_READY,
                       "%s: library %s has not done it within %.3f s%s (native code %lld%s); a rank has not called it, "
                       "has called another collective, or has ended",
                       late->what, vendor->info.name, (double)late->timeout_ns / 1e9, before,
                       (long long)state.native_code, counts);
}

/* Returns when to look again. */
static int64_t look(hal_comm_vendor_t *vendor) {
  late_t late;
  if (hal_life_ended()) return INT64_MAX;
  retire_ended(vendor);
  if (atomic_load(&vendor->comm->failure.set)) {
    hal_comm_vendor_abort(vendor);
    retire_ended(vendor);
  }
  const int64_t now = hal_clock_ns();
  find_late(vendor, now, &late);
  if (late.next_ns == INT64_MAX && !*late.first) return INT64_MAX;
  if (!atomic_load(&vendor->is_aborted)) {
    hal_status_t status = check_library(vendor, late.first);
    status = status ? name_rank(vendor, late.first, status) : check_ranks(vendor, late.first);
    if (!status && late.timeout_ns) status = report_late(vendor, &late);
    if (status) {
      hal_comm_vendor_fail(vendor, status);
      retire_ended(vendor);
    }
  }
  const int64_t slice_end = now + slice_ns;
  return late.next_ns > now && late.next_ns < slice_end ? late.next_ns : slice_end;
}

/* ---- the thread ---- */

static hal_comm_vendor_t *next_of_round(void) {
  hal_comm_vendor_t *vendor = watch.first;
  while (vendor && vendor->round == watch.round) vendor = vendor->next;
  return vendor;
}

/* The caller holds the lock, which is released while the thread looks at a communicator. */
static int64_t look_at_all(void) {
  int64_t next = INT64_MAX;
  watch.round++;
  for (hal_comm_vendor_t *vendor; (vendor = next_of_round());) {
    vendor->round = watch.round;
    vendor->is_looked_at = 1;
    pthread_mutex_unlock(&watch.lock);
    const int64_t when = look(vendor);
    if (when < next) next = when;
    pthread_mutex_lock(&watch.lock);
    vendor->is_looked_at = 0;
    pthread_cond_broadcast(&watch.looked);
  }
  return next;
}

static void sleep_until(int64_t when) {
  const struct timespec time = {(time_t)(when / 1000000000), (long)(when % 1000000000)};
  if (when == INT64_MAX)
    pthread_cond_wait(&watch.woken, &watch.lock);
  else
    pthread_cond_timedwait(&watch.woken, &watch.lock, &time);
}

static void *watch_main(void *unused) {
  pthread_setname_np(pthread_self(), "hal-comm-watch");
  pthread_mutex_lock(&watch.lock);
  while (watch.first) {
    atomic_store(&watch.until, 0);
    atomic_store(&watch.has_news, 0);
    const int64_t when = look_at_all();
    atomic_store(&watch.until, when);
    if (!atomic_load(&watch.has_news) && watch.first) sleep_until(when);
  }
  watch.has_thread = 0;
  pthread_mutex_unlock(&watch.lock);
  return unused;
}

static void initialize(void) {
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_cond_init(&watch.woken, &attributes);
  pthread_condattr_destroy(&attributes);
}

hal_status_t hal_comm_watch_begin(hal_comm_vendor_t *vendor) {
  pthread_once(&watch.once, initialize);
  pthread_mutex_lock(&watch.lock);
  vendor->next = watch.first;
  watch.first = vendor;
  const int error = watch.has_thread ? 0 : hal_thread_start(NULL, watch_main, NULL);
  if (!error) watch.has_thread = 1;
  if (error) watch.first = vendor->next;
  pthread_mutex_unlock(&watch.lock);
  if (!error) return HAL_OK;
  return hal_error_set(HAL_RESOURCE_EXHAUSTED, "cannot start the thread that looks after collectives: %s",
                       strerror(error));
}

void hal_comm_watch_end(hal_comm_vendor_t *vendor) {
  pthread_mutex_lock(&watch.lock);
  hal_comm_vendor_t **place = &watch.first;
  while (*place && *place != vendor) place = &(*place)->next;
  if (*place) *place = vendor->next;
  while (vendor->is_looked_at) pthread_cond_wait(&watch.looked, &watch.lock);
  if (!watch.first) pthread_cond_signal(&watch.woken);
  pthread_mutex_unlock(&watch.lock);
  /* No other thread removes works now. */
  for (hal_comm_work_t *work; (work = first_of(vendor));) retire(vendor, work);
}
