/* fake_race.c: HAL_FAKE_SANITIZE=race: programs in C whose streams access the same memory without an order, and the
 * reports with both accesses. The same programs with the order that they lack have no report. */
#define _GNU_SOURCE
#include <stdatomic.h>

#include "fake_sanitize_testing.h"

static hal_stream_t *streams[3]; /* the default one, and two others */

static void begin(void) {
  ok(hal_stream_default(0, &streams[0]));
  for (int i = 1; i < 3; i++) ok(hal_stream_acquire(0, 0, &streams[i]));
  ok(hal_stream_set_name(streams[0], "main"));
  ok(hal_stream_set_name(streams[1], "side"));
}

/* Later work of this thread is on a stream. */
static void use(int stream) { ok(hal_stream_set_current(streams[stream], NULL)); }

static hal_event_t *new_event(void) {
  hal_event_t *event = NULL;
  ok(hal_event_create(0, 0, &event));
  return event;
}

static hal_event_t *record(int stream) {
  hal_event_t *const event = new_event();
  ok(hal_event_record(event, streams[stream]));
  return event;
}

static void wait_for(int stream, int other) { ok(hal_stream_wait_event(streams[stream], record(other))); }

PART static void fill(float *to, size_t count) {
  ok(hal_memory_fill(NULL, 0, to, "", 1, count * sizeof(float)));
  __asm__ volatile("");
}

PART static void read_it(float *from) {
  run_exp(floats(make_block(COUNT * 4)), from, COUNT);
  __asm__ volatile("");
}

PART static void write_it(float *to) {
  launch_shift(to, floats(make_zeros(COUNT)), COUNT, 0);
  __asm__ volatile("");
}

static float *shared; /* zeros that all streams know */

static void make_shared(void) {
  begin();
  use(0);
  shared = floats(make_zeros(COUNT));
  ok(hal_device_synchronize(0));
}

/* ---- programs ---------------------------------------------------------------------------------------------------- */

static int is_ordered; /* 1: the program has the order that it lacks otherwise */

static void read_without_a_wait(void) {
  make_shared();
  write_it(shared);
  if (is_ordered) wait_for(1, 0);
  use(1);
  read_it(shared);
}

static void write_after_a_read_of_another_stream(void) {
  make_shared();
  write_it(shared);
  wait_for(1, 0);
  use(1);
  read_it(shared);
  if (is_ordered) wait_for(0, 1);
  use(0);
  fill(shared, COUNT); /* the order is only that of the other direction */
}

static void two_writes(void) {
  make_shared();
  fill(shared, COUNT);
  if (is_ordered) wait_for(1, 0);
  use(1);
  fill(shared, COUNT);
}

static void the_event_is_recorded_before_the_write(void) {
  make_shared();
  hal_event_t *const event = record(0);
  write_it(shared);
  if (is_ordered) ok(hal_event_record(event, streams[0]));
  ok(hal_stream_wait_event(streams[1], event));
  use(1);
  read_it(shared);
}

static void the_event_of_another_stream(void) {
  make_shared();
  write_it(shared);
  hal_event_t *const wrong = record(2), *const right = record(0);
  ok(hal_stream_wait_event(streams[1], is_ordered ? right : wrong));
  use(1);
  read_it(shared);
}

static void the_host_waits_for_another_stream(void) {
  make_shared();
  write_it(shared);
  ok(hal_stream_synchronize(streams[is_ordered ? 0 : 2]));
  use(1);
  read_it(shared);
}

static void a_block_is_released_without_its_other_stream(void) {
  make_shared();
  hal_block_t *const block = make_zeros(COUNT);
  wait_for(1, 0);
  use(1);
  read_it(floats(block));
  if (is_ordered) ok(hal_memory_record_stream(block, streams[1]));
  use(0);
  drop_block(block);
}

static void an_upload_is_read_too_early(void) {
  static float host[COUNT];
  make_shared();
  ok(hal_memory_copy(streams[1], shared, 0, host, HAL_HOST, sizeof host));
  if (is_ordered) wait_for(0, 1);
  read_it(shared);
}

static void a_download_of_memory_that_is_written(void) {
  static float host[COUNT];
  make_shared();
  write_it(shared);
  if (is_ordered) wait_for(1, 0);
  use(1);
  ok(hal_memory_copy(streams[1], host, HAL_HOST, shared, 0, sizeof host));
  ok(hal_stream_synchronize(streams[1]));
}

static void the_end_of_one_range_is_the_beginning_of_another(void) {
  make_shared();
  fill(shared, 60);
  use(1);
  fill(shared + (is_ordered ? 60 : 50), 40);
}

static void one_of_three_readers_is_forgotten(void) {
  make_shared();
  read_it(shared);
  for (int i = 1; i < 3; i++) {
    use(i);
    read_it(shared);
  }
  wait_for(0, 1);
  if (is_ordered) wait_for(0, 2);
  use(0);
  write_it(shared);
}

static atomic_int is_called;
static void note_call(void *data) {
  (void)data;
  is_called = 1;
}

static void the_function_is_queued_before_the_write(void) {
  make_shared();
  if (!is_ordered) ok(hal_stream_host_call(streams[0], note_call, NULL));
  write_it(shared);
  if (is_ordered) ok(hal_stream_host_call(streams[0], note_call, NULL));
  while (!is_called) usleep(1000);
  use(1);
  read_it(shared);
}

static void a_program_runs_on_another_stream_than_its_input(void) {
  hal_program_t *program = NULL;
  make_shared();
  hal_block_t *const out = make_block(COUNT * 4);
  ok(hal_program_begin(streams[0], NULL, &program));
  run_exp(floats(out), shared, COUNT);
  ok(hal_program_end(program));
  write_it(shared);
  if (is_ordered) wait_for(1, 0);
  ok(hal_program_run(program, streams[1]));
}

static void deferred_work_is_read_by_another_stream(void) {
  hal_lazy_t *lazy = NULL;
  make_shared();
  ok(hal_lazy_begin(streams[0], NULL, &lazy));
  write_it(shared);
  ok(hal_lazy_flush(lazy));
  if (is_ordered) wait_for(1, 0);
  use(1);
  read_it(shared);
  use(0);
  ok(hal_lazy_end(lazy));
}

#define TWO_STREAMS "race: two streams access the same memory without an order"
static const program_t programs[] = {
    {PROGRAM(read_without_a_wait),
     "race",
     {TWO_STREAMS, "shift: write; stream 'main'", "exp_f32_contig: read; operator exp; stream 'side'", "launch_shift",
      "run_exp", "offset 0 in the block; element 0 of argument", ": 400 bytes at", "make_shared"}},
    {PROGRAM(write_after_a_read_of_another_stream),
     "race",
     {TWO_STREAMS, "memory_fill: write; stream 'main'", "exp_f32_contig: read; operator exp; stream 'side'", "fill",
      "run_exp", "offset 0 in the block"}},
    {PROGRAM(two_writes),
     "race",
     {TWO_STREAMS, "memory_fill: write; stream 'main'", "memory_fill: write; stream 'side'", "two_writes"}},
    {PROGRAM(the_event_is_recorded_before_the_write),
     "race",
     {TWO_STREAMS, "shift: write; stream 'main'", "exp_f32_contig: read", "launch_shift", "run_exp",
      "the_event_is_recorded_before_the_write"}},
    {PROGRAM(the_event_of_another_stream), "race", {TWO_STREAMS, "shift: write", "exp_f32_contig: read", "read_it"}},
    {PROGRAM(the_host_waits_for_another_stream),
     "race",
     {TWO_STREAMS, "shift: write", "exp_f32_contig: read", "write_it"}},
    {PROGRAM(a_block_is_released_without_its_other_stream),
     "race",
     {"race: memory was released while another stream may use it", "the release of the block: write; stream 'main'",
      "exp_f32_contig: read; operator exp; stream 'side'", "drop_block", "run_exp", "make_zeros", "released by"}},
    {PROGRAM(an_upload_is_read_too_early),
     "race",
     {TWO_STREAMS, "memory_copy: write; stream 'side'", "exp_f32_contig: read", "an_upload_is_read_too_early"}},
    {PROGRAM(a_download_of_memory_that_is_written),
     "race",
     {TWO_STREAMS, "memory_copy: read; stream 'side'", "shift: write", "a_download_of_memory_that_is_written"}},
    {PROGRAM(the_end_of_one_range_is_the_beginning_of_another),
     "race",
     {TWO_STREAMS, "memory_fill: write; stream 'side'", "memory_fill: write; stream 'main'",
      "offset 200 in the block"}},
    {PROGRAM(one_of_three_readers_is_forgotten),
     "race",
     {TWO_STREAMS, "shift: write; stream 'main'", "exp_f32_contig: read; operator exp; stream number", "run_exp"}},
    {PROGRAM(the_function_is_queued_before_the_write),
     "race",
     {TWO_STREAMS, "shift: write", "exp_f32_contig: read", "the_function_is_queued_before_the_write"}},
    {PROGRAM(a_program_runs_on_another_stream_than_its_input),
     "race",
     {TWO_STREAMS, "shift: write; stream 'main'", "exp_f32_contig: read; operator exp; stream 'side'",
      "a_program_runs_on_another_stream_than_its_input"}},
    {PROGRAM(deferred_work_is_read_by_another_stream),
     "race",
     {TWO_STREAMS, "write; stream 'main'", "exp_f32_contig: read; operator exp; stream 'side'", "run_exp"}},
};

Test(fake_race, each_pair_of_accesses_is_reported_once_with_both_streams_and_stacks, .timeout = 120) {
  run_programs(programs, sizeof programs / sizeof *programs, 1);
}
Test(fake_race, and_without_asynchronous_streams, .timeout = 120) {
  run_programs(programs, sizeof programs / sizeof *programs, 0);
}

Test(fake_race, the_same_programs_with_the_order_have_no_report, .timeout = 120) {
  if (TEST_SANITIZED) return;
  is_ordered = 1;
  for (size_t i = 0; i < sizeof programs / sizeof *programs; i++)
    for (int async = 0; async < 2; async++) {
      cr_expect_eq(run_program(programs[i].run, "race", async), 0, "%s: %s", programs[i].name, report);
      cr_expect_null(strstr(report, "fake sanitizer"), "%s", report);
    }
}
