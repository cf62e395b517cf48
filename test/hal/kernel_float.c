/* kernel_float.c: the float32 functions of hal/kernels/pk_float.h and pk_single.h at every 997th float of the whole range, against the
 * C library's functions in double, and the same bits from every instruction set. */
#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "hal/plugin_kernels.h"
#define PK_CAT_(a, b) a##b
#define PK_CAT(a, b) PK_CAT_(a, b)
#include "pk_host.h"

enum { CHUNK = 4096 };
#define MAX_ULPS 0.8
#define STEP 997u /* prime: every exponent and sign with 8,414 different fractions each */

static float of_bits(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

static const float special[] = {
    0.0f,        -0.0f,       1.0f,       -1.0f,    2.0f,       -2.0f,       3.0f,           -3.0f,        0.5f,
    -0.5f,       1.5f,        -1.5f,      INFINITY, -INFINITY,  NAN,         -NAN,           0x1p-149f,    -0x1p-149f,
    FLT_MAX,     -FLT_MAX,    FLT_MIN,    -FLT_MIN, 0x1p20f,    -0x1p20f,    0x1.fffffep19f, 16777215.0f,  -16777215.0f,
    16777217.0f, 33554432.0f, 8388607.5f, 1e10f,    1.0000001f, 0.99999994f, 0x1.921fb6p0f,  0x1.921fb6p1f};
enum { SPECIAL = sizeof special / sizeof special[0] };

/* The error in units of the last place; 0 for equal, NaN for NaN; infinite for a wrong sign of zero. */
static double error_in_ulps(float got, double want) {
  const float rounded = (float)want;
  if (isnan(got) || isnan(rounded)) return isnan(got) && isnan(rounded) ? 0 : INFINITY;
  if (got == rounded) return signbit(got) == signbit(rounded) ? 0 : INFINITY;
  if (isinf(got) || isinf(rounded))
    return fabs(want) > FLT_MAX / (1 + 0x1p-23) && signbit(got) == signbit(rounded) ? 1 : INFINITY;
  int exponent;
  frexp(want, &exponent);
  if (exponent < FLT_MIN_EXP) exponent = FLT_MIN_EXP;
  return fabs((double)got - want) / ldexp(1, exponent - FLT_MANT_DIG);
}

/* Runs a kernel in one instruction set: 0 when this CPU or this build lacks it. */
static int compute(const char *name, int isa, float *out, float *a, float *b, uint64_t n) {
  hal_host_kernel_fn_t fn = pk_host_kernel_fn(name, isa);
  if (!fn) return 0;
  float zero = 0;
  void *unary[] = {&out, &a, &zero, &n}, *binary[] = {&out, &a, &b, &zero, &n};
  const hal_host_range_t whole = {.begin = 0, .end = n};
  fn(&whole, b ? binary : unary);
  return 1;
}

/* Computes in every instruction set, requires the same bits, and gives the result of the base. */
static void compute_everywhere(const char *name, float *out, float *a, float *b, uint64_t n) {
  static float again[CHUNK];
  cr_assert(compute(name, PK_ISA_BASE, out, a, b, n), "there is no kernel %s", name);
  for (int isa = PK_ISA_BASE + 1; isa < PK_ISA_COUNT; isa++) {
    if (!compute(name, isa, again, a, b, n)) continue;
    for (uint64_t i = 0; i < n; i++)
      cr_assert(memcmp(&again[i], &out[i], sizeof *out) == 0 || (isnan(again[i]) && isnan(out[i])),
                "%s(%a): %a in instruction set %d, %a in the base", name, (double)a[i], (double)again[i], isa,
                (double)out[i]);
  }
}

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

static const struct {
  const char *name;
  double (*reference)(double);
  double ulps;
} functions[] = {{"exp", exp, 1.0},         {"expm1", expm1, 0.8}, {"log", log, 0.8},   {"log1p", log1p, 0.8},
                 {"log2", log2, 0.8},       {"log10", log10, 0.8}, {"exp2", exp2, 0.8}, {"tanh", tanh, 1.3},
                 {"sigmoid", sigmoid, 1.4}, {"erf", erf, 1.3},     {"sin", sin, 0.8},   {"cos", cos, 0.8}};

static void check(const char *name, double (*reference)(double), double ulps, float *a, uint64_t n) {
  static float out[CHUNK];
  compute_everywhere(name, out, a, NULL, n);
  for (uint64_t i = 0; i < n; i++) {
    const double want = reference((double)a[i]), error = error_in_ulps(out[i], want);
    cr_assert_leq(error, ulps, "%s(%a): got %a, want %a, %g ulps", name, (double)a[i], (double)out[i], want, error);
  }
}

Test(kernel_float, unary_functions_are_within_their_error_at_every_997th_float_in_every_instruction_set) {
  static float a[CHUNK];
  for (size_t f = 0; f < sizeof functions / sizeof functions[0]; f++) {
    char name[32];
    snprintf(name, sizeof name, "%s_f32_contig", functions[f].name);
    memcpy(a, special, sizeof special);
    check(name, functions[f].reference, functions[f].ulps, a, SPECIAL);
    for (uint64_t bits = 0; bits < UINT64_C(1) << 32;) {
      uint64_t n = 0;
      for (; n < CHUNK && bits < UINT64_C(1) << 32; n++, bits += STEP) a[n] = of_bits((uint32_t)bits);
      check(name, functions[f].reference, functions[f].ulps, a, n);
    }
  }
}

Test(kernel_float, sin_and_cos_do_not_depend_on_their_neighbours) {
  static float near[CHUNK], mixed[CHUNK], alone[CHUNK], among[CHUNK];
  for (int i = 0; i < CHUNK; i++) near[i] = mixed[i] = (float)i * 1.37f - 2000.0f;
  for (int i = 5; i < CHUNK; i += 300) mixed[i] = 0x1p30f + (float)i * 128;
  for (int f = 0; f < 2; f++) {
    const char *name = f ? "cos_f32_contig" : "sin_f32_contig";
    compute_everywhere(name, alone, near, NULL, CHUNK);
    compute_everywhere(name, among, mixed, NULL, CHUNK);
    for (int i = 0; i < CHUNK; i++)
      cr_assert(mixed[i] != near[i] || memcmp(&alone[i], &among[i], sizeof alone[i]) == 0, "%s(%a)", name,
                (double)near[i]);
  }
}

static void check_pow(float *a, float *b, uint64_t n) {
  static float out[CHUNK];
  compute_everywhere("pow_f32_contig", out, a, b, n);
  for (uint64_t i = 0; i < n; i++) {
    const double want = pow((double)a[i], (double)b[i]), error = error_in_ulps(out[i], want);
    cr_assert_leq(error, MAX_ULPS, "pow(%a, %a): got %a, want %a, %g ulps", (double)a[i], (double)b[i], (double)out[i],
                  want, error);
  }
}

/* Random bits; exponents that give a finite result; small whole exponents. */
Test(kernel_float, pow_is_within_its_error_and_follows_annex_f) {
  static float a[CHUNK], b[CHUNK];
  for (int i = 0; i < SPECIAL * SPECIAL; i++) a[i] = special[i / SPECIAL], b[i] = special[i % SPECIAL];
  check_pow(a, b, SPECIAL * SPECIAL);
  uint64_t state = 1;
  for (int chunk = 0; chunk < 900; chunk++) {
    for (int i = 0; i < CHUNK; i++) {
      state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
      const uint32_t first = (uint32_t)(state >> 32);
      state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
      const uint32_t second = (uint32_t)(state >> 32);
      a[i] = of_bits(first);
      if (chunk % 3 == 0) {
        b[i] = of_bits(second);
      } else if (chunk % 3 == 1) {
        const double power = ((double)second * 0x1p-32 - 0.5) * 300, exponent = power / log2(fabs((double)a[i]));
        b[i] = fabs(exponent) < (double)FLT_MAX ? (float)exponent : 0.5f;
      } else {
        a[i] = ldexpf(1 + (float)(first & 0x7fffff) * 0x1p-23f, (int)(first >> 23 & 15) - 7) * (first >> 31 ? -1 : 1);
        b[i] = (float)((int)(second % 41) - 20);
      }
    }
    check_pow(a, b, CHUNK);
  }
}
