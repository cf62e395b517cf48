/* lazy.c: streams with deferred work: it is recorded as a program's work is, and launched once, when something needs it. */
#include "lazy/lazy.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/status_internal.h"
#include "device/failure.h"
#include "device/kernel_error.h"
#include "hal/host_memory.h"
#include "hal/log.h"
#include "hal/memory.h"
#include "hal/status.h"
#include "hal_op_ids.h"
#include "op/internal.h"

enum {
  LIMIT = 16384, /* operators: a few steps of a large network */
  PIECE = 128,   /* operators: some 50 us of recording, and as much work as an idle core needs to be worth waking */
  FIRST = 16,    /* operators: of a piece for a device that has nothing to do */
  MOST_UPLOAD = 64 << 20,     /* bytes that a recording takes a copy of */
  KEPT_ARENA = 4 * (1 << 20), /* bytes that a tape keeps for the next one */
};

/* ---- queueing -------------------------------------------------------------------------------------------------------------- */

static void free_uploads(void *data) {
  for (hal_upload_t *upload = data, *next; upload; upload = next) {
    next = upload->next;
    hal_free(upload);
  }
}

/* Frees the bytes of the copies that were queued, when these are done. */
static void release_uploads(hal_lazy_t *lazy) {
  hal_upload_t *const uploads = lazy->queued;
  hal_stream_t *const stream = lazy->program.stream;
  lazy->queued = NULL;
  if (!uploads || !hal_memory_defer(stream->device->index, stream, free_uploads, uploads)) return;
  const hal_status_t status = hal_call_stream_synchronize(stream->device->plugin, stream->direct.handle);
  if (status) hal_failure_keep_plugin(stream, HAL_SLOT_stream_synchronize, status);
  free_uploads(uploads);
}

/* Makes a tape empty, with its room; much of it is given back. */
static void rewind_tape(hal_tape_t *tape) {
  tape->command_count = tape->op_count = 0;
  if (tape->arena.bytes > KEPT_ARENA)
    hal_arena_destroy(&tape->arena);
  else
    hal_arena_rewind(&tape->arena);
}

/* What this thread queues now: a plugin's operator that is called may ask for memory, which may ask for what was recorded. */
static _Thread_local const hal_lazy_t *queued_here;

/* Takes what was recorded off its recording. `queueing` is held. 0 = there is nothing. */
static int take_tape(hal_lazy_t *lazy) {
  hal_program_t *const program = &lazy->program;
  hal_program_lock(program);
  const hal_tape_t recorded = program->tape;
  program->tape = lazy->tape;
  lazy->tape = recorded;
  lazy->queued = lazy->uploads;
  lazy->uploads = NULL;
  const int reports = program->reports;
  program->reports = 0;
  program->front->id = hal_program_new_id(); /* of the next tape: operators that are being recorded go on there */
  atomic_store_explicit(&lazy->settled, atomic_load_explicit(&program->recorded, memory_order_relaxed),
                        memory_order_relaxed);
  hal_program_unlock(program);
  return lazy->tape.command_count || reports ? 1 + reports : 0;
}

/* Whether the device has done all that was queued. */
static int has_done_all(const hal_lazy_t *lazy) {
  hal_stream_t *const stream = lazy->program.stream;
  const hal_status_t status = hal_call_stream_query(stream->device->plugin, stream->direct.handle);
  if (status && status != HAL_NOT_READY) hal_failure_keep_plugin(stream, HAL_SLOT_stream_query, status);
  return status == HAL_OK;
}

/* Queues what was taken off the recording. `queueing` is held. */
static hal_status_t queue_taken(hal_lazy_t *lazy, const char *cause) {
  const hal_lazy_t *const outer = queued_here;
  hal_metrics_t *const metrics = lazy->fuse ? &lazy->fuse->metrics : NULL;
  if (HAL_UNLIKELY(lazy->desc.queueing != NULL)) hal_lazy_tell_queueing(lazy, cause);
  const uint32_t commands = lazy->tape.command_count;
  const int64_t begin = metrics ? hal_metric_begin() : 0;
  queued_here = lazy;
  const hal_status_t status = hal_lazy_queue_tape(lazy);
  if (!atomic_load_explicit(&lazy->asynchronous, memory_order_relaxed) && !has_done_all(lazy))
    atomic_store_explicit(&lazy->asynchronous, 1, memory_order_relaxed);
  release_uploads(lazy);
  queued_here = outer;
  if (metrics) hal_metric_end(metrics, HAL_LAZY_QUEUE_NS, begin);
  if (metrics) hal_metric_add(metrics, HAL_LAZY_COMMANDS, commands);
  lazy->info.flushes++;
  return status;
}

static void lock_queueing(hal_lazy_t *lazy) {
  if (HAL_LIKELY(hal_try_lock(&lazy->queueing))) return;
  const int64_t begin = hal_metric_begin();
  hal_lock(&lazy->queueing);
  if (lazy->fuse) hal_metric_end(&lazy->fuse->metrics, HAL_LAZY_LOCK_NS, begin);
}

/* Queues what there is. `needed`: since something needs the results; else the program, or the amount, asked for it. */
static hal_status_t flush(hal_lazy_t *lazy, const char *cause, int needed) {
  hal_stream_t *const stream = lazy->program.stream;
  if (queued_here == lazy) return HAL_OK;
  HAL_RETURN_IF_ERROR(hal_device_check_alive(lazy->program.device));
  hal_callbacks_defer();
  lock_queueing(lazy);
  const int taken = take_tape(lazy);
  hal_status_t status = HAL_OK;
  if (taken) {
    status = queue_taken(lazy, cause);
    lazy->info.needed += needed != 0;
  }
  rewind_tape(&lazy->tape);
  const hal_lazy_failure_t failure = lazy->failure;
  if (status) hal_lazy_hold(lazy);
  hal_unlock_and_run(&lazy->queueing);
  if (status) {
    status = hal_lazy_failed(&lazy->desc, &failure, status);
    hal_lazy_let_go(lazy);
  }
  if (taken == 2 && !status) status = hal_kernel_error_launched(stream);
  return status;
}

hal_status_t hal_lazy_flush_for(hal_queue_t *queue, const char *what) { return flush(hal_lazy_of(queue), what, 1); }

/* ---- recording ------------------------------------------------------------------------------------------------------------- */

/* Queues what there is; a failure is told at the stream's next synchronisation. */
static __attribute__((noinline)) void flush_quietly(hal_lazy_t *lazy, const char *cause) {
  const hal_status_t status = flush(lazy, cause, 0);
  if (status) hal_failure_keep(lazy->program.stream, status);
}

/* Whether an operator may belong to a group that the ones before it began. */
static inline int is_elementwise(const hal_lazy_t *lazy, uint32_t op) {
  return op < HAL_OP_ID_COUNT && lazy->families >> hal_op_infos[op].family & 1;
}

/* Whether so much was put off that the device may begin with it: a piece, or less while it has nothing to do. It is asked now and then. */
static __attribute__((noinline)) int is_enough(hal_lazy_t *lazy, uint64_t recorded, uint64_t put_off) {
  if (put_off >= lazy->desc.piece) return 1;
  if (!atomic_load_explicit(&lazy->asynchronous, memory_order_relaxed) ||
      recorded < atomic_load_explicit(&lazy->look, memory_order_relaxed))
    return 0;
  atomic_store_explicit(&lazy->look, recorded + FIRST, memory_order_relaxed);
  return lazy->desc.piece != UINT32_MAX && has_done_all(lazy);
}

/* Writes " at train.py:17" of the operator that begins; nothing where nobody knows. */
static void write_here(const hal_lazy_desc_t *desc, char *text, size_t room) {
  const hal_lazy_origin_fn_t origin = desc->origin ? desc->origin : desc->limit_origin;
  char where[256] = "";
  *text = '\0';
  if (origin && desc->describe) {
    hal_callback_check();
    desc->describe(desc->state, origin(desc->state), where, sizeof where);
  }
  if (*where) snprintf(text, room, " at %s", where);
}

/* Queues what there is when it has become much. */
static __attribute__((noinline)) void flush_full(hal_lazy_t *lazy) {
  flush_quietly(lazy, "the limit of operators");
  hal_lock(&lazy->queueing);
  lazy->info.limits++;
  const int warn = !lazy->warned;
  lazy->warned = 1;
  hal_unlock(&lazy->queueing);
  if (!warn) return;
  char where[280];
  write_here(&lazy->desc, where, sizeof where);
  hal_log(
      HAL_LOG_WARNING,
      "stream %lld of device %s: %u operators were put off%s and nothing asked for them, so they are queued now; mark "
      "the steps of the loop",
      (long long)lazy->program.stream->id, lazy->program.device->label, (unsigned)lazy->desc.limit, where);
}

/* Whether the launches of an operator tell what it accesses. */
static inline int is_told(const hal_lazy_t *lazy, uint32_t op) {
  return op < HAL_OP_ID_COUNT && lazy->told >> hal_op_infos[op].family & 1;
}

/* Shows the call of the operator that begins to who describes or compiles it, or wants to know what it accesses. */
static __attribute__((noinline)) void show_call(const hal_lazy_t *lazy, hal_recorded_op_t *op,
                                                const hal_op_call_t *call) {
  op->described = (lazy->desc.flags & HAL_LAZY_DESCRIBED) != 0;
  op->accepted = call && lazy->programs && hal_compiler_accepts(lazy->programs, op->op, call);
  op->spans = call && !is_told(lazy, op->op);
  op->call = op->described || op->accepted || op->spans ? call : NULL;
}

/* Queues what there is before an operator where that is due. */
static __attribute__((noinline)) void flush_due(hal_lazy_t *lazy, uint32_t op, uint64_t recorded, uint64_t put_off) {
  if (put_off >= lazy->first && !is_elementwise(lazy, op) && is_enough(lazy, recorded, put_off))
    flush_quietly(lazy, "enough for the device to begin");
  if (put_off >= lazy->desc.limit) flush_full(lazy);
}

static int begin_op(hal_queue_t *queue, hal_recorded_op_t *op, const hal_op_call_t *call) {
  hal_lazy_t *const lazy = hal_lazy_of(queue);
  if (HAL_UNLIKELY(lazy->programs != NULL) && op->outer) return 0;
  const uint64_t recorded = atomic_load_explicit(&lazy->program.recorded, memory_order_relaxed);
  const uint64_t put_off = recorded - atomic_load_explicit(&lazy->settled, memory_order_relaxed);
  if (put_off >= lazy->due && (!is_elementwise(lazy, op->op) || HAL_UNLIKELY(put_off >= lazy->desc.limit)))
    flush_due(lazy, op->op, recorded, put_off);
  if (lazy->desc.origin) op->origin = lazy->desc.origin(lazy->desc.state);
  if (HAL_UNLIKELY(lazy->shows || !is_told(lazy, op->op))) show_call(lazy, op, call);
  return 1;
}

/* Notes that all commands of the operator are on the tape, if they are on one. */
static void end_op(hal_queue_t *queue, hal_recorded_op_t *op) {
  hal_program_t *const program = &hal_lazy_of(queue)->program;
  if (HAL_LIKELY(!op->accepted)) return;
  hal_program_lock(program);
  if (op->recording == program->front->id) program->tape.ops[op->index].complete = 1;
  hal_program_unlock(program);
}

/* Records a copy of host memory, which its owner may change or free: of the bytes that it holds now. */
static hal_status_t record_upload(hal_lazy_t *lazy, void *dst, int32_t dst_device, const void *src, size_t size) {
  hal_program_t *program;
  hal_upload_t *const upload = hal_malloc(sizeof *upload + size);
  if (!upload) return hal_error_set(HAL_RESOURCE_EXHAUSTED, "the host has no memory for the %zu bytes of a copy", size);
  const int64_t begin = lazy->fuse ? hal_metric_begin() : 0;
  memcpy(upload->bytes, src, size);
  if (lazy->fuse) hal_metric_end(&lazy->fuse->metrics, HAL_LAZY_UPLOAD_NS, begin);
  if (lazy->fuse) hal_metric_add(&lazy->fuse->metrics, HAL_LAZY_UPLOAD_BYTES, size);
  const hal_status_t status = hal_program_enter(&lazy->front.queue, &program);
  if (status) {
    hal_free(upload);
    return status;
  }
  upload->next = lazy->uploads;
  lazy->uploads = upload;
  hal_command_t *const command = hal_program_append(program, HAL_COMMAND_COPY);
  if (!command)
    return hal_program_leave(program, hal_error_set(HAL_RESOURCE_EXHAUSTED, "the host has no memory for a copy"));
  command->u.copy.dst = dst;
  command->u.copy.src = upload->bytes;
  command->u.copy.size = size;
  command->u.copy.dst_device = dst_device;
  command->u.copy.src_device = HAL_HOST;
  return hal_program_leave(program, HAL_OK);
}

/* Queues what a copy to the host reads, and where the caller is about to wait for it, waits. */
static hal_status_t before_download(hal_lazy_t *lazy, const void *dst, size_t size) {
  int32_t device;
  char where[280] = "", cause[320];
  const int64_t begin = hal_metric_begin();
  if (HAL_UNLIKELY(lazy->desc.queueing && lazy->desc.origin)) write_here(&lazy->desc, where, sizeof where);
  snprintf(cause, sizeof cause, "a copy to the host%s", where);
  HAL_RETURN_IF_ERROR(flush(lazy, cause, 1));
  if (!lazy->fuse) return HAL_OK;
  hal_metric_add(&lazy->fuse->metrics, HAL_LAZY_DOWNLOAD_BYTES, size);
  if (hal_host_find(dst, &device) == HAL_OK) return HAL_OK; /* page-locked: the copy itself is queued */
  hal_stream_t *const stream = lazy->program.stream;
  const hal_status_t status = hal_call_stream_synchronize(stream->device->plugin, stream->direct.handle);
  if (status) hal_failure_keep_plugin(stream, HAL_SLOT_stream_synchronize, status);
  hal_metric_end(&lazy->fuse->metrics, HAL_LAZY_DOWNLOAD_NS, begin);
  return HAL_OK;
}

static hal_status_t record_copy(hal_queue_t *queue, void *dst, int32_t dst_device, const void *src, int32_t src_device,
                                size_t size) {
  int32_t device;
  hal_lazy_t *const lazy = hal_lazy_of(queue);
  hal_queue_t *const direct = hal_lazy_direct(lazy);
  const int to_host = dst_device == HAL_HOST, from_host = src_device == HAL_HOST;
  if (from_host && size <= MOST_UPLOAD) return record_upload(lazy, dst, dst_device, src, size);
  if (!to_host && !from_host) return hal_program_calls.copy(queue, dst, dst_device, src, src_device, size);
  if (to_host) { /* which the caller is about to wait for */
    HAL_RETURN_IF_ERROR(before_download(lazy, dst, size));
    return hal_direct_calls.copy(direct, dst, dst_device, src, src_device, size);
  }
  HAL_RETURN_IF_ERROR(flush(lazy, "a large copy from the host", 1));
  const hal_status_t status = hal_direct_calls.copy(direct, dst, dst_device, src, src_device, size);
  if (status || hal_host_find(src, &device) == HAL_OK)
    return status; /* page-locked: read as soon as without recording */
  /* Recorded copies leave the source to the caller. */
  return hal_error_plugin(lazy->program.device->plugin, HAL_SLOT_memory_copy, hal_direct_calls.synchronize(direct));
}

static void released(hal_queue_t *queue, const void *address, size_t size) {
  hal_program_t *const program = &hal_lazy_of(queue)->program;
  hal_program_lock(program);
  hal_command_t *const note =
      program->recording && program->tape.command_count ? hal_program_append(program, HAL_COMMAND_FREED) : NULL;
  if (note) {
    note->u.freed.address = address;
    note->u.freed.size = size;
  }
  hal_program_unlock(program);
}

static void describe(hal_queue_t *queue, uint64_t origin, char *text, size_t room) {
  hal_lazy_t *const lazy = hal_lazy_of(queue);
  const int holds = queued_here == lazy;
  if (!holds) hal_lock(&lazy->queueing);
  const hal_lazy_desc_t desc = lazy->desc;
  hal_lazy_hold(lazy);
  if (!holds) hal_unlock(&lazy->queueing);
  hal_lazy_describe(&desc, origin, text, room);
  hal_lazy_let_go(lazy);
}

static hal_queue_calls_t lazy_calls(void) {
  hal_queue_calls_t calls = hal_program_calls;
  calls.begin_op = begin_op;
  calls.end_op = end_op;
  calls.copy = record_copy;
  calls.flush = calls.require = hal_lazy_flush_for;
  hal_lazy_pass_on(&calls);
  calls.describe = describe;
  calls.released = released;
  return calls;
}

/* ---- life ------------------------------------------------------------------------------------------------------------------ */

static hal_queue_calls_t calls_table;
static pthread_once_t calls_once = PTHREAD_ONCE_INIT;
static void fill_calls(void) { calls_table = lazy_calls(); }

/* Frees what it holds, so that it is as a new one but for its device and stream. */
static void clear(hal_lazy_t *lazy) {
  hal_program_t *const program = &lazy->program;
  hal_lazy_lock_quiet(lazy); /* another thread may be about to queue what there was */
  hal_program_lock(program);
  free_uploads(lazy->uploads); /* of a device that is not alive; else there are none */
  lazy->uploads = NULL;
  hal_tape_destroy(&lazy->tape);
  hal_tape_destroy(&program->tape);
  hal_accesses_destroy(&lazy->accesses);
  hal_schedules_destroy(&lazy->schedules);
  hal_memory_pool_t *const scratch = lazy->scratch;
  lazy->programs = NULL;
  lazy->scratch = NULL;
  lazy->desc = (hal_lazy_desc_t){.struct_size = 0};
  lazy->info = (hal_lazy_info_t){.struct_size = 0};
  lazy->seen.count = 0;
  lazy->warned = program->reports = program->recording = 0;
  atomic_store_explicit(&program->recorded, 0, memory_order_relaxed);
  atomic_store_explicit(&lazy->settled, 0, memory_order_relaxed);
  atomic_store_explicit(&lazy->look, 0, memory_order_relaxed);
  atomic_store_explicit(&lazy->asynchronous, 0, memory_order_relaxed);
  hal_program_unlock(program);
  hal_unlock(&lazy->queueing);
  hal_compiler_leave(program->device);
  hal_memory_pool_release(scratch);
}

/* Its memory is kept for the stream's next one: threads may still hold it, and find nothing to do. */
static void destroy(hal_lazy_t *lazy) {
  clear(lazy);
  hal_queue_park(&lazy->program.stream->parked[HAL_QUEUE_LAZY], &lazy->front.queue);
}

/* Gives an empty one: where the stream has one, that of before. NULL = no memory. */
static hal_lazy_t *take(hal_stream_t *stream) {
  hal_queue_t *const parked = hal_queue_unpark(&stream->parked[HAL_QUEUE_LAZY]);
  if (parked) return hal_lazy_of(parked);
  hal_lazy_t *const lazy = hal_calloc(1, sizeof *lazy);
  if (!lazy) return NULL;
  pthread_once(&calls_once, fill_calls);
  lazy->front.queue.calls = &calls_table;
  lazy->front.program = &lazy->program;
  lazy->program.front = &lazy->front;
  lazy->program.is_deferred = 1;
  lazy->program.device = stream->device;
  lazy->program.stream = stream;
  lazy->program.current_op = HAL_NO_OP;
  return lazy;
}

/* Makes an empty one a recording. `queueing` is held: a thread that has loaded the stream's queue before may look at it. */
static hal_status_t set_up(hal_lazy_t *lazy, const hal_lazy_desc_t *desc) {
  hal_program_t *const program = &lazy->program;
  if (desc) memcpy(&lazy->desc, desc, desc->struct_size < sizeof *desc ? desc->struct_size : sizeof *desc);
  hal_lazy_observe(lazy);
  if (!lazy->desc.limit) lazy->desc.limit = LIMIT;
  if (!lazy->desc.piece) lazy->desc.piece = PIECE;
  lazy->first = lazy->desc.piece < FIRST ? lazy->desc.piece : FIRST;
  lazy->due = lazy->desc.limit < lazy->first ? lazy->desc.limit : lazy->first;
  lazy->families = hal_op_form_families();
  lazy->told = hal_op_form_elements();
  hal_program_lock(program);
  program->front->id = hal_program_new_id();
  program->recording = 1;
  hal_program_unlock(program);
  lazy->programs = hal_compiler_enter(program->device, !(lazy->desc.flags & HAL_LAZY_PLAIN));
  lazy->fuse = hal_fuse_of(program->device);
  if (!lazy->fuse) lazy->desc.flags |= HAL_LAZY_PLAIN; /* no memory for more */
  lazy->shows = lazy->programs || lazy->desc.flags & HAL_LAZY_DESCRIBED;
  return hal_memory_pool_create(program->device->index, &lazy->scratch);
}

hal_status_t hal_lazy_begin(hal_stream_t *stream, const hal_lazy_desc_t *desc, hal_lazy_t **out_lazy) {
  if (!stream) HAL_RETURN_IF_ERROR(hal_stream_current(hal_thread.device, &stream));
  HAL_RETURN_IF_ERROR(hal_device_check_alive(stream->device));
  if (desc && HAL_HAS_FIELD(desc, format)) HAL_RETURN_IF_ERROR(hal_tape_check_format(desc->format));
  hal_lazy_t *const lazy = take(stream);
  if (!lazy) return hal_error_set(HAL_RESOURCE_EXHAUSTED, "the host has no memory to put work off");
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
    /* The other queue is parked when its recording ends, not freed: it may be looked at. */
    return hal_error_set(
        HAL_FAILED_PRECONDITION, "stream %lld of device %s is %s already; end that first, or take another stream",
        (long long)stream->id, stream->device->label, found->calls == &calls_table ? "lazy" : "being recorded");
  }
  *out_lazy = lazy;
  return HAL_OK;
}

hal_status_t hal_lazy_flush(hal_lazy_t *lazy) { return flush(lazy, "hal_lazy_flush", 0); }

/* Ends the recording when nothing is left to queue. */
static int ends(hal_lazy_t *lazy) {
  hal_program_t *const program = &lazy->program;
  hal_program_lock(program);
  const int empty = !program->tape.command_count;
  if (empty) {
    program->recording = 0;
    atomic_store_explicit(&program->stream->queue, &program->stream->direct.queue, memory_order_release);
  }
  hal_program_unlock(program);
  return empty;
}

hal_status_t hal_lazy_end(hal_lazy_t *lazy) {
  hal_status_t status = HAL_OK;
  if (!lazy) return HAL_OK;
  if (!hal_device_is_alive(lazy->program.device)) { /* base/life.h: what it put off is the parent's, or too late */
    lazy->program.tape.command_count = 0;
  }
  while (!ends(lazy)) {
    const hal_status_t now = flush(lazy, "hal_lazy_end", 0);
    if (!status) status = now;
  }
  destroy(lazy);
  return status;
}

hal_lazy_t *hal_lazy_of_stream(hal_stream_t *stream) {
  if (!stream && hal_stream_current(hal_thread.device, &stream)) return NULL;
  hal_queue_t *const queue = hal_stream_queue(stream);
  return queue->calls == &calls_table ? hal_lazy_of(queue) : NULL;
}

hal_status_t hal_lazy_info(hal_lazy_t *lazy, hal_lazy_info_t *out_info) {
  hal_lock(&lazy->queueing);
  hal_lazy_info_t info = lazy->info;
  hal_unlock(&lazy->queueing);
  hal_program_lock(&lazy->program);
  info.pending = lazy->program.tape.command_count;
  hal_program_unlock(&lazy->program);
  info.recorded = atomic_load_explicit(&lazy->program.recorded, memory_order_relaxed);
  info.struct_size = out_info->struct_size < sizeof info ? out_info->struct_size : sizeof info;
  memcpy(out_info, &info, info.struct_size);
  return HAL_OK;
}
