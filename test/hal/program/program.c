/* program.c: recording streams and running the recordings, on the device that HAL_TEST_PLUGIN names. */
#include <math.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../op/op_numbers.h"
#include "base/host_malloc.h"
#include "hal/lazy.h"
#include "support.h"

TestSuite(program, .init = open_device, .timeout = 240);

enum { COUNT = 1000 };

static hal_stream_t *new_stream(void) {
  hal_stream_t *stream;
  must(hal_stream_acquire(0, 0, &stream));
  return stream;
}

static tensor_t *vector(hal_dtype_t dtype, int64_t count) { return tensor_new(dtype, 1, &count, CONTIGUOUS); }

static tensor_t *floats(float first, float step) {
  tensor_t *t = vector(HAL_FLOAT32, COUNT);
  for (int i = 0; i < COUNT; i++) ((float *)t->host)[i] = first + step * (float)i;
  tensor_upload(t);
  return t;
}

static hal_status_t queue(hal_stream_t *stream, const char *name, const hal_value_t *args, uint32_t count,
                          const tensor_t *result) {
  uint32_t op;
  must(hal_op_id(name, &op));
  const hal_tensor_t *const results[] = {&result->desc};
  hal_op_call_t call = {
      .struct_size = sizeof call, .arg_count = count, .result_count = 1, .args = args, .results = results};
  return hal_op_run(0, op, stream, &call);
}

/* result = a + b */
static hal_status_t add(hal_stream_t *stream, const tensor_t *a, const tensor_t *b, const tensor_t *result) {
  const hal_value_t args[] = {of_tensor(a), of_tensor(b), of_double(1)};
  return queue(stream, "add.Tensor", args, 3, result);
}

static hal_status_t uniform(hal_stream_t *stream, hal_generator_t *generator, const tensor_t *result) {
  uint32_t op;
  hal_draw_t draw;
  must(hal_op_id("uniform", &op));
  HAL_RETURN_IF_ERROR(hal_generator_draw(generator, stream, COUNT / 4, &draw));
  const hal_value_t args[] = {of_double(0), of_double(1)};
  const hal_tensor_t *const results[] = {&result->desc};
  hal_op_call_t call = {.struct_size = sizeof call,
                        .arg_count = 2,
                        .result_count = 1,
                        .args = args,
                        .results = results,
                        .seed = draw.seed,
                        .offset = draw.offset,
                        .random_state = draw.random_state};
  return hal_op_run(0, op, stream, &call);
}

static hal_program_t *begin(hal_stream_t *stream) {
  hal_program_t *program;
  must(hal_program_begin(stream, NULL, &program));
  return program;
}

static void run_once(hal_program_t *program, hal_stream_t *stream) {
  must(hal_program_run(program, stream));
  must(hal_stream_synchronize(stream));
}

static float at(tensor_t *t, int index) {
  tensor_download(t);
  return ((float *)t->host)[index];
}

static hal_program_info_t info_of(const hal_program_t *program) {
  hal_program_info_t info = {.struct_size = sizeof info};
  must(hal_program_info(program, &info));
  return info;
}

/* ---- recording and running ---- */

Test(program, nothing_runs_before_the_program_does_and_each_run_does_it_all_again) {
  hal_stream_t *const stream = new_stream();
  tensor_t *const a = floats(1, 1), *const b = floats(2, 0), *const r = floats(-1, 0);
  must(hal_stream_synchronize(NULL));
  hal_program_t *const program = begin(stream);
  cr_assert_eq(hal_program_of_stream(stream), program);
  must(add(stream, a, b, r));
  must(add(stream, r, r, r));
  must(hal_program_end(program));
  cr_assert_null(hal_program_of_stream(stream));
  must(hal_stream_synchronize(stream));
  cr_expect_eq(at(r, 5), -1, "nothing has run");
  run_once(program, stream);
  cr_expect_eq(at(r, 5), 16, "(6 + 2) * 2");
  ((float *)a->host)[5] = 10;
  tensor_upload(a);
  must(hal_stream_synchronize(NULL));
  run_once(program, stream);
  cr_expect_eq(at(r, 5), 24, "the operands are read again");
  const hal_program_info_t info = info_of(program);
  cr_expect(info.launches >= 2 && info.commands >= info.launches && info.runs == 2 && info.streams == 1 &&
            !info.recording && !info.invalidated);
  hal_program_destroy(program);
  tensor_free(a), tensor_free(b), tensor_free(r);
}

Test(program, temporaries_of_the_recording_are_not_shared) {
  hal_stream_t *const stream = new_stream();
  tensor_t *const a = floats(1, 1), *const r = floats(0, 0);
  must(hal_stream_synchronize(NULL));
  hal_program_t *const program = begin(stream);
  hal_block_t *block;
  must(hal_memory_allocate(0, stream, COUNT * sizeof(float), &block));
  tensor_t temporary = *r;
  temporary.desc.data = hal_memory_block_address(block);
  must(add(stream, a, a, &temporary));
  must(add(stream, &temporary, a, r));
  hal_memory_release(block);
  must(hal_program_end(program));
  hal_block_t *others[64];
  const uint8_t ones = 0xff;
  for (int i = 0; i < 64; i++) {
    must(hal_memory_allocate(0, stream, COUNT * sizeof(float), &others[i]));
    must(hal_memory_fill(stream, 0, hal_memory_block_address(others[i]), &ones, 1, COUNT * sizeof(float)));
  }
  run_once(program, stream);
  cr_expect_eq(at(r, 9), 30);
  unsigned char *copy = malloc(COUNT * sizeof(float));
  for (int i = 0; i < 64; i++) {
    must(hal_memory_copy(stream, copy, HAL_HOST, hal_memory_block_address(others[i]), 0, COUNT * sizeof(float)));
    must(hal_stream_synchronize(stream));
    for (size_t j = 0; j < COUNT * sizeof(float); j++) cr_assert_eq(copy[j], 0xff, "a run wrote into another's memory");
    hal_memory_release(others[i]);
  }
  free(copy);
  hal_program_destroy(program);
  tensor_free(a), tensor_free(r);
}

Test(program, copies_and_fills_are_recorded_with_the_bytes_of_the_host) {
  hal_stream_t *const stream = new_stream();
  tensor_t *const a = floats(0, 0), *const b = floats(0, 0);
  float given[4] = {1, 2, 3, 4};
  const float filled = 7;
  must(hal_stream_synchronize(NULL));
  hal_program_t *const program = begin(stream);
  must(hal_memory_copy(stream, a->desc.data, 0, given, HAL_HOST, sizeof given));
  given[2] = 99; /* the caller may reuse the memory */
  must(hal_memory_fill(stream, 0, (char *)a->desc.data + 16, &filled, sizeof filled, 32));
  must(hal_memory_copy(stream, b->desc.data, 0, a->desc.data, 0, 48));
  must(hal_program_end(program));
  run_once(program, stream);
  cr_expect_eq(at(b, 2), 3);
  cr_expect_eq(at(b, 5), 7);
  cr_expect_eq(at(b, 12), 0);
  const hal_program_info_t info = info_of(program);
  cr_expect_eq(info.copies, 2);
  cr_expect_eq(info.fills, 1);
  hal_program_destroy(program);
  tensor_free(a), tensor_free(b);
}

Test(program, page_locked_memory_is_read_and_written_when_the_program_runs) {
  hal_stream_t *const stream = new_stream();
  tensor_t *const a = floats(0, 0);
  float *pinned;
  int32_t device;
  must(hal_host_allocate(0, 2 * sizeof *pinned, (void **)&pinned));
  if (hal_host_find(pinned, &device)) cr_skip_test("the plugin has no page-locked memory");
  pinned[0] = 1, pinned[1] = 0;
  must(hal_stream_synchronize(NULL));
  hal_program_t *const program = begin(stream);
  must(hal_memory_copy(stream, a->desc.data, 0, &pinned[0], HAL_HOST, sizeof *pinned));
  must(hal_memory_copy(stream, &pinned[1], HAL_HOST, a->desc.data, 0, sizeof *pinned));
  must(hal_program_end(program));
  for (int i = 5; i < 8; i++) {
    pinned[0] = (float)i;
    run_once(program, stream);
    cr_expect_eq(pinned[1], (float)i);
  }
  hal_program_destroy(program);
  must(hal_host_free(pinned));
  tensor_free(a);
}

static void count_call(void *data) { ++*(int *)data; }

Test(program, host_functions_are_called_by_each_run) {
  hal_stream_t *const stream = new_stream();
  static int calls;
  hal_program_t *const program = begin(stream);
  must(hal_stream_host_call(stream, count_call, &calls));
  must(hal_program_end(program));
  cr_expect_eq(calls, 0);
  for (int i = 0; i < 3; i++) run_once(program, stream);
  cr_expect_eq(calls, 3);
  hal_program_destroy(program);
}

Test(program, a_null_host_function_is_refused_immediately) {
  hal_stream_t *const stream = new_stream();
  assert_fails(hal_stream_host_call(stream, NULL, NULL), HAL_INVALID_ARGUMENT, "missing function");
  hal_program_t *const program = begin(stream);
  assert_fails(hal_stream_host_call(stream, NULL, NULL), HAL_INVALID_ARGUMENT, "missing function");
  must(hal_program_end(program));
  hal_program_destroy(program);
}

Test(program, each_run_generates_new_numbers_equal_to_those_of_eager_calls) {
  hal_stream_t *const stream = new_stream();
  hal_generator_t *generator, *same;
  tensor_t *const first = floats(0, 0), *const second = floats(0, 0), *const eager = floats(0, 0);
  must(hal_generator_create(42, &generator));
  must(hal_generator_create(42, &same));
  must(hal_stream_synchronize(NULL));
  hal_program_t *const program = begin(stream);
  must(uniform(stream, generator, first));
  must(uniform(stream, generator, second));
  must(hal_program_end(program));
  cr_expect_eq(hal_generator_offset(generator), 0, "a recording generates no numbers");
  cr_expect_eq(info_of(program).random, 2 * (COUNT / 4));
  for (int i = 0; i < 3; i++) {
    run_once(program, stream);
    tensor_download(first), tensor_download(second);
    tensor_t *const sampled[] = {first, second};
    for (int j = 0; j < 2; j++) {
      must(uniform(stream, same, eager));
      must(hal_stream_synchronize(stream));
      tensor_download(eager);
      cr_assert_eq(memcmp(sampled[j]->host, eager->host, COUNT * sizeof(float)), 0, "run %d, call %d", i, j);
    }
  }
  hal_generator_set_seed(generator, 7), hal_generator_set_seed(same, 7); /* a new seed applies to the next run */
  run_once(program, stream);
  must(uniform(stream, same, eager));
  must(hal_stream_synchronize(stream));
  tensor_download(first), tensor_download(eager);
  cr_expect_eq(memcmp(first->host, eager->host, COUNT * sizeof(float)), 0);
  hal_program_destroy(program);
  hal_generator_destroy(generator), hal_generator_destroy(same);
  tensor_free(first), tensor_free(second), tensor_free(eager);
}

static void open_with_fault(void) {
  setenv("HAL_LAYERS", "fault", 1);
  setenv("HAL_FAULT", "memory_fill:1:INTERNAL", 1);
  open_device();
}

TestSuite(program_faults, .init = open_with_fault, .timeout = 240);

Test(program_faults, a_run_that_cannot_generate_numbers_returns_an_error) {
  hal_stream_t *const stream = new_stream();
  hal_generator_t *generator;
  tensor_t *const r = floats(0, 0);
  must(hal_generator_create(42, &generator));
  hal_program_t *const program = begin(stream);
  must(uniform(stream, generator, r));
  must(hal_program_end(program));
  assert_fails(hal_program_run(program, stream), HAL_INTERNAL, "command 1 of 2 of a program");
  cr_expect_not_null(strstr(hal_error_message(), "memory_fill"), "%s", hal_error_message());
  run_once(program, stream);
  hal_program_destroy(program);
  hal_generator_destroy(generator);
  tensor_free(r);
}

Test(program, generated_numbers_are_not_overwritten_by_earlier_work) {
  hal_stream_t *const stream = new_stream();
  hal_generator_t *generator, *same;
  tensor_t *const a = floats(1, 1), *const r = floats(0, 0), *const eager = floats(0, 0);
  must(hal_generator_create(42, &generator));
  must(hal_generator_create(42, &same));
  must(hal_stream_synchronize(NULL));
  hal_program_t *const program = begin(stream);
  for (int i = 0; i < 20; i++) { /* temporaries, whose memory is free when the first number is generated */
    hal_block_t *block;
    must(hal_memory_allocate(0, stream, i % 2 ? 16 : COUNT * sizeof(float), &block));
    if (i % 2) {
      const float value = 3;
      must(hal_memory_fill(stream, 0, hal_memory_block_address(block), &value, sizeof value, 16));
    } else {
      tensor_t temporary = *r;
      temporary.desc.data = hal_memory_block_address(block);
      must(add(stream, a, a, &temporary));
    }
    hal_memory_release(block);
  }
  must(uniform(stream, generator, r));
  must(hal_program_end(program));
  for (int i = 0; i < 3; i++) {
    run_once(program, stream);
    must(uniform(stream, same, eager));
    must(hal_stream_synchronize(stream));
    tensor_download(r), tensor_download(eager);
    cr_assert_eq(memcmp(r->host, eager->host, COUNT * sizeof(float)), 0, "run %d", i);
  }
  hal_program_destroy(program);
  hal_generator_destroy(generator), hal_generator_destroy(same);
  tensor_free(a), tensor_free(r), tensor_free(eager);
}

/* ---- streams ---- */

Test(program, a_stream_that_waits_for_recorded_work_joins) {
  hal_stream_t *const stream = new_stream(), *const side = new_stream();
  tensor_t *const a = floats(1, 0), *const r = floats(0, 0);
  hal_event_t *fork, *end;
  must(hal_event_create(0, 0, &fork));
  must(hal_event_create(0, 0, &end));
  must(hal_stream_synchronize(NULL));
  hal_program_t *const program = begin(stream);
  must(add(stream, a, a, r));
  must(hal_event_record(fork, stream));
  must(hal_stream_wait_event(side, fork));
  cr_assert_eq(hal_program_of_stream(side), program);
  must(add(side, r, r, r));
  must(hal_event_record(end, side));
  must(hal_stream_wait_event(stream, end));
  must(add(stream, r, a, r));
  must(hal_program_end(program));
  cr_assert_null(hal_program_of_stream(side));
  run_once(program, stream);
  cr_expect_eq(at(r, 3), 5);
  cr_expect_eq(info_of(program).streams, 2);
  assert_fails(hal_stream_wait_event(stream, end), HAL_FAILED_PRECONDITION, "which is over");
  must(hal_event_record(end, stream)); /* an event serves again */
  must(hal_event_synchronize(end));
  hal_program_destroy(program);
  hal_event_destroy(fork), hal_event_destroy(end);
  tensor_free(a), tensor_free(r);
}

Test(program, runs_follow_one_another_on_whatever_streams) {
  tensor_t *const a = floats(1, 0), *const r = floats(0, 0);
  hal_stream_t *const stream = new_stream(), *streams[] = {stream, new_stream(), new_stream()};
  must(hal_stream_synchronize(NULL));
  hal_program_t *const program = begin(stream);
  must(add(stream, r, a, r));
  must(hal_program_end(program));
  for (int i = 0; i < 300; i++) must(hal_program_run(program, streams[i % 3]));
  must(hal_device_synchronize(0));
  cr_expect_eq(at(r, 0), 300);
  hal_program_destroy(program);
  tensor_free(a), tensor_free(r);
}

static void *record_there(void *data) {
  tensor_t *const *const tensors = data;
  return (void *)(intptr_t)add(hal_program_of_stream((hal_stream_t *)tensors[2]) ? (hal_stream_t *)tensors[2] : NULL,
                               tensors[0], tensors[0], tensors[1]);
}

Test(program, a_recording_belongs_to_the_stream_and_not_to_the_thread) {
  hal_stream_t *const stream = new_stream();
  tensor_t *const a = floats(4, 0), *const r = floats(0, 0);
  must(hal_stream_synchronize(NULL));
  hal_program_t *const program = begin(stream);
  void *given[] = {a, r, stream}, *status;
  pthread_t thread;
  cr_assert_eq(pthread_create(&thread, NULL, record_there, given), 0);
  pthread_join(thread, &status);
  cr_assert_null(status);
  must(hal_program_end(program));
  run_once(program, stream);
  cr_expect_eq(at(r, 1), 8);
  hal_program_destroy(program);
  tensor_free(a), tensor_free(r);
}

Test(program, an_invalid_index_is_reported_by_the_stream_that_ran) {
  hal_stream_t *const stream = new_stream(), *const other = new_stream();
  tensor_t *const a = floats(1, 0), *const index = vector(HAL_INT64, 4), *const r = vector(HAL_FLOAT32, 4);
  const int64_t indices[] = {0, 3, COUNT + 5, 1};
  memcpy(index->host, indices, sizeof indices);
  tensor_upload(index);
  must(hal_stream_synchronize(NULL));
  hal_program_t *const program = begin(stream);
  const hal_value_t args[] = {of_tensor(a), of_int(0), of_tensor(index)};
  must(queue(stream, "index_select", args, 3, r));
  must(hal_program_end(program));
  must(hal_program_run(program, other));
  must(hal_stream_synchronize(stream));
  assert_fails(hal_stream_synchronize(other), HAL_OUT_OF_RANGE, "1005");
  must(hal_stream_synchronize(other));
  hal_program_destroy(program);
  tensor_free(a), tensor_free(index), tensor_free(r);
}

/* ---- calls that cannot be recorded ---- */

static void invalidates(const char *what, hal_status_t (*act)(hal_stream_t *)) {
  hal_stream_t *const stream = new_stream();
  tensor_t *const a = floats(1, 0), *const r = floats(0, 0);
  must(hal_stream_synchronize(NULL));
  hal_program_t *const program = begin(stream);
  must(add(stream, a, a, r));
  assert_fails(act(stream), HAL_FAILED_PRECONDITION, what);
  assert_fails(add(stream, a, a, r), HAL_FAILED_PRECONDITION, "invalidated");
  assert_fails(hal_program_end(program), HAL_ABORTED, what);
  assert_fails(hal_program_run(program, stream), HAL_FAILED_PRECONDITION, what);
  cr_expect_eq(info_of(program).invalidated, 1);
  hal_program_destroy(program);
  must(add(stream, a, a, r)); /* the stream works as before */
  must(hal_stream_synchronize(stream));
  cr_expect_eq(at(r, 0), 2);
  tensor_free(a), tensor_free(r);
}

Test(program, waiting_for_the_stream_invalidates_it) { invalidates("hal_stream_synchronize", hal_stream_synchronize); }
Test(program, querying_the_stream_invalidates_it) { invalidates("hal_stream_query", hal_stream_query); }

static hal_status_t read_back(hal_stream_t *stream) {
  static float value;
  hal_block_t *block;
  must(hal_memory_allocate(0, stream, 4, &block));
  const hal_status_t status = hal_memory_copy(stream, &value, HAL_HOST, hal_memory_block_address(block), 0, 4);
  hal_memory_release(block);
  return status;
}
Test(program, reading_values_invalidates_it) { invalidates("page-locked", read_back); }

static hal_status_t wait_elsewhere(hal_stream_t *stream) {
  hal_event_t *event;
  must(hal_event_create(0, 0, &event));
  must(hal_event_record(event, NULL));
  const hal_status_t status = hal_stream_wait_event(stream, event);
  hal_event_destroy(event);
  return status;
}
Test(program, waiting_for_other_work_invalidates_it) { invalidates("outside of it", wait_elsewhere); }

static hal_status_t wait_event(hal_stream_t *stream) {
  hal_event_t *event;
  must(hal_event_create(0, 0, &event));
  must(hal_event_record(event, stream));
  const hal_status_t status = hal_event_synchronize(event);
  hal_event_destroy(event);
  return status;
}
Test(program, waiting_for_an_event_of_it_invalidates_it) { invalidates("hal_event_synchronize", wait_event); }

static hal_status_t time_event(hal_stream_t *stream) {
  hal_event_t *event;
  int64_t time;
  must(hal_event_create(0, HAL_EVENT_TIMING, &event));
  must(hal_event_record(event, NULL)); /* whose time would be another one */
  must(hal_event_record(event, stream));
  const hal_status_t status = hal_event_elapsed(event, event, &time);
  hal_event_destroy(event);
  return status;
}
Test(program, querying_the_time_of_an_event_of_it_invalidates_it) { invalidates("hal_event_elapsed", time_event); }

Test(program, an_event_of_a_recording_that_is_over_has_no_time) {
  hal_stream_t *const stream = new_stream();
  hal_event_t *event;
  int64_t time;
  must(hal_event_create(0, HAL_EVENT_TIMING, &event));
  must(hal_event_record(event, stream));
  must(hal_event_synchronize(event));
  hal_program_t *const program = begin(stream);
  must(hal_event_record(event, stream));
  must(hal_program_end(program));
  assert_fails(hal_event_elapsed(event, event, &time), HAL_FAILED_PRECONDITION, "being recorded, which is over");
  must(hal_event_record(event, stream));
  must(hal_event_synchronize(event));
  must(hal_event_elapsed(event, event, &time));
  hal_event_destroy(event);
  hal_program_destroy(program);
}

static hal_status_t synchronize_device(hal_stream_t *stream) {
  hal_stream_t *previous;
  must(hal_stream_set_current(stream, &previous));
  const hal_status_t status = hal_device_synchronize(0);
  must(hal_stream_set_current(previous, NULL));
  return status;
}
Test(program, waiting_for_the_device_of_the_current_stream_invalidates_it) {
  invalidates("hal_device_synchronize", synchronize_device);
}

static hal_status_t run_another(hal_stream_t *stream) {
  hal_program_t *const another = begin(new_stream());
  must(hal_program_end(another));
  const hal_status_t status = hal_program_run(another, stream);
  hal_program_destroy(another);
  return status;
}
Test(program, running_a_program_invalidates_it) { invalidates("running another program", run_another); }

Test(program, a_caller_invalidates_what_cannot_hold_its_work) {
  hal_program_t *const program = begin(NULL);
  assert_fails(hal_program_refuse(program, "the host computes 100%"), HAL_FAILED_PRECONDITION,
               "the host computes 100%");
  assert_fails(hal_program_refuse(program, "and this"), HAL_FAILED_PRECONDITION, "and this");
  assert_fails(hal_program_end(program), HAL_ABORTED, "the recording was invalidated: the host computes 100%");
  assert_fails(hal_program_run(program, NULL), HAL_FAILED_PRECONDITION, "the host computes 100%");
  hal_program_destroy(program);
  hal_program_t *const good = begin(NULL);
  must(hal_program_end(good));
  assert_fails(hal_program_refuse(good, "too late"), HAL_FAILED_PRECONDITION, "too late");
  must(hal_program_run(good, NULL));
  hal_program_destroy(good);
}

Test(program, other_streams_of_the_device_work_meanwhile) {
  hal_stream_t *const stream = new_stream(), *const other = new_stream();
  tensor_t *const a = floats(1, 0), *const r = floats(0, 0);
  must(hal_stream_synchronize(NULL));
  hal_program_t *const program = begin(stream);
  must(add(other, a, a, r));
  must(hal_stream_synchronize(other));
  must(hal_device_synchronize(0));
  cr_expect_eq(at(r, 0), 2);
  must(hal_program_end(program));
  hal_program_destroy(program);
  tensor_free(a), tensor_free(r);
}

/* ---- invalid uses ---- */

Test(program, invalid_uses_are_refused_with_a_message) {
  hal_stream_t *const stream = new_stream();
  hal_program_t *const program = begin(stream), *second;
  char text[16];
  size_t size;
  assert_fails(hal_program_begin(stream, NULL, &second), HAL_FAILED_PRECONDITION, "already");
  assert_fails(hal_program_run(program, NULL), HAL_FAILED_PRECONDITION, "being recorded");
  assert_fails(hal_program_text(program, HAL_PROGRAM_LINES, text, sizeof text, &size), HAL_FAILED_PRECONDITION,
               "being recorded");
  must(hal_program_end(program));
  assert_fails(hal_program_end(program), HAL_FAILED_PRECONDITION, "ended already");
  assert_fails(hal_program_text(program, 9, text, sizeof text, &size), HAL_INVALID_ARGUMENT, "unknown format 9");
  run_once(program, stream); /* of nothing */
  hal_program_destroy(program);
  hal_program_destroy(NULL);
}

static void open_two_devices(void) {
  setenv("HAL_FAKE_DEVICES", "2", 1);
  open_device();
}

Test(program, a_stream_of_another_device_is_refused_and_goes_on_with_its_own_recording, .init = open_two_devices) {
  hal_stream_t *other;
  if (hal_device_count() < 2) cr_skip_test("one device");
  must(hal_stream_acquire(1, 0, &other));
  hal_program_t *const program = begin(new_stream());
  must(hal_program_end(program));
  hal_program_t *const others = begin(other);
  assert_fails(hal_program_run(program, other), HAL_INVALID_ARGUMENT, "cannot run on a stream of device");
  must(hal_program_end(others));
  hal_program_destroy(others), hal_program_destroy(program);
}

Test(program, destroyed_while_it_records_it_leaves_the_stream_as_it_was) {
  hal_stream_t *const stream = new_stream();
  tensor_t *const a = floats(1, 0), *const r = floats(0, 0);
  must(hal_stream_synchronize(NULL));
  hal_program_t *const program = begin(stream);
  must(add(stream, a, a, r));
  hal_program_destroy(program);
  must(hal_stream_synchronize(stream));
  cr_expect_eq(at(r, 0), 0);
  must(add(stream, a, a, r));
  must(hal_stream_synchronize(stream));
  cr_expect_eq(at(r, 0), 2);
  tensor_free(a), tensor_free(r);
}

Test(program, two_programs_share_a_pool) {
  hal_stream_t *const stream = new_stream();
  hal_block_t *block;
  hal_program_t *const first = begin(stream), *second;
  must(hal_memory_allocate(0, stream, 4096, &block));
  void *const address = hal_memory_block_address(block);
  hal_memory_release(block);
  must(hal_program_end(first));
  const hal_program_desc_t desc = {.struct_size = sizeof desc, .pool = hal_program_pool(first)};
  must(hal_program_begin(stream, &desc, &second));
  must(hal_memory_allocate(0, stream, 4096, &block));
  cr_expect_eq(hal_memory_block_address(block), address);
  must(hal_program_end(second));
  cr_expect_eq(hal_memory_pool_id(hal_program_pool(first)), hal_memory_pool_id(hal_program_pool(second)));
  hal_program_destroy(first);
  hal_memory_release(block);
  hal_program_destroy(second);
}

Test(program, it_is_destroyed_quietly_after_the_registry_is_closed_and_in_a_child) {
  hal_stream_t *const stream = new_stream();
  tensor_t *const a = floats(1, 0), *const r = floats(0, 0);
  must(hal_stream_synchronize(NULL));
  hal_program_t *const recording = begin(stream), *const ended = begin(new_stream());
  must(add(stream, a, a, r));
  must(hal_program_end(ended));
  const pid_t child = fork();
  if (!child) {
    const hal_status_t status = hal_program_run(ended, NULL);
    hal_program_destroy(ended);
    hal_program_destroy(recording);
    _exit(status == HAL_FAILED_PRECONDITION ? 0 : 1);
  }
  int status = 1;
  cr_assert_eq(waitpid(child, &status, 0), child);
  cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child ended with %d", status);
  tensor_free(a), tensor_free(r);
  hal_registry_close();
  hal_program_destroy(recording);
  hal_program_destroy(ended);
}

Test(program, without_host_memory_a_recording_fails_and_nothing_is_lost) {
  hal_stream_t *const stream = new_stream();
  tensor_t *const a = floats(1, 0), *const r = floats(0, 0);
  must(hal_stream_synchronize(NULL));
  for (long nth = 1;; nth++) {
    hal_program_t *program = NULL;
    hal_malloc_fail_after(nth);
    hal_status_t status = hal_program_begin(stream, NULL, &program);
    if (!status) status = add(stream, a, a, r);
    if (!status) status = hal_memory_copy(stream, r->desc.data, 0, &nth, HAL_HOST, sizeof nth);
    if (!status) status = hal_program_end(program);
    hal_malloc_fail_after(0);
    hal_program_destroy(program);
    if (!status) break;
    cr_assert(status == HAL_RESOURCE_EXHAUSTED || status == HAL_FAILED_PRECONDITION || status == HAL_ABORTED, "%s: %s",
              hal_status_name(status), hal_error_message());
    cr_assert_lt(nth, 100);
  }
  must(add(stream, a, a, r));
  must(hal_stream_synchronize(stream));
  cr_expect_eq(at(r, 0), 2);
  tensor_free(a), tensor_free(r);
}

/* ---- text ---- */

Test(program, its_text_names_operators_operands_and_commands) {
  hal_stream_t *const stream = new_stream();
  tensor_t *const a = floats(1, 0), *const r = floats(0, 0);
  const hal_program_desc_t desc = {.struct_size = sizeof desc, .flags = HAL_PROGRAM_DESCRIBED};
  const uint8_t zero = 0;
  char text[4096], dot[4096];
  size_t size = 0, again = 0;
  hal_program_t *program;
  must(hal_stream_synchronize(NULL));
  must(hal_program_begin(stream, &desc, &program));
  must(hal_memory_fill(stream, 0, r->desc.data, &zero, 1, 8));
  must(add(stream, a, a, r));
  must(hal_program_end(program));
  must(hal_program_text(program, HAL_PROGRAM_LINES, NULL, 0, &size));
  cr_assert_leq(size, sizeof text);
  must(hal_program_text(program, HAL_PROGRAM_LINES, text, sizeof text, &again));
  cr_expect_eq(size, again);
  cr_expect_eq(strlen(text) + 1, size);
  cr_expect_not_null(strstr(text,
                            "  %0 = fill of 8 bytes\n"
                            "add.Tensor(float32[1000], float32[1000], 1) -> float32[1000], portable\n"
                            "  %1 = launch of "),
                     "%s", text);
  must(hal_program_text(program, HAL_PROGRAM_DOT, dot, sizeof dot, &size));
  cr_expect(
      strncmp(dot, "digraph program {", 17) == 0 && strstr(dot, "n0 -> n1;") && strstr(dot, "add.Tensor, portable\\n"),
      "%s", dot);
  hal_program_destroy(program);
  tensor_free(a), tensor_free(r);
}

/* Requests a text with a buffer that is one byte too small, which must not be written. */
static void check_room(hal_status_t (*tell)(const void *subject, uint32_t format, char *text, size_t room,
                                            size_t *size),
                       const void *subject) {
  char text[4096];
  for (uint32_t format = HAL_PROGRAM_LINES; format <= HAL_PROGRAM_DOT; format++) {
    size_t size = 0, again = 0;
    must(tell(subject, format, NULL, 0, &size));
    cr_assert(size > 40 && size < sizeof text);
    memset(text, '#', sizeof text);
    must(tell(subject, format, text, size - 1, &again));
    cr_expect_eq(again, size);
    for (size_t i = 0; i < sizeof text; i++) cr_assert_eq(text[i], '#', "byte %zu was written", i);
    must(tell(subject, format, text, size, &again));
    cr_expect(strlen(text) + 1 == size && text[size] == '#');
  }
}

static hal_status_t tell_program(const void *subject, uint32_t format, char *text, size_t room, size_t *size) {
  return hal_program_text(subject, format, text, room, size);
}

static hal_status_t tell_lazy(const void *subject, uint32_t format, char *text, size_t room, size_t *size) {
  return hal_lazy_text((hal_lazy_t *)(uintptr_t)subject, format, text, room, size);
}

Test(program, a_text_that_does_not_fit_its_buffer_is_not_written) {
  hal_stream_t *const stream = new_stream();
  tensor_t *const a = floats(1, 0), *const r = floats(0, 0);
  hal_lazy_t *lazy;
  must(hal_stream_synchronize(NULL));
  hal_program_t *const program = begin(stream);
  must(add(stream, a, a, r));
  must(hal_program_end(program));
  check_room(tell_program, program);
  must(hal_lazy_begin(stream, NULL, &lazy));
  must(add(stream, a, a, r));
  check_room(tell_lazy, lazy);
  must(hal_lazy_end(lazy));
  must(hal_stream_synchronize(stream)); /* the blocks are those of another stream */
  hal_program_destroy(program);
  tensor_free(a), tensor_free(r);
}

static hal_status_t fill_result(void *state, int32_t device, hal_stream_t *stream, const hal_op_call_t *call) {
  const uint8_t zero = 0;
  (void)state;
  return hal_memory_fill(stream, device, call->results[0]->data, &zero, 1, 8);
}

Test(program, names_that_libraries_chose_are_quoted_in_graphs) {
  const hal_op_desc_t desc = {
      .struct_size = sizeof desc, .name = "mine::name \"\\\"", .argument_count = 1, .fn = fill_result};
  hal_stream_t *const stream = new_stream();
  tensor_t *const a = floats(1, 0);
  char dot[4096];
  size_t size;
  uint32_t op;
  must(hal_op_define(&desc, &op));
  must(hal_stream_synchronize(NULL));
  hal_program_t *const program = begin(stream);
  const hal_value_t args[] = {of_tensor(a)};
  must(queue(stream, desc.name, args, 1, a));
  must(hal_program_end(program));
  must(hal_program_text(program, HAL_PROGRAM_DOT, dot, sizeof dot, &size));
  cr_expect_not_null(strstr(dot, "[label=\"mine::name \\\"\\\\\\\", "), "%s", dot);
  hal_program_destroy(program);
  tensor_free(a);
}
