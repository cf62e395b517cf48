/* own_ops.h: operators in plain C on memory that the host can access, correct and with faults, for the plugins of
   this folder and ../broken. */
#ifndef TEST_CTS_OWN_OPS_H_
#define TEST_CTS_OWN_OPS_H_

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "hal/plugin.h"

enum own_fault {
  OWN_NO_FAULT,
  OWN_HALF_IS_BFLOAT,   /* float16 is read and written as bfloat16 */
  OWN_DOUBLE_IS_FLOAT,  /* float64 is computed in float32 */
  OWN_LONG_IS_DOUBLE,   /* int64 is computed in float64 */
  OWN_WORD_SATURATES,   /* int32 does not wrap */
  OWN_BYTE_IS_SIGNED,   /* uint8 is read as int8 */
  OWN_BOOL_IS_NUMBER,   /* a bool becomes 2 or 3 */
  OWN_GRADIENT_SWAPPED, /* the gradient is used as the output */
  OWN_POINT_IS_EMPTY,   /* a tensor without dimensions has no elements */
  OWN_RESULT_IS_DENSE,  /* the result's strides are ignored */
  OWN_FIVE_ARE_FOUR,    /* of five dimensions the first is treated as 1 */
  OWN_IGNORES_STREAM,   /* computes at once */
  OWN_FORGETS_NAN,      /* the larger of NaN and a number is the number */
  OWN_ZERO_IS_POSITIVE, /* a zero has no sign */
  OWN_HALF_SATURATES,   /* float16 has no infinities */
  OWN_CLEARS_FIRST,     /* the result is cleared before the operands are read */
  OWN_EMPTY_IS_ONE,     /* a tensor without elements has one */
};
static hal_status_t (*own_synchronize)(hal_plugin_stream_t *stream)
    __attribute__((unused)); /* of the device, defined by the including file */
typedef struct own_op_s {
  const char *name;
  enum { OWN_ADD, OWN_MUL, OWN_MAXIMUM, OWN_EQ, OWN_NEG, OWN_TANH_BACKWARD, OWN_THRESHOLD_BACKWARD } op;
  enum own_fault fault;
} own_op_t;

static inline double own_half(uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const double size = exponent == 31 ? (fraction ? (double)NAN : (double)INFINITY)
                      : exponent     ? ldexp(1024 + fraction, exponent - 25)
                                     : ldexp(fraction, -24);
  return bits >> 15 ? -size : size;
}
static inline uint16_t own_to_half(double value) { /* the nearest one, by bisection of the list of all */
  uint16_t low = 0, high = 0x7bff;
  if (isnan(value)) return 0x7e00;
  if (fabs(value) >= 65520) return signbit(value) ? 0xfc00 : 0x7c00; /* half a step above the largest */
  while (high - low > 1) {
    const uint16_t middle = (uint16_t)((low + high) / 2);
    if (own_half(middle) <= fabs(value))
      low = middle;
    else
      high = middle;
  }
  const uint16_t near = fabs(value) - own_half(low) < own_half(high) - fabs(value) ? low : high;
  return (uint16_t)(near | (signbit(value) ? 0x8000 : 0));
}

static inline double own_read(const own_op_t *own, hal_dtype_t dtype, const void *from) {
  uint16_t half;
  uint32_t word;
  float single;
  double value = 0;
  if (dtype == HAL_FLOAT16 && own->fault == OWN_HALF_IS_BFLOAT) dtype = HAL_BFLOAT16;
  switch (dtype) {
    case HAL_FLOAT16:
      return memcpy(&half, from, 2), own_half(half);
    case HAL_BFLOAT16:
      memcpy(&half, from, 2), word = (uint32_t)half << 16;
      return memcpy(&single, &word, 4), (double)single;
    case HAL_FLOAT32:
      return memcpy(&single, from, 4), (double)single;
    default:
      memcpy(&value, from, 8);
      return own->fault == OWN_DOUBLE_IS_FLOAT ? (double)(float)value : value;
  }
}
static inline void own_write(const own_op_t *own, hal_dtype_t dtype, double value, void *to) {
  uint16_t half;
  uint32_t word;
  const float single = (float)value;
  if (dtype == HAL_FLOAT16 && own->fault == OWN_HALF_IS_BFLOAT) dtype = HAL_BFLOAT16;
  switch (dtype) {
    case HAL_FLOAT16:
      half = own_to_half(own->fault == OWN_HALF_SATURATES ? fmax(fmin(value, 65504), -65504) : value);
      memcpy(to, &half, 2);
      return;
    case HAL_BFLOAT16:
      memcpy(&word, &single, 4), half = (uint16_t)((word + 0x7fff + (word >> 16 & 1)) >> 16), memcpy(to, &half, 2);
      return;
    case HAL_FLOAT32:
      memcpy(to, &single, 4);
      return;
    default:
      memcpy(to, &value, 8);
  }
}
static inline size_t own_size(hal_dtype_t dtype) {
  return dtype == HAL_BOOL || dtype == HAL_UINT8         ? 1
         : dtype == HAL_FLOAT16 || dtype == HAL_BFLOAT16 ? 2
         : dtype == HAL_FLOAT32 || dtype == HAL_INT32    ? 4
                                                         : 8;
}
static inline int64_t own_read_whole(const own_op_t *own, hal_dtype_t dtype, const void *from) {
  int32_t word;
  int64_t whole;
  if (dtype == HAL_UINT8 && own->fault == OWN_BYTE_IS_SIGNED) return *(const int8_t *)from;
  if (own_size(dtype) == 1) return *(const uint8_t *)from;
  if (dtype == HAL_INT32) return memcpy(&word, from, 4), word;
  return memcpy(&whole, from, 8), whole;
}

static inline size_t own_place(const hal_tensor_t *tensor, int64_t index) {
  int64_t at = 0;
  for (int32_t i = tensor->ndim - 1; i >= 0; index /= tensor->sizes[i--])
    at += index % tensor->sizes[i] * tensor->strides[i];
  return (size_t)at * own_size(tensor->dtype);
}

static inline double own_real(const own_op_t *own, double a, double b) {
  const double swap = own->fault == OWN_GRADIENT_SWAPPED ? b : a, with = own->fault == OWN_GRADIENT_SWAPPED ? a : b;
  switch (own->op) {
    case OWN_ADD:
      return a + 2 * b;
    case OWN_MUL:
      return a * b;
    case OWN_MAXIMUM:
      return own->fault == OWN_FORGETS_NAN ? (a > b ? a : b) : isnan(a) || a > b ? a : b;
    case OWN_EQ:
      return a == b;
    case OWN_NEG:
      return own->fault == OWN_ZERO_IS_POSITIVE ? 0 - a : -a;
    case OWN_TANH_BACKWARD:
      return swap * (1 - with * with);
    default:
      return with <= 1 ? 0 : swap;
  }
}
static inline int64_t own_whole(const own_op_t *own, hal_dtype_t dtype, int64_t a, int64_t b) {
  const uint64_t x = (uint64_t)a, y = (uint64_t)b;
  if (dtype == HAL_INT64 && own->fault == OWN_LONG_IS_DOUBLE && own->op == OWN_MAXIMUM)
    return (int64_t)own_real(own, (double)(a / 2), (double)(b / 2)) * 2;
  const int64_t whole = own->op == OWN_ADD       ? (int64_t)(x + 2 * y)
                        : own->op == OWN_MUL     ? (int64_t)(x * y)
                        : own->op == OWN_MAXIMUM ? (a > b ? a : b)
                        : own->op == OWN_EQ      ? a == b
                                                 : (int64_t)(0 - x);
  if (dtype == HAL_INT32 && own->fault == OWN_WORD_SATURATES && own->op == OWN_ADD)
    return whole > INT32_MAX ? INT32_MAX : whole < INT32_MIN ? INT32_MIN : whole;
  return whole;
}

/* add.Tensor with alpha 2 and threshold_backward with threshold 1 only, as the suite calls them; others are
   declined. */
static inline hal_status_t own_run(void *state, const hal_op_call_t *call) {
  const own_op_t *const own = state;
  const hal_tensor_t *const result = call->results[0], *const a = call->args[0].u.t,
                            *const b = call->args[1].tag == HAL_VALUE_TENSOR ? call->args[1].u.t : a;
  const hal_dtype_t dtype = a->dtype;
  const int real = dtype == HAL_FLOAT16 || dtype == HAL_BFLOAT16 || dtype == HAL_FLOAT32 || dtype == HAL_FLOAT64;
  int64_t count = 1;
  if (b->dtype != dtype || a->ndim != result->ndim || b->ndim != result->ndim) return HAL_UNIMPLEMENTED;
  if (own->op == OWN_ADD && (call->args[2].tag != HAL_VALUE_INT || call->args[2].u.i != 2)) return HAL_UNIMPLEMENTED;
  for (int32_t i = 0; i < result->ndim; i++)
    count *= result->ndim == 5 && !i && own->fault == OWN_FIVE_ARE_FOUR ? 1 : result->sizes[i];
  if (!result->ndim && own->fault == OWN_POINT_IS_EMPTY) count = 0;
  if (!count && own->fault == OWN_EMPTY_IS_ONE) memset(result->data, 0, own_size(result->dtype));
  if (own->fault != OWN_IGNORES_STREAM) own_synchronize(call->stream);
  for (int64_t i = 0; i < count && own->fault == OWN_CLEARS_FIRST; i++)
    memset((uint8_t *)result->data + own_place(result, i), 0, own_size(result->dtype));
  for (int64_t i = 0; i < count; i++) {
    uint8_t *const to =
        (uint8_t *)result->data +
        (own->fault == OWN_RESULT_IS_DENSE ? (size_t)i * own_size(result->dtype) : own_place(result, i));
    const uint8_t *const x = (const uint8_t *)a->data + own_place(a, i), *const y =
                                                                             (const uint8_t *)b->data + own_place(b, i);
    const double value = real ? own_real(own, own_read(own, dtype, x), own_read(own, dtype, y)) : 0;
    const int64_t whole =
        real ? (int64_t)value : own_whole(own, dtype, own_read_whole(own, dtype, x), own_read_whole(own, dtype, y));
    if (result->dtype == HAL_BOOL)
      *to = (uint8_t)(own->fault == OWN_BOOL_IS_NUMBER ? whole : whole != 0);
    else if (real)
      own_write(own, dtype, value, to);
    else
      memcpy(to, &whole, own_size(dtype));
  }
  return HAL_OK;
}

/* Implements op_find of a device whose memory the host can access. */
static inline hal_status_t own_find(const char *name, enum own_fault fault, hal_op_own_t *out_op) {
  static own_op_t list[] = {{"add.Tensor", OWN_ADD, 0},
                            {"mul.Tensor", OWN_MUL, 0},
                            {"maximum", OWN_MAXIMUM, 0},
                            {"eq.Tensor", OWN_EQ, 0},
                            {"neg", OWN_NEG, 0},
                            {"tanh_backward", OWN_TANH_BACKWARD, 0},
                            {"threshold_backward", OWN_THRESHOLD_BACKWARD, 0}};
  const uint64_t floats = HAL_DTYPE_BIT(HAL_FLOAT16) | HAL_DTYPE_BIT(HAL_BFLOAT16) | HAL_DTYPE_BIT(HAL_FLOAT32) |
                          HAL_DTYPE_BIT(HAL_FLOAT64),
                 whole = HAL_DTYPE_BIT(HAL_INT32) | HAL_DTYPE_BIT(HAL_INT64) | HAL_DTYPE_BIT(HAL_UINT8),
                 truth = HAL_DTYPE_BIT(HAL_BOOL);
  for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
    if (strcmp(list[i].name, name)) continue;
    list[i].fault = fault;
    out_op->fn = own_run, out_op->state = &list[i], out_op->layouts = HAL_TAKES_ALL;
    out_op->dtypes = list[i].op >= OWN_TANH_BACKWARD                                          ? floats
                     : list[i].op == OWN_ADD || list[i].op == OWN_EQ || list[i].op == OWN_MUL ? floats | whole | truth
                                                                                              : floats | whole;
    return HAL_OK;
  }
  return HAL_NOT_FOUND;
}

#endif /* TEST_CTS_OWN_OPS_H_ */
