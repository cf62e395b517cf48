/* race.c: the class race: accesses of different timelines to the same bytes, of which neither comes before the other.
 *
 * Four bytes of device memory have a cell for the last write, and one for the last reads. A cell is
 *   the short number of a work item << 5 | FAKE_CELL_SET | a bit for each of the bytes
 * and with FAKE_CELL_SET it is that of a set of work items. A write of other bytes of the four by another work item
 * replaces the cell; so an access may be forgotten, but none is invented. Short numbers repeat after 2^27 items, and
 * all cells are cleared before (fake_race_forget). Items are described in a ring; those that are no longer in it come
 * before everything. */
#define _GNU_SOURCE
#include <string.h>
#include <sys/mman.h>

#include "sanitize.h"

enum { RING = 1 << 20, SETS = 1 << 16, MEMBERS = 6, SHORT_BITS = 27 };

/* Fewer bytes of cells are cleared, and not returned to the system: page faults take longer. */
#define KEPT_BYTES ((size_t)16 << 20)

/* Bytes of cells per byte of device memory. */
enum { CELL_RATIO = sizeof(fake_cells_t) / FAKE_CELL_BYTES };

/* Readers that do not come before each other. */
typedef struct set_s {
  uint32_t version, count;
  uint32_t members[MEMBERS]; /* short numbers */
} set_t;

static struct {
  fake_lock_t lock;       /* guards the sets */
  fake_race_work_t *ring; /* by number */
  set_t *sets;
} all;

static fake_cells_t *cells_of(uintptr_t address) {
  return fake_sanitize_access.cells + (address - fake_sanitize_access.base) / FAKE_CELL_BYTES;
}
static uint32_t get(const uint32_t *cell) { return __atomic_load_n(cell, __ATOMIC_RELAXED); }
static void put(uint32_t *cell, uint32_t value) { __atomic_store_n(cell, value, __ATOMIC_RELAXED); }

static void *map(size_t bytes) {
  void *const found = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (found == MAP_FAILED) return NULL;
  madvise(found, bytes, MADV_DONTDUMP);
  return found;
}

hal_status_t fake_race_init(void) {
  all.ring = map(RING * sizeof *all.ring);
  all.sets = map(SETS * sizeof *all.sets);
  fake_sanitize_access.cells = map(CELL_RATIO * (fake_sanitize_access.size + FAKE_RED_ZONE));
  if (fake_sanitize_access.cells) /* the quarantine leads from one page to the next */
    madvise(fake_sanitize_access.cells, CELL_RATIO * fake_sanitize_access.size, MADV_HUGEPAGE);
  fake_sanitize_access.race = fake_race_access;
  if (all.ring && all.sets && fake_sanitize_access.cells) return HAL_OK;
  return fake_error(HAL_RESOURCE_EXHAUSTED, 0,
                    "fake: HAL_FAKE_SANITIZE=race needs %zu GiB of addresses, which the system does not permit; raise "
                    "the limit of virtual memory (ulimit -v), or remove race from the list",
                    fake_sanitize_access.size >> 29);
}

void fake_race_forget(void) {
  madvise(fake_sanitize_access.cells, CELL_RATIO * fake_sanitize_access.size, MADV_DONTNEED);
}

/* ---- work items -------------------------------------------------------------------------------------------------- */

void fake_race_begin(const fake_trace_t *trace, const char *name) {
  fake_race_work_t *const entry = &all.ring[trace->number % RING];
  if (!trace->clock) return;
  /* No part of the new work is visible before the number 0. */
  __atomic_store_n(&entry->number, 0, __ATOMIC_RELAXED);
  __atomic_store_n(&entry->name, name, __ATOMIC_RELEASE);
  __atomic_store_n(&entry->stack, trace->stack, __ATOMIC_RELEASE);
  __atomic_store_n(&entry->timeline, trace->timeline, __ATOMIC_RELEASE);
  __atomic_store_n(&entry->number, trace->number, __ATOMIC_RELEASE);
}

/* Finds the work item with a short number; returns whether it is in the ring. */
static int find_work(uint32_t number, fake_race_work_t *out_work) {
  const uint64_t newest = fake_work_count(), period = UINT64_C(1) << SHORT_BITS;
  uint64_t whole = (newest & ~(period - 1)) | number;
  if (whole > newest) whole -= period;
  const fake_race_work_t *const entry = &all.ring[whole % RING];
  if (__atomic_load_n(&entry->number, __ATOMIC_ACQUIRE) != whole) return 0;
  out_work->number = whole;
  out_work->name = __atomic_load_n(&entry->name, __ATOMIC_ACQUIRE);
  out_work->stack = __atomic_load_n(&entry->stack, __ATOMIC_ACQUIRE);
  out_work->timeline = __atomic_load_n(&entry->timeline, __ATOMIC_ACQUIRE);
  return __atomic_load_n(&entry->number, __ATOMIC_RELAXED) == whole;
}

/* Returns whether a work item comes before that of the thread, or is the same. */
static int is_before(const fake_thread_t *thread, uint32_t number, fake_race_work_t *out_work) {
  const fake_trace_t *const trace = thread->work->trace;
  if (number == thread->mine >> 5 || !find_work(number, out_work)) return 1;
  return out_work->timeline == trace->timeline || fake_clock_has(trace->clock, out_work->timeline, out_work->number);
}

/* ---- sets of readers --------------------------------------------------------------------------------------------- */

/* The short number of a set: its version and its place. */
static int get_set(uint32_t number, set_t *out_set) {
  fake_lock(&all.lock);
  *out_set = all.sets[number % SETS];
  fake_unlock(&all.lock);
  return out_set->version == number / SETS;
}

static uint32_t put_set(const set_t *set) {
  uint32_t hash = set->count;
  for (uint32_t i = 0; i < set->count; i++) hash = (hash ^ set->members[i]) * 0x9E3779B1u;
  hash = (hash ^ hash >> 15) % SETS;
  fake_lock(&all.lock);
  set_t *const entry = &all.sets[hash];
  if (entry->count != set->count || memcmp(entry->members, set->members, set->count * sizeof *set->members) != 0) {
    const uint32_t version = (entry->version + 1) % ((1u << SHORT_BITS) / SETS);
    *entry = *set;
    entry->version = version;
  }
  const uint32_t number = entry->version * SETS + hash;
  fake_unlock(&all.lock);
  return number;
}

/* Puts the readers of a cell into a set; returns whether it is complete. */
static int readers_of(uint32_t cell, set_t *out_set) {
  *out_set = (set_t){.count = 1, .members = {cell >> 5}};
  return !(cell & FAKE_CELL_SET) || get_set(cell >> 5, out_set);
}

/* Returns the cell after a read by the thread: the readers that do not come before it, and the thread's work. */
static uint32_t add_reader(fake_thread_t *thread, uint32_t cell, uint32_t mask) {
  set_t old, set = {.count = 0};
  fake_race_work_t work;
  if (cell == thread->from) return thread->to;
  const uint32_t common = cell & mask & FAKE_CELL_MASK;
  if (!common || !readers_of(cell, &old)) return thread->mine | mask;
  for (uint32_t i = 0; i < old.count; i++)
    if (!is_before(thread, old.members[i], &work) && set.count < MEMBERS - 1) set.members[set.count++] = old.members[i];
  if (!set.count) return thread->mine | mask;
  set.members[set.count++] = thread->mine >> 5;
  thread->from = cell;
  thread->to = put_set(&set) << 5 | FAKE_CELL_SET | common;
  thread->shared = thread->to & ~FAKE_CELL_MASK;
  return thread->to;
}

/* ---- accesses ---------------------------------------------------------------------------------------------------- */

static int is_known(const fake_thread_t *thread, uint32_t cell) {
  return (!(cell & FAKE_CELL_SET) && FAKE_CELL_BEFORE(thread, cell)) || !cell ||
         thread->known[(cell >> 5) % FAKE_KNOWN] == cell >> 4;
}

/* The work items of the cell come before that of the thread, or are reported. */
static void remember(fake_thread_t *thread, uint32_t cell) { thread->known[(cell >> 5) % FAKE_KNOWN] = cell >> 4; }

static fake_thread_t *checked_thread(void) {
  fake_thread_t *const thread = fake_sanitize_thread();
  return thread && thread->is_compared ? thread : NULL;
}

/* Reports the first work item of a cell that conflicts with an access. */
static void compare(fake_thread_t *thread, uint32_t cell, uintptr_t address, uint32_t mask, int is_store,
                    int was_store) {
  set_t set;
  fake_race_work_t other;
  if (is_known(thread, cell)) return;
  if (!(cell & mask & FAKE_CELL_MASK)) return; /* other bytes */
  if (readers_of(cell, &set))
    for (uint32_t i = 0; i < set.count; i++)
      if (!is_before(thread, set.members[i], &other)) {
        const uint32_t bytes = cell & mask & FAKE_CELL_MASK;
        fake_report_race((address & ~(uintptr_t)(FAKE_CELL_BYTES - 1)) + (unsigned)__builtin_ctz(bytes), is_store,
                         was_store, &other);
        break;
      }
  remember(thread, cell);
}

/* An access to bytes of one cell. */
static void access_cell(fake_thread_t *thread, uintptr_t address, uint32_t mask, int is_store) {
  fake_cells_t *const cells = cells_of(address);
  const uint32_t writer = get(&cells->write), reader = get(&cells->read);
  compare(thread, writer, address, mask, is_store, 1);
  if (!is_store) {
    const int same = (reader & ~FAKE_CELL_MASK) == thread->mine;
    put(&cells->read, same ? reader | mask : reader ? add_reader(thread, reader, mask) : thread->mine | mask);
    return;
  }
  compare(thread, reader, address, mask, 1, 0);
  put(&cells->write, (writer & ~FAKE_CELL_MASK) == thread->mine ? writer | mask : thread->mine | mask);
}

static uint32_t mask_of(uintptr_t address, uintptr_t end) {
  const uintptr_t begin = address % FAKE_CELL_BYTES, left = end - (address - begin);
  return (FAKE_CELL_MASK << begin & FAKE_CELL_MASK) & (left < FAKE_CELL_BYTES ? (1u << left) - 1 : FAKE_CELL_MASK);
}

/* An access to bytes that are device memory. */
static void access_range(fake_thread_t *thread, uintptr_t address, size_t size, int is_store) {
  const uintptr_t end = address + size;
  while (address < end) {
    const uintptr_t next = (address | (FAKE_CELL_BYTES - 1)) + 1;
    const uint32_t mask = mask_of(address, end);
    fake_cells_t *const cells = cells_of(address);
    if (mask == FAKE_CELL_MASK && is_known(thread, get(&cells->write)) && is_known(thread, get(&cells->read)))
      put(is_store ? &cells->write : &cells->read, thread->mine | mask);
    else
      access_cell(thread, address, mask, is_store);
    address = next;
  }
}

void fake_race_access(uintptr_t address, size_t size, int is_store) {
  fake_thread_t *const thread = checked_thread();
  if (thread) access_range(thread, address, size, is_store);
}

void fake_race_range(const void *address, size_t size, int is_store) {
  if (fake_arena_has(address)) fake_race_access((uintptr_t)address, size, is_store);
}

/* ---- allocations ------------------------------------------------------------------------------------------------- */

void fake_race_allocated(const void *base, size_t size) {
  const uintptr_t page = 4096;
  char *const from = (char *)cells_of((uintptr_t)base);
  const size_t bytes = (size + FAKE_CELL_BYTES - 1) / FAKE_CELL_BYTES * sizeof(fake_cells_t);
  char *const first = (char *)(((uintptr_t)from + page - 1) & ~(page - 1));
  char *const last = (char *)((uintptr_t)(from + bytes) & ~(page - 1));
  if (bytes < KEPT_BYTES || madvise(first, (size_t)(last - first), MADV_DONTNEED)) {
    memset(from, 0, bytes);
    return;
  }
  memset(from, 0, (size_t)(first - from));
  memset(last, 0, (size_t)(from + bytes - last));
}

/* Marks a block as written, when nothing can conflict with that yet. */
static void mark(const fake_block_t *block, uint32_t cell) {
  fake_cells_t *const cells = cells_of((uintptr_t)block->base);
  for (size_t i = 0; i < block->size / FAKE_CELL_BYTES; i++) cells[i].write = cell;
}

void fake_race_release(const fake_block_t *block, const fake_trace_t *trace) {
  const fake_work_t work = {.kernel = NULL, .trace = trace};
  fake_thread_t *const thread = trace->clock ? fake_sanitize_thread() : NULL;
  if (!thread) return;
  const fake_work_t *const outer = fake_sanitize_enter(thread, &work);
  fake_race_begin(trace, FAKE_RELEASE);
  if (trace->gap != 1)
    access_range(thread, (uintptr_t)block->base, block->size, 1);
  else if (!fake_sanitizes(FAKE_SANITIZE_MEMORY)) /* which reports later accesses */
    mark(block, thread->mine | FAKE_CELL_MASK);
  fake_sanitize_enter(thread, outer);
}

void fake_race_fork_child(void) { fake_lock_reset(&all.lock); }
