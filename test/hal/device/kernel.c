/* Tests of kernel.h: modules and kernels that a program supplies. */
#include "hal/lazy.h"
#include "support.h"

static hal_status_t load(int32_t device, const char *dialect, hal_module_t **out_module) {
  const hal_module_desc_t desc = {.struct_size = sizeof desc, .dialect = dialect, .options = ""};
  return hal_module_load(device, &desc, out_module);
}

static void setup(void) { assert_ok(hal_registry_open(FIXTURE("tally") "," FIXTURE("five"))); }

TestSuite(kernel, .init = setup);

Test(kernel, a_launch_passes_the_arguments) {
  hal_module_t *module;
  hal_kernel_t *store;
  int32_t value = 4711;
  hal_block_t *block;
  assert_ok(hal_memory_allocate(0, NULL, sizeof(int32_t), &block));
  int32_t *target = hal_memory_block_address(block); /* the host may read it: "tally" reports HOST_VISIBLE */
  const hal_arg_t arguments[] = {{&target, sizeof target, HAL_ARG_POINTER}, {&value, sizeof value, HAL_ARG_VALUE}};
  const hal_launch_t launch = {
      .struct_size = sizeof launch, .grid = {1, 1, 1}, .block = {1, 1, 1}, .arg_count = 2, .args = arguments};
  assert_ok(load(0, "tally", &module));
  assert_ok(hal_kernel_get(module, "store", &store));
  assert_ok(hal_kernel_launch(store, NULL, &launch));
  assert_ok(hal_device_synchronize(0));
  cr_assert_eq(*target, 4711);
  hal_memory_release(block);
  hal_module_unload(module);
  hal_module_unload(NULL);
}

Test(kernel, a_kernel_is_looked_up_once_and_keeps_its_handle) {
  hal_module_t *module;
  hal_kernel_t *first, *again;
  assert_ok(load(0, "tally", &module));
  assert_ok(hal_kernel_get(module, "store", &first));
  assert_ok(hal_kernel_get(module, "store", &again));
  cr_assert_eq(first, again);
  hal_module_unload(module);
}

Test(kernel, an_unknown_kernel_is_named) {
  hal_module_t *module;
  hal_kernel_t *kernel = NULL;
  assert_ok(load(0, "tally", &module));
  assert_fails(hal_kernel_get(module, "gemm", &kernel), HAL_NOT_FOUND,
               "kernel 'gemm': tally, kernel_get: the module has store");
  cr_assert_null(kernel);
  hal_module_unload(module);
}

Test(kernel, an_unknown_dialect_names_what_the_device_accepts) {
  hal_module_t *module;
  assert_fails(load(0, "cobol", &module), HAL_UNIMPLEMENTED, "in the dialect 'cobol' (device tally:0 accepts 'tally')");
}

Test(kernel, a_plugin_without_modules_returns_UNIMPLEMENTED) {
  hal_module_t *module;
  assert_fails(load(2, "native", &module), HAL_UNIMPLEMENTED, "five, module_load");
}

Test(kernel, a_bad_geometry_is_refused) {
  hal_module_t *module;
  hal_kernel_t *hold;
  hal_launch_t launch = {.struct_size = sizeof launch, .grid = {1, 1, 1}, .block = {1, 0, 1}};
  assert_ok(load(0, "tally", &module));
  assert_ok(hal_kernel_get(module, "hold", &hold));
  assert_fails(hal_kernel_launch(hold, NULL, &launch), HAL_INVALID_ARGUMENT, "dimension 1 has grid 1 and block 0");
  launch.block[1] = 1;
  launch.arg_count = 1;
  assert_fails(hal_kernel_launch(hold, NULL, &launch), HAL_INVALID_ARGUMENT, "argument_count is 1, and args is NULL");
  launch.arg_count = 0;
  launch.attribute_count = 2;
  assert_fails(hal_kernel_launch(hold, NULL, &launch), HAL_INVALID_ARGUMENT,
               "attribute_count is 2, and attributes is NULL");
  launch.struct_size = 8;
  assert_fails(hal_kernel_launch(hold, NULL, &launch), HAL_INCOMPATIBLE, "struct_size of the launch is 8");
  hal_module_unload(module);
}

/* An argument at an unreadable address. */
static void assert_argument_refused(hal_kernel_t *kernel, hal_arg_t argument) {
  const hal_launch_t launch = {
      .struct_size = sizeof launch, .grid = {1, 1, 1}, .block = {1, 1, 1}, .arg_count = 1, .args = &argument};
  assert_fails(hal_kernel_launch(kernel, NULL, &launch), HAL_INVALID_ARGUMENT, "kernel 'store': argument 0 has kind");
}

static void assert_arguments_refused(hal_kernel_t *kernel) {
  static int64_t value;
  assert_argument_refused(kernel, (hal_arg_t){NULL, 4, HAL_ARG_VALUE});
  assert_argument_refused(kernel, (hal_arg_t){NULL, 8, HAL_ARG_VALUE});
  assert_argument_refused(kernel, (hal_arg_t){NULL, 24, HAL_ARG_VALUE});
  assert_argument_refused(kernel, (hal_arg_t){NULL, sizeof(void *), HAL_ARG_POINTER});
  assert_argument_refused(kernel, (hal_arg_t){&value, 4, HAL_ARG_POINTER});
  assert_argument_refused(kernel, (hal_arg_t){&value, 0, HAL_ARG_POINTER});
  assert_argument_refused(kernel, (hal_arg_t){&value, 0, HAL_ARG_VALUE});
  assert_argument_refused(kernel, (hal_arg_t){&value, 16, HAL_ARG_LOCAL});
  assert_argument_refused(kernel, (hal_arg_t){&value, 8, HAL_ARG_LOCAL + 1});
}

Test(kernel, a_bad_argument_is_refused_at_once_also_where_the_stream_is_recorded_or_lazy) {
  hal_module_t *module;
  hal_kernel_t *store;
  hal_program_t *program;
  hal_lazy_t *lazy;
  assert_ok(load(0, "tally", &module));
  assert_ok(hal_kernel_get(module, "store", &store));
  assert_arguments_refused(store);
  assert_ok(hal_program_begin(NULL, NULL, &program));
  assert_arguments_refused(store);
  assert_ok(hal_program_end(program)); /* the capture was not invalidated and is complete */
  hal_program_destroy(program);
  assert_ok(hal_lazy_begin(NULL, NULL, &lazy));
  assert_arguments_refused(store);
  assert_ok(hal_lazy_end(lazy));
  hal_module_unload(module);
}

Test(kernel, a_stream_of_another_device_is_refused) {
  hal_module_t *module;
  hal_kernel_t *fail;
  hal_stream_t *stream;
  const hal_launch_t launch = {.struct_size = sizeof launch, .grid = {1, 1, 1}, .block = {1, 1, 1}};
  assert_ok(load(0, "tally", &module));
  assert_ok(hal_kernel_get(module, "fail", &fail));
  assert_ok(hal_stream_default(1, &stream));
  assert_fails(hal_kernel_launch(fail, stream, &launch), HAL_INVALID_ARGUMENT,
               "of device tally:0 cannot be launched on a stream of device tally:1");
  hal_module_unload(module);
}

Test(kernel, kernel_properties_that_a_plugin_does_not_report_are_the_devices) {
  hal_module_t *module;
  hal_kernel_t *store;
  hal_kernel_info_t info = {.struct_size = sizeof info};
  hal_device_info_t device = {.struct_size = sizeof device};
  assert_ok(load(0, "tally", &module));
  assert_ok(hal_kernel_get(module, "store", &store));
  assert_ok(hal_device_info(0, &device));
  assert_ok(hal_kernel_info(store, 1, 0, &info));
  cr_assert(info.blocks_per_unit == 1 && info.max_block_threads == device.max_block_threads);
  assert_ok(hal_kernel_info(store, 1, device.max_shared_bytes + 1, &info));
  cr_assert_eq(info.blocks_per_unit, 0);
  assert_fails(hal_kernel_info(store, 0, 0, &info), HAL_INVALID_ARGUMENT, "kernel 'store': blocks of 0 threads");
  info = (hal_kernel_info_t){.struct_size = HAL_STRUCT_SIZE(hal_kernel_info_t, max_block_threads), .subgroup_size = 77};
  assert_ok(hal_kernel_info(store, 1, 0, &info));
  cr_assert_eq(info.subgroup_size, 77, "after the end of the caller's struct");
  hal_module_unload(module);
}

Test(kernel, a_module_that_its_plugin_keeps_to_itself_is_not_exported) {
  hal_module_t *module;
  size_t size = 7;
  assert_ok(load(0, "tally", &module));
  cr_assert_eq(hal_module_export(module, NULL, 0, &size), HAL_UNIMPLEMENTED);
  cr_assert_eq(size, 7);
  hal_module_unload(module);
}

TestSuite(kernel_of_rogue);

Test(kernel_of_rogue, a_plugin_describes_its_kernels_and_exports_its_modules) {
  hal_module_t *module;
  hal_kernel_t *kernel;
  hal_kernel_info_t info = {.struct_size = sizeof info};
  char code[8] = "unread";
  size_t size = 0;
  open_fixture("rogue");
  assert_ok(load(0, "x", &module));
  assert_ok(hal_kernel_get(module, "k", &kernel));
  assert_ok(hal_kernel_info(kernel, 256, 0, &info));
  cr_assert(info.blocks_per_unit == 8 && info.max_block_threads == 1024);
  assert_ok(hal_module_export(module, code, 3, &size)); /* too few elements */
  cr_assert_eq(size, 4);
  cr_assert_str_eq(code, "unread");
  assert_ok(hal_module_export(module, code, sizeof code, &size));
  cr_assert_eq(memcmp(code, "code", 4), 0);
  hal_module_unload(module);
}
