/* hash.h: a 128-bit hash of bytes that arrive in pieces, FNV-1a (http://www.isthe.com/chongo/tech/comp/fnv/). For names
 * of files and to detect damage; it does not resist deliberate collisions. Private to hal/src. */
#ifndef HAL_SRC_HASH_H_
#define HAL_SRC_HASH_H_

#include <stddef.h>
#include <stdint.h>
#include <string.h>

__extension__ typedef unsigned __int128 hal_uint128_t;

typedef struct hal_hash_s {
  hal_uint128_t state;
} hal_hash_t;

static inline hal_hash_t hal_hash_begin(void) {
  return (hal_hash_t){(hal_uint128_t)UINT64_C(0x6c62272e07bb0142) << 64 | UINT64_C(0x62b821756295c58d)};
}

static inline void hal_hash_add(hal_hash_t *hash, const void *data, size_t size) {
  const hal_uint128_t prime = (hal_uint128_t)1 << 88 | 0x13b;
  const unsigned char *const bytes = data;
  for (size_t i = 0; i < size; i++) hash->state = (hash->state ^ bytes[i]) * prime;
}

/* Adds a text with its terminating 0, so that "ab" and "c" differ from "a" and "bc". */
static inline void hal_hash_add_text(hal_hash_t *hash, const char *text) { hal_hash_add(hash, text, strlen(text) + 1); }

static inline uint64_t hal_hash_high(const hal_hash_t *hash) { return (uint64_t)(hash->state >> 64); }
static inline uint64_t hal_hash_low(const hal_hash_t *hash) { return (uint64_t)hash->state; }

#endif /* HAL_SRC_HASH_H_ */
