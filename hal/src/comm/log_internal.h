/* log_internal.h: the data of the log, for log.c, log_stack.c and log_write.c. */
#ifndef HAL_SRC_COMM_LOG_INTERNAL_H_
#define HAL_SRC_COMM_LOG_INTERNAL_H_

#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "base/lock.h"

typedef struct hal_comm_log_group_s {
  char *name, *description, *ranks; /* owned */
} hal_comm_log_group_t;

/* The text of a Python stack, which several entries may share. The log's lock guards it. */
typedef struct hal_comm_log_stack_s {
  uint32_t references;
  size_t size;
  char text[];
} hal_comm_log_stack_t;

enum { HAL_COMM_LOG_NUMBERS = 12 }; /* an input and an output of 4 dimensions */

typedef struct hal_comm_log_entry_s {
  uint64_t number; /* from 1 on; 0 = empty */
  uint64_t sequence, operation;
  uint32_t group, is_message, retired;
  uint32_t input_count, output_count;
  /* For each tensor: its type, the number of its sizes, its sizes. `few` of this entry, or owned. */
  int64_t *numbers;
  int64_t few[HAL_COMM_LOG_NUMBERS];
  hal_comm_log_stack_t *stack;                          /* with a reference; NULL = none */
  int64_t timeout_ms, created_ns, started_ns, ended_ns; /* since 1970; 0 = not yet */
  char name[64];
} hal_comm_log_entry_t;

typedef struct hal_comm_log_s {
  hal_lock_t lock;
  uint32_t capacity;
  hal_comm_log_entry_t *entries; /* allocated with the first entry */
  uint64_t last;
  hal_comm_log_group_t *groups;
  uint32_t group_count, group_capacity;
  char *file; /* owned */
} hal_comm_log_t;

extern hal_comm_log_t hal_comm_log;

/* ---- log_stack.c: the caller holds the log's lock ---- */

/* Returns a stack with this text, with a reference; NULL if the text is NULL or empty, or if memory is exhausted. */
hal_comm_log_stack_t *hal_comm_log_stack_take(const char *text);
/* Releases a reference. NULL is ignored. */
void hal_comm_log_stack_release(hal_comm_log_stack_t *stack);
/* Releases the stacks that are kept for later entries. */
void hal_comm_log_stacks_clear(void);

static inline int64_t hal_comm_log_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

#endif /* HAL_SRC_COMM_LOG_INTERNAL_H_ */
