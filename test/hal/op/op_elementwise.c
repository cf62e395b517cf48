/* op_elementwise.c: the element-wise operators (fill, copy, unary, binary, ternary, where) compared with references
 * in extended precision, for each dtype and layout. */
#include "op_reference.h"

static const hal_dtype_t all_dtypes[] = {HAL_UINT8,   HAL_INT8,    HAL_INT16, HAL_INT32,   HAL_INT64,
                                         HAL_FLOAT32, HAL_FLOAT64, HAL_BOOL,  HAL_FLOAT16, HAL_BFLOAT16};
#define DTYPES (sizeof all_dtypes / sizeof all_dtypes[0])

/* Shapes at each limit: empty, one element, no dimension, smaller and larger than a vector and a block of the row
 * form, and more dimensions than the row form supports. */
static const struct shape {
  int32_t ndim;
  int64_t sizes[MAX_DIMS];
} shapes[] = {{1, {0}},
              {1, {1}},
              {0, {0}},
              {1, {7}},
              {3, {3, 0, 5}},
              {1, {2500}},
              {2, {33, 65}},
              {2, {700, 3}},
              {3, {5, 1, 7}},
              {4, {2, 3, 4, 5}},
              {8, {2, 3, 2, 2, 3, 2, 2, 3}}};
#define SHAPES (sizeof shapes / sizeof shapes[0])

/* Layouts of result, a, b, c. */
static const enum layout layouts[][4] = {{CONTIGUOUS, CONTIGUOUS, CONTIGUOUS, CONTIGUOUS},
                                         {CONTIGUOUS, REVERSED, CONTIGUOUS, PADDED},
                                         {REVERSED, REVERSED, REVERSED, REVERSED},
                                         {PADDED, CONTIGUOUS, REVERSED, FAR},
                                         {CONTIGUOUS, CONTIGUOUS, BROADCAST_ALL, CONTIGUOUS},
                                         {CONTIGUOUS, BROADCAST_FIRST, BROADCAST_LAST, BROADCAST_ALL},
                                         {FAR, PADDED, BROADCAST_FIRST, CONTIGUOUS},
                                         {CONTIGUOUS, BROADCAST_LAST, CONTIGUOUS, BROADCAST_FIRST},
                                         {PADDED, PADDED, PADDED, PADDED}};
#define LAYOUT_SETS (sizeof layouts / sizeof layouts[0])

/* Rounds to a floating dtype; half precision is rounded from float. */
static long double rounded(hal_dtype_t dtype, long double value) {
  unsigned char bytes[8];
  store(dtype, bytes, (number_t){0, value});
  return load(dtype, bytes).f;
}

/* Returns the error of a floating result in units of the last place of the scale; 0 for equal values, two NaN, or
 * the same infinity. */
static double error_in_ulps(hal_dtype_t dtype, long double got, long double want, long double scale) {
  static const struct {
    hal_dtype_t dtype;
    int digits, lowest;
  } formats[] = {{HAL_FLOAT32, FLT_MANT_DIG, FLT_MIN_EXP}, {HAL_FLOAT16, 11, -13}, {HAL_BFLOAT16, 8, FLT_MIN_EXP}};
  int digits = DBL_MANT_DIG, lowest = DBL_MIN_EXP, exponent;
  if ((isnan(got) && isnan(want)) || got == rounded(dtype, want)) return 0;
  if (isnan(got) || isnan(want) || isinf(got)) return INFINITY;
  for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++)
    if (formats[i].dtype == dtype) digits = formats[i].digits, lowest = formats[i].lowest;
  exponent = lowest;
  if (scale > 0) frexpl(scale, &exponent);
  if (exponent < lowest) exponent = lowest;
  return (double)(fabsl(got - want) / ldexpl(1, exponent - digits));
}

/* Half precision is computed in float, whose error is negligible, and rounded once. */
static double ulps_allowed(const reference_t *ref, hal_dtype_t dtype) {
  return is_half(dtype) ? 0.5 + ref->ulps / 256 : ref->ulps;
}

static input_t inputs_at(const reference_t *ref, tensor_t *const *in, int64_t index, const hal_value_t *args) {
  input_t x = {.s0 = {(int64_t)ref->s0, ref->s0}, .s1 = {(int64_t)ref->s1, ref->s1}};
  number_t *slots[] = {&x.a, &x.b, &x.c};
  for (int k = 0; k < ref->operands; k++) {
    if (in[k])
      *slots[k] = tensor_get(in[k], index);
    else if (args[k].tag == HAL_VALUE_INT)
      *slots[k] = (number_t){args[k].u.i, args[k].u.i};
    else
      *slots[k] = (number_t){(int64_t)args[k].u.d, args[k].u.d};
  }
  return x;
}

static void check_element(const reference_t *ref, hal_dtype_t dtype, const input_t *x, number_t got, hal_dtype_t result,
                          const char *what) {
  if (!is_floating(dtype)) {
    unsigned char bytes[8] = {0};
    store(result, bytes, (number_t){integer_reference(ref, dtype, x), 0});
    const number_t want = load(result, bytes);
    cr_assert_eq(got.i, want.i, "%s dtype %d, %s: a=%lld b=%lld: got %lld, want %lld", ref->name, (int)dtype, what,
                 (long long)x->a.i, (long long)x->b.i, (long long)got.i, (long long)want.i);
    return;
  }
  long double scale = 0;
  const long double want = ref->floating(x, &scale);
  if (ref->result_bool) {
    cr_assert_eq(got.i, want != 0, "%s dtype %d, %s: a=%Lg b=%Lg", ref->name, (int)dtype, what, x->a.f, x->b.f);
    return;
  }
  if (scale == ANY) return;
  const double error = error_in_ulps(dtype, got.f, want, scale);
  cr_assert_leq(error, ulps_allowed(ref, dtype) + 1e-6,
                "%s dtype %d, %s: a=%.9Lg b=%.9Lg c=%.9Lg: got %.9Lg, want %.9Lg, %g ulps", ref->name, (int)dtype, what,
                x->a.f, x->b.f, x->c.f, got.f, want, error);
}

/* Runs one operator on the given operands and checks each element; in[k] NULL = args[k] is a number. */
static void run_and_check(const reference_t *ref, hal_dtype_t dtype, tensor_t *out, tensor_t *const *in,
                          hal_value_t *args, uint32_t flags, const char *what) {
  for (int k = 0; k < ref->operands; k++)
    if (in[k]) args[k] = of_tensor(in[k]);
  if (ref->numbers > 0) args[ref->operands] = of_double(ref->s0);
  if (ref->numbers > 1) args[ref->operands + 1] = of_double(ref->s1);
  input_t *inputs = calloc((size_t)out->numel + 1, sizeof *inputs); /* read first: the result may be an operand */
  cr_assert(inputs != NULL);
  for (int64_t i = 0; i < out->numel; i++) inputs[i] = inputs_at(ref, in, i, args);
  unsigned char *before = malloc((size_t)out->storage * out->element);
  memcpy(before, out->host, (size_t)out->storage * out->element);
  must(run(ref->name, args, (uint32_t)(ref->operands + ref->numbers), out, flags));
  tensor_download(out);
  for (int64_t i = 0; i < out->numel; i++) {
    check_element(ref, dtype, &inputs[i], tensor_get(out, i), out->desc.dtype, what);
    memcpy(before + (size_t)tensor_place(out, i) * out->element,
           out->host + (size_t)tensor_place(out, i) * out->element, out->element);
  }
  cr_assert_arr_eq(before, out->host, (size_t)out->storage * out->element, "%s, %s: wrote between its elements",
                   ref->name, what);
  free(before);
  free(inputs);
}

static uint64_t supported(const reference_t *ref) {
  uint32_t op;
  must(hal_op_id(ref->name, &op));
  const uint64_t dtypes = hal_op_dtypes(0, op);
  cr_assert_neq(dtypes, 0, "%s has no kernel", ref->name);
  return dtypes;
}

static int is_tested(const reference_t *ref, hal_dtype_t dtype) {
  if (!is_sampled((size_t)(ref - references) * 10 + (size_t)dtype)) return 0; /* each kernel must be compiled */
  if (!(supported(ref) >> dtype & 1)) return 0;
  cr_assert(is_floating(dtype) ? ref->floating != NULL : ref->integer != NULL, "%s has no reference for dtype %d",
            ref->name, (int)dtype);
  return is_floating(dtype) || (ref->s0 == floor(ref->s0) && ref->s1 == floor(ref->s1));
}

/* Numbers for an operand; the divisor of integers is not 0, which is an error (op_check.c). */
static void fill(const reference_t *ref, tensor_t *t, uint64_t seed) {
  tensor_randomize(t, seed);
  if (is_floating(t->desc.dtype) || strcmp(ref->name, "fmod.Tensor") != 0) return;
  for (int64_t i = 0; i < t->storage; i++) {
    unsigned char *at = t->host + (size_t)i * t->element;
    if (load(t->desc.dtype, at).i == 0) store(t->desc.dtype, at, (number_t){1, 1});
  }
  tensor_upload(t);
}

static int is_broadcast(enum layout layout) { return layout >= BROADCAST_ALL; }

Test(op_elementwise, every_operator_dtype_shape_and_layout_agrees_with_the_reference) {
  open_device();
  for (size_t r = 0; r < REFERENCE_COUNT; r++)
    for (size_t t = 0; t < DTYPES; t++) {
      const reference_t *ref = &references[r];
      const hal_dtype_t dtype = all_dtypes[t];
      for (size_t s = 0; is_tested(ref, dtype) && s < SHAPES; s++)
        for (size_t l = 0; l < LAYOUT_SETS; l++) {
          char what[64];
          snprintf(what, sizeof what, "shape %zu, layouts %zu", s, l);
          tensor_t *in[3] = {NULL, NULL, NULL};
          hal_value_t args[5];
          tensor_t *out =
              tensor_new(ref->result_bool ? HAL_BOOL : dtype, shapes[s].ndim, shapes[s].sizes, layouts[l][0]);
          for (int k = 0; k < ref->operands; k++) {
            in[k] = tensor_new(dtype, shapes[s].ndim, shapes[s].sizes, layouts[l][k + 1]);
            fill(ref, in[k], 10 * s + (uint64_t)k);
          }
          tensor_randomize(out, 99);
          run_and_check(ref, dtype, out, in, args, l == 0 ? HAL_CALL_DENSE : 0, what);
          if (l == 0) run_and_check(ref, dtype, out, in, args, 0, what);
          tensor_free(out);
          for (int k = 0; k < 3; k++) tensor_free(in[k]);
        }
    }
}

Test(op_elementwise, in_place_on_the_same_elements) {
  open_device();
  static const int64_t sizes[] = {37, 61};
  for (size_t r = 0; r < REFERENCE_COUNT; r++)
    for (size_t t = 0; t < DTYPES; t++)
      for (enum layout layout = CONTIGUOUS; layout < BROADCAST_ALL; layout++) {
        const reference_t *ref = &references[r];
        if (!is_tested(ref, all_dtypes[t]) || (ref->result_bool && all_dtypes[t] != HAL_BOOL)) continue;
        hal_value_t args[5];
        tensor_t *self = tensor_new(all_dtypes[t], 2, sizes, layout),
                 *other = tensor_new(all_dtypes[t], 2, sizes, CONTIGUOUS);
        fill(ref, self, 5);
        fill(ref, other, 6);
        run_and_check(ref, all_dtypes[t], self, (tensor_t *[]){self, other, other}, args, 0, "in place on a");
        if (ref->operands > 1) {
          fill(ref, self, 7);
          run_and_check(ref, all_dtypes[t], self, (tensor_t *[]){self, self, self}, args, 0, "in place on a and b");
        }
        tensor_free(self);
        tensor_free(other);
      }
}

/* All operators except these have a second operand `|Scalar` in codegen/operators. */
static int takes_number(const char *name) {
  static const char *const tensors_only[] = {"_backward", "lerp", "copysign", "hypot", "fmax", "fmin", "logical_"};
  for (size_t i = 0; i < sizeof tensors_only / sizeof tensors_only[0]; i++)
    if (strstr(name, tensors_only[i])) return 0;
  return 1;
}

Test(op_elementwise, second_operand_as_a_number) {
  open_device();
  static const double numbers[] = {0, 1, -3, 2.5, 1e-3};
  for (size_t r = 0; r < REFERENCE_COUNT; r++) {
    const reference_t *ref = &references[r];
    if (ref->operands != 2 || !takes_number(ref->name)) continue;
    for (size_t t = 0; t < DTYPES; t++)
      for (size_t n = 0; n < sizeof numbers / sizeof numbers[0]; n++)
        for (enum layout layout = CONTIGUOUS; layout < LAYOUTS; layout++) {
          const hal_dtype_t dtype = all_dtypes[t];
          static const int64_t sizes[] = {9, 130};
          const int whole = numbers[n] == floor(numbers[n]);
          if (!is_tested(ref, dtype) || (!is_floating(dtype) && !whole) || (dtype == HAL_BOOL && numbers[n] < 0))
            continue;
          if (dtype == HAL_UINT8 && numbers[n] < 0) continue; /* wraps in the dtype, not in the reference */
          tensor_t *self = tensor_new(dtype, 2, sizes, layout);
          tensor_t *out =
              tensor_new(ref->result_bool ? HAL_BOOL : dtype, 2, sizes, is_broadcast(layout) ? CONTIGUOUS : layout);
          tensor_randomize(self, n);
          tensor_randomize(out, 3);
          hal_value_t args[5];
          args[1] = whole ? of_int((int64_t)numbers[n]) : of_double(numbers[n]);
          if (dtype == HAL_FLOAT32 || is_half(dtype)) args[1] = of_double((float)numbers[n]);
          run_and_check(ref, dtype, out, (tensor_t *[]){self, NULL}, args, layout == CONTIGUOUS ? HAL_CALL_DENSE : 0,
                        "number");
          tensor_free(self);
          tensor_free(out);
        }
  }
}

Test(op_elementwise, where_takes_each_element_from_the_right_operand) {
  open_device();
  for (size_t t = 0; t < DTYPES; t++)
    for (size_t s = 0; s < SHAPES; s++)
      for (size_t l = 0; l < LAYOUT_SETS; l++) {
        tensor_t *out = tensor_new(all_dtypes[t], shapes[s].ndim, shapes[s].sizes, layouts[l][0]);
        tensor_t *cond = tensor_new(HAL_BOOL, shapes[s].ndim, shapes[s].sizes, layouts[l][3]);
        tensor_t *a = tensor_new(all_dtypes[t], shapes[s].ndim, shapes[s].sizes, layouts[l][1]);
        tensor_t *b = tensor_new(all_dtypes[t], shapes[s].ndim, shapes[s].sizes, layouts[l][2]);
        tensor_randomize(cond, 1);
        tensor_randomize(a, 2);
        tensor_randomize(b, 3);
        const hal_value_t args[] = {of_tensor(cond), of_tensor(a), of_tensor(b)};
        must(run("where.self", args, 3, out, 0));
        tensor_download(out);
        for (int64_t i = 0; i < out->numel; i++) {
          const tensor_t *from = tensor_get(cond, i).i ? a : b;
          cr_assert_arr_eq(out->host + (size_t)tensor_place(out, i) * out->element,
                           from->host + (size_t)tensor_place(from, i) * from->element, out->element);
        }
        tensor_free(out), tensor_free(cond), tensor_free(a), tensor_free(b);
      }
}
