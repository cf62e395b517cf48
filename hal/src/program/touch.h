/* touch.h: which commands of a tape touch the same memory, in their order, so that one may run before another that has nothing to do with
 * it. Private to hal/src/program. */
#ifndef HAL_SRC_PROGRAM_TOUCH_H_
#define HAL_SRC_PROGRAM_TOUCH_H_

#include "program/program.h"

typedef struct hal_fuse_s hal_fuse_t;

/* hal_touch_t.how */
enum { HAL_TOUCH_READS = 0, HAL_TOUCH_WRITES = 1, HAL_TOUCH_FREES = 2 };

#define HAL_NO_TOUCH UINT32_MAX

/* Memory that a command touches. */
typedef struct hal_touch_s {
  uint64_t low, high;
  uint32_t command, how;
  uint32_t next; /* touch of the same area, by the same or a later command; HAL_NO_TOUCH */
} hal_touch_t;

/* Memory that touches share: none of them lies partly in another area. */
typedef struct hal_area_s {
  uint64_t low, high;
  uint32_t first, last; /* touches */
  uint32_t front;       /* the first by a command that may be to do */
} hal_area_t;

/* hal_touches_t.done: of each command */
enum { HAL_TO_DO = 0, HAL_IN_GROUP = 1, HAL_DONE = 2 };

/* The touches of the tape that is being queued. Zero: of none. */
typedef struct hal_touches_s {
  hal_touch_t *touch;
  hal_area_t *area; /* by address */
  uint32_t *wall;   /* of each command: the first from it on of which nobody can tell what it touches */
  uint8_t *done;    /* commands run out of their order; NULL: they do not */
  uint32_t count, room, area_count, area_room, command_room, wall_room;
  uint32_t front; /* all commands before it are done */
  int state;      /* 0: not yet made for this tape; 1: made; -1: the host has no memory for them */
} hal_touches_t;

/* Begins with another tape: nothing of it is done. */
void hal_touches_begin(hal_touches_t *touches, const hal_tape_t *tape);

/* Finds what the commands touch, at the first call for a tape; 0 = there is no memory for it. The lock of `fuse` is held. */
int hal_touches_make(hal_touches_t *touches, hal_fuse_t *fuse, const hal_tape_t *tape);

/* Gives the first touch, by a command that is not before the front, of the area that holds an address; HAL_NO_TOUCH = there is none. */
uint32_t hal_touches_at(hal_touches_t *touches, uint64_t address);

/* Whether a command that reads or `writes` memory may run before those from `begin` to `end` that are still to do. */
int hal_touches_may_pass(hal_touches_t *touches, uint64_t low, uint64_t high, int writes, uint32_t begin, uint32_t end);

/* Whether a command that ran since `command`, before `end` or out of its order, has written memory, or given it back. */
int hal_touches_is_changed(const hal_touches_t *touches, const hal_span_t *span, uint32_t command, uint32_t end);

/* Counts the results that are not given back at the end of the tape; written several times is one. */
uint32_t hal_touches_count_held(const hal_touches_t *touches);

void hal_touches_destroy(hal_touches_t *touches);

/* Computes the bytes of the elements from `below` to `above`, counted from an address. Returns 0 when they leave the address space. */
int hal_touch_bytes(const void *address, int64_t below, int64_t above, uint64_t size, uint64_t *low, uint64_t *high);

/* Computes the bytes that a tensor touches. Returns 1; 0 = none; -1 = its sizes and strides leave the address space, so it may be any. */
int hal_touch_tensor(const hal_tensor_t *tensor, uint64_t *low, uint64_t *high);

/* Lists the memory of a call's tensors, in the arena; without memory for that, of an operator that a library defined, and with a tensor that leaves the address space, nobody knows what the operator touches. */
void hal_touch_note(hal_arena_t *arena, hal_program_op_t *op, const hal_op_call_t *call);

#endif /* HAL_SRC_PROGRAM_TOUCH_H_ */
