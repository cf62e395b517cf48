/* slots.h: names, kinds and groups of the plugin ABI's slots. Private to hal/src. */
#ifndef HAL_SRC_SLOTS_H_
#define HAL_SRC_SLOTS_H_

#include "plugin/plugin.h"

/* Returns whether a plugin must implement the slot. */
int hal_slot_is_mandatory(uint32_t slot);

/* Returns whether the function in the slot is the plugin author's own. */
int hal_slot_is_provided(const hal_plugin_api_t *api, uint32_t slot);

/* Finds a slot by its name of `length` bytes; HAL_SLOT_COUNT if there is none. */
uint32_t hal_slot_find(const char *name, size_t length);

/* A group that is implemented in part: the ops that the plugin has, and those that it lacks, as comma-separated lists
 * of names. */
typedef struct hal_group_gap_s {
  const char *group;
  char provided[256], missing[256];
} hal_group_gap_t;

/* Checks the group rule: returns 1 if all groups are complete or absent, else 0 and the first gap. A handle made by the
 * plugin must never reach a default, or the reverse. */
int hal_slots_check_groups(const hal_plugin_api_t *api, hal_group_gap_t *out_gap);

#endif /* HAL_SRC_SLOTS_H_ */
