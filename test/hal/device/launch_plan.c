/* The launches of typical shapes on a phone's GPU, a large GPU and a CPU, one text file per profile
 * (launch_plan/<profile>.txt). The devices are those of plugins/profiles.c: they report the properties of such
 * hardware and log the requested launches. LAUNCH_PLAN_WRITE=1 rewrites the files. */
#include <unistd.h>

#include "support.h"

enum { MOST_TENSORS = 7, MOST_DIMS = 4 };

typedef struct shape_s {
  int32_t ndim;
  int64_t sizes[MOST_DIMS];
  hal_dtype_t dtype;
} shape_t;

/* An operand with its sizes and strides. */
typedef struct operand_s {
  hal_tensor_t tensor;
  int64_t strides[MOST_DIMS];
  hal_block_t *block;
} operand_t;

static void make(int32_t device, const shape_t *shape, operand_t *out) {
  const size_t element = shape->dtype == HAL_INT64 ? 8 : shape->dtype == HAL_FLOAT32 ? 4 : 2;
  int64_t numel = 1;
  for (int32_t d = shape->ndim - 1; d >= 0; d--) out->strides[d] = numel, numel *= shape->sizes[d];
  assert_ok(hal_memory_allocate(device, NULL, (size_t)numel * element, &out->block));
  out->tensor = (hal_tensor_t){.struct_size = sizeof out->tensor,
                               .data = hal_memory_block_address(out->block),
                               .sizes = shape->sizes,
                               .strides = out->strides,
                               .ndim = shape->ndim,
                               .dtype = shape->dtype};
}

static hal_value_t tensor_value(const operand_t *operand) {
  return (hal_value_t){.tag = HAL_VALUE_TENSOR, .u.t = &operand->tensor};
}

/* Runs an operator with tensors, further values and results. */
static void run(int32_t device, const char *op, const shape_t *shapes, uint32_t tensors, const hal_value_t *rest,
                uint32_t rest_count, const shape_t *results, uint32_t result_count) {
  operand_t operands[2 * MOST_TENSORS];
  hal_value_t args[MOST_TENSORS + 10];
  const hal_tensor_t *made[MOST_TENSORS];
  uint32_t id;
  for (uint32_t i = 0; i < tensors; i++) make(device, shapes + i, operands + i), args[i] = tensor_value(operands + i);
  for (uint32_t i = 0; i < rest_count; i++) args[tensors + i] = rest[i];
  for (uint32_t i = 0; i < result_count; i++)
    make(device, results + i, operands + tensors + i), made[i] = &operands[tensors + i].tensor;
  hal_op_call_t call = {.struct_size = sizeof call,
                        .arg_count = tensors + rest_count,
                        .result_count = result_count,
                        .args = args,
                        .results = made};
  assert_ok(hal_op_id(op, &id));
  assert_ok(hal_op_run(device, id, NULL, &call));
  for (uint32_t i = 0; i < tensors + result_count; i++) hal_memory_release(operands[i].block);
}

static void note(const char *text) {
  FILE *const log = fopen(getenv("PROFILES_LOG"), "a");
  cr_assert_not_null(log);
  fprintf(log, "%s\n", text);
  fclose(log);
}

static void products(int32_t device) {
  static const int64_t sizes[][3] = {{64, 64, 64},    {256, 256, 256}, {1024, 1024, 1024}, {4096, 4096, 4096},
                                     {1, 4096, 4096}, {64, 512, 512},  {32, 65536, 32}};
  const hal_dtype_t dtypes[] = {HAL_FLOAT32, HAL_BFLOAT16};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    for (size_t t = 0; t < 2; t++) {
      const int64_t m = sizes[i][0], k = sizes[i][1], n = sizes[i][2];
      const shape_t in[] = {{2, {m, k}, dtypes[t]}, {2, {k, n}, dtypes[t]}}, out = {2, {m, n}, dtypes[t]};
      char text[100];
      snprintf(text, sizeof text, "mm %lld x %lld x %lld, %s", (long long)m, (long long)k, (long long)n,
               t ? "bfloat16" : "float32");
      note(text);
      run(device, "mm", in, 2, NULL, 0, &out, 1);
    }
}

/* For devices that compute in half precision, with channels last. */
static void convolutions(int32_t device) {
  static const int64_t one[] = {1, 1}, none[] = {0, 0};
  const hal_value_t rest[] = {{.tag = HAL_VALUE_NONE},
                              {.tag = HAL_VALUE_INT_LIST, .count = 2, .u.il = one},
                              {.tag = HAL_VALUE_INT_LIST, .count = 2, .u.il = one},
                              {.tag = HAL_VALUE_INT_LIST, .count = 2, .u.il = one},
                              {.tag = HAL_VALUE_INT, .u.i = 0},
                              {.tag = HAL_VALUE_INT_LIST, .count = 2, .u.il = none},
                              {.tag = HAL_VALUE_INT, .u.i = 1}};
  uint32_t op;
  assert_ok(hal_op_id("convolution_overrideable", &op));
  for (int t = 0; t < 2; t++) {
    const hal_dtype_t dtype = t ? HAL_FLOAT16 : HAL_FLOAT32;
    const shape_t image = {4, {16, 64, 32, 32}, dtype}, weight = {4, {64, 64, 3, 3}, dtype};
    const shape_t in[] = {image, weight}, all[] = {image, image, weight}, made[] = {image, weight};
    char text[100];
    if (!(hal_op_dtypes(device, op) >> dtype & 1)) continue;
    snprintf(text, sizeof text, "convolution 3 x 3 of 16 x 64 x 32 x 32, %s", t ? "float16" : "float32");
    note(text);
    run(device, "convolution_overrideable", in, 2, rest, 7, in, 1);
    note("its gradients");
    run(device, "convolution_backward_overrideable", all, 3, rest + 1, 6, made, 2);
  }
}

static void attention(int32_t device) {
  const shape_t in[] = {
      {4, {4, 8, 256, 64}, HAL_FLOAT32}, {4, {4, 8, 256, 64}, HAL_FLOAT32}, {4, {4, 8, 256, 64}, HAL_FLOAT32}};
  const shape_t out[] = {{4, {4, 8, 256, 64}, HAL_FLOAT32}, {3, {4, 8, 256}, HAL_FLOAT32}};
  const hal_value_t rest[] = {
      {.tag = HAL_VALUE_NONE}, {.tag = HAL_VALUE_INT, .u.i = 0}, {.tag = HAL_VALUE_DOUBLE, .u.d = 0.125}};
  note("attention 4 x 8 x 256 x 64, float32");
  run(device, "_scaled_dot_product_fused_attention_overrideable", in, 3, rest, 3, out, 2);
  const shape_t rows = {3, {4, 8, 256}, HAL_FLOAT32};
  operand_t operands[6];
  hal_value_t args[9];
  for (int i = 0; i < 6; i++) make(device, i < 5 ? in : &rows, operands + i);
  for (int i = 0; i < 4; i++) args[i] = tensor_value(operands + i);
  args[4] = rest[0], args[5] = tensor_value(operands + 4), args[6] = tensor_value(operands + 5);
  args[7] = rest[1], args[8] = rest[2];
  note("its gradients");
  run(device, "_scaled_dot_product_fused_attention_overrideable_backward", NULL, 0, args, 9, in, 3);
  for (int i = 0; i < 6; i++) hal_memory_release(operands[i].block);
}

/* Rows that are accumulated at indices: few columns, many columns, a vector. */
static void scatter(int32_t device) {
  static const struct {
    const char *what;
    int64_t n, columns, bound;
  } cases[] = {{"8192 rows of 128 added to 50000", 8192, 128, 50000},
               {"8192 rows of 4096 added to 50000", 8192, 4096, 50000},
               {"1048576 numbers added to 1000", 1 << 20, 1, 1000}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const shape_t source = {2, {cases[i].n, cases[i].columns}, HAL_FLOAT32};
    const shape_t list = {2, {cases[i].n, 1}, HAL_INT64}, sums = {2, {cases[i].bound, cases[i].columns}, HAL_FLOAT32};
    const int64_t spread[] = {1, 0};
    operand_t operands[2];
    make(device, &list, operands), make(device, &source, operands + 1);
    operands[0].tensor.sizes = source.sizes, operands[0].tensor.strides = spread;
    const hal_value_t sum = {.tag = HAL_VALUE_INT, .u.i = 0};
    const hal_value_t args[] = {sum, tensor_value(operands), tensor_value(operands + 1), sum};
    note(cases[i].what);
    run(device, "scatter_reduce.lines", NULL, 0, args, 4, &sums, 1);
    hal_memory_release(operands[0].block), hal_memory_release(operands[1].block);
  }
}

static void rows(int32_t device) {
  static const int64_t last[] = {1};
  const shape_t matrix = {2, {4096, 4096}, HAL_FLOAT32}, two[] = {matrix, matrix}, row = {2, {4096, 1}, HAL_FLOAT32};
  const hal_value_t number = {.tag = HAL_VALUE_INT, .u.i = 1},
                    dim = {.tag = HAL_VALUE_INT_LIST, .count = 1, .u.il = last};
  note("add 4096 x 4096, float32");
  run(device, "add.Tensor", two, 2, &number, 1, &matrix, 1);
  note("sum of rows 4096 x 4096, float32");
  run(device, "sum.dim_IntList", &matrix, 1, &dim, 1, &row, 1);
  note("softmax of rows 4096 x 4096, float32");
  run(device, "_softmax", &matrix, 1, &number, 1, &matrix, 1);
  note("its gradient");
  run(device, "_softmax_backward_data", two, 2, &number, 1, &matrix, 1);
  const shape_t column = {1, {4096}, HAL_FLOAT32}, in[] = {matrix, column, column}, made[] = {matrix, column, column};
  const hal_value_t eps = {.tag = HAL_VALUE_DOUBLE, .u.d = 1e-5};
  note("layer norm of rows 4096 x 4096, float32");
  run(device, "native_layer_norm", in, 3, &eps, 1, made, 3);
  note("its gradients");
  const shape_t back[] = {matrix, matrix, column, column, column};
  run(device, "native_layer_norm_backward", back, 5, NULL, 0, made, 3);
}

/* The text of the files; the caller frees it. */
static char *read_file(const char *path) {
  FILE *const file = fopen(path, "r");
  if (!file) return NULL;
  char *const text = calloc(1, 1 << 16);
  const size_t size = fread(text, 1, (1 << 16) - 1, file);
  fclose(file);
  text[size] = 0;
  return text;
}

static void check(int32_t device, const char *profile) {
  char log[] = "/tmp/launch_plan_XXXXXX", golden[500];
  const int file = mkstemp(log);
  cr_assert_geq(file, 0);
  close(file);
  setenv("PROFILES_LOG", log, 1);
  setenv("HAL_CACHE_DIR", "", 1);
  open_fixture("profiles");
  products(device), convolutions(device), attention(device), scatter(device), rows(device);
  snprintf(golden, sizeof golden, LAUNCH_PLAN_DIR "/%s.txt", profile);
  char *const made = read_file(log), *const kept = read_file(golden);
  if (strstr(made, "-1 local bytes"))
    cr_skip_test("clang is not installed; it is required to measure the local memory of kernels");
  if (getenv("LAUNCH_PLAN_WRITE")) {
    FILE *const out = fopen(golden, "w");
    cr_assert_not_null(out, "%s cannot be written", golden);
    fputs(made, out);
    fclose(out);
  } else {
    cr_assert_not_null(kept, "%s is missing; LAUNCH_PLAN_WRITE=1 makes it", golden);
    cr_assert_str_eq(made, kept, "the launches differ from %s; if they should, LAUNCH_PLAN_WRITE=1 writes it anew:\n%s",
                     golden, made);
  }
  free(made), free(kept);
  remove(log);
}

Test(launch_plan, a_phones_gpu_gets_the_launches_of_its_file) { check(0, "phone"); }
Test(launch_plan, a_large_gpu_gets_the_launches_of_its_file) { check(1, "large"); }
Test(launch_plan, a_cpu_gets_the_launches_of_its_file) { check(2, "cpu"); }
