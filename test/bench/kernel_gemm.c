/* kernel_gemm.c: time of the heavy portable kernels on the fake device, from the operator's call to the end of the
 * work: matrix products at the sizes of small networks and of large ones, reductions, softmax and random numbers.
 *
 *   HAL_PLUGIN_PATH=<folder of libhal_fake.so> bench_kernel_gemm [repetitions]
 *
 * Prints the best and the median time of each. For a comparison run the same shapes in torch with as many threads. */
#include <hal/hal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static int repetitions = 30;

static void must(hal_status_t status) {
  if (!status) return;
  fprintf(stderr, "%s: %s\n", hal_status_name(status), hal_error_message());
  exit(1);
}

static double now(void) {
  struct timespec t;
  timespec_get(&t, TIME_UTC);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

typedef struct matrix_s {
  hal_tensor_t tensor;
  int64_t sizes[2], strides[2];
  hal_block_t *block;
} matrix_t;

/* A matrix of uniform numbers; with `transposed`, the first dimension is the innermost. */
static void matrix_init(matrix_t *m, int64_t rows, int64_t columns, int transposed, hal_dtype_t dtype) {
  const size_t bytes = (size_t)(rows * columns) * (dtype == HAL_FLOAT32 ? 4 : 8);
  m->sizes[0] = rows, m->sizes[1] = columns;
  m->strides[0] = transposed ? 1 : columns, m->strides[1] = transposed ? rows : 1;
  must(hal_memory_allocate(0, NULL, bytes, &m->block));
  m->tensor = (hal_tensor_t){.struct_size = sizeof m->tensor,
                             .data = hal_memory_block_address(m->block),
                             .sizes = m->sizes,
                             .strides = m->strides,
                             .ndim = 2,
                             .dtype = dtype};
  if (dtype != HAL_FLOAT32) return;
  uint32_t uniform;
  must(hal_op_id("uniform", &uniform));
  matrix_t flat = *m; /* the same memory as a row */
  flat.sizes[0] = 1, flat.sizes[1] = rows * columns, flat.strides[0] = rows * columns, flat.strides[1] = 1;
  flat.tensor.sizes = flat.sizes, flat.tensor.strides = flat.strides;
  const hal_value_t args[] = {{.tag = HAL_VALUE_DOUBLE, .u.d = -1}, {.tag = HAL_VALUE_DOUBLE, .u.d = 1}};
  const hal_tensor_t *const results[] = {&flat.tensor};
  hal_op_call_t call = {
      .struct_size = sizeof call, .arg_count = 2, .result_count = 1, .args = args, .results = results, .seed = 1};
  must(hal_op_run(0, uniform, NULL, &call));
}

static int by_value(const void *x, const void *y) {
  const double a = *(const double *)x, b = *(const double *)y;
  return (a > b) - (a < b);
}

/* Runs the call and prints its times; `work` in 10^9 units of `unit`. */
static void measure(const char *what, const char *op, const hal_op_call_t *call, double work, const char *unit) {
  uint32_t id;
  double *times = malloc((size_t)repetitions * sizeof *times);
  must(hal_op_id(op, &id));
  if (!times) exit(1);
  for (int i = -3; i < repetitions; i++) {
    hal_op_call_t copy = *call;
    const double start = now();
    must(hal_op_run(0, id, NULL, &copy));
    must(hal_device_synchronize(0));
    if (i >= 0) times[i] = now() - start;
  }
  qsort(times, (size_t)repetitions, sizeof *times, by_value);
  printf("%-34s best %9.1f us  median %9.1f us  %7.1f %s\n", what, times[0] * 1e6, times[repetitions / 2] * 1e6,
         work / times[0], unit);
  free(times);
}

static void products(void) {
  static const int64_t shapes[][3] = {{64, 64, 64},    {256, 256, 256}, {512, 512, 512}, {1024, 1024, 1024},
                                      {32, 10, 128},   {32, 128, 784},  {64, 10, 512},   {64, 512, 1024},
                                      {64, 1024, 512}, {64, 128, 64},   {32, 512, 1024}, {128, 784, 32},
                                      {1, 512, 512},   {10, 128, 64},   {512, 1024, 64}};
  static const char *const ways[] = {"a @ b", "a @ w.t()", "g.t() @ x"};
  for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
    for (int way = 0; way < 3; way++) {
      const int64_t m = shapes[s][0], n = shapes[s][1], k = shapes[s][2];
      matrix_t a, b, r;
      char what[64];
      matrix_init(&a, m, k, way == 2, HAL_FLOAT32);
      matrix_init(&b, k, n, way == 1, HAL_FLOAT32);
      matrix_init(&r, m, n, 0, HAL_FLOAT32);
      const hal_value_t args[] = {{.tag = HAL_VALUE_TENSOR, .u.t = &a.tensor},
                                  {.tag = HAL_VALUE_TENSOR, .u.t = &b.tensor}};
      const hal_tensor_t *const results[] = {&r.tensor};
      const hal_op_call_t call = {
          .struct_size = sizeof call, .arg_count = 2, .result_count = 1, .args = args, .results = results};
      snprintf(what, sizeof what, "%-9s %4lld x %4lld, k %4lld", ways[way], (long long)m, (long long)n, (long long)k);
      measure(what, "mm", &call, 2e-9 * (double)m * (double)n * (double)k, "GFLOP/s");
      hal_memory_release(a.block), hal_memory_release(b.block), hal_memory_release(r.block);
    }
}

static void others(void) {
  enum { N = 4096 };
  static const struct {
    const char *what, *op;
    int64_t rows, columns; /* of the result */
    int32_t dim;           /* -1: all; -2: no argument */
  } cases[] = {{"sum, rows", "sum.dim_IntList", N, 1, 1}, {"sum, columns", "sum.dim_IntList", 1, N, 0},
               {"sum, all", "sum.dim_IntList", 1, 1, -1}, {"amax, rows", "amax", N, 1, 1},
               {"amax, columns", "amax", 1, N, 0},        {"amax, all", "amax", 1, 1, -1},
               {"argmax, rows", "argmax", N, 1, 1},       {"argmax, columns", "argmax", 1, N, 0},
               {"argmax, all", "argmax", 1, 1, -1},       {"softmax, rows", "_softmax", N, N, 1},
               {"softmax, columns", "_softmax", N, N, 0}, {"log_softmax, rows", "_log_softmax", N, N, 1},
               {"uniform", "uniform", N, N, -2},          {"normal", "normal_functional", N, N, -2},
               {"bernoulli", "bernoulli.p", N, N, -2}};
  matrix_t a;
  matrix_init(&a, N, N, 0, HAL_FLOAT32);
  for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
    matrix_t r;
    matrix_init(&r, cases[c].rows, cases[c].columns, 0,
                cases[c].op[0] == 'a' && cases[c].op[1] == 'r' ? HAL_INT64 : HAL_FLOAT32);
    const hal_value_t with_dim[] = {{.tag = HAL_VALUE_TENSOR, .u.t = &a.tensor},
                                    {.tag = cases[c].dim < 0 ? HAL_VALUE_NONE : HAL_VALUE_INT, .u.i = cases[c].dim}};
    const hal_value_t numbers[] = {{.tag = HAL_VALUE_DOUBLE, .u.d = 0}, {.tag = HAL_VALUE_DOUBLE, .u.d = 1}};
    const hal_tensor_t *const results[] = {&r.tensor};
    const int random = cases[c].dim == -2;
    const hal_op_call_t call = {.struct_size = sizeof call,
                                .arg_count = cases[c].op[0] == 'b' ? 1 : 2,
                                .result_count = 1,
                                .args = random ? numbers : with_dim,
                                .results = results};
    measure(cases[c].what, cases[c].op, &call, 4e-9 * N * N, "GB/s of float32");
    hal_memory_release(r.block);
  }
  hal_memory_release(a.block);
}

int main(int argc, char **argv) {
  if (argc > 1) repetitions = atoi(argv[1]);
  if (repetitions < 1) repetitions = 1;
  must(hal_registry_open("fake"));
  if (hal_device_count() < 1) {
    fprintf(stderr, "no device: %s\n", hal_registry_report());
    return 1;
  }
  products();
  others();
  return 0;
}
