/* lazy.c: streams with deferred work: the calls that flush it, fusion, elimination, and that results equal those of
 * immediate execution; on the device that HAL_TEST_PLUGIN names. */
#include <math.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/host_malloc.h"
#include "fusion/fuse.h"
#include "hal/event.h"
#include "lazy_testing.h"

TestSuite(lazy, .init = open_device, .timeout = 240);

/* ---- calls that flush the work ---- */

Test(lazy, nothing_is_queued_before_a_call_flushes_it) {
  tensor_t *const a = floats(1, 1), *const r = floats(-1, 0);
  hal_lazy_t *const lazy = begin();
  cr_assert_eq(hal_lazy_of_stream(NULL), lazy);
  add(a, a, 1, r);
  add(r, a, 1, r);
  cr_expect_eq(info_of(lazy).pending, 2);
  cr_expect_eq(info_of(lazy).queued, 0);
  cr_expect_eq(at(r, 5), 18, "the download flushes it");
  const hal_lazy_info_t info = info_of(lazy);
  cr_expect(info.pending == 0 && info.recorded == 2 && info.flushes == 1 && info.queued >= 1, "and once");
  must(hal_lazy_end(lazy));
  cr_assert_null(hal_lazy_of_stream(NULL));
  add(a, a, 1, r);
  cr_expect_eq(at(r, 5), 12, "the stream is as before");
}

static void host_function(void *data) { *(int *)data = 1; }

Test(lazy, each_way_to_wait_flushes_the_work) {
  hal_stream_t *stream, *other;
  hal_event_t *event;
  int called = 0;
  must(hal_stream_current(0, &stream));
  must(hal_stream_acquire(0, 0, &other));
  must(hal_event_create(0, 0, &event));
  tensor_t *const a = floats(1, 1), *const r = floats(-1, 0);
  hal_lazy_t *const lazy = begin();
  for (int way = 0; way < 8; way++) {
    add(a, a, way, r);
    cr_assert_eq(info_of(lazy).pending, 1, "way %d: deferred", way);
    switch (way) {
      case 0:
        must(hal_stream_synchronize(NULL));
        break;
      case 1:
        must(hal_device_synchronize(0));
        break;
      case 2:
        must(hal_event_record(event, NULL));
        break;
      case 3:
        must(hal_stream_host_call(NULL, host_function, &called));
        break;
      case 4:
        while (hal_stream_query(stream) == HAL_NOT_READY) continue;
        break;
      case 5:
        must(hal_memory_empty_cache(0));
        must(hal_lazy_flush(lazy));
        break;
      case 6:
        must(hal_lazy_flush(lazy));
        break;
      default:
        must(hal_stream_synchronize_timeout(NULL, INT64_C(60000000000)));
        break;
    }
    cr_assert_eq(info_of(lazy).pending, 0, "way %d", way);
    cr_assert_eq(at(r, 5), 6 * (float)(way + 1), "way %d", way);
  }
  cr_expect_eq(called, 1);
  must(hal_event_record(event, other));
  add(a, a, 1, r);
  must(hal_stream_wait_event(stream, event));
  cr_expect_eq(info_of(lazy).pending, 0, "what stands before a wait is queued before it");
  must(hal_lazy_end(lazy));
  hal_event_destroy(event);
}

Test(lazy, the_limit_queues_work_that_is_not_flushed) {
  tensor_t *const a = floats(1, 0), *const r = floats(0, 0);
  hal_lazy_t *const lazy = begin_with(0, 10);
  for (int i = 0; i < 35; i++) add(r, a, 1, r);
  const hal_lazy_info_t info = info_of(lazy);
  cr_expect_eq(info.limits, 3);
  cr_expect_eq(info.pending, 5);
  must(hal_lazy_end(lazy));
  cr_expect_eq(at(r, 17), 35);
}

Test(lazy, uploads_own_their_bytes) {
  tensor_t *const a = floats(3, 0), *const r = floats(0, 0);
  hal_lazy_t *const lazy = begin();
  cr_expect_eq(hal_stream_is_recorded(NULL), 1);
  must(hal_memory_copy(NULL, a->desc.data, 0, a->host, HAL_HOST, COUNT * sizeof(float)));
  ((float *)a->host)[5] = 99;
  add(a, a, 1, r);
  cr_expect_eq(info_of(lazy).pending, 2, "and wait for nothing");
  must(hal_lazy_end(lazy));
  cr_expect_eq(at(r, 5), 6);
  cr_expect_eq(hal_stream_is_recorded(NULL), 0);
}

Test(lazy, uploads_from_page_locked_memory_own_their_bytes) {
  tensor_t *const a = floats(3, 0), *const r = floats(0, 0);
  float *locked = NULL;
  must(hal_host_allocate(0, COUNT * sizeof(float), (void **)&locked));
  memcpy(locked, a->host, COUNT * sizeof(float));
  hal_lazy_t *const lazy = begin();
  must(hal_memory_copy(NULL, a->desc.data, 0, locked, HAL_HOST, COUNT * sizeof(float)));
  locked[5] = 99;
  add(a, a, 1, r);
  cr_expect_eq(info_of(lazy).pending, 2, "and wait for nothing");
  must(hal_lazy_end(lazy));
  cr_expect_eq(at(r, 5), 6);
  must(hal_host_free(locked));
}

Test(lazy, an_invalid_format_of_texts_is_refused_when_it_begins) {
  const hal_lazy_desc_t desc = {.struct_size = sizeof desc, .format = 2};
  hal_lazy_t *lazy = NULL;
  assert_fails(hal_lazy_begin(NULL, &desc, &lazy), HAL_INVALID_ARGUMENT,
               "unknown format 2; expected 0 (lines) or 1 (dot)");
  cr_assert_null(lazy);
  cr_assert_null(hal_lazy_of_stream(NULL));
}

Test(lazy, a_stream_is_lazy_once_and_not_recorded_besides) {
  hal_lazy_t *second = NULL;
  hal_program_t *program = NULL;
  hal_lazy_t *const lazy = begin();
  assert_fails(hal_lazy_begin(NULL, NULL, &second), HAL_FAILED_PRECONDITION, "lazy already");
  assert_fails(hal_program_begin(NULL, NULL, &program), HAL_FAILED_PRECONDITION, "already");
  cr_assert_null(hal_program_of_stream(NULL), "it is no program");
  must(hal_lazy_end(lazy));
  must(hal_lazy_end(NULL));
}

/* ---- groups ---- */

Test(lazy, adjacent_operators_run_as_one_kernel_with_the_same_bits) {
  tensor_t *const a = floats(0.25f, 0.001f), *const b = floats(1, 0.5f), *const plain = floats(0, 0),
                  *const r = floats(0, 0);
  for (int fused = 0; fused < 2; fused++) {
    tensor_t *const result = fused ? r : plain;
    hal_block_t *one, *other;
    hal_lazy_t *const lazy = begin_with(fused ? 0 : HAL_LAZY_PLAIN, 0);
    tensor_t *const s = taken(&one), *const t = taken(&other);
    add(a, b, 0.3, s);
    unary("sqrt", s, t);
    unary("exp", t, s); /* over what was read */
    add(s, t, -1.7, t);
    hal_memory_release(one);
    unary("tanh", t, result);
    hal_memory_release(other);
    must(hal_lazy_flush(lazy));
    const hal_lazy_info_t info = info_of(lazy);
    cr_expect_eq(info.queued, fused && fuses() ? 1 : 5);
    cr_expect_eq(info.fused, fused && fuses() ? 5 : 0);
    must(hal_lazy_end(lazy));
    tensor_download(result);
  }
  if (compiles()) { /* float32 functions: a compiler may fuse multiply-adds in one kernel and not in the other */
    for (int i = 0; i < COUNT; i++)
      cr_assert_float_eq(((float *)r->host)[i], ((float *)plain->host)[i], 2e-7, "element %d", i);
  } else {
    cr_expect_arr_eq(r->host, plain->host, COUNT * sizeof(float));
  }
}

Test(lazy, unused_results_are_eliminated_and_kept_results_are_written) {
  tensor_t *const a = floats(1, 1), *const kept = floats(0, 0), *const r = floats(0, 0);
  hal_block_t *block;
  if (!fuses()) return;
  hal_lazy_t *const lazy = begin();
  tensor_t *const t = taken(&block);
  unary("exp", a, t); /* not read */
  add(a, a, 1, kept);
  add(kept, a, 1, r);
  hal_memory_release(block);
  must(hal_lazy_flush(lazy));
  cr_expect_eq(info_of(lazy).dropped, 1);
  cr_expect_eq(info_of(lazy).fused, 2);
  must(hal_lazy_end(lazy));
  cr_expect_eq(at(kept, 100), 202);
  cr_expect_eq(at(r, 100), 303);
}

Test(lazy, a_group_that_is_met_again_is_not_compiled_again_whatever_its_size) {
  if (!fuses()) return;
  hal_lazy_t *const lazy = begin();
  for (int64_t count = 1; count <= 3000; count = 3 * count + 1) {
    tensor_t *const a = floats(2, 0), *const r = floats(0, 0);
    int64_t n = count;
    a->desc.sizes = r->desc.sizes = &n;
    add(a, a, (double)count, r); /* a number that changes */
    add(r, a, 1, r);
    must(hal_lazy_flush(lazy));
    a->desc.sizes = r->desc.sizes = (int64_t[]){COUNT};
    cr_expect_eq(at(r, (int)count - 1), (float)(2 + 2 * count + 2));
    cr_expect_eq(at(r, (int)count), 0, "no write after the last element");
  }
  const hal_lazy_info_t info = info_of(lazy);
  cr_expect(info.compiled <= 1 && info.cached == info.groups - info.compiled && info.groups == 7);
  must(hal_lazy_end(lazy));
}

Test(lazy, what_overlaps_in_another_order_is_no_group) {
  tensor_t *const a = floats(0, 1), *const r = floats(0, 0), *const want = floats(0, 0), *const other = floats(0, 0);
  for (int lazily = 0; lazily < 2; lazily++) {
    tensor_t *const x = lazily ? r : want;
    hal_lazy_t *const lazy = lazily ? begin() : NULL;
    tensor_t part = *x;
    int64_t n = COUNT - 1;
    add(a, a, 1, x);
    part.desc.sizes = &n;
    tensor_t shifted = part;
    shifted.desc.data = (char *)part.desc.data + sizeof(float);
    tensor_t first = *a;
    first.desc.sizes = &n;
    tensor_t sum = *other;
    sum.desc.sizes = &n;
    add(&first, &shifted, 1, &sum); /* reads the result of an adjacent operator */
    add(&sum, &first, 1, &part);    /* over what was read */
    must(hal_stream_synchronize(NULL));
    must(hal_lazy_end(lazy));
    tensor_download(x);
  }
  cr_expect_arr_eq(r->host, want->host, (COUNT - 1) * sizeof(float));
}

Test(lazy, groups_whose_hashes_collide_are_distinguished) {
  if (!fuses()) return;
  hal_stream_t *stream;
  must(hal_stream_current(0, &stream));
  hal_fuse_of(stream->device)->hash_mask = 0;
  tensor_t *const a = floats(2, 0), *const r = floats(0, 0);
  hal_lazy_t *const lazy = begin();
  for (int i = 0; i < 4; i++) {
    add(a, a, 1, r);
    if (i % 2) unary("sqrt", r, r);
    unary("neg", r, r);
    cr_expect_eq(at(r, 99), i % 2 ? -2 : -4, "round %d", i);
  }
  cr_expect_eq(info_of(lazy).compiled, 2);
  must(hal_lazy_end(lazy));
}

static void *queue_from_a_thread(void *data) {
  tensor_t *const *const t = data;
  hal_stream_t *stream;
  must(hal_stream_current(0, &stream));
  add(t[0], t[1], 1, t[0]);
  return NULL;
}

Test(lazy, another_threads_work_is_deferred_too) {
  tensor_t *const r = floats(0, 0), *const a = floats(2, 0);
  tensor_t *both[] = {r, a};
  hal_lazy_t *const lazy = begin();
  for (int i = 0; i < 20; i++) {
    pthread_t thread;
    cr_assert_eq(pthread_create(&thread, NULL, queue_from_a_thread, both), 0);
    cr_assert_eq(pthread_join(thread, NULL), 0);
    add(r, a, 1, r);
  }
  cr_expect_eq(info_of(lazy).pending, 40);
  must(hal_lazy_end(lazy));
  cr_expect_eq(at(r, 1234), 80);
}

Test(lazy, a_forked_child_ends_quietly) {
  tensor_t *const a = floats(1, 1), *const r = floats(-1, 0);
  hal_lazy_t *const lazy = begin();
  add(a, a, 1, r);
  const pid_t child = fork();
  if (child == 0) _exit(hal_lazy_flush(lazy) == HAL_OK || hal_lazy_end(lazy) != HAL_OK);
  int status;
  cr_assert_eq(waitpid(child, &status, 0), child);
  cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  must(hal_lazy_end(lazy));
  cr_expect_eq(at(r, 5), 12, "the parent's goes on");
}

/* ---- failures ---- */

static uint64_t line_of_caller(void *state) { return ++*(uint64_t *)state; }
static void describe_line(void *state, uint64_t origin, char *text, size_t room) {
  (void)state;
  snprintf(text, room, "script:%d", (int)origin);
}

static void open_with_fault(void) {
  setenv("HAL_LAYERS", "fault", 1);
  setenv("HAL_FAULT", "kernel_launch:2:INTERNAL", 1);
  open_device();
}

TestSuite(lazy_faults, .init = open_with_fault, .timeout = 240);

Test(lazy_faults, a_failure_names_operator_and_place_and_later_work_goes_on) {
  uint64_t line = 0;
  const hal_lazy_desc_t desc = {.struct_size = sizeof desc,
                                .flags = HAL_LAZY_PLAIN,
                                .origin = line_of_caller,
                                .describe = describe_line,
                                .state = &line};
  tensor_t *const a = floats(1, 1), *const r = floats(-1, 0);
  hal_lazy_t *lazy;
  must(hal_lazy_begin(NULL, &desc, &lazy));
  add(a, a, 1, r);
  must(hal_lazy_flush(lazy));
  add(a, a, 1, r);
  add(a, a, 2, r);
  assert_fails(hal_lazy_flush(lazy), HAL_INTERNAL, "script:2");
  cr_expect(strstr(hal_error_message(), "add.Tensor") &&
            strstr(hal_error_message(), "; 1 later commands were discarded: "));
  add(a, a, 3, r);
  must(hal_lazy_end(lazy));
  cr_expect_eq(at(r, 5), 24, "later work goes on");
}

/* ---- the listener of flushes ---- */

static struct {
  char cause[320], text[4096];
  int times;
} reported;

static void tell(void *state, const char *cause, const char *text) {
  (void)state;
  snprintf(reported.cause, sizeof reported.cause, "%s", cause);
  snprintf(reported.text, sizeof reported.text, "%s", text);
  reported.times++;
}

static hal_lazy_t *begin_reported(uint32_t format, uint64_t *line) {
  const hal_lazy_desc_t desc = {.struct_size = sizeof desc,
                                .flags = HAL_LAZY_DESCRIBED,
                                .format = format,
                                .origin = line_of_caller,
                                .describe = describe_line,
                                .queueing = tell,
                                .state = line};
  hal_lazy_t *lazy;
  must(hal_lazy_begin(NULL, &desc, &lazy));
  return lazy;
}

Test(lazy, queued_work_is_reported_with_its_cause_and_its_origins) {
  uint64_t line = 0;
  tensor_t *const a = floats(1, 1), *const r = floats(-1, 0);
  hal_lazy_t *lazy = begin_reported(HAL_PROGRAM_LINES, &line);
  char text[4096], small[8] = "";
  size_t size;
  add(a, a, 2, r);
  must(hal_lazy_text(lazy, HAL_PROGRAM_LINES, small, sizeof small, &size));
  cr_assert_lt(size, sizeof text);
  must(hal_lazy_text(lazy, HAL_PROGRAM_LINES, text, sizeof text, &size));
  cr_expect_eq(size, strlen(text) + 1);
  cr_expect(strstr(text, "deferred work: 1 commands\nadd.Tensor(float32[10007], float32[10007], 2"), "%s", text);
  cr_expect(strstr(text, ", portable, script:1\n"), "%s", text);
  assert_fails(hal_lazy_text(lazy, 7, text, sizeof text, &size), HAL_INVALID_ARGUMENT, "unknown format 7");
  must(hal_lazy_flush(lazy));
  cr_expect_str_eq(reported.cause, "hal_lazy_flush");
  cr_expect(strstr(reported.text, "add.Tensor(") && strstr(reported.text, "script:1"), "%s", reported.text);
  add(a, a, 2, r);
  must(hal_stream_synchronize(NULL));
  cr_expect_str_eq(reported.cause, "hal_stream_synchronize");
  must(hal_lazy_flush(lazy));
  cr_expect_eq(reported.times, 2, "no work was deferred, so the listener must not be called");
  must(hal_lazy_text(lazy, HAL_PROGRAM_LINES, text, sizeof text, &size));
  cr_expect(strstr(text, "0 commands"));
  must(hal_lazy_end(lazy));
  lazy = begin_reported(HAL_PROGRAM_DOT, &line);
  add(a, a, 2, r);
  must(hal_lazy_end(lazy));
  cr_expect_str_eq(reported.cause, "hal_lazy_end");
  cr_expect(strncmp(reported.text, "digraph program {", 17) == 0 && strstr(reported.text, "add.Tensor, portable\\n"),
            "%s", reported.text);
}

Test(lazy, flushes_by_calls_are_counted_separately_from_those_of_the_program) {
  tensor_t *const a = floats(1, 1), *const r = floats(-1, 0);
  hal_lazy_t *const lazy = begin();
  add(a, a, 1, r);
  must(hal_lazy_flush(lazy));
  cr_expect_eq(info_of(lazy).needed, 0);
  add(a, a, 1, r);
  must(hal_stream_synchronize(NULL));
  must(hal_stream_synchronize(NULL));
  cr_expect_eq(info_of(lazy).needed, 1);
  cr_expect_eq(info_of(lazy).flushes, 2);
  must(hal_lazy_end(lazy));
}

static hal_lazy_metric_t metric_of(uint32_t number) {
  hal_lazy_metric_t metric = {.struct_size = sizeof metric};
  must(hal_lazy_metric(0, number, &metric));
  cr_expect_eq(metric.struct_size, sizeof metric);
  return metric;
}

Test(lazy, measurements_count_sum_and_rank_their_samples) {
  enum { TIMES = 1500 }; /* more than the number of samples for percentiles */
  tensor_t *const a = floats(1, 1), *const r = floats(-1, 0);
  float bytes[100] = {0};
  must(hal_lazy_reset_metrics(0));
  hal_lazy_t *const lazy = begin();
  for (int i = 0; i < TIMES; i++) {
    for (int k = 0; k < (i < 500 ? 1 : 2); k++)
      must(hal_memory_copy(NULL, a->desc.data, 0, bytes, HAL_HOST, 4 * (size_t)(i % 100 + 1)));
    must(hal_lazy_flush(lazy));
  }
  add(a, a, 1, r);
  at(r, 3);
  const hal_lazy_metric_t commands = metric_of(HAL_LAZY_COMMANDS), up = metric_of(HAL_LAZY_UPLOAD_BYTES);
  cr_expect_eq(commands.count, TIMES + 1);
  cr_expect_eq(commands.total, 500 + 2 * (TIMES - 500) + 1);
  cr_expect(commands.least == 1 && commands.most == 2 && commands.percentile[1] == 2, "the first 500 are forgotten");
  cr_expect(up.count == commands.total - 1 && up.least == 4 && up.most == 400);
  cr_expect(up.percentile[0] >= 4 && up.percentile[0] <= 12 && up.percentile[4] >= 180 && up.percentile[4] <= 220);
  cr_expect(up.percentile[8] >= 392 && up.percentile[8] <= 400);
  const hal_lazy_metric_t down = metric_of(HAL_LAZY_DOWNLOAD_BYTES), queueing = metric_of(HAL_LAZY_QUEUE_NS);
  cr_expect(down.count == 1 && down.total == COUNT * sizeof(float));
  cr_expect(queueing.count == commands.count && queueing.total >= queueing.most && queueing.most >= queueing.least);
  cr_expect(metric_of(HAL_LAZY_DOWNLOAD_NS).count <= 1);
  must(hal_lazy_end(lazy));
  must(hal_lazy_reset_metrics(0));
  cr_expect(metric_of(HAL_LAZY_COMMANDS).count == 0 && metric_of(HAL_LAZY_COMMANDS).percentile[8] == 0);
  hal_lazy_metric_t none = {.struct_size = sizeof none};
  assert_fails(hal_lazy_metric(0, HAL_LAZY_METRICS, &none), HAL_INVALID_ARGUMENT, "expected a measurement from 0 to 7");
  cr_expect_eq(hal_lazy_metric(1000, 0, &none), HAL_OUT_OF_RANGE);
  cr_expect_eq(hal_lazy_reset_metrics(1000), HAL_OUT_OF_RANGE);
}

Test(lazy, deferred_operators_are_counted_by_name) {
  uint32_t op;
  uint64_t before, between, after;
  must(hal_op_id("add.Tensor", &op));
  tensor_t *const a = floats(1, 1), *const r = floats(0, 0);
  add(a, a, 1, r);
  must(hal_lazy_op_count(op, &before));
  hal_lazy_t *const lazy = begin();
  add(a, a, 1, r);
  unary("exp", r, r);
  add(r, a, 1, r);
  must(hal_lazy_op_count(op, &between));
  cr_expect_eq(between - before, 2, "when they are recorded");
  must(hal_lazy_end(lazy));
  add(a, a, 1, r);
  must(hal_lazy_op_count(op, &after));
  cr_expect_eq(after, between, "neither queued operators nor operators that are not deferred are counted");
  cr_expect_eq(at(r, 0), 2);
  assert_fails(hal_lazy_op_count(UINT32_MAX, &after), HAL_OUT_OF_RANGE,
               "operator number 4294967295; this process has ");
}

Test(lazy, results_that_are_held_are_counted_also_of_work_that_comes_again) {
  tensor_t *const a = floats(1, 1), *const kept = floats(0, 0), *const r = floats(0, 0);
  hal_lazy_t *const lazy = begin();
  for (uint64_t i = 1; i <= 5; i++) {
    hal_block_t *block;
    tensor_t *const t = taken(&block);
    unary("exp", a, t);
    add(t, a, 1, kept);
    add(kept, a, 1, kept);
    unary("neg", kept, r);
    hal_memory_release(block);
    must(hal_lazy_flush(lazy));
    cr_expect_eq(info_of(lazy).held, 2 * i, "kept and r, %d", (int)info_of(lazy).held);
  }
  must(hal_lazy_end(lazy));
  cr_expect_float_eq(at(r, 0), -4.7182817F, 1e-5);
}
