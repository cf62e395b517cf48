/* order.c: collectives of a communicator have an order, also without a wait between them: the operands of one may be
 * the results of an earlier one that has not run. Operands are copied to the host when a collective is submitted, so
 * that the copies overlap with earlier collectives, unless they are such results. */
#include "comm/comm.h"
#include "hal/status.h"

static int overlaps(uintptr_t begin, uintptr_t end, const void *data, uint64_t bytes) {
  const uintptr_t first = (uintptr_t)data;
  return data && bytes && first < end && begin < first + bytes;
}

/* Whether a job reads some of these bytes: an operand, or the gaps between the displacements of a result. */
static int reads(const hal_comm_job_t *job, uintptr_t begin, uintptr_t end) {
  for (uint32_t i = 0; i < job->count; i++) {
    const hal_comm_part_t *const call = &job->calls[i];
    if (overlaps(begin, end, call->on_host.send, call->send_bytes)) return 1;
    if (call->on_host.recv_counts && overlaps(begin, end, call->on_host.recv, call->recv_bytes)) return 1;
  }
  return 0;
}

static int later_of(const hal_comm_order_t *order, uint64_t job, int follows) {
  if (job <= order->ordered || follows == HAL_COMM_FOLLOWS_LATER) return follows;
  return job > order->queued ? HAL_COMM_FOLLOWS_LATER : HAL_COMM_FOLLOWS_QUEUED;
}

static void add_result(hal_comm_order_t *order, const hal_comm_part_t *call, uint64_t job) {
  if (!call->on_host.recv || !call->recv_bytes) return;
  const uint32_t at = order->next++ % HAL_COMM_RESULTS;
  if (order->results[at].job > order->forgotten) order->forgotten = order->results[at].job;
  order->results[at].begin = (uintptr_t)call->on_host.recv;
  order->results[at].end = (uintptr_t)call->on_host.recv + call->recv_bytes;
  order->results[at].job = job;
}

void hal_comm_order_add(hal_comm_t *comm, hal_comm_job_t *job) {
  hal_comm_order_t *const order = &comm->order;
  pthread_mutex_lock(&comm->lock);
  job->follows = later_of(order, order->forgotten, HAL_COMM_FOLLOWS_NOTHING);
  for (uint32_t i = 0; i < HAL_COMM_RESULTS; i++)
    if (order->results[i].job > order->ordered && reads(job, order->results[i].begin, order->results[i].end))
      job->follows = later_of(order, order->results[i].job, job->follows);
  job->number = ++order->jobs;
  for (uint32_t i = 0; i < job->count; i++) add_result(order, &job->calls[i], job->number);
  pthread_mutex_unlock(&comm->lock);
}

hal_status_t hal_comm_order_follow(hal_comm_t *comm) {
  hal_event_t *event;
  pthread_mutex_lock(&comm->lock);
  const uint64_t queued = comm->order.queued;
  pthread_mutex_unlock(&comm->lock);
  HAL_RETURN_IF_ERROR(hal_event_create(comm->device, 0, &event));
  hal_status_t status = hal_event_record(event, comm->out);
  if (!status) status = hal_stream_wait_event(comm->in, event);
  hal_event_destroy(event);
  pthread_mutex_lock(&comm->lock);
  if (!status && comm->order.ordered < queued) comm->order.ordered = queued;
  pthread_mutex_unlock(&comm->lock);
  return status;
}

void hal_comm_order_queued(hal_comm_t *comm, const hal_comm_job_t *job) {
  pthread_mutex_lock(&comm->lock);
  if (comm->order.queued < job->number) comm->order.queued = job->number;
  pthread_mutex_unlock(&comm->lock);
}
