/* pk_special.h: the special functions, in double; operators cast other dtypes to it. Except for erfinv of float32,
 * there are no tables of fitted coefficients: the methods are power series where they do not cancel, asymptotic series
 * and continued fractions where they converge, sums over equal steps for integrals of analytic functions, Newton's
 * method for inverses. The functions are rare, so loops are not unrolled. The limits of the domains are torch's. */
#ifndef PK_SPECIAL_H_
#define PK_SPECIAL_H_

#define pk_erfinv(x) PK_CAT(pk_erfinv_, PK_TOKEN)(x)

/* The initial numbers of networks are made by it, so it is straight-line code: erfinv(y) / y is a smooth function of
 * w = -log(1 - y^2), two polynomials of hal/kernels/tools/minimax.py. Results are within 2 ulp. */
#if PK_FP64
typedef double pk_ratio_t;
#else
typedef float pk_ratio_t;
#endif
#define PK_R(c) ((pk_ratio_t)(c))
PK_FN pk_ratio_t pk_erfinv_near(pk_ratio_t d) { /* d = w - 2.5 */
  pk_ratio_t p = PK_R(3.3553873278560427e-10);
  p = p * d + PK_R(-8.772811524164159e-09);
  p = p * d + PK_R(1.8037223110196035e-08);
  p = p * d + PK_R(4.6589195628078936e-07);
  p = p * d + PK_R(-3.434611827499713e-06);
  p = p * d + PK_R(-4.961911339430159e-06);
  p = p * d + PK_R(0.00021828263158313557);
  p = p * d + PK_R(-0.0012527446614357888);
  p = p * d + PK_R(-0.004177339405251294);
  p = p * d + PK_R(0.24664028763536053);
  return p * d + PK_R(1.501409353514035);
}
PK_FN pk_ratio_t pk_erfinv_far(pk_ratio_t d) { /* d = sqrt(w) - 3 */
  pk_ratio_t p = PK_R(-8.07064904127617e-06);
  p = p * d + PK_R(-1.781177665973816e-05);
  p = p * d + PK_R(0.0001719992499170213);
  p = p * d + PK_R(-0.0002964887761528931);
  p = p * d + PK_R(-0.0001260783778182681);
  p = p * d + PK_R(0.0014860933523274935);
  p = p * d + PK_R(-0.00356550288656648);
  p = p * d + PK_R(0.005685078850257442);
  p = p * d + PK_R(-0.0076429914156898645);
  p = p * d + PK_R(0.009445520830621293);
  p = p * d + PK_R(1.0016752487063898);
  return p * d + PK_R(2.8329767986709533);
}
PK_FN float pk_erfinv_f32(float y) {
  const float a = pk_abs_f32(y);
  const pk_ratio_t w = -(pk_ratio_t)pk_log_f32((1.0f - a) * (1.0f + a));
  const pk_ratio_t near = pk_erfinv_near(w - PK_R(2.5)), far = pk_erfinv_far(sqrt(w) - PK_R(3));
  const float ratio = (float)(w < PK_R(5) ? near : far);
  return y * (a == 1.0f ? 1.0f / 0.0f : ratio);
}

#if PK_FP64

#define PK_INF64 (1.0 / 0.0)
#define PK_NAN64 (0.0 / 0.0)
#define PK_PI64 3.14159265358979323846
#define PK_EULER 0.57721566490153286061
#define PK_SQRT_PI64 1.77245385090551602730
#define PK_SQRT2_64 1.41421356237309504880
#define PK_SQRT_2PI64 2.50662827463100050242
#define PK_ENOUGH 1e-17 /* a term below this fraction of a sum is negligible */

/* ---- gamma ---- */

/* B(2k) / (2k)!, k = 1 .. 8: Bernoulli's numbers, for Euler-Maclaurin sums. */
PK_FN double pk_bernoulli(int k) {
  switch (k) {
    case 1:
      return 1.0 / 12;
    case 2:
      return -1.0 / 720;
    case 3:
      return 1.0 / 30240;
    case 4:
      return -1.0 / 1209600;
    case 5:
      return 1.0 / 47900160;
    case 6:
      return -691.0 / 1307674368000.0;
    case 7:
      return 1.0 / 74724249600.0;
    default:
      return -3617.0 / 10670622842880000.0;
  }
}

PK_FN double pk_digamma_f64(double x) {
  if (x == 0.0) return copysign(PK_INF64, -x);
  double result = 0.0;
  if (x < 0.0) {
    const double part = x - rint(x);                  /* exact, and small for small x, unlike x - floor(x) */
    if (part == 0.0 || part != part) return PK_NAN64; /* a pole; -infinity */
    result = -PK_PI64 / tan(PK_PI64 * part);
    x = 1.0 - x;
  }
  for (; x < 10.0; x += 1.0) result -= 1.0 / x;
  double sum = 0.0, scale = 1.0 / (x * x), power = scale, factorial = 1.0;
  for (int k = 1; k <= 8; k++, power *= scale) { /* B(2k) / (2k) = B(2k) / (2k)! * (2k - 1)! */
    sum += pk_bernoulli(k) * factorial * power;
    factorial *= (2.0 * k) * (2.0 * k + 1.0);
  }
  return x < PK_INF64 ? result + log(x) - 0.5 / x - sum : x;
}

/* mu - log(1 + mu) */
PK_FN double pk_gamma_excess(double mu) {
  if (fabs(mu) >= 0.1) return mu - log1p(mu);
  double power = mu * mu, excess = 0.0;
  for (int k = 2; k < 24; k++, power *= -mu) excess += power / k;
  return excess;
}
/* x^a e^-x / gamma(a + 1). For large a, where logarithms of large numbers would cancel, by Stirling's series. */
PK_FN double pk_gamma_density(double a, double x) {
  if (a < 20.0) return exp(a * log(x) - x - lgamma(a + 1.0));
  const double r = 1.0 / (a * a);
  const double correction = (1.0 / 12 - r * (1.0 / 360 - r * (1.0 / 1260 - r * (1.0 / 1680 - r / 1188)))) / a;
  return exp(-a * pk_gamma_excess((x - a) / a) - correction) / sqrt(2.0 * PK_PI64 * a);
}
/* Both for a beyond 1e8, where the others would need millions of terms: Temme's expansion, whose second term is below
 * 1e-13. */
PK_FN double pk_gamma_large(double a, double x, int upper) {
  const double mu = (x - a) / a, excess = pk_gamma_excess(mu), eta = copysign(sqrt(2.0 * excess), mu);
  const double slope = fabs(mu) < 1e-3 ? -1.0 / 3 + eta * (1.0 / 12 - eta * (2.0 / 135)) : 1.0 / mu - 1.0 / eta;
  const double rest = exp(-a * excess) * slope / sqrt(2.0 * PK_PI64 * a), root = copysign(sqrt(a * excess), mu);
  return upper ? 0.5 * erfc(root) + rest : 0.5 * erfc(-root) - rest;
}
/* The lower incomplete gamma function by its series, for x < a + 1, and the upper one by Legendre's continued
 * fraction. */
PK_FN double pk_gamma_series(double a, double x) {
  double term = 1.0, sum = 1.0;
  for (double k = a + 1.0; term > PK_ENOUGH * sum && k < a + 1e6; k += 1.0) {
    term *= x / k;
    sum += term;
  }
  return pk_gamma_density(a, x) * sum;
}
PK_FN double pk_gamma_fraction(double a, double x) {
  const double least = 1e-300;
  double b = x + 1.0 - a, c = 1.0 / least, d = 1.0 / b, value = d;
  for (int i = 1; i < 1000000; i++) {
    const double n = -i * (i - a);
    b += 2.0;
    d = n * d + b;
    d = 1.0 / (fabs(d) < least ? least : d);
    c = b + n / c;
    c = fabs(c) < least ? least : c;
    value *= c * d;
    if (fabs(c * d - 1.0) < 1e-16) break;
  }
  return pk_gamma_density(a, x) * a * value;
}
PK_FN double pk_incomplete_gamma(double a, double x, int upper) {
  if (a != a || x != x || a < 0.0 || x < 0.0) return PK_NAN64;
  if (a == 0.0) return x > 0.0 ? !upper : PK_NAN64;
  if (x == 0.0) return upper;
  if (a == PK_INF64) return x == PK_INF64 ? PK_NAN64 : upper;
  if (x == PK_INF64) return !upper;
  if (a > 1e8) return pk_gamma_large(a, x, upper);
  if (x < a + 1.0) return upper ? 1.0 - pk_gamma_series(a, x) : pk_gamma_series(a, x);
  return upper ? pk_gamma_fraction(a, x) : 1.0 - pk_gamma_fraction(a, x);
}
PK_FN double pk_igamma_f64(double a, double x) { return pk_incomplete_gamma(a, x, 0); }
PK_FN double pk_igammac_f64(double a, double x) { return pk_incomplete_gamma(a, x, 1); }

/* ---- error functions ---- */

/* The x with erfc(x) = z, 0 < z <= 1: Winitzki's approximation, then Halley's method, which triples the number of
 * digits. */
PK_FN double pk_erfc_inverse(double z) {
  const double l = log(z * (2.0 - z)), b = 4.330746750799873 + 0.5 * l; /* 2 / (0.147 pi) */
  double x = sqrt(sqrt(b * b - l / 0.147) - b);
  for (int i = 0; i < 3; i++) {
    const double u = (z - erfc(x)) * (PK_SQRT_PI64 / 2.0) * exp(x * x);
    x -= u / (1.0 + x * u);
  }
  return x;
}
PK_FN double pk_erfinv_f64(double y) {
  const double a = fabs(y);
  if (!(a <= 1.0)) return PK_NAN64;
  if (a == 1.0) return copysign(PK_INF64, y);
  double x;
  if (a > 0.5) {
    x = pk_erfc_inverse(1.0 - a);
  } else {
    x = a * (PK_SQRT_PI64 / 2.0) * (1.0 + a * a * (PK_PI64 / 12.0));
    for (int i = 0; i < 3; i++) {
      const double u = (erf(x) - a) * (PK_SQRT_PI64 / 2.0) * exp(x * x);
      x -= u / (1.0 + x * u);
    }
  }
  return copysign(x, y);
}
/* e^(x^2) erfc(x); the square in two parts, because the exponential multiplies its error. */
PK_FN double pk_erfcx_f64(double x) {
  if (x < 0.0) {
    if (x < -26.7) return PK_INF64;
    const double square = x * x;
    return exp(square) * (1.0 + fma(x, x, -square)) * erfc(x);
  }
  if (x < 10.0) {
    const double square = x * x;
    return exp(square) * (1.0 + fma(x, x, -square)) * erfc(x);
  }
  const double r = 0.5 / x / x;
  double term = 1.0, sum = 1.0;
  for (int k = 1; k < 16; k++) {
    term *= -(2 * k - 1) * r;
    sum += term;
  }
  return sum / PK_SQRT_PI64 / x; /* the product is infinite at the largest x */
}
/* The x with erfc(x) = z for z below 1e-290, where e^(x^2) would be infinite: Newton's method for the logarithm. */
PK_FN double pk_erfc_inverse_tiny(double z) {
  const double target = log(z);
  double x = sqrt(-target);
  for (int i = 0; i < 4; i++) {
    const double scaled = pk_erfcx_f64(x);
    x += (log(scaled) - x * x - target) * (PK_SQRT_PI64 / 2.0) * scaled;
  }
  return x;
}
PK_FN double pk_ndtri_f64(double p) {
  if (!(p >= 0.0 && p <= 1.0)) return PK_NAN64;
  if (p == 0.0) return -PK_INF64;
  if (p == 1.0) return PK_INF64;
  if (p > 0.5) return PK_SQRT2_64 * pk_erfc_inverse(2.0 * (1.0 - p));
  return -PK_SQRT2_64 * (p < 1e-290 ? pk_erfc_inverse_tiny(2.0 * p) : pk_erfc_inverse(2.0 * p));
}
PK_FN double pk_log_ndtr_f64(double x) {
  const double t = x / PK_SQRT2_64;
  return x < -1.0 ? log(pk_erfcx_f64(-t) / 2.0) - t * t : log1p(-erfc(t) / 2.0);
}
/* In float32 the square rounds like x * x / 2: torch's gradient is exp(-(x * x / 2 + log_ndtr(x))), where that rounding
 * cancels. */
PK_FN float pk_log_ndtr_f32(float x) {
  const float t = x * 0.70710678f;
  return x < -1.0f ? (float)log(pk_erfcx_f64(-(double)t) / 2.0) - t * t : (float)pk_log_ndtr_f64((double)x);
}

/* ---- modified Bessel functions ---- */

/* The series of I(n, x), n = 0 or 1, without a factor (x / 2)^n. */
PK_FN double pk_bessel_i_series(double n, double x) {
  const double q = 0.25 * x * x;
  double term = 1.0, sum = 1.0;
  for (double k = 1.0; term > PK_ENOUGH * sum; k += 1.0) {
    term *= q / (k * (k + n));
    sum += term;
  }
  return sum;
}
/* e^-x I(n, x) for x > 20: Hankel's expansion, whose smallest term is e^-2x. */
PK_FN double pk_bessel_i_far(double n, double x) {
  double term = 1.0, sum = 1.0;
  for (int k = 1; k < 40 && fabs(term) > PK_ENOUGH; k++) {
    const double odd = 2 * k - 1;
    term *= (odd * odd - 4.0 * n * n) / (8.0 * k * x);
    sum += term;
  }
  return sum / PK_SQRT_2PI64 / sqrt(x); /* 2 pi x is infinite at the largest x */
}
PK_FN double pk_bessel_i(double n, double x, int scaled) {
  const double a = fabs(x), sign = n > 0.0 && x < 0.0 ? -1.0 : 1.0;
  if (!(a > 20.0)) {
    const double value = (n > 0.0 ? 0.5 * x : 1.0) * pk_bessel_i_series(n, a);
    return scaled ? exp(-a) * value : value;
  }
  if (a == PK_INF64) return scaled ? sign * 0.0 : PK_NAN64; /* as torch, whose tests demand it */
  const double root = exp(0.5 * a), value = sign * pk_bessel_i_far(n, a);
  return scaled ? value : value * root * root;
}
PK_FN double pk_i0_f64(double x) { return pk_bessel_i(0.0, x, 0); }
PK_FN double pk_i0e_f64(double x) { return pk_bessel_i(0.0, x, 1); }
PK_FN double pk_i1_f64(double x) { return pk_bessel_i(1.0, x, 0); }
PK_FN double pk_i1e_f64(double x) { return pk_bessel_i(1.0, x, 1); }

/* e^x K(n, x) for x > 1/2: the integral of e^(-x (cosh t - 1)) cosh(n t), whose sum over equal steps is exact to the
 * last digits. x (cosh t - 1) = 2 (sqrt(x) sinh(t / 2))^2, whose factors neither overflow nor underflow. */
PK_FN double pk_bessel_k_integral(double n, double x) {
  const double h = 0.5 / sqrt(x + 2.0), root = sqrt(x);
  double sum = 0.5;
  for (int k = 1; k < 400; k++) {
    const double t = h * k, s = root * sinh(0.5 * t), term = exp(-2.0 * s * s) * cosh(n * t);
    sum += term;
    if (term < PK_ENOUGH * sum) break;
  }
  return h * sum;
}
/* K(0, x) and K(1, x) for 0 < x <= 2 by their series; H are the harmonic numbers. */
PK_FN double pk_bessel_k_series(double n, double x) {
  const double q = 0.25 * x * x, l = log(0.5 * x) + PK_EULER;
  double term = 1.0, sum = n > 0.0 ? 0.5 - l : -l, harmonic = 0.0;
  for (double k = 1.0; k < 40.0; k += 1.0) {
    term *= q / (k * (k + n));
    harmonic += 1.0 / k;
    sum += term * (n > 0.0 ? harmonic + 0.5 / (k + 1.0) - l : harmonic - l);
    if (term < PK_ENOUGH) break;
  }
  return n > 0.0 ? 1.0 / x - 0.5 * x * sum : sum;
}
PK_FN double pk_bessel_k(double n, double x, int scaled) {
  if (x == 0.0) return PK_INF64;
  if (!(x > 0.0)) return PK_NAN64;
  if (x == PK_INF64) return 0.0;
  if (x <= 2.0) return pk_bessel_k_series(n, x) * (scaled ? exp(x) : 1.0);
  return pk_bessel_k_integral(n, x) * (scaled ? 1.0 : exp(-x));
}
PK_FN double pk_k0_f64(double x) { return pk_bessel_k(0.0, x, 0); }
PK_FN double pk_k0e_f64(double x) { return pk_bessel_k(0.0, x, 1); }
PK_FN double pk_k1_f64(double x) { return pk_bessel_k(1.0, x, 0); }
PK_FN double pk_k1e_f64(double x) { return pk_bessel_k(1.0, x, 1); }

/* ---- Bessel functions ---- */

/* J or Y (second) of order n = 0 or 1 for 0 < x < 25. Miller's backward recurrence computes all J up to a factor, which
 * the sum J(0) + 2 J(2) + 2 J(4) + ... = 1 determines; Y are Neumann's sums of them. */
PK_FN double pk_bessel_near(int n, double x, int second) {
  double above = 0.0, here = 1e-280, one = 0.0, norm = 0.0, even = 0.0, odd = 0.0;
  for (int k = 2 * (int)(0.5 * x + 24.0); k > 0; k--) {
    const int order = k / 2;
    const double sign = order & 1 ? -1.0 : 1.0;
    if (k & 1) {
      if (order > 0) odd += sign * k / ((double)order * (order + 1)) * here;
      if (k == 1) one = here;
    } else {
      norm += 2.0 * here;
      even += sign / order * here;
    }
    const double below = 2.0 * k / x * here - above;
    above = here;
    here = below;
    if (fabs(here) > 1e200) {
      here *= 1e-200, above *= 1e-200, one *= 1e-200, norm *= 1e-200, even *= 1e-200, odd *= 1e-200;
    }
  }
  norm += here;
  const double j = (n ? one : here) / norm;
  if (!second) return j;
  const double l = log(0.5 * x) + PK_EULER;
  if (n == 0) return 2.0 / PK_PI64 * (l * j - 2.0 * even / norm);
  return 2.0 / PK_PI64 * ((l - 1.0) * j - (here / x + odd) / norm);
}
/* The same functions from 25 on: Hankel's expansion about the phase x - (2 n + 1) pi / 4. */
PK_FN double pk_bessel_far(int n, double x, int second) {
  double p = 1.0, q = 0.0, term = 1.0;
  for (int k = 1; k < 40 && fabs(term) > PK_ENOUGH; k++) {
    const double o = 2 * k - 1;
    term *= (4.0 * n * n - o * o) / (8.0 * k * x);
    const double sign = k & 2 ? -1.0 : 1.0;
    if (k & 1)
      q += sign * term;
    else
      p += sign * term;
  }
  const double s = sin(x), c = cos(x);
  /* sqrt(2) times cosine and sine of the phase */
  const double cosine = n ? s - c : c + s, sine = n ? -(s + c) : s - c;
  const double value = second ? p * sine + q * cosine : p * cosine - q * sine;
  return value / PK_SQRT_PI64 / sqrt(x);
}
PK_FN double pk_bessel(int n, double x, int second) {
  const double a = fabs(x), sign = n && x < 0.0 ? -1.0 : 1.0;
  if (x != x) return x;
  if (second && x < 0.0) return PK_NAN64;
  if (a == 0.0) return second ? -PK_INF64 : n ? 0.0 : 1.0;
  if (a == PK_INF64) return PK_NAN64; /* as torch and SciPy */
  if (a < 1e-9)
    return second ? (n ? -2.0 / (PK_PI64 * x) : 2.0 / PK_PI64 * (log(0.5 * x) + PK_EULER)) : n ? 0.5 * x : 1.0;
  return sign * (a < 25.0 ? pk_bessel_near(n, a, second) : pk_bessel_far(n, a, second));
}
PK_FN double pk_j0_f64(double x) { return pk_bessel(0, x, 0); }
PK_FN double pk_j1_f64(double x) { return pk_bessel(1, x, 0); }
PK_FN double pk_y0_f64(double x) { return pk_bessel(0, x, 1); }
PK_FN double pk_y1_f64(double x) { return pk_bessel(1, x, 1); }
PK_FN double pk_spherical_j0_f64(double x) {
  if (fabs(x) == PK_INF64) return 0.0;
  return fabs(x) < 0.01 ? 1.0 - x * x / 6.0 * (1.0 - x * x / 20.0) : sin(x) / x;
}

/* ---- Airy's function ---- */

/* Solves y'' = x y from (x, y, slope) by Taylor's series in steps of at most 1/2. */
PK_FN double pk_airy_steps(double from, double y, double slope, double to) {
  for (double x = from; x != to;) {
    const double left = to - x, h = fabs(left) > 0.5 ? (left < 0.0 ? -0.5 : 0.5) : left;
    double c0 = y, c1 = slope, c2 = 0.5 * x * y, power = h, sum = c0 + c1 * h,
           rise = c1; /* three coefficients at a time */
    for (int k = 2; k < 30; k++) {
      rise += k * c2 * power;
      power *= h;
      sum += c2 * power;
      const double next = (x * c1 + c0) / ((k + 1.0) * k);
      c0 = c1;
      c1 = c2;
      c2 = next;
    }
    y = sum;
    slope = rise;
    x = fabs(left) > 0.5 ? x + h : to;
  }
  return y;
}
PK_FN double pk_airy_ai_f64(double x) {
  if (fabs(x) == PK_INF64 || x != x) return PK_NAN64;
  if (x > 103.892) return 0.0;
  const double a = fabs(x), zeta = 2.0 / 3.0 * a * sqrt(a);
  if (x > 1.0) return sqrt(x / 3.0) / PK_PI64 * pk_bessel_k_integral(1.0 / 3.0, zeta) * exp(-zeta);
  if (x > -9.0) return pk_airy_steps(0.0, 0.35502805388781723926, -0.25881940379280679841, x); /* Ai(0), Ai'(0) */
  double p = 1.0, q = 0.0, term = 1.0;
  for (int k = 1; k < 40 && fabs(term) > PK_ENOUGH; k++) {
    term *= (6.0 * k - 5.0) * (6.0 * k - 1.0) / (72.0 * k * zeta);
    const double sign = k & 2 ? -1.0 : 1.0;
    if (k & 1)
      q += sign * term;
    else
      p += sign * term;
  }
  const double phase = zeta - 0.25 * PK_PI64;
  return (p * cos(phase) + q * sin(phase)) / (PK_SQRT_PI64 * sqrt(sqrt(a)));
}

#else
/* The float32 version of log_ndtr (see above), by the continued fraction of erfc for large arguments. */
PK_FN float pk_log_ndtr_f32(float x) {
  const float t = x * 0.70710678f;
  if (x >= -1.0f) return log1p(-erfc(t) / 2.0f);
  if (x > -8.0f) return log(erfc(-t) / 2.0f);
  float rest = -t;
  for (int k = 24; k > 0; k--) rest = -t + 0.5f * (float)k / rest;
  return log(0.5f / (1.77245385f * rest)) - t * t;
}
#endif
#endif /* PK_SPECIAL_H_ */
