/* fake_host_kernels.c: modules in the dialect "host": kernels that a library compiled for the CPU run on the fake
 * device's streams like its own. */
#include <hal/plugin_kernels.h>

#include "fake_support.h"

static void add_one(const hal_host_range_t *range, void *const *args) {
  float *data = *(float *const *)args[0];
  for (uint64_t i = range->begin; i < range->end; i++) data[i] += 1;
}

static const hal_host_kernel_t kernels[] = {
    {.name = "add_one", .fn = add_one, .arg_count = 1, .unit = HAL_HOST_ITEMS, .grain = 64}};

static hal_plugin_module_t *load(void) {
  const hal_module_desc_t desc = {
      .struct_size = sizeof desc, .dialect = "host", .options = "", .data = kernels, .size = sizeof kernels};
  hal_plugin_module_t *module = NULL;
  must(fake_api.module_load(0, &desc, &module));
  return module;
}

static void launches_in_order(int async) {
  enum { COUNT = 1000, TIMES = 20 };
  open_mode(async, 1);
  hal_plugin_module_t *module = load();
  hal_plugin_kernel_t *kernel = NULL;
  hal_plugin_stream_t *stream = new_stream();
  float *data = new_floats(COUNT, 0);
  must(fake_api.kernel_get(module, "add_one", &kernel));
  const hal_arg_t argument = {&data, sizeof data, HAL_ARG_POINTER};
  const hal_launch_t launch = {.struct_size = sizeof launch,
                               .grid = {COUNT / 250, 1, 1},
                               .block = {250, 1, 1},
                               .arg_count = 1,
                               .args = &argument};
  for (int i = 0; i < TIMES; i++) must(fake_api.kernel_launch(kernel, stream, &launch));
  must(fake_api.stream_synchronize(stream));
  for (int i = 0; i < COUNT; i++) cr_assert_eq(data[i], TIMES, "element %d is %g", i, data[i]);
  must(fake_api.module_unload(module));
}

Test(fake_host_kernels, run_on_a_stream) { launches_in_order(1); }
Test(fake_host_kernels, run_on_a_stream_inline) { launches_in_order(0); }

Test(fake_host_kernels, a_module_has_its_own_kernels_only) {
  open_mode(1, 1);
  hal_plugin_module_t *module = load();
  hal_plugin_kernel_t *kernel = NULL;
  must_fail(fake_api.kernel_get(module, "add_f32_contig", &kernel), HAL_NOT_FOUND, "1 kernels of the module");
  cr_assert_null(kernel);
  must(fake_api.module_unload(module));
}

Test(fake_host_kernels, invalid_tables_are_refused) {
  open_mode(1, 1);
  hal_plugin_module_t *module = NULL;
  hal_module_desc_t desc = {.struct_size = sizeof desc, .dialect = "host", .options = ""};
  must_fail(fake_api.module_load(0, &desc, &module), HAL_INVALID_ARGUMENT, "0 bytes");
  desc.data = kernels, desc.size = sizeof kernels - 1;
  must_fail(fake_api.module_load(0, &desc, &module), HAL_INVALID_ARGUMENT, "array of hal_host_kernel_t");
  cr_assert_null(module);
}
