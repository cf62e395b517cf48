/* lifetime.c: begins and ends the recording of a lazy stream. */
#include <string.h>

#include "base/status_internal.h"
#include "hal/host_memory.h"
#include "hal/memory.h"
#include "lazy/lazy.h"
#include "op/internal.h"

enum {
  LIMIT = 16384, /* operators: a few steps of a large network */
  LEAST = 32768, /* elements: a kernel over them takes longer than it takes to record and queue it */
  PIECE = 128,   /* operators: some 50 us of recording, and as much work as an idle core needs to be worth waking */
};

/* Frees what the recording holds. Device, stream and queue remain for the stream's next recording. */
static void clear(hal_lazy_t *lazy) {
  hal_program_t *const program = &lazy->program;
  hal_lazy_lock_quiet(lazy); /* another thread may be about to flush */
  hal_program_lock(program);
  hal_lazy_discard_uploads(lazy); /* of a device that is not alive; otherwise there are none */
  hal_command_list_destroy(&lazy->list);
  hal_command_list_destroy(&program->list);
  hal_accesses_destroy(&lazy->accesses);
  hal_schedules_destroy(&lazy->schedules);
  hal_memory_pool_t *const scratch = lazy->scratch;
  lazy->programs = NULL;
  lazy->scratch = NULL;
  lazy->desc = (hal_lazy_desc_t){.struct_size = 0};
  lazy->info = (hal_lazy_info_t){.struct_size = 0};
  lazy->seen.count = 0;
  lazy->warned = program->reports = program->recording = 0;
  atomic_store_explicit(&program->open, 0, memory_order_relaxed);
  atomic_store_explicit(&program->recorded, 0, memory_order_relaxed);
  atomic_store_explicit(&lazy->flushed, 0, memory_order_relaxed);
  hal_program_unlock(program);
  hal_unlock(&lazy->queueing);
  hal_compiler_leave(program->device);
  hal_memory_pool_release(scratch);
}

/* The memory is kept for the stream's next recording: other threads may still have loaded the queue, and find it
 * empty. */
static void destroy(hal_lazy_t *lazy) {
  clear(lazy);
  hal_queue_park(&lazy->program.stream->slots[HAL_COMPONENT_LAZY], &lazy->front.queue);
}

/* Returns a parked queue with these functions: late calls read them. NULL = there is none. */
static hal_queue_t *unpark(hal_stream_t *stream, const hal_queue_calls_t *calls) {
  _Atomic(void *) *const slot = &stream->slots[HAL_COMPONENT_LAZY];
  hal_queue_t *const first = hal_queue_unpark(slot);
  if (!first || first->calls == calls) return first;
  hal_queue_t *const other = unpark(stream, calls); /* there are about two */
  hal_queue_park(slot, first);
  return other;
}

/* Returns an empty recording: the stream's previous one of the same kind, if there is one. NULL = no memory. */
static hal_lazy_t *take(hal_stream_t *stream, const hal_lazy_desc_t *desc) {
  const int groups = desc && desc->flags & HAL_LAZY_GROUPS;
  const hal_queue_calls_t *const calls = hal_lazy_calls(groups);
  hal_queue_t *const parked = unpark(stream, calls);
  if (parked) return hal_lazy_of(parked);
  hal_lazy_t *const lazy = hal_calloc(1, sizeof *lazy);
  if (!lazy) return NULL;
  lazy->front.queue.calls = calls;
  lazy->groups = groups;
  lazy->front.program = &lazy->program;
  lazy->program.front = &lazy->front;
  lazy->program.is_deferred = 1;
  lazy->program.device = stream->device;
  lazy->program.stream = stream;
  lazy->program.current_op = HAL_NO_OP;
  return lazy;
}

/* Copies the description, with defaults for missing values. */
static void set_desc(hal_lazy_t *lazy, const hal_lazy_desc_t *desc) {
  if (desc) memcpy(&lazy->desc, desc, desc->struct_size < sizeof *desc ? desc->struct_size : sizeof *desc);
  hal_lazy_observe(lazy);
  if (!lazy->desc.limit) lazy->desc.limit = LIMIT;
  if (!lazy->desc.least) lazy->desc.least = LEAST;
}

/* Starts a recording. `queueing` is held: a thread that has loaded the stream's queue before may use it. */
static hal_status_t set_up(hal_lazy_t *lazy, const hal_lazy_desc_t *desc) {
  hal_program_t *const program = &lazy->program;
  set_desc(lazy, desc);
  lazy->elementwise = hal_op_form_families();
  lazy->known_accesses = hal_op_form_elements();
  hal_program_lock(program);
  program->front->id = hal_program_new_id();
  program->recording = 1;
  hal_program_unlock(program);
  lazy->programs = hal_compiler_enter(program->device, !(lazy->desc.flags & (HAL_LAZY_PLAIN | HAL_LAZY_GROUPS)));
  if (!lazy->desc.piece) lazy->desc.piece = hal_compiler_takes_whole(lazy->programs) ? UINT32_MAX : PIECE;
  hal_lazy_begin_pieces(lazy);
  lazy->fuse = hal_fuse_of(program->device);
  if (!lazy->fuse) lazy->desc.flags |= HAL_LAZY_PLAIN; /* no memory for groups */
  lazy->wants_calls = lazy->programs || lazy->desc.flags & HAL_LAZY_DESCRIBED;
  return hal_memory_pool_create(program->device->index, &lazy->scratch);
}

hal_status_t hal_lazy_begin(hal_stream_t *stream, const hal_lazy_desc_t *desc, hal_lazy_t **out_lazy) {
  if (!stream) HAL_RETURN_IF_ERROR(hal_stream_current(hal_thread.device, &stream));
  HAL_RETURN_IF_ERROR(hal_device_check_alive(stream->device));
  if (desc && HAL_HAS_FIELD(desc, format)) HAL_RETURN_IF_ERROR(hal_command_list_check_format(desc->format));
  hal_lazy_t *const lazy = take(stream, desc);
  if (!lazy) return hal_error_set(HAL_RESOURCE_EXHAUSTED, "the host has no memory for a lazy stream");
  hal_lock_and_defer(&lazy->queueing);
  const hal_status_t status = set_up(lazy, desc);
  hal_unlock_and_run(&lazy->queueing);
  if (status) {
    destroy(lazy);
    return status;
  }
  hal_queue_t *found = &stream->direct.queue;
  if (!atomic_compare_exchange_strong(&stream->queue, &found, &lazy->front.queue)) {
    destroy(lazy);
    /* The other queue is parked when its recording ends, not freed, so it may be read. */
    return hal_error_set(HAL_FAILED_PRECONDITION,
                         "stream %lld of device %s is %s already; end that first, or use another stream",
                         (long long)stream->id, stream->device->label, hal_lazy_is(found) ? "lazy" : "being recorded");
  }
  if (lazy->groups) hal_lazy_idle_watch(lazy);
  *out_lazy = lazy;
  return HAL_OK;
}

/* Ends the recording if no command is left. Returns whether it has ended. Another thread may be submitting commands,
 * which direct work must follow: it holds `queueing`. */
static int try_end(hal_lazy_t *lazy) {
  hal_program_t *const program = &lazy->program;
  hal_lock_and_defer(&lazy->queueing);
  hal_program_lock(program);
  const int empty = !program->list.command_count;
  if (empty) {
    program->recording = 0;
    atomic_store_explicit(&program->stream->queue, &program->stream->direct.queue, memory_order_release);
  }
  hal_program_unlock(program);
  hal_unlock_and_run(&lazy->queueing);
  return empty;
}

hal_status_t hal_lazy_end(hal_lazy_t *lazy) {
  hal_status_t status = HAL_OK;
  if (!lazy) return HAL_OK;
  hal_lazy_idle_forget(lazy);
  if (!hal_device_is_alive(
          lazy->program.device)) { /* base/life.h: the commands belong to the parent or to a closed device */
    lazy->program.list.command_count = 0;
  }
  while (!try_end(lazy)) {
    const hal_status_t now = hal_lazy_flush_because(lazy, "hal_lazy_end", 0);
    if (!status) status = now;
  }
  destroy(lazy);
  return status;
}
