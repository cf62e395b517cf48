/* access.c: the functions that instrumented kernels call before each access to memory. The compiler emits these calls
 * with -fsanitize=kernel-address. The file is compiled into the library of checked kernels, and its text is appended to
 * each module that is compiled at run time, so it includes only what every module may include.
 *
 * Each byte of device memory has a byte of shadow: bit 0 = it belongs to a live allocation, bit 1 = it was written. A
 * known access costs a few instructions. All others call the plugin (check.c). The class race has further cells
 * (race.c). */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifndef FAKE_ACCESS_H_ /* as in access.h, which a module at run time cannot include */
enum {
  FAKE_CELL_BYTES = 4,
  FAKE_CELL_MASK = 15,
  FAKE_CELL_SET = 16,
  FAKE_KNOWN = 32,
  FAKE_RANGES = 64,
  FAKE_THREADS = 4096
};
typedef struct fake_range_s {
  uintptr_t address;
  size_t size;
} fake_range_t;
typedef struct fake_cells_s {
  uint32_t write, read;
} fake_cells_t;
typedef struct fake_thread_s {
  uintptr_t thread;
  uint32_t is_compared, mine, gap, span, shared, from, to, known[FAKE_KNOWN];
  const void *work;
  fake_range_t ranges[FAKE_RANGES];
} fake_thread_t;
typedef struct fake_access_s {
  uintptr_t base;
  size_t size;
  unsigned char *shadow;
  uint64_t needs;
  uint32_t marks;
  void (*report)(uintptr_t address, size_t size, int is_store);
  fake_cells_t *cells;
  fake_thread_t *threads;
  void (*race)(uintptr_t address, size_t size, int is_store);
} fake_access_t;
#if defined(__x86_64__)
#define FAKE_THREAD_POINTER(out) __asm__("mov %%fs:0, %0" : "=r"(out))
#elif defined(__aarch64__)
#define FAKE_THREAD_POINTER(out) __asm__("mrs %0, tpidr_el0" : "=r"(out))
#else
#include <pthread.h>
#define FAKE_THREAD_POINTER(out) ((out) = (uintptr_t)pthread_self())
#endif
#define FAKE_CELL_BEFORE(entry, cell) ((entry)->mine - ((cell) & ~31u) - (entry)->gap < (entry)->span)
#define FAKE_THREAD_HASH(pointer) (((pointer) >> 12) % FAKE_THREADS)
#endif

#define FAKE_ACCESS_LIVE UINT64_C(0x0101010101010101)
#define FAKE_ACCESS_WRITTEN UINT64_C(0x0303030303030303)
#define FAKE_ACCESS_FN __attribute__((no_sanitize_address, visibility("hidden"), used))
#define FAKE_ACCESS_INLINE static inline __attribute__((always_inline, no_sanitize_address))

extern fake_access_t fake_access;
__attribute__((visibility("default"))) fake_access_t fake_access;

/* Returns whether all of up to eight bytes of shadow have the bits. */
FAKE_ACCESS_INLINE int fake_access_has(const unsigned char *shadow, size_t size, uint64_t bits) {
  uint64_t found = 0;
  __builtin_memcpy(&found, shadow, size);
  bits &= UINT64_MAX >> (64 - 8 * size);
  return (found & bits) == bits;
}

/* The same for 32 bytes of shadow. */
FAKE_ACCESS_INLINE int fake_access_has_four(const unsigned char *shadow, uint64_t bits) {
  uint64_t found[4];
  __builtin_memcpy(found, shadow, sizeof found);
  return (found[0] & found[1] & found[2] & found[3] & bits) == bits;
}

/* Returns the calling thread's entry; NULL: it has none. */
FAKE_ACCESS_INLINE fake_thread_t *fake_access_entry(void) {
  uintptr_t own;
  FAKE_THREAD_POINTER(own);
  fake_thread_t *const threads = fake_access.threads;
  for (uintptr_t i = FAKE_THREAD_HASH(own);; i = (i + 1) % FAKE_THREADS) {
    if (__builtin_expect(threads[i].thread == own, 1)) return &threads[i];
    if (!threads[i].thread) return NULL;
  }
}

/* The same; NULL: its work is not compared. */
FAKE_ACCESS_INLINE const fake_thread_t *fake_access_thread(void) {
  const fake_thread_t *const thread = fake_access_entry();
  return thread && thread->is_compared ? thread : NULL;
}

FAKE_ACCESS_INLINE int fake_access_knows(const fake_thread_t *thread, uint32_t cell) {
  return !cell || thread->known[(cell >> 5) % FAKE_KNOWN] == cell >> 4;
}

/* An access to bytes of one cell (race.c). Returns 0 if the plugin must compare it. */
FAKE_ACCESS_INLINE int fake_access_cell(const fake_thread_t *thread, uintptr_t cell, uint32_t bytes, int is_store) {
  fake_cells_t *const cells = fake_access.cells + cell;
  uint32_t *const own = is_store ? &cells->write : &cells->read;
  const uint32_t write = __atomic_load_n(&cells->write, __ATOMIC_RELAXED);
  const uint32_t read = __atomic_load_n(&cells->read, __ATOMIC_RELAXED), now = is_store ? write : read;
  const uint32_t item = now & ~(uint32_t)FAKE_CELL_MASK;
  if (item == thread->mine && (now & bytes) == bytes) return 1;
  if (!is_store && item == thread->shared) return 1;
  if (!FAKE_CELL_BEFORE(thread, write) && !fake_access_knows(thread, write)) return 0;
  if (!(FAKE_CELL_BEFORE(thread, read) && !(read & FAKE_CELL_SET)) && !fake_access_knows(thread, read)) return 0;
  __atomic_store_n(own, item == thread->mine ? now | bytes : thread->mine | bytes, __ATOMIC_RELAXED);
  return 1;
}

/* Compares an access of 1, 2, 4 or 8 bytes with earlier ones. */
FAKE_ACCESS_INLINE void fake_access_race(uintptr_t at, size_t size, int is_store) {
  const fake_thread_t *const thread = fake_access_thread();
  if (!thread) return;
  const uintptr_t cell = at / FAKE_CELL_BYTES, begin = at % FAKE_CELL_BYTES;
  const uint32_t bytes = size >= FAKE_CELL_BYTES ? FAKE_CELL_MASK : ((1u << size) - 1) << begin;
  if (__builtin_expect(begin + (size > FAKE_CELL_BYTES ? FAKE_CELL_BYTES : size) <= FAKE_CELL_BYTES, 1) &&
      fake_access_cell(thread, cell, bytes, is_store) &&
      (size <= FAKE_CELL_BYTES || fake_access_cell(thread, cell + 1, bytes, is_store)))
    return;
  fake_access.race(at + fake_access.base, size, is_store);
}

/* An access to bytes that are not live, or a read of bytes that were never written. */
static __attribute__((noinline, cold, no_sanitize_address)) void fake_access_invalid(uintptr_t address, size_t size,
                                                                                     int is_store) {
  fake_access.report(address, size, is_store);
  if (fake_access.cells) fake_access.race(address, size, is_store);
}

FAKE_ACCESS_INLINE void fake_access_load(uintptr_t address, size_t size) {
  const uintptr_t at = address - fake_access.base;
  if (__builtin_expect(at >= fake_access.size, 0)) return; /* not device memory */
  if (__builtin_expect(!fake_access_has(fake_access.shadow + at, size, fake_access.needs), 0))
    fake_access_invalid(address, size, 0);
  else if (fake_access.cells)
    fake_access_race(at, size, 0);
}

FAKE_ACCESS_INLINE void fake_access_store(uintptr_t address, size_t size) {
  const uintptr_t at = address - fake_access.base;
  if (__builtin_expect(at >= fake_access.size, 0)) return;
  unsigned char *const shadow = fake_access.shadow + at;
  const uint64_t written = FAKE_ACCESS_WRITTEN;
  if (__builtin_expect(!fake_access_has(shadow, size, FAKE_ACCESS_LIVE), 0)) {
    fake_access_invalid(address, size, 1);
    return;
  }
  if (fake_access.marks) __builtin_memcpy(shadow, &written, size);
  if (fake_access.cells) fake_access_race(at, size, 1);
}

/* The types are those of the compiler's builtins. */
#define FAKE_ACCESS_PAIR(bytes)                                                                                    \
  void __asan_load##bytes##_noabort(void *address);                                                                \
  FAKE_ACCESS_FN void __asan_load##bytes##_noabort(void *address) { fake_access_load((uintptr_t)address, bytes); } \
  void __asan_store##bytes##_noabort(void *address);                                                               \
  FAKE_ACCESS_FN void __asan_store##bytes##_noabort(void *address) { fake_access_store((uintptr_t)address, bytes); }
FAKE_ACCESS_PAIR(1)
FAKE_ACCESS_PAIR(2)
FAKE_ACCESS_PAIR(4)
FAKE_ACCESS_PAIR(8)

/* ---- ranges, of device memory ------------------------------------------------------------------------------------ */

typedef uint64_t __attribute__((may_alias)) fake_pair_t; /* a fake_cells_t */

/* Compares the accesses to whole cells with earlier ones. Neighbors mostly have equal cells, so what was found for one
 * holds for all that follow it with the same contents. */
static __attribute__((no_sanitize_address)) void fake_access_race_cells(const fake_thread_t *thread, uintptr_t cell,
                                                                        uintptr_t end, int is_store) {
  const uint32_t now = thread->mine | FAKE_CELL_MASK;
  for (uint64_t same; cell < end;) {
    fake_cells_t *const cells = fake_access.cells + cell;
    same = __atomic_load_n((const fake_pair_t *)cells, __ATOMIC_RELAXED);
    if (__builtin_expect(!fake_access_cell(thread, cell, FAKE_CELL_MASK, is_store), 0))
      fake_access.race(cell * FAKE_CELL_BYTES + fake_access.base, FAKE_CELL_BYTES, is_store);
    const int is_new = __atomic_load_n(is_store ? &cells->write : &cells->read, __ATOMIC_RELAXED) == now;
    const int is_kept = __atomic_load_n((const fake_pair_t *)cells, __ATOMIC_RELAXED) == same;
    for (cell++; (is_new || is_kept) && cell < end; cell++) {
      fake_cells_t *const next = fake_access.cells + cell;
      if (__atomic_load_n((const fake_pair_t *)next, __ATOMIC_RELAXED) != same) break;
      if (!is_kept) __atomic_store_n(is_store ? &next->write : &next->read, now, __ATOMIC_RELAXED);
    }
  }
}

/* Compares the accesses to a range of device memory with earlier ones. */
static __attribute__((no_sanitize_address)) void fake_access_race_range(uintptr_t at, size_t size, int is_store) {
  const fake_thread_t *const thread = fake_access_thread();
  if (!thread) return;
  const uintptr_t end = at + size;
  for (; at < end && (at % FAKE_CELL_BYTES || end - at < FAKE_CELL_BYTES); at++) fake_access_race(at, 1, is_store);
  fake_access_race_cells(thread, at / FAKE_CELL_BYTES, end / FAKE_CELL_BYTES, is_store);
  for (at = at < end ? end & ~(uintptr_t)(FAKE_CELL_BYTES - 1) : end; at < end; at++) fake_access_race(at, 1, is_store);
}

/* Returns where a thread stores that its work item has read a range. Kernels of matrices read each row many times. A
 * later read finds nothing new: an access of other work between the two is compared with the first read. */
FAKE_ACCESS_INLINE fake_range_t *fake_access_place(uintptr_t address) {
  fake_thread_t *const thread = fake_access_entry();
  return thread && thread->work ? &thread->ranges[address * UINT64_C(0x9E3779B97F4A7C15) >> 58] : NULL;
}

static __attribute__((no_sanitize_address)) void fake_access_load_range(uintptr_t address, size_t size,
                                                                        size_t element) {
  const uintptr_t at = address - fake_access.base;
  fake_range_t *const place = fake_access_place(address);
  if (place && place->address == address && place->size >= size) return;
  const unsigned char *const shadow = fake_access.shadow + at;
  const size_t unit = element < 8 ? element : 8;
  size_t i = 0, reports = 0;
  for (; i + 32 <= size && fake_access_has_four(shadow + i, fake_access.needs); i += 32) continue;
  for (size_t part; i < size; i += part) {
    part = size - i < unit ? 1 : unit;
    if (__builtin_expect(fake_access_has(shadow + i, part, fake_access.needs), 1)) continue;
    fake_access.report(address + i, part, 0);
    reports++;
  }
  if (fake_access.cells) fake_access_race_range(at, size, 0);
  if (place && !reports) *place = (fake_range_t){address, size};
}

static __attribute__((no_sanitize_address)) void fake_access_store_range(uintptr_t address, size_t size,
                                                                         size_t element) {
  const uintptr_t at = address - fake_access.base;
  unsigned char *const shadow = fake_access.shadow + at;
  const uint64_t written = FAKE_ACCESS_WRITTEN;
  const size_t unit = element < 8 ? element : 8;
  size_t i = 0;
  for (; i + 32 <= size && fake_access_has_four(shadow + i, FAKE_ACCESS_LIVE); i += 32)
    for (size_t j = 0; fake_access.marks && j < 32; j += 8) __builtin_memcpy(shadow + i + j, &written, 8);
  for (size_t part; i < size; i += part) {
    part = size - i < unit ? 1 : unit;
    if (__builtin_expect(!fake_access_has(shadow + i, part, FAKE_ACCESS_LIVE), 0))
      fake_access.report(address + i, part, 1);
    else if (fake_access.marks)
      __builtin_memcpy(shadow + i, &written, part);
  }
  if (fake_access.cells) fake_access_race_range(at, size, 1);
}

FAKE_ACCESS_INLINE int fake_access_is_device(const void *address) {
  return (uintptr_t)address - fake_access.base < fake_access.size;
}

void __asan_loadN_noabort(void *address, long size);
FAKE_ACCESS_FN void __asan_loadN_noabort(void *address, long size) {
  if (size > 0 && fake_access_is_device(address)) fake_access_load_range((uintptr_t)address, (size_t)size, 8);
}

void __asan_storeN_noabort(void *address, long size);
FAKE_ACCESS_FN void __asan_storeN_noabort(void *address, long size) {
  if (size > 0 && fake_access_is_device(address)) fake_access_store_range((uintptr_t)address, (size_t)size, 8);
}

void __asan_load16_noabort(void *address);
FAKE_ACCESS_FN void __asan_load16_noabort(void *address) { __asan_loadN_noabort(address, 16); }
void __asan_store16_noabort(void *address);
FAKE_ACCESS_FN void __asan_store16_noabort(void *address) { __asan_storeN_noabort(address, 16); }

int pk_checked_has(const void *address);
FAKE_ACCESS_FN int pk_checked_has(const void *address) { return fake_access_is_device(address); }
/* A range of elements of a size. */
void pk_checked_read(const void *address, long size, long element);
FAKE_ACCESS_FN void pk_checked_read(const void *address, long size, long element) {
  if (size == 4)
    fake_access_load((uintptr_t)address, 4);
  else if (size > 0 && fake_access_is_device(address))
    fake_access_load_range((uintptr_t)address, (size_t)size, (size_t)element);
}
void pk_checked_write(const void *address, long size, long element);
FAKE_ACCESS_FN void pk_checked_write(const void *address, long size, long element) {
  if (size > 0 && fake_access_is_device(address))
    fake_access_store_range((uintptr_t)address, (size_t)size, (size_t)element);
}

/* The compiler does not instrument these. Their definitions here replace those of the C library in this library only.
 * Loops in them must not become calls of themselves. */
#define FAKE_ACCESS_LOOP FAKE_ACCESS_FN __attribute__((optimize("no-tree-loop-distribute-patterns")))

FAKE_ACCESS_LOOP void *memcpy(void *restrict to, const void *restrict from, size_t size) {
  __asan_loadN_noabort((void *)(uintptr_t)from, (long)size);
  __asan_storeN_noabort(to, (long)size);
  char *target = to;
  const char *source = from;
  for (; size >= 32; target += 32, source += 32, size -= 32) __builtin_memcpy(target, source, 32);
  for (; size >= 4; target += 4, source += 4, size -= 4) __builtin_memcpy(target, source, 4);
  for (; size; size--) *target++ = *source++;
  return to;
}

FAKE_ACCESS_LOOP void *memset(void *to, int value, size_t size) {
  __asan_storeN_noabort(to, (long)size);
  const uint64_t word = (unsigned char)value * FAKE_ACCESS_LIVE;
  char *target = to;
  for (; size >= 32; target += 32, size -= 32)
    for (size_t i = 0; i < 32; i += 8) __builtin_memcpy(target + i, &word, 8);
  for (; size >= 4; target += 4, size -= 4) __builtin_memcpy(target, &word, 4);
  for (; size; size--) *target++ = (char)value;
  return to;
}

FAKE_ACCESS_LOOP void *memmove(void *to, const void *from, size_t size) {
  char *const target = to;
  const char *const source = from;
  __asan_loadN_noabort((void *)(uintptr_t)from, (long)size);
  __asan_storeN_noabort(to, (long)size);
  if (target < source)
    for (size_t i = 0; i < size; i++) target[i] = source[i];
  else
    for (size_t i = size; i > 0; i--) target[i - 1] = source[i - 1];
  return to;
}

/* Called before a call that does not return; kernels have none. */
void __asan_handle_no_return(void);
FAKE_ACCESS_FN void __asan_handle_no_return(void) {}
