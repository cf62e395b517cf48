/* clock.c: clocks and timelines. A change of a clock creates a new one, in a buffer that the lock guards. */
#include <string.h>

#include "sanitize.h"

enum { MOST_PROMISES = 4096 };

struct fake_promise_s {
  atomic_uint refs;
  fake_history_t *history;
  _Atomic(fake_clock_t *) clock; /* NULL: the wait has not ended */
};

struct fake_clock_s {
  atomic_uint refs;
  uint32_t count, promise_count;
  int32_t is_all; /* everything comes before: no memory for the truth */
  fake_promise_t **promises;
  uint64_t last[];
};

static fake_clock_t everything = {.refs = 1, .is_all = 1};

static struct {
  fake_lock_t lock;
  uint64_t works;       /* the number of the last one */
  fake_timeline_t host; /* index 0 */
  uint64_t host_version;
  uint8_t used[FAKE_TIMELINES];
  uint32_t most;                       /* the timelines that were ever used */
  uint64_t last_works[FAKE_TIMELINES]; /* of each timeline */
  /* the buffer */
  uint64_t last[FAKE_TIMELINES];
  fake_promise_t *promises[MOST_PROMISES];
  uint32_t count, promise_count;
  int changed, is_all;
} all;

/* ---- clocks ------------------------------------------------------------------------------------------------------ */

fake_clock_t *fake_clock_ref(const fake_clock_t *clock) {
  fake_clock_t *const own = (fake_clock_t *)(uintptr_t)clock;
  if (own) atomic_fetch_add_explicit(&own->refs, 1, memory_order_relaxed);
  return own;
}

static void drop_promise(fake_promise_t *promise) {
  if (atomic_fetch_sub_explicit(&promise->refs, 1, memory_order_acq_rel) != 1) return;
  fake_clock_drop(atomic_load(&promise->clock));
  fake_history_drop(promise->history);
  hal_host->mem_free(promise);
}

void fake_clock_drop(const fake_clock_t *clock) {
  fake_clock_t *const own = (fake_clock_t *)(uintptr_t)clock;
  if (!own || atomic_fetch_sub_explicit(&own->refs, 1, memory_order_acq_rel) != 1) return;
  for (uint32_t i = 0; i < own->promise_count; i++) drop_promise(own->promises[i]);
  hal_host->mem_free(own);
}

int fake_clock_has(const fake_clock_t *clock, uint32_t timeline, uint64_t number) {
  if (clock->is_all || (timeline < clock->count && number <= clock->last[timeline])) return 1;
  for (uint32_t i = 0; i < clock->promise_count; i++) {
    const fake_clock_t *const kept = atomic_load_explicit(&clock->promises[i]->clock, memory_order_acquire);
    if (!kept || fake_clock_has(kept, timeline, number)) return 1;
  }
  return 0;
}

/* ---- the buffer; the caller holds the lock ----------------------------------------------------------------------- */

static void add_number(uint32_t timeline, uint64_t number) {
  if (timeline >= FAKE_TIMELINES || !number) return;
  if (timeline >= all.count) {
    memset(all.last + all.count, 0, (timeline + 1 - all.count) * sizeof *all.last);
    all.count = timeline + 1;
  }
  if (all.last[timeline] >= number) return;
  all.last[timeline] = number;
  all.changed = 1;
}

static void add_clock(const fake_clock_t *clock);

static void add_promise(fake_promise_t *promise) {
  const fake_clock_t *const kept = atomic_load_explicit(&promise->clock, memory_order_acquire);
  if (kept) {
    add_clock(kept);
    return;
  }
  for (uint32_t i = 0; i < all.promise_count; i++)
    if (all.promises[i] == promise) return;
  all.changed = 1;
  if (all.promise_count == MOST_PROMISES)
    all.is_all = 1;
  else
    all.promises[all.promise_count++] = promise;
}

static void add_clock(const fake_clock_t *clock) {
  if (!clock) return;
  if (clock->is_all && !all.is_all) all.is_all = all.changed = 1;
  for (uint32_t i = clock->count; i-- > 0;) add_number(i, clock->last[i]);
  for (uint32_t i = 0; i < clock->promise_count; i++) add_promise(clock->promises[i]);
}

/* Fills the buffer with a clock, or with nothing. */
static void load(const fake_clock_t *clock) {
  all.count = all.promise_count = 0;
  all.is_all = 0;
  add_clock(clock);
  all.changed = 0;
  for (uint32_t i = 0; clock && i < clock->promise_count; i++)
    if (atomic_load_explicit(&clock->promises[i]->clock, memory_order_relaxed)) all.changed = 1;
}

/* Returns the buffer's contents as a clock: a reference. */
static fake_clock_t *make_clock(void) {
  const size_t numbers = all.count * sizeof *all.last, promises = all.promise_count * sizeof(fake_promise_t *);
  fake_clock_t *const clock =
      all.is_all ? NULL : hal_host->mem_alloc(sizeof *clock + numbers + promises, alignof(fake_clock_t));
  if (!clock) return fake_clock_ref(&everything);
  clock->count = all.count;
  clock->promise_count = all.promise_count;
  clock->is_all = 0;
  clock->promises = (fake_promise_t **)(void *)(clock->last + all.count);
  atomic_store_explicit(&clock->refs, 1, memory_order_relaxed);
  memcpy(clock->last, all.last, numbers);
  for (uint32_t i = 0; i < all.promise_count; i++) {
    atomic_fetch_add_explicit(&all.promises[i]->refs, 1, memory_order_relaxed);
    clock->promises[i] = all.promises[i];
  }
  return clock;
}

/* Replaces a clock by the buffer's contents, which began with it. */
static void store(fake_clock_t **inout_clock) {
  if (!all.changed && *inout_clock) return;
  fake_clock_t *const old = *inout_clock;
  *inout_clock = make_clock();
  fake_clock_drop(old);
}

/* ---- timelines --------------------------------------------------------------------------------------------------- */

/* Everything that the host knows comes before what it submits. The caller holds the lock. */
static void refresh(fake_timeline_t *timeline) {
  if (timeline->is_relative || timeline == &all.host || timeline->seen == all.host_version) return;
  timeline->seen = all.host_version;
  load(timeline->clock);
  add_clock(all.host.clock);
  add_number(0, all.host.last);
  store(&timeline->clock);
}

void fake_timeline_open(fake_timeline_t *timeline) {
  uint32_t index = 1;
  fake_lock(&all.lock);
  while (index < FAKE_TIMELINES && all.used[index]) index++;
  if (index < FAKE_TIMELINES) all.used[index] = 1;
  fake_unlock(&all.lock);
  *timeline = (fake_timeline_t){.index = index};
}

static void wait_locked(fake_timeline_t *timeline, const fake_clock_t *clock, uint32_t index, uint64_t last) {
  load(timeline->clock);
  add_clock(clock);
  if (index) add_number(index, last);
  if (timeline == &all.host && all.changed) all.host_version++;
  store(&timeline->clock);
}

void fake_timeline_close(fake_timeline_t *timeline) {
  fake_lock(&all.lock);
  wait_locked(&all.host, timeline->clock, timeline->index, timeline->last);
  if (timeline->index < FAKE_TIMELINES) all.used[timeline->index] = 0;
  fake_clock_drop(timeline->clock);
  timeline->clock = NULL;
  timeline->index = FAKE_NO_TIMELINE;
  fake_unlock(&all.lock);
}

/* Returns a number up to which all work items come before the next one of the timeline. The caller holds the lock. */
static uint64_t floor_of(const fake_timeline_t *timeline, const fake_clock_t *clock) {
  uint64_t floor = all.works;
  for (uint32_t i = 0; i < all.most && !clock->is_all; i++) {
    const uint64_t known = i < clock->count ? clock->last[i] : 0;
    if (i != timeline->index && all.last_works[i] > known && known < floor) floor = known;
  }
  return floor;
}

/* Numbers `works` items; forgets all accesses when their short numbers (race.c) repeat. The caller holds the lock. */
static void number(fake_timeline_t *timeline, uint64_t works, fake_trace_t *trace) {
  const uint64_t gap = all.works + 1 - floor_of(timeline, trace->clock);
  trace->number = all.works + 1;
  trace->gap = gap < FAKE_RACE_PERIOD ? (uint32_t)gap : FAKE_RACE_PERIOD;
  trace->timeline = timeline->index;
  if ((all.works + works) / FAKE_RACE_PERIOD != all.works / FAKE_RACE_PERIOD) fake_race_forget();
  all.works += works;
  timeline->last = all.last_works[timeline->index] = all.works;
  if (timeline->index >= all.most) all.most = timeline->index + 1;
  if (timeline == &all.host) all.host_version++;
}

void fake_timeline_submit(fake_timeline_t *timeline, fake_trace_t *trace) {
  fake_lock(&all.lock);
  if (!timeline) timeline = &all.host;
  trace->clock = NULL;
  if (timeline->index != FAKE_NO_TIMELINE) {
    refresh(timeline);
    if (!timeline->clock) wait_locked(timeline, NULL, 0, 0);
    /* Without asynchronous streams the work of each call is done when it returns, so the host need not wait for it. */
    const int is_after_all = timeline == &all.host && !fake.settings.async;
    trace->clock = fake_clock_ref(is_after_all ? &everything : timeline->clock);
    number(timeline, 1, trace);
  }
  fake_unlock(&all.lock);
}

fake_clock_t *fake_timeline_now(fake_timeline_t *timeline) {
  fake_lock(&all.lock);
  if (!timeline) timeline = &all.host;
  refresh(timeline);
  load(timeline->clock);
  add_number(timeline->index, timeline->last);
  fake_clock_t *const clock = make_clock();
  fake_unlock(&all.lock);
  return clock;
}

void fake_timeline_wait(fake_timeline_t *timeline, const fake_clock_t *clock) {
  if (!clock) return;
  fake_lock(&all.lock);
  wait_locked(timeline ? timeline : &all.host, clock, 0, 0);
  fake_unlock(&all.lock);
}

void fake_timeline_ran(const fake_trace_t *trace) {
  if (!trace->clock) return;
  fake_lock(&all.lock);
  wait_locked(&all.host, trace->clock, trace->timeline, trace->number);
  fake_unlock(&all.lock);
}

uint64_t fake_work_count(void) { return __atomic_load_n(&all.works, __ATOMIC_RELAXED); }

/* ---- graphs ------------------------------------------------------------------------------------------------------ */

void fake_timeline_record(fake_timeline_t *branch, fake_branches_t *branches, uint64_t works, fake_trace_t *trace) {
  fake_lock(&all.lock);
  if (!branch->clock) wait_locked(branch, NULL, 0, 0);
  trace->clock = fake_clock_ref(branch->clock);
  trace->number = branches->works + 1;
  trace->timeline = branch->index;
  branches->works += works;
  branch->last = branches->works;
  fake_unlock(&all.lock);
}

/* The branches of the first launch get their timelines. The caller holds the lock. */
static void open_branches(fake_branches_t *branches) {
  uint32_t index = 1;
  if (branches->indices || branches->count < 2) return;
  branches->indices = hal_host->mem_alloc(branches->count * sizeof *branches->indices, alignof(uint32_t));
  for (uint32_t i = 1; branches->indices && i < branches->count; i++) {
    while (index < FAKE_TIMELINES && all.used[index]) index++;
    if (index < FAKE_TIMELINES) all.used[index] = 1;
    branches->indices[i] = index;
  }
}

void fake_branches_free(fake_branches_t *branches) {
  if (!branches->indices) return;
  fake_lock(&all.lock);
  for (uint32_t i = 1; i < branches->count; i++)
    if (branches->indices[i] < FAKE_TIMELINES) all.used[branches->indices[i]] = 0;
  fake_unlock(&all.lock);
  hal_host->mem_free(branches->indices);
}

void fake_timeline_launch(fake_timeline_t *timeline, fake_branches_t *branches, fake_trace_t *trace) {
  fake_lock(&all.lock);
  if (!timeline) timeline = &all.host;
  trace->clock = NULL;
  if (timeline->index != FAKE_NO_TIMELINE) {
    refresh(timeline);
    open_branches(branches);
    load(timeline->clock);
    add_number(timeline->index, timeline->last);
    trace->clock = make_clock();
    number(timeline, branches->works ? branches->works : 1, trace);
    load(timeline->clock);
    for (uint32_t i = 1; branches->indices && i < branches->count; i++) {
      const uint32_t index = branches->indices[i];
      add_number(index, timeline->last);
      if (index < FAKE_TIMELINES) all.last_works[index] = timeline->last;
      if (index < FAKE_TIMELINES && index >= all.most) all.most = index + 1;
    }
    store(&timeline->clock);
  }
  fake_unlock(&all.lock);
}

fake_clock_t *fake_branch_clock(const fake_branches_t *branches, const fake_trace_t *launch, const fake_trace_t *node) {
  fake_lock(&all.lock);
  load(launch->clock);
  for (uint32_t i = 0; node->clock && i < node->clock->count && i < branches->count; i++) {
    const uint32_t index = i && branches->indices ? branches->indices[i] : launch->timeline;
    if (node->clock->last[i]) add_number(index, launch->number - 1 + node->clock->last[i]);
  }
  if (node->clock && node->clock->is_all) all.is_all = 1;
  fake_clock_t *const clock = make_clock();
  fake_unlock(&all.lock);
  return clock;
}

/* ---- semaphores -------------------------------------------------------------------------------------------------- */

/* Signals in the order of their values. When it is full, the first two become one. */
enum { SIGNALS = 16 };

struct fake_history_s {
  atomic_uint refs;
  int outside;
  uint32_t count;
  uint64_t values[SIGNALS];
  fake_clock_t *clocks[SIGNALS];
};

/* Signals that other processes may have waited for: work that waits for other processes is after those. */
static fake_clock_t *outside;

fake_history_t *fake_history_make(int is_outside) {
  fake_history_t *const history = hal_host->mem_alloc(sizeof *history, alignof(fake_history_t));
  if (!history) return NULL;
  *history = (fake_history_t){.outside = is_outside};
  atomic_store_explicit(&history->refs, 1, memory_order_relaxed);
  return history;
}

void fake_history_drop(fake_history_t *history) {
  if (!history || atomic_fetch_sub_explicit(&history->refs, 1, memory_order_acq_rel) != 1) return;
  for (uint32_t i = 0; i < history->count; i++) fake_clock_drop(history->clocks[i]);
  hal_host->mem_free(history);
}

static void merge_into(fake_clock_t **inout_clock, const fake_clock_t *clock) {
  load(*inout_clock);
  add_clock(clock);
  store(inout_clock);
}

/* The caller holds the lock. */
static void add_signal(fake_history_t *history, uint64_t value, const fake_clock_t *clock) {
  if (history->count == SIGNALS) {
    merge_into(&history->clocks[1], history->clocks[0]);
    fake_clock_drop(history->clocks[0]);
    history->count--;
    memmove(history->clocks, history->clocks + 1, history->count * sizeof *history->clocks);
    memmove(history->values, history->values + 1, history->count * sizeof *history->values);
  }
  uint32_t at = history->count;
  while (at && history->values[at - 1] > value) at--;
  memmove(history->clocks + at + 1, history->clocks + at, (history->count - at) * sizeof *history->clocks);
  memmove(history->values + at + 1, history->values + at, (history->count - at) * sizeof *history->values);
  history->values[at] = value;
  history->clocks[at] = fake_clock_ref(clock);
  history->count++;
}

void fake_history_add(fake_history_t *history, uint64_t value, const fake_clock_t *clock) {
  if (!clock) return;
  fake_lock(&all.lock);
  if (history) add_signal(history, value, clock);
  if (!history || history->outside) merge_into(&outside, clock);
  fake_unlock(&all.lock);
}

fake_clock_t *fake_history_find(fake_history_t *history, uint64_t value) {
  fake_lock(&all.lock);
  load(!history || history->outside ? outside : NULL);
  for (uint32_t i = 0; history && i < history->count; i++) {
    add_clock(history->clocks[i]);
    if (history->values[i] >= value) break;
  }
  fake_clock_t *const clock = make_clock();
  fake_unlock(&all.lock);
  return clock;
}

fake_promise_t *fake_timeline_promise(fake_timeline_t *timeline, fake_history_t *history) {
  fake_promise_t *const promise = hal_host->mem_alloc(sizeof *promise, alignof(fake_promise_t));
  if (!promise) {
    fake_timeline_wait(timeline, &everything);
    return NULL;
  }
  *promise = (fake_promise_t){.history = history};
  if (history) atomic_fetch_add_explicit(&history->refs, 1, memory_order_relaxed);
  atomic_store_explicit(&promise->refs, 1, memory_order_relaxed);
  fake_lock(&all.lock);
  load(timeline->clock);
  add_promise(promise);
  store(&timeline->clock);
  fake_unlock(&all.lock);
  return promise;
}

void fake_promise_keep(fake_promise_t *promise, uint64_t value) {
  if (!promise) return;
  atomic_store_explicit(&promise->clock, fake_history_find(promise->history, value), memory_order_release);
  drop_promise(promise);
}

void fake_clock_fork_prepare(void) { fake_lock(&all.lock); }
void fake_clock_fork_parent(void) { fake_unlock(&all.lock); }
void fake_clock_fork_child(void) { fake_lock_reset(&all.lock); }
