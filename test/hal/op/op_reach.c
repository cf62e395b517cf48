/* op_reach.c: devices with many threads index with 32 bits, so launches over strided operands that reach farther are
 * split (hal/src/op/iterator.c). A low limit makes small tensors exceed it: more launches must produce the same bits
 * as one. */
#include "op/table.h"
#include "op_testing.h"

static hal_status_t (*forwarded)(hal_plugin_kernel_t *, hal_plugin_stream_t *, const hal_launch_t *);
static int launches;
static hal_status_t counting(hal_plugin_kernel_t *kernel, hal_plugin_stream_t *stream, const hal_launch_t *launch) {
  launches++;
  return forwarded(kernel, stream, launch);
}

/* Runs an operator with a limit and returns the number of launches. */
static int run_within(int64_t most, const char *name, const hal_value_t *args, uint32_t count, tensor_t *result) {
  hal_plugin_t *const plugin = hal_devices[0].plugin;
  hal_op_target_t *const target = &hal_op_table_of(&hal_devices[0])->target;
  const int64_t before = target->most_reach;
  uint32_t op;
  must(hal_op_id(name, &op));
  const hal_tensor_t *const results[] = {&result->desc};
  hal_op_call_t call = {
      .struct_size = sizeof call, .arg_count = count, .result_count = 1, .args = args, .results = results};
  forwarded = plugin->api.kernel_launch;
  launches = 0;
  target->most_reach = most;
  plugin->api.kernel_launch = counting;
  const hal_status_t status = hal_op_run(0, op, NULL, &call);
  plugin->api.kernel_launch = forwarded;
  target->most_reach = before;
  must(status);
  tensor_download(result);
  return launches;
}

static const int64_t shape[] = {9, 37, 41};
static const int64_t limits[] = {INT32_MAX, 10000, 3000, 900};

/* The result with each limit equals the first one, and no memory between its elements changes. */
static void check(const char *name, const hal_value_t *args, uint32_t count, hal_dtype_t dtype, enum layout layout) {
  unsigned char *want = NULL;
  int before = 0;
  for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
    tensor_t *result = tensor_new(dtype, 3, shape, layout);
    tensor_randomize(result, 77);
    const int now = run_within(limits[i], name, args, count, result);
    const size_t bytes = (size_t)result->storage * result->element;
    if (!want) {
      want = malloc(bytes);
      memcpy(want, result->host, bytes);
    } else {
      cr_assert_gt(now, before, "%s, limit %lld: %d launches, %d before", name, (long long)limits[i], now, before);
      cr_assert_eq(memcmp(want, result->host, bytes), 0, "%s, limit %lld, layout %d", name, (long long)limits[i],
                   (int)layout);
    }
    before = now;
    tensor_free(result);
  }
  free(want);
}

static tensor_t *random_new(hal_dtype_t dtype, enum layout layout, uint64_t seed) {
  tensor_t *t = tensor_new(dtype, 3, shape, layout);
  tensor_randomize(t, seed);
  return t;
}

Test(op_reach, operands_that_reach_far_are_cut) {
  open_device();
  tensor_t *a = random_new(HAL_FLOAT32, FAR, 1), *b = random_new(HAL_FLOAT32, BROADCAST_FIRST, 2);
  tensor_t *cond = tensor_new(HAL_BOOL, 3, shape, REVERSED), *index = tensor_new(HAL_INT64, 3, shape, PADDED);
  for (int64_t i = 0; i < cond->storage; i++) cond->host[i] = i * 5 % 3 == 0;
  for (int64_t i = 0; i < index->storage; i++) {
    const int64_t at = i * 7 % shape[1];
    memcpy(index->host + i * 8, &at, 8);
  }
  tensor_upload(cond), tensor_upload(index);
  const hal_value_t sum[] = {of_tensor(a), of_tensor(b), of_int(2)};
  check("add.Tensor", sum, 3, HAL_FLOAT32, PADDED);
  const hal_value_t one[] = {of_tensor(a)};
  check("neg", one, 1, HAL_FLOAT32, REVERSED);
  const hal_value_t three[] = {of_tensor(cond), of_tensor(a), of_tensor(b)};
  check("where.self", three, 3, HAL_FLOAT32, PADDED);
  const hal_value_t taken[] = {of_tensor(a), of_int(1), of_tensor(index)};
  check("gather", taken, 3, HAL_FLOAT32, PADDED);
  tensor_free(a), tensor_free(b), tensor_free(cond), tensor_free(index);
}

Test(op_reach, bad_indices_are_found_in_every_part) {
  open_device();
  tensor_t *a = random_new(HAL_FLOAT32, PADDED, 1), *index = tensor_new(HAL_INT64, 3, shape, CONTIGUOUS);
  tensor_t *result = tensor_new(HAL_FLOAT32, 3, shape, PADDED);
  const int64_t bad = shape[1];
  memcpy(index->host + (index->storage - 1) * 8, &bad, 8);
  tensor_upload(index);
  const hal_value_t args[] = {of_tensor(a), of_int(1), of_tensor(index)};
  uint32_t op;
  must(hal_op_id("gather", &op));
  const hal_tensor_t *const results[] = {&result->desc};
  hal_op_call_t call = {
      .struct_size = sizeof call, .arg_count = 3, .result_count = 1, .args = args, .results = results};
  hal_op_table_of(&hal_devices[0])->target.most_reach = 500;
  hal_status_t status = hal_op_run(0, op, NULL, &call);
  if (!status) status = hal_device_synchronize(0);
  cr_assert_eq(status, HAL_OUT_OF_RANGE, "%s", hal_status_name(status));
  cr_assert(strstr(hal_error_message(), "index 37 is out of bounds for dimension 1 with size 37"), "%s",
            hal_error_message());
  tensor_free(a), tensor_free(index), tensor_free(result);
}
