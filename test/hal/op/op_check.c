/* op_check.c: invalid values that only kernels can detect. Each is reported once, by any call that waits for the
 * work, and not by a call that waits for earlier work. */
#include "op_testing.h"

static tensor_t *filled(hal_dtype_t dtype, int64_t n, enum layout layout, long double value) {
  tensor_t *t = tensor_new(dtype, 1, &n, layout);
  for (int64_t i = 0; i < t->storage; i++)
    store(dtype, t->host + i * (int64_t)t->element, (number_t){(int64_t)value, value});
  tensor_upload(t);
  return t;
}

static void put(tensor_t *t, int64_t index, long double value) {
  store(t->desc.dtype, t->host + tensor_place(t, index) * (int64_t)t->element, (number_t){(int64_t)value, value});
  tensor_upload(t);
}

static hal_status_t run_on(hal_stream_t *stream, const char *name, const tensor_t *a, const tensor_t *b,
                           const tensor_t *result) {
  uint32_t op;
  must(hal_op_id(name, &op));
  const hal_value_t args[] = {of_tensor(a), of_tensor(b)};
  const hal_tensor_t *const results[] = {&result->desc};
  hal_op_call_t call = {
      .struct_size = sizeof call, .arg_count = 2, .result_count = 1, .args = args, .results = results};
  return run_planned(0, op, stream, &call);
}

static void expect(hal_status_t status, const char *what) {
  status = status ? status : hal_device_synchronize(0);
  cr_assert_eq(status, HAL_INVALID_ARGUMENT, "%s", hal_status_name(status));
  cr_assert(strstr(hal_error_message(), what) != NULL, "%s", hal_error_message());
  must(hal_device_synchronize(0));
}

Test(op_check, a_divisor_of_0_is_found_wherever_it_lies) {
  open_device();
  static const char *const names[] = {"floor_divide", "div.Tensor_mode", "fmod.Tensor", "remainder.Tensor"};
  static const int64_t places[] = {0, 1, 4095, 5000};
  for (int layout = CONTIGUOUS; layout <= PADDED; layout++) {
    tensor_t *a = filled(HAL_INT64, 5001, CONTIGUOUS, 7), *b = filled(HAL_INT64, 5001, (enum layout)layout, 2),
             *r = filled(HAL_INT64, 5001, CONTIGUOUS, 0);
    for (int name = 0; name < 4; name++) {
      must(run_on(NULL, names[name], a, b, r));
      must(hal_device_synchronize(0));
      for (int place = 0; place < 4; place++) {
        put(b, places[place], 0);
        expect(run_on(NULL, names[name], a, b, r), "ZeroDivisionError");
        put(b, places[place], 2);
      }
    }
    tensor_free(a), tensor_free(b), tensor_free(r);
  }
}

Test(op_check, floating_divisors_of_0_are_no_error) {
  open_device();
  tensor_t *a = filled(HAL_FLOAT32, 9, CONTIGUOUS, 1), *b = filled(HAL_FLOAT32, 9, CONTIGUOUS, 0);
  must(run_on(NULL, "floor_divide", a, b, a));
  must(hal_device_synchronize(0));
  tensor_free(a), tensor_free(b);
}

Test(op_check, the_message_names_the_operand_and_the_number) {
  open_device();
  for (int wide = 0; wide < 2; wide++) {
    const hal_dtype_t dtype = wide ? HAL_FLOAT64 : HAL_FLOAT32;
    tensor_t *x = filled(dtype, 40, CONTIGUOUS, 0.5L), *y = filled(dtype, 40, PADDED, 1),
             *r = filled(dtype, 40, PADDED, 0);
    must(run_on(NULL, "binary_cross_entropy.elements", x, y, r));
    must(hal_device_synchronize(0));
    put(x, 39, 1.25L);
    expect(run_on(NULL, "binary_cross_entropy.elements", x, y, r),
           "binary_cross_entropy: all elements of input should be between 0 and 1; one is 1.25");
    put(x, 39, 1), put(y, 3, -0.5L);
    expect(run_on(NULL, "binary_cross_entropy.elements", x, y, r),
           "all elements of target should be between 0 and 1; one is -0.5");
    put(y, 3, NAN);
    expect(run_on(NULL, "binary_cross_entropy.elements", x, y, r), "nan");
    tensor_free(x), tensor_free(y), tensor_free(r);
  }
}

Test(op_check, an_event_reports_failures_of_work_before_it_and_not_after_it) {
  open_device();
  tensor_t *a = filled(HAL_INT64, 100, CONTIGUOUS, 7), *b = filled(HAL_INT64, 100, CONTIGUOUS, 0),
           *r = filled(HAL_INT64, 100, CONTIGUOUS, 0);
  hal_stream_t *stream;
  hal_event_t *before, *after;
  must(hal_stream_acquire(0, 0, &stream));
  must(hal_event_create(0, 0, &before));
  must(hal_event_create(0, 0, &after));
  must(hal_event_record(before, stream));
  const hal_status_t launched = run_on(stream, "floor_divide", a, b, r);
  must(hal_event_record(after, stream));
  must(hal_event_synchronize(before));
  must(hal_event_query(before));
  if (!launched) expect(hal_event_synchronize(after), "floor_divide: ZeroDivisionError");
  must(hal_event_synchronize(after));
  must(hal_stream_synchronize(stream));
  if (!run_on(stream, "floor_divide", a, b, r)) { /* a query reports it as well */
    must(hal_event_record(after, stream));
    hal_status_t status;
    do status = hal_event_query(after);
    while (status == HAL_NOT_READY);
    expect(status, "ZeroDivisionError");
  }
  hal_event_destroy(before), hal_event_destroy(after);
  tensor_free(a), tensor_free(b), tensor_free(r);
}
