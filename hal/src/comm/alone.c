/* alone.c: groups of one rank, which need no transport. A result is a copy of the operand on the device, or the operand
 * itself. Only products with a factor (PREMUL_SUM) are computed on the host, by a transport without connections. */
#include <string.h>

#include "base/dtype.h"
#include "comm/comm.h"
#include "comm/log.h"
#include "comm/shm/arithmetic.h"
#include "hal/memory.h"
#include "hal/status.h"

/* ---- what a call copies ---- */

typedef struct part_s {
  const char *from;
  char *to;
  size_t bytes; /* 0 = nothing */
} part_t;

/* Returns the elements of one side of a call, and where they start. */
static uint64_t elements_of(const hal_collective_t *call, int shape, const uint64_t *counts, const uint64_t *displs,
                            uint64_t *out_start) {
  const int is_array = shape == HAL_COMM_EACH && counts;
  *out_start = is_array && displs ? displs[0] : 0;
  if (shape == HAL_COMM_NONE) return 0;
  return is_array ? counts[0] : call->count;
}

static hal_status_t plan(const hal_comm_t *comm, const hal_collective_t *call, part_t *out) {
  const hal_comm_op_t *const op = &hal_comm_ops[call->op];
  const size_t size = hal_dtype_size(call->dtype);
  uint64_t send_start, recv_start;
  const uint64_t sent = elements_of(call, op->send, call->send_counts, call->send_displs, &send_start);
  const uint64_t received = elements_of(call, op->recv, call->recv_counts, call->recv_displs, &recv_start);
  *out = (part_t){0};
  if (call->op == HAL_COMM_BARRIER) return HAL_OK;
  if (sent != received)
    return hal_error_set(HAL_INVALID_ARGUMENT,
                         "%s of group '%s' of one rank sends %llu elements and receives %llu; expected the same number",
                         op->name, comm->name, (unsigned long long)sent, (unsigned long long)received);
  if (!sent || !call->recv) return HAL_OK; /* the root of BROADCAST may have one buffer */
  *out = (part_t){(const char *)call->send + send_start * size, (char *)call->recv + recv_start * size, sent * size};
  return HAL_OK;
}

static int moves(const part_t *part) { return part->bytes && part->from != part->to; }

/* ---- on the device ---- */

static int is_copy(const hal_collective_t *call) {
  return !(hal_comm_op_reduces(call->op) && call->reduce == HAL_REDUCE_PREMUL_SUM);
}

int hal_comm_alone_copies(const hal_comm_t *comm, const hal_collective_t *calls, uint32_t count) {
  if (!comm->is_alone) return 0;
  for (uint32_t i = 0; i < count; i++)
    if (!is_copy(&calls[i])) return 0;
  return 1;
}

hal_status_t hal_comm_alone_push(hal_comm_work_t *work, hal_stream_t *stream, const hal_collective_t *calls,
                                 uint32_t count) {
  hal_comm_t *const comm = work->comm;
  part_t part;
  for (uint32_t i = 0; i < count; i++) HAL_RETURN_IF_ERROR(plan(comm, &calls[i], &part));
  HAL_RETURN_IF_ERROR(hal_event_record(work->end, stream));
  HAL_RETURN_IF_ERROR(hal_stream_wait_event(comm->out, work->end));
  hal_comm_log_start(work->log);
  for (uint32_t i = 0; i < count; i++) {
    HAL_RETURN_IF_ERROR(plan(comm, &calls[i], &part));
    if (moves(&part))
      HAL_RETURN_IF_ERROR(hal_memory_copy(comm->out, part.to, comm->device, part.from, comm->device, part.bytes));
  }
  return hal_event_record(work->end, comm->out);
}

/* ---- on the host ---- */

/* Multiplies as the other transports do: computes 16-bit types in float, and rounds once. */
static void multiply(const hal_shm_reducer_t *reducer, const part_t *part, const void *factor) {
  enum { BLOCK = 512 };
  uint64_t wide[BLOCK * 2]; /* of any type */
  const hal_shm_arithmetic_t *const arithmetic = &reducer->arithmetic;
  const size_t count = part->bytes / reducer->size;
  for (size_t start = 0; start < count; start += BLOCK) {
    const size_t some = count - start < BLOCK ? count - start : BLOCK, numbers = some * reducer->numbers;
    const char *const from = part->from + start * reducer->size;
    char *const to = part->to + start * reducer->size;
    if (arithmetic->load)
      arithmetic->load(wide, from, numbers);
    else
      memcpy(wide, from, some * reducer->size);
    arithmetic->scale(wide, factor, numbers);
    if (arithmetic->store)
      arithmetic->store(to, wide, numbers);
    else
      memcpy(to, wide, some * reducer->size);
  }
}

static hal_status_t run(void *context, const hal_collective_t *calls, uint32_t count, int64_t timeout_ns) {
  (void)timeout_ns;
  for (uint32_t i = 0; i < count; i++) {
    const hal_collective_t *const call = &calls[i];
    hal_shm_reducer_t reducer;
    part_t part;
    HAL_RETURN_IF_ERROR(plan(context, call, &part));
    if (is_copy(call)) {
      if (moves(&part)) memmove(part.to, part.from, part.bytes);
      continue;
    }
    if (!hal_shm_reducer_find(call->dtype, call->reduce, &reducer))
      return hal_error_set(HAL_UNIMPLEMENTED, "%s: reduction %u of %s is not supported", hal_comm_op_name(call->op),
                           call->reduce, hal_dtype_name(call->dtype));
    multiply(&reducer, &part, call->scale);
  }
  return HAL_OK;
}

static void do_nothing(void *context) { (void)context; }
static void do_not_abort(void *context, const char *reason) { (void)context, (void)reason; }

hal_comm_transport_t hal_comm_alone_transport(hal_comm_t *comm) {
  return (hal_comm_transport_t){.struct_size = sizeof(hal_comm_transport_t),
                                .context = comm,
                                .name = "none",
                                .run = run,
                                .abort = do_not_abort,
                                .destroy = do_nothing,
                                .flags = HAL_COMM_COMPARES_CALLS};
}
