/* wait.c: waits for other ranks.
 *
 * A rank first spins, if each rank can have a processor. Then it sleeps on its bell, in slices. In each slice it checks
 * whether the processes of the ranks that it waits for still run. It writes what it waits for before it reads the
 * counters a last time. A rank that sets a counter reads afterwards what the others wait for. These accesses are
 * sequentially consistent, so one of the two sees the other. A rank that waits for all others is woken once, by the
 * last of them: each wake of a rank that has to sleep again costs two thread switches. */
#define _POSIX_C_SOURCE 200809L
#include <string.h>

#include "base/clock.h"
#include "comm/shm/internal.h"
#include "comm/shm/system.h"

static const int64_t spin_ns = 20 * 1000;          /* less than two thread switches */
static const int64_t slice_ns = 100 * 1000 * 1000; /* between two checks of the processes */

typedef struct wait_s {
  hal_shm_set_t (*lacking)(hal_shm_t *, void *);
  void *context;
  hal_shm_set_t ranks; /* that the wait is for; 0 for messages */
  int counter;         /* of the counters, -1 for messages */
  uint64_t target;
} wait_t;

static inline void cpu_pause(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

/* ---- waking ---- */

static void ring(_Atomic uint32_t *bell) {
  atomic_fetch_add_explicit(bell, 1, memory_order_release);
  hal_shm_wake(bell);
}

static int is_below(const hal_shm_t *shm, int32_t rank, uint64_t counter, uint64_t target) {
  return atomic_load(&hal_shm_page(shm, rank)->counters[counter]) < target;
}

/* Returns whether the wait of another rank ends with the counters of this one. `waits`: as hal_shm_rank_t describes. */
static int ends_wait(const hal_shm_t *shm, int32_t sleeper, uint64_t waits) {
  const uint64_t who = waits & 0xff, counter = waits >> 8 & 0xff, target = waits >> 16;
  if (!who || counter >= HAL_SHM_COUNTERS) return 0;
  if (who != HAL_SHM_WAITS_FOR_ALL && who != (uint64_t)shm->rank + 1) return 0;
  if (is_below(shm, shm->rank, counter, target)) return 0;
  for (int32_t rank = 0; who == HAL_SHM_WAITS_FOR_ALL && rank < shm->size; rank++)
    if (rank != sleeper && is_below(shm, rank, counter, target)) return 0;
  return 1;
}

void hal_shm_notify(hal_shm_t *shm) {
  for (int32_t rank = 0; rank < shm->size; rank++) {
    hal_shm_rank_t *const page = hal_shm_page(shm, rank);
    if (rank != shm->rank && ends_wait(shm, rank, atomic_load(&page->waits))) ring(&page->bell);
  }
}

void hal_shm_notify_message(hal_shm_t *shm, int32_t rank) {
  hal_shm_rank_t *const page = hal_shm_page(shm, rank);
  if (atomic_load(&page->message_sleepers)) ring(&page->message_bell);
}

void hal_shm_notify_all(hal_shm_t *shm) {
  for (int32_t rank = 0; rank < shm->size; rank++) {
    ring(&hal_shm_page(shm, rank)->bell);
    ring(&hal_shm_page(shm, rank)->message_bell);
  }
}

/* ---- processes ---- */

hal_status_t hal_shm_check_process(hal_shm_t *shm, int32_t rank) {
  const hal_shm_rank_t *const page = hal_shm_page(shm, rank);
  const uint32_t state = atomic_load_explicit(&page->state, memory_order_acquire);
  if (state == HAL_SHM_LEFT)
    return hal_error_set(HAL_UNAVAILABLE, "rank %d (pid %d) has destroyed its side of the communicator", (int)rank,
                         (int)page->pid);
  if (state != HAL_SHM_PRESENT || (shm->unseen & HAL_SHM_BIT(rank))) return HAL_OK;
  const int64_t start = hal_shm_process_start(page->pid);
  if (start < 0 || (uint64_t)start == page->start) return HAL_OK; /* -1: look again later */
  return hal_error_set(HAL_UNAVAILABLE, "rank %d (pid %d) has ended", (int)rank, (int)page->pid);
}

/* Checks the processes of the ranks that this rank waits for. A rank that has completed its part and ended is not
 * waited for. */
static hal_status_t look(hal_shm_t *shm, const wait_t *wait, hal_shm_set_t ranks) {
  const int64_t now = hal_clock_ns();
  if (now - shm->looked_ns < slice_ns) return HAL_OK;
  shm->looked_ns = now;
  for (int32_t rank = 0; rank < shm->size; rank++) {
    if (!(ranks & HAL_SHM_BIT(rank)) || !hal_shm_check_process(shm, rank)) continue;
    if (!(wait->lacking(shm, wait->context) & HAL_SHM_BIT(rank))) continue;
    char what[HAL_SHM_WHAT], text[HAL_SHM_FAILURE_BYTES] = "";
    hal_shm_describe_activity(shm, what, sizeof what);
    hal_text_append(text, sizeof text, "%s during %s; its last call is ", hal_error_message(), what);
    hal_shm_append_last(shm, rank, text, sizeof text);
    return hal_shm_fail(shm, HAL_UNAVAILABLE, "%s", text);
  }
  return HAL_OK;
}

static hal_status_t time_is_over(hal_shm_t *shm, hal_shm_set_t ranks) {
  char what[HAL_SHM_WHAT], text[HAL_SHM_FAILURE_BYTES] = "";
  hal_shm_describe_activity(shm, what, sizeof what);
  hal_text_append(text, sizeof text, "%s is not done within %.3f s:", what, (double)shm->timeout_ns / 1e9);
  for (int32_t rank = 0, first = 1; rank < shm->size; rank++) {
    if (!(ranks & HAL_SHM_BIT(rank))) continue;
    hal_text_append(text, sizeof text, "%s waiting for rank %d, whose last call is ", first ? "" : ";", (int)rank);
    hal_shm_append_last(shm, rank, text, sizeof text);
    first = 0;
  }
  return hal_shm_fail(shm, HAL_NOT_READY, "%s", text);
}

/* ---- waiting ---- */

/* Publishes what this thread waits for, where the other ranks find it: all of them, or the first rank that is missing.
 */
static void announce(const hal_shm_t *shm, hal_shm_rank_t *own, const wait_t *wait, hal_shm_set_t ranks) {
  if (wait->counter < 0) {
    atomic_fetch_add(&own->message_sleepers, 1);
  } else {
    const uint64_t who =
        wait->ranks == hal_shm_others(shm) ? HAL_SHM_WAITS_FOR_ALL : (uint64_t)__builtin_ctzll(ranks) + 1;
    atomic_store(&own->waits, wait->target << 16 | (uint64_t)wait->counter << 8 | who);
  }
}

static void withdraw(hal_shm_rank_t *own, const wait_t *wait) {
  if (wait->counter < 0) {
    atomic_fetch_sub(&own->message_sleepers, 1);
  } else {
    atomic_store_explicit(&own->waits, 0, memory_order_relaxed);
  }
}

/* Sleeps, unless nothing is missing any more. */
static hal_status_t sleep_announced(hal_shm_t *shm, const wait_t *wait, _Atomic uint32_t *bell, uint32_t rung,
                                    hal_shm_set_t *ranks) {
  *ranks = wait->lacking(shm, wait->context);
  if (!*ranks) return HAL_OK;
  HAL_RETURN_IF_ERROR(hal_shm_stopped(shm));
  const int64_t left = shm->deadline_ns - hal_clock_ns();
  if (left <= 0) return time_is_over(shm, *ranks);
  hal_shm_sleep(bell, rung, left < slice_ns ? left : slice_ns);
  return HAL_OK;
}

static hal_status_t sleep_once(hal_shm_t *shm, const wait_t *wait, hal_shm_set_t *ranks) {
  hal_shm_rank_t *const own = hal_shm_page(shm, shm->rank);
  _Atomic uint32_t *const bell = wait->counter < 0 ? &own->message_bell : &own->bell;
  const uint32_t rung = atomic_load_explicit(bell, memory_order_acquire);
  announce(shm, own, wait, *ranks);
  const hal_status_t status = sleep_announced(shm, wait, bell, rung, ranks);
  withdraw(own, wait);
  if (status || !*ranks) return status;
  *ranks = wait->lacking(shm, wait->context);
  return *ranks ? look(shm, wait, *ranks) : HAL_OK;
}

static hal_status_t wait_for(hal_shm_t *shm, const wait_t *wait) {
  HAL_RETURN_IF_ERROR(hal_shm_stopped(shm)); /* an abort also ends a call that never has to wait */
  hal_shm_set_t ranks = wait->lacking(shm, wait->context);
  if (!ranks) return HAL_OK;
  if (shm->may_spin) {
    const int64_t end = hal_clock_ns() + spin_ns;
    do {
      for (int i = 0; i < 16 && ranks; i++) {
        cpu_pause();
        ranks = wait->lacking(shm, wait->context);
      }
    } while (ranks && hal_clock_ns() < end);
  }
  shm->looked_ns = hal_clock_ns();
  hal_status_t status = HAL_OK;
  if (!ranks) return HAL_OK;
  while (ranks && !status) status = sleep_once(shm, wait, &ranks);
  return status;
}

typedef struct counters_s {
  hal_shm_set_t ranks;
  int counter;
  uint64_t target;
} counters_t;

static hal_shm_set_t lacking_counters(hal_shm_t *shm, void *context) {
  const counters_t *const wanted = context;
  hal_shm_set_t lacking = 0;
  for (hal_shm_set_t left = wanted->ranks; left; left &= left - 1) {
    const int32_t rank = (int32_t)__builtin_ctzll(left);
    if (is_below(shm, rank, (uint64_t)wanted->counter, wanted->target)) lacking |= HAL_SHM_BIT(rank);
  }
  return lacking;
}

hal_status_t hal_shm_wait_counter(hal_shm_t *shm, hal_shm_set_t ranks, int counter, uint64_t target) {
  counters_t wanted = {ranks, counter, target};
  const wait_t wait = {lacking_counters, &wanted, ranks, counter, target};
  return wait_for(shm, &wait);
}

hal_status_t hal_shm_wait_message(hal_shm_t *shm, hal_shm_set_t (*lacking)(hal_shm_t *, void *), void *context) {
  const wait_t wait = {lacking, context, 0, -1, 0};
  return wait_for(shm, &wait);
}
