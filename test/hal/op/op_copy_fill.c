/* op_copy_fill.c: fill and copy in each dtype and layout, and rejected calls. */
#include "op_testing.h"

static const hal_dtype_t all_dtypes[] = {HAL_UINT8,   HAL_INT8,    HAL_INT16, HAL_INT32,   HAL_INT64,
                                         HAL_FLOAT32, HAL_FLOAT64, HAL_BOOL,  HAL_FLOAT16, HAL_BFLOAT16,
                                         HAL_UINT16,  HAL_UINT32,  HAL_UINT64};
#define DTYPES (sizeof all_dtypes / sizeof all_dtypes[0])
#define FILLED (DTYPES - 3) /* other dtypes are filled as integers of their size */

/* The value as C converts it, which is also PyTorch's rule. Values whose conversion is undefined in C are not
   compared. */
static int converts(hal_dtype_t to, hal_dtype_t from, number_t x, number_t *out) {
  *out = x;
  if (to == HAL_BOOL) {
    out->i = is_floating(from) ? x.f != 0 : x.i != 0;
    return 1;
  }
  if (!is_floating(from) || is_floating(to)) return 1;
  const int bits = 8 * (int)element_size(to) - 1,
            is_unsigned = to == HAL_UINT16 || to == HAL_UINT32 || to == HAL_UINT64;
  const long double limit = ldexpl(1, bits + is_unsigned);
  if (!(truncl(x.f) >= (is_unsigned ? 0 : -limit) && truncl(x.f) < limit)) return 0;
  out->i = is_unsigned ? (int64_t)(uint64_t)x.f : (int64_t)x.f;
  return 1;
}

Test(op_copy, every_pair_of_dtypes_and_layouts) {
  open_device();
  static const struct {
    int32_t ndim;
    int64_t sizes[MAX_DIMS];
  } shapes[] = {{1, {0}}, {0, {0}}, {1, {1031}}, {2, {33, 65}}, {3, {7, 5, 3}}, {7, {2, 3, 2, 3, 2, 3, 2}}};
  for (size_t to = 0; to < DTYPES; to++)
    for (size_t from = 0; from < DTYPES; from++)
      for (size_t s = 0; is_sampled(to * DTYPES + from) && s < sizeof shapes / sizeof shapes[0]; s++)
        for (enum layout l = 0; l < LAYOUTS * BROADCAST_ALL; l++) {
          tensor_t *src = tensor_new(all_dtypes[from], shapes[s].ndim, shapes[s].sizes, l % LAYOUTS);
          tensor_t *dst = tensor_new(all_dtypes[to], shapes[s].ndim, shapes[s].sizes, l / LAYOUTS);
          tensor_randomize(src, s);
          const hal_value_t args[] = {of_tensor(src)};
          must(run("copy", args, 1, dst, 0));
          tensor_download(dst);
          for (int64_t i = 0; i < dst->numel; i++) {
            number_t want;
            unsigned char bytes[8] = {0};
            if (!converts(all_dtypes[to], all_dtypes[from], tensor_get(src, i), &want)) continue;
            store(all_dtypes[to], bytes, want);
            const number_t rounded = load(all_dtypes[to], bytes), got = tensor_get(dst, i);
            const int same = got.i == rounded.i && (got.f == rounded.f || (isnan(got.f) && isnan(rounded.f)));
            cr_assert(same, "from %d to %d, element %lld: got %lld %Lg, want %lld %Lg", (int)all_dtypes[from],
                      (int)all_dtypes[to], (long long)i, (long long)got.i, got.f, (long long)rounded.i, rounded.f);
          }
          tensor_free(src), tensor_free(dst);
        }
}

/* Shapes that are traversed in tiles if the orders of result and operand differ: whole tiles, remainders on either
 * side, outer dimensions, and more dimensions than the row form supports. */
static const struct {
  int32_t ndim;
  int64_t sizes[MAX_DIMS];
} large_shapes[] = {{2, {256, 512}},     {2, {257, 300}},    {2, {64, 1031}},    {3, {70, 11, 90}},
                    {4, {65, 3, 5, 97}}, {3, {3, 200, 130}}, {3, {130, 170, 4}}, {8, {2, 3, 65, 2, 1, 2, 3, 129}}};
#define LARGE_SHAPES (sizeof large_shapes / sizeof large_shapes[0])

Test(op_copy, large_operands_in_different_orders_are_copied_whole_and_nothing_else_is_written) {
  open_device();
  static const hal_dtype_t pairs[][2] = {
      {HAL_FLOAT32, HAL_FLOAT32}, {HAL_FLOAT64, HAL_INT16}, {HAL_BOOL, HAL_BOOL}, {HAL_FLOAT16, HAL_FLOAT32}};
  for (size_t p = 0; p < sizeof pairs / sizeof pairs[0]; p++)
    for (size_t s = 0; s < LARGE_SHAPES; s++)
      for (enum layout l = 0; l < LAYOUTS * BROADCAST_ALL; l++) {
        tensor_t *src = tensor_new(pairs[p][1], large_shapes[s].ndim, large_shapes[s].sizes, l % LAYOUTS);
        tensor_t *dst = tensor_new(pairs[p][0], large_shapes[s].ndim, large_shapes[s].sizes, l / LAYOUTS);
        tensor_randomize(src, s);
        tensor_randomize(dst, s + 1);
        const size_t size = (size_t)dst->storage * dst->element;
        unsigned char *want = malloc(size);
        memcpy(want, dst->host, size);
        for (int64_t i = 0; i < dst->numel; i++)
          store(dst->desc.dtype, want + (size_t)tensor_place(dst, i) * dst->element,
                pairs[p][1] == HAL_INT16 ? (number_t){0, (long double)tensor_get(src, i).i} : tensor_get(src, i));
        const hal_value_t args[] = {of_tensor(src)};
        must(run("copy", args, 1, dst, 0));
        tensor_download(dst);
        for (int64_t i = 0; i < dst->numel; i++) { /* the bits of the NaN depend on the hardware */
          unsigned char *const at = want + (size_t)tensor_place(dst, i) * dst->element;
          if (isnan(load(dst->desc.dtype, at).f) && isnan(tensor_get(dst, i).f))
            memcpy(at, dst->host + (size_t)tensor_place(dst, i) * dst->element, dst->element);
        }
        cr_assert(memcmp(dst->host, want, size) == 0, "dtypes %zu, shape %zu, layout %d", p, s, (int)l);
        free(want);
        tensor_free(src), tensor_free(dst);
      }
}

Test(op_copy, large_operands_in_three_orders_are_added) {
  open_device();
  for (size_t s = 0; s < LARGE_SHAPES; s++)
    for (enum layout l = 0; l < LAYOUTS * LAYOUTS; l++) {
      tensor_t *a = tensor_new(HAL_INT32, large_shapes[s].ndim, large_shapes[s].sizes, l % LAYOUTS);
      tensor_t *b = tensor_new(HAL_INT32, large_shapes[s].ndim, large_shapes[s].sizes, l / LAYOUTS);
      tensor_t *out = tensor_new(HAL_INT32, large_shapes[s].ndim, large_shapes[s].sizes, s % 2 ? PADDED : CONTIGUOUS);
      tensor_randomize(a, s);
      tensor_randomize(b, s + 1);
      const hal_value_t args[] = {of_tensor(a), of_tensor(b), of_int(1)};
      must(run("add.Tensor", args, 3, out, 0));
      tensor_download(out);
      for (int64_t i = 0; i < out->numel; i++) {
        const int32_t want = (int32_t)((uint32_t)tensor_get(a, i).i + (uint32_t)tensor_get(b, i).i);
        cr_assert_eq(tensor_get(out, i).i, want, "shape %zu, layout %d, element %lld", s, (int)l, (long long)i);
      }
      tensor_free(a), tensor_free(b), tensor_free(out);
    }
}

Test(op_fill, every_dtype_and_layout_writes_its_elements_and_no_others) {
  open_device();
  static const int64_t sizes[] = {3, 5, 67};
  for (size_t t = 0; t < FILLED; t++)
    for (enum layout layout = CONTIGUOUS; layout < BROADCAST_ALL; layout++) {
      tensor_t *out = tensor_new(all_dtypes[t], 3, sizes, layout);
      tensor_randomize(out, 1);
      unsigned char *want = malloc((size_t)out->storage * out->element);
      memcpy(want, out->host, (size_t)out->storage * out->element);
      for (int64_t i = 0; i < out->numel; i++)
        store(all_dtypes[t], want + (size_t)tensor_place(out, i) * out->element, (number_t){-3, -3});
      const hal_value_t args[] = {of_int(-3)};
      must(run("fill.Scalar", args, 1, out, 0));
      tensor_download(out);
      cr_assert_arr_eq(out->host, want, (size_t)out->storage * out->element);
      free(want);
      tensor_free(out);
    }
}

/* Runs add with an invalid call and expects an error whose message contains `words`. */
static void refused(const char *name, const hal_value_t *args, uint32_t count, const tensor_t *out, const char *words) {
  cr_expect_eq(run(name, args, count, out, 0), HAL_INVALID_ARGUMENT);
  cr_expect(strstr(hal_error_message(), name) && strstr(hal_error_message(), words),
            "message \"%s\" lacks \"%s\" or \"%s\"", hal_error_message(), name, words);
}

Test(op_run, wrong_calls_are_refused_by_name_and_operand) {
  open_device();
  static const int64_t small[] = {4}, large[] = {5}, square[] = {2, 2};
  tensor_t *f = tensor_new(HAL_FLOAT32, 1, small, CONTIGUOUS), *g = tensor_new(HAL_FLOAT32, 1, large, CONTIGUOUS);
  tensor_t *d = tensor_new(HAL_FLOAT64, 1, small, CONTIGUOUS), *q = tensor_new(HAL_FLOAT32, 2, square, CONTIGUOUS);
  tensor_t *i = tensor_new(HAL_INT32, 1, small, CONTIGUOUS);
  tensor_t bad = *f;
  refused("add.Tensor", (hal_value_t[]){of_tensor(f), of_tensor(d), of_int(1)}, 3, f, "other");
  refused("add.Tensor", (hal_value_t[]){of_tensor(f), of_tensor(f), of_int(1)}, 3, d, "result");
  refused("add.Tensor", (hal_value_t[]){of_tensor(f), of_tensor(g), of_int(1)}, 3, f, "other");
  refused("add.Tensor", (hal_value_t[]){of_tensor(f), of_tensor(q), of_int(1)}, 3, f, "dimensions");
  refused("add.Tensor", (hal_value_t[]){of_tensor(f), of_tensor(f)}, 2, f, "arguments");
  refused("add.Tensor", (hal_value_t[]){of_int(1), of_tensor(f), of_int(1)}, 3, f, "self");
  refused("add.Tensor", (hal_value_t[]){of_tensor(f), of_tensor(f), of_tensor(f)}, 3, f, "alpha");
  refused("add.Tensor", (hal_value_t[]){of_tensor(i), of_double(0.5), of_int(1)}, 3, i, "other");
  refused("tanh_backward", (hal_value_t[]){of_tensor(f), of_double(0.5)}, 2, f, "output");
  refused("eq.Tensor", (hal_value_t[]){of_tensor(f), of_tensor(f)}, 2, f, "result");
  refused("where.self", (hal_value_t[]){of_tensor(f), of_tensor(f), of_tensor(f)}, 3, f, "condition");
  bad.desc.data = NULL;
  refused("add.Tensor", (hal_value_t[]){of_tensor(f), of_tensor(&bad), of_int(1)}, 3, f, "other");
  refused("add.Tensor", (hal_value_t[]){of_tensor(f), of_tensor(f), of_int(1)}, 3, &bad, "result");
  bad = *f;
  bad.desc.ndim = -1;
  refused("add.Tensor", (hal_value_t[]){of_tensor(&bad), of_tensor(f), of_int(1)}, 3, f, "self");
  bad = *f;
  bad.desc.struct_size = 8;
  refused("exp", (hal_value_t[]){of_tensor(&bad)}, 1, f, "struct_size");
  bad = *f;
  bad.desc.strides = (const int64_t[]){0};
  refused("exp", (hal_value_t[]){of_tensor(f)}, 1, &bad, "stride 0");
  tensor_free(f), tensor_free(g), tensor_free(d), tensor_free(q), tensor_free(i);
}

Test(op_run, a_dtype_without_kernel_is_unimplemented_and_counted) {
  open_device();
  static const int64_t sizes[] = {4};
  tensor_t *x = tensor_new(HAL_INT32, 1, sizes, CONTIGUOUS);
  uint32_t op;
  hal_op_counts_t counts = {.struct_size = sizeof counts};
  must(hal_op_id("exp", &op));
  hal_op_reset_counts();
  cr_expect_eq(run("exp", (hal_value_t[]){of_tensor(x)}, 1, x, 0), HAL_UNIMPLEMENTED);
  x->desc.dtype = HAL_BOOL;
  cr_expect_eq(run("exp", (hal_value_t[]){of_tensor(x)}, 1, x, HAL_CALL_DENSE), HAL_UNIMPLEMENTED);
  x->desc.dtype = HAL_FLOAT32;
  must(run("exp", (hal_value_t[]){of_tensor(x)}, 1, x, 0));
  must(hal_op_counts(op, &counts));
  cr_expect_eq(counts.plugin, 0);
  cr_expect_eq(counts.portable, 1);
  cr_expect_eq(counts.unimplemented, 2);
  cr_expect_eq(hal_op_counts(hal_op_count(), &counts), HAL_OUT_OF_RANGE);
  must(hal_device_synchronize(0));
  tensor_free(x);
}

Test(op_run, names_and_numbers_agree) {
  uint32_t op = 0;
  for (uint32_t i = 0; i < hal_op_count(); i++) {
    must(hal_op_id(hal_op_name(i), &op));
    cr_expect_eq(op, i);
  }
  cr_expect_null(hal_op_name(hal_op_count()));
  cr_expect_eq(hal_op_id("no_such.op", &op), HAL_NOT_FOUND);
  cr_expect(strstr(hal_error_message(), "no_such.op"));
}
