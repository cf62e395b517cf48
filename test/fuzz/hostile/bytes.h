/* bytes.h: the fuzzer's bytes, from which hostile plugins take numbers and results, in any thread. FUZZ_BYTES is
 * "address size" of them, in this process. */
#ifndef TEST_FUZZ_HOSTILE_BYTES_H_
#define TEST_FUZZ_HOSTILE_BYTES_H_

#include <hal/plugin.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const uint8_t *bytes;
static size_t byte_count;
static atomic_size_t taken;

/* Zeros follow the last byte. */
static void take(void *out, size_t size) {
  const size_t first = atomic_fetch_add(&taken, size);
  const size_t left = first < byte_count ? byte_count - first : 0;
  const size_t count = size < left ? size : left;
  memset(out, 0, size);
  if (count) memcpy(out, bytes + first, count);
}

static inline int has_bytes(void) { return atomic_load(&taken) < byte_count; }

static uint8_t take_byte(void) {
  uint8_t byte;
  take(&byte, 1);
  return byte;
}

/* Mostly HAL_OK; otherwise any number. */
static hal_status_t take_status(void) {
  const uint8_t kind = take_byte();
  hal_status_t status = HAL_OK;
  if (kind > 240) take(&status, sizeof status);
  if (kind > 250) return hal_host->error_set(status, kind, kind & 1 ? "%s%n: hostile" : "hostile");
  return status;
}

/* Begins with the first byte. */
static void find_bytes(void) {
  unsigned long long address = 0;
  const char *const where = getenv("FUZZ_BYTES");
  byte_count = 0;
  atomic_store(&taken, 0);
  if (where && sscanf(where, "%llx %zu", &address, &byte_count) == 2) bytes = (const uint8_t *)(uintptr_t)address;
}

#endif /* TEST_FUZZ_HOSTILE_BYTES_H_ */
