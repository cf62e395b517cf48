/* pjrt_awaited.c: which programs of the plugin pjrt run in the calling thread, because the caller waits for them. */
#include <criterion/criterion.h>

#include "../../../plugins/pjrt/program/awaited.c"

static int64_t now;

/* Runs `programs` programs, and synchronizes `later` ns after the last one. Returns the number of the last program that
 * was expected to be awaited; 0 = none. */
static uint32_t step(pjrt_awaited_t *awaited, uint32_t programs, int64_t later) {
  uint32_t expected = 0;
  for (uint32_t i = 1; i <= programs; i++) {
    if (pjrt_awaited_begin(awaited)) expected = i;
    now += 300000;
    pjrt_awaited_end(awaited, now);
  }
  now += later;
  pjrt_awaited_note(awaited, now);
  return expected;
}

Test(pjrt_awaited, a_program_after_equal_synchronized_steps_is_awaited) {
  pjrt_awaited_t awaited = {0};
  for (int i = 0; i < 5; i++) cr_assert_eq(step(&awaited, 1, 10000), 0);
  for (int i = 0; i < 5; i++) cr_assert_eq(step(&awaited, 1, 10000), 1);
}

Test(pjrt_awaited, only_the_last_program_of_a_step_is_awaited) {
  pjrt_awaited_t awaited = {0};
  for (int i = 0; i < 5; i++) cr_assert_eq(step(&awaited, 3, 10000), 0);
  cr_assert_eq(step(&awaited, 3, 10000), 3);
  cr_assert_eq(step(&awaited, 4, 10000), 3); /* wrong: a fourth one followed */
  for (int i = 0; i < 4; i++) cr_assert_eq(step(&awaited, 4, 10000), 0);
  cr_assert_eq(step(&awaited, 4, 10000), 4);
}

Test(pjrt_awaited, a_caller_that_does_other_work_first_does_not_wait_for_the_program) {
  pjrt_awaited_t awaited = {0};
  for (int i = 0; i < 20; i++) cr_assert_eq(step(&awaited, 1, 120000), 0);
  for (int i = 0; i < 5; i++) step(&awaited, 1, 10000);
  cr_assert_eq(step(&awaited, 1, 120000), 1);
  cr_assert_eq(step(&awaited, 1, 120000), 0);
}

Test(pjrt_awaited, synchronizations_without_a_program_change_nothing) {
  pjrt_awaited_t awaited = {0};
  for (int i = 0; i < 10; i++) {
    step(&awaited, 1, 10000);
    step(&awaited, 0, 10000);
  }
  cr_assert_eq(step(&awaited, 1, 10000), 1);
}
