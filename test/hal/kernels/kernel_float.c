/* kernel_float.c: the float32 functions of hal/kernels/pk_float.h, pk_angle.h and pk_single.h at every 997th float
 * of the whole range, in each instruction set, compared with functions of the C library in double precision. It also
 * tests which bits must be equal. */
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
#define STEP 997u /* prime: each exponent and sign, with 8,414 different fractions each */

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

/* Runs a kernel in one instruction set; returns 0 if this CPU or this build lacks it. */
static int compute(const char *name, int isa, float *out, float *a, float *b, uint64_t n) {
  hal_host_kernel_fn_t fn = pk_host_kernel_fn(name, isa);
  if (!fn) return 0;
  float zero = 0;
  void *unary[] = {&out, &a, &zero, &n}, *binary[] = {&out, &a, &b, &zero, &n};
  const hal_host_range_t whole = {.begin = 0, .end = n};
  fn(&whole, b ? binary : unary);
  return 1;
}

/* The same for every second element, in row form; `rows` is pk_rows_t of hal/kernels/pk.h. */
static int compute_strided(const char *name, int isa, float *out, float *a, uint64_t n) {
  hal_host_kernel_fn_t fn = pk_host_kernel_fn(name, isa);
  if (!fn) return 0;
  struct {
    int32_t ndim, pad;
    int64_t size[6], stride[4][6];
  } rows = {.ndim = 1, .size = {(int64_t)n}, .stride = {{2}, {2}}};
  float zero = 0;
  void *args[] = {&out, &a, &zero, &n, &n, &rows};
  const hal_host_range_t one_block = {.begin = 0, .end = 1};
  fn(&one_block, args);
  return 1;
}

static int same(float x, float y) { return memcmp(&x, &y, sizeof x) == 0 || (isnan(x) && isnan(y)); }

/* Computes in instruction set `isa`, requires bits equal to those of each earlier set from `like` on, and returns
 * the result. Returns 0 if the set is missing. */
static int compute_alike(const char *name, int isa, int like, float *out, float *a, float *b, uint64_t n) {
  static float before[CHUNK];
  if (!compute(name, isa, out, a, b, n)) {
    cr_assert_neq(isa, PK_ISA_BASE, "there is no kernel %s", name);
    return 0;
  }
  for (; like < isa; like++) {
    if (!compute(name, like, before, a, b, n)) continue;
    for (uint64_t i = 0; i < n; i++)
      cr_assert(same(before[i], out[i]), "%s(%a): %a in instruction set %d, %a in %d", name, (double)a[i],
                (double)before[i], like, (double)out[i], isa);
  }
  return 1;
}

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

/* Newton's method for erf, or for erfc where that is small. */
static double erfinv(double y) {
  const double a = fabs(y), l = log1p(-a * a), b = 4.33 + 0.5 * l;
  double x = sqrt(sqrt(b * b - l / 0.147) - b); /* Winitzki's approximation */
  if (!(a < 1)) return a == 1 ? copysign(INFINITY, y) : NAN;
  if (a < 1e-10) return y * 0.88622692545275801365;
  for (int i = 0; i < 4; i++) {
    const double off = a < 0.5 ? erf(x) - a : 1 - a - erfc(x);
    x -= off * 0.88622692545275801365 * exp(x * x);
  }
  return copysign(x, y);
}

static const struct {
  const char *name;
  double (*reference)(double);
  double ulps;
} functions[] = {{"exp", exp, 1.1},         {"expm1", expm1, 0.8},  {"log", log, 0.8},     {"log1p", log1p, 0.8},
                 {"log2", log2, 0.8},       {"log10", log10, 0.8},  {"exp2", exp2, 0.8},   {"tanh", tanh, 2.4},
                 {"sigmoid", sigmoid, 2.3}, {"erf", erf, 1.9},      {"sin", sin, 0.8},     {"cos", cos, 0.8},
                 {"tan", tan, 1.5},         {"asin", asin, 0.8},    {"acos", acos, 0.8},   {"atan", atan, 0.8},
                 {"sinh", sinh, 0.8},       {"cosh", cosh, 0.8},    {"asinh", asinh, 0.8}, {"acosh", acosh, 0.8},
                 {"atanh", atanh, 0.8},     {"erfinv", erfinv, 1.8}};
enum { FUNCTIONS = sizeof functions / sizeof functions[0] };

/* The sets with fused multiply-add agree with each other; the base set has none and rounds differently. */
static void check(const char *name, double (*reference)(double), double ulps, float *a, uint64_t n) {
  static float out[CHUNK];
  for (int isa = PK_ISA_BASE; isa < PK_ISA_COUNT; isa++) {
    if (!compute_alike(name, isa, PK_ISA_AVX2, out, a, NULL, n)) continue;
    for (uint64_t i = 0; i < n; i++) {
      const double want = reference((double)a[i]), error = error_in_ulps(out[i], want);
      cr_assert_leq(error, ulps, "%s(%a) in instruction set %d: got %a, want %a, %g ulps", name, (double)a[i], isa,
                    (double)out[i], want, error);
    }
  }
}

Test(kernel_float, unary_functions_are_within_their_error_at_every_997th_float_in_every_instruction_set) {
  static float a[CHUNK];
  for (size_t f = 0; f < FUNCTIONS; f++) {
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

/* A vector loop, its remainder, and a loop over strided elements agree, fused or not. */
Test(kernel_float, a_result_does_not_depend_on_its_place_nor_on_strides) {
  enum { N = 100 };
  static float a[CHUNK], together[CHUNK], spread[2 * N], strided[2 * N];
  for (int i = 0; i < N; i++) spread[2 * i] = a[i] = (float)i * 0.137f - 5.0f;
  for (size_t f = 0; f < FUNCTIONS; f++) {
    for (int isa = PK_ISA_BASE; isa < PK_ISA_COUNT; isa++) {
      char name[32];
      snprintf(name, sizeof name, "%s_f32_contig", functions[f].name);
      if (!compute(name, isa, together, a, NULL, N)) continue;
      for (int i = 0; i < N; i++) {
        float alone;
        cr_assert(compute(name, isa, &alone, &a[i], NULL, 1));
        cr_assert(same(alone, together[i]), "%s(%a) in instruction set %d: %a alone, %a among %d", name, (double)a[i],
                  isa, (double)alone, (double)together[i], N);
      }
      snprintf(name, sizeof name, "%s_f32_rows", functions[f].name);
      cr_assert(compute_strided(name, isa, strided, spread, N));
      for (int i = 0; i < N; i++)
        cr_assert(same(strided[2 * i], together[i]), "%s(%a) in instruction set %d: %a strided, %a dense", name,
                  (double)a[i], isa, (double)strided[2 * i], (double)together[i]);
    }
  }
}

Test(kernel_float, sin_cos_and_tan_do_not_depend_on_adjacent_elements) {
  static const char *const names[] = {"sin_f32_contig", "cos_f32_contig", "tan_f32_contig"};
  static float near[CHUNK], mixed[CHUNK], alone[CHUNK], among[CHUNK];
  for (int i = 0; i < CHUNK; i++) near[i] = mixed[i] = (float)i * 1.37f - 2000.0f;
  for (int i = 5; i < CHUNK; i += 300) mixed[i] = 0x1p30f + (float)i * 128;
  for (int f = 0; f < 3 * PK_ISA_COUNT; f++) {
    const char *name = names[f % 3];
    if (!compute(name, f / 3, alone, near, NULL, CHUNK)) continue;
    cr_assert(compute(name, f / 3, among, mixed, NULL, CHUNK));
    for (int i = 0; i < CHUNK; i++)
      cr_assert(mixed[i] != near[i] || same(alone[i], among[i]), "%s(%a)", name, (double)near[i]);
  }
}

/* Python's remainder and floor division: the result has the sign of the divisor. */
static double python_remainder(double x, double y) {
  const double r = fmod(x, y);
  return r != 0 && (r < 0) != (y < 0) ? r + y : r;
}
static double floor_division(double x, double y) {
  if (y == 0) return x / y;
  const double r = fmod(x, y), whole = (x - r) / y - (r != 0 && (r < 0) != (y < 0) ? 1 : 0);
  return whole == 0 ? copysign(0, x / y) : whole;
}
static double next_float(double x, double y) { return (double)nextafterf((float)x, (float)y); }

/* div_floor divides the operands rounded to float, like CPU PyTorch. For large arguments, tan calls the C library. */
static const struct {
  const char *name;
  double (*reference)(double, double);
  double ulps;
} binary_functions[] = {{"pow", pow, MAX_ULPS},
                        {"atan2", atan2, MAX_ULPS},
                        {"fmod", fmod, 0},
                        {"remainder", python_remainder, 0.5},
                        {"div_floor", floor_division, 2},
                        {"hypot", hypot, 0.51},
                        {"nextafter", next_float, 0}};
enum {
  BINARY_FUNCTIONS = sizeof binary_functions / sizeof binary_functions[0],
  WITH_SCALARS = 5 /* the first ones have kernels for a number in place of the second tensor */
};

static void check_binary(size_t f, float *a, float *b, uint64_t n) {
  static float out[CHUNK];
  char name[32];
  snprintf(name, sizeof name, "%s_f32_contig", binary_functions[f].name);
  for (int isa = PK_ISA_BASE; isa < PK_ISA_COUNT; isa++) compute_alike(name, isa, PK_ISA_BASE, out, a, b, n);
  compute(name, PK_ISA_BASE, out, a, b, n);
  for (uint64_t i = 0; i < n; i++) {
    const double want = binary_functions[f].reference((double)a[i], (double)b[i]), error = error_in_ulps(out[i], want);
    cr_assert_leq(error, binary_functions[f].ulps, "%s(%a, %a): got %a, want %a, %g ulps", name, (double)a[i],
                  (double)b[i], (double)out[i], want, error);
  }
}

static uint32_t random_bits(uint64_t *state) {
  *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (uint32_t)(*state >> 32);
}

/* Random bits, exponents with a finite power, numbers of similar size, small integers. */
static void random_operands(int kind, uint64_t *state, float *a, float *b) {
  for (int i = 0; i < CHUNK; i++) {
    const uint32_t first = random_bits(state), second = random_bits(state);
    a[i] = of_bits(first);
    if (kind == 0) {
      b[i] = of_bits(second);
    } else if (kind == 1) {
      const double power = ((double)second * 0x1p-32 - 0.5) * 300, exponent = power / log2(fabs((double)a[i]));
      b[i] = fabs(exponent) < (double)FLT_MAX ? (float)exponent : 0.5f;
    } else {
      a[i] = ldexpf(1 + (float)(first & 0x7fffff) * 0x1p-23f, (int)(first >> 23 & 15) - 7) * (first >> 31 ? -1 : 1);
      b[i] = kind == 2 ? (float)((int)(second % 41) - 20) : ldexpf((float)((int)(second & 0xffffff) - 0x800000), -20);
    }
  }
}

Test(kernel_float, binary_functions_are_within_their_error_and_follow_annex_f) {
  static float a[CHUNK], b[CHUNK];
  for (size_t f = 0; f < BINARY_FUNCTIONS; f++) {
    for (int i = 0; i < SPECIAL * SPECIAL; i++) a[i] = special[i / SPECIAL], b[i] = special[i % SPECIAL];
    check_binary(f, a, b, SPECIAL * SPECIAL);
    uint64_t state = 1;
    for (int chunk = 0; chunk < 800; chunk++) {
      random_operands(chunk % 4, &state, a, b);
      check_binary(f, a, b, CHUNK);
    }
  }
}

/* Quotients on both sides of the limit of the fast path, close to integers. */
Test(kernel_float, remainders_next_to_whole_quotients_are_exact) {
  static float a[CHUNK], b[CHUNK];
  uint64_t state = 7;
  for (int chunk = 0; chunk < 200; chunk++) {
    for (int i = 0; i < CHUNK; i++) {
      const uint32_t first = random_bits(&state), second = random_bits(&state);
      b[i] = ldexpf((float)(1 + (first & 0xffffff)), (int)(first >> 24) % 40 - 30) * (second & 1 ? -1 : 1);
      const double quotient = floor(ldexp(1 + (double)(second >> 9) * 0x1p-23, (int)(chunk % 30)));
      const float product = (float)((double)b[i] * quotient);
      a[i] = second & 2 ? nextafterf(product, INFINITY) : second & 4 ? nextafterf(product, -INFINITY) : product;
    }
    for (size_t f = 2; f < BINARY_FUNCTIONS; f++) check_binary(f, a, b, CHUNK);
  }
}

Test(kernel_float, a_scalar_operand_produces_the_same_bits_as_a_tensor_operand) {
  static const float numbers[] = {2.5f, -3.0f, 0.0f, INFINITY, NAN, 1e-30f};
  static float a[CHUNK], b[CHUNK], tensor[CHUNK], number[CHUNK];
  for (int i = 0; i < CHUNK; i++) a[i] = i < SPECIAL ? special[i] : (float)i * 0.37f - 600.0f;
  for (size_t f = 0; f < WITH_SCALARS; f++) {
    for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++) {
      char name[32];
      for (int i = 0; i < CHUNK; i++) b[i] = numbers[k];
      snprintf(name, sizeof name, "%s_f32_contig", binary_functions[f].name);
      for (int isa = PK_ISA_BASE; isa < PK_ISA_COUNT; isa++) {
        if (!compute(name, isa, tensor, a, b, CHUNK)) continue;
        char form[40];
        snprintf(form, sizeof form, "%s_s", name);
        float *out = number, *in = a, value = numbers[k], zero = 0;
        uint64_t n = CHUNK - 3;
        void *args[] = {&out, &in, &value, &zero, &n};
        const hal_host_range_t range = {.begin = 5, .end = CHUNK};
        pk_host_kernel_fn(form, isa)(&range, args);
        for (uint64_t i = 5; i < n; i++)
          cr_assert(same(tensor[i], number[i]), "%s(%a, %a)", form, (double)a[i], (double)numbers[k]);
      }
    }
  }
}
