/* pk_complex.h: arithmetic and functions of complex numbers, for the expressions `complex` of codegen/operators:
 * pk_cmul(x, y) is pk_cmul_c64(x, y) in an instance whose PK_TOKEN is c64. Products are computed as (ac - bd) + (ad
 * + bc)i, as in torch; quotients are scaled by the larger part of the divisor (Smith, CACM 1962), so that they
 * neither overflow nor underflow on the way. The functions of complex64 are computed in complex128, if the device
 * has double. */
#ifndef PK_COMPLEX_H_
#define PK_COMPLEX_H_

#define pk_complex(re, im) PK_CAT(pk_complex_, PK_TOKEN)(re, im)
#define pk_none(type) pk_complex(0, 0) /* a number that the operator does not have */
#define pk_cadd(x, y) PK_CAT(pk_cadd_, PK_TOKEN)(x, y)
#define pk_csub(x, y) PK_CAT(pk_csub_, PK_TOKEN)(x, y)
#define pk_cmul(x, y) PK_CAT(pk_cmul_, PK_TOKEN)(x, y)
#define pk_cdiv(x, y) PK_CAT(pk_cdiv_, PK_TOKEN)(x, y)
#define pk_cabs(x) PK_CAT(pk_cabs_, PK_TOKEN)(x)
#define pk_cangle(x) PK_CAT(pk_cangle_, PK_TOKEN)(x)
#define pk_csgn(x) PK_CAT(pk_csgn_, PK_TOKEN)(x)
#define pk_cexp(x) PK_CAT(pk_cexp_, PK_TOKEN)(x)
#define pk_clog(x) PK_CAT(pk_clog_, PK_TOKEN)(x)
#define pk_csqrt(x) PK_CAT(pk_csqrt_, PK_TOKEN)(x)
#define pk_csin(x) PK_CAT(pk_csin_, PK_TOKEN)(x)
#define pk_ccos(x) PK_CAT(pk_ccos_, PK_TOKEN)(x)
#define pk_ctanh(x) PK_CAT(pk_ctanh_, PK_TOKEN)(x)
#define pk_ctan(x) PK_CAT(pk_ctan_, PK_TOKEN)(x)

#define PK_DEFINE_COMPLEX(token, complex, real, part)                                                          \
  PK_FN complex pk_complex_##token(real re, real im) {                                                         \
    complex z;                                                                                                 \
    z.re = re;                                                                                                 \
    z.im = im;                                                                                                 \
    return z;                                                                                                  \
  }                                                                                                            \
  PK_FN complex pk_cadd_##token(complex x, complex y) { return pk_complex_##token(x.re + y.re, x.im + y.im); } \
  PK_FN complex pk_csub_##token(complex x, complex y) { return pk_complex_##token(x.re - y.re, x.im - y.im); } \
  PK_FN complex pk_cmul_##token(complex x, complex y) {                                                        \
    return pk_complex_##token(x.re * y.re - x.im * y.im, x.re * y.im + x.im * y.re);                           \
  }                                                                                                            \
  PK_FN complex pk_cdiv_##token(complex x, complex y) {                                                        \
    const real re = pk_abs_##part(y.re), im = pk_abs_##part(y.im);                                             \
    if (re == (real)0 && im == (real)0) return pk_complex_##token(x.re / re, x.im / im);                       \
    if (re >= im) {                                                                                            \
      const real ratio = y.im / y.re, scale = (real)1 / (y.re + y.im * ratio);                                 \
      return pk_complex_##token((x.re + x.im * ratio) * scale, (x.im - x.re * ratio) * scale);                 \
    }                                                                                                          \
    const real ratio = y.re / y.im, scale = (real)1 / (y.re * ratio + y.im);                                   \
    return pk_complex_##token((x.re * ratio + x.im) * scale, (x.im * ratio - x.re) * scale);                   \
  }                                                                                                            \
  PK_FN real pk_cangle_##token(complex x) { return pk_atan2_##part(x.im, x.re); }
PK_DEFINE_COMPLEX(c64, pk_c64, float, f32)
#if PK_FP64
PK_DEFINE_COMPLEX(c128, pk_c128, double, f64)
#endif

/* The type that the functions compute in. */
#if PK_FP64
typedef double pk_wide_t;
typedef pk_c128 pk_wide_complex_t;
#define pk_abs_wide pk_abs_f64
#define pk_complex_wide pk_complex_c128
#define PK_WIDE_LARGE 4e307
#else
typedef float pk_wide_t;
typedef pk_c64 pk_wide_complex_t;
#define pk_abs_wide pk_abs_f32
#define pk_complex_wide pk_complex_c64
#define PK_WIDE_LARGE 8e37f
#endif

PK_FN pk_wide_t pk_cabs_wide(pk_wide_complex_t x) { return hypot(x.re, x.im); }
/* x / |x|; 0 for 0. */
PK_FN pk_wide_complex_t pk_csgn_wide(pk_wide_complex_t x) {
  const pk_wide_t r = pk_cabs_wide(x);
  return r == 0.0 ? pk_complex_wide(0.0, 0.0) : pk_complex_wide(x.re / r, x.im / r);
}
/* The cases of C99's annex G: the argument of a real number is preserved, and exp(-infinity) is 0 for any angle. */
PK_FN pk_wide_complex_t pk_cexp_wide(pk_wide_complex_t x) {
  const pk_wide_t e = exp(x.re);
  const int finite = x.im - x.im == 0.0;
  if (x.im == 0.0) return pk_complex_wide(e, x.im);
  if (!finite && e == 0.0) return pk_complex_wide(0.0, 0.0);
  if (!finite && x.re - x.re != 0.0 && x.re > 0.0) return pk_complex_wide(e, x.im - x.im);
  return pk_complex_wide(e * cos(x.im), e * sin(x.im));
}

/* log |x| by log1p near the unit circle, where log of the rounded |x| is inaccurate. */
PK_FN pk_wide_complex_t pk_clog_wide(pk_wide_complex_t x) {
  const pk_wide_t re = pk_abs_wide(x.re), im = pk_abs_wide(x.im), large = re > im ? re : im, small = re > im ? im : re;
  const pk_wide_t r = pk_cabs_wide(x);
  const pk_wide_t near = 0.5 * log1p((large - 1.0) * (large + 1.0) + small * small);
  return pk_complex_wide(r > 0.5 && r < 2.0 ? near : log(r), atan2(x.im, x.re));
}

/* The root with a non-negative real part; parts near the largest number are divided by 4 first. */
PK_FN pk_wide_complex_t pk_csqrt_wide(pk_wide_complex_t x) {
  const pk_wide_t infinity = 1.0 / 0.0;
  if (x.im == infinity || x.im == -infinity) return pk_complex_wide(infinity, x.im);
  if (x.re == 0.0 && x.im == 0.0) return pk_complex_wide(0.0, x.im);
  const int huge = pk_abs_wide(x.re) > PK_WIDE_LARGE || pk_abs_wide(x.im) > PK_WIDE_LARGE;
  const pk_wide_t re = huge ? 0.25 * x.re : x.re, im = huge ? 0.25 * x.im : x.im;
  const pk_wide_t t = sqrt(0.5 * pk_abs_wide(re) + 0.5 * hypot(re, im)), scaled = huge ? 2.0 * t : t;
  const pk_wide_t other = (huge ? 2.0 : 1.0) * (im / (2.0 * t));
  if (x.re >= 0.0 || x.re != x.re) return pk_complex_wide(scaled, other);
  return pk_complex_wide(pk_abs_wide(other), x.im < 0.0 || (x.im == 0.0 && 1.0 / x.im < 0.0) ? -scaled : scaled);
}

/* sinh and cosh: from expm1 where exp(x) - exp(-x) is inaccurate, from a square where exp overflows. */
PK_FN void pk_hyperbolic(pk_wide_t x, pk_wide_t *out_sinh, pk_wide_t *out_cosh) {
  const pk_wide_t a = pk_abs_wide(x), m = expm1(a), root = exp(0.5 * a);
  const pk_wide_t s = a > 40.0 ? 0.5 * root * root : 0.5 * (m + m / (m + 1.0));
  *out_cosh = a > 40.0 ? s : 0.5 * ((m + 1.0) + 1.0 / (m + 1.0));
  *out_sinh = x < 0.0 ? -s : s;
}
PK_FN pk_wide_complex_t pk_csin_wide(pk_wide_complex_t x) {
  pk_wide_t s, c;
  pk_hyperbolic(x.im, &s, &c);
  return pk_complex_wide(sin(x.re) * c, x.im == 0.0 ? x.im * cos(x.re) : cos(x.re) * s);
}
PK_FN pk_wide_complex_t pk_ccos_wide(pk_wide_complex_t x) {
  pk_wide_t s, c;
  pk_hyperbolic(x.im, &s, &c);
  return pk_complex_wide(cos(x.re) * c, x.im == 0.0 || x.re == 0.0 ? -x.re * x.im : -sin(x.re) * s);
}
PK_FN pk_wide_complex_t pk_ctanh_wide(pk_wide_complex_t x) {
  pk_wide_t s, c;
  const pk_wide_t sine = sin(x.im), cosine = cos(x.im);
  if (pk_abs_wide(x.re) > 20.0) { /* 1 - tanh < 2^-57 */
    const pk_wide_t fade = 4.0 * exp(-2.0 * pk_abs_wide(x.re));
    return pk_complex_wide(x.re < 0.0 ? -1.0 : 1.0, fade == 0.0 ? 0.0 : fade * sine * cosine);
  }
  pk_hyperbolic(x.re, &s, &c);
  const pk_wide_t d = s * s + cosine * cosine;
  return pk_complex_wide(s * c / d, sine * cosine / d);
}
PK_FN pk_wide_complex_t pk_ctan_wide(pk_wide_complex_t x) {
  const pk_wide_complex_t t = pk_ctanh_wide(pk_complex_wide(-x.im, x.re));
  return pk_complex_wide(t.im, -t.re);
}

#if PK_FP64
PK_FN float pk_cabs_c64(pk_c64 x) { /* squares of floats do not overflow in double */
  const double re = x.re, im = x.im, infinity = 1.0 / 0.0;
  if (re == infinity || re == -infinity || im == infinity || im == -infinity) return (float)infinity;
  return (float)sqrt(re * re + im * im);
}
#else
PK_FN float pk_cabs_c64(pk_c64 x) { return pk_cabs_wide(x); }
#endif
PK_FN pk_c64 pk_csgn_c64(pk_c64 x) {
  const float r = pk_cabs_c64(x);
  return r == 0.0f ? pk_complex_c64(0.0f, 0.0f) : pk_complex_c64(x.re / r, x.im / r);
}

#define PK_DEFINE_BY_WIDE(name)                                                \
  PK_FN pk_c64 pk_##name##_c64(pk_c64 x) {                                     \
    const pk_wide_complex_t y = pk_##name##_wide(pk_complex_wide(x.re, x.im)); \
    return pk_complex_c64((float)y.re, (float)y.im);                           \
  }                                                                            \
  PK_DEFINE_C128(name)
#if PK_FP64
PK_FN double pk_cabs_c128(pk_c128 x) { return pk_cabs_wide(x); }
PK_FN pk_c128 pk_csgn_c128(pk_c128 x) { return pk_csgn_wide(x); }
#define PK_DEFINE_C128(name) \
  PK_FN pk_c128 pk_##name##_c128(pk_c128 x) { return pk_##name##_wide(x); }
#else
#define PK_DEFINE_C128(name)
#endif
PK_DEFINE_BY_WIDE(cexp)
PK_DEFINE_BY_WIDE(clog)
PK_DEFINE_BY_WIDE(csqrt)
PK_DEFINE_BY_WIDE(csin)
PK_DEFINE_BY_WIDE(ccos)
PK_DEFINE_BY_WIDE(ctanh)
PK_DEFINE_BY_WIDE(ctan)

#endif /* PK_COMPLEX_H_ */
