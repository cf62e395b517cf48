/* Tests of a program's own kernels in the portable dialect on the fake device, in addition to those for any device
 * (opencl/opencl_compile.c): sums of groups, divided launches, unloading, and when kernels are compiled. */
#include <hal/hal.h>
#include <math.h>

#include "support.h"

static void setup(void) {
  assert_ok(hal_registry_add_path(PLUGIN_DIR));
  assert_ok(hal_registry_open("fake"));
}

static hal_block_t *blocks[8];
static size_t block_count;

static void teardown(void) {
  while (block_count) hal_memory_release(blocks[--block_count]);
  hal_registry_close();
}

TestSuite(fake_own_kernels, .init = setup, .fini = teardown, .timeout = 120);

static float *floats(size_t count, float value) {
  hal_block_t *block = NULL;
  assert_ok(hal_memory_allocate(0, NULL, count * sizeof(float), &block));
  blocks[block_count++] = block;
  float *const data = hal_memory_block_address(block);
  for (size_t i = 0; i < count; i++) data[i] = value;
  return data;
}

static const char sums[] =
    "#define ARGS(X) X(OUT, float, to), X(IN, float, from), X(VALUE, pk_u64, columns)\n"
    "PK_KERNEL(sums, ARGS) { PK_PROLOGUE(ARGS)\n"
    "  PK_LOCAL_ARRAY(float, part, PK_LSIZE);\n"
    "  PK_GROUP(g) {\n"
    "    PK_EACH(l) {\n"
    "      float sum = 0;\n"
    "      for (pk_u64 i = (pk_u64)l; i < columns; i += PK_LSIZE) sum += from[g * columns + i];\n"
    "      part[l] = sum;\n"
    "    }\n"
    "    PK_SYNC();\n"
    "    PK_FOLD(part, PK_PLUS)\n"
    "    PK_EACH(l) { if (l == 0) to[g] = pk_exp_f32(part[0]); }\n"
    "  }\n"
    "}\n";

Test(fake_own_kernels, groups_fold_and_call_the_dialects_functions) {
  enum { ROWS = 300, COLUMNS = 1001 };
  hal_kernel_t *kernel = NULL;
  float *from = floats((size_t)ROWS * COLUMNS, 1.0f / 2048), *to = floats(ROWS, 0);
  const uint64_t columns = COLUMNS;
  assert_ok(hal_kernel_compile(0, "sums", sums, &kernel));
  const hal_arg_t args[] = {{&to, sizeof to, HAL_ARG_POINTER},
                            {&from, sizeof from, HAL_ARG_POINTER},
                            {&columns, sizeof columns, HAL_ARG_VALUE}};
  assert_ok(hal_kernel_launch_groups(kernel, NULL, ROWS, args, 3));
  assert_ok(hal_device_synchronize(0));
  const double expected = exp(1001.0 / 2048);
  for (int i = 0; i < ROWS; i++) cr_assert(to[i] > expected - 1e-5 && to[i] < expected + 1e-5, "%d: %g", i, to[i]);
}

static const char items[] =
    "#define ARGS(X) X(OUT, float, to), X(IN, float, from), X(VALUE, pk_u64, n)\n"
    "PK_KERNEL(twice, ARGS) { PK_PROLOGUE(ARGS)\n"
    "  PK_VECTOR_ITEM(i, n) { to[i] = 2.0f * from[i]; }\n"
    "}\n";

Test(fake_own_kernels, large_launches_are_divided_and_end_where_they_end) {
  const uint64_t n = (3 << 20) + 5;
  hal_kernel_t *kernel = NULL;
  float *from = floats(n + 16, 3), *to = floats(n + 16, 0);
  assert_ok(hal_kernel_compile(0, "twice", items, &kernel));
  const hal_arg_t args[] = {
      {&to, sizeof to, HAL_ARG_POINTER}, {&from, sizeof from, HAL_ARG_POINTER}, {&n, sizeof n, HAL_ARG_VALUE}};
  assert_ok(hal_kernel_launch_items(kernel, NULL, n, args, 3));
  assert_ok(hal_device_synchronize(0));
  for (uint64_t i = 0; i < n + 16; i++) cr_assert_eq(to[i], i < n ? 6 : 0, "%llu", (unsigned long long)i);
}

Test(fake_own_kernels, native_kernels_come_first_and_nothing_is_compiled_for_them) {
  hal_kernel_stats_t stats = {.struct_size = sizeof stats};
  setenv("HAL_FAKE_CC", "/nowhere/cc", 1);
  float *const data = floats(100, 1);
  const int64_t size = 100, stride = 1;
  const hal_tensor_t tensor = {
      .struct_size = sizeof tensor, .data = data, .sizes = &size, .strides = &stride, .ndim = 1, .dtype = HAL_FLOAT32};
  const hal_value_t args[] = {{.tag = HAL_VALUE_TENSOR, .u.t = &tensor}};
  const hal_tensor_t *const results[] = {&tensor};
  hal_op_call_t call = {
      .struct_size = sizeof call, .arg_count = 1, .result_count = 1, .args = args, .results = results};
  uint32_t op;
  assert_ok(hal_op_id("neg", &op));
  assert_ok(hal_op_run(0, op, NULL, &call));
  assert_ok(hal_device_synchronize(0));
  cr_assert_eq(data[99], -1);
  assert_ok(hal_kernel_stats(0, &stats));
  cr_assert_str_eq(stats.dialect, "native");
  cr_assert_eq(stats.compiled, 0);
  hal_kernel_t *kernel = NULL;
  assert_fails(hal_kernel_compile(0, "twice", items, &kernel), HAL_UNIMPLEMENTED, "/nowhere/cc");
}

static const char slow[] =
    "#include <stdint.h>\n#include <unistd.h>\n"
    "typedef struct { uint64_t begin, end; } range_t;\n"
    "static void slow(const range_t *range, void *const *args) {\n"
    "  usleep(20000);\n"
    "  for (uint64_t i = range->begin; i < range->end; i++) (*(float *const *)args[0])[i] += 1;\n"
    "}\n"
    "const struct { const char *name; void (*fn)(const range_t *, void *const *); uint32_t args, unit, grain, none; }\n"
    "    hal_host_kernel_slow = {\"slow\", slow, 1, 1, 1, 0};\n";

Test(fake_own_kernels, unloading_waits_for_what_is_queued) {
  hal_module_t *module = NULL;
  hal_kernel_t *kernel = NULL;
  float *data = floats(1, 0);
  const hal_module_desc_t desc = {
      .struct_size = sizeof desc, .dialect = "c", .options = "", .data = slow, .size = sizeof slow - 1};
  assert_ok(hal_module_load(0, &desc, &module));
  assert_ok(hal_kernel_get(module, "slow", &kernel));
  const hal_arg_t argument = {&data, sizeof data, HAL_ARG_POINTER};
  const hal_launch_t launch = {
      .struct_size = sizeof launch, .grid = {1, 1, 1}, .block = {1, 1, 1}, .arg_count = 1, .args = &argument};
  for (int i = 0; i < 10; i++) assert_ok(hal_kernel_launch(kernel, NULL, &launch));
  hal_module_unload(module);
  cr_assert_eq(data[0], 10);
}
