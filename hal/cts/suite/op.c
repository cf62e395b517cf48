/* op.c: a plugin's own operators. */
#include <stdio.h>

#include "hal/status.h"
#include "own.h"

void cts_case_op_unknown(cts_t *t) {
  hal_op_own_t own;
  CTS_STATUS(t, HAL_NOT_FOUND, op_find, t->device, "cts_there_is_no_such_operator.out",
             (own = (hal_op_own_t){.struct_size = HAL_STRUCT_SIZE(hal_op_own_t, query)}, &own));
}

void cts_case_op_descriptor(cts_t *t) {
  int found = 0;
  for (int i = 0; i < CTS_OWN_OPS; i++) {
    hal_op_own_t own, again;
    const hal_status_t status = cts_own_find(t, cts_own_ops[i].name, &own);
    CTS_CHECK(t, status == HAL_OK || status == HAL_NOT_FOUND, "op_find returned %s for %s", hal_status_name(status),
              cts_own_ops[i].name);
    if (status) continue;
    found++;
    CTS_CHECK(t, own.fn && own.dtypes && (own.layouts & HAL_TAKES_ALL),
              "the descriptor of %s has no function, dtypes or layouts", cts_own_ops[i].name);
    CTS_CHECK(t, cts_own_find(t, cts_own_ops[i].name, &again) == HAL_OK && memcmp(&own, &again, sizeof own) == 0,
              "op_find described %s in two ways", cts_own_ops[i].name);
  }
  if (!found) cts_skip(t, "the plugin has none of the operators that the suite knows");
}

static const cts_shape_t matrix = {2, {37, 53}}, shapes[] = {{2, {0, 5}}, {0, {0}},         {1, {1}},
                                                             {1, {1023}}, {3, {7, 1, 129}}, {5, {2, 3, 4, 5, 6}}};

/* Each operator of the plugin that the suite knows, in each dtype that it accepts; `check` calls it. */
static void check_all(cts_t *t, uint32_t layouts,
                      void (*check)(cts_t *t, int which, const hal_op_own_t *own, hal_dtype_t dtype),
                      const char *why_not) {
  hal_op_own_t own;
  int checked = 0;
  for (int i = 0; i < CTS_OWN_OPS; i++) {
    if (cts_own_find(t, cts_own_ops[i].name, &own) || !(own.layouts & layouts)) continue;
    for (int j = 0; j < CTS_OWN_DTYPES; j++)
      if (cts_own_takes(i, &own, cts_own_dtypes[j])) check(t, i, &own, cts_own_dtypes[j]), checked++;
  }
  if (!checked) cts_skip(t, "%s", why_not);
}

static void call_dense(cts_t *t, int which, const hal_op_own_t *own, hal_dtype_t dtype) {
  cts_own_check(t, which, own, dtype, &matrix, cts_layout_dense(&matrix, 0), cts_layout_dense(&matrix, 0),
                cts_layout_dense(&matrix, 0), HAL_CALL_DENSE, 0);
  cts_own_check(t, which, own, dtype, &matrix, cts_layout_dense(&matrix, 64), cts_layout_dense(&matrix, 3),
                cts_layout_dense(&matrix, 0), HAL_CALL_DENSE, 0);
  for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
    cts_own_check(t, which, own, dtype, &shapes[i], cts_layout_dense(&shapes[i], 5), cts_layout_dense(&shapes[i], 0),
                  cts_layout_dense(&shapes[i], 1), HAL_CALL_DENSE, 0);
}

static void call_strided(cts_t *t, int which, const hal_op_own_t *own, hal_dtype_t dtype) {
  const int64_t rows = matrix.sizes[0], columns = matrix.sizes[1];
  const cts_layout_t plain = cts_layout_dense(&matrix, 0), turned = {{1, rows}, 0}, wide = {{2 * columns, 2}, 1},
                     one_row = {{0, 1}, 0}, one_column = {{1, 0}, 3}, one = {{0, 0}, 7}, window = {{1, 1}, 0};
  cts_own_check(t, which, own, dtype, &matrix, plain, turned, plain, 0, 0);
  cts_own_check(t, which, own, dtype, &matrix, plain, wide, turned, 0, 0);
  cts_own_check(t, which, own, dtype, &matrix, turned, plain, wide, 0, 0);
  cts_own_check(t, which, own, dtype, &matrix, wide, one_row, one_column, 0, 0);
  cts_own_check(t, which, own, dtype, &matrix, turned, one, plain, 0, 0);
  cts_own_check(t, which, own, dtype, &matrix, plain, window, one, 0, 0); /* rows that overlap */
  static const cts_shape_t images = {4, {3, 5, 7, 9}}, thin = {3, {7, 1, 129}};
  const cts_layout_t channels = {{315, 1, 45, 5}, 2}, odd = {{129, 4711, 1}, 0};
  cts_own_check(t, which, own, dtype, &images, cts_layout_dense(&images, 0), channels, cts_layout_dense(&images, 0), 0,
                0);
  cts_own_check(t, which, own, dtype, &images, channels, cts_layout_dense(&images, 0), channels, 0, 0);
  cts_own_check(t, which, own, dtype, &thin, cts_layout_dense(&thin, 0), odd, cts_layout_dense(&thin, 0), 0,
                0); /* the stride of a single element has no meaning */
}

static void call_channels_last(cts_t *t, int which, const hal_op_own_t *own, hal_dtype_t dtype) {
  static const cts_shape_t images = {4, {3, 5, 7, 9}}, volumes = {5, {2, 3, 4, 5, 6}};
  const cts_layout_t flat = {{315, 1, 45, 5}, 2}, deep = {{360, 1, 90, 18, 3}, 0};
  cts_own_check(t, which, own, dtype, &images, flat, flat, flat, 0, 0);
  cts_own_check(t, which, own, dtype, &volumes, deep, deep, deep, 0, 0);
}

static void call_held(cts_t *t, int which, const hal_op_own_t *own, hal_dtype_t dtype) {
  if (dtype == HAL_FLOAT32)
    cts_own_check(t, which, own, dtype, &matrix, cts_layout_dense(&matrix, 0), cts_layout_dense(&matrix, 0),
                  cts_layout_dense(&matrix, 0), HAL_CALL_DENSE, CTS_OWN_HELD);
}

/* NaN, infinities, zeros with signs, numbers whose result is out of range: as the standard of floating-point numbers
 * defines. */
static void call_ends(cts_t *t, int which, const hal_op_own_t *own, hal_dtype_t dtype) {
  if (!cts_is_float(dtype) || strstr(cts_own_ops[which].name, "_backward"))
    return; /* of gradients, formulas differ there */
  const cts_layout_t dense = cts_layout_dense(&matrix, 0);
  cts_own_check(t, which, own, dtype, &matrix, dense, dense, dense, HAL_CALL_DENSE, CTS_OWN_ENDS);
}

void cts_case_op_ends(cts_t *t) {
  check_all(t, HAL_TAKES_CONTIGUOUS | HAL_TAKES_STRIDED, call_ends, "the plugin has none of the suite's operators");
}

/* The result may be an operand: add_(x, y) is add with its first operand as the result. */
static void call_in_place(cts_t *t, int which, const hal_op_own_t *own, hal_dtype_t dtype) {
  if (cts_own_ops[which].compares) return;
  for (int64_t first = 0; first < 8; first += 7) {
    const cts_layout_t self = cts_layout_dense(&matrix, first), other = cts_layout_dense(&matrix, 0);
    cts_own_check(t, which, own, dtype, &matrix, self, self, other, HAL_CALL_DENSE, CTS_OWN_IN_PLACE);
  }
}

void cts_case_op_in_place(cts_t *t) {
  check_all(t, HAL_TAKES_CONTIGUOUS | HAL_TAKES_STRIDED, call_in_place, "the plugin has none of the suite's operators");
}

void cts_case_op_order(cts_t *t) {
  if (!cts_is_async(t)) cts_skip(t, "the device does not have HAL_DEVICE_ASYNC, or the plugin has no stream_host_call");
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

/* ---- the plugin's operators, and their times ---- */
/* Appends a word as far as it fits. */
static void append(char *text, size_t size, const char *word) {
  const size_t length = strlen(text);
  snprintf(text + length, size - length, "%s", word);
}

static void describe_dtypes(uint64_t dtypes, char *text, size_t size) {
  char word[32];
  int others = 0;
  if ((dtypes & HAL_ALL_DTYPES) == HAL_ALL_DTYPES) {
    append(text, size, "all dtypes ");
    return;
  }
  for (int dtype = 0; dtype < 64; dtype++) {
    if (!(dtypes >> dtype & 1)) continue;
    const char *const name = cts_dtype_name((hal_dtype_t)dtype);
    snprintf(word, sizeof word, "%s ", name);
    if (strchr(name, ' '))
      others++;
    else
      append(text, size, word);
  }
  snprintf(word, sizeof word, "and %d more ", others);
  if (others) append(text, size, word);
}

static void describe_own(const hal_op_own_t *own, char *text, size_t size) {
  static const struct {
    uint32_t bit;
    const char *name;
  } layouts[] = {{HAL_TAKES_CONTIGUOUS, "| contiguous"},
                 {HAL_TAKES_CHANNELS_LAST, ", channels last"},
                 {HAL_TAKES_STRIDED, ", strided"}};
  describe_dtypes(own->dtypes, text, size);
  for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++)
    if (own->layouts & layouts[i].bit) append(text, size, layouts[i].name);
}

/* Over all operators that the host looks up. */
void cts_case_op_support(cts_t *t) {
  int found = 0;
  for (uint32_t i = 0; i < cts_operator_count; i++) {
    hal_op_own_t own;
    char text[128] = "";
    if (cts_own_find(t, cts_operators[i], &own)) continue;
    found++;
    describe_own(&own, text, sizeof text);
    cts_row(t, "operator", cts_operators[i], "%s", text);
  }
  if (!found) cts_skip(t, "the plugin has no operator of its own");
  cts_row(t, "operator", "in all", "%d of the %u operators that the host looks up", found, cts_operator_count);
}

/* Returns the seconds of one of `times` calls that were queued together. */
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

/* Operands of `count` elements; returns the best of several, 0 if the plugin declines. */
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
                                .dtype = i == 2 && cts_own_ops[which].compares ? HAL_BOOL : HAL_FLOAT32,
                                .device = t->device};
    CTS_OK(t, memory_fill, stream, t->device, tensors[i].data, "", 1, (size_t)count * 4);
  }
  const hal_tensor_t *const results[1] = {&tensors[2]};
  hal_value_t args[3];
  const uint32_t arg_count = cts_own_arguments(which, &tensors[0], &tensors[1], args);
  const hal_op_call_t call = {.struct_size = HAL_STRUCT_SIZE(hal_op_call_t, host),
                              .stream = stream,
                              .device = t->device,
                              .arg_count = arg_count,
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
  for (int i = 0; i < CTS_OWN_OPS; i++) {
    hal_op_own_t own;
    if (cts_own_find(t, cts_own_ops[i].name, &own) || !cts_own_takes(i, &own, HAL_FLOAT32)) continue;
    const double few = time_op(t, i, &own, FEW, 50), many = time_op(t, i, &own, MANY, 2);
    if (!few || !many) continue;
    timed++;
    cts_row(t, "speed", cts_own_ops[i].name, "%d elements %.2f us, %d elements %.0f us, %.2f GB/s", FEW, few * 1e6,
            MANY, many * 1e6, (cts_own_ops[i].tensors * 4 + (cts_own_ops[i].compares ? 1 : 4)) * 1e-9 * MANY / many);
  }
  if (!timed) cts_skip(t, "the plugin takes none of the suite's operators in float32");
}
