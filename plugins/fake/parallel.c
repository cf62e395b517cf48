/* parallel.c: launches that several threads compute: rule 7 of schedule.h. */
#include "schedule.h"

/* Parts of a parallel launch per thread: enough that a thread which the system interrupts delays the launch by at most
 * about an eighth. */
#define PARTS_PER_THREAD 8

/* The thread that starts a launch computes at least this part of it alone, to measure how long the rest would take,
 * unless that is known. */
#define FIRST_STEP 256

#define KNOWN_LAUNCHES 512

/* A sleeping thread needs 5 to 50 us to start, and waking it takes about 5. A thread that searches starts within one.
 * */
#define WORTH_WAKING_NS 60e3
#define WORTH_JOINING_NS 6e3

/* In `helpers`: the starter sleeps until the last helper has left. */
#define HELPERS_AWAITED 0x80000000u

/* ---- how long launches take ------------------------------------------------------------------------------------- */

/* The duration of the last launch of a kernel with a number of units, in nanoseconds of one thread: the lower half; the
 * upper half identifies the launch. Replacing an entry only makes the other launch unknown again. */
static _Atomic uint64_t known[KNOWN_LAUNCHES];

static uint64_t hash_of(uintptr_t code, uint64_t units) {
  const uint64_t hash = ((uint64_t)code ^ units << 20) * UINT64_C(0x9E3779B97F4A7C15);
  return hash ^ hash >> 32;
}

/* Returns 0 if it is unknown. */
static double expected_ns(uint64_t hash) {
  const uint64_t found = atomic_load_explicit(&known[hash % KNOWN_LAUNCHES], memory_order_relaxed);
  return found >> 32 == hash >> 32 ? (double)(found & UINT32_MAX) : 0;
}

static void remember_ns(uint64_t hash, double ns) {
  const uint64_t took = ns < (double)UINT32_MAX ? (uint64_t)ns : UINT32_MAX;
  atomic_store_explicit(&known[hash % KNOWN_LAUNCHES], hash >> 32 << 32 | took, memory_order_relaxed);
}

/* Returns whether helpers are worth their cost for work of this many nanoseconds. */
static int is_worth_sharing(double ns) { return ns > (fake_pool_is_searching() ? WORTH_JOINING_NS : WORTH_WAKING_NS); }

/* ---- computing -------------------------------------------------------------------------------------------------- */

/* Returns the units of a step of about `units`: at least the minimum. Large steps of items end at whole cache lines and
 * vectors; small ones may be rows, for which this has no meaning. */
static uint64_t step_of(const hal_host_kernel_t *kernel, uint64_t units) {
  if (units < kernel->grain) units = kernel->grain;
  return kernel->unit == HAL_HOST_ITEMS && units >= 32768 ? (units + 1023) & ~UINT64_C(1023) : units;
}

/* Computes on the calling thread, in steps that double, until helpers are worth their cost. The duration of a unit
 * depends on the arguments, so it must be measured. Returns the units done, and their duration. */
static void compute(const fake_parallel_t *launch, uint64_t begin, uint64_t end) {
  const hal_host_range_t range = {launch->first + begin, launch->first + end};
  fake_compute(launch->owner, launch->kernel, &range, launch->args);
}

static uint64_t run_alone(const fake_parallel_t *launch, double *out_ns) {
  const int64_t start = fake_now();
  uint64_t step = step_of(launch->kernel, launch->units / FIRST_STEP + 1), done = 0;
  for (;;) {
    const uint64_t end = launch->units - done < step ? launch->units : done + step;
    compute(launch, done, end);
    done = end;
    *out_ns = (double)(fake_now() - start);
    if (done == launch->units || is_worth_sharing(*out_ns / (double)done * (double)(launch->units - done))) return done;
    step = step < launch->part / 2 ? 2 * step : launch->part;
  }
}

/* Computes parts until none is left. Returns the units that this thread has done. */
static uint64_t run_parts(fake_parallel_t *launch) {
  for (uint64_t done = 0;;) {
    const uint64_t begin = atomic_fetch_add_explicit(&launch->begin, launch->part, memory_order_relaxed);
    if (begin >= launch->units) return done;
    const uint64_t end = launch->units - begin < launch->part ? launch->units : begin + launch->part;
    compute(launch, begin, end);
    done += end - begin;
  }
}

static uint64_t run_shared(fake_parallel_t *launch) {
  fake_pool_offer(launch);
  const uint64_t done = run_parts(launch);
  fake_pool_withdraw(launch);
  return done;
}

void fake_parallel_help(fake_parallel_t *launch) {
  run_parts(launch);
  /* The launch may be destroyed after this point; waking an address that is no longer a futex does nothing. */
  if (atomic_fetch_sub_explicit(&launch->helpers, 1, memory_order_acq_rel) == (HELPERS_AWAITED | 1))
    fake_futex_wake(&launch->helpers, 1);
}

static void wait_for_helpers(fake_parallel_t *launch) {
  FAKE_SPIN_UNTIL(!atomic_load_explicit(&launch->helpers, memory_order_acquire));
  unsigned helpers = atomic_load_explicit(&launch->helpers, memory_order_acquire);
  while (helpers & ~HELPERS_AWAITED) {
    if (helpers & HELPERS_AWAITED ||
        atomic_compare_exchange_weak_explicit(&launch->helpers, &helpers, helpers | HELPERS_AWAITED,
                                              memory_order_acq_rel, memory_order_acquire))
      fake_futex_wait(&launch->helpers, helpers | HELPERS_AWAITED, -1);
    helpers = atomic_load_explicit(&launch->helpers, memory_order_acquire);
  }
}

void fake_run_parallel(hal_plugin_stream_t *owner, const hal_host_kernel_t *kernel, const hal_host_range_t *range,
                       void *const *args, uintptr_t code) {
  const uint64_t units = range->end - range->begin;
  const uint64_t threads = fake.settings.threads, hash = hash_of(code, units);
  fake_parallel_t launch = {.kernel = kernel, .args = args, .first = range->begin, .units = units, .owner = owner};
  launch.part = step_of(kernel, units / (threads * PARTS_PER_THREAD) + 1);
  double ns = 0;
  int shared = 0;
  uint64_t done = is_worth_sharing(expected_ns(hash)) ? 0 : run_alone(&launch, &ns);
  if (done < units) {
    const uint64_t others = (units - done - 1) / launch.part;
    if (fake_pool_start() && others) launch.helpers_wanted = (uint32_t)(others < threads - 1 ? others : threads - 1);
    atomic_store_explicit(&launch.begin, done, memory_order_relaxed);
    const int64_t start = fake_now();
    shared = launch.helpers_wanted != 0;
    done += shared ? run_shared(&launch) : run_parts(&launch);
    ns += (double)(fake_now() - start);
  }
  if (done) remember_ns(hash, ns / (double)done * (double)units);
  if (shared) wait_for_helpers(&launch);
}
