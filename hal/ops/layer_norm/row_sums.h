/* row_sums.h: the sums along a row of layer_norm.pk on the host, in registers: the compiler's code for PK_PRIV arrays
 * accesses memory at each step, which is slower than the rest of a short row. The same numbers are added in the same
 * order: 64 accumulators, each of which adds at most 64 terms or partial results sequentially. Included once per
 * instance whose elements are not converted. */
typedef T PK_NAME(lanes) __attribute__((vector_size(16 * sizeof(T)), aligned(sizeof(T)), may_alias));

/* The accumulators: 4 x 16. */
typedef struct {
  PK_NAME(lanes) of[4];
} PK_NAME(sums);

/* Loads elements [j, end) of a row, at most 16, followed by `filler`. */
PK_FN void PK_NAME(load)(const T *p, pk_i64 j, pk_i64 end, T filler, PK_NAME(lanes) * v) {
  if (end - j >= 16) {
    memcpy(v, p + j, sizeof *v);
    return;
  }
  T room[16];
  for (int l = 0; l < 16; l++) room[l] = filler;
  PK_CAT(pk_copy_short_, PK_TOKEN)(room, p + j, end - j);
  memcpy(v, room, sizeof *v);
}

PK_FN T PK_NAME(fold)(const PK_NAME(sums) * x) {
  T s[64];
  memcpy(s, x, sizeof s);
  PK_FOLD_SUM(s)
  return s[0];
}

#define PK_MORE(to, x) \
  (to)->of[0] += (x).of[0], (to)->of[1] += (x).of[1], (to)->of[2] += (x).of[2], (to)->of[3] += (x).of[3]

/* Adds terms to accumulators: STEP(quarter, j, end) adds those of the elements from j on, at most 16, before `end`.
 * Blocks of 64 x 64 elements are one after the other. */
#define PK_OVER_ROW(NEXT, STEP)                                                                  \
  for (pk_i64 block = 0; block < n; block += 64 * 64) {                                          \
    const pk_i64 end = block + 64 * 64 < n ? block + 64 * 64 : n;                                \
    pk_i64 j = block;                                                                            \
    for (; j + 64 <= end; j += 64) {                                                             \
      STEP(0, j, j + 16) STEP(1, j + 16, j + 32) STEP(2, j + 32, j + 48) STEP(3, j + 48, j + 64) \
    }                                                                                            \
    if (j < end) STEP(0, j, end)                                                                 \
    if (j + 16 < end) STEP(1, j + 16, end)                                                       \
    if (j + 32 < end) STEP(2, j + 32, end)                                                       \
    if (j + 48 < end) STEP(3, j + 48, end)                                                       \
    NEXT                                                                                         \
  }

/* The sum of v - less over a row, or of its squares. */
PK_FN T PK_NAME(sum_of)(const T *p, pk_i64 n, T less, int squares) {
  PK_NAME(sums) x = {{{0}}}, y = {{{0}}};
#define PK_STEP(quarter, j, end)        \
  {                                     \
    PK_NAME(lanes) v;                   \
    PK_NAME(load)(p, j, end, less, &v); \
    v -= less;                          \
    if (squares) v *= v;                \
    x.of[quarter] += v;                 \
  }
  PK_OVER_ROW(PK_MORE(&y, x); x = (PK_NAME(sums)){{{0}}};, PK_STEP)
#undef PK_STEP
  return PK_NAME(fold)(&y);
}

/* The sums of the gradient g = q * weight, or q, and of g * (p - center). */
PK_FN void PK_NAME(sums_of)(const T *q, const T *weight, const T *p, pk_i64 n, T center, T *out_sum, T *out_product) {
  PK_NAME(sums) x = {{{0}}}, y = {{{0}}}, z = {{{0}}}, w = {{{0}}};
#define PK_STEP(quarter, j, end)            \
  {                                         \
    PK_NAME(lanes) g, v;                    \
    PK_NAME(load)(q, j, end, 0, &g);        \
    if (weight) {                           \
      PK_NAME(load)(weight, j, end, 0, &v); \
      g *= v;                               \
    }                                       \
    PK_NAME(load)(p, j, end, center, &v);   \
    x.of[quarter] += g;                     \
    z.of[quarter] += g * (v - center);      \
  }
  PK_OVER_ROW(PK_MORE(&y, x); PK_MORE(&w, z); x = z = (PK_NAME(sums)){{{0}}};, PK_STEP)
#undef PK_STEP
  *out_sum = PK_NAME(fold)(&y);
  *out_product = PK_NAME(fold)(&w);
}
#undef PK_MORE
#undef PK_OVER_ROW
