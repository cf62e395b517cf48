/* schedule.h: how a tape was launched, for tapes that come again: then no group is collected or looked up, and the launches exist
 * already. Private to hal/src.
 *
 * What becomes of a tape depends on its commands in their order: kernels, addresses, sizes, and what operators access. All that is its key, and a
 * schedule holds for a tape whose key is the same, word for word. The numbers of element-wise kernels are none of it, but where operators compute
 * the same. */
#ifndef HAL_SRC_LAZY_SCHEDULE_H_
#define HAL_SRC_LAZY_SCHEDULE_H_

#include "fusion/fuse.h"

/* Numbers of 64 bits in a row. */
typedef struct hal_words_s {
  uint64_t *word;
  size_t count, room;
} hal_words_t;

/* A number of a group's launch: where the tape has it, and where the launch. */
typedef struct hal_schedule_number_s {
  uint32_t command, argument;
  void *to;
} hal_schedule_number_t;

/* What is queued at once: a command as it was recorded, copies of the results of an earlier one, or the steps of a group. */
typedef struct hal_schedule_entry_s {
  uint32_t command; /* of a group: the first */
  uint32_t earlier; /* whose results are copied; HAL_NO_ACCESS: none */
  uint32_t steps;   /* of a group; else 0 */
  uint32_t number_count;
  const uint32_t *commands;    /* of the steps */
  hal_plugin_kernel_t *kernel; /* of a group; NULL: nothing reads what it computes */
  hal_fuse_plan_t *plan; /* of a group whose runs count, and which another kernel may compute by and by; else NULL */
  const hal_launch_t *launch;
  hal_schedule_number_t *numbers;
} hal_schedule_entry_t;

typedef struct hal_schedule_s {
  hal_fuse_observer_t observer; /* notes the groups that are launched while it is made; first */
  uint64_t hash;
  hal_words_t key;
  hal_words_t numbers; /* for which alone it holds; empty: for all */
  hal_arena_t arena;   /* of launches and lists */
  hal_schedule_entry_t *entry;
  uint32_t count, room;
  int failed;           /* the host has no memory for it */
  int stale;            /* it is to be made anew: a group of it ran often enough to be compiled */
  hal_lazy_info_t info; /* what it adds to the counts; while it is made, the counts before */
} hal_schedule_t;

#define HAL_SCHEDULES 256

/* The schedules of a stream, and the key of the tape that is queued. Zero: none. */
typedef struct hal_schedules_s {
  hal_words_t key, numbers;
  hal_schedule_t *making;                  /* of the tape that is queued; NULL: none is made */
  uint64_t seen[HAL_SCHEDULES];            /* the last hash of each place: what comes the second time is kept */
  hal_schedule_t *schedule[HAL_SCHEDULES]; /* by hash */
} hal_schedules_t;

/* Writes the key of a tape and its numbers (schedule_key.c); 0 = the host has no memory for it, or it is too long. */
int hal_schedule_key(hal_fuse_t *fuse, const hal_tape_t *tape, hal_words_t *key, hal_words_t *numbers);

uint64_t hal_schedule_hash(const hal_words_t *words);

/* Gives the schedule of a tape; NULL = there is none. Then one may be made: `making` is set, and ends by hal_schedules_keep. */
hal_schedule_t *hal_schedules_find(hal_schedules_t *schedules, hal_fuse_t *fuse, const hal_tape_t *tape,
                                   const hal_lazy_info_t *info);

/* Ends the schedule that was made, if one was; what failed is not kept. */
void hal_schedules_keep(hal_schedules_t *schedules, const hal_lazy_info_t *info, int succeeded);

/* Notes what was queued; `schedule` NULL: nobody wants to know. `earlier` HAL_NO_ACCESS: as it was recorded. */
void hal_schedule_note(hal_schedule_t *schedule, uint32_t command, uint32_t earlier);

/* Writes the numbers of a group into its launch. */
void hal_schedule_fill(const hal_schedule_entry_t *entry, const hal_tape_t *tape);

/* Adds what a run of the schedule counts, but for the calls of the plugin. */
void hal_schedule_count(const hal_schedule_t *schedule, hal_lazy_info_t *info);

void hal_schedules_destroy(hal_schedules_t *schedules);

#endif /* HAL_SRC_LAZY_SCHEDULE_H_ */
