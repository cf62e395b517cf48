/* schedule.h: the launches of a command list, which are replayed for a repeated list: no group is collected or looked
 * up, and the launches exist already. Private to hal/src.
 *
 * How a list is launched depends on its commands in their order: kernels, addresses, sizes, and memory accesses of
 * operators. These are its key. A schedule is valid for a list with the same key, word for word. Scalars of
 * element-wise kernels do not belong to the key, except where operators compute the same. */
#ifndef HAL_SRC_LAZY_SCHEDULE_H_
#define HAL_SRC_LAZY_SCHEDULE_H_

#include "fusion/fuse.h"

/* An array of 64-bit words. */
typedef struct hal_words_s {
  uint64_t *word;
  size_t count, room;
} hal_words_t;

/* A scalar of a group's launch: its argument in the command list, and its address in the launch. */
typedef struct hal_schedule_number_s {
  uint32_t command, argument;
  void *to;
} hal_schedule_number_t;

/* One launch: a command as it was recorded, copies of the results of an earlier one, or the steps of a group. */
typedef struct hal_schedule_entry_s {
  uint32_t command; /* of a group: the first */
  uint32_t earlier; /* whose results are copied; HAL_NO_ACCESS: none */
  uint32_t steps;   /* of a group; else 0 */
  uint32_t number_count;
  const uint32_t *commands;    /* of the steps */
  hal_plugin_kernel_t *kernel; /* of a group; NULL: its results are unused */
  hal_fuse_plan_t *plan;       /* of a group whose runs are counted until its kernel is compiled; else NULL */
  const hal_launch_t *launch;
  hal_schedule_number_t *numbers;
} hal_schedule_entry_t;

typedef struct hal_schedule_s {
  hal_fuse_observer_t observer; /* records the groups that are launched while it is created; first */
  uint64_t hash;
  hal_words_t key;
  hal_words_t numbers; /* scalars for which alone it is valid; empty: for all */
  hal_arena_t arena;   /* of launches and lists */
  hal_schedule_entry_t *entry;
  uint32_t count, room;
  int failed;           /* the host has no memory for it */
  int stale;            /* it must be created again: a group of it ran often enough to be compiled */
  hal_lazy_info_t info; /* what it adds to the counts; while it is created, the counts before */
} hal_schedule_t;

#define HAL_SCHEDULES 256

/* The schedules of a stream, and the key of the list that is submitted. Zero: none. */
typedef struct hal_schedules_s {
  hal_words_t key, numbers;
  hal_schedule_t *making; /* of the list that is submitted; NULL: none is created */
  uint64_t seen
      [HAL_SCHEDULES]; /* the last hash of each slot: a list that is submitted twice in succession gets a schedule */
  hal_schedule_t *schedule[HAL_SCHEDULES]; /* by hash */
} hal_schedules_t;

/* Writes the key of a list and its scalars (schedule_key.c); 0 = the host has no memory for it, or it is too long. */
int hal_schedule_key(hal_fuse_t *fuse, const hal_command_list_t *list, hal_words_t *key, hal_words_t *numbers);

uint64_t hal_schedule_hash(const hal_words_t *words);

/* Returns the schedule of a list; NULL = there is none. Then one may be created: `making` is set until
 * hal_schedules_keep. */
hal_schedule_t *hal_schedules_find(hal_schedules_t *schedules, hal_fuse_t *fuse, const hal_command_list_t *list,
                                   const hal_lazy_info_t *info);

/* Ends the creation of a schedule, if there is one. A schedule of a failed submission is discarded. */
void hal_schedules_keep(hal_schedules_t *schedules, const hal_lazy_info_t *info, int succeeded);

/* Records a launch; `schedule` may be NULL. `earlier` HAL_NO_ACCESS: as it was recorded. */
void hal_schedule_note(hal_schedule_t *schedule, uint32_t command, uint32_t earlier);

/* Writes the scalars of a group into its launch. */
void hal_schedule_fill(const hal_schedule_entry_t *entry, const hal_command_list_t *list);

/* Adds the counts of a replay, except for the calls of the plugin. */
void hal_schedule_count(const hal_schedule_t *schedule, hal_lazy_info_t *info);

void hal_schedules_destroy(hal_schedules_t *schedules);

#endif /* HAL_SRC_LAZY_SCHEDULE_H_ */
