/* pk_words.h: rows of small elements on the host, which are read in words of 32 bits and transposed in registers: a
 * vector then has the words of adjacent rows. */
#ifndef PK_WORDS_H_
#define PK_WORDS_H_

#include "pk_types.h"

#define PK_WORDS_N 32 /* rows of a panel of words */

/* Transposes a square of `rows` vectors: rounds of interleaving row r with row r + half (low and high return the halves
 * of the result), a perfect shuffle of the element's address bits. y is scratch memory. */
#define PK_TURN(x, y, rows, rounds, low, high)                             \
  _Pragma("GCC unroll 4") for (int round = 0; round < (rounds); round++) { \
    _Pragma("GCC unroll 8") for (int r = 0; r < (rows) / 2; r++) {         \
      y[2 * r] = low(x[r], x[r + (rows) / 2]);                             \
      y[2 * r + 1] = high(x[r], x[r + (rows) / 2]);                        \
    }                                                                      \
    _Pragma("GCC unroll 16") for (int r = 0; r < (rows); r++) x[r] = y[r]; \
  }

typedef pk_u32 pk_words8_t __attribute__((vector_size(32), aligned(1), may_alias));
#define PK_WORDS_LOW(x, y) __builtin_shufflevector(x, y, 0, 8, 1, 9, 2, 10, 3, 11)
#define PK_WORDS_HIGH(x, y) __builtin_shufflevector(x, y, 4, 12, 5, 13, 6, 14, 7, 15)

/* Transposes 8 words of 8 rows, of which `rows` and `bytes` of each exist; the others are 0. */
PK_FN void pk_words_square(const pk_u8 *from, pk_i64 row, pk_i64 rows, pk_i64 bytes, pk_u32 *to) {
  pk_words8_t x[8], y[8];
  pk_u8 edge[8 * 32];
  if (rows < 8 || bytes < 32) {
    memset(edge, 0, sizeof edge);
    for (pk_i64 i = 0; i < rows && i < 8; i++) memcpy(edge + 32 * i, from + i * row, bytes < 32 ? (size_t)bytes : 32);
    from = edge;
    row = 32;
  }
#pragma GCC unroll 8
  for (int r = 0; r < 8; r++) x[r] = *(const pk_words8_t *)(from + r * row);
  PK_TURN(x, y, 8, 3, PK_WORDS_LOW, PK_WORDS_HIGH)
#pragma GCC unroll 8
  for (int r = 0; r < 8; r++) *(pk_words8_t *)(to + r * PK_WORDS_N) = x[r];
}
#undef PK_WORDS_LOW
#undef PK_WORDS_HIGH

/* Transposes `bytes` of each of `rows` <= PK_WORDS_N rows, which are `row` bytes apart: word w of row r to
 * words[w * PK_WORDS_N + r]. Writes 8 words at a time; those of rows that do not exist are 0. */
#define PK_WORDS_AHEAD 16 /* rows: the processor does not recognize rows that are pages apart as a stream */
PK_FN void pk_words_turn(const pk_u8 *from, pk_i64 row, pk_i64 rows, pk_i64 bytes, pk_u32 *words) {
  for (pk_i64 c = 0; c < PK_WORDS_N; c += 8) {
    if (c >= rows) { /* not reached by a square */
      for (pk_i64 w = 0; 4 * w < bytes; w++) memset(words + w * PK_WORDS_N + c, 0, 32);
      continue;
    }
    for (pk_i64 b = 0; b < bytes; b += 32) {
      if (b % 64 == 0)
        for (int r = 0; r < 8; r++) __builtin_prefetch(from + (c + PK_WORDS_AHEAD + r) * row + b);
      pk_words_square(from + c * row + b, row, rows - c, bytes - b, words + b / 4 * PK_WORDS_N + c);
    }
  }
}

#endif /* PK_WORDS_H_ */
