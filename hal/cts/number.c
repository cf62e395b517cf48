/* number.c: numbers of all dtypes that cases compute with, as doubles or 64-bit integers. Written from the formats, so that no
 * conversion of the host's is believed. */
#include <math.h>

#include "cts.h"

int cts_is_float(hal_dtype_t dtype) {
  return dtype == HAL_FLOAT16 || dtype == HAL_BFLOAT16 || dtype == HAL_FLOAT32 || dtype == HAL_FLOAT64;
}

size_t cts_dtype_size(hal_dtype_t dtype) {
  switch (dtype) {
    case HAL_BOOL:
    case HAL_UINT8:
    case HAL_INT8:
      return 1;
    case HAL_FLOAT16:
    case HAL_BFLOAT16:
    case HAL_INT16:
      return 2;
    case HAL_FLOAT32:
    case HAL_INT32:
      return 4;
    default:
      return 8;
  }
}

const char *cts_dtype_name(hal_dtype_t dtype) {
  switch (dtype) {
    case HAL_BOOL:
      return "bool";
    case HAL_UINT8:
      return "uint8";
    case HAL_INT8:
      return "int8";
    case HAL_INT16:
      return "int16";
    case HAL_INT32:
      return "int32";
    case HAL_INT64:
      return "int64";
    case HAL_FLOAT16:
      return "float16";
    case HAL_BFLOAT16:
      return "bfloat16";
    case HAL_FLOAT32:
      return "float32";
    case HAL_FLOAT64:
      return "float64";
    default:
      return "another dtype";
  }
}

double cts_dtype_step(hal_dtype_t dtype) {
  switch (dtype) {
    case HAL_FLOAT16:
      return 0x1p-10;
    case HAL_BFLOAT16:
      return 0x1p-7;
    case HAL_FLOAT32:
      return 0x1p-23;
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

/* Rounded to the nearest that the format has, halves to even (the default of rint). */
static uint16_t to_16_bits(double value, int fraction_bits) {
  const int exponent_bits = 15 - fraction_bits, bias = (1 << (exponent_bits - 1)) - 1;
  const uint16_t sign = signbit(value) ? 0x8000 : 0;
  int exponent = 0;
  if (isnan(value)) return (uint16_t)(sign | 0x7fff);
  if (isinf(value)) return (uint16_t)(sign | ((1 << exponent_bits) - 1) << fraction_bits);
  frexp(value, &exponent); /* |value| lies in [2^(exponent-1), 2^exponent) */
  const int least = 1 - bias, scale = (exponent - 1 < least ? least : exponent - 1) - fraction_bits;
  const double steps = value == 0 ? 0 : rint(ldexp(fabs(value), -scale));
  /* The step in front of the fraction adds one to the exponent, as does a fraction that was rounded up to the next power of two. */
  const long bits =
      (long)steps +
      (steps >= (double)(1 << fraction_bits) ? (long)(scale + fraction_bits - least) << fraction_bits : 0);
  const long infinity = (long)((1 << exponent_bits) - 1) << fraction_bits;
  return (uint16_t)(sign | (uint16_t)(bits > infinity ? infinity : bits));
}

cts_number_t cts_number_read(hal_dtype_t dtype, const void *from) {
  cts_number_t number = {0, 0};
  uint16_t bits;
  float single;
#define READ_INTEGER(type)                  \
  do {                                      \
    type integer;                           \
    memcpy(&integer, from, sizeof integer); \
    number.i = (int64_t)integer;            \
    number.d = (double)integer;             \
  } while (0)
  switch (dtype) {
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
  switch (dtype) {
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
