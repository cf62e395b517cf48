/* op.c: a plugin's own operators, called as the host calls them, beside double precision. */
#include <math.h>
#include <stdio.h>

#include "cts.h"
#include "hal/op.h"
#include "hal/status.h"

enum { ROOM = 12000 /* elements of an operand's memory */, MAX_DIMS = 5 };

/* ---- the operators that the suite knows, in doubles and in integers that wrap modulo 2^64 ---- */
enum { FLOATS = 1, INTEGERS = 2, BOOL = 4, SIGNED = FLOATS | INTEGERS, ANY = FLOATS | INTEGERS | BOOL };
enum { TWO = 1, ONE = 2 }; /* a number behind the tensors: 2, as alpha is an integer, or the double 1 */

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

/* Arguments as in the frozen list of codegen/ops.yaml: tensors, then the number where there is one. */
static const struct {
  const char *name;
  int tensors, number, takes, compares, signs;
  double (*value)(double a, double b);
  uint64_t (*whole)(int64_t a, int64_t b);
} ops[] = {{"add.Tensor", 2, TWO, ANY, 0, 0, do_add, whole_add},
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
enum { OPS = sizeof ops / sizeof ops[0] };

static const hal_dtype_t dtypes[] = {HAL_FLOAT32, HAL_FLOAT64, HAL_FLOAT16, HAL_BFLOAT16, HAL_INT64,
                                     HAL_INT32,   HAL_INT16,   HAL_INT8,    HAL_UINT8,    HAL_BOOL};
enum { DTYPES = sizeof dtypes / sizeof dtypes[0] };

static int takes_dtype(int which, const hal_op_own_t *own, hal_dtype_t dtype) {
  const int kind = dtype == HAL_BOOL ? BOOL : cts_is_float(dtype) ? FLOATS : INTEGERS;
  if (!(ops[which].takes & kind) || !(own->dtypes & HAL_DTYPE_BIT(dtype))) return 0;
  return !ops[which].compares || (own->dtypes & HAL_DTYPE_BIT(HAL_BOOL)); /* of all tensors, the result too */
}

static hal_status_t find(cts_t *t, const char *name, hal_op_own_t *out_own) {
  *out_own = (hal_op_own_t){.struct_size = HAL_STRUCT_SIZE(hal_op_own_t, query)};
  return cts_op_find(t, t->device, name, out_own);
}

void cts_case_op_unknown(cts_t *t) {
  hal_op_own_t own;
  CTS_STATUS(t, HAL_NOT_FOUND, op_find, t->device, "cts_there_is_no_such_operator.out",
             (own = (hal_op_own_t){.struct_size = HAL_STRUCT_SIZE(hal_op_own_t, query)}, &own));
}

void cts_case_op_descriptor(cts_t *t) {
  int found = 0;
  for (int i = 0; i < OPS; i++) {
    hal_op_own_t own, again;
    const hal_status_t status = find(t, ops[i].name, &own);
    CTS_CHECK(t, status == HAL_OK || status == HAL_NOT_FOUND, "op_find gave %s for %s", hal_status_name(status),
              ops[i].name);
    if (status) continue;
    found++;
    CTS_CHECK(t, own.fn && own.dtypes && (own.layouts & HAL_TAKES_ALL),
              "the descriptor of %s has no function, dtypes or layouts", ops[i].name);
    CTS_CHECK(t, find(t, ops[i].name, &again) == HAL_OK && memcmp(&own, &again, sizeof own) == 0,
              "op_find described %s in two ways", ops[i].name);
  }
  if (!found) cts_skip(t, "the plugin has none of the operators that the suite knows");
}

/* How an operand lies: sizes, strides in elements, and the first element's place in memory of ROOM elements. */
typedef struct layout_s {
  int64_t strides[MAX_DIMS], first;
} layout_t;
typedef struct shape_s {
  int32_t ndim;
  int64_t sizes[MAX_DIMS];
} shape_t;

typedef struct operand_s {
  hal_tensor_t tensor;
  uint8_t *host;
  layout_t layout;
  size_t size; /* bytes of an element */
} operand_t;

/* Numbers at the ends of the floating-point dtypes. None is so small that a device may take it for zero. */
static const double ends[] = {NAN, INFINITY, -INFINITY, 0, -0.0, 1, -1, 2.5, -0.5, 1e4, -1e4, 60000, 3e38, 1e300};
static int at_the_ends; /* the case of ends runs */

/* Floating-point numbers from 0.25 to 2.25, of which roots and quotients are fine, or integers of all sizes. */
static cts_number_t make_number(hal_dtype_t dtype, uint64_t noise) {
  if (at_the_ends) return (cts_number_t){ends[(noise >> 20) % (sizeof ends / sizeof ends[0])], 0};
  cts_number_t number = {0.25 + (double)(noise >> 11) * 0x1p-52, (int64_t)noise >> 1};
  if (dtype == HAL_BOOL) number.i = (int64_t)(noise >> 60 & 1);
  if (noise & 1) number.d = 0.25 + (double)(noise >> 61) * 0.25, number.i %= 3; /* some are equal */
  return number;
}

static void make_operand(cts_t *t, operand_t *operand, const shape_t *shape, layout_t layout, hal_dtype_t dtype,
                         uint64_t seed) {
  const size_t size = cts_dtype_size(dtype);
  uint64_t *const noise = (uint64_t *)(void *)cts_host(t, ROOM * sizeof *noise);
  *operand = (operand_t){.host = cts_host(t, ROOM * size), .layout = layout, .size = size};
  uint8_t *const device = cts_alloc(t, ROOM * size);
  cts_noise(noise, ROOM * sizeof *noise, seed);
  for (size_t i = 0; i < ROOM; i++) cts_number_write(dtype, make_number(dtype, noise[i]), operand->host + i * size);
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

/* Place of element number `index`, counted in C order, in the operand's memory, in bytes. */
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

/* What the dtype has of a number: infinities, where it ends. */
static double rounded(hal_dtype_t dtype, double value) {
  uint8_t bytes[8];
  cts_number_write(dtype, (cts_number_t){value, 0}, bytes);
  return cts_number_read(dtype, bytes).d;
}

/* Two steps of the result's dtype at 1, or at the number; a compiler's exp and tanh in float32 are sixteen of them. NaN is NaN, and a zero
 * that has a sign by the standard has it: the sign of a product, a quotient, of neg and abs. */
static int is_near(int which, hal_dtype_t dtype, double value, double expected) {
  const double steps = cts_dtype_size(dtype) < 4 ? 2 : 32, there = rounded(dtype, expected);
  if (isnan(expected)) return isnan(value);
  if (isinf(there)) return value == there;
  if (ops[which].signs && expected == 0 && signbit(value) != signbit(expected)) return 0;
  return fabs(value - expected) <= steps * cts_dtype_step(dtype) * (1 + fabs(expected));
}

static void check_element(cts_t *t, int which, const operand_t *a, const operand_t *b, const operand_t *result,
                          int64_t index, const uint8_t *got_bytes) {
  const hal_dtype_t dtype = a->tensor.dtype, to = result->tensor.dtype;
  const cts_number_t x = cts_number_read(dtype, a->host + place(a, index)),
                     y = cts_number_read(dtype, b->host + place(b, index)), got = cts_number_read(to, got_bytes);
  char where[3][128], is[32], instead[32];
  if (cts_is_float(dtype)) {
    const double expected = ops[which].value(x.d, y.d), value = ops[which].compares ? (double)got.i : got.d;
    /* Twice an operand may be too large already, where a device computes in the dtype itself. */
    if (ops[which].number == TWO && isfinite(y.d) && isinf(rounded(dtype, 2 * y.d))) return;
    if (ops[which].compares ? value == expected : is_near(which, dtype, value, expected)) return;
    snprintf(is, sizeof is, "%.17g", value), snprintf(instead, sizeof instead, "%.17g", expected);
  } else {
    uint8_t bytes[8];
    cts_number_write(to, (cts_number_t){0, (int64_t)ops[which].whole(x.i, y.i)}, bytes);
    const int64_t expected = cts_number_read(to, bytes).i;
    if (got.i == expected) return;
    snprintf(is, sizeof is, "%lld", (long long)got.i), snprintf(instead, sizeof instead, "%lld", (long long)expected);
  }
  describe(result, where[0], sizeof where[0]), describe(a, where[1], sizeof where[1]);
  describe(b, where[2], sizeof where[2]);
  cts_fail(t, "%s in %s: element %lld is %s instead of %s (sizes and strides: result %s, operands %s and %s)",
           ops[which].name, cts_dtype_name(dtype), (long long)index, is, instead, where[0], where[1], where[2]);
}

/* Leaves to the stream to bring an operand's numbers, once the gate is open: the operator has to wait for its stream, in the call or
 * behind it. */
static void queue_operand(cts_t *t, cts_gate_t *gate, hal_plugin_stream_t *stream, const operand_t *operand) {
  uint8_t *const device = (uint8_t *)operand->tensor.data - (size_t)operand->layout.first * operand->size;
  CTS_OK(t, memory_fill, NULL, t->device, device, "", 1, ROOM * operand->size);
  cts_gate_close(t, gate, stream);
  cts_put(t, stream, device, operand->host, ROOM * operand->size);
  cts_gate_open_later(gate);
}

/* Calls an operator and looks at the whole memory of its result: the elements, and what lies between them. */
static void check_call(cts_t *t, int which, const hal_op_own_t *own, hal_dtype_t dtype, const shape_t *shape,
                       layout_t to, layout_t from, layout_t other, uint32_t flags, int held) {
  static cts_gate_t gate;
  operand_t a, b, result;
  hal_plugin_stream_t *const stream = cts_stream(t);
  int64_t count = 1;
  for (int32_t i = 0; i < shape->ndim; i++) count *= shape->sizes[i];
  make_operand(t, &a, shape, from, dtype, 1);
  make_operand(t, &b, shape, other, dtype, 2);
  make_operand(t, &result, shape, to, ops[which].compares ? HAL_BOOL : dtype, 3);
  const hal_tensor_t *const results[1] = {&result.tensor};
  hal_value_t args[3] = {{.tag = HAL_VALUE_TENSOR, .u.t = &a.tensor}, {.tag = HAL_VALUE_TENSOR, .u.t = &b.tensor}};
  if (ops[which].number == TWO) args[ops[which].tensors] = (hal_value_t){.tag = HAL_VALUE_INT, .u.i = 2};
  if (ops[which].number == ONE) args[ops[which].tensors] = (hal_value_t){.tag = HAL_VALUE_DOUBLE, .u.d = 1};
  const hal_op_call_t call = {.struct_size = HAL_STRUCT_SIZE(hal_op_call_t, host),
                              .stream = stream,
                              .device = t->device,
                              .arg_count = (uint32_t)(ops[which].tensors + (ops[which].number != 0)),
                              .result_count = 1,
                              .flags = flags,
                              .args = args,
                              .results = results};
  hal_op_call_t question = call;
  question.stream = NULL;
  const hal_status_t said = own->query ? own->query(own->state, &question) : HAL_OK;
  if (held) queue_operand(t, &gate, stream, &a);
  cts_enter(t, HAL_SLOT_op_find); /* a crash or a wait is that of the function that op_find gave */
  const hal_status_t status = cts_leave(t, HAL_SLOT_op_find, own->fn(own->state, &call));
  if (held) cts_gate_open(&gate);
  CTS_CHECK(t, status == HAL_OK || status == HAL_UNIMPLEMENTED, "%s gave %s: %s", ops[which].name,
            hal_status_name(status), hal_error_message());
  CTS_CHECK(t, status == HAL_OK || !((own->query && !said) || (own->flags & HAL_OP_NEVER_DECLINES)),
            "%s declined a call that it promised to take", ops[which].name);
  cts_sync(t, stream);
  uint8_t *const got = cts_host(t, ROOM * 8);
  cts_get(t, NULL, got, (uint8_t *)result.tensor.data - place(&result, 0), ROOM * result.size);
  for (int64_t i = 0; !status && i < count; i++) {
    check_element(t, which, &a, &b, &result, i, got + place(&result, i));
    if (result.tensor.dtype == HAL_BOOL)
      CTS_CHECK(t, got[place(&result, i)] < 2, "%s: element %lld of a bool result is the byte 0x%02x", ops[which].name,
                (long long)i, got[place(&result, i)]);
  }
  for (int64_t i = 0; !status && i < count; i++)
    memcpy(got + place(&result, i), result.host + place(&result, i), result.size);
  cts_same(t, got, result.host, ROOM * result.size,
           status ? "the result of an operator that declined the call" : "memory beside an operator's result");
  for (int i = 0; i < ops[which].tensors; i++) {
    const operand_t *const operand = i ? &b : &a;
    cts_get(t, NULL, got, (uint8_t *)operand->tensor.data - (size_t)operand->layout.first * operand->size,
            ROOM * operand->size);
    cts_same(t, got, operand->host, ROOM * operand->size, "an operand of an operator, behind the call");
  }
  free(got);
  drop_operand(t, &a), drop_operand(t, &b), drop_operand(t, &result);
  CTS_OK(t, stream_destroy, stream);
}

/* C order. */
static layout_t dense(const shape_t *shape, int64_t first) {
  layout_t layout = {.first = first};
  int64_t stride = 1;
  for (int32_t i = shape->ndim - 1; i >= 0; stride *= shape->sizes[i--]) layout.strides[i] = stride;
  return layout;
}

static const shape_t matrix = {2, {37, 53}},
                     shapes[] = {{0, {0}}, {1, {1}}, {1, {1023}}, {3, {7, 1, 129}}, {5, {2, 3, 4, 5, 6}}};

/* Each operator of the plugin that the suite knows, in each dtype that it takes; `check` calls it. */
static void check_all(cts_t *t, uint32_t layouts,
                      void (*check)(cts_t *t, int which, const hal_op_own_t *own, hal_dtype_t dtype),
                      const char *why_not) {
  hal_op_own_t own;
  int checked = 0;
  for (int i = 0; i < OPS; i++) {
    if (find(t, ops[i].name, &own) || !(own.layouts & layouts)) continue;
    for (int j = 0; j < DTYPES; j++)
      if (takes_dtype(i, &own, dtypes[j])) check(t, i, &own, dtypes[j]), checked++;
  }
  if (!checked) cts_skip(t, "%s", why_not);
}

static void call_dense(cts_t *t, int which, const hal_op_own_t *own, hal_dtype_t dtype) {
  check_call(t, which, own, dtype, &matrix, dense(&matrix, 0), dense(&matrix, 0), dense(&matrix, 0), HAL_CALL_DENSE, 0);
  check_call(t, which, own, dtype, &matrix, dense(&matrix, 64), dense(&matrix, 3), dense(&matrix, 0), HAL_CALL_DENSE,
             0);
  for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
    check_call(t, which, own, dtype, &shapes[i], dense(&shapes[i], 5), dense(&shapes[i], 0), dense(&shapes[i], 1),
               HAL_CALL_DENSE, 0);
}

static void call_strided(cts_t *t, int which, const hal_op_own_t *own, hal_dtype_t dtype) {
  const int64_t rows = matrix.sizes[0], columns = matrix.sizes[1];
  const layout_t plain = dense(&matrix, 0), turned = {{1, rows}, 0}, wide = {{2 * columns, 2}, 1},
                 one_row = {{0, 1}, 0}, one_column = {{1, 0}, 3}, one = {{0, 0}, 7}, window = {{1, 1}, 0};
  check_call(t, which, own, dtype, &matrix, plain, turned, plain, 0, 0);
  check_call(t, which, own, dtype, &matrix, plain, wide, turned, 0, 0);
  check_call(t, which, own, dtype, &matrix, turned, plain, wide, 0, 0);
  check_call(t, which, own, dtype, &matrix, wide, one_row, one_column, 0, 0);
  check_call(t, which, own, dtype, &matrix, turned, one, plain, 0, 0);
  check_call(t, which, own, dtype, &matrix, plain, window, one, 0, 0); /* rows that overlap */
  static const shape_t images = {4, {3, 5, 7, 9}}, thin = {3, {7, 1, 129}};
  const layout_t channels = {{315, 1, 45, 5}, 2}, odd = {{129, 4711, 1}, 0};
  check_call(t, which, own, dtype, &images, dense(&images, 0), channels, dense(&images, 0), 0, 0);
  check_call(t, which, own, dtype, &images, channels, dense(&images, 0), channels, 0, 0);
  check_call(t, which, own, dtype, &thin, dense(&thin, 0), odd, dense(&thin, 0), 0,
             0); /* the stride of one element says nothing */
}

static void call_channels_last(cts_t *t, int which, const hal_op_own_t *own, hal_dtype_t dtype) {
  static const shape_t images = {4, {3, 5, 7, 9}}, volumes = {5, {2, 3, 4, 5, 6}};
  const layout_t flat = {{315, 1, 45, 5}, 2}, deep = {{360, 1, 90, 18, 3}, 0};
  check_call(t, which, own, dtype, &images, flat, flat, flat, 0, 0);
  check_call(t, which, own, dtype, &volumes, deep, deep, deep, 0, 0);
}

static void call_held(cts_t *t, int which, const hal_op_own_t *own, hal_dtype_t dtype) {
  if (dtype == HAL_FLOAT32)
    check_call(t, which, own, dtype, &matrix, dense(&matrix, 0), dense(&matrix, 0), dense(&matrix, 0), HAL_CALL_DENSE,
               1);
}

/* NaN, infinities, zeros with signs, numbers whose result is too large: as the standard of floating-point numbers says. */
static void call_ends(cts_t *t, int which, const hal_op_own_t *own, hal_dtype_t dtype) {
  if (!cts_is_float(dtype) || strstr(ops[which].name, "_backward")) return; /* of gradients, formulas differ there */
  check_call(t, which, own, dtype, &matrix, dense(&matrix, 0), dense(&matrix, 0), dense(&matrix, 0), HAL_CALL_DENSE, 0);
}

void cts_case_op_ends(cts_t *t) {
  at_the_ends = 1;
  check_all(t, HAL_TAKES_CONTIGUOUS | HAL_TAKES_STRIDED, call_ends, "the plugin has none of the suite's operators");
}

void cts_case_op_order(cts_t *t) {
  if (!cts_is_async(t)) cts_skip(t, "the device does not say HAL_DEVICE_ASYNC, or the plugin has no stream_host_call");
  check_all(t, HAL_TAKES_CONTIGUOUS | HAL_TAKES_STRIDED, call_held, "the plugin has none of the suite's operators");
}

void cts_case_op_values(cts_t *t) {
  check_all(t, HAL_TAKES_CONTIGUOUS | HAL_TAKES_STRIDED, call_dense, "the plugin has none of the suite's operators");
}

void cts_case_op_strided(cts_t *t) {
  check_all(t, HAL_TAKES_STRIDED, call_strided,
            "no operator of the plugin that the suite knows takes strided operands");
}

void cts_case_op_channels_last(cts_t *t) {
  check_all(t, HAL_TAKES_CHANNELS_LAST, call_channels_last,
            "no operator of the plugin that the suite knows takes operands whose channels are last");
}

/* ---- what the plugin has, and how long it takes ---- */
static void describe_own(const hal_op_own_t *own, char *text, size_t size) {
  static const struct {
    uint32_t bit;
    const char *name;
  } layouts[] = {
      {HAL_TAKES_CONTIGUOUS, "contiguous"}, {HAL_TAKES_CHANNELS_LAST, "channels last"}, {HAL_TAKES_STRIDED, "strided"}};
  size_t length = 0;
  int others = 0;
  for (int dtype = 0; dtype < 64; dtype++) {
    if (!(own->dtypes >> dtype & 1)) continue;
    const char *const name = cts_dtype_name((hal_dtype_t)dtype);
    if (strchr(name, ' ')) {
      others++;
      continue;
    }
    length += (size_t)snprintf(text + length, size - length, "%s ", name);
  }
  if (others) length += (size_t)snprintf(text + length, size - length, "and %d more ", others);
  for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++)
    if (own->layouts & layouts[i].bit && length < size)
      length +=
          (size_t)snprintf(text + length, size - length, "%s%s", layouts[i].bit == 1 ? "| " : ", ", layouts[i].name);
}

/* Of all operators that the host asks for. */
void cts_case_op_support(cts_t *t) {
  int found = 0;
  for (uint32_t i = 0; i < hal_op_count(); i++) {
    hal_op_own_t own;
    char text[128] = "";
    if (find(t, hal_op_name(i), &own)) continue;
    found++;
    describe_own(&own, text, sizeof text);
    cts_row(t, "operator", hal_op_name(i), "%s", text);
  }
  if (!found) cts_skip(t, "the plugin has no operator of its own");
  cts_row(t, "operator", "in all", "%d of the %u operators that the host asks for", found, hal_op_count());
}

/* Seconds of one of `times` calls that were queued together. */
static double time_calls(cts_t *t, const hal_op_own_t *own, const hal_op_call_t *call, int times) {
  const int64_t begin = cts_now_ns();
  for (int i = 0; i < times; i++) {
    cts_enter(t, HAL_SLOT_op_find);
    const hal_status_t status = cts_leave(t, HAL_SLOT_op_find, own->fn(own->state, call));
    if (status) return 0; /* declined */
  }
  cts_sync(t, call->stream);
  return (double)(cts_now_ns() - begin) * 1e-9 / times;
}

/* Operands of `count` elements; gives the best of several, 0 where the plugin declines. */
static double time_op(cts_t *t, int which, const hal_op_own_t *own, int64_t count, int times) {
  const int64_t stride = 1;
  hal_plugin_stream_t *const stream = cts_stream(t);
  hal_tensor_t tensors[3];
  for (int i = 0; i < 3; i++) {
    tensors[i] = (hal_tensor_t){.struct_size = HAL_STRUCT_SIZE(hal_tensor_t, flags),
                                .data = cts_alloc(t, (size_t)count * 4),
                                .sizes = &count,
                                .strides = &stride,
                                .ndim = 1,
                                .dtype = i == 2 && ops[which].compares ? HAL_BOOL : HAL_FLOAT32,
                                .device = t->device};
    CTS_OK(t, memory_fill, stream, t->device, tensors[i].data, "", 1, (size_t)count * 4);
  }
  const hal_tensor_t *const results[1] = {&tensors[2]};
  hal_value_t args[3] = {{.tag = HAL_VALUE_TENSOR, .u.t = &tensors[0]}, {.tag = HAL_VALUE_TENSOR, .u.t = &tensors[1]}};
  if (ops[which].number == TWO) args[ops[which].tensors] = (hal_value_t){.tag = HAL_VALUE_INT, .u.i = 2};
  if (ops[which].number == ONE) args[ops[which].tensors] = (hal_value_t){.tag = HAL_VALUE_DOUBLE, .u.d = 1};
  const hal_op_call_t call = {.struct_size = HAL_STRUCT_SIZE(hal_op_call_t, host),
                              .stream = stream,
                              .device = t->device,
                              .arg_count = (uint32_t)(ops[which].tensors + (ops[which].number != 0)),
                              .result_count = 1,
                              .flags = HAL_CALL_DENSE,
                              .args = args,
                              .results = results};
  cts_sync(t, stream);
  double best = time_calls(t, own, &call, 1);
  for (int i = 0; i < 3 && best; i++) {
    const double seconds = time_calls(t, own, &call, times);
    if (seconds < best) best = seconds;
  }
  for (int i = 0; i < 3; i++) cts_free(t, tensors[i].data);
  CTS_OK(t, stream_destroy, stream);
  return best;
}

void cts_case_op_speed(cts_t *t) {
  enum { FEW = 16, MANY = 1 << 20 };
  int timed = 0;
  for (int i = 0; i < OPS; i++) {
    hal_op_own_t own;
    if (find(t, ops[i].name, &own) || !takes_dtype(i, &own, HAL_FLOAT32)) continue;
    const double few = time_op(t, i, &own, FEW, 50), many = time_op(t, i, &own, MANY, 2);
    if (!few || !many) continue;
    timed++;
    cts_row(t, "speed", ops[i].name, "%d elements %.2f us, %d elements %.0f us, %.2f GB/s", FEW, few * 1e6, MANY,
            many * 1e6, (ops[i].tensors * 4 + (ops[i].compares ? 1 : 4)) * 1e-9 * MANY / many);
  }
  if (!timed) cts_skip(t, "the plugin takes none of the suite's operators in float32");
}
