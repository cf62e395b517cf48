/* pk_segment.h: accumulation along a segment by the items of a group: the elements that are reduced to one number. */
#ifndef PK_SEGMENT_H_
#define PK_SEGMENT_H_

/* Combines elements j to `end` with the accumulators X of all items, an expression of l: item l those at l, l +
 * PK_LSIZE, ... */
#define PK_SEGMENT_MORE(type, X, j, end, COMBINE, AT)                             \
  for (; j + 4 * PK_LSIZE <= end; j += 4 * PK_LSIZE) {                            \
    PK_EACH(l) {                                                                  \
      const type v = COMBINE(AT(j + l), AT(j + PK_LSIZE + l));                    \
      const type w = COMBINE(AT(j + 2 * PK_LSIZE + l), AT(j + 3 * PK_LSIZE + l)); \
      X = COMBINE(X, COMBINE(v, w));                                              \
    }                                                                             \
  }                                                                               \
  for (; j + PK_LSIZE <= end; j += PK_LSIZE) {                                    \
    PK_EACH(l) { X = COMBINE(X, AT(j + l)); }                                     \
  }                                                                               \
  if (j < end) {                                                                  \
    PK_EACH_BELOW(l, end - j) { X = COMBINE(X, AT(j + l)); }                      \
  }

/* Accumulates `length` elements by COMBINE into y (PK_PRIV, as is the temporary x). No accumulator adds more than 64
 * elements or partial results sequentially. type: of accumulators; INIT: the neutral element; VIEW(block, end):
 * declares what AT needs for the `end` elements from `block` on; AT(i): the contribution of element i of these. */
#define PK_SEGMENT(type, x, y, length, INIT, COMBINE, VIEW, AT)                         \
  PK_EACH(l) { PK_P(y, l) = INIT; }                                                     \
  for (pk_i64 block = 0; block < (length); block += 64 * PK_LSIZE) {                    \
    const pk_i64 end = (length)-block < 64 * PK_LSIZE ? (length)-block : 64 * PK_LSIZE; \
    pk_i64 j = 0;                                                                       \
    VIEW(block, end)                                                                    \
    PK_EACH(l) { PK_P(x, l) = INIT; }                                                   \
    PK_SEGMENT_MORE(type, PK_P(x, l), j, end, COMBINE, AT)                              \
    PK_EACH(l) { PK_P(y, l) = COMBINE(PK_P(y, l), PK_P(x, l)); }                        \
  }

#ifdef PK_HOST
/* The same numbers in the same order, into t. Only segments of several blocks use y: a short row takes half of the
 * time. */
#define PK_SEGMENT_OF(type, t, y, length, INIT, COMBINE, VIEW, AT)                        \
  {                                                                                       \
    const int several = (length) > 64 * PK_LSIZE;                                         \
    if (several) PK_EACH(l) {                                                             \
        PK_P(y, l) = INIT;                                                                \
      }                                                                                   \
    for (pk_i64 block = 0; block < (length); block += 64 * PK_LSIZE) {                    \
      const pk_i64 end = (length)-block < 64 * PK_LSIZE ? (length)-block : 64 * PK_LSIZE; \
      pk_i64 j = 0;                                                                       \
      VIEW(block, end)                                                                    \
      if (end >= 4 * PK_LSIZE || end < PK_LSIZE) {                                        \
        PK_EACH(l) { t[l] = INIT; }                                                       \
      } else {                                                                            \
        PK_EACH(l) { t[l] = COMBINE((type)(INIT), AT(l)); }                               \
        j = PK_LSIZE;                                                                     \
      }                                                                                   \
      PK_SEGMENT_MORE(type, t[l], j, end, COMBINE, AT)                                    \
      if (several) PK_EACH(l) {                                                           \
          PK_P(y, l) = COMBINE(PK_P(y, l), t[l]);                                         \
        }                                                                                 \
    }                                                                                     \
    if (several) PK_EACH(l) {                                                             \
        t[l] = PK_P(y, l);                                                                \
      }                                                                                   \
  }
#endif

#endif /* PK_SEGMENT_H_ */
