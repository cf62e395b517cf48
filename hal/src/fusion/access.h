/* access.h: the memory that the commands of a list read and write, in their order. A command may run before another one
 * that uses other memory. Private to hal/src. */
#ifndef HAL_SRC_FUSION_ACCESS_H_
#define HAL_SRC_FUSION_ACCESS_H_

#include "capture/program.h"

typedef struct hal_fuse_s hal_fuse_t;

/* hal_access_t.how */
enum { HAL_ACCESS_READS = 0, HAL_ACCESS_WRITES = 1, HAL_ACCESS_FREES = 2 };

#define HAL_NO_ACCESS UINT32_MAX

/* Memory that a command accesses. */
typedef struct hal_access_s {
  uint64_t low, high;
  uint32_t command, how;
  uint32_t next; /* access of the same area, by the same or a later command; HAL_NO_ACCESS */
} hal_access_t;

/* Memory that accesses share: each access is completely in one area. */
typedef struct hal_area_s {
  uint64_t low, high;
  uint32_t first, last; /* accesses */
  uint32_t front;       /* the first one by a command that may not be done */
} hal_area_t;

/* hal_accesses_t.done: of each command */
enum { HAL_TO_DO = 0, HAL_IN_GROUP = 1, HAL_DONE = 2 };

/* The accesses of the command list that is being submitted. Zero: of none. */
typedef struct hal_accesses_s {
  hal_access_t *access;
  hal_area_t *area; /* by address */
  uint32_t *wall;   /* of each command: the first one from it on with unknown memory effects */
  uint8_t *done;    /* commands that run out of order; NULL: none */
  uint32_t count, room, area_count, area_room, command_room, wall_room;
  uint32_t front; /* all commands before it are done */
  int state;      /* 0: not created yet for this list; 1: created; -1: the host has no memory for them */
} hal_accesses_t;

/* Begins another command list: none of its commands is done. */
void hal_accesses_begin(hal_accesses_t *accesses, const hal_command_list_t *list);

/* Lists the accesses of the commands, at the first call for a command list. Returns 0 if the host has no memory for
 * them. The caller holds the lock of `fuse`. */
int hal_accesses_make(hal_accesses_t *accesses, hal_fuse_t *fuse, const hal_command_list_t *list);

/* Returns the first access to the area with an address, by a command that is not before the front; HAL_NO_ACCESS =
 * there is none. */
uint32_t hal_accesses_at(hal_accesses_t *accesses, uint64_t address);

/* Returns whether a command that reads or `writes` memory may run before the commands from `begin` to `end` that are
 * not done. */
int hal_accesses_may_pass(hal_accesses_t *accesses, uint64_t low, uint64_t high, int writes, uint32_t begin,
                          uint32_t end);

/* Returns whether a command that ran since `command`, before `end` or out of order, has written or released memory. */
int hal_accesses_is_changed(const hal_accesses_t *accesses, const hal_span_t *span, uint32_t command, uint32_t end);

/* Returns the number of results that are not released at the end of the list; one that is written several times counts
 * once. */
uint32_t hal_accesses_count_held(const hal_accesses_t *accesses);

void hal_accesses_destroy(hal_accesses_t *accesses);

#endif /* HAL_SRC_FUSION_ACCESS_H_ */
