/* profile_launch.c: the calls that submit work during a profile: the thread's current operator, and the number for a
 * plugin's records.
 *
 * The number of a record contains the operator, so that work of an earlier profile has its name, and the number of a
 * launch. That is an entry of the table below with the thread, the times of the call, the operator and the caller's
 * number. If the entry that a launch needs is still in use, the number contains the operator and the caller's number
 * instead: such a record has no launch. */
#define _GNU_SOURCE
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/host_malloc.h"
#include "base/lock.h"
#include "device/profile_internal.h"
#include "hal/status.h"

#define ID_BITS HAL_PROFILE_ID_BITS
#define ID_MASK HAL_PROFILE_ID_MASK
#define DIRECT (UINT64_C(1) << 63)     /* a number that holds the operator and the caller's number */
#define DIRECT_OWN (UINT64_C(1) << 62) /* such a number: the plugin's own operator runs */
#define DIRECT_OPS (UINT32_C(1) << 14) /* an operator with a greater number has no name in such a record */
#define OWN HAL_PROFILE_OWN            /* in the thread's operator */
#define MAX_DEPTH 64
#define MAX_LAUNCHES (UINT64_C(1) << 18) /* the maximum number of records of a device of the fake plugin */

typedef struct entry_s {
  hal_profile_launch_t launch; /* its number is 0 in an entry that was never used */
  int is_read;                 /* a record has used it: it may be overwritten */
} entry_t;

static struct {
  hal_lock_t lock; /* plugins request numbers while they hold their locks: no other lock is taken under it */
  entry_t *table;
  uint64_t last; /* the number of the latest launch; never decreases, so a record of an earlier profile has no entry */
} launches;

/* The calls that the thread is running. Plain data without a destructor. */
static _Thread_local struct {
  uint32_t number; /* the profile of the following fields, except `op` */
  uint32_t depth;
  uint32_t op;     /* 1 + the running operator, 0 = none; and OWN */
  uint32_t calls;  /* nested calls that may submit work */
  int64_t call_ns; /* when the outermost call began; 0: its first launch has used it */
  uint64_t open;   /* the launch that lasts until the next one, or to the end of the call; 0 = none */
  int64_t id;      /* the system's number of the thread; 0 = not queried yet */
  uint64_t ids[MAX_DEPTH];
} thread;

/* ---- the table --------------------------------------------------------------------------------------------------- */

static inline entry_t *entry_of(uint64_t number) { return &launches.table[number % MAX_LAUNCHES]; }

hal_status_t hal_profile_open_launches(void) {
  hal_profile_drop_launches();
  entry_t *const table = hal_calloc(MAX_LAUNCHES, sizeof *table); /* the system allocates pages when they are written */
  if (!table)
    return hal_error_set(HAL_RESOURCE_EXHAUSTED, "the host has no memory for the %zu bytes of a profile's launches",
                         (size_t)MAX_LAUNCHES * sizeof *table);
  hal_lock(&launches.lock);
  launches.table = table;
  hal_unlock(&launches.lock);
  return HAL_OK;
}

void hal_profile_drop_launches(void) {
  hal_lock(&launches.lock);
  entry_t *const table = launches.table;
  launches.table = NULL;
  hal_unlock(&launches.lock);
  hal_free(table);
}

/* Returns the number of a new launch, 0 if its entry is in use. */
static uint64_t add_launch(const hal_profile_launch_t *launch) {
  uint64_t number = 0;
  hal_lock(&launches.lock);
  if (launches.table) {
    entry_t *const entry = entry_of(launches.last + 1);
    if (!entry->launch.number || entry->is_read) {
      number = ++launches.last;
      entry->launch = *launch;
      entry->launch.number = number;
      entry->is_read = 0;
    }
  }
  hal_unlock(&launches.lock);
  return number;
}

static void end_launch(uint64_t number, int64_t now) {
  hal_lock(&launches.lock);
  if (launches.table && entry_of(number)->launch.number == number) entry_of(number)->launch.end_ns = now;
  hal_unlock(&launches.lock);
}

static hal_profile_launch_t read_direct(uint64_t correlation) {
  const uint32_t own = correlation & DIRECT_OWN ? OWN : 0;
  return (hal_profile_launch_t){.op = ((uint32_t)(correlation >> ID_BITS) & (DIRECT_OPS - 1)) | own,
                                .correlation = correlation & ID_MASK};
}

hal_profile_launch_t hal_profile_find_launch(uint64_t correlation) {
  hal_profile_launch_t found = read_direct(correlation);
  const uint64_t number = correlation & ID_MASK;
  if (correlation & DIRECT || !number) return found;
  found.correlation = 0;
  hal_lock(&launches.lock);
  if (launches.table && entry_of(number)->launch.number == number) {
    entry_of(number)->is_read = 1;
    found = entry_of(number)->launch;
  }
  hal_unlock(&launches.lock);
  if (found.number && !found.end_ns) found.end_ns = hal_clock_ns(); /* the call has not returned yet */
  return found;
}

/* ---- what a thread submits --------------------------------------------------------------------------------------- */

/* Discards the thread's state of an earlier profile. */
static inline void enter_profile(uint32_t number) {
  if (thread.number == number) return;
  thread.number = number;
  thread.depth = thread.calls = 0;
  thread.open = 0;
}

static void close_launch(int64_t now) {
  if (thread.open) end_launch(thread.open, now);
  thread.open = 0;
}

void hal_profile_begin_call(void) {
  const uint32_t number = atomic_load_explicit(&hal_profile_number, memory_order_relaxed);
  if (!number) return;
  enter_profile(number);
  if (!thread.calls++) thread.call_ns = hal_clock_ns();
}

void hal_profile_end_call(void) {
  if (!thread.calls || --thread.calls) return;
  if (thread.open) close_launch(hal_clock_ns());
}

uint32_t hal_profile_begin_op(uint32_t op) {
  const uint32_t outer = thread.op;
  thread.op = op < OWN - 1 ? op + 1 : 0;
  hal_profile_begin_call();
  return outer;
}

uint32_t hal_profile_begin_own(void) {
  const uint32_t outer = thread.op;
  thread.op |= OWN;
  hal_profile_begin_call();
  return outer;
}

void hal_profile_end_op(uint32_t outer) {
  hal_profile_end_call();
  thread.op = outer;
}

uint64_t hal_profile_current_id(void) {
  const int current = thread.number == atomic_load_explicit(&hal_profile_number, memory_order_relaxed);
  const uint32_t depth = current ? thread.depth : 0, level = depth < MAX_DEPTH ? depth : MAX_DEPTH;
  return level ? thread.ids[level - 1] : 0;
}

uint64_t hal_profile_stamp(void) {
  const uint64_t profile = atomic_load_explicit(&hal_profile_number, memory_order_relaxed),
                 id = hal_profile_current_id();
  return id ? profile << ID_BITS | id : 0;
}

uint64_t hal_profile_stamped_id(uint64_t stamp) {
  const uint64_t profile = atomic_load_explicit(&hal_profile_number, memory_order_relaxed);
  return stamp && profile && stamp >> ID_BITS == (uint16_t)profile ? stamp & ID_MASK : 0;
}

/* The thread's operator, above the 48 bits of a number. */
static uint64_t op_bits(void) {
  const uint32_t op = thread.op & ~OWN;
  return (thread.op & OWN ? DIRECT_OWN : 0) | (uint64_t)(op < DIRECT_OPS ? op : 0) << ID_BITS;
}

static uint64_t direct_number(uint64_t id) { return thread.op || id ? DIRECT | op_bits() | id : 0; }

static int64_t thread_id(void) {
  if (!thread.id) thread.id = (int64_t)syscall(SYS_gettid);
  return thread.id;
}

/* The first launch of a call begins with the call; a later one begins where the previous launch ends. */
uint64_t hal_profile_correlation(void) {
  const uint32_t profile = atomic_load_explicit(&hal_profile_number, memory_order_relaxed);
  if (!profile) return direct_number(0);
  enter_profile(profile);
  const int64_t now = hal_clock_ns();
  close_launch(now);
  const int64_t start = thread.calls && thread.call_ns ? thread.call_ns : now;
  const hal_profile_launch_t launch = {.correlation = hal_profile_current_id(),
                                       .op = thread.op,
                                       .start_ns = start,
                                       .end_ns = thread.calls ? 0 : now,
                                       .thread = thread_id()};
  const uint64_t number = add_launch(&launch);
  if (!number) return direct_number(launch.correlation);
  thread.call_ns = 0;
  if (thread.calls) thread.open = number;
  return op_bits() | number;
}

hal_status_t hal_profile_push(uint64_t correlation) {
  if (correlation == 0 || correlation > ID_MASK)
    return hal_error_set(HAL_INVALID_ARGUMENT, "a profile cannot carry the number %llu; pass one from 1 to %llu",
                         (unsigned long long)correlation, (unsigned long long)ID_MASK);
  const uint32_t number = atomic_load_explicit(&hal_profile_number, memory_order_relaxed);
  if (!number) return HAL_OK;
  enter_profile(number);
  if (thread.depth < MAX_DEPTH) thread.ids[thread.depth] = correlation;
  thread.depth++;
  return HAL_OK;
}

void hal_profile_pop(void) {
  const uint32_t number = atomic_load_explicit(&hal_profile_number, memory_order_relaxed);
  if (number && thread.number == number && thread.depth) thread.depth--;
}

/* Another thread of the parent may have been writing the table, so it is not freed. */
void hal_profile_launch_after_fork(void) {
  launches.table = NULL;
  thread.id = 0;
}
