/* Tests of a program's own kernels in the portable dialect (hal_kernel_compile) on an OpenCL device: items, groups,
 * errors, and which kernels are compiled once. */
#include "opencl_testing.h"

TestSuite(opencl_compile, .init = open_opencl, .fini = close_opencl);

#define COUNT 200

static const char items[] =
    "#define ARGS(X) X(OUT, float, to), X(IN, pk_f16, from), X(VALUE, float, by), X(VALUE, pk_u64, n)\n"
    "PK_KERNEL(scaled, ARGS) { PK_PROLOGUE(ARGS)\n"
    "  PK_ITEM(i, n) { to[i] = pk_get_f16(from[i]) * by; }\n"
    "}\n";
/* Each group reverses its PK_LSIZE numbers, so that each item needs a value that another item wrote. */
static const char groups[] =
    "#define ARGS(X) X(OUT, pk_u32, to), X(VALUE, pk_u32, n)\n"
    "PK_KERNEL(turned, ARGS) { PK_PROLOGUE(ARGS)\n"
    "  PK_LOCAL_ARRAY(pk_u32, scratch, PK_LSIZE);\n"
    "  PK_GROUP(g) {\n"
    "    PK_EACH(l) { scratch[l] = (pk_u32)g * PK_LSIZE + l; }\n"
    "    PK_SYNC();\n"
    "    PK_EACH(l) { to[g * PK_LSIZE + l] = scratch[PK_LSIZE - 1 - l] + n; }\n"
    "  }\n"
    "}\n";
static const char reporting[] =
    "#define ARGS(X) X(BOTH, pk_error_t, error), X(VALUE, pk_u64, n)\n"
    "PK_KERNEL(reporting, ARGS) { PK_PROLOGUE(ARGS)\n"
    "  PK_ITEM(i, n) {\n"
    "    if (i == 5) PK_REPORT(i64, error, PK_BAD_INDEX, (pk_i64)PK_NO_OPERATOR * 256 + PK_NO_PLACE, 7, 3);\n"
    "  }\n"
    "}\n";

static hal_kernel_t *compiled(const char *name, const char *text) {
  hal_kernel_t *kernel = NULL;
  assert_ok(hal_kernel_compile(0, name, text, &kernel));
  return kernel;
}

Test(opencl_compile, items_see_the_dialect_and_offsets) {
  uint16_t from[COUNT];
  float back[COUNT];
  const float by = 2.0f;
  const uint64_t n = COUNT - 3;
  for (int i = 0; i < COUNT; i++) from[i] = (uint16_t)(0x3c00 + i); /* 1 + i / 1024 */
  char *const a = device_bytes(0, sizeof from), *const b = device_bytes(0, sizeof back),
              *const a3 = a + 3 * sizeof *from;
  assert_ok(hal_memory_copy(NULL, a, 0, from, HAL_HOST, sizeof from));
  const hal_arg_t args[] = {{&b, sizeof b, HAL_ARG_POINTER},
                            {&a3, sizeof a3, HAL_ARG_POINTER},
                            {&by, sizeof by, HAL_ARG_VALUE},
                            {&n, sizeof n, HAL_ARG_VALUE}};
  assert_ok(hal_kernel_launch_items(compiled("scaled", items), NULL, n, args, 4));
  assert_ok(hal_memory_copy(NULL, back, HAL_HOST, b, 0, sizeof back));
  assert_ok(hal_device_synchronize(0));
  for (int i = 0; i < COUNT - 3; i++)
    cr_assert_eq(back[i], 2.0f * (1.0f + (float)(i + 3) / 1024.0f), "%d: %g", i, back[i]);
}

Test(opencl_compile, groups_have_the_threads_of_their_form) {
  uint32_t back[3 * 64];
  const uint32_t n = 1000;
  char *const b = device_bytes(0, sizeof back);
  const hal_arg_t args[] = {{&b, sizeof b, HAL_ARG_POINTER}, {&n, sizeof n, HAL_ARG_VALUE}};
  assert_ok(hal_kernel_launch_groups(compiled("turned", groups), NULL, 3, args, 2));
  assert_ok(hal_memory_copy(NULL, back, HAL_HOST, b, 0, sizeof back));
  assert_ok(hal_device_synchronize(0));
  for (uint32_t i = 0; i < 3 * 64; i++) cr_assert_eq(back[i], i / 64 * 64 + 63 - i % 64 + n, "%u", i);
}

Test(opencl_compile, the_same_text_is_compiled_once) {
  hal_kernel_stats_t stats = {.struct_size = sizeof stats};
  hal_kernel_t *const kernel = compiled("scaled", items);
  assert_ok(hal_kernel_stats(0, &stats));
  cr_assert_eq(stats.compiled + stats.loaded, 1);
  cr_assert_eq(compiled("scaled", items), kernel);
  assert_ok(hal_kernel_stats(0, &stats));
  cr_assert_eq(stats.compiled + stats.loaded, 1);
  cr_assert_neq(compiled("turned", groups), kernel);
}

Test(opencl_compile, what_a_kernel_reports_is_the_streams_error_once) {
  void *record = NULL;
  const uint64_t n = 100;
  assert_ok(hal_kernel_report_address(0, NULL, &record));
  const hal_arg_t args[] = {{&record, sizeof record, HAL_ARG_POINTER}, {&n, sizeof n, HAL_ARG_VALUE}};
  assert_ok(hal_kernel_launch_items(compiled("reporting", reporting), NULL, n, args, 2));
  hal_status_t status = hal_kernel_report_launched(0, NULL);
  if (!status) status = hal_device_synchronize(0);
  assert_fails(status, HAL_OUT_OF_RANGE, "index 7 is out of bounds for a dimension with size 3");
  assert_ok(hal_device_synchronize(0));
}

Test(opencl_compile, bad_texts_are_refused_with_the_compilers_words) {
  hal_kernel_t *kernel = NULL;
  assert_fails(hal_kernel_compile(0, "scaled", "this is no C", &kernel), HAL_INVALID_ARGUMENT, "scaled");
  assert_fails(hal_kernel_compile(0, "absent", items, &kernel), HAL_NOT_FOUND, "absent");
  assert_fails(hal_kernel_compile(0, "", items, &kernel), HAL_INVALID_ARGUMENT, "name");
  assert_fails(hal_kernel_compile(0, "scaled", NULL, &kernel), HAL_INVALID_ARGUMENT, "text");
  cr_assert_null(kernel);
  compiled("scaled", items); /* a failure must not leave files or kernels */
}
