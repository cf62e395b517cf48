/* log_internal.h: the data of the log, for log.c and log_write.c. */
#ifndef HAL_SRC_COMM_LOG_INTERNAL_H_
#define HAL_SRC_COMM_LOG_INTERNAL_H_

#include <stdint.h>
#include <time.h>

#include "base/lock.h"

typedef struct hal_comm_log_group_s {
  char *name, *description, *ranks; /* owned */
} hal_comm_log_group_t;

typedef struct hal_comm_log_entry_s {
  uint64_t number; /* from 1 on; 0 = empty */
  uint64_t sequence, operation;
  uint32_t group, is_message, retired;
  uint32_t input_count, output_count;
  int64_t *numbers; /* owned; for each tensor: its type, the number of its sizes, its sizes */
  char *stack;      /* owned */
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

static inline int64_t hal_comm_log_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

#endif /* HAL_SRC_COMM_LOG_INTERNAL_H_ */
