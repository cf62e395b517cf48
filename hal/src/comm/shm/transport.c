/* transport.c: the transport's functions. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/host_malloc.h"
#include "comm/shm/internal.h"
#include "comm/shm/system.h"

static void set_deadline(hal_shm_t *shm, int64_t timeout_ns) {
  shm->timeout_ns = timeout_ns > 0 ? timeout_ns : 0;
  if (__builtin_add_overflow(hal_clock_ns(), shm->timeout_ns, &shm->deadline_ns)) shm->deadline_ns = INT64_MAX;
}

static int is_message(uint32_t op) { return op == HAL_COMM_SEND || op == HAL_COMM_RECV; }

static hal_status_t run_one(hal_shm_t *shm, hal_shm_call_t *call) {
  switch (call->op) {
    case HAL_COMM_ALL_REDUCE:
    case HAL_COMM_REDUCE:
    case HAL_COMM_REDUCE_SCATTER:
      return hal_shm_run_reduction(shm, call);
    case HAL_COMM_BROADCAST:
    case HAL_COMM_ALL_GATHER:
    case HAL_COMM_GATHER:
    case HAL_COMM_SCATTER:
    case HAL_COMM_ALL_TO_ALL:
      return hal_shm_run_exchange(shm, call);
    default: /* a barrier is the beginning of a collective and no more */
      return hal_shm_begin(shm, call);
  }
}

/* Checks all calls before the first one runs: an error of this rank alone is shown to the others, which would
 * wait for it. A call that is not implemented is run alone: it is refused when all ranks refuse it. */
static hal_status_t check_all(hal_shm_t *shm, const hal_collective_t *calls, uint32_t count, hal_shm_call_t *call) {
  shm->running = shm->sequence + 1 + HAL_SHM_JOIN;
  for (uint32_t i = 0; i < count; i++) {
    const hal_status_t status = hal_shm_check(shm, hal_shm_call_at(calls, i), call);
    if (status) return hal_shm_fail_by_last(shm, status);
    if (!call->refused) continue;
    shm->call = call;
    return run_one(shm, call);
  }
  return HAL_OK;
}

static hal_status_t run_all(hal_shm_t *shm, const hal_collective_t *calls, uint32_t count) {
  hal_shm_call_t call;
  HAL_RETURN_IF_ERROR(check_all(shm, calls, count, &call));
  for (uint32_t i = 0; i < count; i++) {
    const hal_collective_t *const desc = hal_shm_call_at(calls, i);
    if (is_message(desc->op)) continue;
    if (count > 1) HAL_RETURN_IF_ERROR(hal_shm_check(shm, desc, &call));
    shm->call = &call;
    shm->running = call.sequence + HAL_SHM_JOIN;
    HAL_RETURN_IF_ERROR(run_one(shm, &call));
  }
  shm->call = NULL;
  shm->running = 0;
  return hal_shm_run_messages(shm, calls, count);
}

/* Returns the state for a bracket: that of the collectives, or that of the lane of a single SEND or RECV; NULL = no memory. */
static hal_shm_t *state_for(hal_shm_t *shm, const hal_collective_t *calls, uint32_t count) {
  if (count != 1 || !is_message(calls->op) || calls->peer < 0 || calls->peer >= shm->size) return shm;
  hal_shm_t **const lane = &shm->lanes[2 * calls->peer + (calls->op == HAL_COMM_RECV)];
  if (*lane || !(*lane = hal_calloc(1, sizeof **lane))) return *lane;
  **lane = (hal_shm_t){.activity = shm->activity,
                       .header = shm->header,
                       .bytes = shm->bytes,
                       .rank = shm->rank,
                       .size = shm->size,
                       .pid = shm->pid,
                       .may_spin = shm->may_spin,
                       .unseen = shm->unseen,
                       .sleepers = shm->sleepers};
  memcpy((*lane)->name, shm->name, sizeof shm->name);
  return *lane;
}

static hal_status_t run(void *context, const hal_collective_t *calls, uint32_t count, int64_t timeout_ns) {
  hal_shm_t *shm = context;
  if (getpid() != shm->pid)
    return hal_error_set(
        HAL_FAILED_PRECONDITION,
        "communicator '%s' belongs to the process that created it, %d, and this is a child: create one here", shm->name,
        (int)shm->pid);
  if (count && calls && !(shm = state_for(shm, calls, count)))
    return hal_error_set(HAL_RESOURCE_EXHAUSTED, "no host memory for a message; free some memory");
  set_deadline(shm, timeout_ns);
  hal_status_t status = hal_shm_failed(shm);
  if (!status && count && !calls) status = hal_error_set(HAL_INVALID_ARGUMENT, "%u calls are NULL", (unsigned)count);
  if (!status && count) status = run_all(shm, calls, count);
  shm->call = NULL;
  shm->running = 0;
  return status ? hal_error_prefix(status, "communicator '%s': ", shm->name) : HAL_OK;
}

static void abort_transport(void *context, const char *reason) { hal_shm_abort(context, reason); }

/* The pages stay as long as another rank maps them. */
static void destroy(void *context) {
  hal_shm_t *const shm = context;
  if (shm->header && getpid() == shm->pid) {
    atomic_store_explicit(&hal_shm_page(shm, shm->rank)->state, HAL_SHM_LEFT, memory_order_release);
  }
  for (int32_t i = 0; i < 2 * shm->size; i++) {
    if (shm->lanes[i]) hal_shm_free_early(shm->lanes[i]);
    hal_free(shm->lanes[i]);
  }
  hal_shm_segment_release(shm);
  hal_shm_free_early(shm);
  hal_free(shm);
}

static hal_status_t check_arguments(const hal_comm_store_t *store, const char *name, int32_t rank, int32_t size,
                                    const void *out) {
  if (!store || !store->set || !store->get || !name || !out)
    return hal_error_set(
        HAL_INVALID_ARGUMENT,
        "a communicator in shared memory needs a store with set and get, a name and room for the result");
  if (size < 2 || size > HAL_SHM_RANKS)
    return hal_error_set(HAL_UNIMPLEMENTED, "communicator '%s': %d ranks; in shared memory there are 2 to %d", name,
                         (int)size, (int)HAL_SHM_RANKS);
  if (rank < 0 || rank >= size)
    return hal_error_set(HAL_INVALID_ARGUMENT, "communicator '%s': rank %d is out of range: there are %d ranks", name,
                         (int)rank, (int)size);
  return HAL_OK;
}

hal_status_t hal_comm_shm_create(const hal_comm_store_t *store, const char *name, int32_t rank, int32_t size,
                                 int64_t timeout_ns, hal_comm_transport_t *out) {
  HAL_RETURN_IF_ERROR(check_arguments(store, name, rank, size, out));
  hal_shm_t *const shm = hal_calloc(1, sizeof *shm);
  if (!shm) return hal_error_set(HAL_RESOURCE_EXHAUSTED, "no host memory for a communicator; free some memory");
  shm->rank = rank;
  shm->size = size;
  shm->pid = (int32_t)getpid();
  shm->may_spin = size <= hal_shm_processors();
  shm->activity = "the join";
  shm->sleepers = &shm->own_sleepers;
  snprintf(shm->name, sizeof shm->name, "%s", name);
  set_deadline(shm, timeout_ns);
  const hal_status_t status = hal_shm_join(shm, store, name);
  if (status) {
    hal_error_prefix(status, "communicator '%s': ", name);
    destroy(shm);
    return status;
  }
  *out = (hal_comm_transport_t){.struct_size = sizeof *out,
                                .context = shm,
                                .name = "shm",
                                .run = run,
                                .abort = abort_transport,
                                .destroy = destroy,
                                .flags = HAL_COMM_COMPARES_CALLS};
  return HAL_OK;
}
