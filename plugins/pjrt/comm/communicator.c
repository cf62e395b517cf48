/* communicator.c: the description of the library, ids, creation, state and end of communicators. */
#define _POSIX_C_SOURCE 200809L
#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "comm.h"

/* The bytes of an id. The number and the time make it unique in the process. */
typedef struct comm_id_s {
  char magic[8];
  int64_t process, time_ns;
  uint64_t number;
} comm_id_t;
static const char magic[8] = "hal-pjrt";
static_assert(sizeof(comm_id_t) == sizeof((comm_group_t){0}.id), "the size of an id");

hal_status_t hal_plugin_comm_unique_id(int32_t device, uint32_t flags, void *id, size_t room, size_t *out_size) {
  static atomic_uint_fast64_t number;
  comm_id_t made = {.process = (int64_t)getpid(), .time_ns = pjrt_now_ns()};
  hal_status_t status = pjrt_check_device(device);
  if (!status) status = hal_flags_check("pjrt: comm_unique_id", flags, 0);
  if (status) return status;
  *out_size = sizeof made;
  if (room < sizeof made) return HAL_OK;
  memcpy(made.magic, magic, sizeof magic);
  made.number = atomic_fetch_add(&number, 1);
  memcpy(id, &made, sizeof made);
  return HAL_OK;
}

/* ---- creation ---------------------------------------------------------------------------------------------------- */

static hal_status_t check_id(const hal_comm_desc_t *desc) {
  comm_id_t id;
  if (!desc->id || desc->id_size != sizeof id)
    return pjrt_error(HAL_INVALID_ARGUMENT,
                      "pjrt: comm_create with an id of %zu bytes; expected the %zu bytes of "
                      "comm_unique_id",
                      desc->id ? desc->id_size : 0, sizeof id);
  memcpy(&id, desc->id, sizeof id);
  if (memcmp(id.magic, magic, sizeof magic) != 0)
    return pjrt_error(HAL_INVALID_ARGUMENT, "pjrt: comm_create with an id of another library");
  if (id.process == (int64_t)getpid()) return HAL_OK;
  return pjrt_error(HAL_UNIMPLEMENTED,
                    "pjrt: comm_create with an id of process %lld in process %lld; the ranks are threads of one "
                    "process, because a PJRT client has all its devices",
                    (long long)id.process, (long long)getpid());
}

static hal_status_t check_desc(const hal_comm_desc_t *desc) {
  const hal_status_t status = hal_flags_check("pjrt: comm_create", desc->flags, 0);
  if (status) return status;
  if (desc->size >= 1 && desc->size <= pjrt.device_count && desc->rank >= 0 && desc->rank < desc->size)
    return check_id(desc);
  return pjrt_error(HAL_INVALID_ARGUMENT, "pjrt: comm_create with rank %d of %d ranks; there are %d devices",
                    (int)desc->rank, (int)desc->size, (int)pjrt.device_count);
}

hal_status_t hal_plugin_comm_create(int32_t device, const hal_comm_desc_t *desc, hal_plugin_comm_t **out_comm) {
  comm_group_t *group;
  hal_status_t status = pjrt_check_device(device);
  if (!status) status = check_desc(desc);
  if (status) return status;
  hal_plugin_comm_t *const comm = hal_host->mem_alloc(sizeof *comm, _Alignof(hal_plugin_comm_t));
  if (!comm) return pjrt_error(HAL_RESOURCE_EXHAUSTED, "pjrt: no host memory for a communicator");
  status = comm_join(desc, device, &group);
  if (status) {
    hal_host->mem_free(comm);
    return status;
  }
  comm->group = group;
  comm->rank = desc->rank;
  atomic_init(&comm->aborted, 0);
  *out_comm = comm;
  return HAL_OK;
}

/* ---- state and end ----------------------------------------------------------------------------------------------- */

hal_status_t hal_plugin_comm_query(hal_plugin_comm_t *comm, hal_comm_state_t *out_state) {
  comm_group_t *const group = comm->group;
  hal_comm_state_t state = {.struct_size = out_state->struct_size, .state = HAL_COMM_READY, .bad_rank = -1};
  pthread_mutex_lock(&group->lock);
  state.error = group->error;
  state.queued = group->queued[comm->rank];
  state.done = group->done[comm->rank];
  snprintf(state.message, sizeof state.message, "%s", group->why);
  pthread_mutex_unlock(&group->lock);
  if (state.error) state.state = atomic_load(&comm->aborted) ? HAL_COMM_ABORTED : HAL_COMM_FAILED;
  memcpy(out_state, &state, state.struct_size < sizeof state ? state.struct_size : sizeof state);
  return HAL_OK;
}

hal_status_t hal_plugin_comm_abort(hal_plugin_comm_t *comm, const char *reason) {
  char why[PJRT_WHY];
  if (atomic_exchange(&comm->aborted, 1)) return HAL_OK;
  snprintf(why, sizeof why, "rank %d has aborted the communicator: %.160s", (int)comm->rank,
           reason ? reason : "no reason reported");
  comm_fail(comm->group, HAL_ABORTED, why);
  return HAL_OK;
}

hal_status_t hal_plugin_comm_destroy(hal_plugin_comm_t *comm, int64_t timeout_ns) {
  if (!comm) return HAL_OK;
  pthread_mutex_lock(&comm->group->lock);
  const int failed = comm->group->error != HAL_OK;
  pthread_mutex_unlock(&comm->group->lock);
  const hal_status_t status = failed ? HAL_OK : comm_wait(comm->group, comm->rank, timeout_ns);
  if (status == HAL_NOT_READY)
    return pjrt_error(status, "pjrt: a communicator has calls that have not ended; abort it first");
  if (status) return pjrt_error(status, "pjrt: a communicator was aborted while comm_destroy waited");
  comm_leave(comm->group);
  hal_host->mem_free(comm);
  return HAL_OK;
}
