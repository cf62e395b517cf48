/* kernel_double.c: the float64 functions of hal/kernels/pk_float64.h in each instruction set, compared with functions
 * of the C library for long double: random bits, numbers around 1, and the range in which the results are finite. */
#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "hal/plugin_kernels.h"
#define PK_CAT_(a, b) a##b
#define PK_CAT(a, b) PK_CAT_(a, b)
#include "pk_host.h"

enum { CHUNK = 4096, CHUNKS = 100 };

static const double special[] = {0.0,
                                 -0.0,
                                 1.0,
                                 -1.0,
                                 2.0,
                                 -2.0,
                                 8.0,
                                 1024.0,
                                 0.5,
                                 -0.5,
                                 INFINITY,
                                 -INFINITY,
                                 NAN,
                                 0x1p-1074,
                                 -0x1p-1074,
                                 DBL_MIN,
                                 -DBL_MIN,
                                 DBL_MAX,
                                 -DBL_MAX,
                                 709.782,
                                 709.783,
                                 -745.13,
                                 -745.14,
                                 1023.99,
                                 0x1p-1022,
                                 1.0 - 0x1p-53,
                                 -0x1p-53,
                                 0x1p-53,
                                 0x1p53,
                                 1e300,
                                 0x1.fffffffffffffp-1023};
enum { SPECIAL = sizeof special / sizeof special[0] };

/* The error in units of the last place; 0 for equal, NaN for NaN; infinite for a wrong sign of zero. */
static double error_in_ulps(double got, long double want) {
  const double rounded = (double)want;
  if (isnan(got) || isnan(rounded)) return isnan(got) && isnan(rounded) ? 0 : INFINITY;
  if (got == rounded) return signbit(got) == signbit(rounded) ? 0 : INFINITY;
  if (isinf(got) || isinf(rounded))
    return fabsl(want) > (long double)DBL_MAX * (1 - 0x1p-52L) && signbit(got) == signbit(rounded) ? 1 : INFINITY;
  int exponent;
  frexpl(want, &exponent);
  if (exponent < DBL_MIN_EXP) exponent = DBL_MIN_EXP;
  return (double)(fabsl((long double)got - want) / ldexpl(1, exponent - DBL_MANT_DIG));
}

/* Runs a kernel in one instruction set; returns 0 if this CPU or this build lacks it. */
static int compute(const char *name, int isa, double *out, double *a, uint64_t n) {
  hal_host_kernel_fn_t fn = pk_host_kernel_fn(name, isa);
  if (!fn) return 0;
  double zero = 0;
  void *args[] = {&out, &a, &zero, &n};
  const hal_host_range_t whole = {.begin = 0, .end = n};
  fn(&whole, args);
  return 1;
}

static long double sigmoid(long double x) { return 1 / (1 + expl(-x)); }

static const struct {
  const char *name;
  long double (*reference)(long double);
  double ulps, range; /* of arguments with finite results */
} functions[] = {{"exp", expl, 1.01, 750}, {"exp2", exp2l, 1.01, 1080},   {"expm1", expm1l, 2, 720},
                 {"log", logl, 1, 1e6},    {"log1p", log1pl, 1, 1e6},     {"log2", log2l, 2, 1e6},
                 {"tanh", tanhl, 2.6, 25}, {"sigmoid", sigmoid, 2.5, 700}};
enum { FUNCTIONS = sizeof functions / sizeof functions[0] };

static uint64_t random_bits(uint64_t *state) {
  *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return *state ^ *state >> 29;
}

static void fill(double *a, int kind, double range, uint64_t *state) {
  for (int i = 0; i < CHUNK; i++) {
    const uint64_t bits = random_bits(state);
    const double unit = (double)(bits >> 11) * 0x1p-53;
    if (kind == 0)
      memcpy(&a[i], &bits, sizeof bits);
    else
      a[i] = kind == 1 ? (2 * unit - 1) * range : kind == 2 ? 2 * unit - 1 : 0.5 + unit * 1.5;
  }
  if (kind == 0) memcpy(a, special, sizeof special);
}

static void check(size_t f, double *a) {
  static double out[CHUNK], base[CHUNK];
  char name[32];
  snprintf(name, sizeof name, "%s_f64_contig", functions[f].name);
  cr_assert(compute(name, PK_ISA_BASE, base, a, CHUNK), "%s", name);
  for (int i = 0; i < CHUNK; i++) {
    /* 1 / (1 + infinity): the result is below the least normal number */
    if (functions[f].reference == sigmoid && a[i] < -708) continue;
    const double error = error_in_ulps(base[i], functions[f].reference((long double)a[i]));
    cr_assert_leq(error, functions[f].ulps, "%s(%a): got %a, want %La, %g ulps", name, a[i], base[i],
                  functions[f].reference((long double)a[i]), error);
  }
  for (int isa = PK_ISA_BASE + 1; isa < PK_ISA_COUNT; isa++) {
    if (!compute(name, isa, out, a, CHUNK)) continue;
    for (int i = 0; i < CHUNK; i++)
      cr_assert(memcmp(&out[i], &base[i], sizeof out[i]) == 0 || (isnan(out[i]) && isnan(base[i])),
                "%s(%a): %a in instruction set %d, %a in the base", name, a[i], out[i], isa, base[i]);
  }
}

Test(kernel_double, functions_are_within_their_error_and_equal_in_every_instruction_set) {
  static double a[CHUNK];
  uint64_t state = 1;
  for (size_t f = 0; f < FUNCTIONS; f++) {
    for (int chunk = 0; chunk < CHUNKS; chunk++) {
      fill(a, chunk % 4, functions[f].range, &state);
      check(f, a);
    }
  }
}

/* Logarithms and powers of powers of two are exact. */
Test(kernel_double, powers_of_two_are_exact) {
  static double a[CHUNK], out[CHUNK];
  for (int isa = PK_ISA_BASE; isa < PK_ISA_COUNT; isa++) {
    for (int i = 0; i < 2098; i++) a[i] = ldexp(1, i - 1074);
    if (!compute("log2_f64_contig", isa, out, a, 2098)) continue;
    for (int i = 0; i < 2098; i++) cr_assert_eq(out[i], i - 1074, "log2(2^%d) = %a", i - 1074, out[i]);
    for (int i = 0; i < 2098; i++) a[i] = i - 1074;
    compute("exp2_f64_contig", isa, out, a, 2098);
    for (int i = 0; i < 2098; i++) cr_assert_eq(out[i], ldexp(1, i - 1074), "2^%d = %a", i - 1074, out[i]);
  }
}
