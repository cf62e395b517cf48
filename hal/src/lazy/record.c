/* record.c: records operators on a lazy stream, and flushes it when enough operators are deferred. */
#include <stdio.h>

#include "device/failure.h"
#include "hal/log.h"
#include "lazy/lazy.h"
#include "op/internal.h"

__attribute__((noinline)) void hal_lazy_flush_quietly(hal_lazy_t *lazy, const char *cause) {
  const hal_status_t status = hal_lazy_flush_because(lazy, cause, 0);
  if (status) hal_failure_record(lazy->program.stream, status);
}

/* The ends of pieces depend only on the operators, not on the progress of the device, so that a repeated step has the
 * same pieces and the same groups. */
void hal_lazy_begin_pieces(hal_lazy_t *lazy) {
  const uint32_t piece = lazy->desc.piece;
  const int grows =
      piece != UINT32_MAX && piece > HAL_LAZY_FIRST && lazy->program.device->info.flags & HAL_DEVICE_ASYNC;
  atomic_store_explicit(&lazy->piece, grows ? HAL_LAZY_FIRST : piece, memory_order_relaxed);
}

/* Doubles the size of the next piece: the device is busy with the previous ones while it is recorded. */
static void grow_piece(hal_lazy_t *lazy) {
  const uint32_t piece = atomic_load_explicit(&lazy->piece, memory_order_relaxed), most = lazy->desc.piece;
  atomic_store_explicit(&lazy->piece, piece > most / 2 ? most : 2 * piece, memory_order_relaxed);
}

/* Flushes a stream whose limit of operators is reached. The first time, a warning is logged. */
static __attribute__((noinline)) void flush_full(hal_lazy_t *lazy) {
  hal_lazy_flush_quietly(lazy, "the limit of operators");
  hal_lock(&lazy->queueing);
  lazy->info.limits++;
  const int warn = !lazy->warned;
  lazy->warned = 1;
  hal_unlock(&lazy->queueing);
  if (!warn) return;
  char where[280];
  hal_lazy_write_position(&lazy->desc, where, sizeof where);
  hal_log(HAL_LOG_WARNING,
          "stream %lld of device %s: %u operators were deferred%s without a synchronization point; flushing. Call "
          "mark_step() (in C: hal_lazy_flush) once per iteration",
          (long long)lazy->program.stream->id, lazy->program.device->label, (unsigned)lazy->desc.limit, where);
}

/* Returns whether the launches of an operator determine what it accesses. */
static inline int has_known_accesses(const hal_lazy_t *lazy, uint32_t op) {
  return op < HAL_OP_ID_COUNT && lazy->known_accesses >> hal_op_infos[op].family & 1;
}

/* Passes the call of the operator that begins to the recording, if it is described, compiled, or needed to find its
 * memory accesses. */
static __attribute__((noinline)) void pass_call(const hal_lazy_t *lazy, hal_recorded_op_t *op,
                                                const hal_op_call_t *call) {
  op->described = (lazy->desc.flags & HAL_LAZY_DESCRIBED) != 0;
  op->accepted = call && lazy->programs && hal_compiler_accepts(lazy->programs, op->op, call);
  op->spans = call && !has_known_accesses(lazy, op->op);
  op->call = op->described || op->accepted || op->spans ? call : NULL;
}

/* Flushes the stream before an operator if that is due. */
static __attribute__((noinline)) void flush_due(hal_lazy_t *lazy, uint64_t deferred) {
  if (deferred >= lazy->desc.limit) {
    flush_full(lazy);
    return;
  }
  hal_lazy_flush_quietly(lazy, "enough for the device to begin");
  grow_piece(lazy);
}

int hal_lazy_begin_op(hal_queue_t *queue, hal_recorded_op_t *op, const hal_op_call_t *call) {
  hal_lazy_t *const lazy = hal_lazy_of(queue);
  if (HAL_UNLIKELY(lazy->programs != NULL) && op->outer && !op->outer->passes) return 0;
  const uint64_t recorded = atomic_load_explicit(&lazy->program.recorded, memory_order_relaxed);
  const uint64_t deferred = recorded - atomic_load_explicit(&lazy->flushed, memory_order_relaxed);
  if (HAL_UNLIKELY(deferred >= lazy->desc.limit) ||
      (deferred >= atomic_load_explicit(&lazy->piece, memory_order_relaxed) && !hal_lazy_is_fusable(lazy, op->op)))
    flush_due(lazy, deferred);
  if (lazy->desc.origin) op->origin = lazy->desc.origin(lazy->desc.state);
  if (HAL_UNLIKELY(lazy->wants_calls || !has_known_accesses(lazy, op->op))) pass_call(lazy, op, call);
  return 1;
}

void hal_lazy_end_op(hal_queue_t *queue, hal_recorded_op_t *op) {
  hal_program_t *const program = &hal_lazy_of(queue)->program;
  if (HAL_LIKELY(!op->accepted)) return;
  hal_program_lock(program);
  if (op->recording == program->front->id) program->list.ops[op->index].complete = 1;
  hal_program_unlock(program);
}

int hal_lazy_record_release(hal_queue_t *queue, const void *address, size_t size) {
  hal_program_t *const program = &hal_lazy_of(queue)->program;
  hal_program_lock(program);
  hal_command_t *const note =
      program->recording && program->list.command_count ? hal_program_append(program, HAL_COMMAND_FREED) : NULL;
  if (note) {
    note->u.freed.address = address;
    note->u.freed.size = size;
  }
  hal_program_unlock(program);
  return note != NULL;
}
