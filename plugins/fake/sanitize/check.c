/* check.c: checks of the ranges of copies and fills. */
#include <string.h>

#include "sanitize.h"

/* Returns the first byte of shadow without the bits; `size` = there is none. */
static size_t first_without(const unsigned char *shadow, size_t size, unsigned char bits) {
  const uint64_t all = bits * UINT64_C(0x0101010101010101);
  size_t i = 0;
  for (; i + 8 <= size; i += 8) {
    uint64_t found = 0;
    memcpy(&found, shadow + i, 8);
    if ((found & all) != all) break;
  }
  while (i < size && (shadow[i] & bits) == bits) i++;
  return i;
}

/* Returns whether a range is live. */
static int check(const void *address, size_t size, int is_store) {
  if (!fake_arena_has(address)) return 1;
  const size_t at = first_without(fake_arena_shadow(address), size, FAKE_SHADOW_LIVE);
  if (at == size) return 1;
  fake_report_access((uintptr_t)address + at, size - at, is_store);
  return 0;
}

int fake_check_read(const void *address, size_t size) {
  if (!check(address, size, 0)) return 0;
  if (fake_races()) fake_race_range(address, size, 0);
  return 1;
}

int fake_check_write(const void *address, size_t size) {
  if (!check(address, size, 1)) return 0;
  if (fake_races()) fake_race_range(address, size, 1);
  if (fake_arena_has(address)) memset(fake_arena_shadow(address), FAKE_SHADOW_LIVE | FAKE_SHADOW_WRITTEN, size);
  return 1;
}

int fake_check_copy(void *dst, const void *src, size_t size) {
  const int from = fake_arena_has(src), to = fake_arena_has(dst);
  if (!fake_check_read(src, size) || !fake_check_write(dst, size)) return 0;
  if (!from || !fake_sanitizes(FAKE_SANITIZE_INIT)) return 1;
  if (to) {
    memcpy(fake_arena_shadow(dst), fake_arena_shadow(src), size);
    return 1;
  }
  const fake_work_t work = fake_sanitize_work();
  if (work.trace && work.trace->unchecked) return 1;
  const size_t at = first_without(fake_arena_shadow(src), size, FAKE_SHADOW_WRITTEN);
  if (at < size) fake_report_access((uintptr_t)src + at, size - at, 0);
  return 1;
}

void fake_check_unknown(const void *address) {
  fake_block_t block;
  if (!fake_arena_find(address, &block) || block.is_released) return;
  memset(fake_arena_shadow(block.base), FAKE_SHADOW_LIVE | FAKE_SHADOW_WRITTEN, block.size);
}
