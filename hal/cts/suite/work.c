/* work.c: work that really runs on the device for long: a kernel that computes until a counter ends. Gated host
 * functions do not show a driver that forgets its device, since such a driver still waits for them.
 *
 * No verdict depends on a clock: a case judges what memory has when a call claims that the work is done. If the device
 * really was done by then, the case tries again with a longer kernel. */
#include <stdio.h>

#include "hal/status.h"
#include "kernel.h"

enum { COUNT = 64, TRIES = 4, FIRST_ROUNDS = 1 << 16, MOST_ROUNDS = 1 << 29, LONG_NS = 40000000, WAIT_NS = 20000000 };

/* A stream with a kernel that runs for LONG_NS or longer, unless the machine is busy. */
typedef struct work_s {
  cts_t *t;
  hal_plugin_kernel_t *kernel;
  hal_plugin_stream_t *stream;
  uint32_t *device, *got; /* COUNT numbers; `got` is page-locked where the plugin has such memory */
  int32_t rounds, seed;
} work_t;

/* The number of item i: that many steps of a linear congruential generator, by its powers. */
static uint32_t expected_of(int32_t rounds, uint32_t start) {
  uint32_t factor = 1, more = 0, a = 1664525, c = 1013904223;
  for (uint32_t left = (uint32_t)rounds; left; left >>= 1) {
    if (left & 1) factor *= a, more = more * a + c;
    c = (a + 1) * c, a *= a;
  }
  return factor * start + more;
}

static void spin(work_t *work, hal_plugin_stream_t *stream, int32_t rounds) {
  cts_t *const t = work->t;
  const int64_t value = (int64_t)(uint32_t)rounds | (int64_t)++work->seed << 32;
  cts_launch_t with;
  cts_launch_make(&with, work->device, &value, sizeof value, COUNT, 1, COUNT);
  CTS_OK(t, kernel_launch, work->kernel, stream, &with.launch);
  memset(&with, 0, sizeof with);
  __asm__ volatile("" : : "r"(&with) : "memory"); /* the stores happen */
}

static int is_right(const work_t *work, const uint32_t *got) {
  for (uint32_t i = 0; i < COUNT; i++)
    if (got[i] != expected_of(work->rounds, (uint32_t)work->seed + i)) return 0;
  return 1;
}

/* Returns whether the device memory has the result now: by a copy that waits for no stream. */
static int is_there(work_t *work) {
  cts_t *const t = work->t;
  memset(work->got, 0, COUNT * sizeof *work->got);
  if (t->info.flags & HAL_DEVICE_HOST_VISIBLE)
    memcpy(work->got, work->device, COUNT * sizeof *work->got);
  else
    cts_get(t, NULL, work->got, work->device, COUNT * sizeof *work->got);
  return is_right(work, work->got);
}

static void check_there(work_t *work, const char *what) {
  cts_t *const t = work->t;
  CTS_CHECK(t, is_there(work), "%s, but the kernel that was queued before had not written its result", what);
}

/* Begins the work of one try. */
static void begin(work_t *work) {
  cts_t *const t = work->t;
  CTS_OK(t, memory_fill, NULL, t->device, work->device, "", 1, COUNT * sizeof *work->device);
  spin(work, work->stream, work->rounds);
}

/* Finds how many rounds take LONG_NS. */
static void calibrate(work_t *work) {
  cts_t *const t = work->t;
  for (work->rounds = FIRST_ROUNDS;; work->rounds *= 2) {
    const int64_t start = cts_now_ns();
    spin(work, work->stream, work->rounds);
    cts_sync(t, work->stream);
    const int64_t took = cts_now_ns() - start;
    CTS_CHECK(t, is_there(work), "a kernel of %d rounds has written wrong numbers", work->rounds);
    if (took >= LONG_NS || work->rounds >= MOST_ROUNDS) break;
  }
}

static work_t work_new(cts_t *t) {
  work_t work = {.t = t, .kernel = cts_kernel_find(t, cts_kernels_load(t), "cts_spin"), .stream = cts_stream(t)};
  work.device = cts_alloc(t, COUNT * sizeof *work.device);
  work.got = (uint32_t *)(void *)cts_pinned(t, COUNT * sizeof *work.got);
  calibrate(&work);
  return work;
}

static void longer(work_t *work) {
  if (work->rounds < MOST_ROUNDS) work->rounds *= 2;
}

void cts_case_work_query(cts_t *t) {
  work_t work = work_new(t);
  int ran = 0;
  for (int try = 0; try < TRIES && !ran; try++, longer(&work)) {
    begin(&work);
    hal_status_t status = cts_stream_query(t, work.stream);
    ran = status == HAL_NOT_READY;
    while (status == HAL_NOT_READY) cts_nap(), status = cts_stream_query(t, work.stream);
    cts_expect_ok(t, HAL_SLOT_stream_query, status);
    check_there(&work, "stream_query returned OK");
  }
  CTS_GENERAL(t, "work on streams runs asynchronously");
  CTS_CHECK(t, ran, "a long kernel was done whenever kernel_launch had returned: the launch waits for it");
}

void cts_case_work_synchronize(cts_t *t) {
  work_t work = work_new(t);
  for (int try = 0; try < TRIES; try++) {
    begin(&work);
    cts_sync(t, work.stream);
    check_there(&work, "stream_synchronize returned");
  }
  CTS_JUDGE(t, device_synchronize, "all work of all streams");
  for (int try = 0; try < TRIES; try++) {
    begin(&work);
    CTS_OK(t, device_synchronize, t->device);
    check_there(&work, "device_synchronize returned");
  }
}

/* The NULL stream is synchronous. */
void cts_case_work_null_stream(cts_t *t) {
  work_t work = work_new(t);
  CTS_GENERAL(t, "the work is finished on return");
  for (int try = 0; try < TRIES; try++) {
    spin(&work, NULL, work.rounds);
    check_there(&work, "kernel_launch on the NULL stream returned");
  }
}

void cts_case_work_timeout(cts_t *t) {
  static const int64_t timeouts[] = {1, 1000000, WAIT_NS, INT64_C(60000000000)};
  work_t work = work_new(t);
  for (size_t i = 0; i < sizeof timeouts / sizeof *timeouts; i++) {
    begin(&work);
    const int64_t start = cts_now_ns();
    const hal_status_t status = cts_stream_synchronize_timeout(t, work.stream, timeouts[i]);
    const int64_t took = cts_now_ns() - start;
    if (status != HAL_NOT_READY) {
      cts_expect_ok(t, HAL_SLOT_stream_synchronize_timeout, status);
      check_there(&work, "stream_synchronize_timeout returned OK");
    }
    CTS_CHECK(t, status != HAL_NOT_READY || took >= timeouts[i],
              "stream_synchronize_timeout returned NOT_READY after %lld ns, the timeout is %lld ns", (long long)took,
              (long long)timeouts[i]);
    cts_sync(t, work.stream);
  }
}

void cts_case_work_destroy(cts_t *t) {
  work_t work = work_new(t);
  for (int try = 0; try < TRIES; try++, work.stream = cts_stream(t)) {
    begin(&work);
    CTS_OK(t, stream_destroy, work.stream);
    CTS_OK(t, device_synchronize, t->device);
    check_there(&work, "stream_destroy and device_synchronize returned");
  }
}

void cts_case_work_event(cts_t *t) {
  work_t work = work_new(t);
  hal_plugin_event_t *const event = cts_event(t, 0);
  for (int try = 0; try < TRIES; try++) {
    begin(&work);
    CTS_OK(t, event_record, event, work.stream);
    hal_status_t status = HAL_NOT_READY;
    while (try % 2 && status == HAL_NOT_READY) cts_nap(), status = cts_event_query(t, event);
    if (try % 2 == 0) status = cts_event_synchronize(t, event);
    cts_expect_ok(t, try % 2 ? HAL_SLOT_event_query : HAL_SLOT_event_synchronize, status);
    check_there(&work, try % 2 ? "event_query returned OK" : "event_synchronize returned");
    cts_sync(t, work.stream);
  }
}

/* Another stream copies the result once it has waited for the event. */
void cts_case_work_wait_event(cts_t *t) {
  work_t work = work_new(t);
  hal_plugin_event_t *const event = cts_event(t, 0);
  hal_plugin_stream_t *const other = cts_stream(t);
  for (int try = 0; try < TRIES; try++) {
    begin(&work);
    CTS_OK(t, event_record, event, work.stream);
    CTS_OK(t, stream_wait_event, other, event);
    cts_get(t, other, work.got, work.device, COUNT * sizeof *work.got);
    cts_sync(t, other);
    CTS_CHECK(t, is_right(&work, work.got),
              "a copy on a stream that waited for an event did not see the result of the kernel before the event");
  }
}

typedef struct seen_s {
  work_t *work;
  atomic_int called;
  int right;
} seen_t;

static void look(void *data) {
  seen_t *const seen = data;
  const uint32_t *const from =
      seen->work->t->info.flags & HAL_DEVICE_HOST_VISIBLE ? seen->work->device : seen->work->got;
  seen->right = is_right(seen->work, from);
  atomic_store(&seen->called, 1);
}

/* The function reads what the kernel wrote, or what a copy after the kernel did. */
void cts_case_work_host_call(cts_t *t) {
  work_t work = work_new(t);
  const int copies = !(t->info.flags & HAL_DEVICE_HOST_VISIBLE);
  for (int try = 0; try < TRIES; try++) {
    seen_t seen = {.work = &work};
    begin(&work);
    if (copies) cts_get(t, work.stream, work.got, work.device, COUNT * sizeof *work.got);
    CTS_OK(t, stream_host_call, work.stream, look, &seen);
    cts_sync(t, work.stream);
    CTS_CHECK(t, atomic_load(&seen.called), "stream_synchronize returned before the host function was called");
    CTS_CHECK(t, seen.right, "a host function was called before the kernel that was queued before it had ended");
  }
}

/* Copies and fills after a kernel on one stream. */
void cts_case_work_order(cts_t *t) {
  work_t work = work_new(t);
  void *const copy = cts_alloc(t, COUNT * sizeof *work.device);
  CTS_GENERAL(t, "but runs in order");
  for (int try = 0; try < TRIES; try++) {
    begin(&work);
    CTS_OK(t, memory_copy, work.stream, copy, t->device, work.device, t->device, COUNT * sizeof *work.device);
    CTS_OK(t, memory_fill, work.stream, t->device, work.device, "\x5a", 1, COUNT * sizeof *work.device);
    cts_get(t, work.stream, work.got, copy, COUNT * sizeof *work.got);
    cts_sync(t, work.stream);
    CTS_CHECK(t, is_right(&work, work.got), "a copy after a kernel on one stream did not see the kernel's result");
    cts_get(t, NULL, work.got, work.device, COUNT * sizeof *work.got);
    for (int i = 0; i < COUNT; i++)
      CTS_CHECK(t, work.got[i] == 0x5a5a5a5a, "a fill after a kernel on one stream was overwritten by the kernel");
  }
}

/* The host cannot have waited less than the device has worked, and the device has worked most of that time. */
void cts_case_work_elapsed(cts_t *t) {
  enum { LEAST_SHARE = 50 };
  work_t work = work_new(t);
  hal_plugin_event_t *const start = cts_event(t, HAL_EVENT_TIMING), *const end = cts_event(t, HAL_EVENT_TIMING);
  int64_t took = 0, device = 0;
  for (int try = 0; try < TRIES && device * LEAST_SHARE <= took; try++) {
    const int64_t before = cts_now_ns();
    CTS_OK(t, event_record, start, work.stream);
    spin(&work, work.stream, work.rounds);
    CTS_OK(t, event_record, end, work.stream);
    cts_sync(t, work.stream);
    took = cts_now_ns() - before;
    CTS_OK(t, event_elapsed, start, end, &device);
    CTS_CHECK(t, device <= took + took / 20 + LONG_NS / 100,
              "event_elapsed returned %lld ns for a kernel that the host waited %lld ns for", (long long)device,
              (long long)took);
  }
  CTS_CHECK(t, device * LEAST_SHARE > took, "event_elapsed returned %lld ns for a kernel that took %lld ns",
            (long long)device, (long long)took);
}

/* More launches than a driver has slots for arguments, descriptors and time stamps, without waiting. */
void cts_case_work_launches(cts_t *t) {
  enum { LAUNCHES = 20000, RUNS = 1 };
  hal_plugin_module_t *const module = cts_kernels_load(t);
  hal_plugin_kernel_t *const ramp = cts_kernel_find(t, module, "cts_ramp");
  hal_plugin_stream_t *const stream = cts_stream(t);
  void *const device = cts_alloc(t, CTS_RAMP * 4);
  for (int32_t run = 0; run < RUNS; run++) {
    for (int32_t i = 0; i < LAUNCHES; i++) cts_ramp_launch(t, ramp, stream, device, run + i, i % 64 + 1);
    cts_ramp_launch(t, ramp, stream, device, run, CTS_RAMP);
    cts_sync(t, stream);
    cts_ramp_check(t, device, run, 1, 0, "the last of many kernels on one stream");
  }
}

/* A kernel that was found once may be launched with blocks of any size. */
void cts_case_work_blocks(cts_t *t) {
  static const uint32_t widths[] = {8, 64, 1, 32, 50, 8};
  hal_plugin_kernel_t *const ramp = cts_kernel_find(t, cts_kernels_load(t), "cts_ramp");
  void *const device = cts_alloc(t, CTS_RAMP * 4);
  char what[96];
  for (int32_t i = 0; i < (int32_t)(sizeof widths / sizeof *widths); i++) {
    cts_launch_t with;
    const uint32_t width = widths[i], blocks = (CTS_RAMP + width - 1) / width;
    cts_launch_make(&with, device, &i, sizeof i, CTS_RAMP, blocks, width);
    CTS_OK(t, kernel_launch, ramp, NULL, &with.launch);
    snprintf(what, sizeof what, "the result of %u blocks of %u threads, after blocks of other sizes", blocks, width);
    cts_ramp_check(t, device, i, 1, 0, what);
  }
}

/* A launch that begins at a later block writes its part only. */
void cts_case_work_first_block(cts_t *t) {
  enum { WIDTH = 50, BLOCKS = CTS_RAMP / WIDTH, FIRST = 33 };
  if (!(t->info.flags & HAL_DEVICE_FIRST_BLOCK)) cts_skip(t, "the device does not have HAL_DEVICE_FIRST_BLOCK");
  hal_plugin_kernel_t *const ramp = cts_kernel_find(t, cts_kernels_load(t), "cts_ramp");
  int32_t *const device = cts_alloc(t, CTS_RAMP * 4), *const got = (int32_t *)(void *)cts_host(t, CTS_RAMP * 4);
  const hal_launch_attribute_t first = {.kind = HAL_LAUNCH_FIRST_BLOCK, .required = 1, .x = FIRST};
  const int32_t value = 9;
  cts_launch_t with;
  CTS_OK(t, memory_fill, NULL, t->device, device, "\x5a", 1, CTS_RAMP * 4);
  cts_launch_make(&with, device, &value, sizeof value, CTS_RAMP, BLOCKS - FIRST, WIDTH);
  with.launch.attributes = &first, with.launch.attribute_count = 1;
  CTS_OK(t, kernel_launch, ramp, NULL, &with.launch);
  cts_get(t, NULL, got, device, CTS_RAMP * 4);
  for (int32_t i = 0; i < CTS_RAMP; i++) {
    const int32_t expected = i < FIRST * WIDTH ? 0x5a5a5a5a : value + 3 * i;
    CTS_CHECK(t, got[i] == expected, "element %d after a launch from block %d on is %d instead of %d", i, FIRST, got[i],
              expected);
  }
}

/* A launch beyond the limits that the device reports is an error of the caller. */
void cts_case_work_limits(cts_t *t) {
  if (!t->info.max_grid[0] || t->info.max_grid[0] == UINT32_MAX) cts_skip(t, "the device reports no max_grid");
  hal_plugin_kernel_t *const ramp = cts_kernel_find(t, cts_kernels_load(t), "cts_ramp");
  const int32_t value = 1;
  cts_launch_t with;
  cts_launch_make(&with, cts_alloc(t, CTS_RAMP * 4), &value, sizeof value, CTS_RAMP, t->info.max_grid[0] + 1, 1);
  CTS_STATUS(t, HAL_INVALID_ARGUMENT, kernel_launch, ramp, NULL, &with.launch);
}

/* A kernel with another number of arguments would read what is not there. */
void cts_case_work_arguments(cts_t *t) {
  hal_plugin_kernel_t *const ramp = cts_kernel_find(t, cts_kernels_load(t), "cts_ramp");
  const int32_t value = 1;
  cts_launch_t with;
  cts_launch_make(&with, cts_alloc(t, CTS_RAMP * 4), &value, sizeof value, CTS_RAMP, CTS_RAMP / 50, 50);
  with.launch.arg_count = 2;
  CTS_STATUS(t, HAL_INVALID_ARGUMENT, kernel_launch, ramp, NULL, &with.launch);
}
