/* flush.c: takes the command list off its recording, submits it (submit.c), and reports a failure to the caller. */
#include "base/stack.h"
#include "base/status_internal.h"
#include "device/failure.h"
#include "device/kernel_error.h"
#include "hal/host_memory.h"
#include "lazy/lazy.h"
#include "memory/allocator.h"

enum { KEPT_ARENA = 4 * (1 << 20) /* bytes that a command list keeps for the next one */ };

/* The recording that this thread submits: a plugin's operator that is called may allocate memory, which may flush the
 * stream. */
static _Thread_local const hal_lazy_t *submitting_here;

int hal_lazy_is_submitting_here(const hal_lazy_t *lazy) { return submitting_here == lazy; }

/* Empties a command list. Its arrays are kept, a large arena is not. */
static void rewind_list(hal_command_list_t *list) {
  list->command_count = list->op_count = 0;
  if (list->arena.bytes > KEPT_ARENA)
    hal_arena_destroy(&list->arena);
  else
    hal_arena_rewind(&list->arena);
}

/* Takes the recorded commands off their recording. `queueing` is held. Returns 0 when there is nothing to submit, 2
 * when kernels may report errors, else 1. */
static int take_list(hal_lazy_t *lazy) {
  hal_program_t *const program = &lazy->program;
  hal_program_lock(program);
  const hal_command_list_t recorded = program->list;
  program->list = lazy->list;
  lazy->list = recorded;
  lazy->queued = lazy->uploads;
  lazy->uploads = NULL;
  const int reports = program->reports;
  program->reports = 0;
  program->front->id = hal_program_new_id(); /* of the next list: operators that are being recorded continue there */
  atomic_store_explicit(&lazy->flushed, atomic_load_explicit(&program->recorded, memory_order_relaxed),
                        memory_order_relaxed);
  hal_program_unlock(program);
  return lazy->list.command_count || reports ? 1 + reports : 0;
}

/* Submits the list that take_list has taken. `queueing` is held. */
static hal_status_t submit_taken(hal_lazy_t *lazy, const char *cause) {
  const hal_lazy_t *const outer = submitting_here;
  hal_metrics_t *const metrics = lazy->fuse ? &lazy->fuse->metrics : NULL;
  if (HAL_UNLIKELY(lazy->desc.queueing != NULL)) hal_lazy_report_queueing(lazy, cause);
  const uint32_t commands = lazy->list.command_count;
  const int64_t begin = metrics ? hal_metric_begin() : 0;
  submitting_here = lazy;
  const hal_status_t status = hal_lazy_submit(lazy);
  hal_lazy_release_uploads(lazy);
  submitting_here = outer;
  if (metrics) hal_metric_end(metrics, HAL_LAZY_QUEUE_NS, begin);
  if (metrics) hal_metric_add(metrics, HAL_LAZY_COMMANDS, commands);
  lazy->info.flushes++;
  return status;
}

/* Notes that no command waits, unless one was recorded meanwhile: direct work may follow. `queueing` is held. */
static void close_group(hal_lazy_t *lazy) {
  hal_program_t *const program = &lazy->program;
  hal_program_lock(program);
  if (!program->list.command_count) atomic_store_explicit(&program->open, 0, memory_order_release);
  hal_program_unlock(program);
}

static void lock_queueing(hal_lazy_t *lazy) {
  if (HAL_LIKELY(hal_try_lock(&lazy->queueing))) return;
  const int64_t begin = hal_metric_begin();
  hal_lock(&lazy->queueing);
  if (lazy->fuse) hal_metric_end(&lazy->fuse->metrics, HAL_LAZY_LOCK_NS, begin);
}

hal_status_t hal_lazy_flush_because(hal_lazy_t *lazy, const char *cause, int needed) {
  hal_stream_t *const stream = lazy->program.stream;
  if (submitting_here == lazy) return HAL_OK;
  if (lazy->groups && !hal_lazy_is_open(lazy)) return HAL_OK;
  HAL_RETURN_IF_ERROR(hal_device_check_alive(lazy->program.device));
  hal_stack_remember();
  hal_callbacks_defer();
  lock_queueing(lazy);
  hal_block_t *const leaving = hal_memory_take_leaving(stream); /* before the list, which has all their uses */
  const int taken = take_list(lazy);
  if (needed) hal_lazy_begin_pieces(lazy);
  hal_memory_end_hold(stream); /* later commands come after those of the list */
  hal_status_t status = HAL_OK;
  if (taken) {
    status = submit_taken(lazy, cause);
    lazy->info.needed += needed != 0;
  }
  hal_memory_free_leaving(stream, leaving);
  rewind_list(&lazy->list);
  if (lazy->groups) close_group(lazy);
  const hal_lazy_failure_t failure = lazy->failure;
  if (status) hal_lazy_retain_desc(lazy);
  hal_unlock_and_run(&lazy->queueing);
  if (status) {
    status = hal_lazy_failed(&lazy->desc, &failure, status);
    hal_lazy_release_desc(lazy);
  }
  if (taken == 2 && !status) status = hal_kernel_error_launched(stream);
  return status;
}

hal_status_t hal_lazy_flush_for(hal_queue_t *queue, const char *what) {
  return hal_lazy_flush_because(hal_lazy_of(queue), what, 1);
}
