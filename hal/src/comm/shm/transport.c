/* transport.c: implements the transport's functions. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/host_malloc.h"
#include "comm/shm/device.h"
#include "comm/shm/internal.h"
#include "comm/shm/system.h"

/* The transport of one rank. `base` does not change after the join; calls of `run` work with copies. One thread at a
 * time runs collectives. At the same time other threads run messages, at most one for each rank and direction. So one
 * thread at a time uses the list of early messages from a rank. */
typedef struct transport_s {
  hal_shm_t base;
  uint64_t sequence, round; /* collectives and rounds so far */
  hal_shm_early_t *early[HAL_SHM_RANKS];
  hal_shm_device_t *device; /* NULL: the transport moves only host memory */
} transport_t;

static void set_deadline(hal_shm_t *shm, int64_t timeout_ns) {
  shm->timeout_ns = timeout_ns > 0 ? timeout_ns : 0;
  if (__builtin_add_overflow(hal_clock_ns(), shm->timeout_ns, &shm->deadline_ns)) shm->deadline_ns = INT64_MAX;
}

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
    default: /* a barrier is only the beginning of a collective */
      return hal_shm_begin(shm, call);
  }
}

/* Checks all calls before the first one runs. An error that only this rank has is published to the others, which would
 * wait for it otherwise. A call that is not implemented runs alone: it is refused if all ranks refuse it. */
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
    if (hal_comm_op_is_message(desc->op)) continue;
    if (count > 1) HAL_RETURN_IF_ERROR(hal_shm_check(shm, desc, &call));
    shm->call = &call;
    shm->running = call.sequence + HAL_SHM_JOIN;
    HAL_RETURN_IF_ERROR(run_one(shm, &call));
  }
  shm->call = NULL;
  shm->running = 0;
  return hal_shm_run_messages(shm, calls, count);
}

/* Returns the number of collectives without SEND and RECV. An invalid struct counts as one: check_all refuses it. */
static uint32_t count_collectives(const hal_collective_t *calls, uint32_t count) {
  uint32_t collectives = 0;
  for (uint32_t i = 0; i < count; i++)
    collectives += !HAL_HAS_FIELD(calls, scale) || !hal_comm_op_is_message(hal_shm_call_at(calls, i)->op);
  return collectives;
}

static hal_status_t run_bracket(transport_t *transport, hal_shm_t *shm, const hal_collective_t *calls, uint32_t count) {
  if (!(shm->length = count_collectives(calls, count))) return run_all(shm, calls, count);
  shm->sequence = transport->sequence;
  shm->round = transport->round;
  const hal_status_t status = run_all(shm, calls, count);
  transport->sequence = shm->sequence;
  transport->round = shm->round;
  return status;
}

/* `device`: NULL = the pointers are host memory. */
static hal_status_t run_on(transport_t *transport, hal_shm_device_t *device, const hal_collective_t *calls,
                           uint32_t count, int64_t timeout_ns) {
  hal_shm_t shm = transport->base;
  if (getpid() != shm.pid)
    return hal_error_set(
        HAL_FAILED_PRECONDITION,
        "communicator '%s' belongs to the process that created it, %d, and this is a child: create one "
        "here",
        shm.name, (int)shm.pid);
  shm.early = transport->early;
  shm.device = device;
  shm.regions = device ? device->regions : NULL;
  set_deadline(&shm, timeout_ns);
  hal_status_t status = hal_shm_failed(&shm);
  if (!status && count && !calls) status = hal_error_set(HAL_INVALID_ARGUMENT, "%u calls are NULL", (unsigned)count);
  if (!status && count) status = run_bracket(transport, &shm, calls, count);
  return status ? hal_error_prefix(status, "communicator '%s': ", shm.name) : HAL_OK;
}

static hal_status_t run(void *context, const hal_collective_t *calls, uint32_t count, int64_t timeout_ns) {
  return run_on(context, NULL, calls, count, timeout_ns);
}

static void abort_transport(void *context, const char *reason) {
  transport_t *const transport = context;
  if (getpid() != transport->base.pid) return; /* the group is the parent's */
  hal_shm_abort(&transport->base, reason);
}

static hal_status_t query(void *context) {
  const transport_t *const transport = context;
  hal_shm_t shm = transport->base;
  hal_status_t status = hal_shm_failed(&shm);
  for (int32_t rank = 0; rank < shm.size && !status; rank++) {
    const int has_left = atomic_load_explicit(&hal_shm_page(&shm, rank)->state, memory_order_acquire) == HAL_SHM_LEFT;
    if (rank != shm.rank && !has_left) status = hal_shm_check_process(&shm, rank);
  }
  return status ? hal_error_prefix(status, "communicator '%s': ", shm.name) : HAL_OK;
}

/* The pages remain as long as another rank maps them. */
static void destroy(void *context) {
  transport_t *const transport = context;
  hal_shm_t *const shm = &transport->base;
  if (shm->header && getpid() == shm->pid) {
    atomic_store_explicit(&hal_shm_page(shm, shm->rank)->state, HAL_SHM_LEFT, memory_order_release);
  }
  for (int32_t rank = 0; rank < HAL_SHM_RANKS; rank++) hal_shm_free_early(transport->early[rank]);
  if (getpid() == shm->pid) hal_shm_device_destroy(transport->device);
  hal_shm_segment_release(shm);
  hal_free(transport);
}

static hal_status_t check_arguments(const hal_comm_store_t *store, const char *name, int32_t rank, int32_t size,
                                    const void *out) {
  if (!store || !store->set || !store->get || !name || !out)
    return hal_error_set(
        HAL_INVALID_ARGUMENT,
        "a communicator in shared memory needs a store with set and get, a name and an address for the result");
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
  transport_t *const transport = hal_calloc(1, sizeof *transport);
  if (!transport)
    return hal_error_set(HAL_RESOURCE_EXHAUSTED, "communicator '%s': no host memory; free some memory", name);
  hal_shm_t *const shm = &transport->base;
  shm->rank = rank;
  shm->size = size;
  shm->pid = (int32_t)getpid();
  shm->may_spin = size <= hal_shm_processors();
  shm->activity = "the join";
  snprintf(shm->name, sizeof shm->name, "%s", name);
  set_deadline(shm, timeout_ns);
  const hal_status_t status = hal_shm_join(shm, store, name);
  if (status) {
    hal_error_prefix(status, "communicator '%s': ", name);
    destroy(transport);
    return status;
  }
  *out = (hal_comm_transport_t){.struct_size = sizeof *out,
                                .context = transport,
                                .name = "shm",
                                .run = run,
                                .abort = abort_transport,
                                .destroy = destroy,
                                .flags = HAL_COMM_COMPARES_CALLS,
                                .query = query};
  return HAL_OK;
}

/* ---- device memory ---- */

hal_status_t hal_comm_shm_use_device(const hal_comm_transport_t *transport, int32_t device, int64_t timeout_ns) {
  if (transport->run != run) return HAL_OK;
  transport_t *const own = transport->context;
  hal_shm_t shm = own->base;
  shm.activity = "the exchange of device memory";
  shm.round = own->round;
  shm.running = HAL_SHM_JOIN;
  set_deadline(&shm, timeout_ns);
  const hal_status_t status = hal_shm_device_create(&shm, device, &own->device);
  return status ? hal_error_prefix(status, "communicator '%s': ", shm.name) : HAL_OK;
}

int hal_comm_shm_takes_device_memory(const hal_comm_transport_t *transport, const hal_collective_t *calls,
                                     uint32_t count) {
  if (transport->run != run) return 0;
  const hal_shm_device_t *const device = ((const transport_t *)transport->context)->device;
  for (uint32_t i = 0; device && i < count; i++) {
    const hal_collective_t *const call = hal_shm_call_at(calls, i);
    if (!hal_comm_op_reduces(call->op)) continue;
    if (call->reduce >= HAL_SHM_REDUCTIONS || !(device->dtypes[call->reduce] >> call->dtype & 1)) return 0;
  }
  return device != NULL;
}

hal_status_t hal_comm_shm_run_on_device(const hal_comm_transport_t *transport, const hal_collective_t *calls,
                                        uint32_t count, int64_t timeout_ns) {
  transport_t *const own = transport->context;
  return run_on(own, own->device, calls, count, timeout_ns);
}
