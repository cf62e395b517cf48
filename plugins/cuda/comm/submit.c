/* submit.c: NCCL's capabilities, and submission of collectives. Collectives that NCCL lacks, and uneven counts, are
 * SEND and RECV calls in one group. */
#include <stdio.h>
#include <string.h>

#include "nccl.h"

#define BIT(type) HAL_DTYPE_BIT(HAL_##type)
#define INTEGERS (BIT(INT8) | BIT(UINT8) | BIT(INT32) | BIT(UINT32) | BIT(INT64) | BIT(UINT64))
#define FLOATS (BIT(FLOAT16) | BIT(BFLOAT16) | BIT(FLOAT32) | BIT(FLOAT64))
#define COMPLEX (BIT(COMPLEX32) | BIT(COMPLEX64) | BIT(COMPLEX128))

/* NCCL's minimum and maximum of floating-point numbers lose NaN, so they are unsupported. Those of bytes also serve
 * bool. */
static const uint64_t reduce_dtypes[16] = {[HAL_REDUCE_SUM] = INTEGERS | FLOATS | COMPLEX | BIT(BOOL),
                                           [HAL_REDUCE_PROD] = INTEGERS | FLOATS | BIT(BOOL),
                                           [HAL_REDUCE_MIN] = INTEGERS | BIT(BOOL),
                                           [HAL_REDUCE_MAX] = INTEGERS | BIT(BOOL),
                                           [HAL_REDUCE_AVG] = FLOATS | COMPLEX,
                                           [HAL_REDUCE_BAND] = BIT(BOOL),
                                           [HAL_REDUCE_BOR] = BIT(BOOL),
                                           [HAL_REDUCE_PREMUL_SUM] = FLOATS};

static const char *const op_names[] = {"all_reduce",     "broadcast",  "reduce", "all_gather",
                                       "reduce_scatter", "all_to_all", "send",   "recv",
                                       "barrier",        "gather",     "scatter"};
enum { OPS = sizeof op_names / sizeof *op_names };

/* Bytes of an element, by dtype; 0 = unknown dtype. */
static const unsigned char sizes[] = {
    [HAL_UINT8] = 1,           [HAL_INT8] = 1,        [HAL_INT16] = 2,          [HAL_INT32] = 4,
    [HAL_INT64] = 8,           [HAL_FLOAT16] = 2,     [HAL_FLOAT32] = 4,        [HAL_FLOAT64] = 8,
    [HAL_COMPLEX32] = 4,       [HAL_COMPLEX64] = 8,   [HAL_COMPLEX128] = 16,    [HAL_BOOL] = 1,
    [HAL_BFLOAT16] = 2,        [HAL_FLOAT8_E5M2] = 1, [HAL_FLOAT8_E4M3FN] = 1,  [HAL_FLOAT8_E5M2FNUZ] = 1,
    [HAL_FLOAT8_E4M3FNUZ] = 1, [HAL_UINT16] = 2,      [HAL_UINT32] = 4,         [HAL_UINT64] = 8,
    [HAL_UINT4] = 1,           [HAL_INT4] = 1,        [HAL_FLOAT8_E8M0FNU] = 1, [HAL_FLOAT4_E2M1FN_X2] = 1};

static uint64_t copied_dtypes(void) {
  uint64_t mask = 0;
  for (size_t i = 0; i < sizeof sizes; i++)
    if (sizes[i]) mask |= HAL_DTYPE_BIT(i);
  return mask;
}

hal_status_t hal_plugin_comm_info(int32_t device, hal_comm_info_t *out_info) {
  const hal_status_t status = cuda_nccl_serve(device);
  if (status) return status;
  hal_comm_info_t info = {.struct_size = out_info->struct_size,
                          .id_bytes = sizeof(ncclUniqueId),
                          .ops = (UINT64_C(1) << OPS) - 1,
                          .copy_dtypes = copied_dtypes(),
                          .flags = HAL_COMM_CAN_NONBLOCKING | HAL_COMM_CAN_SPLIT | HAL_COMM_CAN_REGISTER |
                                   HAL_COMM_CAN_CAPTURE | HAL_COMM_CAN_UNEVEN | HAL_COMM_CAN_CROSS_HOSTS |
                                   HAL_COMM_CAN_SCALE_ON_DEVICE,
                          .version = (uint32_t)cuda_nccl_version(),
                          .name = "nccl"};
  if (nccl.ncclCommShrink) info.flags |= HAL_COMM_CAN_SHRINK;
  memcpy(info.reduce_dtypes, reduce_dtypes, sizeof reduce_dtypes);
  memcpy(out_info, &info, info.struct_size < sizeof info ? info.struct_size : sizeof info);
  return HAL_OK;
}

/* ---- checks ----------------------------------------------------------------------------------------------------- */

static int reduces(uint32_t op) {
  return op == HAL_COMM_ALL_REDUCE || op == HAL_COMM_REDUCE || op == HAL_COMM_REDUCE_SCATTER;
}

static hal_status_t check_reduction(const hal_collective_t *call) {
  if (call->reduce >= 16 || !(reduce_dtypes[call->reduce] & HAL_DTYPE_BIT(call->dtype)))
    return cuda_error(
        HAL_UNIMPLEMENTED, 0,
        "cuda: %s with reduction %u of dtype %d is not supported by NCCL; comm_info lists the supported ones",
        op_names[call->op], (unsigned)call->reduce, (int)call->dtype);
  if (call->reduce == HAL_REDUCE_PREMUL_SUM && !call->scale)
    return cuda_error(HAL_INVALID_ARGUMENT, 0, "cuda: %s with PREMUL_SUM and no scale", op_names[call->op]);
  if (call->reduce == HAL_REDUCE_PREMUL_SUM && call->flags & HAL_COLLECTIVE_SCALE_ON_DEVICE && sizes[call->dtype] == 2)
    return cuda_error(
        HAL_UNIMPLEMENTED, 0,
        "cuda: %s with a scale in device memory for dtype %d: NCCL reads no float there; pass it on the host",
        op_names[call->op], (int)call->dtype);
  return HAL_OK;
}

static hal_status_t check_call(const hal_comm_call_t *one) {
  const hal_collective_t *const call = one->desc;
  hal_status_t status = cuda_nccl_check(one->comm, call->op < OPS ? op_names[call->op] : "comm_submit");
  if (status) return status;
  if (call->op >= OPS) return cuda_error(HAL_UNIMPLEMENTED, 0, "cuda: unknown collective %u", (unsigned)call->op);
  status = hal_flags_check("cuda: comm_submit", call->flags, HAL_COLLECTIVE_SCALE_ON_DEVICE);
  if (status || call->op == HAL_COMM_BARRIER) return status;
  if ((size_t)call->dtype >= sizeof sizes || !sizes[call->dtype])
    return cuda_error(HAL_UNIMPLEMENTED, 0, "cuda: %s of unknown dtype %d", op_names[call->op], (int)call->dtype);
  const int has_peer = call->op == HAL_COMM_BROADCAST || call->op == HAL_COMM_REDUCE || call->op == HAL_COMM_SEND ||
                       call->op == HAL_COMM_RECV || call->op == HAL_COMM_GATHER || call->op == HAL_COMM_SCATTER;
  if (has_peer && (call->peer < 0 || call->peer >= one->comm->size))
    return cuda_error(HAL_INVALID_ARGUMENT, 0, "cuda: %s with rank %d of %d ranks", op_names[call->op], (int)call->peer,
                      (int)one->comm->size);
  if (one->stream && one->stream->device != one->comm->device)
    return cuda_error(HAL_INVALID_ARGUMENT, 0, "cuda: %s on a stream of device %d by a communicator of device %d",
                      op_names[call->op], (int)one->stream->device, (int)one->comm->device);
  return reduces(call->op) ? check_reduction(call) : HAL_OK;
}

/* ---- types and reductions of NCCL ------------------------------------------------------------------------------- */

typedef struct words_s {
  ncclDataType_t type;
  ncclRedOp_t reduce;
  uint64_t times; /* elements of `type` for each element of the call */
  size_t bytes;   /* of one element of the call */
  int made;       /* `reduce` was created for this call */
} words_t;

static ncclDataType_t type_of(hal_dtype_t dtype) {
  switch (dtype) {
    case HAL_INT8:
      return ncclInt8;
    case HAL_INT32:
      return ncclInt32;
    case HAL_UINT32:
      return ncclUint32;
    case HAL_INT64:
      return ncclInt64;
    case HAL_UINT64:
      return ncclUint64;
    case HAL_FLOAT16:
    case HAL_COMPLEX32:
      return ncclFloat16;
    case HAL_BFLOAT16:
      return ncclBfloat16;
    case HAL_FLOAT32:
    case HAL_COMPLEX64:
      return ncclFloat32;
    case HAL_FLOAT64:
    case HAL_COMPLEX128:
      return ncclFloat64;
    default:
      return ncclUint8;
  }
}

static ncclRedOp_t reduction_of(const hal_collective_t *call) {
  const int is_bool = call->dtype == HAL_BOOL;
  switch (call->reduce) {
    case HAL_REDUCE_SUM:
    case HAL_REDUCE_BOR:
      return is_bool ? ncclMax : ncclSum;
    case HAL_REDUCE_PROD:
    case HAL_REDUCE_BAND:
      return is_bool ? ncclMin : ncclProd;
    case HAL_REDUCE_MIN:
      return ncclMin;
    case HAL_REDUCE_MAX:
      return ncclMax;
    default:
      return ncclAvg;
  }
}

/* Rounds to nearest, ties to even; NaN remains NaN. */
static uint16_t bfloat16_of(float value) {
  uint32_t bits = 0;
  memcpy(&bits, &value, sizeof bits);
  return value != value ? 0x7fc0 : (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static uint16_t float16_of(float value) {
  uint32_t bits = 0;
  memcpy(&bits, &value, sizeof bits);
  const uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return 0x7e00;
  if (magnitude >= 0x477ff000) return (uint16_t)(sign | 0x7c00); /* rounds to more than 65504 */
  if (magnitude >= 0x38800000)
    return (uint16_t)(sign | ((magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1)) >> 13));
  float tiny = 0; /* a subnormal number: this sum has its bits at the end, rounded by the processor */
  memcpy(&tiny, &magnitude, sizeof tiny);
  tiny += 0.5f;
  memcpy(&bits, &tiny, sizeof bits);
  return (uint16_t)(sign | (bits - 0x3f000000));
}

/* Returns the number in the type of the elements, as NCCL reads it; floats are rounded to nearest. */
static void scale_of(const hal_collective_t *call, unsigned char *out) {
  float value = 0;
  memcpy(out, call->scale, sizes[call->dtype]);
  if (sizes[call->dtype] != 2) return;
  memcpy(&value, call->scale, sizeof value);
  const uint16_t half = call->dtype == HAL_FLOAT16 ? float16_of(value) : bfloat16_of(value);
  memcpy(out, &half, sizeof half);
}

/* NCCL has read the number on the host when this returns. */
static ncclResult_t find_words(const hal_comm_call_t *one, words_t *out) {
  const hal_collective_t *const call = one->desc;
  union {
    unsigned char bytes[8];
    double align;
  } scale = {{0}};
  *out = (words_t){.type = ncclUint8, .times = sizes[call->dtype], .bytes = sizes[call->dtype]};
  if (!reduces(call->op)) return ncclSuccess;
  const int is_complex = (BIT(COMPLEX32) | BIT(COMPLEX64) | BIT(COMPLEX128)) >> call->dtype & 1;
  out->type = type_of(call->dtype);
  out->times = is_complex ? 2 : 1;
  out->reduce = reduction_of(call);
  if (call->reduce != HAL_REDUCE_PREMUL_SUM) return ncclSuccess;
  const int on_device = (call->flags & HAL_COLLECTIVE_SCALE_ON_DEVICE) != 0;
  if (!on_device) scale_of(call, scale.bytes);
  const ncclResult_t code =
      nccl.ncclRedOpCreatePreMulSum(&out->reduce, on_device ? (void *)call->scale : scale.bytes, out->type,
                                    on_device ? ncclScalarDevice : ncclScalarHostImmediate, one->comm->handle);
  out->made = !code;
  return code;
}

/* ---- groups of SEND and RECV ------------------------------------------------------------------------------------ */

typedef struct blocks_s {
  const uint64_t *counts, *displs;
  uint64_t count; /* if there are no counts */
} blocks_t;

static uint64_t count_at(const blocks_t *blocks, int rank) {
  return blocks->counts ? blocks->counts[rank] : blocks->count;
}

static uint64_t place_of(const blocks_t *blocks, int rank) {
  if (blocks->displs) return blocks->displs[rank];
  if (!blocks->counts) return blocks->count * (uint64_t)rank;
  uint64_t place = 0;
  for (int i = 0; i < rank; i++) place += blocks->counts[i];
  return place;
}

typedef struct issue_s {
  const hal_comm_call_t *call;
  CUstream stream;
  words_t words;
} issue_t;

static ncclResult_t give(const issue_t *issue, const void *from, uint64_t count, int peer) {
  const hal_comm_call_t *const one = issue->call;
  return count ? nccl.ncclSend(from, count * issue->words.times, issue->words.type, peer, one->comm->handle,
                               issue->stream)
               : ncclSuccess;
}

static ncclResult_t take(const issue_t *issue, void *to, uint64_t count, int peer) {
  const hal_comm_call_t *const one = issue->call;
  return count
             ? nccl.ncclRecv(to, count * issue->words.times, issue->words.type, peer, one->comm->handle, issue->stream)
             : ncclSuccess;
}

/* Sends blocks to some ranks and receives blocks from some ranks. */
static ncclResult_t exchange(const issue_t *issue, int gives_blocks, int gives, int takes_blocks, int takes) {
  const hal_collective_t *const call = issue->call->desc;
  const hal_plugin_comm_t *const comm = issue->call->comm;
  const blocks_t out = {call->send_counts, call->send_displs, call->count};
  const blocks_t in = {call->recv_counts, call->recv_displs, call->count};
  ncclResult_t code = ncclSuccess;
  for (int i = 0; i < comm->size && !code; i++) {
    const int to = gives == i || gives == -1, from = takes == i || takes == -1;
    const char *const source = (const char *)call->send + (gives_blocks ? place_of(&out, i) * issue->words.bytes : 0);
    char *const target = (char *)call->recv + (takes_blocks ? place_of(&in, i) * issue->words.bytes : 0);
    const uint64_t given = gives_blocks ? count_at(&out, i) : call->count;
    const uint64_t taken = takes_blocks ? count_at(&in, i) : call->count;
    if (i == comm->rank && to && from && source == target) continue; /* in place */
    if (to) code = give(issue, source, given, i);
    if (from && !code) code = take(issue, target, taken, i);
  }
  return code;
}

enum { ALL = -1, NONE = -2 };

static ncclResult_t uneven_reduce_scatter(const issue_t *issue) {
  const hal_collective_t *const call = issue->call->desc;
  const blocks_t out = {call->send_counts, call->send_displs, call->count};
  ncclResult_t code = ncclSuccess;
  for (int i = 0; i < issue->call->comm->size && !code; i++)
    if (count_at(&out, i))
      code = nccl.ncclReduce((const char *)call->send + place_of(&out, i) * issue->words.bytes, call->recv,
                             count_at(&out, i) * issue->words.times, issue->words.type, issue->words.reduce, i,
                             issue->call->comm->handle, issue->stream);
  return code;
}

static ncclResult_t issue_copy(const issue_t *issue) {
  const hal_collective_t *const call = issue->call->desc;
  const hal_plugin_comm_t *const comm = issue->call->comm;
  const uint64_t count = call->count * issue->words.times;
  const int root = call->peer, own = comm->rank;
  switch (call->op) {
    case HAL_COMM_BROADCAST:
      return nccl.ncclBroadcast(own == root ? call->send : call->recv, call->recv, count, issue->words.type, root,
                                comm->handle, issue->stream);
    case HAL_COMM_ALL_GATHER:
      if (call->recv_counts || call->recv_displs) return exchange(issue, 0, ALL, 1, ALL);
      return nccl.ncclAllGather(call->send, call->recv, count, issue->words.type, comm->handle, issue->stream);
    case HAL_COMM_ALL_TO_ALL:
      return exchange(issue, 1, ALL, 1, ALL);
    case HAL_COMM_GATHER:
      return exchange(issue, 0, root, 1, own == root ? ALL : NONE);
    case HAL_COMM_SCATTER:
      return exchange(issue, 1, own == root ? ALL : NONE, 0, root);
    case HAL_COMM_SEND:
      return give(issue, call->send, call->count, root);
    default:
      return take(issue, call->recv, call->count, root);
  }
}

static ncclResult_t issue_call(const issue_t *issue) {
  const hal_collective_t *const call = issue->call->desc;
  const hal_plugin_comm_t *const comm = issue->call->comm;
  const words_t *const words = &issue->words;
  const uint64_t count = call->count * words->times;
  switch (call->op) {
    case HAL_COMM_BARRIER:
      return nccl.ncclAllReduce((void *)(uintptr_t)comm->word, (void *)(uintptr_t)comm->word, 1, ncclInt32, ncclMax,
                                comm->handle, issue->stream);
    case HAL_COMM_ALL_REDUCE:
      return nccl.ncclAllReduce(call->send, call->recv, count, words->type, words->reduce, comm->handle, issue->stream);
    case HAL_COMM_REDUCE:
      return nccl.ncclReduce(call->send, call->recv, count, words->type, words->reduce, call->peer, comm->handle,
                             issue->stream);
    case HAL_COMM_REDUCE_SCATTER:
      if (call->send_counts || call->send_displs) return uneven_reduce_scatter(issue);
      return nccl.ncclReduceScatter(call->send, call->recv, count, words->type, words->reduce, comm->handle,
                                    issue->stream);
    default:
      return issue_copy(issue);
  }
}

/* ---- submission ------------------------------------------------------------------------------------------------- */

static const hal_comm_call_t *call_at(const hal_comm_call_t *calls, size_t stride, size_t index) {
  return (const hal_comm_call_t *)((const char *)calls + index * stride);
}

static hal_plugin_stream_t *stream_of(const hal_comm_call_t *one) {
  return one->stream ? one->stream : cuda.devices[one->comm->device].own;
}

/* Issues the group; the caller holds cuda_nccl_lock. A reduction that was created may be destroyed after the return of
 * its call. */
static ncclResult_t issue_all(const hal_comm_call_t *calls, size_t count, size_t stride) {
  ncclResult_t code = nccl.ncclGroupStart(), made = ncclSuccess;
  if (code) return code;
  for (size_t i = 0; i < count && (!code || code == ncclInProgress); i++) {
    issue_t issue = {.call = call_at(calls, stride, i), .stream = stream_of(call_at(calls, stride, i))->handle};
    if (!issue.call->comm->handle) {
      code = ncclInvalidUsage; /* aborted by another thread */
      break;
    }
    code = find_words(issue.call, &issue.words);
    if (!code) code = issue_call(&issue);
    if (issue.words.made) made = nccl.ncclRedOpDestroy(issue.words.reduce, issue.call->comm->handle);
  }
  const ncclResult_t end = nccl.ncclGroupEnd();
  if (code && code != ncclInProgress) return code;
  return end && end != ncclInProgress ? end : made && made != ncclInProgress ? made : ncclSuccess;
}

/* Records the submission for the stream: destroy waits for it, and an abort is reported there. */
static CUresult note(const hal_comm_call_t *one) {
  hal_plugin_stream_t *const stream = stream_of(one);
  hal_plugin_comm_t *const comm = one->comm;
  int known = 0;
  for (int i = 0; i < NCCL_STREAMS; i++) known |= comm->streams[i] == stream;
  if (!known) comm->streams[comm->next_stream++ % NCCL_STREAMS] = stream;
  atomic_store_explicit(&stream->kernel, NULL, memory_order_relaxed);
  atomic_store_explicit(&stream->op, "comm_submit", memory_order_release);
  return cuda_stream_is_captured(stream) ? CUDA_SUCCESS : drv.cuEventRecord(comm->last, stream->handle);
}

/* NCCL queues kernels of non-blocking communicators in its own thread. The order of the streams is that of the calls
 * once that has finished. */
static hal_status_t finish(const hal_comm_call_t *one, ncclResult_t *code) {
  ncclResult_t own = ncclSuccess;
  const hal_status_t status = cuda_nccl_wait(one->comm, 0, &own);
  if (status == HAL_ABORTED) return status;
  if (!*code) *code = own;
  return HAL_OK;
}

static hal_status_t submit_locked(const hal_comm_call_t *calls, size_t count, size_t stride) {
  hal_plugin_comm_t *const first = call_at(calls, stride, 0)->comm;
  ncclResult_t code = issue_all(calls, count, stride);
  CUresult driver = CUDA_SUCCESS;
  for (size_t i = 0; i < count; i++) {
    if (finish(call_at(calls, stride, i), &code))
      return cuda_error(HAL_ABORTED, 0, "cuda: communicator '%s' was aborted during comm_submit",
                        call_at(calls, stride, i)->comm->name);
  }
  if (code) {
    const hal_status_t status = cuda_nccl_error(code, "cuda: %s of communicator '%s' was refused",
                                                op_names[call_at(calls, stride, 0)->desc->op], first->name);
    if (status != HAL_INVALID_ARGUMENT) cuda_nccl_fail(first, status, code, nccl.ncclGetErrorString(code));
    return status;
  }
  for (size_t i = 0; i < count && !driver; i++) driver = note(call_at(calls, stride, i));
  cuda_device_noticed(first->device, driver);
  return driver ? cuda_driver_error(driver, "cuda: comm_submit of communicator '%s'", first->name) : HAL_OK;
}

/* Calls of the NULL stream are done when comm_submit returns; an abort in another thread ends the wait. */
static hal_status_t wait_for_own(const hal_comm_call_t *calls, size_t count, size_t stride) {
  for (size_t i = 0; i < count; i++) {
    const hal_comm_call_t *const one = call_at(calls, stride, i);
    if (one->stream) continue;
    const CUresult code = drv.cuStreamSynchronize(stream_of(one)->handle);
    if (code) return cuda_work_failed(stream_of(one), code);
    if (atomic_load(&one->comm->state) == (int)HAL_COMM_ABORTED)
      return cuda_error(HAL_ABORTED, 0, "cuda: communicator '%s' was aborted during %s", one->comm->name,
                        op_names[one->desc->op]);
  }
  return HAL_OK;
}

hal_status_t hal_plugin_comm_submit(const hal_comm_call_t *calls, size_t count, size_t stride) {
  cuda_scope_t scope;
  hal_status_t status = HAL_OK;
  for (size_t i = 0; i < count && !status; i++) status = check_call(call_at(calls, stride, i));
  if (status || !count) return status;
  const int32_t device = calls->comm->device;
  status = cuda_check_alive(device);
  if (!status) status = cuda_enter(device, &scope);
  if (status) return status;
  pthread_mutex_lock(&cuda_nccl_lock);
  status = submit_locked(calls, count, stride);
  pthread_mutex_unlock(&cuda_nccl_lock);
  if (!status) status = wait_for_own(calls, count, stride);
  cuda_leave(&scope);
  return status;
}
