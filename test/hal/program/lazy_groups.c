/* lazy_groups.c: streams that defer only groups of operators which can run as one kernel; on the device that
 * HAL_TEST_PLUGIN names. */
#define _POSIX_C_SOURCE 200809L
#include <time.h>

#include "hal/event.h"
#include "lazy_testing.h"

TestSuite(lazy_groups, .init = open_device, .timeout = 120);

static uint64_t pending(hal_lazy_t *lazy) { return info_of(lazy).pending; }

/* Returns the recording's counters after its end. */
static hal_lazy_info_t end(hal_lazy_t *lazy) {
  must(hal_lazy_flush(lazy));
  const hal_lazy_info_t info = info_of(lazy);
  must(hal_lazy_end(lazy));
  return info;
}

Test(lazy_groups, large_operators_run_as_one_kernel) {
  tensor_t *const a = floats(1, 1), *const t = floats(0, 0), *const r = floats(0, 0);
  if (!fuses()) return;
  hal_lazy_t *const lazy = begin_groups(COUNT);
  add(a, a, 1, t);
  add(t, a, -0.5, r);
  cr_expect_eq(pending(lazy), 2);
  const hal_lazy_info_t info = end(lazy);
  cr_expect(info.groups == 1 && info.fused == 2 && info.recorded == 2, "%d groups of %d", (int)info.groups,
            (int)info.fused);
  cr_expect_eq(at(r, 9), 15);
}

Test(lazy_groups, a_small_operator_begins_no_group_and_joins_one) {
  tensor_t *const a = floats(1, 0), *const r = floats(0, 0);
  int64_t one = 1;
  tensor_t *const number = tensor_new(HAL_FLOAT32, 1, &one, CONTIGUOUS);
  tensor_upload(number);
  hal_lazy_t *const lazy = begin_groups(COUNT);
  unary("neg", number, number);
  cr_expect_eq(info_of(lazy).recorded, 0);
  add(a, a, 1, r);
  unary("neg", number, number);
  cr_expect_eq(info_of(lazy).recorded, 2);
  must(hal_lazy_end(lazy));
  cr_expect_eq(at(r, 7), 2);
}

/* Work that is queued at once, after the group. */
typedef struct after_s {
  const char *what;
  float want; /* of the result */
} after_t;
static const after_t afters[] = {{"a product", 100 * 4}, {"a copy", 2},
                                 {"a fill", 7},          {"a copy to the host", 2},
                                 {"an event", 2},        {"a download of the group's result", 2},
                                 {"a copy of rows", 2},  {"several copies", 2}};

static void put_after(size_t kind, const tensor_t *t, const tensor_t *r) {
  const size_t bytes = COUNT * sizeof(float);
  const float seven = 7;
  static float host[COUNT];
  hal_event_t *event;
  switch (kind) {
    case 0: {
      static const int64_t sizes[] = {100, 100}, strides[] = {100, 1};
      hal_tensor_t left = t->desc, right = r->desc;
      left.ndim = right.ndim = 2;
      left.sizes = right.sizes = sizes;
      left.strides = right.strides = strides;
      const hal_value_t args[] = {{.tag = HAL_VALUE_TENSOR, .u.t = &left}, {.tag = HAL_VALUE_TENSOR, .u.t = &left}};
      must(queue("mm", args, 2, &right));
      break;
    }
    case 2:
      must(hal_memory_fill(NULL, 0, r->desc.data, &seven, sizeof seven, bytes));
      break;
    case 3:
      must(hal_memory_copy(NULL, host, HAL_HOST, t->desc.data, 0, bytes));
      must(hal_stream_synchronize(NULL));
      cr_expect_eq(host[COUNT - 1], 2);
      must(hal_memory_copy(NULL, r->desc.data, 0, host, HAL_HOST, bytes));
      break;
    case 4:
      must(hal_event_create(0, 0, &event));
      must(hal_event_record(event, NULL));
      must(hal_event_synchronize(event));
      hal_event_destroy(event);
      must(hal_memory_copy(NULL, r->desc.data, 0, t->desc.data, 0, bytes));
      break;
    case 6: {
      const hal_copy_2d_t rows = {.struct_size = sizeof rows,
                                  .dst = r->desc.data,
                                  .src = t->desc.data,
                                  .dst_pitch = 400,
                                  .src_pitch = 400,
                                  .width = 400,
                                  .height = 100};
      must(hal_memory_copy_2d(NULL, &rows));
      break;
    }
    case 7: {
      const hal_copy_t copies[] = {{.dst = r->desc.data, .src = t->desc.data, .size = bytes / 2},
                                   {.dst = (char *)r->desc.data + bytes / 2,
                                    .src = (char *)t->desc.data + bytes / 2,
                                    .size = bytes - bytes / 2}};
      must(hal_memory_copy_batch(NULL, copies, 2, sizeof *copies));
      break;
    }
    default:
      must(hal_memory_copy(NULL, r->desc.data, 0, t->desc.data, 0, bytes));
      break;
  }
}

Test(lazy_groups, other_work_runs_at_once_after_the_group) {
  for (size_t i = 0; i < sizeof afters / sizeof *afters; i++) {
    tensor_t *const a = floats(1, 0), *const t = floats(0, 0), *const r = floats(0, 0);
    hal_lazy_t *const lazy = begin_groups(COUNT);
    add(a, a, 1, t);
    cr_expect_eq(pending(lazy), 1, "%s", afters[i].what);
    put_after(i, t, r);
    cr_expect_eq(pending(lazy), 0, "%s", afters[i].what);
    must(hal_lazy_end(lazy));
    cr_expect_eq(at(r, 9), afters[i].want, "%s: %g", afters[i].what, (double)at(r, 9));
  }
}

Test(lazy_groups, a_group_ends_after_64_operators) {
  tensor_t *const a = floats(1, 0), *const r = floats(0, 0);
  hal_lazy_t *const lazy = begin_groups(COUNT);
  for (int i = 0; i < 100; i++) add(r, a, 1, r);
  cr_expect_eq(info_of(lazy).flushes, 1);
  cr_expect_eq(pending(lazy), 36);
  cr_expect_eq(end(lazy).limits, 0, "without a warning");
  cr_expect_eq(at(r, 3), 100);
}

Test(lazy_groups, the_group_of_a_program_that_pauses_is_queued) {
  tensor_t *const a = floats(1, 0), *const r = floats(0, 0);
  const struct timespec moment = {.tv_nsec = 1000000};
  hal_device_info_t device = {.struct_size = sizeof device};
  must(hal_device_info(0, &device));
  hal_lazy_t *const lazy = begin_groups(COUNT);
  for (int turn = 0; turn < 3; turn++) {
    add(a, a, 1, r);
    cr_expect_eq(pending(lazy), 1);
    for (int i = 0; i < 5000 && device.flags & HAL_DEVICE_ASYNC && pending(lazy); i++) nanosleep(&moment, NULL);
    cr_expect_eq(pending(lazy), device.flags & HAL_DEVICE_ASYNC ? 0 : 1);
    must(hal_lazy_flush(lazy));
    for (int i = 0; turn == 1 && i < 100; i++) nanosleep(&moment, NULL); /* the thread sleeps, and is woken again */
  }
  must(hal_lazy_end(lazy));
  cr_expect_eq(at(r, 3), 2);
}

Test(lazy_groups, a_stream_defers_groups_then_all_work_then_groups) {
  tensor_t *const a = floats(1, 0), *const r = floats(0, 0);
  const float seven = 7;
  for (int turn = 0; turn < 4; turn++) {
    hal_lazy_t *const lazy = turn % 2 ? begin() : begin_groups(COUNT), *second;
    cr_expect_eq(hal_lazy_of_stream(NULL), lazy);
    cr_expect_eq(hal_lazy_begin(NULL, NULL, &second), HAL_FAILED_PRECONDITION);
    must(hal_memory_fill(NULL, 0, r->desc.data, &seven, sizeof seven, COUNT * sizeof(float)));
    cr_expect_eq(pending(lazy), turn % 2);
    add(r, a, 1, r);
    must(hal_lazy_end(lazy));
    cr_expect_eq(at(r, 3), 8);
  }
}

Test(lazy_groups, an_invalid_call_is_an_error_at_once) {
  tensor_t *const a = floats(1, 0), *const r = floats(0, 0);
  hal_lazy_t *const lazy = begin_groups(COUNT);
  add(a, a, 1, r);
  const hal_value_t args[] = {of_tensor(a)};
  cr_expect_neq(queue("add.Tensor", args, 1, &r->desc), HAL_OK, "too few arguments");
  must(hal_lazy_end(lazy));
  cr_expect_eq(at(r, 3), 2);
}

static void wait_a_moment(void *data) {
  const struct timespec moment = {.tv_nsec = 50000000};
  (void)data;
  nanosleep(&moment, NULL);
}

Test(lazy_groups, with_the_flag_a_group_begins_only_while_the_device_is_busy) {
  const hal_lazy_desc_t desc = {.struct_size = sizeof desc, .flags = HAL_LAZY_GROUPS | HAL_LAZY_BUSY, .least = COUNT};
  tensor_t *const a = floats(1, 0), *const r = floats(0, 0);
  hal_device_info_t device = {.struct_size = sizeof device};
  hal_lazy_t *lazy;
  must(hal_device_info(0, &device));
  must(hal_lazy_begin(NULL, &desc, &lazy));
  must(hal_stream_synchronize(NULL));
  add(a, a, 1, r);
  cr_expect_eq(pending(lazy), device.flags & HAL_DEVICE_ASYNC ? 0 : 1, "idle");
  must(hal_stream_host_call(NULL, wait_a_moment, NULL));
  add(r, a, 1, r);
  cr_expect_eq(pending(lazy), 1, "busy");
  must(hal_lazy_end(lazy));
  cr_expect_eq(at(r, 3), 3);
}
