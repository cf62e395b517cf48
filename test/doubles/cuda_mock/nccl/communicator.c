/* communicator.c: communicators from creation to destruction, and errors. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "nccl_mock.h"

/* ---- errors and settings ---- */

static char last_error[512];
static pthread_mutex_t error_lock = PTHREAD_MUTEX_INITIALIZER;

ncclResult_t fail_with(ncclResult_t code, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  pthread_mutex_lock(&error_lock);
  vsnprintf(last_error, sizeof last_error, format, arguments);
  pthread_mutex_unlock(&error_lock);
  va_end(arguments);
  return code;
}

const char *ncclGetLastError(ncclComm_t comm) { return (void)comm, last_error; }

const char *ncclGetErrorString(ncclResult_t code) {
  static const char *const texts[] = {"no error",
                                      "unhandled cuda error",
                                      "unhandled system error",
                                      "internal error",
                                      "invalid argument",
                                      "invalid usage",
                                      "remote process exited or there was a network error",
                                      "NCCL operation in progress"};
  return (unsigned)code < sizeof texts / sizeof *texts ? texts[code] : "unknown result code";
}

int setting(const char *name, int otherwise) {
  const char *const text = getenv(name);
  return text && *text ? atoi(text) : otherwise;
}

ncclResult_t refusal(const char *name) {
  const char *const list = getenv("NCCL_MOCK_REFUSES");
  const char *const found = list ? strstr(list, name) : NULL;
  if (!found || found[strlen(name)] != '=') return ncclSuccess;
  return fail_with((ncclResult_t)atoi(found + strlen(name) + 1), "%s was set to fail", name);
}

void nap(void) { nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL); }

ncclResult_t ncclGetVersion(int *version) {
  *version = setting("NCCL_MOCK_VERSION", 23007);
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
  address_t address;
  const ncclResult_t refused = refusal("ncclGetUniqueId");
  if (refused) return refused;
  memset(id, 0, sizeof *id);
  if (segment_make(&address)) return fail_with(ncclSystemError, "no memory file");
  memcpy(id->internal, &address, sizeof address);
  return ncclSuccess;
}

/* ---- creation ---- */

int is_blocking(const ncclConfig_t *config) {
  nccl_config_t own;
  if (!config) return 1;
  memcpy(&own, config, sizeof own);
  return own.blocking != 0;
}

ncclComm_t comm_new(const address_t *address, int rank, int size, int device, int blocking) {
  ncclComm_t const comm = calloc(1, sizeof *comm);
  if (!comm) return NULL;
  *comm = (struct ncclComm){.users = 1, .rank = rank, .size = size, .device = device, .blocking = blocking};
  comm->address = *address;
  comm->state = ncclInProgress;
  return comm;
}

void comm_release(ncclComm_t comm) {
  if (atomic_fetch_sub(&comm->users, 1) != 1) return;
  segment_unmap(comm->segment);
  free(comm);
}

static ncclResult_t compare_devices(const ncclComm_t comm) {
  const segment_t *const segment = comm->segment;
  for (int i = 0; i < comm->size; i++) {
    if (segment->size[i] != comm->size)
      return fail_with(ncclInvalidUsage, "rank %d has %d ranks, rank %d has %d", i, segment->size[i], comm->rank,
                       comm->size);
    for (int j = 0; j < i; j++)
      if (segment->device[i] == segment->device[j])
        return fail_with(ncclInvalidUsage, "Duplicate GPU detected : rank %d and rank %d both on CUDA device %x", j, i,
                         segment->device[i]);
  }
  return ncclSuccess;
}

ncclResult_t comm_join(ncclComm_t comm) {
  comm->segment = segment_map(&comm->address);
  if (!comm->segment) return fail_with(ncclSystemError, "the rank that made the id cannot be reached");
  segment_t *const segment = comm->segment;
  segment->device[comm->rank] = comm->device;
  segment->size[comm->rank] = comm->size;
  atomic_store(&segment->joined[comm->rank], (int)getpid());
  for (int i = 0; i < comm->size; i++)
    while (!atomic_load(&segment->joined[i])) {
      if (atomic_load(&comm->aborted)) return ncclSystemError;
      nap();
    }
  return compare_devices(comm);
}

typedef struct begin_s {
  ncclComm_t comm;
  ncclResult_t (*body)(ncclComm_t);
} begin_t;

static void *run_begun(void *data) {
  begin_t *const begin = data;
  const ncclResult_t code = begin->body(begin->comm);
  atomic_store(&begin->comm->state, (int)code);
  comm_release(begin->comm);
  free(begin);
  return NULL;
}

ncclResult_t comm_begin(ncclComm_t comm, ncclResult_t (*body)(ncclComm_t)) {
  pthread_t thread;
  if (comm->blocking) {
    const ncclResult_t code = body(comm);
    atomic_store(&comm->state, (int)code);
    return code;
  }
  begin_t *const begin = malloc(sizeof *begin);
  if (!begin) return ncclSystemError;
  *begin = (begin_t){comm, body};
  atomic_fetch_add(&comm->users, 1);
  atomic_store(&comm->state, ncclInProgress);
  if (pthread_create(&thread, NULL, run_begun, begin)) {
    comm_release(comm);
    free(begin);
    return ncclSystemError;
  }
  pthread_detach(thread);
  return ncclInProgress;
}

static int current_device(void) {
  int (*ask)(void) = NULL;
  void *const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  void *const found = driver ? dlsym(driver, "cuda_mock_device") : NULL;
  memcpy(&ask, &found, sizeof found);
  return ask ? ask() : -1;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int size, ncclUniqueId id, int rank, ncclConfig_t *config) {
  address_t address;
  const ncclResult_t refused = refusal("ncclCommInitRankConfig");
  *comm = NULL;
  if (refused) return refused;
  memcpy(&address, id.internal, sizeof address);
  const int device = current_device();
  if (device < 0) return fail_with(ncclUnhandledCudaError, "no context is current");
  if (size < 1 || size > MAX_RANKS || rank < 0 || rank >= size)
    return fail_with(ncclInvalidArgument, "rank %d of %d", rank, size);
  *comm = comm_new(&address, rank, size, device, is_blocking(config));
  return *comm ? comm_begin(*comm, comm_join) : ncclSystemError;
}

/* ---- state ---- */

/* Like the real library: a communicator that is not ready accepts only these two calls. */
ncclResult_t comm_check(ncclComm_t comm) {
  if (!comm) return fail_with(ncclInvalidArgument, "no communicator");
  const int state = atomic_load(&comm->state);
  if (state == ncclInProgress || atomic_load(&comm->pending) > 0)
    return fail_with(ncclInvalidArgument, "a communicator whose last call is in progress");
  return state ? fail_with((ncclResult_t)state, "a communicator that has failed") : ncclSuccess;
}

/* Like the network's transports, which detect a closed connection: a collective waits for more than has arrived. Its
 * kernel waits until the abort. */
static ncclResult_t find_ended(ncclComm_t comm) {
  const int ended = atomic_load(&comm->idle) > STALLED ? segment_find_ended(comm->segment, comm->size) : -1;
  return ended < 0 ? ncclSuccess : fail_with(ncclRemoteError, "the connection to rank %d was closed", ended);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error) {
  const char *const told = getenv("NCCL_MOCK_ASYNC_ERROR");
  if (!comm) return ncclInvalidArgument;
  *error = (ncclResult_t)atomic_load(&comm->state);
  if (!*error && atomic_load(&comm->pending) > 0) {
    atomic_fetch_sub(&comm->pending, 1);
    *error = ncclInProgress;
  }
  if (!*error && told && *told && atomic_load(&comm->plans) > 0)
    *error = fail_with((ncclResult_t)atoi(told), "NET/Socket : peer closed the connection");
  if (!*error) *error = find_ended(comm);
  return ncclSuccess;
}

ncclResult_t ncclCommCount(ncclComm_t comm, int *count) {
  *count = comm->size;
  return ncclSuccess;
}

ncclResult_t ncclCommUserRank(ncclComm_t comm, int *rank) {
  *rank = comm->rank;
  return ncclSuccess;
}

/* ---- destruction ---- */

static ncclResult_t flush(ncclComm_t comm) {
  while (atomic_load(&comm->plans) > 0 && !atomic_load(&comm->aborted)) nap();
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  const ncclResult_t code = comm_check(comm);
  return code ? code : comm_begin(comm, flush);
}

static void let_go(ncclComm_t comm) {
  if (comm->segment) atomic_store(&comm->segment->left[comm->rank], 1);
  while (comm->kept) {
    plan_t *const plan = comm->kept;
    comm->kept = plan->next;
    free(plan);
  }
  comm_release(comm);
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  flush(comm);
  let_go(comm);
  return ncclSuccess;
}

/* Returns when the kernels have ended. */
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  if (!comm) return ncclInvalidArgument;
  atomic_store(&comm->aborted, 1);
  let_go(comm);
  return ncclSuccess;
}

/* ---- registration ---- */

ncclResult_t ncclCommRegister(ncclComm_t comm, void *ptr, size_t size, void **handle) {
  const ncclResult_t code = comm_check(comm);
  if (code) return code;
  if (!ptr || !size) return fail_with(ncclInvalidArgument, "registration of %zu bytes", size);
  *handle = malloc(1);
  return *handle ? ncclSuccess : ncclSystemError;
}

ncclResult_t ncclCommDeregister(ncclComm_t comm, void *handle) {
  (void)comm;
  free(handle);
  return ncclSuccess;
}
