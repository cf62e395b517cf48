/* random.h: converts Philox words to numbers by the formulas at hal_random_t in plugin.h. It is the reference for every
 * kernel: the archive's default of random_fill uses it on the host. Compiled with -ffp-contract=off, since a fused
 * multiply-add would change bits. */
#ifndef HAL_SDK_RANDOM_H_
#define HAL_SDK_RANDOM_H_

#include <math.h>
#include <string.h>

#include "hal/plugin.h"
#include "philox.h"

/* Returns the size of an element that the default supports, 0 for other dtypes. */
static inline size_t hal_random_element_size(hal_dtype_t dtype) {
  switch (dtype) {
    case HAL_BOOL:
    case HAL_INT8:
    case HAL_UINT8:
      return 1;
    case HAL_INT16:
    case HAL_UINT16:
    case HAL_FLOAT16:
    case HAL_BFLOAT16:
      return 2;
    case HAL_INT32:
    case HAL_UINT32:
    case HAL_FLOAT32:
      return 4;
    case HAL_INT64:
    case HAL_UINT64:
    case HAL_FLOAT64:
      return 8;
    default:
      return 0;
  }
}

static inline int hal_random_is_float(hal_dtype_t dtype) {
  return dtype == HAL_FLOAT16 || dtype == HAL_BFLOAT16 || dtype == HAL_FLOAT32 || dtype == HAL_FLOAT64;
}

/* Rounds to IEEE binary16, ties to even. Works on double, so that a number is rounded once. */
static inline uint16_t hal_random_to_half(double value) {
  const uint16_t sign = signbit(value) ? 0x8000u : 0;
  const double magnitude = fabs(value);
  if (isnan(value)) return sign | 0x7E00u;
  if (magnitude >= 65520.0) return sign | 0x7C00u; /* rounds past the largest half, 65504 */
  int exponent = -14;                              /* the smallest normal exponent: subnormals have its spacing */
  if (magnitude >= 0x1p-14) exponent = ilogb(magnitude);
  const double steps = nearbyint(ldexp(magnitude, 10 - exponent)); /* 10: bits of the fraction */
  /* Adding propagates a carry of the rounding to the exponent. */
  const uint32_t bits = magnitude >= 0x1p-14 ? (uint32_t)(exponent + 14) * 1024u + (uint32_t)steps : (uint32_t)steps;
  return sign | (uint16_t)bits;
}

/* Rounds to bfloat16, ties to even, through round-to-odd in float, which makes the second rounding exact. */
static inline uint16_t hal_random_to_bfloat16(double value) {
  float narrow = (float)value;
  uint32_t bits;
  memcpy(&bits, &narrow, sizeof bits);
  if (isnan(value)) return 0x7FC0u;
  if (isfinite(narrow) && (double)narrow != value) {
    if (fabs((double)narrow) > fabs(value)) bits--; /* truncate */
    bits |= 1;                                      /* and make odd: "inexact" */
  }
  return (uint16_t)((bits + 0x7FFFu + ((bits >> 16) & 1)) >> 16);
}

static inline uint64_t hal_random_wide_word(const uint32_t words[4], unsigned element) {
  return words[2 * element] | (uint64_t)words[2 * element + 1] << 32;
}

/* The number u of plugin.h. */
static inline double hal_random_unit(hal_dtype_t dtype, const uint32_t words[4], unsigned element) {
  switch (dtype) {
    case HAL_FLOAT64:
    case HAL_INT64:
    case HAL_UINT64:
      return (double)(hal_random_wide_word(words, element) >> 11) * 0x1p-53;
    case HAL_FLOAT16:
      return (double)(words[element] >> 21) * 0x1p-11;
    case HAL_BFLOAT16:
      return (double)(words[element] >> 24) * 0x1p-8;
    default:
      return (double)(words[element] >> 8) * 0x1p-24;
  }
}

static inline double hal_random_normal(hal_dtype_t dtype, const uint32_t words[4], unsigned element) {
  const unsigned even = element & ~1u;
  double a, b;
  if (dtype == HAL_FLOAT64) {
    a = (double)((hal_random_wide_word(words, even) >> 11) + 1) * 0x1p-53;
    b = (double)(hal_random_wide_word(words, even + 1) >> 11) * 0x1p-53;
  } else {
    a = ((double)words[even] + 1.0) * 0x1p-32;
    b = (double)words[even + 1] * 0x1p-32;
  }
  const double pi = 3.14159265358979323846, r = sqrt(-2.0 * log(a)), angle = 2.0 * pi * b;
  return r * (element & 1 ? sin(angle) : cos(angle));
}

static inline double hal_random_uniform(const hal_random_t *desc, const uint32_t words[4], unsigned element) {
  const double u = hal_random_unit(desc->dtype, words, element);
  if (desc->dtype == HAL_FLOAT64) {
    const double wide = desc->p0 + (desc->p1 - desc->p0) * u;
    return wide >= desc->p1 ? desc->p0 : wide;
  }
  const float low = (float)desc->p0, range = (float)(desc->p1 - desc->p0), high = (float)desc->p1;
  const float scaled = range * (float)u, number = low + scaled;
  return number >= high ? low : number;
}

/* One element as a double; for HAL_RANDOM_BITS see hal_random_store_bits. */
static inline double hal_random_number(const hal_random_t *desc, const uint32_t words[4], unsigned element) {
  switch (desc->distribution) {
    case HAL_RANDOM_UNIFORM:
      return hal_random_uniform(desc, words, element);
    case HAL_RANDOM_NORMAL:
      return desc->p0 + desc->p1 * hal_random_normal(desc->dtype, words, element);
    default: {
      const int wide = hal_random_element_size(desc->dtype) == 8;
      return hal_random_unit(wide ? HAL_FLOAT64 : HAL_FLOAT32, words, element) < desc->p0;
    }
  }
}

static inline void hal_random_store(hal_dtype_t dtype, uint8_t *out, double value) {
  switch (dtype) {
    case HAL_FLOAT64:
      memcpy(out, &value, 8);
      return;
    case HAL_FLOAT32: {
      const float narrow = (float)value;
      memcpy(out, &narrow, 4);
      return;
    }
    case HAL_FLOAT16:
    case HAL_BFLOAT16: {
      const uint16_t bits = dtype == HAL_FLOAT16 ? hal_random_to_half(value) : hal_random_to_bfloat16(value);
      memcpy(out, &bits, 2);
      return;
    }
    default: { /* integers and bool, which only bernoulli reaches */
      const uint64_t integer = value != 0;
      for (size_t i = 0; i < hal_random_element_size(dtype); i++) out[i] = (uint8_t)(integer >> (8 * i));
    }
  }
}

static inline void hal_random_store_bits(hal_dtype_t dtype, uint8_t *out, const uint32_t words[4], unsigned element) {
  const size_t size = hal_random_element_size(dtype);
  const uint64_t wide = size == 8 ? hal_random_wide_word(words, element) : words[element];
  const uint64_t bits = dtype == HAL_BOOL ? wide & 1 : wide;
  for (size_t i = 0; i < size; i++) out[i] = (uint8_t)(bits >> (8 * i)); /* little endian, as all supported devices */
}

/* Returns whether the default supports this distribution in this dtype. */
static inline int hal_random_is_supported(const hal_random_t *desc) {
  switch (desc->distribution) {
    case HAL_RANDOM_UNIFORM:
    case HAL_RANDOM_NORMAL:
      return hal_random_is_float(desc->dtype);
    case HAL_RANDOM_BERNOULLI:
      return hal_random_element_size(desc->dtype) != 0;
    case HAL_RANDOM_BITS:
      return hal_random_element_size(desc->dtype) != 0 && !hal_random_is_float(desc->dtype);
    default:
      return 0;
  }
}

/* Writes `count` elements, beginning with the first one of block `first_block`, to host memory. */
static inline void hal_random_generate(const hal_random_t *desc, uint64_t first_block, size_t count, uint8_t *out) {
  const size_t size = hal_random_element_size(desc->dtype), per_block = size == 8 ? 2 : 4;
  for (size_t done = 0; done < count; done += per_block) {
    uint32_t words[4];
    hal_philox_block(desc->seed, desc->offset + first_block + done / per_block, 0, words);
    for (unsigned element = 0; element < per_block && done + element < count; element++) {
      uint8_t *const target = out + (done + element) * size;
      if (desc->distribution == HAL_RANDOM_BITS)
        hal_random_store_bits(desc->dtype, target, words, element);
      else
        hal_random_store(desc->dtype, target, hal_random_number(desc, words, element));
    }
  }
}

#endif /* HAL_SDK_RANDOM_H_ */
