/* op_grid.c: a device limits the blocks of a launch (max_grid, max_threads of device_info). The host launches in parts,
 * or declines the operator before anything is queued. */
#include <stdlib.h>

#include "hal/kernel.h"
#include "op_testing.h"

enum { COUNT = 30011, ROWS = 257, COLS = 31 };

static tensor_t *numbers_new(int32_t ndim, const int64_t *sizes, float step) {
  tensor_t *t = tensor_new(HAL_FLOAT32, ndim, sizes, CONTIGUOUS);
  for (int64_t i = 0; i < t->storage; i++) ((float *)(void *)t->host)[i] = (float)(i % 97) * step;
  tensor_upload(t);
  return t;
}

static float at(const tensor_t *t, int64_t i) { return ((const float *)(const void *)t->host)[i]; }

static hal_status_t add(const tensor_t *a, const tensor_t *b, const tensor_t *result) {
  const hal_value_t args[] = {of_tensor(a), of_tensor(b), of_int(1)};
  return run("add.Tensor", args, 3, result, 0);
}

/* An element that is computed twice, or not at all, has another value. */
static void check_parts(void) {
  const int64_t sizes[] = {COUNT}, matrix[] = {ROWS, COLS};
  tensor_t *a = numbers_new(1, sizes, 1), *b = numbers_new(1, sizes, 2), *m = numbers_new(2, matrix, 0.125f);
  tensor_t *result = tensor_new(HAL_FLOAT32, 2, matrix, CONTIGUOUS);
  must(add(a, b, a));
  tensor_download(a);
  for (int64_t i = 0; i < COUNT; i++) cr_assert_eq(at(a, i), (float)(i % 97) * 3, "element %d", (int)i);
  const hal_value_t args[] = {of_tensor(m), of_int(1)};
  must(run("_softmax", args, 2, result, 0));
  tensor_download(result);
  for (int64_t row = 0; row < ROWS; row++) {
    double sum = 0;
    for (int64_t i = 0; i < COLS; i++) sum += (double)at(result, row * COLS + i);
    cr_assert(sum > 0.9999 && sum < 1.0001, "row %d: %f", (int)row, sum);
  }
  tensor_free(a), tensor_free(b), tensor_free(m), tensor_free(result);
}

Test(op_grid, launches_beyond_max_grid_run_in_parts) {
  setenv("HAL_FAKE_GRID", "3", 1);
  open_device();
  check_parts();
}

Test(op_grid, launches_in_parts_without_streams_that_wait) {
  setenv("HAL_FAKE_GRID", "1", 1);
  setenv("HAL_FAKE_ASYNC", "0", 1);
  open_device();
  check_parts();
}

/* Returns whether the operator was declined with this text; its result is unchanged. */
static void check_declined(const char *text) {
  const int64_t sizes[] = {COUNT}, few[] = {512};
  tensor_t *a = numbers_new(1, sizes, 1), *b = numbers_new(1, few, 1);
  const hal_status_t status = add(a, a, a);
  cr_assert_eq(status, HAL_UNIMPLEMENTED, "%s", hal_status_name(status));
  cr_assert(strstr(hal_error_message(), text), "%s", hal_error_message());
  tensor_download(a);
  for (int64_t i = 0; i < COUNT; i++) cr_assert_eq(at(a, i), (float)(i % 97));
  must(add(b, b, b)); /* within the limit */
  tensor_free(a), tensor_free(b);
}

Test(op_grid, a_device_that_cannot_divide_launches_declines) {
  setenv("HAL_FAKE_GRID", "2", 1);
  setenv("HAL_FAKE_FIRST_BLOCK", "0", 1);
  open_device();
  check_declined("blocks, but device fake:0 launches at most 2 at once (max_grid in device_info)");
}

Test(op_grid, more_threads_than_kernels_number_are_declined) {
  setenv("HAL_FAKE_MAX_THREADS", "2048", 1);
  open_device();
  check_declined("kernels of device fake:0 number at most 2048 (max_threads in device_info)");
}

Test(op_grid, a_programs_kernel_is_not_divided) {
  hal_module_t *module;
  hal_kernel_t *kernel;
  const hal_launch_t launch = {
      .struct_size = HAL_STRUCT_SIZE(hal_launch_t, args), .grid = {4, 1, 1}, .block = {1, 1, 1}};
  const hal_module_desc_t desc = {.struct_size = sizeof desc, .dialect = "native", .options = "", .data = "binary"};
  setenv("HAL_FAKE_GRID", "3", 1);
  open_device();
  must(hal_module_load(0, &desc, &module));
  must(hal_kernel_get(module, "add_f32_contig", &kernel));
  cr_assert_eq(hal_kernel_launch(kernel, NULL, &launch), HAL_INVALID_ARGUMENT);
  cr_assert(strstr(hal_error_message(), "at most 3 blocks"), "%s", hal_error_message());
  hal_module_unload(module);
}

Test(op_grid, operands_at_addresses_that_a_launch_cannot_take_are_declined) {
  const int64_t sizes[] = {COUNT};
  setenv("HAL_FAKE_BINDING_ALIGNMENT", "64", 1);
  open_device();
  tensor_t *a = numbers_new(1, sizes, 1), *b = numbers_new(1, sizes, 1);
  must(add(a, a, b));
  b->desc.data = (char *)b->desc.data + 4, b->sizes[0]--;
  a->sizes[0]--;
  cr_assert_eq(add(a, a, b), HAL_UNIMPLEMENTED);
  cr_assert(strstr(hal_error_message(), "begins 4 bytes after a multiple of 64 (binding_alignment of device fake:0)"),
            "%s", hal_error_message());
  b->desc.data = (char *)b->desc.data - 4, b->sizes[0]++;
  tensor_download(b);
  for (int64_t i = 0; i < COUNT; i++) cr_assert_eq(at(b, i), (float)(i % 97) * 2);
  tensor_free(a), tensor_free(b);
}

Test(op_grid, operands_larger_than_a_binding_are_declined) {
  setenv("HAL_FAKE_MAX_BINDING", "65536", 1);
  open_device();
  check_declined("an operand of 120044 bytes, but kernels of device fake:0 access at most 65536 from an address");
}

/* Adds a vector whose elements precede its address, and one of a single element, whose stride does not matter. */
static void check_reversed(int is_declined) {
  const int64_t sizes[] = {COUNT};
  tensor_t *a = numbers_new(1, sizes, 1), *b = numbers_new(1, sizes, 0);
  const float last = (COUNT - 1) % 97;
  a->strides[0] = -1, a->desc.data = (float *)a->desc.data + COUNT - 1;
  cr_assert_eq(add(b, a, b), is_declined ? HAL_UNIMPLEMENTED : HAL_OK);
  if (is_declined)
    cr_assert(strstr(hal_error_message(), "an operand with a negative stride, but kernels of device fake:0"), "%s",
              hal_error_message());
  tensor_download(b);
  for (int64_t i = 0; i < COUNT; i++) cr_assert_eq(at(b, i), is_declined ? 0.0f : (float)((COUNT - 1 - i) % 97));
  a->sizes[0] = b->sizes[0] = 1;
  must(add(b, a, b));
  b->sizes[0] = COUNT;
  tensor_download(b);
  cr_assert_eq(at(b, 0), is_declined ? last : 2 * last);
  tensor_free(a), tensor_free(b);
}

Test(op_grid, operands_with_elements_before_their_address_are_read) {
  open_device();
  check_reversed(0);
}

Test(op_grid, operands_with_elements_before_their_address_are_declined_where_kernels_access_ranges) {
  setenv("HAL_FAKE_MAX_BINDING", "1000000", 1);
  open_device();
  check_reversed(1);
}

/* The host does not know how much of its arguments a program's kernel accesses. */
Test(op_grid, a_programs_kernel_receives_no_address_whose_memory_exceeds_a_binding) {
  const int64_t sizes[] = {COUNT};
  hal_module_t *module;
  hal_kernel_t *kernel;
  const hal_module_desc_t desc = {.struct_size = sizeof desc, .dialect = "native", .options = "", .data = "binary"};
  setenv("HAL_FAKE_MAX_BINDING", "65536", 1);
  open_device();
  tensor_t *a = numbers_new(1, sizes, 1);
  const hal_arg_t arg = {&a->desc.data, sizeof a->desc.data, HAL_ARG_POINTER};
  const hal_launch_t launch = {.struct_size = HAL_STRUCT_SIZE(hal_launch_t, args),
                               .grid = {1, 1, 1},
                               .block = {1, 1, 1},
                               .arg_count = 1,
                               .args = &arg};
  must(hal_module_load(0, &desc, &module));
  must(hal_kernel_get(module, "add_f32_contig", &kernel));
  cr_assert_eq(hal_kernel_launch(kernel, NULL, &launch), HAL_UNIMPLEMENTED);
  cr_assert(strstr(hal_error_message(), "the memory of argument 0 continues for"), "%s", hal_error_message());
  hal_module_unload(module);
  tensor_free(a);
}
