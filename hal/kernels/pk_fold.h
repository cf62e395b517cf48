/* pk_fold.h: PK_FOLD of floating numbers, for the last steps of rows. The host combines the same numbers in the same
 * order in registers: the compiler's code for the last loops of PK_FOLD is slower than the rest of a short row. */
#ifndef PK_FOLD_H_
#define PK_FOLD_H_

/* The larger of two numbers; the second one unless the first one is larger, so also if either is NaN. */
#define PK_LARGER(x, y) ((x) > (y) ? (x) : (y))

#ifdef PK_HOST
/* `name` combines 64 numbers, name_16 16 of them: the result for 48 more that are neutral. */
#define PK_DEFINE_FOLD(name, type, of_lanes, of_two)                      \
  PK_FN type name##_16(const type *s) {                                   \
    typedef type lanes8 __attribute__((vector_size(8 * sizeof(type))));   \
    typedef type lanes4 __attribute__((vector_size(4 * sizeof(type))));   \
    lanes8 half[2];                                                       \
    memcpy(half, s, sizeof half);                                         \
    const lanes8 of8 = of_lanes(half[0], half[1]);                        \
    lanes4 rest[2];                                                       \
    memcpy(rest, &of8, sizeof rest);                                      \
    const lanes4 of4 = of_lanes(rest[0], rest[1]);                        \
    const type first = of_two(of4[0], of4[2]);                            \
    const type second = of_two(of4[1], of4[3]);                           \
    return of_two(first, second);                                         \
  }                                                                       \
  PK_FN type name(const type *s) {                                        \
    typedef type lanes16 __attribute__((vector_size(16 * sizeof(type)))); \
    lanes16 quarter[4];                                                   \
    memcpy(quarter, s, sizeof quarter);                                   \
    const lanes16 even = of_lanes(quarter[0], quarter[2]);                \
    const lanes16 odd = of_lanes(quarter[1], quarter[3]);                 \
    const lanes16 of16 = of_lanes(even, odd);                             \
    type lanes[16];                                                       \
    memcpy(lanes, &of16, sizeof lanes);                                   \
    return name##_16(lanes);                                              \
  }
/* The same by loops, which are vectorized: gcc compares vectors that are wider than the processor's one by one. */
#define PK_DEFINE_FOLD_ORDER(name, type, of_two)                                     \
  PK_FN type name##_16(const type *s) {                                              \
    type of8[8], of4[4];                                                             \
    for (int l = 0; l < 8; l++) of8[l] = of_two(s[l], s[l + 8]);                     \
    for (int l = 0; l < 4; l++) of4[l] = of_two(of8[l], of8[l + 4]);                 \
    const type first = of_two(of4[0], of4[2]), second = of_two(of4[1], of4[3]);      \
    return of_two(first, second);                                                    \
  }                                                                                  \
  PK_FN type name(const type *s) {                                                   \
    type of16[16];                                                                   \
    for (int l = 0; l < 16; l++) {                                                   \
      const type even = of_two(s[l], s[l + 32]), odd = of_two(s[l + 16], s[l + 48]); \
      of16[l] = of_two(even, odd);                                                   \
    }                                                                                \
    return name##_16(of16);                                                          \
  }
/* Copies a short row: a call of memcpy takes longer. */
#define PK_DEFINE_COPY_SHORT(token, type)                                  \
  PK_FN void pk_copy_short_##token(type *to, const type *from, pk_i64 n) { \
    pk_i64 i = 0;                                                          \
    for (; i + 4 <= n; i += 4) memcpy(to + i, from + i, 4 * sizeof(type)); \
    if (n & 2) memcpy(to + i, from + i, 2 * sizeof(type));                 \
    if (n & 1) to[n - 1] = from[n - 1];                                    \
  }
#define PK_DEFINE_FOLDS(token, type)                                      \
  PK_DEFINE_COPY_SHORT(token, type)                                       \
  PK_DEFINE_FOLD(pk_fold_sum_##token, type, PK_PLUS, PK_PLUS)             \
  PK_DEFINE_FOLD_ORDER(pk_fold_larger_##token, type, PK_LARGER)           \
  PK_DEFINE_FOLD_ORDER(pk_fold_maximum_##token, type, pk_maximum_##token) \
  PK_DEFINE_FOLD_ORDER(pk_fold_minimum_##token, type, pk_minimum_##token)
PK_DEFINE_FOLDS(f32, float)
PK_DEFINE_FOLDS(f64, double)
#define PK_FOLD_BY(name, s, combine) s[0] = PK_CAT3(pk_fold_, name##_, PK_TOKEN)(s);
#else
#define PK_FOLD_BY(name, s, combine) PK_FOLD(s, combine)
#endif

#define PK_FOLD_SUM(s) PK_FOLD_BY(sum, s, PK_PLUS)
#define PK_FOLD_LARGER(s) PK_FOLD_BY(larger, s, PK_LARGER)
#define PK_FOLD_MAXIMUM(s) PK_FOLD_BY(maximum, s, pk_maximum)
#define PK_FOLD_MINIMUM(s) PK_FOLD_BY(minimum, s, pk_minimum)

#endif /* PK_FOLD_H_ */
