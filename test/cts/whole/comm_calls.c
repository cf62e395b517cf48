/* comm_calls.c: calls of collectives: all are checked and copied before one job of them is queued. */
#include "comm.h"

static const char *const op_names[] = {"all_reduce",     "broadcast",  "reduce", "all_gather",
                                       "reduce_scatter", "all_to_all", "send",   "recv",
                                       "barrier",        "gather",     "scatter"};
enum { OPS = sizeof op_names / sizeof *op_names };

static const hal_comm_call_t *call_at(const hal_comm_call_t *calls, size_t stride, size_t index) {
  return (const hal_comm_call_t *)(const void *)((const char *)calls + index * stride);
}

/* ---- checks ---- */

static hal_status_t check_counts(const hal_comm_call_t *one, const uint64_t *counts, const uint64_t *displs) {
  const uint64_t most = SIZE_MAX / 16 / COMM_RANKS / 2; /* of 16 bytes each, for all ranks */
  uint64_t sum = 0;
  for (int i = 0; i < one->comm->size; i++) {
    const uint64_t count = counts ? counts[i] : one->desc->count;
    if (count > most || (displs && displs[i] > most) || (sum += count) > most)
      return comm_refuse(HAL_INVALID_ARGUMENT, "whole: %s of more elements than memory has", op_names[one->desc->op]);
  }
  return HAL_OK;
}

static hal_status_t check_reduction(const hal_collective_t *call) {
  if (call->reduce >= 16 || !(comm_reduce_dtypes[call->reduce] & HAL_DTYPE_BIT(call->dtype)))
    return comm_refuse(HAL_UNIMPLEMENTED, "whole: %s with reduction %u of dtype %d; comm_info lists what there is",
                       op_names[call->op], (unsigned)call->reduce, (int)call->dtype);
  if (call->reduce == HAL_REDUCE_PREMUL_SUM && !call->scale)
    return comm_refuse(HAL_INVALID_ARGUMENT, "whole: %s with PREMUL_SUM and no scale", op_names[call->op]);
  return HAL_OK;
}

static hal_status_t check_call(const hal_comm_call_t *one) {
  const hal_collective_t *const call = one->desc;
  hal_status_t status = comm_check(one->comm, call->op < OPS ? op_names[call->op] : "comm_submit");
  if (!status && call->op >= OPS)
    status = comm_refuse(HAL_UNIMPLEMENTED, "whole: unknown collective %u", (unsigned)call->op);
  if (!status)
    status =
        comm_check_flags(op_names[call->op], call->flags,
                         HAL_COLLECTIVE_SCALE_ON_DEVICE | HAL_COLLECTIVE_FLOAT32_SUM | HAL_COLLECTIVE_DETERMINISTIC);
  if (status || call->op == HAL_COMM_BARRIER) return status;
  if (!comm_dtype_size(call->dtype))
    return comm_refuse(HAL_UNIMPLEMENTED, "whole: %s of unknown dtype %d", op_names[call->op], (int)call->dtype);
  const uint32_t with_peer = 1U << HAL_COMM_BROADCAST | 1U << HAL_COMM_REDUCE | 1U << HAL_COMM_SEND |
                             1U << HAL_COMM_RECV | 1U << HAL_COMM_GATHER | 1U << HAL_COMM_SCATTER;
  if ((with_peer >> call->op & 1) && (call->peer < 0 || call->peer >= one->comm->size))
    return comm_refuse(HAL_INVALID_ARGUMENT, "whole: %s with rank %d of %d ranks", op_names[call->op], (int)call->peer,
                       (int)one->comm->size);
  status = check_counts(one, call->send_counts, call->send_displs);
  if (!status) status = check_counts(one, call->recv_counts, call->recv_displs);
  return !status && comm_reduces(call->op) ? check_reduction(call) : status;
}

/* ---- copies of data that the caller may change ---- */

static const uint64_t *copy_array(uint64_t **to, const uint64_t *from, int count) {
  if (!from) return NULL;
  uint64_t *const copy = *to;
  memcpy(copy, from, (size_t)count * sizeof *copy);
  *to += count;
  return copy;
}

static hal_status_t copy_call(comm_work_t *work, const hal_comm_call_t *one) {
  hal_collective_t *const call = &work->call;
  const size_t size = one->desc->struct_size < sizeof *call ? one->desc->struct_size : sizeof *call;
  work->comm = one->comm, work->stream = one->stream;
  memcpy(call, one->desc, size);
  uint64_t *at = work->arrays = malloc(4 * COMM_RANKS * sizeof *at);
  if (!at) return comm_refuse(HAL_RESOURCE_EXHAUSTED, "whole: no memory for a collective");
  call->send_counts = copy_array(&at, call->send_counts, work->comm->size);
  call->send_displs = copy_array(&at, call->send_displs, work->comm->size);
  call->recv_counts = copy_array(&at, call->recv_counts, work->comm->size);
  call->recv_displs = copy_array(&at, call->recv_displs, work->comm->size);
  if (comm_reduces(call->op) && call->reduce == HAL_REDUCE_PREMUL_SUM &&
      !(call->flags & HAL_COLLECTIVE_SCALE_ON_DEVICE))
    memcpy(work->scale, call->scale, call->dtype == HAL_FLOAT64 ? sizeof(double) : sizeof(float));
  return HAL_OK;
}

/* ---- the queue ---- */

/* Work of the other streams runs before the job, and after it: the job itself is on one stream. */
static hal_status_t order(int32_t device, stream_t *before, stream_t *after) {
  event_t *event = NULL;
  hal_status_t status = before == after ? HAL_OK : whole_good.event_create(device, 0, &event);
  if (!event) return status;
  status = whole_good.event_record(event, before);
  if (!status) status = whole_good.stream_wait_event(after, event);
  whole_good.event_destroy(event);
  return status;
}

static int is_captured(stream_t *stream) {
  uint32_t status = HAL_CAPTURE_NONE;
  uint64_t id = 0;
  return whole_good.capture_status && !whole_good.capture_status(stream, &status, &id) && status == HAL_CAPTURE_ACTIVE;
}

/* A recorded job belongs to its first communicator, and is freed with it. */
static void keep_captured(comm_job_t *job) {
  hal_plugin_comm_t *const owner = job->works[0].comm;
  job->captured = 1;
  pthread_mutex_lock(&owner->lock);
  job->next = owner->captured, owner->captured = job;
  pthread_mutex_unlock(&owner->lock);
}

/* The job keeps its communicators, and is counted in their calls. */
static void keep_all(comm_job_t *job) {
  for (size_t i = 0; i < job->count; i++) {
    atomic_fetch_add(&job->works[i].comm->jobs, 1);
    atomic_fetch_add(&job->works[i].comm->queued, 1);
    comm_keep(job->works[i].comm);
  }
}

static hal_status_t queue(comm_job_t *job, stream_t *stream) {
  if (is_captured(stream)) {
    const hal_status_t status = whole_good.stream_host_call(stream, comm_job_run, job);
    if (!status) keep_captured(job);
    return status;
  }
  keep_all(job);
  const hal_status_t status = whole_good.stream_host_call(stream, comm_job_run, job);
  for (size_t i = 0; status && i < job->count; i++) {
    atomic_fetch_sub(&job->works[i].comm->jobs, 1);
    atomic_fetch_sub(&job->works[i].comm->queued, 1);
    comm_drop(job->works[i].comm);
  }
  return status;
}

/* Runs the job in this thread, for calls without a stream. */
static hal_status_t run(comm_job_t *job) {
  hal_plugin_comm_t *const comm = job->works[0].comm;
  hal_status_t status = HAL_OK;
  job->out_status = &status;
  keep_all(job);
  comm_job_run(job);
  return status
             ? comm_refuse(status, "whole: communicator '%s' ended during comm_submit: %s", comm->name, comm->message)
             : HAL_OK;
}

/* ---- submission ---- */

static hal_status_t make_job(const hal_comm_call_t *calls, size_t count, size_t stride, comm_job_t **out_job) {
  hal_status_t status = HAL_OK;
  comm_job_t *const job = calloc(1, sizeof *job + count * sizeof(comm_work_t));
  if (!job) return comm_refuse(HAL_RESOURCE_EXHAUSTED, "whole: no memory for %zu collectives", count);
  job->count = count;
  for (size_t i = 0; i < count && !status; i++) status = copy_call(&job->works[i], call_at(calls, stride, i));
  if (!status) status = comm_job_plan(job);
  if (status) return comm_job_free(job), status;
  *out_job = job;
  return HAL_OK;
}

/* Queues the job on `stream` after the work of the calls' other streams, or that of the others after the job. */
static hal_status_t order_all(const hal_comm_call_t *calls, size_t count, size_t stride, stream_t *stream,
                              int others_wait) {
  const int32_t device = calls->comm->device;
  hal_status_t status = HAL_OK;
  for (size_t i = 0; i < count && !status; i++) {
    stream_t *const other = call_at(calls, stride, i)->stream;
    if (other) status = others_wait ? order(device, stream, other) : order(device, other, stream);
  }
  return status;
}

hal_status_t whole_comm_submit(const hal_comm_call_t *calls, size_t count, size_t stride) {
  hal_status_t status = HAL_OK;
  stream_t *stream = NULL;
  comm_job_t *job = NULL;
  int has_null = 0; /* a call that is complete on return */
  for (size_t i = 0; i < count && !status; i++) status = check_call(call_at(calls, stride, i));
  if (status || !count) return status;
  status = make_job(calls, count, stride, &job);
  if (status) return status;
  for (size_t i = 0; i < count; i++) {
    stream_t *const one = call_at(calls, stride, i)->stream;
    if (one) stream = one;
    has_null |= !one;
  }
  if (!stream) return run(job);
  status = order_all(calls, count, stride, stream, 0);
  if (!status) status = queue(job, stream);
  if (status) return comm_job_free(job), status;
  if (order_all(calls, count, stride, stream, 1) || has_null) return whole_stream_synchronize(stream);
  return HAL_OK;
}
