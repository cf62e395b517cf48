/* op.c: a plugin's own operators, called as the host calls them, beside double precision. */
#include <math.h>
#include <stdio.h>

#include "cts.h"
#include "hal/status.h"

enum { ROWS = 37, COLUMNS = 53, COUNT = ROWS * COLUMNS, ROOM = 4 * COUNT };

static double do_add(double a, double b) { return a + 2 * b; }
static double do_sub(double a, double b) { return a - 2 * b; }
static double do_mul(double a, double b) { return a * b; }
static double do_div(double a, double b) { return a / b; }
static double do_neg(double a, double b) { return (void)b, -a; }
static double do_abs(double a, double b) { return (void)b, fabs(a); }
static double do_exp(double a, double b) { return (void)b, exp(a); }
static double do_relu(double a, double b) { return (void)b, a > 0 ? a : 0; }
static double do_tanh(double a, double b) { return (void)b, tanh(a); }
static double do_sqrt(double a, double b) { return (void)b, sqrt(a); }

/* Arguments as in the frozen list of codegen/ops.yaml: tensors, then alpha where there is one. */
static const struct {
  const char *name;
  int tensors, has_alpha;
  double (*value)(double a, double b);
} ops[] = {{"add.Tensor", 2, 1, do_add}, {"sub.Tensor", 2, 1, do_sub}, {"mul.Tensor", 2, 0, do_mul},
           {"div.Tensor", 2, 0, do_div}, {"neg", 1, 0, do_neg},        {"abs", 1, 0, do_abs},
           {"exp", 1, 0, do_exp},        {"relu", 1, 0, do_relu},      {"tanh", 1, 0, do_tanh},
           {"sqrt", 1, 0, do_sqrt}};
enum { OPS = sizeof ops / sizeof ops[0] };

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

/* How an operand lies: strides in elements, over memory of ROOM elements. */
typedef struct layout_s {
  int64_t row, column, first;
} layout_t;

typedef struct operand_s {
  hal_tensor_t tensor;
  int64_t sizes[2], strides[2];
  float *host;
  layout_t layout;
} operand_t;

static void make_operand(cts_t *t, operand_t *operand, layout_t layout, uint64_t seed) {
  float *const host = (float *)(void *)cts_host(t, ROOM * sizeof(float));
  void *const device = cts_alloc(t, ROOM * sizeof(float));
  uint32_t *const noise = (uint32_t *)(void *)cts_host(t, ROOM * sizeof(uint32_t));
  cts_noise(noise, ROOM * sizeof(uint32_t), seed);
  for (int i = 0; i < ROOM; i++)
    host[i] = (float)(noise[i] >> 8) * 0x1p-23f + 0.25f; /* 0.25 to 2.25: roots and quotients are fine */
  cts_put(t, NULL, device, host, ROOM * sizeof(float));
  *operand =
      (operand_t){.sizes = {ROWS, COLUMNS}, .strides = {layout.row, layout.column}, .host = host, .layout = layout};
  operand->tensor = (hal_tensor_t){.struct_size = HAL_STRUCT_SIZE(hal_tensor_t, flags),
                                   .data = (float *)device + layout.first,
                                   .sizes = operand->sizes,
                                   .strides = operand->strides,
                                   .ndim = 2,
                                   .dtype = HAL_FLOAT32,
                                   .device = t->device};
}

static int64_t place(const operand_t *operand, int row, int column) {
  return operand->layout.first + row * operand->layout.row + column * operand->layout.column;
}

/* Calls an operator and looks at the whole memory of its result: the elements, and what lies between them. */
static void check_call(cts_t *t, int which, const hal_op_own_t *own, layout_t to, layout_t from, layout_t other,
                       uint32_t flags) {
  static operand_t a, b, result;
  hal_plugin_stream_t *const stream = cts_stream(t);
  make_operand(t, &a, from, 1);
  make_operand(t, &b, other, 2);
  make_operand(t, &result, to, 3);
  const hal_tensor_t *const results[1] = {&result.tensor};
  hal_value_t args[3] = {{.tag = HAL_VALUE_TENSOR, .u.t = &a.tensor},
                         {.tag = HAL_VALUE_TENSOR, .u.t = &b.tensor},
                         {.tag = HAL_VALUE_INT, .u.i = 2}};
  const hal_op_call_t call = {.struct_size = HAL_STRUCT_SIZE(hal_op_call_t, host),
                              .stream = stream,
                              .device = t->device,
                              .arg_count = (uint32_t)(ops[which].tensors + ops[which].has_alpha),
                              .result_count = 1,
                              .flags = flags,
                              .args = args,
                              .results = results};
  hal_op_call_t question = call;
  question.stream = NULL;
  const hal_status_t said = own->query ? own->query(own->state, &question) : HAL_OK;
  const hal_status_t status = own->fn(own->state, &call);
  CTS_CHECK(t, status == HAL_OK || status == HAL_UNIMPLEMENTED, "%s gave %s: %s", ops[which].name,
            hal_status_name(status), hal_error_message());
  CTS_CHECK(t, status == HAL_OK || !((own->query && !said) || (own->flags & HAL_OP_NEVER_DECLINES)),
            "%s declined a call that it promised to take", ops[which].name);
  cts_sync(t, stream);
  float *const got = (float *)(void *)cts_host(t, ROOM * sizeof(float));
  cts_get(t, NULL, got, (float *)result.tensor.data - to.first, ROOM * sizeof(float));
  for (int row = 0; !status && row < ROWS; row++)
    for (int column = 0; column < COLUMNS; column++) {
      const int64_t at = place(&result, row, column);
      const double expected =
          ops[which].value((double)a.host[place(&a, row, column)], (double)b.host[place(&b, row, column)]);
      CTS_CHECK(t, fabs((double)got[at] - expected) <= 4e-6 * (1 + fabs(expected)),
                "%s at row %d, column %d is %.9g instead of %.9g (strides: result %lld %lld, operands %lld %lld and "
                "%lld %lld)",
                ops[which].name, row, column, (double)got[at], expected, (long long)to.row, (long long)to.column,
                (long long)from.row, (long long)from.column, (long long)other.row, (long long)other.column);
      got[at] = result.host[at];
    }
  cts_same(t, got, result.host, ROOM * sizeof(float),
           status ? "the result of an operator that declined the call" : "memory beside an operator's result");
  cts_get(t, NULL, got, (float *)a.tensor.data - from.first, ROOM * sizeof(float));
  cts_same(t, got, a.host, ROOM * sizeof(float), "an operand of an operator, behind the call");
}

static const layout_t dense = {COLUMNS, 1, 0}, later = {COLUMNS, 1, 64}, turned = {1, ROWS, 0},
                      wide = {2 * COLUMNS, 2, 1}, one_row = {0, 1, 0}, one_column = {1, 0, 3};

void cts_case_op_values(cts_t *t) {
  hal_op_own_t own;
  int checked = 0;
  for (int i = 0; i < OPS; i++) {
    if (find(t, ops[i].name, &own) || !(own.dtypes & HAL_DTYPE_BIT(HAL_FLOAT32))) continue;
    if (!(own.layouts & (HAL_TAKES_CONTIGUOUS | HAL_TAKES_STRIDED))) continue;
    check_call(t, i, &own, dense, dense, dense, HAL_CALL_DENSE);
    check_call(t, i, &own, later, later, dense, HAL_CALL_DENSE);
    checked++;
  }
  if (!checked) cts_skip(t, "the plugin has none of the suite's operators in float32");
}

void cts_case_op_strided(cts_t *t) {
  hal_op_own_t own;
  int checked = 0;
  for (int i = 0; i < OPS; i++) {
    if (find(t, ops[i].name, &own) || !(own.dtypes & HAL_DTYPE_BIT(HAL_FLOAT32)) || !(own.layouts & HAL_TAKES_STRIDED))
      continue;
    check_call(t, i, &own, dense, turned, dense, 0);
    check_call(t, i, &own, dense, wide, turned, 0);
    check_call(t, i, &own, turned, dense, wide, 0);
    check_call(t, i, &own, wide, one_row, one_column, 0);
    checked++;
  }
  if (!checked) cts_skip(t, "no operator of the plugin that the suite knows takes strided float32 operands");
}
