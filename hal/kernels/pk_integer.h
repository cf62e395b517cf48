/* pk_integer.h: division, remainder, powers and shifts, by computing type. Integers never trap: a division by 0 returns
 * 0 (the caller reports it), and overflow wraps. */
#ifndef PK_INTEGER_H_
#define PK_INTEGER_H_

#define pk_fmod(x, y) PK_CAT(pk_fmod_, PK_TOKEN)(x, y)
#define pk_remainder(x, y) PK_CAT(pk_remainder_, PK_TOKEN)(x, y)
#define pk_div_trunc(x, y) PK_CAT(pk_div_trunc_, PK_TOKEN)(x, y)
#define pk_div_floor(x, y) PK_CAT(pk_div_floor_, PK_TOKEN)(x, y)
#define pk_gcd(x, y) PK_CAT(pk_gcd_, PK_TOKEN)(x, y)
#define pk_lcm(x, y) PK_CAT(pk_lcm_, PK_TOKEN)(x, y)
#define pk_shift_left(x, y) PK_CAT(pk_shift_left_, PK_TOKEN)(x, y)
#define pk_shift_right(x, y) PK_CAT(pk_shift_right_, PK_TOKEN)(x, y)

/* ---- integers of 64 bits: operators cast narrower ones ---- */
PK_FN pk_i64 pk_negated_i64(pk_i64 x) { return (pk_i64)(0u - (pk_u64)x); }
PK_FN pk_i64 pk_div_trunc_i64(pk_i64 x, pk_i64 y) { return y == 0 ? 0 : y == -1 ? pk_negated_i64(x) : x / y; }
PK_FN pk_i64 pk_fmod_i64(pk_i64 x, pk_i64 y) { return y == 0 || y == -1 ? 0 : x % y; }
PK_FN pk_i64 pk_remainder_i64(pk_i64 x, pk_i64 y) {
  const pk_i64 r = pk_fmod_i64(x, y);
  return r != 0 && (r < 0) != (y < 0) ? r + y : r;
}
PK_FN pk_i64 pk_div_floor_i64(pk_i64 x, pk_i64 y) {
  const pk_i64 q = pk_div_trunc_i64(x, y), r = pk_fmod_i64(x, y);
  return r != 0 && (r < 0) != (y < 0) ? q - 1 : q;
}
PK_FN pk_u64 pk_magnitude_i64(pk_i64 x) { return x < 0 ? 0u - (pk_u64)x : (pk_u64)x; }
PK_FN pk_i64 pk_gcd_i64(pk_i64 x, pk_i64 y) {
  pk_u64 a = pk_magnitude_i64(x), b = pk_magnitude_i64(y);
  while (b != 0) {
    const pk_u64 r = a % b;
    a = b;
    b = r;
  }
  return (pk_i64)a;
}
PK_FN pk_i64 pk_lcm_i64(pk_i64 x, pk_i64 y) {
  const pk_u64 g = (pk_u64)pk_gcd_i64(x, y);
  return g == 0 ? 0 : (pk_i64)pk_magnitude_i64((pk_i64)(pk_magnitude_i64(x) / g * (pk_u64)y));
}
/* x^y modulo 2^64; only 1 and -1 have integer negative powers. */
PK_FN pk_i64 pk_pow_i64(pk_i64 x, pk_i64 y) {
  if (y < 0) return x == 1 ? 1 : x == -1 ? (y & 1 ? -1 : 1) : 0;
  pk_u64 power = 1, square = (pk_u64)x;
  for (pk_u64 rest = (pk_u64)y; rest != 0; rest >>= 1) {
    if (rest & 1u) power *= square;
    square *= square;
  }
  return (pk_i64)power;
}

/* ---- shifts: too many positions leave 0, or the sign ---- */
#define PK_DEFINE_SHIFTS(token, type, unsigned_type, bits)                                                \
  PK_FN type pk_shift_left_##token(type x, type y) {                                                      \
    return y < 0 || y >= (bits) ? (type)0 : (type)(unsigned_type)((pk_u64)(unsigned_type)x << (pk_u32)y); \
  }                                                                                                       \
  PK_FN type pk_shift_right_##token(type x, type y) {                                                     \
    return (type)(x >> (pk_u32)(y < 0 || y >= (bits) ? (bits)-1 : y));                                    \
  }
PK_DEFINE_SHIFTS(i64, pk_i64, pk_u64, 64)
PK_DEFINE_SHIFTS(i32, pk_i32, pk_u32, 32)
PK_DEFINE_SHIFTS(i16, pk_i16, pk_u16, 16)
PK_DEFINE_SHIFTS(i8, pk_i8, pk_u8, 8)
PK_FN pk_u8 pk_shift_left_u8(pk_u8 x, pk_u8 y) { return y >= 8 ? 0 : (pk_u8)(x << y); }
PK_FN pk_u8 pk_shift_right_u8(pk_u8 x, pk_u8 y) { return y >= 8 ? 0 : (pk_u8)(x >> y); }

/* ---- floating ---- */
PK_FN float pk_fmod_f32(float x, float y) { return PK_F32(fmod)(x, y); }
#if PK_FP64
PK_FN double pk_fmod_f64(double x, double y) { return fmod(x, y); }
#endif
/* Python's floor division and its remainder: the quotient is computed from the exact remainder, so that both are
 * consistent. */
#define PK_DEFINE_DIVISIONS(token, type)                                                   \
  PK_FN type pk_remainder_##token(type x, type y) {                                        \
    const type r = pk_fmod_##token(x, y);                                                  \
    return r != (type)0 && (r < (type)0) != (y < (type)0) ? r + y : r;                     \
  }                                                                                        \
  PK_FN type pk_div_trunc_##token(type x, type y) { return pk_trunc_##token(x / y); }      \
  PK_FN type pk_div_floor_##token(type x, type y) {                                        \
    const type quotient = x / y;                                                           \
    if (y == (type)0) return quotient;                                                     \
    const type r = pk_fmod_##token(x, y);                                                  \
    const type below = r != (type)0 && (r < (type)0) != (y < (type)0) ? (type)1 : (type)0; \
    const type whole = (x - r) / y - below, floored = pk_floor_##token(whole);             \
    if (whole == (type)0) return pk_copysign_##token((type)0, quotient);                   \
    return whole - floored > (type)0.5 ? floored + (type)1 : floored;                      \
  }
PK_DEFINE_DIVISIONS(f32, float)
#if PK_FP64
PK_DEFINE_DIVISIONS(f64, double)
#endif

/* Divisions of numbers that are close (pk_angle.h), in straight-line code. */
#ifdef PK_OWN_MATH
PK_FN int pk_goes_below(float r, float y) {
  return (int)(r != 0.0f) & (int)((pk_bits_of_float(r) ^ pk_bits_of_float(y)) >> 31);
}
PK_FN float pk_remainder_near(float x, float y) {
  const float r = pk_fmod_near(x, y);
  return pk_goes_below(r, y) ? r + y : r;
}
PK_FN float pk_div_floor_near(float x, float y) {
  const float r = pk_fmod_near(x, y), below = pk_goes_below(r, y) ? 1.0f : 0.0f;
  const float whole = (x - r) / y - below, floored = pk_floor_f32(whole);
  const float nearest = whole - floored > 0.5f ? floored + 1.0f : floored;
  return whole == 0.0f ? pk_with_sign(0.0f, x / y) : nearest;
}
#endif

#endif /* PK_INTEGER_H_ */
