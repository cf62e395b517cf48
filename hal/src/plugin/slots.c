/* slots.c: the contents of plugin_ops.def and plugin_groups.def as tables, and the group rule. */
#include "plugin/slots.h"

#include <string.h>

#include "base/text.h"
#include "hal/registry.h"

enum {
#define HAL_GROUP(name, text) GROUP_##name,
#include "hal/plugin_groups.def"
#undef HAL_GROUP
  GROUP_COUNT
};
enum { NEED_REQUIRED, NEED_OPTIONAL, NEED_COMPANION };
enum { KIND_M, KIND_D, KIND_U };

static const char *const group_texts[GROUP_COUNT] = {
#define HAL_GROUP(name, text) text,
#include "hal/plugin_groups.def"
#undef HAL_GROUP
};

static const struct {
  const char *name;
  uint8_t kind, group, need;
} slots[] = {
#define HAL_OP(since, kind, group, need, name, params, args) {#name, KIND_##kind, GROUP_##group, NEED_##need},
#include "hal/plugin_ops.def"
#undef HAL_OP
};
_Static_assert(sizeof slots / sizeof slots[0] == HAL_SLOT_COUNT, "one entry per slot");

const char *hal_registry_slot_name(uint32_t slot) { return slot < HAL_SLOT_COUNT ? slots[slot].name : NULL; }

int hal_slot_is_mandatory(uint32_t slot) { return slots[slot].kind == KIND_M; }

int hal_slot_is_provided(const hal_plugin_api_t *api, uint32_t slot) {
  return slot < HAL_SLOT_COUNT && slot / 64 < api->provided_words && (api->provided[slot / 64] >> (slot % 64) & 1);
}

uint32_t hal_slot_find(const char *name, size_t length) {
  for (uint32_t slot = 0; slot < HAL_SLOT_COUNT; slot++)
    if (strlen(slots[slot].name) == length && memcmp(slots[slot].name, name, length) == 0) return slot;
  return HAL_SLOT_COUNT;
}

/* Returns whether a plugin with this op must implement its group. */
static int triggers_group(uint32_t slot) { return slots[slot].need != NEED_COMPANION; }

static int needed_by_group(uint32_t slot, int group) {
  /* Groups whose ops use handles of other groups: a stream and an event, memory without an address, a communicator. */
  static const struct {
    int group, part;
  } parts[] = {{GROUP_STREAM_EVENT, GROUP_STREAM},
               {GROUP_STREAM_EVENT, GROUP_EVENT},
               {GROUP_VIRTUAL_SHARE, GROUP_VIRTUAL},
               {GROUP_COMM_REGISTER, GROUP_COMM}};
  int is_part = slots[slot].group == group;
  for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
    is_part |= parts[i].group == group && parts[i].part == slots[slot].group;
  return is_part && slots[slot].need != NEED_OPTIONAL;
}

static void append(char *text, size_t size, const char *word) {
  hal_text_append(text, size, "%s%s", text[0] ? ", " : "", word);
}

int hal_slots_check_groups(const hal_plugin_api_t *api, hal_group_gap_t *out_gap) {
  for (int group = GROUP_NONE + 1; group < GROUP_COUNT; group++) {
    *out_gap = (hal_group_gap_t){.group = group_texts[group]};
    for (uint32_t slot = 0; slot < HAL_SLOT_COUNT; slot++) {
      const int provided = hal_slot_is_provided(api, slot);
      if (provided && slots[slot].group == group && triggers_group(slot))
        append(out_gap->provided, sizeof out_gap->provided, slots[slot].name);
      if (!provided && needed_by_group(slot, group))
        append(out_gap->missing, sizeof out_gap->missing, slots[slot].name);
    }
    if (out_gap->provided[0] && out_gap->missing[0]) return 0;
  }
  return 1;
}
