/* slots.h: names, kinds and groups of the plugin ABI's slots. Private to hal/src. */
#ifndef HAL_SRC_SLOTS_H_
#define HAL_SRC_SLOTS_H_

#include "plugin/plugin.h"

/* Whether a plugin must provide the slot itself. */
int hal_slot_is_mandatory(uint32_t slot);

/* Whether the function in the slot is the plugin author's own. */
int hal_slot_is_provided(const hal_plugin_api_t *api, uint32_t slot);

/* Finds a slot by its name of `length` bytes; HAL_SLOT_COUNT when there is none. */
uint32_t hal_slot_find(const char *name, size_t length);

/* Half a group of ops: what the plugin provides of it, what it would need too. Comma lists of names. */
typedef struct hal_group_gap_s {
  const char *group;
  char provided[256], missing[256];
} hal_group_gap_t;

/* Checks the group rule: 1 = all groups are whole or absent, else 0 and the first gap. A handle made by the plugin must
 * never reach a default, nor the other way round. */
int hal_slots_check_groups(const hal_plugin_api_t *api, hal_group_gap_t *out_gap);

#endif /* HAL_SRC_SLOTS_H_ */
