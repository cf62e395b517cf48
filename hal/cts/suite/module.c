/* module.c: modules, kernels and launches, with the kernels of kernel.c. */
#include <stdio.h>

#include "hal/status.h"
#include "kernel.h"

void cts_case_module_loads(cts_t *t) {
  for (int i = 0; i < 3; i++) {
    hal_plugin_module_t *const module = cts_kernels_load(t);
    cts_kernel_find(t, module, "cts_ramp");
    cts_kernel_find(t, module, "cts_add");
    CTS_OK(t, module_unload, module);
  }
}

void cts_case_module_launch(cts_t *t) {
  hal_plugin_kernel_t *const kernel = cts_kernel_find(t, cts_kernels_load(t), "cts_ramp");
  uint8_t *const device = cts_alloc(t, CTS_RAMP * 4 + 512);
  hal_plugin_stream_t *const stream = cts_stream(t);
  cts_ramp_launch(t, kernel, NULL, device, 7, CTS_RAMP);
  cts_ramp_check(t, device, 7, 1, 0, "the result of a kernel on the NULL stream");
  cts_ramp_launch(t, kernel, stream, device, 1000, CTS_RAMP);
  cts_sync(t, stream);
  cts_ramp_check(t, device, 1000, 1, 0, "the result of a kernel on a stream");
  cts_ramp_launch(t, kernel, NULL, device + 512, -5, CTS_RAMP);
  cts_ramp_check(t, device + 512, -5, 1, 0, "the result of a kernel at an offset of its memory");
}

void cts_case_module_copies_arguments(cts_t *t) {
  enum { LAUNCHES = 10 };
  static cts_gate_t gate;
  hal_plugin_kernel_t *const kernel = cts_kernel_find(t, cts_kernels_load(t), "cts_ramp");
  hal_plugin_stream_t *const stream = cts_stream(t);
  void *devices[LAUNCHES];
  for (int i = 0; i < LAUNCHES; i++) devices[i] = cts_alloc(t, CTS_RAMP * 4);
  cts_ramp_launch(t, kernel, stream, devices[0], 0, CTS_RAMP); /* compiled, if it is done at the first launch */
  cts_sync(t, stream);
  cts_gate_close(t, &gate, stream);
  for (int32_t i = 0; i < LAUNCHES; i++) cts_ramp_launch(t, kernel, stream, devices[i], i * 100, CTS_RAMP);
  cts_gate_open(&gate);
  cts_sync(t, stream);
  for (int32_t i = 0; i < LAUNCHES; i++)
    cts_ramp_check(t, devices[i], i * 100, 1, 0, "a kernel whose arguments changed once it was queued");
}

void cts_case_module_order(cts_t *t) {
  hal_plugin_module_t *const module = cts_kernels_load(t);
  hal_plugin_kernel_t *const first = cts_kernel_find(t, module, "cts_ramp"), *const second =
                                                                                 cts_kernel_find(t, module, "cts_add");
  hal_plugin_stream_t *const stream = cts_stream(t);
  void *const a = cts_alloc(t, CTS_RAMP * 4), *const b = cts_alloc(t, CTS_RAMP * 4);
  CTS_GENERAL(t, "but runs in order");
  for (int32_t i = 0; i < 50; i++) {
    cts_ramp_launch(t, first, stream, a, i, CTS_RAMP);
    cts_ramp_launch(t, second, stream, a, 5, CTS_RAMP);
    CTS_OK(t, memory_copy, stream, b, t->device, a, t->device, CTS_RAMP * 4);
    cts_ramp_launch(t, second, stream, b, 1, CTS_RAMP);
    cts_ramp_launch(t, first, stream, a, -1, CTS_RAMP);
    cts_sync(t, stream);
    cts_ramp_check(t, b, i, 4, 11, "the result of kernels and a copy in a row on one stream");
  }
}

void cts_case_module_no_kernel(cts_t *t) {
  hal_plugin_kernel_t *const mark = (hal_plugin_kernel_t *)(void *)t;
  hal_plugin_kernel_t *kernel = mark;
  CTS_STATUS(t, HAL_NOT_FOUND, kernel_get, cts_kernels_load(t), "cts_there_is_no_such_kernel", &kernel);
  CTS_GENERAL(t, "are unchanged after a failure");
  CTS_CHECK(t, kernel == mark, "kernel_get failed and wrote to its out-parameter");
}

void cts_case_module_no_dialect(cts_t *t) {
  hal_plugin_module_t *module = NULL;
  const hal_module_desc_t desc = {.struct_size = HAL_STRUCT_SIZE(hal_module_desc_t, size),
                                  .dialect = "cts-no-such-dialect",
                                  .options = "",
                                  .data = "x",
                                  .size = 1};
  CTS_STATUS(t, HAL_UNIMPLEMENTED, module_load, t->device, &desc, &module);
}

void cts_case_module_wrong_source(cts_t *t) {
  hal_plugin_module_t *module = NULL;
  const cts_language_t *const language = cts_language_of(t);
  if (!language) cts_skip(t, CTS_NO_LANGUAGE, t->info.dialects);
  const hal_module_desc_t desc = {.struct_size = HAL_STRUCT_SIZE(hal_module_desc_t, size),
                                  .dialect = language->dialect,
                                  .options = "",
                                  .data = language->wrong,
                                  .size = strlen(language->wrong)};
  CTS_STATUS(t, HAL_INVALID_ARGUMENT, module_load, t->device, &desc, &module);
  CTS_CHECK(t, strstr(hal_error_message(), "there_is_no_such_name"),
            "the message of module_load has no compiler's log: %s", hal_error_message());
}

/* A device may reject a geometry of three dimensions; one that it accepts runs completely. */
void cts_case_module_geometry(cts_t *t) {
  static const uint32_t shapes[][6] = {{CTS_RAMP / 8, 1, 1, 8, 1, 1},
                                       {25, 5, 2, 20, 1, 1},
                                       {25, 5, 1, 8, 5, 1},
                                       {5, 5, 5, 10, 2, 2},
                                       {1, 1, 50, 10, 10, 1}};
  hal_plugin_kernel_t *const kernel = cts_kernel_find(t, cts_kernels_load(t), "cts_ramp");
  void *const device = cts_alloc(t, CTS_RAMP * 4);
  int refused = 0;
  for (int32_t i = 0; i < (int32_t)(sizeof shapes / sizeof shapes[0]); i++) {
    cts_launch_t with;
    cts_launch_make(&with, device, &i, sizeof i, CTS_RAMP, 1, 1);
    hal_launch_t *const launch = &with.launch;
    memcpy(launch->grid, shapes[i], sizeof launch->grid), memcpy(launch->block, shapes[i] + 3, sizeof launch->block);
    CTS_OK(t, memory_fill, NULL, t->device, device, "", 1, CTS_RAMP * 4);
    const hal_status_t status = cts_kernel_launch(t, kernel, NULL, launch);
    if (i && status == HAL_INVALID_ARGUMENT && ++refused) continue;
    cts_expect_ok(t, HAL_SLOT_kernel_launch, status);
    char what[128];
    snprintf(what, sizeof what, "the result of a launch of %u x %u x %u blocks of %u x %u x %u", launch->grid[0],
             launch->grid[1], launch->grid[2], launch->block[0], launch->block[1], launch->block[2]);
    cts_ramp_check(t, device, i, 1, 0, what);
  }
}

void cts_case_module_no_block(cts_t *t) {
  hal_plugin_kernel_t *const kernel = cts_kernel_find(t, cts_kernels_load(t), "cts_ramp");
  void *const device = cts_alloc(t, CTS_RAMP * 4);
  const int32_t value = 1;
  cts_launch_t with;
  cts_launch_make(&with, device, &value, sizeof value, CTS_RAMP, 1, 0);
  hal_launch_t *const launch = &with.launch;
  CTS_STATUS(t, HAL_INVALID_ARGUMENT, kernel_launch, kernel, NULL, launch);
  launch->grid[0] = 0, launch->block[0] = 1;
  CTS_STATUS(t, HAL_INVALID_ARGUMENT, kernel_launch, kernel, NULL, launch);
  if (!t->info.max_block_threads || t->info.max_block_threads == UINT32_MAX) return;
  launch->grid[0] = 1, launch->block[0] = t->info.max_block_threads + 1;
  CTS_STATUS(t, HAL_INVALID_ARGUMENT, kernel_launch, kernel, NULL, launch);
}

/* Values of all sizes, on the NULL stream and others; the caller may reuse the memory of each when the call has
 * returned. */
void cts_case_module_values(cts_t *t) {
  hal_plugin_kernel_t *const kernel = cts_kernel_find(t, cts_kernels_load(t), "cts_values");
  hal_plugin_stream_t *const streams[] = {NULL, cts_stream(t), cts_stream(t)};
  void *const device = cts_alloc(t, 5 * 8);
  for (int64_t i = 0; i < 9; i++) {
    int8_t byte = (int8_t)(-100 + i);
    int16_t half = (int16_t)(-30000 + 7 * i);
    int32_t word = -2000000000 + (int32_t)i;
    int64_t whole = INT64_C(-0x123456789abcdef) + (i << 40);
    float single = -0.5f * (float)i;
    int64_t got[5] = {0}, expected[5] = {byte, half, word, whole, -2 * i};
    void *to = device;
    hal_arg_t args[6] = {{&to, sizeof to, HAL_ARG_POINTER},     {&byte, sizeof byte, HAL_ARG_VALUE},
                         {&half, sizeof half, HAL_ARG_VALUE},   {&word, sizeof word, HAL_ARG_VALUE},
                         {&whole, sizeof whole, HAL_ARG_VALUE}, {&single, sizeof single, HAL_ARG_VALUE}};
    const hal_launch_t launch = {.struct_size = HAL_STRUCT_SIZE(hal_launch_t, reserved),
                                 .grid = {1, 1, 1},
                                 .block = {1, 1, 1},
                                 .arg_count = 6,
                                 .args = args};
    CTS_OK(t, kernel_launch, kernel, streams[i % 3], &launch);
    cts_sync(t, streams[i % 3]);
    cts_get(t, NULL, got, device, sizeof got);
    for (int j = 0; j < 5; j++)
      CTS_CHECK(t, got[j] == expected[j], "a kernel's value of %u bytes%s was %lld instead of %lld", args[j + 1].size,
                j == 4 ? " (a float, times 4)" : "", (long long)got[j], (long long)expected[j]);
  }
}

/* Kernels of one module are independent of others, and the caller may reuse source that was passed. */
void cts_case_module_several(cts_t *t) {
  hal_plugin_module_t *const first = cts_kernels_load(t), *const second = cts_kernels_load(t);
  hal_plugin_kernel_t *const ramp = cts_kernel_find(t, first, "cts_ramp"), *const other =
                                                                               cts_kernel_find(t, second, "cts_ramp");
  hal_plugin_stream_t *const stream = cts_stream(t);
  void *const device = cts_alloc(t, CTS_RAMP * 4);
  cts_ramp_launch(t, other, stream, device, 1, CTS_RAMP);
  cts_sync(t, stream);
  cts_ramp_check(t, device, 1, 1, 0, "the result of a kernel of a second module");
  CTS_JUDGE(t, module_unload, "Unloads a module");
  CTS_OK(t, module_unload, second);
  CTS_JUDGE(t, kernel_get, "it is valid as long as its module");
  cts_ramp_launch(t, ramp, stream, device, 2, CTS_RAMP);
  cts_sync(t, stream);
  cts_ramp_check(t, device, 2, 1, 0, "the result of a kernel of one module, after the end of another module");
  CTS_OK(t, module_unload, first);
}
