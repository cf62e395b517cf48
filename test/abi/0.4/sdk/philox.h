/* philox.h: the Philox4x32-10 counter-based generator of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3"
 * (SC11). Shared by the archive's default of random_fill and by the host's generator; the constants are the paper's. */
#ifndef HAL_SDK_PHILOX_H_
#define HAL_SDK_PHILOX_H_

#include <stdint.h>

enum { HAL_PHILOX_ROUNDS = 10 };

static inline void hal_philox_block(uint64_t seed, uint64_t offset, uint64_t stream, uint32_t out_words[4]) {
  uint32_t key0 = (uint32_t)seed, key1 = (uint32_t)(seed >> 32);
  uint32_t c0 = (uint32_t)offset, c1 = (uint32_t)(offset >> 32), c2 = (uint32_t)stream, c3 = (uint32_t)(stream >> 32);
  for (int round = 0; round < HAL_PHILOX_ROUNDS; round++) {
    const uint64_t a = (uint64_t)0xD2511F53u * c0, b = (uint64_t)0xCD9E8D57u * c2;
    const uint32_t n0 = (uint32_t)(b >> 32) ^ c1 ^ key0, n2 = (uint32_t)(a >> 32) ^ c3 ^ key1;
    c1 = (uint32_t)b;
    c3 = (uint32_t)a;
    c0 = n0;
    c2 = n2;
    key0 += 0x9E3779B9u; /* golden ratio */
    key1 += 0xBB67AE85u; /* sqrt(3) - 1 */
  }
  out_words[0] = c0;
  out_words[1] = c1;
  out_words[2] = c2;
  out_words[3] = c3;
}

#endif /* HAL_SDK_PHILOX_H_ */
