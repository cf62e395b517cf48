/* recorded.h: histories that start and are read while other threads allocate; their stacks are counted. */
#ifndef TEST_HAL_STRESS_RECORDED_H_
#define TEST_HAL_STRESS_RECORDED_H_

#include <stdatomic.h>
#include <stdlib.h>

#include "hal/memory.h"

static atomic_long stacks; /* that were not released */

static void *capture(void *user_data) {
  (void)user_data;
  atomic_fetch_add(&stacks, 1);
  return calloc(1, 1);
}

static void release_stack(void *stack, void *user_data) {
  (void)user_data;
  atomic_fetch_sub(&stacks, 1);
  free(stack);
}

/* Calls a start function with random options. Returns whether it failed. */
static int record(hal_status_t (*start)(int32_t, const hal_memory_history_desc_t *), int32_t device, uint64_t r) {
  const hal_memory_history_desc_t desc = {.struct_size = sizeof(desc),
                                          .stacks = (uint32_t)(r % 4),
                                          .max_events = r % 2000,
                                          .capture = capture,
                                          .release = release_stack};
  return start(device, &desc) != HAL_OK;
}

/* Calls a read function. Returns the number of failures and of stacks that were freed or overwritten. */
static long read_history(hal_status_t (*read)(int32_t, hal_memory_history_t **), int32_t device) {
  hal_memory_history_t *history = NULL;
  hal_memory_event_t event;
  long wrong = read(device, &history) != HAL_OK;
  for (size_t i = 0; history && i < hal_memory_history_events(history); i++) {
    hal_memory_history_event(history, i, &event, sizeof(event));
    wrong += event.stack && *(volatile char *)event.stack;
  }
  hal_memory_history_release(history);
  return wrong;
}

#endif /* TEST_HAL_STRESS_RECORDED_H_ */
