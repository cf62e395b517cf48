/* device_reset.c: hal_device_reset, on the device that HAL_TEST_PLUGIN names: the conditions that prevent it, and
 * the functions that work after it. */
#include "../op/op_testing.h"
#include "hal/lazy.h"
#include "support.h"

enum { COUNT = 1000 };

static void open_two(void) {
  setenv("HAL_FAKE_DEVICES", "2", 1);
  open_device();
}

TestSuite(device_reset, .init = open_two, .timeout = 120);

static tensor_t *floats(float first) {
  const int64_t count = COUNT;
  tensor_t *t = tensor_new(HAL_FLOAT32, 1, &count, CONTIGUOUS);
  for (int i = 0; i < COUNT; i++) ((float *)t->host)[i] = first + (float)i;
  tensor_upload(t);
  return t;
}

static hal_status_t add(hal_stream_t *stream, const tensor_t *a, const tensor_t *b, const tensor_t *result) {
  const hal_value_t args[] = {of_tensor(a), of_tensor(b), of_double(1)};
  uint32_t op;
  must(hal_op_id("add.Tensor", &op));
  const hal_tensor_t *const results[] = {&result->desc};
  hal_op_call_t call = {
      .struct_size = sizeof call, .arg_count = 3, .result_count = 1, .args = args, .results = results};
  return hal_op_run(0, op, stream, &call);
}

/* Computes on a stream, and releases the memory that it allocated. */
static void work(hal_stream_t *stream) {
  tensor_t *const a = floats(1), *const r = floats(0);
  assert_ok(add(stream, a, a, r));
  assert_ok(hal_stream_synchronize(stream));
  tensor_download(r);
  for (int i = 0; i < COUNT; i++) cr_assert_eq(((float *)r->host)[i], 2 * (1 + (float)i));
  tensor_free(a);
  tensor_free(r);
}

static hal_stream_t *a_stream(int32_t priority) {
  hal_stream_t *stream;
  assert_ok(hal_stream_acquire(0, priority, &stream));
  return stream;
}

#define assert_in_use(text)                                                           \
  do {                                                                                \
    assert_fails(hal_device_reset(0), HAL_FAILED_PRECONDITION, "is in use");          \
    cr_assert_not_null(strstr(hal_error_message(), text), "%s", hal_error_message()); \
    cr_assert(hal_device_is_initialized(0));                                          \
  } while (0)

Test(device_reset, a_device_works_anew_and_its_streams_remain) {
  hal_stream_t *const normal = a_stream(0), *const high = a_stream(-1), *first;
  hal_memory_stats_t stats = {.struct_size = sizeof stats};
  assert_ok(hal_stream_default(0, &first));
  for (int turn = 0; turn < 3; turn++) {
    work(normal), work(high), work(first), work(NULL);
    assert_ok(hal_device_reset(0));
    cr_assert_not(hal_device_is_initialized(0));
    assert_ok(hal_device_reset(0)); /* unused: nothing happens */
    assert_ok(hal_memory_stats(0, &stats));
    cr_assert_eq(stats.reserved_bytes[HAL_POOL_ALL].current, 0);
  }
  hal_stream_t *again;
  assert_ok(hal_stream_query(high)); /* starts the device */
  cr_assert(hal_device_is_initialized(0));
  assert_ok(hal_stream_from_id(0, hal_stream_id(normal), &again));
  cr_assert_eq(again, normal);
  work(normal);
}

Test(device_reset, objects_of_the_application_keep_it_and_are_counted) {
  hal_block_t *block, *empty;
  hal_event_t *event;
  hal_memory_pool_t *pool;
  void *pinned;
  work(NULL);
  assert_ok(hal_memory_allocate(0, NULL, 4096, &block));
  assert_in_use("1 blocks of memory, and 0 events");
  assert_ok(hal_memory_allocate(0, NULL, 0, &empty));
  assert_in_use("2 blocks of memory");
  assert_ok(hal_host_allocate(0, 4096, &pinned));
  assert_in_use("3 blocks of memory");
  hal_memory_release(block);
  hal_memory_release(empty);
  assert_ok(hal_host_free(pinned));
  assert_ok(hal_event_create(0, 0, &event));
  assert_in_use("0 blocks of memory, and 1 events");
  assert_ok(hal_event_record(event, NULL));
  assert_ok(hal_memory_pool_create(0, &pool));
  assert_in_use("and 2 events");
  hal_memory_pool_release(pool);
  hal_event_destroy(event);
  assert_ok(hal_device_reset(0));
  work(NULL);
}

Test(device_reset, recorded_and_deferred_work_keep_it) {
  hal_stream_t *const stream = a_stream(0);
  hal_program_t *program = NULL;
  hal_lazy_t *lazy = NULL;
  tensor_t *const a = floats(1), *const r = floats(0);
  assert_ok(hal_program_begin(stream, NULL, &program));
  assert_ok(add(stream, a, a, r));
  assert_ok(hal_program_end(program));
  assert_ok(hal_program_run(program, stream));
  assert_ok(hal_stream_synchronize(stream));
  tensor_free(a);
  tensor_free(r);
  assert_in_use("events, modules, programs");
  hal_program_destroy(program);
  assert_ok(hal_device_reset(0));
  assert_ok(hal_lazy_begin(stream, NULL, &lazy));
  work(stream);
  assert_in_use("and 1 events");
  work(stream);
  assert_ok(hal_lazy_end(lazy));
  assert_ok(hal_device_reset(0));
  assert_ok(hal_lazy_begin(stream, NULL, &lazy)); /* the stream's previous recording is reused */
  work(stream);
  assert_ok(hal_lazy_end(lazy));
  assert_ok(hal_device_reset(0));
}

Test(device_reset, a_running_profile_keeps_it) {
  work(NULL);
  assert_ok(hal_profile_start());
  assert_fails(hal_device_reset(0), HAL_FAILED_PRECONDITION, "a profile is running");
  assert_ok(hal_profile_stop());
  assert_ok(hal_device_reset(0));
  assert_ok(hal_profile_start());
  work(NULL);
  assert_ok(hal_profile_stop());
}

Test(device_reset, other_devices_go_on) {
  static uint8_t bytes[4096], got[sizeof bytes];
  hal_block_t *block;
  if (hal_device_count() < 2) cr_skip_test("there is one device only");
  assert_ok(hal_memory_allocate(1, NULL, sizeof bytes, &block));
  for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)(i * 7);
  assert_ok(hal_memory_copy(NULL, hal_memory_block_address(block), 1, bytes, HAL_HOST, sizeof bytes));
  assert_ok(hal_device_synchronize(1));
  work(NULL);
  assert_ok(hal_device_reset(0));
  assert_ok(hal_memory_copy(NULL, got, HAL_HOST, hal_memory_block_address(block), 1, sizeof got));
  assert_ok(hal_device_synchronize(1));
  cr_assert_arr_eq(got, bytes, sizeof got);
  hal_memory_release(block);
}

Test(device_reset, an_unused_device_is_left_alone) {
  assert_ok(hal_device_reset(0));
  cr_assert_not(hal_device_is_initialized(0));
  assert_fails(hal_device_reset(hal_device_count()), HAL_OUT_OF_RANGE, "out of range");
  assert_fails(hal_device_reset(-1), HAL_OUT_OF_RANGE, "device -1");
}

Test(device_reset_none, a_plugin_without_it_is_named_and_nothing_changes) {
  hal_block_t *block;
  open_fixture("five");
  assert_ok(hal_memory_allocate(0, NULL, 64, &block));
  assert_fails(hal_device_reset(0), HAL_UNIMPLEMENTED, "plugin five does not reset its devices");
  cr_assert(hal_device_is_initialized(0));
  hal_memory_release(block);
}
