/* submit.c: submits a command list to the plugin: as programs of the device's compiler, as groups of kernels, or as it
 * was recorded. */
#include <stdio.h>

#include "base/status_internal.h"
#include "device/profile_internal.h"
#include "lazy/lazy.h"

static int is_done(const hal_lazy_t *lazy, uint32_t number) {
  return lazy->accesses.done && lazy->accesses.done[number] == HAL_DONE;
}

/* Returns the code of deferred work that failed. HAL_UNIMPLEMENTED and HAL_NOT_READY have a meaning for the call that
 * flushes, so they are replaced. */
static hal_status_t code_of(hal_status_t status) {
  return status == HAL_UNIMPLEMENTED || status == HAL_NOT_READY ? HAL_INTERNAL : status;
}

/* Records that the commands from `number` to `end` could not be queued. Released memory counts as no command. */
static hal_status_t failed(hal_lazy_t *lazy, uint32_t number, uint32_t end, hal_status_t status) {
  const hal_command_list_t *const list = &lazy->list;
  const uint32_t op = list->commands[number].op;
  uint32_t discarded = 0;
  for (uint32_t i = end; i < list->command_count; i++)
    discarded += list->commands[i].kind != HAL_COMMAND_FREED && !is_done(lazy, i);
  lazy->failure = (hal_lazy_failure_t){.origin = op == HAL_NO_OP ? 0 : list->ops[op].origin, .discarded = discarded};
  return code_of(status);
}

hal_status_t hal_lazy_failed(const hal_lazy_desc_t *desc, const hal_lazy_failure_t *failure, hal_status_t status) {
  char where[256];
  hal_lazy_describe(desc, failure->origin, where, sizeof where);
  return hal_error_prefix(status, "deferred work%s%s failed to launch; %u later commands were discarded: ",
                          *where ? " recorded at " : "", where, (unsigned)failure->discarded);
}

/* Queues the commands from `begin` to `end` that are not done. */
static hal_status_t queue_plain(hal_lazy_t *lazy, uint32_t begin, uint32_t end) {
  const int profiled = hal_profile_is_on(), shares = !(lazy->desc.flags & HAL_LAZY_PLAIN);
  for (uint32_t i = begin; i < end; i++) {
    int done = 0;
    if (lazy->list.commands[i].kind == HAL_COMMAND_FREED || is_done(lazy, i)) continue;
    hal_status_t status = shares ? hal_lazy_share(lazy, i, &done) : HAL_OK;
    if (!status && !done)
      status = hal_command_list_queue(&lazy->list, i, lazy->program.stream, lazy->scratch, profiled);
    if (HAL_UNLIKELY(status)) return failed(lazy, i, i + 1, status);
    lazy->info.queued += !done;
    if (!done) hal_schedule_note(lazy->schedules.making, i, HAL_NO_ACCESS);
  }
  return HAL_OK;
}

/* Queues a group as one kernel. In a profile it has no operator, and the correlation number of its first command. */
static hal_status_t queue_group(hal_lazy_t *lazy, const hal_fuse_work_t *work, uint32_t begin, uint32_t *out_end,
                                int *out_queued) {
  hal_command_bracket_t bracket;
  if (HAL_LIKELY(!hal_profile_is_on())) return hal_fuse_group(lazy->fuse, work, begin, out_end, out_queued);
  hal_command_begin_call(&lazy->list.commands[begin], HAL_PROFILE_NO_OP, &bracket);
  const hal_status_t status = hal_fuse_group(lazy->fuse, work, begin, out_end, out_queued);
  hal_command_end_call(&bracket);
  return status;
}

/* The same for consecutive operators that the device's compiler accepts as a program. */
static hal_status_t queue_program(hal_lazy_t *lazy, uint32_t begin, uint32_t *out_end, int *out_queued) {
  hal_command_bracket_t bracket;
  const int profiled = hal_profile_is_on();
  if (HAL_UNLIKELY(profiled)) hal_command_begin_call(&lazy->list.commands[begin], HAL_PROFILE_NO_OP, &bracket);
  const hal_status_t status = hal_compiler_queue(lazy->programs, &lazy->list, begin, lazy->program.stream,
                                                 hal_lazy_observer(lazy), out_end, out_queued);
  if (HAL_UNLIKELY(profiled)) hal_command_end_call(&bracket);
  return status;
}

/* Queues the command `begin`, as part of a group of element-wise kernels that ends before `limit` at the latest. */
static hal_status_t queue_fused(hal_lazy_t *lazy, uint32_t begin, uint32_t limit, uint32_t *out_end) {
  int queued = 0;
  const hal_fuse_work_t work = {.list = &lazy->list,
                                .accesses = &lazy->accesses,
                                .limit = limit,
                                .stream = lazy->program.stream,
                                .observer = hal_lazy_observer(lazy),
                                .info = &lazy->info,
                                .making = lazy->schedules.making ? &lazy->schedules.making->observer : NULL};
  *out_end = begin + 1;
  const uint32_t kind = lazy->list.commands[begin].kind;
  if (is_done(lazy, begin)) return HAL_OK;
  if (kind == HAL_COMMAND_LAUNCH || kind == HAL_COMMAND_COPY || kind == HAL_COMMAND_FILL) {
    const hal_status_t status = queue_group(lazy, &work, begin, out_end, &queued);
    if (HAL_UNLIKELY(status)) return failed(lazy, begin, begin + 1, status);
  }
  return queued ? HAL_OK : queue_plain(lazy, begin, *out_end);
}

/* Queues the list: operators that the device's compiler accepts as programs, the others fused. */
static hal_status_t queue_compiled(hal_lazy_t *lazy) {
  const uint32_t count = lazy->list.command_count;
  uint32_t checked = 0; /* up to here the compiler was queried */
  hal_compiler_prepare(&lazy->list);
  for (uint32_t i = 0, end; i < count; i = end) {
    int queued = 0;
    if (i >= checked) {
      const hal_status_t status = queue_program(lazy, i, &end, &queued);
      if (HAL_UNLIKELY(status)) return failed(lazy, i, end, status);
      checked = end;
    }
    lazy->info.programs += queued != 0;
    lazy->info.queued += queued != 0;
    if (!queued) HAL_RETURN_IF_ERROR(queue_fused(lazy, i, hal_compiler_next(&lazy->list, checked), &end));
  }
  return HAL_OK;
}

/* Queues groups of element-wise kernels as one kernel each, other commands as they were recorded. */
static hal_status_t queue_groups(hal_lazy_t *lazy) {
  const uint32_t count = lazy->list.command_count;
  for (uint32_t i = 0, end; i < count; i = end) HAL_RETURN_IF_ERROR(queue_fused(lazy, i, count, &end));
  return HAL_OK;
}

/* ---- repeated command lists -------------------------------------------------------------------------------------- */

static hal_status_t queue_entry(hal_lazy_t *lazy, hal_schedule_t *schedule, const hal_schedule_entry_t *entry,
                                int profiled) {
  hal_plugin_kernel_t *kernel = entry->kernel;
  hal_stream_t *const stream = lazy->program.stream;
  hal_plugin_t *const plugin = stream->device->plugin;
  if (entry->earlier != HAL_NO_ACCESS) return hal_lazy_copy(lazy, entry->command, entry->earlier);
  if (entry->steps && !kernel) return HAL_OK;
  lazy->info.queued++;
  if (!entry->steps) return hal_command_list_queue(&lazy->list, entry->command, stream, lazy->scratch, profiled);
  hal_schedule_fill(entry, &lazy->list);
  if (entry->plan) {
    schedule->stale |= hal_fuse_count(entry->plan, lazy->fuse->compile_after);
    kernel = hal_fuse_chain_kernel(entry->plan, kernel);
  }
  hal_command_bracket_t bracket;
  if (HAL_UNLIKELY(profiled)) hal_command_begin_call(&lazy->list.commands[entry->command], HAL_PROFILE_NO_OP, &bracket);
  const hal_status_t status = hal_direct_launch(&stream->direct, kernel, entry->launch);
  if (HAL_UNLIKELY(profiled)) hal_command_end_call(&bracket);
  return hal_error_plugin(plugin, HAL_SLOT_kernel_launch, status);
}

/* Marks the commands of the groups among the first entries of a schedule as done. */
static void mark_done(hal_lazy_t *lazy, const hal_schedule_t *schedule, uint32_t entries) {
  for (uint32_t i = 0; lazy->accesses.done && i < entries; i++)
    for (uint32_t k = 0; k < schedule->entry[i].steps; k++)
      lazy->accesses.done[schedule->entry[i].commands[k]] = HAL_DONE;
}

static hal_status_t queue_schedule(hal_lazy_t *lazy, hal_schedule_t *schedule) {
  const int profiled = hal_profile_is_on();
  for (uint32_t i = 0; i < schedule->count; i++) {
    const hal_status_t status = queue_entry(lazy, schedule, &schedule->entry[i], profiled);
    if (HAL_LIKELY(!status)) continue;
    mark_done(lazy, schedule, i + 1);
    return failed(lazy, schedule->entry[i].command, schedule->entry[i].command + 1, status);
  }
  hal_schedule_count(schedule, &lazy->info);
  return HAL_OK;
}

/* Counts the results that are not released. A repeated list does not need it: its schedule has the count. */
static void count_held(hal_lazy_t *lazy) {
  if (lazy->fuse && hal_fuse_accesses(lazy->fuse, &lazy->accesses, &lazy->list))
    lazy->info.held += hal_accesses_count_held(&lazy->accesses);
}

/* Queues a command list that has no schedule. */
static hal_status_t queue_new(hal_lazy_t *lazy) {
  count_held(lazy);
  if (lazy->desc.flags & HAL_LAZY_PLAIN) return queue_plain(lazy, 0, lazy->list.command_count);
  return lazy->programs ? queue_compiled(lazy) : queue_groups(lazy);
}

hal_status_t hal_lazy_submit(hal_lazy_t *lazy) {
  hal_accesses_begin(&lazy->accesses, &lazy->list);
  lazy->seen.count = 0;
  if (lazy->desc.flags & HAL_LAZY_PLAIN || lazy->programs) return queue_new(lazy);
  hal_schedule_t *const schedule = hal_schedules_find(&lazy->schedules, lazy->fuse, &lazy->list, &lazy->info);
  if (schedule) return queue_schedule(lazy, schedule);
  const hal_status_t status = queue_new(lazy);
  hal_schedules_keep(&lazy->schedules, &lazy->info, !status);
  return status;
}
