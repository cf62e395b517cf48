/* submit.c: what the library can do, and the submission of collectives. */
#include <stdio.h>
#include <string.h>

#include "comm.h"

#define BIT(type) HAL_DTYPE_BIT(HAL_##type)
#define INTEGERS (BIT(INT8) | BIT(UINT8) | BIT(INT16) | BIT(INT32) | BIT(INT64))
#define FLOATS (BIT(FLOAT16) | BIT(BFLOAT16) | BIT(FLOAT32) | BIT(FLOAT64))
#define COMPLEX (BIT(COMPLEX64) | BIT(COMPLEX128))

/* Minima and maxima of floating-point numbers lose NaN on the CPU, so the host computes them. "Or" and "and" of bool
 * are the maximum and the minimum of bytes. */
static const uint64_t reduce_dtypes[16] = {[HAL_REDUCE_SUM] = INTEGERS | FLOATS | COMPLEX | BIT(BOOL),
                                           [HAL_REDUCE_PROD] = INTEGERS | FLOATS | BIT(BOOL),
                                           [HAL_REDUCE_MIN] = INTEGERS | BIT(BOOL),
                                           [HAL_REDUCE_MAX] = INTEGERS | BIT(BOOL),
                                           [HAL_REDUCE_AVG] = FLOATS | COMPLEX};

static const char *const names[] = {[HAL_COMM_ALL_REDUCE] = "all_reduce", [HAL_COMM_BROADCAST] = "broadcast",
                                    [HAL_COMM_ALL_GATHER] = "all_gather", [HAL_COMM_REDUCE_SCATTER] = "reduce_scatter",
                                    [HAL_COMM_ALL_TO_ALL] = "all_to_all", [HAL_COMM_BARRIER] = "barrier"};
enum { OPS = sizeof names / sizeof *names };

/* Of each dtype: the elements of a program that only copies, and the number of them for one element; of programs that
 * reduce. 0 = unsupported. */
typedef struct type_s {
  unsigned char copied, copied_times, reduced, reduced_times;
} type_t;
static const type_t types[] = {[HAL_UINT8] = {PJRT_U8, 1, PJRT_U8, 1},
                               [HAL_INT8] = {PJRT_U8, 1, PJRT_S8, 1},
                               [HAL_INT16] = {PJRT_U16, 1, PJRT_S16, 1},
                               [HAL_INT32] = {PJRT_U32, 1, PJRT_S32, 1},
                               [HAL_INT64] = {PJRT_U64, 1, PJRT_S64, 1},
                               [HAL_FLOAT16] = {PJRT_U16, 1, PJRT_F16, 1},
                               [HAL_FLOAT32] = {PJRT_U32, 1, PJRT_F32, 1},
                               [HAL_FLOAT64] = {PJRT_U64, 1, PJRT_F64, 1},
                               [HAL_COMPLEX32] = {PJRT_U32, 1, 0, 0},
                               [HAL_COMPLEX64] = {PJRT_U64, 1, PJRT_F32, 2},
                               [HAL_COMPLEX128] = {PJRT_U64, 2, PJRT_F64, 2},
                               [HAL_BOOL] = {PJRT_U8, 1, PJRT_U8, 1},
                               [HAL_BFLOAT16] = {PJRT_U16, 1, PJRT_BF16, 1},
                               [HAL_FLOAT8_E5M2] = {PJRT_U8, 1, 0, 0},
                               [HAL_FLOAT8_E4M3FN] = {PJRT_U8, 1, 0, 0},
                               [HAL_FLOAT8_E5M2FNUZ] = {PJRT_U8, 1, 0, 0},
                               [HAL_FLOAT8_E4M3FNUZ] = {PJRT_U8, 1, 0, 0},
                               [HAL_UINT16] = {PJRT_U16, 1, 0, 0},
                               [HAL_UINT32] = {PJRT_U32, 1, 0, 0},
                               [HAL_UINT64] = {PJRT_U64, 1, 0, 0}};
enum { TYPES = sizeof types / sizeof *types };

/* A program has devices of one platform. A library has at least two ranks; comm_create refuses those of another
 * process. */
static uint32_t max_ranks(int32_t device) {
  const int32_t count = pjrt_platform_of(device)->count;
  return count > 2 ? (uint32_t)count : 2;
}

hal_status_t hal_plugin_comm_info(int32_t device, hal_comm_info_t *out_info) {
  const hal_status_t status = pjrt_check_device(device);
  if (status) return status;
  if (pjrt.platform_count > 1 && pjrt_platform_of(device)->count == 1)
    return pjrt_error(HAL_UNIMPLEMENTED, "pjrt: device %d is the only one of its platform: it has no collectives",
                      (int)device);
  hal_comm_info_t info = {.struct_size = out_info->struct_size,
                          .id_bytes = sizeof((comm_group_t){0}.id),
                          .max_ranks = max_ranks(device),
                          .flags = HAL_COMM_CAN_FLOAT32_SUM | HAL_COMM_WITHIN_PROCESS,
                          .version = (uint32_t)pjrt_table_of(device)->minor_version,
                          .name = "pjrt"};
  for (uint32_t op = 0; op < OPS; op++)
    if (names[op]) info.ops |= UINT64_C(1) << op;
  for (uint32_t dtype = 0; dtype < TYPES; dtype++)
    if (types[dtype].copied) info.copy_dtypes |= HAL_DTYPE_BIT(dtype);
  memcpy(info.reduce_dtypes, reduce_dtypes, sizeof reduce_dtypes);
  memcpy(out_info, &info, info.struct_size < sizeof info ? info.struct_size : sizeof info);
  return HAL_OK;
}

/* ---- checks ------------------------------------------------------------------------------------------------------ */

static int reduces(uint32_t op) { return op == HAL_COMM_ALL_REDUCE || op == HAL_COMM_REDUCE_SCATTER; }

static hal_status_t check_state(const hal_plugin_comm_t *comm, const char *name) {
  comm_group_t *const group = comm->group;
  char why[PJRT_WHY];
  pthread_mutex_lock(&group->lock);
  const hal_status_t error = group->error;
  snprintf(why, sizeof why, "%s", group->why);
  pthread_mutex_unlock(&group->lock);
  if (!error) return HAL_OK;
  return pjrt_error(atomic_load(&comm->aborted) || error == HAL_ABORTED ? HAL_ABORTED : HAL_UNAVAILABLE,
                    "pjrt: %s on a communicator that has failed: %s; create a new one", name, why);
}

static hal_status_t check_call(const hal_comm_call_t *one) {
  const hal_collective_t *const call = one->desc;
  if (call->op >= OPS || !names[call->op])
    return pjrt_error(HAL_UNIMPLEMENTED, "pjrt: collective %u is not supported; comm_info lists the supported ones",
                      (unsigned)call->op);
  const char *const name = names[call->op];
  hal_status_t status = check_state(one->comm, name);
  if (!status) status = hal_flags_check("pjrt: comm_submit", call->flags, HAL_COLLECTIVE_FLOAT32_SUM);
  if (status || call->op == HAL_COMM_BARRIER) return status;
  if (call->send_counts || call->send_displs || call->recv_counts || call->recv_displs)
    return pjrt_error(HAL_UNIMPLEMENTED, "pjrt: %s with counts for each rank is not supported", name);
  if ((uint32_t)call->dtype >= TYPES || !types[call->dtype].copied ||
      (reduces(call->op) && (call->reduce >= 16 || !(reduce_dtypes[call->reduce] & HAL_DTYPE_BIT(call->dtype)))))
    return pjrt_error(HAL_UNIMPLEMENTED,
                      "pjrt: %s with reduction %u of dtype %d is not supported; comm_info lists the "
                      "supported ones",
                      name, (unsigned)call->reduce, (int)call->dtype);
  if (call->op == HAL_COMM_BROADCAST && (call->peer < 0 || call->peer >= one->comm->group->size))
    return pjrt_error(HAL_INVALID_ARGUMENT, "pjrt: broadcast from rank %d of %d ranks", (int)call->peer,
                      (int)one->comm->group->size);
  if (call->count <= INT64_MAX / 2 / PJRT_MAX_DEVICES) return HAL_OK;
  return pjrt_error(HAL_INVALID_ARGUMENT, "pjrt: %s of %llu elements", name, (unsigned long long)call->count);
}

/* ---- submission -------------------------------------------------------------------------------------------------- */

static comm_call_t translate(const hal_comm_call_t *one) {
  const hal_collective_t *const call = one->desc;
  comm_call_t to = {.group = one->comm->group, .rank = one->comm->rank, .op = call->op};
  if (call->op == HAL_COMM_BARRIER) return to;
  const type_t *const type = &types[call->dtype];
  const int is_reduced = reduces(call->op);
  to.reduce = is_reduced ? call->reduce : 0;
  to.type = is_reduced ? type->reduced : type->copied;
  to.peer = call->op == HAL_COMM_BROADCAST ? call->peer : 0;
  to.count = (int64_t)call->count * (is_reduced ? type->reduced_times : type->copied_times);
  to.send = (void *)(uintptr_t)call->send;
  to.recv = call->recv;
  if (is_reduced && call->dtype == HAL_BOOL && to.reduce == HAL_REDUCE_SUM) to.reduce = HAL_REDUCE_MAX;
  if (is_reduced && call->dtype == HAL_BOOL && to.reduce == HAL_REDUCE_PROD) to.reduce = HAL_REDUCE_MIN;
  return to;
}

static hal_status_t run_call(const void *arguments, char *why) {
  const comm_call_t *const call = arguments;
  const hal_status_t status = comm_meet(call, why);
  comm_leave(call->group);
  return status;
}

static const hal_comm_call_t *call_at(const hal_comm_call_t *calls, size_t stride, size_t i) {
  return (const hal_comm_call_t *)(const void *)((const char *)calls + i * stride);
}

static void count_call(comm_group_t *group, int32_t rank) {
  comm_keep(group);
  pthread_mutex_lock(&group->lock);
  group->queued[rank]++;
  pthread_mutex_unlock(&group->lock);
}

/* Nothing is queued unless there is memory for all calls. */
static hal_status_t prepare(const hal_comm_call_t *calls, size_t count, size_t stride, pjrt_work_t **works) {
  for (size_t i = 0; i < count; i++) {
    const hal_comm_call_t *const one = call_at(calls, stride, i);
    const comm_call_t call = translate(one);
    const hal_status_t status =
        one->stream ? pjrt_work_new(one->stream, names[call.op], run_call, &call, sizeof call, &works[i]) : HAL_OK;
    if (!status) continue;
    while (i-- > 0) hal_host->mem_free(works[i]);
    return status;
  }
  return HAL_OK;
}

/* A call of the NULL stream is done when the function returns. */
static hal_status_t queue(const hal_comm_call_t *calls, size_t count, size_t stride, pjrt_work_t **works) {
  hal_status_t status = HAL_OK;
  for (size_t i = 0; i < count; i++) {
    const hal_comm_call_t *const one = call_at(calls, stride, i);
    const comm_call_t call = translate(one);
    count_call(call.group, call.rank);
    if (one->stream) {
      pjrt_work_push(one->stream, works[i]);
      continue;
    }
    const hal_status_t ended = pjrt_submit(NULL, names[call.op], run_call, &call, sizeof call);
    if (!status) status = ended;
  }
  return status;
}

hal_status_t hal_plugin_comm_submit(const hal_comm_call_t *calls, size_t count, size_t stride) {
  hal_status_t status = HAL_OK;
  for (size_t i = 0; i < count && !status; i++) status = check_call(call_at(calls, stride, i));
  if (status || !count) return status;
  pjrt_work_t **const works = hal_host->mem_alloc(count * sizeof *works, _Alignof(pjrt_work_t *));
  if (!works) return pjrt_error(HAL_RESOURCE_EXHAUSTED, "pjrt: no host memory for %zu collectives", count);
  memset(works, 0, count * sizeof *works);
  status = prepare(calls, count, stride, works);
  if (!status) status = queue(calls, count, stride, works);
  hal_host->mem_free(works);
  return status;
}
