/* check.c: checks a collective without other ranks, and computes the memory that it uses and the fingerprint that the
 * ranks compare. */
#include <stdint.h>
#include <string.h>

#include "base/dtype.h"
#include "comm/comm.h"
#include "hal/status.h"

const hal_comm_op_t hal_comm_ops[HAL_COMM_OPS] = {
    [HAL_COMM_ALL_REDUCE] = {"all_reduce", HAL_COMM_ONE, HAL_COMM_ONE, 0, 0, 1},
    [HAL_COMM_BROADCAST] = {"broadcast", HAL_COMM_ONE, HAL_COMM_ONE, 1, 0, 0},
    [HAL_COMM_REDUCE] = {"reduce", HAL_COMM_ONE, HAL_COMM_ONE, 0, 1, 1},
    [HAL_COMM_ALL_GATHER] = {"all_gather", HAL_COMM_ONE, HAL_COMM_EACH, 0, 0, 0},
    [HAL_COMM_REDUCE_SCATTER] = {"reduce_scatter", HAL_COMM_EACH, HAL_COMM_ONE, 0, 0, 1},
    [HAL_COMM_ALL_TO_ALL] = {"all_to_all", HAL_COMM_EACH, HAL_COMM_EACH, 0, 0, 0},
    [HAL_COMM_SEND] = {"send", HAL_COMM_ONE, HAL_COMM_NONE, 0, 0, 0},
    [HAL_COMM_RECV] = {"recv", HAL_COMM_NONE, HAL_COMM_ONE, 0, 0, 0},
    [HAL_COMM_BARRIER] = {"barrier", HAL_COMM_NONE, HAL_COMM_NONE, 0, 0, 0},
    [HAL_COMM_GATHER] = {"gather", HAL_COMM_ONE, HAL_COMM_EACH, 0, 1, 0},
    [HAL_COMM_SCATTER] = {"scatter", HAL_COMM_EACH, HAL_COMM_ONE, 1, 0, 0},
};

/* ---- spans of memory ---- */

/* Sets the bytes from the start of a buffer to its last element. Returns 0 on overflow. */
static int span(const hal_comm_t *comm, const hal_collective_t *call, int shape, const uint64_t *counts,
                const uint64_t *displs, uint64_t *out_bytes) {
  uint64_t elements = 0;
  if (shape == HAL_COMM_ONE) elements = call->count;
  if (shape == HAL_COMM_EACH && !counts && __builtin_mul_overflow(call->count, (uint64_t)comm->size, &elements))
    return 0;
  for (int32_t i = 0; shape == HAL_COMM_EACH && counts && i < comm->size; i++) {
    uint64_t end;
    if (__builtin_add_overflow(displs ? displs[i] : elements, counts[i], &end)) return 0;
    if (counts[i] && end > elements) elements = end;
  }
  return !__builtin_mul_overflow(elements, (uint64_t)hal_dtype_size(call->dtype), out_bytes) &&
         *out_bytes <= PTRDIFF_MAX;
}

static int gives(const hal_comm_t *comm, const hal_collective_t *call) {
  return !hal_comm_ops[call->op].root_sends || call->peer == comm->rank;
}
static int takes(const hal_comm_t *comm, const hal_collective_t *call) {
  if (call->op == HAL_COMM_BROADCAST && call->peer == comm->rank) return call->recv != NULL && call->recv != call->send;
  return !hal_comm_ops[call->op].root_receives || call->peer == comm->rank;
}

uint64_t hal_comm_send_bytes(const hal_comm_t *comm, const hal_collective_t *call) {
  uint64_t bytes = 0;
  if (gives(comm, call)) span(comm, call, hal_comm_ops[call->op].send, call->send_counts, call->send_displs, &bytes);
  return bytes;
}
uint64_t hal_comm_recv_bytes(const hal_comm_t *comm, const hal_collective_t *call) {
  uint64_t bytes = 0;
  if (takes(comm, call)) span(comm, call, hal_comm_ops[call->op].recv, call->recv_counts, call->recv_displs, &bytes);
  return bytes;
}

/* ---- checks ---- */

static int is_floating(hal_dtype_t dtype) {
  return dtype == HAL_FLOAT16 || dtype == HAL_BFLOAT16 || dtype == HAL_FLOAT32 || dtype == HAL_FLOAT64;
}
static int is_complex(hal_dtype_t dtype) { return dtype == HAL_COMPLEX64 || dtype == HAL_COMPLEX128; }
static int is_integral(hal_dtype_t dtype) {
  return dtype == HAL_UINT8 || dtype == HAL_INT8 || dtype == HAL_INT16 || dtype == HAL_INT32 || dtype == HAL_INT64;
}

/* Returns whether a reduction is defined for a type. */
static int reduces(uint32_t reduce, hal_dtype_t dtype) {
  switch (reduce) {
    case HAL_REDUCE_SUM:
    case HAL_REDUCE_PROD:
      return is_floating(dtype) || is_complex(dtype) || is_integral(dtype) || dtype == HAL_BOOL;
    case HAL_REDUCE_MIN:
    case HAL_REDUCE_MAX:
      return is_floating(dtype) || is_integral(dtype) || dtype == HAL_BOOL;
    case HAL_REDUCE_AVG:
      return is_floating(dtype) || is_complex(dtype);
    case HAL_REDUCE_BAND:
    case HAL_REDUCE_BOR:
    case HAL_REDUCE_BXOR:
      return is_integral(dtype) || dtype == HAL_BOOL;
    case HAL_REDUCE_PREMUL_SUM:
      return is_floating(dtype);
    default:
      return 0;
  }
}

static const char *reduction_name(uint32_t reduce) {
  static const char *const names[] = {"SUM", "PROD", "MIN", "MAX", "AVG", "BAND", "BOR", "BXOR", "PREMUL_SUM"};
  return reduce < sizeof names / sizeof *names ? names[reduce] : "unknown";
}

static hal_status_t check_reduction(const hal_collective_t *call) {
  if (!reduces(call->reduce, call->dtype))
    return hal_error_set(
        HAL_UNIMPLEMENTED,
        "%s: reduction %s (%u) of %s is not supported; float16, bfloat16, float32, float64 and complex types have SUM, "
        "PROD and AVG, real ones also MIN, MAX and PREMUL_SUM; uint8, signed integers and bool have SUM, PROD, MIN, "
        "MAX and bitwise reductions",
        hal_comm_ops[call->op].name, reduction_name(call->reduce), call->reduce, hal_dtype_name(call->dtype));
  if (call->reduce == HAL_REDUCE_PREMUL_SUM && !call->scale)
    return hal_error_set(HAL_INVALID_ARGUMENT, "%s: PREMUL_SUM needs `scale`, a number on the host",
                         hal_comm_ops[call->op].name);
  return HAL_OK;
}

static hal_status_t check_buffers(const hal_comm_t *comm, const hal_collective_t *call) {
  const hal_comm_op_t *const op = &hal_comm_ops[call->op];
  uint64_t send = 0, recv = 0;
  if ((!call->send_counts && call->send_displs) || (!call->recv_counts && call->recv_displs))
    return hal_error_set(HAL_INVALID_ARGUMENT, "%s: an array of displacements and no array of counts", op->name);
  if (!span(comm, call, op->send, call->send_counts, call->send_displs, &send) ||
      !span(comm, call, op->recv, call->recv_counts, call->recv_displs, &recv))
    return hal_error_set(HAL_OUT_OF_RANGE, "%s: %llu elements of %s for each of %d ranks are more than memory can hold",
                         op->name, (unsigned long long)call->count, hal_dtype_name(call->dtype), comm->size);
  if ((gives(comm, call) && send && !call->send) || (takes(comm, call) && recv && !call->recv))
    return hal_error_set(HAL_INVALID_ARGUMENT, "%s: buffer `%s` is NULL, but it has %llu bytes", op->name,
                         call->send ? "recv" : "send", (unsigned long long)(call->send ? recv : send));
  return HAL_OK;
}

/* Every collective here has these properties, so the flags are accepted. */
enum { KNOWN_FLAGS = HAL_COLLECTIVE_FLOAT32_SUM | HAL_COLLECTIVE_DETERMINISTIC };

hal_status_t hal_comm_check(const hal_comm_t *comm, const hal_collective_t *call) {
  if (call->struct_size < offsetof(hal_collective_t, scale))
    return hal_error_set(HAL_INVALID_ARGUMENT,
                         "hal_collective_t: struct_size is %zu; set it to sizeof(hal_collective_t)", call->struct_size);
  if (call->op >= HAL_COMM_OPS)
    return hal_error_set(HAL_UNIMPLEMENTED, "collective %u is unknown to this version", call->op);
  const hal_comm_op_t *const op = &hal_comm_ops[call->op];
  const int is_message = hal_comm_op_is_message(call->op);
  if (call->flags & ~KNOWN_FLAGS)
    return hal_error_set(HAL_UNIMPLEMENTED, "%s: unsupported flags 0x%x; supported flags are 0x%x", op->name,
                         call->flags & ~KNOWN_FLAGS, KNOWN_FLAGS);
  if (call->op == HAL_COMM_BARRIER) return HAL_OK;
  if (!hal_dtype_size(call->dtype))
    return hal_error_set(HAL_INVALID_ARGUMENT, "%s: dtype %u is unknown", op->name, (unsigned)call->dtype);
  if ((is_message || hal_comm_op_has_root(call->op)) && (call->peer < 0 || call->peer >= comm->size))
    return hal_error_set(HAL_INVALID_ARGUMENT, "%s: rank %d is outside 0..%d", op->name, call->peer, comm->size - 1);
  if (is_message && call->peer == comm->rank)
    return hal_error_set(HAL_INVALID_ARGUMENT, "%s: rank %d is this rank; copy the memory instead", op->name,
                         call->peer);
  if (op->reduces) HAL_RETURN_IF_ERROR(check_reduction(call));
  return check_buffers(comm, call);
}

/* ---- fingerprints ---- */

static uint64_t mixed(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * UINT64_C(0x9E3779B97F4A7C15);
  return hash ^ (hash >> 29);
}

/* The fingerprint does not include counts that differ by rank. */
uint64_t hal_comm_fingerprint(const hal_comm_t *comm, const hal_collective_t *call) {
  const hal_comm_op_t *const op = &hal_comm_ops[call->op];
  const int is_uneven = call->send_counts || call->recv_counts;
  uint64_t hash = mixed(call->op + 1, (uint64_t)comm->size);
  if (op->reduces) hash = mixed(hash, call->reduce + 1);
  if (call->op != HAL_COMM_BARRIER) hash = mixed(hash, call->dtype + 1);
  if (hal_comm_op_has_root(call->op)) hash = mixed(hash, (uint64_t)call->peer + 1);
  return is_uneven ? hash : mixed(hash, call->count);
}
