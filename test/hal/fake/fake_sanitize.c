/* fake_sanitize.c: HAL_FAKE_SANITIZE: programs in C with one error each. Each runs in a process of its own, and the
 * report must have its class, the kernel, the place and the functions of the program that allocated, released and
 * submitted. Programs without an error have no report. */
#define _GNU_SOURCE
#include "fake_sanitize_testing.h"

/* ---- programs: memory -------------------------------------------------------------------------------------------- */

static void upload_past_the_end(void) {
  static float host[COUNT + 1];
  ok(hal_memory_copy(NULL, floats(make_block(COUNT * 4)), 0, host, HAL_HOST, sizeof host));
  synchronize();
}

static void download_past_the_end(void) {
  static float host[COUNT + 1];
  ok(hal_memory_copy(NULL, host, HAL_HOST, floats(make_zeros(COUNT)), 0, sizeof host));
  synchronize();
}

static void fill_past_the_end(void) {
  ok(hal_memory_fill(NULL, 0, floats(make_block(COUNT * 4)) + 1, "", 1, COUNT * 4));
  synchronize();
}

static void copy_from_before_the_start(void) {
  ok(hal_memory_copy(NULL, floats(make_zeros(COUNT)), 0, floats(make_zeros(COUNT)) - 4, 0, COUNT * 4));
  synchronize();
}

static void kernel_writes_one_more(void) {
  launch_shift(floats(make_zeros(COUNT)), floats(make_zeros(COUNT + 1)), COUNT + 1, 0);
  synchronize();
}

static void kernel_reads_one_before(void) {
  launch_shift(floats(make_zeros(COUNT)), floats(make_zeros(COUNT)), COUNT, -1);
  synchronize();
}

static void kernel_reads_far_behind(void) {
  hal_block_t *const from = make_zeros(COUNT), *const to = make_zeros(COUNT);
  launch_shift(floats(to), floats(from), 1, 150);
  synchronize();
}

static void operator_with_a_wrong_size(void) {
  run_exp(floats(make_zeros(COUNT)), floats(make_zeros(COUNT / 2)), COUNT);
  synchronize();
}

static void kernel_uses_released_memory(void) {
  hal_block_t *const from = make_zeros(COUNT), *const to = make_zeros(COUNT);
  const float *const stale = floats(from);
  drop_block(from);
  launch_shift(floats(to), stale, COUNT, 0);
  synchronize();
}

static void operator_writes_released_memory(void) {
  hal_block_t *const from = make_zeros(COUNT), *const to = make_zeros(COUNT);
  float *const stale = floats(to);
  drop_block(to);
  run_exp(stale, floats(from), COUNT);
  synchronize();
}

static void download_of_released_memory(void) {
  hal_block_t *const block = make_zeros(COUNT);
  float host[COUNT], *const stale = floats(block);
  drop_block(block);
  synchronize();
  ok(hal_memory_copy(NULL, host, HAL_HOST, stale, 0, sizeof host));
  synchronize();
}

static void write_behind(void *data) { ((float *)data)[COUNT] = 1; }

static void host_function_writes_past_the_end(void) {
  hal_block_t *const block = make_zeros(COUNT);
  ok(hal_stream_host_call(NULL, write_behind, floats(block)));
  synchronize();
  drop_block(block);
  synchronize();
}

/* ---- programs: init ---------------------------------------------------------------------------------------------- */

static void download_of_new_memory(void) {
  float host[COUNT];
  ok(hal_memory_copy(NULL, host, HAL_HOST, floats(make_block(COUNT * 4)), 0, sizeof host));
  synchronize();
}

static void kernel_reads_half_filled(void) {
  hal_block_t *const block = make_block(COUNT * 4);
  ok(hal_memory_fill(NULL, 0, floats(block), "", 1, 60 * 4));
  launch_shift(floats(make_zeros(COUNT)), floats(block), COUNT, 0);
  synchronize();
}

static void operator_reads_new_memory(void) {
  run_exp(floats(make_block(COUNT * 4)), floats(make_block(COUNT * 4)), COUNT);
  synchronize();
}

static void new_memory_is_copied_and_then_read(void) {
  hal_block_t *const from = make_block(COUNT * 4), *const to = make_zeros(COUNT);
  ok(hal_memory_copy(NULL, floats(to) + 50, 0, floats(from), 0, 4));
  run_exp(floats(make_block(COUNT * 4)), floats(to), COUNT);
  synchronize();
}

/* ---- programs: leak ---------------------------------------------------------------------------------------------- */

static void a_block_is_not_released(void) {
  hal_block_t *const kept = make_zeros(COUNT);
  drop_block(make_zeros(COUNT));
  (void)kept;
}

static void a_block_is_not_released_before_the_end(void) {
  make_block(12);
  drop_block(make_zeros(COUNT));
  hal_registry_close();
}

/* ---- programs without an error ----------------------------------------------------------------------------------- */

static void correct(void) {
  float host[COUNT] = {0};
  for (int i = 0; i < 50; i++) {
    hal_block_t *const from = make_block(COUNT * 4), *const to = make_block(COUNT * 4), *const last = make_block(3);
    ok(hal_memory_copy(NULL, floats(from), 0, host, HAL_HOST, sizeof host));
    run_exp(floats(to), floats(from), COUNT);
    launch_shift(floats(from), floats(to), COUNT - 1, 1);
    ok(hal_memory_fill(NULL, 0, hal_memory_block_address(last), "abc", 1, 3));
    ok(hal_memory_copy(NULL, host, HAL_HOST, floats(to), 0, sizeof host));
    drop_block(from); /* queued work still uses them */
    drop_block(last);
    drop_block(to);
  }
  synchronize();
}

/* ---- running them ------------------------------------------------------------------------------------------------ */

static const program_t programs[] = {
    {PROGRAM(upload_past_the_end),
     "memory",
     {"memory: access after the end", "memory_copy: write", "0 bytes after the end of the block", ": 400 bytes at",
      "upload_past_the_end", "make_block"}},
    {PROGRAM(download_past_the_end),
     "memory",
     {"memory: access after the end", "memory_copy: read", "0 bytes after the end", "download_past_the_end",
      "make_zeros"}},
    {PROGRAM(fill_past_the_end),
     "memory",
     {"memory: access after the end", "memory_fill: write of 4 bytes", "0 bytes after the end", "fill_past_the_end"}},
    {PROGRAM(copy_from_before_the_start),
     "memory",
     {"memory: access before an allocation", "memory_copy: read", "16 bytes before the block",
      "copy_from_before_the_start"}},
    {PROGRAM(kernel_writes_one_more),
     "memory",
     {"memory: access after the end", "shift: write of 4 bytes", "0 bytes after the end of the block",
      "element 100 of argument 0 (4 bytes each)", "launch_shift", "make_zeros"}},
    {PROGRAM(kernel_reads_one_before),
     "memory",
     {"memory: access before an allocation", "shift: read of 4 bytes", "4 bytes before the block",
      "element -1 of argument 1", "launch_shift"}},
    {PROGRAM(kernel_reads_far_behind),
     "memory",
     {"memory: access after the end", "shift: read of 4 bytes", "200 bytes after the end", "element 150 of argument 1",
      "launch_shift"}},
    {PROGRAM(operator_with_a_wrong_size),
     "memory",
     {"memory: access after the end", "exp_f32_contig: read of 4 bytes; operator exp", "element 50 of argument 1",
      "run_exp", ": 200 bytes at"}},
    {PROGRAM(kernel_uses_released_memory),
     "memory",
     {"memory: access to released memory", "shift: read", "element 0 of argument 1", "released by", "drop_block",
      "launch_shift"}},
    {PROGRAM(operator_writes_released_memory),
     "memory",
     {"memory: access to released memory", "exp_f32_contig: write", "element 0 of argument 0", "drop_block",
      "run_exp"}},
    {PROGRAM(download_of_released_memory),
     "memory",
     {"memory: access to released memory", "memory_copy: read", "drop_block", "download_of_released_memory"}},
    {PROGRAM(host_function_writes_past_the_end),
     "memory",
     {"memory: memory after the end of an allocation was overwritten", "not instrumented", "make_zeros", "drop_block"}},
    {PROGRAM(download_of_new_memory),
     "init",
     {"init: read of memory that was never written", "memory_copy: read of 400 bytes", "element 0",
      "download_of_new_memory", "make_block"}},
    {PROGRAM(kernel_reads_half_filled),
     "init",
     {"init: read of memory that was never written", "shift: read of 4 bytes", "element 60 of argument 1",
      "launch_shift", "make_block"}},
    {PROGRAM(operator_reads_new_memory),
     "init",
     {"init: read of memory that was never written", "exp_f32_contig: read", "operator exp", "element 0 of argument 1",
      "run_exp"}},
    {PROGRAM(new_memory_is_copied_and_then_read),
     "init",
     {"init: read of memory that was never written", "exp_f32_contig: read", "element 50 of argument 1", "run_exp"}},
    {PROGRAM(a_block_is_not_released),
     "leak",
     {"leak: an allocation was not released", ": 400 bytes at", "make_zeros", "a_block_is_not_released"}},
    {PROGRAM(a_block_is_not_released_before_the_end),
     "leak",
     {"leak: an allocation was not released", ": 12 bytes at", "make_block", "a_block_is_not_released_before_the_end"}},
};

static void run_all(int async) { run_programs(programs, sizeof programs / sizeof *programs, async); }

Test(fake_sanitize, each_error_of_a_program_is_reported_once_with_its_place_and_stacks, .timeout = 120) { run_all(1); }
Test(fake_sanitize, and_without_asynchronous_streams, .timeout = 120) { run_all(0); }

Test(fake_sanitize, a_correct_program_has_no_report, .timeout = 60) {
  if (TEST_SANITIZED) return;
  for (int async = 0; async < 2; async++) {
    cr_expect_eq(run_program(correct, "memory,init,leak", async), 0, "%s", report);
    cr_expect_null(strstr(report, "fake sanitizer"), "%s", report);
  }
}

/* ---- settings ---------------------------------------------------------------------------------------------------- */

static void raise_an_error(void) {
  setenv("HAL_FAKE_SANITIZE_RAISE", "1", 1);
  kernel_reads_half_filled();
}

Test(fake_sanitize, a_finding_is_an_error_of_the_next_synchronization_on_request, .timeout = 60) {
  if (TEST_SANITIZED) return;
  for (int async = 0; async < 2; async++) {
    cr_expect_eq(run_program(raise_an_error, "init", async), 3, "%s", report);
    cr_expect_not_null(strstr(report, "the sanitizer found an error in kernel 'shift'"), "%s", report);
  }
}

static void nothing(void) { synchronize(); }

Test(fake_sanitize, an_invalid_value_is_an_error_that_names_the_classes, .timeout = 60) {
  if (TEST_SANITIZED) return;
  cr_expect_eq(run_program(nothing, "memory,speed", 1), 3, "%s", report);
  cr_expect_not_null(strstr(report, "HAL_FAKE_SANITIZE is 'memory,speed'"), "%s", report);
  setenv("HAL_FAKE_PROTECT", "1", 1);
  cr_expect_eq(run_program(nothing, "memory", 1), 3, "%s", report);
  cr_expect_not_null(strstr(report, "exclude each other"), "%s", report);
}
