/* launch.c: arguments that module_load borrows, modules as bytes, hints of a launch, double precision. */
#include <stdio.h>

#include "hal/status.h"
#include "kernel.h"

static uint8_t *copy_of(cts_t *t, const void *bytes, size_t size) {
  uint8_t *const copy = cts_host(t, size);
  memcpy(copy, bytes, size);
  return copy;
}

static void use_up(void *bytes, size_t size) {
  memset(bytes, 0xee, size);
  __asm__ volatile("" : : "r"(bytes) : "memory"); /* the stores happen */
  free(bytes);
}

/* The caller may reuse text and kernels when module_load has returned, and names when kernel_get has returned. */
void cts_case_module_borrows(cts_t *t) {
  hal_module_desc_t desc = cts_kernels_describe(t, 0);
  const size_t size = desc.size, length = strlen(desc.dialect) + 1;
  uint8_t *const data = copy_of(t, desc.data, size), *const dialect = copy_of(t, desc.dialect, length),
                 *const options = copy_of(t, "", 1), *const name = copy_of(t, "cts_ramp", 9);
  hal_module_desc_t *const lent = (hal_module_desc_t *)(void *)copy_of(t, &desc, sizeof desc);
  hal_plugin_kernel_t *kernel = NULL;
  hal_plugin_stream_t *const stream = cts_stream(t);
  void *const device = cts_alloc(t, CTS_RAMP * 4);
  lent->data = data, lent->dialect = (const char *)dialect, lent->options = (const char *)options;
  hal_plugin_module_t *const module = cts_module_of(t, lent);
  use_up(data, size), use_up(dialect, length), use_up(options, 1), use_up(lent, sizeof *lent);
  const hal_status_t status = cts_kernel_get(t, module, (const char *)name, &kernel);
  CTS_CHECK(t, !status, "kernel_get returned %s once the memory passed to module_load had other bytes: %s",
            hal_status_name(status), hal_error_message());
  use_up(name, 9);
  cts_ramp_launch(t, kernel, stream, device, 3, CTS_RAMP);
  cts_sync(t, stream);
  cts_ramp_check(t, device, 3, 1, 0, "the result of a kernel whose text is the caller's again");
  CTS_JUDGE(t, module_load, "Unloaded by module_unload");
  CTS_OK(t, module_unload, module);
}

/* ---- modules as bytes ---- */
enum { GUARD = 64, UNWRITTEN = 0xa5 };

static hal_module_desc_t binary(const uint8_t *bytes, size_t size) {
  return (hal_module_desc_t){.struct_size = HAL_STRUCT_SIZE(hal_module_desc_t, size),
                             .dialect = "binary",
                             .options = "",
                             .data = bytes,
                             .size = size};
}

static uint8_t *export_module(cts_t *t, hal_plugin_module_t *module, size_t *out_size) {
  size_t size = 0, again = 0;
  CTS_JUDGE(t, module_export, "is their number");
  const hal_status_t status = cts_module_export(t, module, NULL, 0, &size);
  if (status == HAL_UNIMPLEMENTED) cts_skip(t, "module_export returned that this module cannot be exported");
  cts_expect_ok(t, HAL_SLOT_module_export, status);
  CTS_CHECK(t, size > 0, "module_export returned HAL_OK and a module of no bytes");
  uint8_t *const bytes = cts_host(t, size + GUARD), *const unwritten = cts_host(t, size + GUARD);
  memset(bytes, UNWRITTEN, size + GUARD), memset(unwritten, UNWRITTEN, size + GUARD);
  CTS_JUDGE(t, module_export, "else nothing is");
  CTS_OK(t, module_export, module, bytes, size - 1, &again);
  cts_same(t, bytes, unwritten, size + GUARD, "memory that has one byte less than the module");
  CTS_OK(t, module_export, module, bytes, size, &again);
  CTS_CHECK(t, again == size, "module_export returned the size %zu, and then %zu", size, again);
  CTS_CHECK(t, memcmp(bytes, unwritten, size), "module_export wrote nothing to memory of the module's size");
  cts_same(t, bytes + size, unwritten, GUARD, "memory after a module that was exported");
  free(unwritten);
  *out_size = size;
  return bytes;
}

/* A damaged module is reported, not run. */
static void expect_damaged(cts_t *t, const uint8_t *bytes, size_t size, const char *how) {
  hal_plugin_module_t *const mark = (hal_plugin_module_t *)(void *)t, *module = mark;
  const hal_module_desc_t desc = binary(bytes, size);
  const hal_status_t status = cts_module_load(t, t->device, &desc, &module);
  CTS_CHECK(t, status == HAL_INVALID_ARGUMENT, "module_load returned %s for a module that it had exported, %s",
            hal_status_name(status), how);
  CTS_CHECK(t, module == mark, "module_load failed and wrote to its out-parameter");
}

void cts_case_module_exports(cts_t *t) {
  size_t size = 0;
  char how[64];
  hal_plugin_module_t *const module = cts_kernels_load(t);
  uint8_t *const bytes = export_module(t, module, &size), *const lent = copy_of(t, bytes, size);
  CTS_OK(t, module_unload, module);
  CTS_JUDGE(t, module_export, "Returns the compiled module as bytes");
  hal_module_desc_t desc = binary(lent, size);
  hal_plugin_module_t *same = NULL;
  const hal_status_t status = cts_module_load(t, t->device, &desc, &same);
  CTS_CHECK(t, !status, "module_load returned %s for the result of module_export: %s", hal_status_name(status),
            hal_error_message());
  use_up(lent, size);
  void *const device = cts_alloc(t, CTS_RAMP * 4);
  cts_ramp_launch(t, cts_kernel_find(t, same, "cts_ramp"), NULL, device, 11, CTS_RAMP);
  cts_ramp_check(t, device, 11, 1, 0, "the result of a kernel of a module that was exported and loaded");
  CTS_JUDGE(t, module_load, "HAL_INVALID_ARGUMENT");
  expect_damaged(t, bytes, size / 2, "cut to half");
  expect_damaged(t, (const uint8_t *)"", 0, "cut to no byte");
  for (size_t quarter = 0; quarter <= 4; quarter++) {
    const size_t place = quarter < 4 ? size / 4 * quarter : size - 1;
    snprintf(how, sizeof how, "of which byte %zu of %zu was changed", place, size);
    bytes[place] ^= 0x10;
    expect_damaged(t, bytes, size, how);
    bytes[place] ^= 0x10;
  }
}

/* ---- hints ---- */

/* A launch with one attribute, whose kind no device has, or will have. */
static hal_status_t launch_with(cts_t *t, hal_plugin_kernel_t *kernel, void *to, int32_t value, uint32_t kind,
                                uint32_t required) {
  const hal_launch_attribute_t attribute = {.kind = kind, .required = required, .x = 1};
  cts_launch_t with;
  cts_launch_make(&with, to, &value, sizeof value, CTS_RAMP, (CTS_RAMP + 49) / 50, 50);
  with.launch.attributes = &attribute, with.launch.attribute_count = 1;
  return cts_kernel_launch(t, kernel, NULL, &with.launch);
}

void cts_case_module_attributes(cts_t *t) {
  enum { NO_SUCH_KIND = 0x7fff0001 };
  hal_plugin_kernel_t *const kernel = cts_kernel_find(t, cts_kernels_load(t), "cts_ramp");
  void *const device = cts_alloc(t, CTS_RAMP * 4);
  CTS_GENERAL(t, "A plugin ignores an attribute");
  hal_status_t status = launch_with(t, kernel, device, 5, NO_SUCH_KIND, 0);
  CTS_CHECK(t, !status, "kernel_launch returned %s for a hint of a kind that no device knows", hal_status_name(status));
  cts_ramp_check(t, device, 5, 1, 0, "the result of a launch with a hint that no device knows");
  status = launch_with(t, kernel, device, 6, NO_SUCH_KIND, 1);
  CTS_CHECK(t, status == HAL_UNIMPLEMENTED,
            "kernel_launch returned %s for a required attribute of a kind that no device knows",
            hal_status_name(status));
  cts_ramp_check(t, device, 5, 1, 0, "memory that a launch would write whose required attribute is unknown");
  for (uint32_t kind = HAL_LAUNCH_CLUSTER; kind <= HAL_LAUNCH_OVERLAP; kind++) { /* a device may support these */
    status = launch_with(t, kernel, device, (int32_t)kind, kind, 0);
    CTS_CHECK(t, !status, "kernel_launch returned %s for the hint %u", hal_status_name(status), kind);
    cts_ramp_check(t, device, (int32_t)kind, 1, 0, "the result of a launch with a hint");
  }
}

/* ---- double precision ---- */
void cts_case_module_doubles(cts_t *t) {
  enum { COUNT = 1000 };
  if (!(t->info.flags & HAL_DEVICE_FP64)) cts_skip(t, "the device does not have HAL_DEVICE_FP64");
  CTS_GENERAL(t, "computes in double precision");
  const hal_module_desc_t desc = cts_kernels_describe(t, 1);
  hal_plugin_kernel_t *const kernel = cts_kernel_find(t, cts_module_of(t, &desc), "cts_double");
  double *const got = (double *)(void *)cts_host(t, COUNT * sizeof *got);
  const double value = 1.0 / 3;
  void *const device = cts_alloc(t, COUNT * sizeof *got);
  cts_launch_t with;
  cts_launch_make(&with, device, &value, sizeof value, COUNT, COUNT / 50, 50);
  CTS_OK(t, kernel_launch, kernel, NULL, &with.launch);
  cts_get(t, NULL, got, device, COUNT * sizeof *got);
  for (int i = 0; i < COUNT; i++) {
    const double expected = 1.0 / 3 + i;
    CTS_CHECK(t, got[i] == expected, "a kernel that computes in double precision returned %.17g instead of %.17g",
              got[i], expected);
  }
}

/* ---- large launches ---- */

/* More blocks than 16 bits count, and than a processor has units: the last element is written, and nothing after it. */
void cts_case_module_wide(cts_t *t) {
  enum { WIDTH = 32, GUARD_ITEMS = 16 };
  const uint32_t most = t->info.max_grid[0], blocks = most && most < 70001 ? most : 70001;
  const int32_t count = (int32_t)blocks * WIDTH - 5;
  hal_plugin_kernel_t *const kernel = cts_kernel_find(t, cts_kernels_load(t), "cts_ramp");
  hal_plugin_stream_t *const stream = cts_stream(t);
  void *const device = cts_alloc(t, (count + GUARD_ITEMS) * sizeof(int32_t));
  int32_t *const got = (int32_t *)(void *)cts_host(t, (count + GUARD_ITEMS) * sizeof *got);
  const int32_t value = -7;
  cts_launch_t with;
  cts_launch_make(&with, device, &value, sizeof value, count, blocks, WIDTH);
  CTS_OK(t, memory_fill, stream, t->device, device, "\x5a", 1, (count + GUARD_ITEMS) * sizeof *got);
  const hal_status_t status = cts_kernel_launch(t, kernel, stream, &with.launch);
  if (status == HAL_UNIMPLEMENTED && blocks > UINT16_MAX)
    cts_skip(t, "kernel_launch returned that it does not launch %u blocks of this kernel", blocks);
  cts_expect_ok(t, HAL_SLOT_kernel_launch, status);
  cts_get(t, stream, got, device, (count + GUARD_ITEMS) * sizeof *got);
  cts_sync(t, stream);
  for (int32_t i = 0; i < count + GUARD_ITEMS; i++) {
    const int32_t expected = i < count ? value + 3 * i : 0x5a5a5a5a;
    CTS_CHECK(t, got[i] == expected, "element %d after a launch of %u blocks of %d is %d instead of %d", i, blocks,
              WIDTH, got[i], expected);
  }
}
