/* fake_launch.c: modules, kernels and launches of the fake device: results, copies of the arguments, rejected calls. */
#define _GNU_SOURCE
#include <float.h>
#include <math.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "fake_support.h"

Test(fake_launch, unknown_dialects_and_kernels_are_refused) {
  open_mode(1, 1);
  hal_module_desc_t desc = {.struct_size = sizeof desc, .dialect = "ptx", .options = "", .data = "", .size = 0};
  hal_plugin_module_t *module = NULL;
  hal_plugin_kernel_t *kernel = NULL;
  must_fail(fake_api.module_load(0, &desc, &module), HAL_UNIMPLEMENTED, "ptx");
  desc.dialect = "native";
  must(fake_api.module_load(0, &desc, &module));
  must_fail(fake_api.kernel_get(module, "no_such_kernel", &kernel), HAL_NOT_FOUND, "no_such_kernel");
  cr_assert_null(kernel);
  must(fake_api.kernel_get(module, "add_f32_contig", &kernel));
  must(fake_api.module_unload(module));
}

static void bad_launches(int async) {
  open_mode(async, 1);
  hal_plugin_kernel_t *kernel = fake_kernel("add_f32_contig");
  hal_plugin_stream_t *stream = new_stream();
  float *data = new_floats(64, 0);
  fake_add_t add;
  fake_add_set(&add, data, data, data, 1, 16);
  const hal_launch_t good = add.launch;
  const hal_arg_t first = add.args[0], last = add.args[4];
#define REFUSED(change, text)                                                                   \
  do {                                                                                          \
    add.launch = good, add.args[0] = first, add.args[4] = last;                                 \
    change;                                                                                     \
    must_fail(fake_api.kernel_launch(kernel, stream, &add.launch), HAL_INVALID_ARGUMENT, text); \
    cr_assert_not_null(strstr(fake_message, "add_f32_contig"), "%s", fake_message);             \
  } while (0)
  REFUSED(add.launch.grid[0] = 0, "no size may be 0");
  REFUSED(add.launch.block[2] = 0, "no size may be 0");
  REFUSED(add.launch.block[0] = UINT32_MAX, "4294967295");
  REFUSED(add.launch.grid[1] = 2, "one dimension");
  REFUSED(add.launch.block[2] = 2, "one dimension");
  REFUSED(add.launch.shared_bytes = 64, "64 shared bytes");
  REFUSED(add.launch.arg_count = 4, "4 arguments; it takes 5");
  REFUSED(add.args[0].size = 4, "argument 0");
  REFUSED(add.args[4].value = NULL, "argument 4");
  REFUSED(add.args[4].size = 100000, "100000 bytes");
  REFUSED(add.args[0].kind = HAL_ARG_LOCAL, "kind 2");
  add.launch = good, add.args[0] = first, add.args[4] = last;
  must(fake_api.kernel_launch(kernel, stream, &add.launch));
  must(fake_api.stream_synchronize(stream)); /* a refused launch must not record a failure */
}

Test(fake_launch, bad_launches_name_the_kernel) { bad_launches(1); }
Test(fake_launch, bad_launches_name_the_kernel_inline) { bad_launches(0); }

Test(fake_launch, arguments_are_copied_when_the_call_returns, .timeout = 60) {
  open_mode(1, 2);
  hal_plugin_stream_t *stream = new_stream();
  float *out = new_floats(16, 0), *a = new_floats(16, 5), *b = new_floats(16, 2);
  fake_gate_t gate = {0};
  fake_add_t add;
  must(fake_api.stream_host_call(stream, fake_gate_wait, &gate));
  fake_add_set(&add, out, a, b, 3.0f, 16);
  must(fake_api.kernel_launch(fake_kernel("add_f32_contig"), stream, &add.launch));
  memset(&add, 0xFF, sizeof add);
  atomic_store(&gate.open, 1);
  must(fake_api.stream_synchronize(stream));
  for (int i = 0; i < 16; i++) cr_assert_eq(out[i], 11.0f);
}

enum { BIG = 3000017 };

static float input(uint64_t i, uint32_t salt) {
  const uint32_t mixed = ((uint32_t)i + salt) * 2654435761u;
  return (float)(int32_t)(mixed ^ mixed >> 15) * 1e-6f;
}

/* Computes a + alpha * b in a separate process, because the mode is read once, and writes into shared memory. */
static void add_in_mode(int async, int threads, float *result) {
  const pid_t child = fork();
  cr_assert_geq(child, 0);
  if (child == 0) {
    open_mode(async, threads);
    hal_plugin_stream_t *stream = new_stream();
    float *a = new_floats(BIG, 0), *b = new_floats(BIG, 0);
    for (uint64_t i = 0; i < BIG; i++) a[i] = input(i, 1), b[i] = input(i, 77);
    fake_add_t add;
    fake_add_set(&add, result, a, b, 0.3f, BIG);
    must(fake_api.kernel_launch(fake_kernel("add_f32_contig"), stream, &add.launch));
    must(fake_api.stream_synchronize(stream));
    _exit(0);
  }
  int status = 1;
  cr_assert_eq(waitpid(child, &status, 0), child);
  cr_assert_eq(status, 0);
}

Test(fake_launch, equal_bits_in_both_modes_with_any_number_of_threads, .timeout = 120) {
  static const struct { int async, threads; } modes[] = {{0, 1}, {0, 2}, {0, 5}, {1, 1}, {1, 2}, {1, 5}};
  float *results[6];
  for (int k = 0; k < 6; k++) {
    results[k] = mmap(NULL, BIG * sizeof(float), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    cr_assert(results[k] != MAP_FAILED);
    add_in_mode(modes[k].async, modes[k].threads, results[k]);
    cr_assert_eq(memcmp(results[0], results[k], BIG * sizeof(float)), 0, "async %d, %d threads", modes[k].async,
                 modes[k].threads);
  }
  for (uint64_t i = 0; i < BIG; i++) {
    const double a = input(i, 1), scaled = (double)0.3f * (double)input(i, 77);
    cr_assert_leq(fabs((double)results[0][i] - (a + scaled)), FLT_EPSILON * (fabs(a) + fabs(scaled)), "element %llu",
                  (unsigned long long)i);
  }
}

Test(fake_launch, attributes_that_are_hints_are_passed_over_and_required_ones_are_not_had) {
  open_mode(1, 1);
  float *const data = new_floats(16, 1);
  hal_plugin_stream_t *const stream = new_stream();
  hal_launch_attribute_t attribute = {.kind = HAL_LAUNCH_PRIORITY, .x = 1};
  fake_add_t add;
  fake_add_set(&add, data, data, data, 1, 16);
  add.launch.struct_size = sizeof add.launch;
  add.launch.attributes = &attribute;
  add.launch.attribute_count = 1;
  must(fake_api.kernel_launch(fake_kernel("add_f32_contig"), stream, &add.launch));
  attribute.required = 1;
  cr_assert_eq(fake_api.kernel_launch(fake_kernel("add_f32_contig"), stream, &add.launch), HAL_UNIMPLEMENTED);
  must(fake_api.stream_synchronize(stream));
  cr_assert_eq(data[0], 2);
}

Test(fake_launch, kernel_info_reports_which_blocks_can_run) {
  open_mode(1, 1);
  hal_kernel_info_t info = {.struct_size = sizeof info};
  must(fake_api.kernel_info(fake_kernel("add_f32_contig"), 256, 0, &info));
  cr_assert(info.blocks_per_unit == 1 && info.max_block_threads >= 256);
  must(fake_api.kernel_info(fake_kernel("add_f32_contig"), info.max_block_threads + 1, 0, &info));
  cr_assert_eq(info.blocks_per_unit, 0);
  must(fake_api.kernel_info(fake_kernel("add_f32_contig"), 256, 64, &info)); /* there is no shared memory */
  cr_assert_eq(info.blocks_per_unit, 0);
}
