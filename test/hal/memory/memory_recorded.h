/* memory_recorded.h: stacks that are numbers, and reading of a history, for the suites of the histories. */
#ifndef TEST_HAL_MEMORY_RECORDED_H_
#define TEST_HAL_MEMORY_RECORDED_H_

#include <criterion/criterion.h>
#include <stdatomic.h>

#include "memory_double.h"

/* ---- stacks of the test: numbers, counted ---- */

static atomic_long captured, live;

static void *capture(void *user_data) {
  cr_expect_eq(user_data, &captured);
  double_stats(0); /* takes the allocator's lock: it is free */
  long *const stack = malloc(sizeof(*stack));
  *stack = ++captured;
  live++;
  return stack;
}

static void release(void *stack, void *user_data) {
  cr_expect_eq(user_data, &captured);
  double_stats(0);
  live--;
  free(stack);
}

DOUBLE_FN hal_memory_history_desc_t recorded(uint32_t stacks, uint64_t max_events) {
  return (hal_memory_history_desc_t){.struct_size = sizeof(hal_memory_history_desc_t),
                                     .stacks = stacks,
                                     .max_events = max_events,
                                     .capture = capture,
                                     .release = release,
                                     .user_data = &captured};
}

DOUBLE_FN void close_clean(void) {
  cr_expect_eq(double_close(), 0);
  cr_expect_eq(live, 0, "%ld of %ld stacks were not released", (long)live, (long)captured);
}

/* ---- entries of a history ---- */

DOUBLE_FN hal_memory_event_t event_of(const hal_memory_history_t *history, size_t index) {
  hal_memory_event_t event;
  cr_assert_eq(hal_memory_history_event(history, index, &event, sizeof(event)), HAL_OK, "%s", hal_error_message());
  return event;
}

DOUBLE_FN hal_memory_block_info_t block_of(const hal_memory_history_t *history, size_t index) {
  hal_memory_block_info_t block;
  cr_assert_eq(hal_memory_history_block(history, index, &block, sizeof(block)), HAL_OK, "%s", hal_error_message());
  return block;
}

/* Returns the actions of all events as letters: a = ALLOC, r = FREE_REQUESTED, f = FREE_COMPLETED, S = SEGMENT_ALLOC,
 * F = SEGMENT_FREE, s = SNAPSHOT, o = OOM. Valid until the next call. */
DOUBLE_FN const char *actions_of(const hal_memory_history_t *history) {
  static char actions[256];
  const size_t count = hal_memory_history_events(history);
  cr_assert(count < sizeof(actions));
  for (size_t i = 0; i < count; i++) actions[i] = "arfSFso"[event_of(history, i).action];
  actions[count] = 0;
  return actions;
}

#endif /* TEST_HAL_MEMORY_RECORDED_H_ */
