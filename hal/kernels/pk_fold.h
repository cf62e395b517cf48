/* pk_fold.h: PK_FOLD of floating numbers, for the last steps of rows. The host combines the same numbers in the same
 * order in registers: the compiler's code for the last loops of PK_FOLD is slower than the rest of a short row. */
#ifndef PK_FOLD_H_
#define PK_FOLD_H_

/* The larger of two numbers; the second one unless the first one is larger, so also if either is NaN. */
#define PK_LARGER(x, y) ((x) > (y) ? (x) : (y))

#ifdef PK_HOST
/* Lanes of `x` where `mask` is set, else of `y`. */
#define PK_LANES_OF(mask, x) ((mask) & (__typeof__(mask))(x))
#define PK_LANES_CHOOSE(mask, x, y) ((__typeof__(x))(PK_LANES_OF(mask, x) | PK_LANES_OF(~(mask), y)))
#define PK_LANES_LARGER(x, y) PK_LANES_CHOOSE((x) > (y), x, y)
#define PK_LANES_SMALLER(x, y) PK_LANES_CHOOSE((x) < (y), x, y)
/* Lanes of y; NaN, all of whose bits are set, where x is NaN. */
#define PK_LANES_NAN_OR(x, y) ((__typeof__(x))((__typeof__((x) != (x)))(y) | ((x) != (x))))
#define PK_LANES_MAXIMUM(x, y) PK_LANES_NAN_OR(x, PK_LANES_LARGER(x, y))
#define PK_LANES_MINIMUM(x, y) PK_LANES_NAN_OR(x, PK_LANES_SMALLER(x, y))

#define PK_DEFINE_FOLD(name, type, of_lanes, of_two)                      \
  PK_FN type name(const type *s) {                                        \
    typedef type lanes16 __attribute__((vector_size(16 * sizeof(type)))); \
    typedef type lanes8 __attribute__((vector_size(8 * sizeof(type))));   \
    typedef type lanes4 __attribute__((vector_size(4 * sizeof(type))));   \
    lanes16 quarter[4];                                                   \
    memcpy(quarter, s, sizeof quarter);                                   \
    const lanes16 even = of_lanes(quarter[0], quarter[2]);                \
    const lanes16 odd = of_lanes(quarter[1], quarter[3]);                 \
    const lanes16 of16 = of_lanes(even, odd);                             \
    lanes8 half[2];                                                       \
    memcpy(half, &of16, sizeof half);                                     \
    const lanes8 of8 = of_lanes(half[0], half[1]);                        \
    lanes4 rest[2];                                                       \
    memcpy(rest, &of8, sizeof rest);                                      \
    const lanes4 of4 = of_lanes(rest[0], rest[1]);                        \
    const type first = of_two(of4[0], of4[2]);                            \
    const type second = of_two(of4[1], of4[3]);                           \
    return of_two(first, second);                                         \
  }
#define PK_DEFINE_FOLDS(token, type)                                                  \
  PK_DEFINE_FOLD(pk_fold_sum_##token, type, PK_PLUS, PK_PLUS)                         \
  PK_DEFINE_FOLD(pk_fold_larger_##token, type, PK_LANES_LARGER, PK_LARGER)            \
  PK_DEFINE_FOLD(pk_fold_maximum_##token, type, PK_LANES_MAXIMUM, pk_maximum_##token) \
  PK_DEFINE_FOLD(pk_fold_minimum_##token, type, PK_LANES_MINIMUM, pk_minimum_##token)
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
