/* op_enabled.c: disabled operators return HAL_UNIMPLEMENTED and write nothing, on each device, until they are
   enabled again. */
#include "op_numbers.h"

static uint32_t id_of(const char *name) {
  uint32_t op;
  must(hal_op_id(name, &op));
  return op;
}

Test(op_enabled, disabled_returns_unimplemented_writes_nothing_and_leaves_others) {
  open_device();
  const int64_t sizes[] = {5};
  tensor_t *const x = tensor_new(HAL_FLOAT32, 1, sizes, CONTIGUOUS), *const y =
                                                                         tensor_new(HAL_FLOAT32, 1, sizes, CONTIGUOUS);
  tensor_fill_ordinary(x, 1), tensor_fill_ordinary(y, 2);
  const hal_value_t args[] = {of_tensor(x)};
  const number_t before = tensor_get(y, 3);
  must(hal_op_set_enabled(id_of("exp"), 0));
  cr_assert_eq(hal_op_dtypes(0, id_of("exp")), 0);
  cr_assert_eq(run("exp", args, 1, y, 0), HAL_UNIMPLEMENTED);
  tensor_download(y);
  cr_assert(tensor_get(y, 3).f == before.f);
  must(run("sin", args, 1, y, 0));

  must(hal_op_set_enabled(id_of("exp"), 1));
  cr_assert(hal_op_dtypes(0, id_of("exp")) >> HAL_FLOAT32 & 1);
  must(run("exp", args, 1, y, 0));
  tensor_download(y);
  cr_assert(fabsl(tensor_get(y, 3).f - expl(tensor_get(x, 3).f)) < 1e-6L);
  tensor_free(x), tensor_free(y);
}

Test(op_enabled, the_setting_takes_full_names_first_parts_and_a_star) {
  setenv("HAL_DISABLE_OPS", "sort,max.dim,nonsense", 1);
  open_device();
  cr_assert_eq(hal_op_dtypes(0, id_of("sort.lines")), 0);
  cr_assert_eq(hal_op_dtypes(0, id_of("max.dim")), 0);
  cr_assert_neq(hal_op_dtypes(0, id_of("min.dim")), 0);
  setenv("HAL_DISABLE_OPS", "*", 1);
  cr_assert_eq(hal_op_dtypes(0, id_of("neg")), 0);
  cr_assert_neq(hal_op_dtypes(0, id_of("min.dim")), 0, "a returned result must not change");
}

Test(op_enabled, numbers_of_no_operator_are_refused) {
  open_device();
  cr_assert_eq(hal_op_set_enabled(UINT32_MAX, 0), HAL_OUT_OF_RANGE);
  cr_assert(strstr(hal_error_message(), "4294967295"));
}
