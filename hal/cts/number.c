/* number.c: numbers of all dtypes that cases compute with, as doubles or 64-bit integers. Written from the formats, so
 * that it does not depend on conversions of the host. */
#include <math.h>

#include "cts.h"

int cts_is_float(hal_dtype_t dtype) {
  return dtype == HAL_FLOAT16 || dtype == HAL_BFLOAT16 || dtype == HAL_FLOAT32 || dtype == HAL_FLOAT64;
}

static const struct {
  const char *name;
  uint8_t size;
} types[] = {[HAL_UINT8] = {"uint8", 1},
             [HAL_INT8] = {"int8", 1},
             [HAL_INT16] = {"int16", 2},
             [HAL_INT32] = {"int32", 4},
             [HAL_INT64] = {"int64", 8},
             [HAL_FLOAT16] = {"float16", 2},
             [HAL_FLOAT32] = {"float32", 4},
             [HAL_FLOAT64] = {"float64", 8},
             [HAL_COMPLEX32] = {"complex32", 4},
             [HAL_COMPLEX64] = {"complex64", 8},
             [HAL_COMPLEX128] = {"complex128", 16},
             [HAL_BOOL] = {"bool", 1},
             [HAL_BFLOAT16] = {"bfloat16", 2},
             [HAL_FLOAT8_E5M2] = {"float8_e5m2", 1},
             [HAL_FLOAT8_E4M3FN] = {"float8_e4m3fn", 1},
             [HAL_FLOAT8_E5M2FNUZ] = {"float8_e5m2fnuz", 1},
             [HAL_FLOAT8_E4M3FNUZ] = {"float8_e4m3fnuz", 1},
             [HAL_UINT16] = {"uint16", 2},
             [HAL_UINT32] = {"uint32", 4},
             [HAL_UINT64] = {"uint64", 8}};

static int is_known(hal_dtype_t dtype) {
  return dtype >= 0 && (size_t)dtype < sizeof types / sizeof *types && types[dtype].name;
}

size_t cts_dtype_size(hal_dtype_t dtype) { return is_known(dtype) ? types[dtype].size : 8; }

const char *cts_dtype_name(hal_dtype_t dtype) { return is_known(dtype) ? types[dtype].name : "another dtype"; }

int cts_is_complex(hal_dtype_t dtype) {
  return dtype == HAL_COMPLEX32 || dtype == HAL_COMPLEX64 || dtype == HAL_COMPLEX128;
}

int cts_is_float8(hal_dtype_t dtype) {
  return dtype == HAL_FLOAT8_E5M2 || dtype == HAL_FLOAT8_E4M3FN || dtype == HAL_FLOAT8_E5M2FNUZ ||
         dtype == HAL_FLOAT8_E4M3FNUZ;
}

double cts_dtype_step(hal_dtype_t dtype) {
  switch (dtype) {
    case HAL_FLOAT16:
    case HAL_COMPLEX32:
      return 0x1p-10;
    case HAL_BFLOAT16:
      return 0x1p-7;
    case HAL_FLOAT32:
    case HAL_COMPLEX64:
      return 0x1p-23;
    case HAL_FLOAT8_E4M3FN:
    case HAL_FLOAT8_E4M3FNUZ:
      return 0x1p-3;
    case HAL_FLOAT8_E5M2:
    case HAL_FLOAT8_E5M2FNUZ:
      return 0x1p-2;
    default:
      return 0x1p-52;
  }
}

/* Sign, exponent and fraction of a format of 16 bits. */
static double from_16_bits(uint16_t bits, int fraction_bits) {
  const int exponent_bits = 15 - fraction_bits, bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = (bits >> fraction_bits) & ((1 << exponent_bits) - 1),
            fraction = bits & ((1 << fraction_bits) - 1);
  double value;
  if (exponent == (1 << exponent_bits) - 1)
    value = fraction ? (double)NAN : (double)INFINITY;
  else if (exponent == 0)
    value = ldexp(fraction, 1 - bias - fraction_bits);
  else
    value = ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits);
  return bits >> 15 ? -value : value;
}

/* Rounds to the nearest number of the format, halves to even (the default of rint). */
static uint16_t to_16_bits(double value, int fraction_bits) {
  const int exponent_bits = 15 - fraction_bits, bias = (1 << (exponent_bits - 1)) - 1;
  const uint16_t sign = signbit(value) ? 0x8000 : 0;
  int exponent = 0;
  if (isnan(value)) return (uint16_t)(sign | 0x7fff);
  if (isinf(value)) return (uint16_t)(sign | ((1 << exponent_bits) - 1) << fraction_bits);
  frexp(value, &exponent); /* |value| is in [2^(exponent-1), 2^exponent) */
  const int least = 1 - bias, scale = (exponent - 1 < least ? least : exponent - 1) - fraction_bits;
  const double steps = value == 0 ? 0 : rint(ldexp(fabs(value), -scale));
  /* The implicit 1 of the fraction increments the exponent, and so does a fraction that was rounded up to the next
   * power of two. */
  const long bits =
      (long)steps +
      (steps >= (double)(1 << fraction_bits) ? (long)(scale + fraction_bits - least) << fraction_bits : 0);
  const long infinity = (long)((1 << exponent_bits) - 1) << fraction_bits;
  return (uint16_t)(sign | (uint16_t)(bits > infinity ? infinity : bits));
}

/* ---- formats of 8 bits ---- */

static double from_8_bits(hal_dtype_t dtype, uint8_t bits) {
  const int is_e5m2 = dtype == HAL_FLOAT8_E5M2 || dtype == HAL_FLOAT8_E5M2FNUZ;
  const int is_fnuz = dtype == HAL_FLOAT8_E5M2FNUZ || dtype == HAL_FLOAT8_E4M3FNUZ;
  const int fraction_bits = is_e5m2 ? 2 : 3, bias = (is_e5m2 ? 15 : 7) + is_fnuz;
  const int exponent = (bits & 0x7f) >> fraction_bits, fraction = bits & ((1 << fraction_bits) - 1);
  if (is_fnuz ? bits == 0x80 : dtype == HAL_FLOAT8_E4M3FN ? (bits & 0x7f) == 0x7f : exponent == 31 && fraction)
    return (double)NAN;
  if (dtype == HAL_FLOAT8_E5M2 && exponent == 31) return bits >> 7 ? -(double)INFINITY : (double)INFINITY;
  const double value = exponent ? ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits)
                                : ldexp(fraction, 1 - bias - fraction_bits);
  return bits >> 7 ? -value : value;
}

/* The nearest of all finite numbers, of two the even one. */
static uint8_t to_8_bits(hal_dtype_t dtype, double value) {
  const int has_zero_of_sign = dtype == HAL_FLOAT8_E5M2 || dtype == HAL_FLOAT8_E4M3FN;
  uint8_t best = 0;
  if (isnan(value)) return has_zero_of_sign ? 0x7f : 0x80;
  for (uint8_t bits = 1; bits < 0x80; bits++) {
    const double is = fabs(from_8_bits(dtype, bits) - fabs(value)), was = fabs(from_8_bits(dtype, best) - fabs(value));
    if (isfinite(from_8_bits(dtype, bits)) && (is < was || (is == was && bits % 2 == 0))) best = bits;
  }
  return signbit(value) && (best || has_zero_of_sign) ? best | 0x80 : best;
}

/* ---- all formats ---- */

/* The type of both parts of a complex number. */
static hal_dtype_t part_of(hal_dtype_t dtype) {
  return dtype == HAL_COMPLEX32 ? HAL_FLOAT16 : dtype == HAL_COMPLEX64 ? HAL_FLOAT32 : HAL_FLOAT64;
}

cts_number_t cts_number_read(hal_dtype_t dtype, const void *from) {
  cts_number_t number = {0, 0, 0};
  uint16_t bits;
  float single;
#define READ_INTEGER(type)                  \
  do {                                      \
    type integer;                           \
    memcpy(&integer, from, sizeof integer); \
    number.i = (int64_t)integer;            \
    number.d = (double)integer;             \
  } while (0)
  if (cts_is_complex(dtype)) {
    const hal_dtype_t part = part_of(dtype);
    number.d = cts_number_read(part, from).d;
    number.im = cts_number_read(part, (const uint8_t *)from + cts_dtype_size(part)).d;
    return number;
  }
  switch (dtype) {
    case HAL_FLOAT8_E5M2:
    case HAL_FLOAT8_E4M3FN:
    case HAL_FLOAT8_E5M2FNUZ:
    case HAL_FLOAT8_E4M3FNUZ:
      number.d = from_8_bits(dtype, *(const uint8_t *)from);
      break;
    case HAL_UINT16:
      READ_INTEGER(uint16_t);
      break;
    case HAL_UINT32:
      READ_INTEGER(uint32_t);
      break;
    case HAL_UINT64:
      READ_INTEGER(uint64_t);
      break;
    case HAL_FLOAT16:
      memcpy(&bits, from, 2), number.d = from_16_bits(bits, 10);
      break;
    case HAL_BFLOAT16:
      memcpy(&bits, from, 2), number.d = from_16_bits(bits, 7);
      break;
    case HAL_FLOAT32:
      memcpy(&single, from, 4), number.d = (double)single;
      break;
    case HAL_FLOAT64:
      memcpy(&number.d, from, 8);
      break;
    case HAL_BOOL:
    case HAL_UINT8:
      READ_INTEGER(uint8_t);
      break;
    case HAL_INT8:
      READ_INTEGER(int8_t);
      break;
    case HAL_INT16:
      READ_INTEGER(int16_t);
      break;
    case HAL_INT32:
      READ_INTEGER(int32_t);
      break;
    default:
      READ_INTEGER(int64_t);
      break;
  }
#undef READ_INTEGER
  return number;
}

void cts_number_write(hal_dtype_t dtype, cts_number_t number, void *to) {
  uint16_t bits;
  const float single = (float)number.d;
  if (cts_is_complex(dtype)) {
    const hal_dtype_t part = part_of(dtype);
    cts_number_write(part, (cts_number_t){.d = number.d}, to);
    cts_number_write(part, (cts_number_t){.d = number.im}, (uint8_t *)to + cts_dtype_size(part));
    return;
  }
  switch (dtype) {
    case HAL_FLOAT8_E5M2:
    case HAL_FLOAT8_E4M3FN:
    case HAL_FLOAT8_E5M2FNUZ:
    case HAL_FLOAT8_E4M3FNUZ:
      *(uint8_t *)to = to_8_bits(dtype, number.d);
      break;
    case HAL_FLOAT16:
      bits = to_16_bits(number.d, 10), memcpy(to, &bits, 2);
      break;
    case HAL_BFLOAT16:
      bits = to_16_bits(number.d, 7), memcpy(to, &bits, 2);
      break;
    case HAL_FLOAT32:
      memcpy(to, &single, 4);
      break;
    case HAL_FLOAT64:
      memcpy(to, &number.d, 8);
      break;
    case HAL_BOOL:
      *(uint8_t *)to = number.i != 0;
      break;
    default:
      memcpy(to, &number.i, cts_dtype_size(dtype));
      break; /* little-endian: modulo 2^n */
  }
}
