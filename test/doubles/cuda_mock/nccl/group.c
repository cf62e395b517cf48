/* group.c: calls of collectives in groups: a group is one plan for each communicator, queued when the outermost
   group ends. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "nccl_mock.h"

typedef struct call_s {
  ncclComm_t comm;
  CUstream stream;
  work_t work;
} call_t;

static __thread struct {
  int depth;
  ncclResult_t code; /* the first failure */
  size_t count, room;
  call_t *calls;
} group;

/* ---- the driver ---- */

static void *driver_function(const char *name) {
  void *const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  return driver ? dlsym(driver, name) : NULL;
}

static CUresult queue(plan_t *plan) {
  CUresult (*launch)(CUstream, CUhostFn, void *) = NULL;
  void *const found = driver_function("cuda_mock_kernel");
  memcpy(&launch, &found, sizeof found);
  return launch ? launch(plan->stream, plan_run, plan) : CUDA_ERROR_NOT_FOUND;
}

static int is_captured(CUstream stream) {
  CUresult (*ask)(CUstream, CUstreamCaptureStatus *) = NULL;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  void *const found = driver_function("cuStreamIsCapturing");
  memcpy(&ask, &found, sizeof found);
  return ask && !ask(stream, &status) && status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* ---- groups ---- */

/* The calls of the first remaining communicator, which are removed from the group. */
static ncclResult_t queue_first(void) {
  ncclComm_t const comm = group.calls[0].comm;
  plan_t *const plan = calloc(1, sizeof *plan + group.count * sizeof(work_t));
  size_t left = 0;
  if (!plan) return fail_with(ncclSystemError, "no memory");
  plan->comm = comm;
  plan->stream = group.calls[0].stream;
  plan->captured = is_captured(plan->stream);
  for (size_t i = 0; i < group.count; i++) {
    const call_t call = group.calls[i];
    if (call.comm == comm && call.stream == plan->stream)
      plan->works[plan->count++] = call.work;
    else
      group.calls[left++] = call;
  }
  group.count = left;
  if (plan->captured) {
    plan->next = comm->kept;
    comm->kept = plan;
  } else {
    atomic_fetch_add(&comm->users, 1);
    atomic_fetch_add(&comm->plans, 1);
  }
  comm->pending = !comm->blocking;
  if (queue(plan)) return fail_with(ncclUnhandledCudaError, "the driver refused a kernel");
  return comm->blocking ? ncclSuccess : ncclInProgress;
}

ncclResult_t ncclGroupStart(void) {
  group.depth++;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void) {
  ncclResult_t code = group.code;
  if (!group.depth) return fail_with(ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
  if (--group.depth) return ncclSuccess;
  if (!code) code = refusal("ncclGroupEnd");
  ncclResult_t end = ncclSuccess;
  while (!code && group.count) {
    const ncclResult_t one = queue_first();
    if (one == ncclInProgress)
      end = one;
    else
      code = one;
  }
  free(group.calls); /* the thread may end */
  group.calls = NULL;
  group.count = group.room = 0;
  group.code = ncclSuccess;
  return code ? code : end;
}

static ncclResult_t note(const call_t *call, ncclResult_t code) {
  if (!code && group.count == group.room) {
    const size_t room = group.room ? 2 * group.room : 16;
    call_t *const calls = realloc(group.calls, room * sizeof *calls);
    if (!calls) code = ncclSystemError;
    if (calls) {
      group.calls = calls;
      group.room = room;
    }
  }
  if (!code) group.calls[group.count++] = *call;
  if (code && !group.code) group.code = code;
  return code;
}

static ncclResult_t check(const call_t *call) {
  const ncclResult_t code = comm_check(call->comm);
  if (code) return code;
  if (!bytes_of(call->work.type)) return fail_with(ncclInvalidArgument, "data type %d", (int)call->work.type);
  if (call->work.peer < 0 || call->work.peer >= call->comm->size)
    return fail_with(ncclInvalidArgument, "rank %d of %d", call->work.peer, call->comm->size);
  return ncclSuccess;
}

static ncclResult_t push(ncclComm_t comm, CUstream stream, const work_t *work) {
  const call_t call = {comm, stream, *work};
  ncclGroupStart();
  const ncclResult_t code = note(&call, check(&call)), end = ncclGroupEnd();
  return code ? code : end;
}

/* ---- reductions ---- */

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar, ncclDataType_t type,
                                      ncclScalarResidence_t residence, ncclComm_t comm) {
  const ncclResult_t code = comm_check(comm);
  if (code) return code;
  for (int i = 0; i < SCALES; i++) {
    scale_t *const scale = &comm->scales[i];
    if (scale->used) continue;
    *scale = (scale_t){.used = 1, .on_device = residence == ncclScalarDevice, .device = scalar};
    if (!scale->on_device) memcpy(scale->host, scalar, bytes_of(type));
    *op = (ncclRedOp_t)(FIRST_SCALE + i);
    return ncclSuccess;
  }
  return fail_with(ncclInternalError, "more than %d reductions", SCALES);
}

ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm) {
  const int index = (int)op - FIRST_SCALE;
  if (index < 0 || index >= SCALES || !comm->scales[index].used)
    return fail_with(ncclInvalidArgument, "no such reduction");
  comm->scales[index].used = 0;
  return ncclSuccess;
}

static ncclResult_t push_reduction(ncclComm_t comm, CUstream stream, work_t *work) {
  const int index = (int)work->reduce - FIRST_SCALE;
  if (index >= SCALES || (index >= 0 && !comm->scales[index].used))
    return fail_with(ncclInvalidArgument, "no such reduction");
  if (index >= 0) work->scale = comm->scales[index];
  return push(comm, stream, work);
}

/* ---- collectives ---- */

ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  work_t work = {.kind = ALL_REDUCE, .send = send, .recv = recv, .count = count, .type = type, .reduce = op};
  return push_reduction(comm, stream, &work);
}

ncclResult_t ncclReduce(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
                        ncclComm_t comm, cudaStream_t stream) {
  work_t work = {.kind = REDUCE, .send = send, .recv = recv, .count = count, .type = type, .reduce = op, .peer = root};
  return push_reduction(comm, stream, &work);
}

ncclResult_t ncclReduceScatter(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
  work_t work = {.kind = REDUCE_SCATTER, .send = send, .recv = recv, .count = count, .type = type, .reduce = op};
  return push_reduction(comm, stream, &work);
}

ncclResult_t ncclBroadcast(const void *send, void *recv, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  return push(comm, stream,
              &(work_t){.kind = BROADCAST, .send = send, .recv = recv, .count = count, .type = type, .peer = root});
}

ncclResult_t ncclAllGather(const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  return push(comm, stream, &(work_t){.kind = ALL_GATHER, .send = send, .recv = recv, .count = count, .type = type});
}

ncclResult_t ncclSend(const void *send, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return push(comm, stream, &(work_t){.kind = SEND, .send = send, .count = count, .type = type, .peer = peer});
}

ncclResult_t ncclRecv(void *recv, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  return push(comm, stream, &(work_t){.kind = RECV, .recv = recv, .count = count, .type = type, .peer = peer});
}
