/* schedule.c: see schedule.h. */
#include "lazy/schedule.h"

#include <string.h>

#include "hal/host_memory.h"

static int is_same(const hal_words_t *one, const hal_words_t *other) {
  return one->count == other->count && (!one->count || !memcmp(one->word, other->word, one->count * sizeof *one->word));
}

static int copy_words(hal_arena_t *arena, hal_words_t *to, const hal_words_t *from) {
  *to =
      (hal_words_t){.word = hal_arena_copy(arena, from->word, from->count * sizeof *from->word), .count = from->count};
  return to->word != NULL;
}

static void destroy(hal_schedule_t *schedule) {
  if (!schedule) return;
  hal_arena_destroy(&schedule->arena);
  hal_free(schedule->entry);
  hal_free(schedule);
}

static void note_group(hal_fuse_observer_t *observer, const hal_fuse_group_t *group, hal_fuse_plan_t *plan,
                       hal_plugin_kernel_t *kernel, const hal_launch_t *launch);

hal_schedule_t *hal_schedules_find(hal_schedules_t *schedules, hal_fuse_t *fuse, const hal_command_list_t *list,
                                   const hal_lazy_info_t *info) {
  schedules->making = NULL;
  if (!hal_schedule_key(fuse, list, &schedules->key, &schedules->numbers)) return NULL;
  const uint64_t hash = hal_schedule_hash(&schedules->key) & fuse->hash_mask, at = hash % HAL_SCHEDULES;
  hal_schedule_t *const schedule = schedules->schedule[at];
  if (schedule && !schedule->stale && schedule->hash == hash && is_same(&schedule->key, &schedules->key) &&
      (!schedule->numbers.count || is_same(&schedule->numbers, &schedules->numbers)))
    return schedule;
  if (schedules->seen[at] == hash && (schedules->making = hal_calloc(1, sizeof *schedules->making))) {
    schedules->making->observer.launched = note_group;
    schedules->making->hash = hash;
    schedules->making->info = *info;
  }
  schedules->seen[at] = hash;
  return NULL;
}

/* Replaces the counts before by what was added since. */
static void subtract(hal_lazy_info_t *before, const hal_lazy_info_t *info) {
  before->fused = info->fused - before->fused;
  before->groups = info->groups - before->groups;
  before->dropped = info->dropped - before->dropped;
  before->common = info->common - before->common;
  before->held = info->held - before->held;
  before->cached = info->cached + info->compiled - before->cached - before->compiled;
}

void hal_schedule_count(const hal_schedule_t *schedule, hal_lazy_info_t *info) {
  info->fused += schedule->info.fused;
  info->groups += schedule->info.groups;
  info->dropped += schedule->info.dropped;
  info->common += schedule->info.common;
  info->held += schedule->info.held;
  info->cached += schedule->info.cached;
}

void hal_schedules_keep(hal_schedules_t *schedules, const hal_lazy_info_t *info, int succeeded) {
  hal_schedule_t *const making = schedules->making;
  if (!making) return;
  schedules->making = NULL;
  subtract(&making->info, info);
  if (!succeeded || making->failed || !copy_words(&making->arena, &making->key, &schedules->key) ||
      (making->info.common && !copy_words(&making->arena, &making->numbers, &schedules->numbers))) {
    destroy(making);
    return;
  }
  hal_schedule_t **const place = &schedules->schedule[making->hash % HAL_SCHEDULES];
  destroy(*place);
  *place = making;
}

/* ---- entries ----------------------------------------------------------------------------------------------------- */

static hal_schedule_entry_t *add(hal_schedule_t *schedule, uint32_t command) {
  if (schedule->count == schedule->room) {
    const uint32_t room = schedule->room ? 2 * schedule->room : 128;
    hal_schedule_entry_t *const grown = hal_malloc(room * sizeof *grown);
    if (!grown) {
      schedule->failed = 1;
      return NULL;
    }
    if (schedule->count) memcpy(grown, schedule->entry, schedule->count * sizeof *grown);
    hal_free(schedule->entry);
    schedule->entry = grown;
    schedule->room = room;
  }
  hal_schedule_entry_t *const entry = &schedule->entry[schedule->count++];
  *entry = (hal_schedule_entry_t){.command = command, .earlier = HAL_NO_ACCESS};
  return entry;
}

void hal_schedule_note(hal_schedule_t *schedule, uint32_t command, uint32_t earlier) {
  hal_schedule_entry_t *const entry = schedule ? add(schedule, command) : NULL;
  if (entry) entry->earlier = earlier;
}

/* Copies a group's launch; NULL = no memory. */
static hal_launch_t *keep_launch(hal_arena_t *arena, const hal_launch_t *launch) {
  hal_launch_t *const kept = hal_arena_take(arena, sizeof *kept);
  hal_arg_t *const args = hal_arena_copy(arena, launch->args, launch->arg_count * sizeof *args);
  if (!kept || !args) return NULL;
  *kept = (hal_launch_t){.struct_size = 0};
  memcpy(kept, launch, launch->struct_size);
  kept->args = args;
  for (uint32_t i = 0; i < launch->arg_count; i++) {
    args[i].value = hal_arena_copy(arena, args[i].value, args[i].size);
    if (!args[i].value) return NULL;
  }
  return kept;
}

/* Returns the address of a scalar in a group's launch: that of an argument, or `offset` bytes into the scalars of a
 * chain. */
static void *place_of(const hal_launch_t *launch, const hal_launch_t *kept, const void *number, uint32_t offset) {
  for (uint32_t i = 0; i < launch->arg_count; i++)
    if (launch->args[i].value == number) return (void *)(uintptr_t)kept->args[i].value;
  return (char *)(uintptr_t)kept->args[CHAIN_ARG_NUMBERS].value + offset;
}

/* Lists the scalars that the launch takes from the command list; 0 = no memory. */
static int list_numbers(hal_arena_t *arena, const hal_fuse_group_t *group, const hal_launch_t *launch,
                        hal_schedule_entry_t *entry) {
  uint32_t offset = 0;
  entry->numbers = hal_arena_take(arena, (1 + HAL_FUSE_NUMBERS / 8) * sizeof *entry->numbers);
  if (!entry->numbers) return 0;
  for (uint32_t i = 0; i < group->steps; i++) {
    const hal_fuse_step_t *const step = &group->step[i];
    const hal_op_form_t *const form = &step->kernel->form;
    for (uint32_t k = 0; !step->dropped && k < form->numbers; k++) {
      const hal_arg_t *const number = &step->launch->args[form->number_at + k];
      if (step->launch != &group->bytes[i].launch) /* otherwise it belongs to the key */
        entry->numbers[entry->number_count++] =
            (hal_schedule_number_t){.command = group->command[i],
                                    .argument = form->number_at + k,
                                    .to = place_of(launch, entry->launch, number->value, offset)};
      offset += hal_fuse_number_room(number);
    }
  }
  return 1;
}

static void note_group(hal_fuse_observer_t *observer, const hal_fuse_group_t *group, hal_fuse_plan_t *plan,
                       hal_plugin_kernel_t *kernel, const hal_launch_t *launch) {
  hal_schedule_t *const schedule = (hal_schedule_t *)observer;
  hal_schedule_entry_t *const entry = add(schedule, group->begin);
  if (!entry) return;
  hal_arena_t *const arena = &schedule->arena;
  entry->steps = group->steps;
  entry->commands = hal_arena_copy(arena, group->command, group->steps * sizeof *group->command);
  if (!entry->commands) schedule->failed = 1;
  if (!kernel) return;
  entry->kernel = kernel;
  entry->plan = plan;
  entry->launch = keep_launch(arena, launch);
  if (!entry->launch || !list_numbers(arena, group, launch, entry)) schedule->failed = 1;
}

void hal_schedule_fill(const hal_schedule_entry_t *entry, const hal_command_list_t *list) {
  for (uint32_t i = 0; i < entry->number_count; i++) {
    const hal_schedule_number_t *const number = &entry->numbers[i];
    const hal_arg_t *const from = &list->commands[number->command].u.launch.launch->args[number->argument];
    memcpy(number->to, from->value, from->size);
  }
}

void hal_schedules_destroy(hal_schedules_t *schedules) {
  for (uint32_t i = 0; i < HAL_SCHEDULES; i++) destroy(schedules->schedule[i]);
  destroy(schedules->making);
  hal_free(schedules->key.word);
  hal_free(schedules->numbers.word);
  memset(schedules, 0, sizeof *schedules);
}
