/* arena.c: allocations with red zones, in one range of reserved addresses. A range of addresses has a class of sizes. A
 * released block waits in the quarantine, first in, first out; then its range is used again by a block of the same
 * class.
 *
 *   begin | red zone | base: size bytes | red zone | begin + bytes */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "sanitize.h"

enum { CLASSES = 64 * 8, SMALLEST = 2048, PAGE = 4096, PATTERN_LIVE = 0xfa, PATTERN_RELEASED = 0xfd };

/* Larger red zones and blocks are not filled with a pattern: only this much at each end. */
enum { FILLED = 4096 };

typedef struct queue_s {
  fake_block_t *first, *last;
} queue_t;

static struct {
  fake_lock_t lock;
  char *unused;         /* the first address that was never used */
  fake_block_t **table; /* by the number of the granule in which a block begins */
  fake_block_t *live;
  queue_t quarantine, free[CLASSES];
  uint64_t quarantined, count;
} arena;

/* ---- ranges ----------------------------------------------------------------------------------------------------- */

static void append(queue_t *queue, fake_block_t *block) {
  block->next = NULL;
  if (queue->last)
    queue->last->next = block;
  else
    queue->first = block;
  queue->last = block;
}

static fake_block_t *take_first(queue_t *queue) {
  fake_block_t *const block = queue->first;
  if (!block) return NULL;
  queue->first = block->next;
  if (!queue->first) queue->last = NULL;
  return block;
}

/* Rounds up to one of eight sizes per power of two; returns its number. 0 bytes = overflow. */
static uint32_t class_of(size_t size, size_t *out_bytes) {
  size_t bytes = 0;
  if (size < SMALLEST) size = SMALLEST;
  const uint32_t power = 63 - (uint32_t)__builtin_clzll(size);
  size_t step = (size_t)1 << (power - 3);
  if (step < FAKE_RED_ZONE) step = FAKE_RED_ZONE;
  if (size > SMALLEST && step < PAGE) step = size < PAGE ? FAKE_RED_ZONE : PAGE;
  if (__builtin_add_overflow(size, step - 1, &bytes)) bytes = 0;
  *out_bytes = bytes & ~(step - 1);
  if (!*out_bytes) return 0;
  const uint32_t rounded = 63 - (uint32_t)__builtin_clzll(*out_bytes);
  return rounded * 8 + (uint32_t)(*out_bytes >> (rounded - 3) & 7);
}

static char *map(size_t bytes) {
  void *const found = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (found == MAP_FAILED) return NULL;
  madvise(found, bytes, MADV_DONTDUMP);
  return found;
}

hal_status_t fake_arena_init(void) {
  for (size_t size = (size_t)1 << 40; size >= (size_t)1 << 33; size >>= 1) {
    char *const base = map(size), *const shadow = map(size + PAGE), *const table = map(size / FAKE_RED_ZONE * 8);
    if (base && shadow && table) {
      arena.unused = base + PAGE;
      arena.table = (fake_block_t **)(void *)table;
      fake_sanitize_access.base = (uintptr_t)base;
      fake_sanitize_access.size = size;
      fake_sanitize_access.shadow = (unsigned char *)shadow;
      return HAL_OK;
    }
    if (base) munmap(base, size);
    if (shadow) munmap(shadow, size + PAGE);
    if (table) munmap(table, size / FAKE_RED_ZONE * 8);
  }
  return fake_error(
      HAL_RESOURCE_EXHAUSTED, errno,
      "fake: HAL_FAKE_SANITIZE needs 17 GiB of addresses, which the system does not permit: %s; raise the "
      "limit of virtual memory (ulimit -v), or unset it",
      strerror(errno));
}

static fake_block_t **entry_of(const void *address) {
  return &arena.table[((uintptr_t)address - fake_sanitize_access.base) / FAKE_RED_ZONE];
}

/* Returns a block of unused addresses; NULL: there are none, or the host has no memory. The caller holds the lock. */
static fake_block_t *new_block(size_t bytes) {
  const uintptr_t align = bytes >= PAGE ? PAGE : FAKE_RED_ZONE;
  char *const begin = (char *)(((uintptr_t)arena.unused + align - 1) & ~(align - 1));
  const uintptr_t end = fake_sanitize_access.base + fake_sanitize_access.size;
  if ((uintptr_t)begin > end || bytes > end - (uintptr_t)begin) return NULL;
  fake_block_t *const block = hal_host->mem_alloc(sizeof *block, alignof(fake_block_t));
  if (!block) return NULL;
  *block = (fake_block_t){.begin = begin, .bytes = bytes};
  arena.unused = begin + bytes;
  return block;
}

/* ---- patterns: writes of code that is not instrumented ----------------------------------------------------------- */

static size_t at_most(size_t size) { return size < FILLED ? size : FILLED; }

/* Returns the first byte that is not the pattern; NULL = there is none. */
static const char *first_other(const char *from, size_t size, int pattern) {
  for (size_t i = 0; i < size; i++)
    if ((unsigned char)from[i] != pattern) return from + i;
  return NULL;
}

static void fill_zones(const fake_block_t *block) {
  char *const end = block->base + block->size;
  const size_t before = at_most((size_t)(block->base - block->begin));
  memset(block->base - before, PATTERN_LIVE, before);
  memset(end, PATTERN_LIVE, at_most((size_t)(block->begin + block->bytes - end)));
}

static const char *damage_of_zones(const fake_block_t *block) {
  const char *const end = block->base + block->size;
  const size_t before = at_most((size_t)(block->base - block->begin));
  const char *const found = first_other(block->base - before, before, PATTERN_LIVE);
  return found ? found : first_other(end, at_most((size_t)(block->begin + block->bytes - end)), PATTERN_LIVE);
}

/* ---- allocation -------------------------------------------------------------------------------------------------- */

static fake_block_t *make_block(int32_t device, size_t size, int is_program) {
  size_t bytes = 0;
  const size_t before = size >= PAGE ? PAGE : FAKE_RED_ZONE; /* large blocks begin at a page */
  if (__builtin_add_overflow(size, before + FAKE_RED_ZONE, &bytes)) return NULL;
  const uint32_t class = class_of(bytes, &bytes);
  if (!bytes) return NULL;
  const void *const stack = fake_sanitize_stack();
  fake_lock(&arena.lock);
  fake_block_t *block = take_first(&arena.free[class]);
  if (!block) block = new_block(bytes);
  if (block) {
    block->base = block->begin + before;
    block->size = size;
    block->device = device;
    block->is_released = 0;
    block->is_program = (uint32_t)is_program;
    block->number = ++arena.count;
    block->allocated = stack;
    block->released = NULL;
    block->previous = NULL;
    block->next = arena.live;
    if (arena.live) arena.live->previous = block;
    arena.live = block;
    *entry_of(block->base) = block;
  }
  fake_unlock(&arena.lock);
  return block;
}

hal_status_t fake_arena_alloc(int32_t device, size_t size, int is_program, void **out_ptr) {
  fake_block_t *const block = make_block(device, size, is_program);
  if (!block)
    return fake_error(HAL_RESOURCE_EXHAUSTED, 0,
                      "fake: no addresses or host memory for %zu bytes; lower HAL_FAKE_SANITIZE_QUARANTINE", size);
  fill_zones(block);
  if (fake_races()) fake_race_allocated(block->base, size);
  memset(fake_arena_shadow(block->base),
         fake_sanitizes(FAKE_SANITIZE_INIT) ? FAKE_SHADOW_LIVE : FAKE_SHADOW_LIVE | FAKE_SHADOW_WRITTEN, size);
  *out_ptr = block->base;
  return HAL_OK;
}

/* ---- release ----------------------------------------------------------------------------------------------------- */

static int class_of_range(const fake_block_t *block) {
  size_t bytes = 0;
  return (int)class_of(block->bytes, &bytes);
}

/* Removes the oldest blocks until the quarantine has its size; checks that no code has written to them. */
static void evict(uint64_t most) {
  for (;;) {
    fake_lock(&arena.lock);
    fake_block_t *const block = arena.quarantined > most ? take_first(&arena.quarantine) : NULL;
    if (block) {
      arena.quarantined -= block->bytes;
      *entry_of(block->base) = NULL;
    }
    fake_unlock(&arena.lock);
    if (!block) return;
    const char *const damage = first_other(block->base, at_most(block->size), PATTERN_RELEASED);
    if (damage) fake_report_damage(block, damage);
    if (block->size >= (size_t)1 << 20) madvise(block->base, block->size & ~(size_t)(PAGE - 1), MADV_DONTNEED);
    fake_lock(&arena.lock);
    append(&arena.free[class_of_range(block)], block);
    fake_unlock(&arena.lock);
  }
}

/* The work that may use the block is done. */
static void quarantine(void *data) {
  fake_block_t *const block = data;
  if (fake_races()) fake_race_release(block, &block->release);
  fake_clock_drop(block->release.clock);
  block->release.clock = NULL;
  const char *const damage = damage_of_zones(block);
  if (damage) fake_report_damage(block, damage);
  memset(fake_arena_shadow(block->base), 0, block->size);
  memset(block->base, PATTERN_RELEASED, at_most(block->size));
  fake_lock(&arena.lock);
  append(&arena.quarantine, block);
  arena.quarantined += block->bytes;
  fake_unlock(&arena.lock);
  evict(fake_sanitize.quarantine);
}

/* Marks a block as released, so that a second release finds it. Returns NULL if there is no such block. */
static fake_block_t *begin_release(int32_t device, const void *ptr) {
  const void *const stack = fake_sanitize_stack();
  fake_block_t *block = NULL;
  fake_lock(&arena.lock);
  if (fake_arena_has(ptr)) block = *entry_of(ptr);
  if (block && (block->base != ptr || block->device != device || block->is_released)) block = NULL;
  if (block) {
    block->is_released = 1;
    block->released = stack;
    if (block->previous)
      block->previous->next = block->next;
    else
      arena.live = block->next;
    if (block->next) block->next->previous = block->previous;
  }
  fake_unlock(&arena.lock);
  return block;
}

hal_status_t fake_arena_free(int32_t device, hal_plugin_stream_t *stream, void *ptr) {
  fake_block_t *const block = begin_release(device, ptr);
  if (!block) {
    fake_report_free(device, ptr);
    return fake_error(HAL_INVALID_ARGUMENT, 0,
                      "fake: memory_free(%d, %p): this is not the start of such an allocation; free each "
                      "allocation once, on its own device",
                      (int)device, ptr);
  }
  fake_memory_refund(device, fake_whole_pages(block->size)); /* queued work does not delay new allocations */
  if (stream && fake_is_captured(stream)) {
    fake_clock_t *const now = fake_race_now(stream);
    fake_stream_wait(stream, fake_stream_tail(stream));
    fake_race_known(now);
    stream = NULL;
  }
  block->release = (fake_trace_t){.stack = block->released};
  if (fake_races()) fake_timeline_submit(fake_timeline_of(stream), &block->release);
  if (stream && !fake_stream_call(stream, quarantine, block, NULL)) return HAL_OK;
  if (stream) fake_stream_wait(stream, fake_stream_tail(stream));
  quarantine(block);
  return HAL_OK;
}

/* ---- search ------------------------------------------------------------------------------------------------------ */

int fake_arena_find(const void *address, fake_block_t *out_block) {
  const fake_block_t *found = NULL;
  if (!fake_arena_has(address)) return 0;
  const uintptr_t last = fake_sanitize_access.base;
  fake_lock(&arena.lock);
  /* The next entry at or after the address may have a red zone here; otherwise the previous one. */
  const uintptr_t at = (uintptr_t)address;
  for (uintptr_t ahead = at; !found && ahead < at + 2 * PAGE && ahead < (uintptr_t)arena.unused;
       ahead += FAKE_RED_ZONE) {
    const fake_block_t *const block = *entry_of((const void *)ahead);
    if (block && (uintptr_t)block->begin <= at && at < (uintptr_t)block->begin + block->bytes) found = block;
  }
  for (uintptr_t back = at; !found && back >= last; back -= FAKE_RED_ZONE) {
    const fake_block_t *const block = *entry_of((const void *)back);
    if (block) {
      if (at < (uintptr_t)block->begin + block->bytes) found = block;
      break;
    }
    if (back - last < FAKE_RED_ZONE) break;
  }
  if (found) *out_block = *found;
  fake_unlock(&arena.lock);
  return found != NULL;
}

fake_block_t *fake_arena_live(void) {
  fake_block_t *first = NULL;
  fake_lock(&arena.lock);
  for (fake_block_t **link = &arena.live; *link;) { /* the list of the others has no further use */
    fake_block_t *const block = *link;
    *link = block->next;
    if (!block->is_program) continue;
    block->next = first;
    first = block;
  }
  fake_unlock(&arena.lock);
  return first;
}

void fake_arena_fork_prepare(void) { fake_lock(&arena.lock); }
void fake_arena_fork_parent(void) { fake_unlock(&arena.lock); }
void fake_arena_fork_child(void) { fake_lock_reset(&arena.lock); }
