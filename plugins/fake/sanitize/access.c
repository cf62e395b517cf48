/* access.c: the functions that instrumented kernels call before each access to memory. The compiler emits these calls
 * with -fsanitize=kernel-address. The file is compiled into the library of checked kernels, and its text is appended to
 * each module that is compiled at run time, so it includes only what every module may include.
 *
 * Each byte of device memory has a byte of shadow: bit 0 = it belongs to a live allocation, bit 1 = it was written. A
 * known access costs a few instructions. All others call the plugin (check.c). */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifndef FAKE_ACCESS_H_ /* as in access.h, which a module at run time cannot include */
typedef struct fake_access_s {
  uintptr_t base;
  size_t size;
  unsigned char *shadow;
  uint64_t needs;
  uint32_t marks, traced;
  void (*report)(uintptr_t address, size_t size, int is_store);
  void (*trace)(uintptr_t address, size_t size, int is_store);
} fake_access_t;
#endif

#define FAKE_ACCESS_LIVE UINT64_C(0x0101010101010101)
#define FAKE_ACCESS_WRITTEN UINT64_C(0x0303030303030303)
#define FAKE_ACCESS_FN __attribute__((no_sanitize_address, visibility("hidden"), used))
#define FAKE_ACCESS_INLINE static inline __attribute__((always_inline, no_sanitize_address))

extern fake_access_t fake_access;
__attribute__((visibility("default"))) fake_access_t fake_access;

static __attribute__((noinline, cold, no_sanitize_address)) void fake_access_report(uintptr_t address, size_t size,
                                                                                    int is_store) {
  fake_access.report(address, size, is_store);
}

/* Returns whether all of up to eight bytes of shadow have the bits. */
FAKE_ACCESS_INLINE int fake_access_has(const unsigned char *shadow, size_t size, uint64_t bits) {
  uint64_t found = 0;
  __builtin_memcpy(&found, shadow, size);
  bits &= UINT64_MAX >> (64 - 8 * size);
  return (found & bits) == bits;
}

FAKE_ACCESS_INLINE void fake_access_load(uintptr_t address, size_t size) {
  const uintptr_t at = address - fake_access.base;
  if (__builtin_expect(at >= fake_access.size, 0)) return; /* not device memory */
  const unsigned char *const shadow = fake_access.shadow + at;
  if (__builtin_expect(!fake_access_has(shadow, size, fake_access.needs), 0)) fake_access_report(address, size, 0);
  if (__builtin_expect(fake_access.traced, 0)) fake_access.trace(address, size, 0);
}

FAKE_ACCESS_INLINE void fake_access_store(uintptr_t address, size_t size) {
  const uintptr_t at = address - fake_access.base;
  if (__builtin_expect(at >= fake_access.size, 0)) return;
  unsigned char *const shadow = fake_access.shadow + at;
  const uint64_t written = FAKE_ACCESS_WRITTEN;
  if (__builtin_expect(!fake_access_has(shadow, size, FAKE_ACCESS_LIVE), 0))
    fake_access_report(address, size, 1);
  else if (fake_access.marks)
    __builtin_memcpy(shadow, &written, size);
  if (__builtin_expect(fake_access.traced, 0)) fake_access.trace(address, size, 1);
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

void __asan_loadN_noabort(void *address, long size);
FAKE_ACCESS_FN void __asan_loadN_noabort(void *address, long size) {
  uintptr_t at = (uintptr_t)address;
  for (; size >= 8; at += 8, size -= 8) fake_access_load(at, 8);
  for (; size > 0; at++, size--) fake_access_load(at, 1);
}

void __asan_storeN_noabort(void *address, long size);
FAKE_ACCESS_FN void __asan_storeN_noabort(void *address, long size) {
  uintptr_t at = (uintptr_t)address;
  for (; size >= 8; at += 8, size -= 8) fake_access_store(at, 8);
  for (; size > 0; at++, size--) fake_access_store(at, 1);
}

void __asan_load16_noabort(void *address);
FAKE_ACCESS_FN void __asan_load16_noabort(void *address) { __asan_loadN_noabort(address, 16); }
void __asan_store16_noabort(void *address);
FAKE_ACCESS_FN void __asan_store16_noabort(void *address) { __asan_storeN_noabort(address, 16); }

/* ---- ranges ------------------------------------------------------------------------------------------------------ */

int pk_checked_has(const void *address);
FAKE_ACCESS_FN int pk_checked_has(const void *address) {
  return (uintptr_t)address - fake_access.base < fake_access.size;
}
void pk_checked_read(const void *address, long size);
FAKE_ACCESS_FN void pk_checked_read(const void *address, long size) {
  if (pk_checked_has(address)) __asan_loadN_noabort((void *)(uintptr_t)address, size);
}
void pk_checked_write(const void *address, long size);
FAKE_ACCESS_FN void pk_checked_write(const void *address, long size) {
  if (pk_checked_has(address)) __asan_storeN_noabort((void *)(uintptr_t)address, size);
}

/* The compiler does not instrument these. Their definitions here replace those of the C library in this library only.
 * Loops in them must not become calls of themselves. */
#define FAKE_ACCESS_LOOP FAKE_ACCESS_FN __attribute__((optimize("no-tree-loop-distribute-patterns")))

FAKE_ACCESS_LOOP void *memcpy(void *restrict to, const void *restrict from, size_t size) {
  pk_checked_read(from, (long)size);
  pk_checked_write(to, (long)size);
  char *target = to;
  const char *source = from;
  for (; size >= 8; target += 8, source += 8, size -= 8) __builtin_memcpy(target, source, 8);
  for (; size; size--) *target++ = *source++;
  return to;
}

FAKE_ACCESS_LOOP void *memset(void *to, int value, size_t size) {
  pk_checked_write(to, (long)size);
  char *target = to;
  for (; size; size--) *target++ = (char)value;
  return to;
}

FAKE_ACCESS_LOOP void *memmove(void *to, const void *from, size_t size) {
  char *const target = to;
  const char *const source = from;
  pk_checked_read(from, (long)size);
  pk_checked_write(to, (long)size);
  if (target < source)
    for (size_t i = 0; i < size; i++) target[i] = source[i];
  else
    for (size_t i = size; i > 0; i--) target[i - 1] = source[i - 1];
  return to;
}

/* Called before a call that does not return; kernels have none. */
void __asan_handle_no_return(void);
FAKE_ACCESS_FN void __asan_handle_no_return(void) {}
