/* own.c: see own.h. */
#include "own.h"

#include <math.h>
#include <stdio.h>

#include "hal/status.h"

enum { ROOM = 12000 /* elements of an operand's memory */ };

/* ---- the operators that the suite knows, in doubles and in integers that wrap modulo 2^64 ---- */
enum { FLOATS = 1, INTEGERS = 2, BOOL = 4, SIGNED = FLOATS | INTEGERS, ANY = FLOATS | INTEGERS | BOOL };
enum { TWO = 1, ONE = 2 }; /* a number after the tensors: 2, as alpha is an integer, or 1.0 */

static double do_add(double a, double b) { return a + 2 * b; }
static double do_sub(double a, double b) { return a - 2 * b; }
static double do_mul(double a, double b) { return a * b; }
static double do_div(double a, double b) { return a / b; }
static double do_maximum(double a, double b) { return isnan(a) || a > b ? a : b; }
static double do_minimum(double a, double b) { return isnan(a) || a < b ? a : b; }
static double do_eq(double a, double b) { return a == b; }
static double do_lt(double a, double b) { return a < b; }
static double do_ge(double a, double b) { return a >= b; }
static double do_neg(double a, double b) { return (void)b, -a; }
static double do_abs(double a, double b) { return (void)b, fabs(a); }
static double do_exp(double a, double b) { return (void)b, exp(a); }
static double do_log(double a, double b) { return (void)b, log(a); }
static double do_relu(double a, double b) { return (void)b, a <= 0 ? 0 : a; }
static double do_tanh(double a, double b) { return (void)b, tanh(a); }
static double do_sqrt(double a, double b) { return (void)b, sqrt(a); }
static double do_reciprocal(double a, double b) { return (void)b, 1 / a; }
static double do_sigmoid(double a, double b) { return (void)b, 1 / (1 + exp(-a)); }
static double do_tanh_backward(double gradient, double output) { return gradient * (1 - output * output); }
static double do_sigmoid_backward(double gradient, double output) { return gradient * (1 - output) * output; }
static double do_threshold_backward(double gradient, double self) { return self <= 1 ? 0 : gradient; }

static uint64_t whole_add(int64_t a, int64_t b) { return (uint64_t)a + 2 * (uint64_t)b; }
static uint64_t whole_sub(int64_t a, int64_t b) { return (uint64_t)a - 2 * (uint64_t)b; }
static uint64_t whole_mul(int64_t a, int64_t b) { return (uint64_t)a * (uint64_t)b; }
static uint64_t whole_maximum(int64_t a, int64_t b) { return (uint64_t)(a > b ? a : b); }
static uint64_t whole_minimum(int64_t a, int64_t b) { return (uint64_t)(a < b ? a : b); }
static uint64_t whole_eq(int64_t a, int64_t b) { return a == b; }
static uint64_t whole_lt(int64_t a, int64_t b) { return a < b; }
static uint64_t whole_ge(int64_t a, int64_t b) { return a >= b; }
static uint64_t whole_neg(int64_t a, int64_t b) { return (void)b, 0 - (uint64_t)a; }
static uint64_t whole_abs(int64_t a, int64_t b) { return (void)b, a < 0 ? 0 - (uint64_t)a : (uint64_t)a; }
static uint64_t whole_relu(int64_t a, int64_t b) { return (void)b, (uint64_t)(a > 0 ? a : 0); }

/* Arguments as in the frozen list of codegen/operators: tensors, then the number if there is one. */
const cts_own_op_t cts_own_ops[CTS_OWN_OPS] = {
    {"add.Tensor", 2, TWO, ANY, 0, 0, do_add, whole_add},
    {"sub.Tensor", 2, TWO, SIGNED, 0, 0, do_sub, whole_sub},
    {"mul.Tensor", 2, 0, ANY, 0, 1, do_mul, whole_mul},
    {"div.Tensor", 2, 0, FLOATS, 0, 1, do_div, NULL},
    {"maximum", 2, 0, SIGNED, 0, 0, do_maximum, whole_maximum},
    {"minimum", 2, 0, SIGNED, 0, 0, do_minimum, whole_minimum},
    {"eq.Tensor", 2, 0, ANY, 1, 0, do_eq, whole_eq},
    {"lt.Tensor", 2, 0, ANY, 1, 0, do_lt, whole_lt},
    {"ge.Tensor", 2, 0, ANY, 1, 0, do_ge, whole_ge},
    {"neg", 1, 0, SIGNED, 0, 1, do_neg, whole_neg},
    {"abs", 1, 0, SIGNED, 0, 1, do_abs, whole_abs},
    {"exp", 1, 0, FLOATS, 0, 0, do_exp, NULL},
    {"log", 1, 0, FLOATS, 0, 0, do_log, NULL},
    {"relu", 1, 0, SIGNED, 0, 0, do_relu, whole_relu},
    {"tanh", 1, 0, FLOATS, 0, 0, do_tanh, NULL},
    {"sqrt", 1, 0, FLOATS, 0, 0, do_sqrt, NULL},
    {"reciprocal", 1, 0, FLOATS, 0, 0, do_reciprocal, NULL},
    {"sigmoid", 1, 0, FLOATS, 0, 0, do_sigmoid, NULL},
    {"tanh_backward", 2, 0, FLOATS, 0, 0, do_tanh_backward, NULL},
    {"sigmoid_backward", 2, 0, FLOATS, 0, 0, do_sigmoid_backward, NULL},
    {"threshold_backward", 2, ONE, FLOATS, 0, 0, do_threshold_backward, NULL}};

const hal_dtype_t cts_own_dtypes[CTS_OWN_DTYPES] = {HAL_FLOAT32, HAL_FLOAT64, HAL_FLOAT16, HAL_BFLOAT16, HAL_INT64,
                                                    HAL_INT32,   HAL_INT16,   HAL_INT8,    HAL_UINT8,    HAL_BOOL};

int cts_own_takes(int which, const hal_op_own_t *own, hal_dtype_t dtype) {
  const int kind = dtype == HAL_BOOL ? BOOL : cts_is_float(dtype) ? FLOATS : INTEGERS;
  if (!(cts_own_ops[which].takes & kind) || !(own->dtypes & HAL_DTYPE_BIT(dtype))) return 0;
  /* of all tensors, including the result */
  return !cts_own_ops[which].compares || (own->dtypes & HAL_DTYPE_BIT(HAL_BOOL));
}

hal_status_t cts_own_find(cts_t *t, const char *name, hal_op_own_t *out_own) {
  *out_own = (hal_op_own_t){.struct_size = HAL_STRUCT_SIZE(hal_op_own_t, query)};
  return cts_op_find(t, t->device, name, out_own);
}

uint32_t cts_own_arguments(int which, const hal_tensor_t *a, const hal_tensor_t *b, hal_value_t args[3]) {
  const int tensors = cts_own_ops[which].tensors, number = cts_own_ops[which].number;
  args[0] = (hal_value_t){.tag = HAL_VALUE_TENSOR, .u.t = a};
  args[1] = (hal_value_t){.tag = HAL_VALUE_TENSOR, .u.t = b};
  if (number == TWO) args[tensors] = (hal_value_t){.tag = HAL_VALUE_INT, .u.i = 2};
  if (number == ONE) args[tensors] = (hal_value_t){.tag = HAL_VALUE_DOUBLE, .u.d = 1};
  return (uint32_t)(tensors + (number != 0));
}

/* ---- operands ---- */
typedef struct operand_s {
  hal_tensor_t tensor;
  uint8_t *host;
  cts_layout_t layout;
  size_t size; /* bytes of an element */
} operand_t;

/* Extreme numbers of the floating-point dtypes. None is so small that a device may treat it as zero. */
static const double ends[] = {NAN, INFINITY, -INFINITY, 0, -0.0, 1, -1, 2.5, -0.5, 1e4, -1e4, 60000, 3e38, 1e300};

/* Returns floating-point numbers from 0.25 to 2.25, whose roots and quotients are valid, or integers of all sizes. */
static cts_number_t make_number(hal_dtype_t dtype, uint64_t noise, int how) {
  if (how & CTS_OWN_ENDS) return (cts_number_t){.d = ends[(noise >> 20) % (sizeof ends / sizeof ends[0])]};
  cts_number_t number = {.d = 0.25 + (double)(noise >> 11) * 0x1p-52, .i = (int64_t)noise >> 1};
  if (dtype == HAL_BOOL) number.i = (int64_t)(noise >> 60 & 1);
  if (noise & 1) number.d = 0.25 + (double)(noise >> 61) * 0.25, number.i %= 3; /* some are equal */
  return number;
}

static void make_operand(cts_t *t, operand_t *operand, const cts_shape_t *shape, cts_layout_t layout, hal_dtype_t dtype,
                         uint64_t seed, int how) {
  const size_t size = cts_dtype_size(dtype);
  uint64_t *const noise = (uint64_t *)(void *)cts_host(t, ROOM * sizeof *noise);
  *operand = (operand_t){.host = cts_host(t, ROOM * size), .layout = layout, .size = size};
  uint8_t *const device = cts_alloc(t, ROOM * size);
  cts_noise(noise, ROOM * sizeof *noise, seed);
  for (size_t i = 0; i < ROOM; i++)
    cts_number_write(dtype, make_number(dtype, noise[i], how), operand->host + i * size);
  free(noise);
  cts_put(t, NULL, device, operand->host, ROOM * size);
  operand->tensor = (hal_tensor_t){.struct_size = HAL_STRUCT_SIZE(hal_tensor_t, flags),
                                   .data = device + (size_t)layout.first * size,
                                   .sizes = shape->sizes,
                                   .strides = operand->layout.strides,
                                   .ndim = shape->ndim,
                                   .dtype = dtype,
                                   .device = t->device};
}

static void drop_operand(cts_t *t, operand_t *operand) {
  cts_free(t, (uint8_t *)operand->tensor.data - (size_t)operand->layout.first * operand->size);
  free(operand->host);
}

/* Returns the offset of element number `index`, in C order, in the operand's memory, in bytes. */
static size_t place(const operand_t *operand, int64_t index) {
  int64_t at = operand->layout.first;
  for (int32_t i = operand->tensor.ndim - 1; i >= 0; i--) {
    at += index % operand->tensor.sizes[i] * operand->layout.strides[i];
    index /= operand->tensor.sizes[i];
  }
  return (size_t)at * operand->size;
}

static void describe(const operand_t *operand, char *text, size_t size) {
  size_t length = 0;
  for (int32_t i = 0; i < operand->tensor.ndim && length < size; i++)
    length += (size_t)snprintf(text + length, size - length, "%s%lld:%lld", i ? " " : "",
                               (long long)operand->tensor.sizes[i], (long long)operand->layout.strides[i]);
  if (!operand->tensor.ndim) snprintf(text, size, "no dimension");
}

/* Returns a number rounded to the dtype: infinite if it is out of range. */
static double rounded(hal_dtype_t dtype, double value) {
  uint8_t bytes[8];
  cts_number_write(dtype, (cts_number_t){.d = value}, bytes);
  return cts_number_read(dtype, bytes).d;
}

/* Tolerance: two steps of the result's dtype at 1, or at the number; sixteen for a compiler's exp and tanh in float32.
 * NaN equals NaN. A zero must have its sign if the standard defines it: the sign of a product, a quotient, of neg and
 * abs. */
static int is_near(int which, hal_dtype_t dtype, double value, double expected) {
  const double steps = cts_dtype_size(dtype) < 4 ? 2 : 32, there = rounded(dtype, expected);
  if (isnan(expected)) return isnan(value);
  if (isinf(there)) return value == there;
  if (cts_own_ops[which].signs && expected == 0 && signbit(value) != signbit(expected)) return 0;
  return fabs(value - expected) <= steps * cts_dtype_step(dtype) * (1 + fabs(expected));
}

static void check_element(cts_t *t, int which, const operand_t *a, const operand_t *b, const operand_t *result,
                          int64_t index, const uint8_t *got_bytes) {
  const hal_dtype_t dtype = a->tensor.dtype, to = result->tensor.dtype;
  const cts_number_t x = cts_number_read(dtype, a->host + place(a, index)),
                     y = cts_number_read(dtype, b->host + place(b, index)), got = cts_number_read(to, got_bytes);
  char where[3][128], is[32], instead[32];
  if (cts_is_float(dtype)) {
    const double expected = cts_own_ops[which].value(x.d, y.d),
                 value = cts_own_ops[which].compares ? (double)got.i : got.d;
    /* Twice an operand may already be out of range if a device computes in the dtype itself. */
    if (cts_own_ops[which].number == TWO && isfinite(y.d) && isinf(rounded(dtype, 2 * y.d))) return;
    if (cts_own_ops[which].compares ? value == expected : is_near(which, dtype, value, expected)) return;
    snprintf(is, sizeof is, "%.17g", value), snprintf(instead, sizeof instead, "%.17g", expected);
  } else {
    uint8_t bytes[8];
    cts_number_write(to, (cts_number_t){.i = (int64_t)cts_own_ops[which].whole(x.i, y.i)}, bytes);
    const int64_t expected = cts_number_read(to, bytes).i;
    if (got.i == expected) return;
    snprintf(is, sizeof is, "%lld", (long long)got.i), snprintf(instead, sizeof instead, "%lld", (long long)expected);
  }
  describe(result, where[0], sizeof where[0]), describe(a, where[1], sizeof where[1]);
  describe(b, where[2], sizeof where[2]);
  cts_fail(t, "%s in %s: element %lld is %s instead of %s (sizes and strides: result %s, operands %s and %s)",
           cts_own_ops[which].name, cts_dtype_name(dtype), (long long)index, is, instead, where[0], where[1], where[2]);
}

/* The stream copies an operand's numbers once the gate is open, so the operator must wait for its stream, in the call
 * or after it. */
static void queue_operand(cts_t *t, cts_gate_t *gate, hal_plugin_stream_t *stream, const operand_t *operand) {
  uint8_t *const device = (uint8_t *)operand->tensor.data - (size_t)operand->layout.first * operand->size;
  CTS_OK(t, memory_fill, NULL, t->device, device, "", 1, ROOM * operand->size);
  cts_gate_close(t, gate, stream);
  cts_put(t, stream, device, operand->host, ROOM * operand->size);
  cts_gate_open_later(gate);
}

/* The host does not repeat such a call. */
static void check_declined(cts_t *t, const char *name, const hal_op_own_t *own, const hal_op_call_t *call) {
  if (!(own->flags & HAL_OP_DECLINES_ALIKE)) return;
  CTS_CHECK(t, own->fn(own->state, call) == HAL_UNIMPLEMENTED,
            "%s accepts a call that it has declined before, but its descriptor has HAL_OP_DECLINES_ALIKE", name);
}

/* Calls an operator and checks the whole memory of its result: the elements, and the memory between them. */
void cts_own_check(cts_t *t, int which, const hal_op_own_t *own, hal_dtype_t dtype, const cts_shape_t *shape,
                   cts_layout_t to, cts_layout_t from, cts_layout_t other, uint32_t flags, int how) {
  static cts_gate_t gate;
  operand_t a, b, result;
  hal_plugin_stream_t *const stream = cts_stream(t);
  const int held = how & CTS_OWN_HELD, in_place = how & CTS_OWN_IN_PLACE;
  int64_t count = 1;
  for (int32_t i = 0; i < shape->ndim; i++) count *= shape->sizes[i];
  make_operand(t, &a, shape, from, dtype, 1, how);
  make_operand(t, &b, shape, other, dtype, 2, how);
  if (in_place)
    result = a;
  else
    make_operand(t, &result, shape, to, cts_own_ops[which].compares ? HAL_BOOL : dtype, 3, 0);
  const hal_tensor_t *const results[1] = {&result.tensor};
  hal_value_t args[3];
  const uint32_t arg_count = cts_own_arguments(which, &a.tensor, &b.tensor, args);
  const hal_op_call_t call = {.struct_size = HAL_STRUCT_SIZE(hal_op_call_t, host),
                              .stream = stream,
                              .device = t->device,
                              .arg_count = arg_count,
                              .result_count = 1,
                              .flags = flags,
                              .args = args,
                              .results = results};
  hal_op_call_t question = call;
  question.stream = NULL;
  const hal_status_t said = own->query ? own->query(own->state, &question) : HAL_OK;
  if (held) queue_operand(t, &gate, stream, &a);
  cts_enter(t, HAL_SLOT_op_find); /* a crash or a wait is that of the function of op_find */
  const hal_status_t status = cts_leave(t, HAL_SLOT_op_find, own->fn(own->state, &call));
  if (held) cts_gate_open(&gate);
  CTS_CHECK(t, status == HAL_OK || status == HAL_UNIMPLEMENTED, "%s returned %s: %s", cts_own_ops[which].name,
            hal_status_name(status), hal_error_message());
  CTS_CHECK(t, status == HAL_OK || !((own->query && !said) || (own->flags & HAL_OP_NEVER_DECLINES)),
            "%s declined a call that its descriptor accepts", cts_own_ops[which].name);
  if (status) check_declined(t, cts_own_ops[which].name, own, &call);
  cts_sync(t, stream);
  uint8_t *const got = cts_host(t, ROOM * 8);
  cts_get(t, NULL, got, (uint8_t *)result.tensor.data - (size_t)result.layout.first * result.size, ROOM * result.size);
  for (int64_t i = 0; !status && i < count; i++) {
    check_element(t, which, &a, &b, &result, i, got + place(&result, i));
    if (result.tensor.dtype == HAL_BOOL)
      CTS_CHECK(t, got[place(&result, i)] < 2, "%s: element %lld of a bool result is the byte 0x%02x",
                cts_own_ops[which].name, (long long)i, got[place(&result, i)]);
  }
  for (int64_t i = 0; !status && i < count; i++)
    memcpy(got + place(&result, i), result.host + place(&result, i), result.size);
  cts_same(t, got, result.host, ROOM * result.size,
           status ? "the result of an operator that declined the call" : "memory next to an operator's result");
  for (int i = in_place ? 1 : 0; i < cts_own_ops[which].tensors; i++) {
    const operand_t *const operand = i ? &b : &a;
    cts_get(t, NULL, got, (uint8_t *)operand->tensor.data - (size_t)operand->layout.first * operand->size,
            ROOM * operand->size);
    cts_same(t, got, operand->host, ROOM * operand->size, "an operand of an operator, after the call");
  }
  free(got);
  drop_operand(t, &a), drop_operand(t, &b);
  if (!in_place) drop_operand(t, &result);
  CTS_OK(t, stream_destroy, stream);
}

/* C order. */
cts_layout_t cts_layout_dense(const cts_shape_t *shape, int64_t first) {
  cts_layout_t layout = {.first = first};
  int64_t stride = 1;
  for (int32_t i = shape->ndim - 1; i >= 0; stride *= shape->sizes[i--]) layout.strides[i] = stride;
  return layout;
}
