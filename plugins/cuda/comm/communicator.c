/* communicator.c: creation, state and destruction of NCCL communicators. */
#define _POSIX_C_SOURCE 200809L /* nanosleep */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "nccl.h"

enum { POLL_FIRST_NS = 10000, POLL_LAST_NS = 500000, NO_RANK = -1 };

hal_status_t hal_plugin_comm_unique_id(int32_t device, uint32_t flags, void *id, size_t room, size_t *out_size) {
  ncclUniqueId made;
  hal_status_t status = hal_flags_check("cuda: comm_unique_id", flags, 0);
  if (!status) status = cuda_nccl_serve(device);
  if (status) return status;
  *out_size = sizeof made;
  if (room < sizeof made) return HAL_OK;
  const ncclResult_t code = nccl.ncclGetUniqueId(&made);
  if (code) return cuda_nccl_error(code, "cuda: NCCL cannot create an id of a communicator");
  memcpy(id, &made, sizeof made);
  return HAL_OK;
}

/* ---- creating and freeing --------------------------------------------------------------------------------------- */

nccl_config_t cuda_nccl_config(void) {
  const int undefined = NCCL_CONFIG_UNDEF_INT;
  return (nccl_config_t){.size = sizeof(nccl_config_t),
                         .magic = NCCL_API_MAGIC,
                         .version = NCCL_CONFIG_VERSION,
                         .blocking = 0,
                         .cgaClusterSize = undefined,
                         .minCTAs = undefined,
                         .maxCTAs = undefined,
                         .splitShare = undefined,
                         .trafficClass = undefined};
}

hal_status_t cuda_nccl_new(int32_t device, const hal_comm_desc_t *desc, hal_plugin_comm_t **out_comm) {
  hal_plugin_comm_t *const comm = hal_host->mem_alloc(sizeof *comm, alignof(hal_plugin_comm_t));
  if (!comm) return cuda_error(HAL_RESOURCE_EXHAUSTED, 0, "cuda: no host memory for a communicator; free some memory");
  memset(comm, 0, sizeof *comm);
  comm->device = device;
  comm->bad_rank = NO_RANK;
  atomic_store(&comm->state, HAL_COMM_CREATING);
  snprintf(comm->name, sizeof comm->name, "%s", desc->name ? desc->name : "");
  CUresult code = drv.cuEventCreate(&comm->last, CU_EVENT_DISABLE_TIMING);
  if (!code) code = drv.cuMemAlloc(&comm->word, sizeof(int32_t));
  *out_comm = comm;
  if (!code) return HAL_OK;
  cuda_device_noticed(device, code);
  cuda_nccl_free(comm);
  return cuda_driver_error(code, "cuda: communicator '%s' cannot be created on device %d", desc->name ? desc->name : "",
                           (int)device);
}

/* The library may still use the word of an aborted barrier; the driver waits for that when it frees memory. */
void cuda_nccl_free(hal_plugin_comm_t *comm) {
  if (comm->word) drv.cuMemFree(comm->word);
  if (comm->last) drv.cuEventDestroy(comm->last);
  hal_host->mem_free(comm);
}

/* ---- states ----------------------------------------------------------------------------------------------------- */

void cuda_nccl_fail(hal_plugin_comm_t *comm, hal_status_t status, ncclResult_t code, const char *text) {
  int expected = atomic_load(&comm->state);
  if (comm->error) return;
  comm->error = status;
  comm->native_code = (int64_t)code;
  snprintf(comm->message, sizeof comm->message, "%s", text);
  if (expected != (int)HAL_COMM_ABORTED) atomic_compare_exchange_strong(&comm->state, &expected, (int)HAL_COMM_FAILED);
}

hal_status_t cuda_nccl_check(hal_plugin_comm_t *comm, const char *op) {
  const uint32_t state = (uint32_t)atomic_load(&comm->state);
  if (state == HAL_COMM_READY) return HAL_OK;
  if (state == HAL_COMM_ABORTED)
    return cuda_error(HAL_ABORTED, 0, "cuda: %s on communicator '%s', which was aborted; create a new one", op,
                      comm->name);
  if (state == HAL_COMM_CREATING)
    return cuda_error(
        HAL_FAILED_PRECONDITION, 0,
        "cuda: %s on communicator '%s', which is still being created; wait until comm_query reports READY", op,
        comm->name);
  return cuda_error(HAL_UNAVAILABLE, comm->native_code, "cuda: %s on communicator '%s', which has failed: %s", op,
                    comm->name, comm->message);
}

/* Updates the state of the creation, and checks for errors of queued calls. The caller holds cuda_nccl_lock. */
static void look(hal_plugin_comm_t *comm) {
  char text[NCCL_MESSAGE];
  ncclResult_t code = ncclSuccess;
  const uint32_t state = (uint32_t)atomic_load(&comm->state);
  if (!comm->handle || (state != HAL_COMM_CREATING && state != HAL_COMM_READY)) return;
  const ncclResult_t query = nccl.ncclCommGetAsyncError(comm->handle, &code);
  if (query) code = query;
  if (code == ncclSuccess && state == HAL_COMM_CREATING) {
    nccl.ncclCommCount(comm->handle, &comm->size);
    nccl.ncclCommUserRank(comm->handle, &comm->rank);
    int expected = (int)HAL_COMM_CREATING;
    atomic_compare_exchange_strong(&comm->state, &expected, (int)HAL_COMM_READY);
  } else if (code == ncclInProgress && state == HAL_COMM_CREATING && comm->deadline &&
             cuda_nccl_now() >= comm->deadline) {
    snprintf(text, sizeof text, "ranks of the %d are missing after the timeout", (int)comm->size);
    cuda_nccl_fail(comm, HAL_NOT_READY, code, text);
  } else if (code != ncclSuccess && code != ncclInProgress) {
    const char *const detail = nccl.ncclGetLastError(comm->handle);
    int first = 0, second = 0;
    const char *const pair = detail ? strstr(detail, "Duplicate GPU") : NULL;
    const char *const ranks = pair ? strstr(pair, "rank ") : NULL;
    if (ranks && sscanf(ranks, "rank %d and rank %d", &first, &second) == 2) {
      comm->bad_rank = second;
      snprintf(text, sizeof text, "ranks %d and %d use one device, but NCCL requires a device for each rank: %s (%d)",
               first, second, nccl.ncclGetErrorString(code), (int)code);
    } else {
      snprintf(text, sizeof text, "NCCL reported %s (%d)%s%s", nccl.ncclGetErrorString(code), (int)code,
               detail && *detail ? ": " : "", detail ? detail : "");
    }
    cuda_nccl_fail(comm, cuda_nccl_status(code), code, text);
  }
}

/* An abort in another thread holds the lock until NCCL returns; the query does not wait for that. */
hal_status_t hal_plugin_comm_query(hal_plugin_comm_t *comm, hal_comm_state_t *out_state) {
  hal_comm_state_t state = {.struct_size = out_state->struct_size, .bad_rank = NO_RANK};
  if (!pthread_mutex_trylock(&cuda_nccl_lock)) {
    look(comm);
    state.error = comm->error;
    state.native_code = comm->native_code;
    state.bad_rank = comm->bad_rank;
    snprintf(state.message, sizeof state.message, "%s", comm->message);
    pthread_mutex_unlock(&cuda_nccl_lock);
  }
  state.state = (uint32_t)atomic_load(&comm->state);
  if (state.state == HAL_COMM_ABORTED && !state.error) state.error = HAL_ABORTED;
  memcpy(out_state, &state, state.struct_size < sizeof state ? state.struct_size : sizeof state);
  return HAL_OK;
}

static void nap(int64_t *length) {
  nanosleep(&(struct timespec){.tv_nsec = *length}, NULL);
  if (*length < POLL_LAST_NS) *length *= 2;
}

hal_status_t cuda_nccl_wait(hal_plugin_comm_t *comm, int64_t timeout_ns, ncclResult_t *out_code) {
  const int64_t end = timeout_ns > 0 ? cuda_nccl_now() + timeout_ns : 0;
  for (int64_t length = POLL_FIRST_NS;; nap(&length), pthread_mutex_lock(&cuda_nccl_lock)) {
    if (!comm->handle || atomic_load(&comm->state) == (int)HAL_COMM_ABORTED) return HAL_ABORTED;
    *out_code = ncclSuccess;
    const ncclResult_t query = nccl.ncclCommGetAsyncError(comm->handle, out_code);
    if (query) *out_code = query;
    if (*out_code != ncclInProgress) return HAL_OK;
    if (end && cuda_nccl_now() >= end) return HAL_NOT_READY;
    pthread_mutex_unlock(&cuda_nccl_lock);
  }
}

/* ---- creation --------------------------------------------------------------------------------------------------- */

static hal_status_t check_desc(const hal_comm_desc_t *desc) {
  const hal_status_t status = hal_flags_check("cuda: comm_create", desc->flags, HAL_COMM_NONBLOCKING);
  if (status) return status;
  if (!desc->id || desc->id_size != sizeof(ncclUniqueId))
    return cuda_error(HAL_INVALID_ARGUMENT, 0,
                      "cuda: comm_create with an id of %zu bytes: expected the %zu bytes of comm_unique_id",
                      desc->id ? desc->id_size : 0, sizeof(ncclUniqueId));
  if (desc->size < 1 || desc->rank < 0 || desc->rank >= desc->size)
    return cuda_error(HAL_INVALID_ARGUMENT, 0, "cuda: comm_create with rank %d of %d ranks", (int)desc->rank,
                      (int)desc->size);
  return HAL_OK;
}

/* Waits for the other ranks. */
static hal_status_t join(hal_plugin_comm_t *comm) {
  for (int64_t length = POLL_FIRST_NS; atomic_load(&comm->state) == (int)HAL_COMM_CREATING; nap(&length)) {
    pthread_mutex_lock(&cuda_nccl_lock);
    look(comm);
    pthread_mutex_unlock(&cuda_nccl_lock);
  }
  if (atomic_load(&comm->state) == (int)HAL_COMM_READY) return HAL_OK;
  return cuda_error(comm->error ? comm->error : HAL_ABORTED, comm->native_code,
                    "cuda: communicator '%s' cannot be created as rank %d of %d on device %d: %s", comm->name,
                    (int)comm->rank, (int)comm->size, (int)comm->device,
                    comm->error ? comm->message : "it was aborted");
}

hal_status_t cuda_nccl_begun(hal_plugin_comm_t *comm, const hal_comm_desc_t *desc, ncclResult_t code,
                             hal_plugin_comm_t **out_comm) {
  hal_status_t status = HAL_OK;
  if (code && code != ncclInProgress) {
    status = cuda_nccl_error(code, "cuda: communicator '%s' cannot be created as rank %d of %d on device %d",
                             comm->name, (int)comm->rank, (int)comm->size, (int)comm->device);
  } else if (!(desc->flags & HAL_COMM_NONBLOCKING)) {
    status = join(comm);
  }
  if (!status) {
    *out_comm = comm;
    return HAL_OK;
  }
  pthread_mutex_lock(&cuda_nccl_lock);
  if (comm->handle) nccl.ncclCommAbort(comm->handle);
  comm->handle = NULL;
  pthread_mutex_unlock(&cuda_nccl_lock);
  cuda_nccl_free(comm);
  return status;
}

hal_status_t hal_plugin_comm_create(int32_t device, const hal_comm_desc_t *desc, hal_plugin_comm_t **out_comm) {
  hal_plugin_comm_t *comm = NULL;
  ncclUniqueId id;
  cuda_scope_t scope;
  hal_status_t status = cuda_check_alive(device);
  if (!status) status = check_desc(desc);
  if (!status) status = cuda_nccl_serve(device);
  if (!status) status = cuda_enter(device, &scope);
  if (status) return status;
  status = cuda_nccl_new(device, desc, &comm);
  if (!status) {
    nccl_config_t config = cuda_nccl_config();
    memcpy(&id, desc->id, sizeof id);
    comm->rank = desc->rank;
    comm->size = desc->size;
    comm->deadline = desc->timeout_ns > 0 ? cuda_nccl_now() + desc->timeout_ns : 0;
    pthread_mutex_lock(&cuda_nccl_lock);
    const ncclResult_t code =
        nccl.ncclCommInitRankConfig(&comm->handle, desc->size, id, desc->rank, (ncclConfig_t *)&config);
    pthread_mutex_unlock(&cuda_nccl_lock);
    status = cuda_nccl_begun(comm, desc, code, out_comm);
  }
  cuda_leave(&scope);
  return status;
}

/* ---- ends ------------------------------------------------------------------------------------------------------- */

/* NCCL ends the kernel of an aborted collective normally, so the streams are marked here. */
static void mark_streams(hal_plugin_comm_t *comm) {
  cuda_device_t *const device = &cuda.devices[comm->device];
  pthread_mutex_lock(&device->lock);
  for (hal_plugin_stream_t *stream = device->streams; stream; stream = stream->next)
    for (int i = 0; i < NCCL_STREAMS; i++)
      if (comm->streams[i] == stream && !cuda_stream_is_captured(stream) &&
          drv.cuStreamQuery(stream->handle) == CUDA_ERROR_NOT_READY)
        atomic_store(&stream->aborted, 1);
  pthread_mutex_unlock(&device->lock);
}

/* NCCL cannot pass the reason to other ranks. The state changes first, so that polling threads stop using the
 * communicator. */
hal_status_t hal_plugin_comm_abort(hal_plugin_comm_t *comm, const char *reason) {
  cuda_scope_t scope;
  if (atomic_exchange(&comm->state, (int)HAL_COMM_ABORTED) == (int)HAL_COMM_ABORTED) return HAL_OK;
  hal_status_t status = cuda_enter(comm->device, &scope);
  if (status) return status;
  mark_streams(comm);
  pthread_mutex_lock(&cuda_nccl_lock);
  const ncclResult_t code = comm->handle ? nccl.ncclCommAbort(comm->handle) : ncclSuccess;
  comm->handle = NULL;
  cuda_nccl_fail(comm, HAL_ABORTED, ncclSuccess, reason ? reason : "aborted");
  pthread_mutex_unlock(&cuda_nccl_lock);
  if (code && code != ncclInProgress)
    status = cuda_nccl_error(code, "cuda: communicator '%s' cannot be aborted", comm->name);
  cuda_leave(&scope);
  return status;
}

/* Waits for the last submission. */
static hal_status_t drain(hal_plugin_comm_t *comm, int64_t end) {
  for (int64_t length = POLL_FIRST_NS;; nap(&length)) {
    if (atomic_load(&comm->state) == (int)HAL_COMM_ABORTED)
      return cuda_error(HAL_ABORTED, 0, "cuda: communicator '%s' was aborted while comm_destroy waited", comm->name);
    const CUresult code = drv.cuEventQuery(comm->last);
    if (code != CUDA_ERROR_NOT_READY) return HAL_OK; /* a lost device executes no further work */
    if (end && cuda_nccl_now() >= end)
      return cuda_error(HAL_NOT_READY, 0, "cuda: communicator '%s' has calls that have not ended; abort it first",
                        comm->name);
  }
}

/* Finalizes a communicator that has neither failed nor been aborted. */
static hal_status_t finalize(hal_plugin_comm_t *comm, int64_t timeout_ns, int64_t end) {
  ncclResult_t code = ncclSuccess;
  hal_status_t status = drain(comm, end);
  if (status) return status;
  pthread_mutex_lock(&cuda_nccl_lock);
  if (comm->handle && !comm->finalizing) {
    comm->finalizing = 1;
    nccl.ncclCommFinalize(comm->handle); /* the wait returns its result */
  }
  status = cuda_nccl_wait(comm, timeout_ns, &code);
  if (!status) {
    if (code)
      nccl.ncclCommAbort(comm->handle);
    else
      nccl.ncclCommDestroy(comm->handle);
    comm->handle = NULL;
  }
  pthread_mutex_unlock(&cuda_nccl_lock);
  if (status == HAL_NOT_READY)
    return cuda_error(status, 0, "cuda: communicator '%s' is not finalized within %lld ms; abort it first", comm->name,
                      (long long)(timeout_ns / 1000000));
  return status ? cuda_error(status, 0, "cuda: communicator '%s' was aborted while comm_destroy waited", comm->name)
                : HAL_OK;
}

hal_status_t hal_plugin_comm_destroy(hal_plugin_comm_t *comm, int64_t timeout_ns) {
  cuda_scope_t scope;
  if (!comm) return HAL_OK;
  hal_status_t status = cuda_enter(comm->device, &scope);
  if (status) return status;
  const int64_t end = timeout_ns > 0 ? cuda_nccl_now() + timeout_ns : 0;
  if (atomic_load(&comm->state) == (int)HAL_COMM_READY) {
    status = finalize(comm, timeout_ns, end);
  } else { /* an abort in another thread holds the lock until it is done */
    pthread_mutex_lock(&cuda_nccl_lock);
    if (comm->handle) nccl.ncclCommAbort(comm->handle);
    comm->handle = NULL;
    pthread_mutex_unlock(&cuda_nccl_lock);
  }
  if (!status) cuda_nccl_free(comm);
  cuda_leave(&scope);
  return status;
}
