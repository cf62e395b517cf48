/* explain.c: why a group was compiled: the property that no earlier group had. */
#include <string.h>

#include "base/text.h"
#include "fusion/fuse.h"
#include "hal/host_memory.h"

void hal_fuse_note_traits(const hal_fuse_group_t *group, hal_fuse_plan_t *plan) {
  plan->traits = hal_calloc(group->steps, sizeof *plan->traits);
  plan->steps = plan->traits ? group->steps : 0;
  for (uint32_t i = 0; i < plan->steps; i++) {
    const hal_fuse_step_t *const step = &group->step[i];
    hal_fuse_trait_t *const trait = &plan->traits[i];
    *trait = (hal_fuse_trait_t){
        .kernel = step->kernel, .dead = step->dead, .dropped = step->dropped, .strided = step->rows != NULL};
    for (uint32_t k = 1; k < step->kernel->form.operands; k++) trait->from[k] = (uint8_t)(step->operand[k].value + 1);
  }
}

/* Returns the number of steps at the beginning of two groups that have the same kernels. */
static uint32_t common_steps(const hal_fuse_plan_t *one, const hal_fuse_plan_t *other) {
  uint32_t i = 0;
  while (i < one->steps && i < other->steps && one->traits[i].kernel == other->traits[i].kernel) i++;
  return i;
}

/* Finds the group that shares most steps with a new one; NULL = none has the same first step. */
static const hal_fuse_plan_t *nearest_to(const hal_fuse_t *fuse, const hal_fuse_plan_t *plan, uint32_t *out_common) {
  const hal_fuse_plan_t *nearest = NULL;
  *out_common = 0;
  for (uint32_t i = 0; i < fuse->plan_room; i++) {
    const hal_fuse_plan_t *const other = fuse->plans[i];
    const uint32_t common = other && other != plan ? common_steps(plan, other) : 0;
    const int nearer = common > *out_common || (common && common == *out_common && other->steps == plan->steps);
    if (!nearer) continue;
    nearest = other;
    *out_common = common;
  }
  return nearest;
}

/* Writes what distinguishes two groups of the same kernels. */
static void explain_traits(const hal_fuse_plan_t *plan, const hal_fuse_plan_t *other, char *text, size_t room) {
  for (uint32_t i = 0; i < plan->steps; i++) {
    const hal_fuse_trait_t *const now = &plan->traits[i], *const then = &other->traits[i];
    const char *const name = now->kernel->form.name;
    if (now->dropped != then->dropped) {
      hal_text_append(text, room, "step %u (%s) is %s", (unsigned)i + 1, name,
                      now->dropped ? "not needed now" : "needed now");
      return;
    }
    if (now->dead != then->dead) {
      hal_text_append(text, room, "the result of step %u (%s) is %s", (unsigned)i + 1, name,
                      now->dead ? "not kept now" : "kept now");
      return;
    }
    for (uint32_t k = 1; k < now->kernel->form.operands; k++)
      if (now->from[k] != then->from[k]) {
        hal_text_append(text, room, "operand %u of step %u (%s) has another source", (unsigned)k, (unsigned)i + 1,
                        name);
        return;
      }
  }
  hal_text_append(text, room, "the strides of an operand differ, or the same memory is used by other operands");
}

void hal_fuse_explain(const hal_fuse_t *fuse, const hal_fuse_plan_t *plan, uint64_t elements, char *text, size_t room) {
  uint32_t common;
  text[0] = '\0';
  hal_text_append(text, room, "%u operators over %llu elements:", (unsigned)plan->steps, (unsigned long long)elements);
  for (uint32_t i = 0; i < plan->steps; i++) hal_text_append(text, room, " %s", plan->traits[i].kernel->form.name);
  const hal_fuse_plan_t *const nearest = nearest_to(fuse, plan, &common);
  if (!nearest) {
    hal_text_append(text, room, "; no earlier group begins like it");
    return;
  }
  hal_text_append(text, room, "; like an earlier group, but ");
  if (common == plan->steps && common == nearest->steps)
    explain_traits(plan, nearest, text, room);
  else if (common == plan->steps)
    hal_text_append(text, room, "it ends at step %u, where that one continues with %s", (unsigned)common,
                    nearest->traits[common].kernel->form.name);
  else if (common == nearest->steps)
    hal_text_append(text, room, "it continues with %s at step %u, where that one ends",
                    plan->traits[common].kernel->form.name, (unsigned)common + 1);
  else
    hal_text_append(text, room, "step %u is %s, not %s", (unsigned)common + 1, plan->traits[common].kernel->form.name,
                    nearest->traits[common].kernel->form.name);
}
