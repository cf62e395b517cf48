/* record.c: collectives in the recording of a program. Each run of the program submits them again, in its place in the
 * order of the communicator. The run's stream waits for them. */
#include "base/host_malloc.h"
#include "comm/comm.h"
#include "device/device.h"
#include "hal/status.h"

/* A bracket of collectives with all data that they point to, except device memory, which the program owns. */
typedef struct recorded_s {
  hal_comm_t *comm; /* with a reference: the group may be destroyed before the program */
  int64_t timeout_ns;
  uint32_t count;
  const hal_collective_t *calls;
  uint64_t *arrays; /* of the copy */
  uint64_t (*scales)[2];
  hal_collective_t own[]; /* the copy's calls */
} recorded_t;

static void destroy(void *data) {
  recorded_t *const recorded = data;
  hal_comm_release(recorded->comm);
  hal_free(recorded->arrays);
  hal_free(recorded->scales);
  hal_free(recorded);
}

static void *copy(const void *data) {
  const recorded_t *const from = data;
  recorded_t *const recorded = hal_calloc(1, sizeof *recorded + from->count * sizeof *recorded->own);
  if (!recorded) return NULL;
  *recorded = (recorded_t){from->comm, from->timeout_ns, from->count, recorded->own, NULL, NULL};
  atomic_fetch_add(&recorded->comm->references, 1);
  const uint64_t numbers = hal_comm_array_numbers(from->comm, from->calls, from->count);
  if (numbers) recorded->arrays = hal_calloc(numbers, sizeof *recorded->arrays);
  recorded->scales = hal_calloc(from->count, sizeof *recorded->scales);
  if ((numbers && !recorded->arrays) || !recorded->scales) {
    destroy(recorded);
    return NULL;
  }
  uint64_t *next = recorded->arrays;
  for (uint32_t i = 0; i < from->count; i++)
    hal_comm_copy_call(from->comm, &from->calls[i], &recorded->own[i], &next, recorded->scales[i]);
  return recorded;
}

/* Called when a run of the program reaches the collectives. */
static hal_status_t submit(void *data, hal_stream_t *stream) {
  const recorded_t *const recorded = data;
  hal_comm_work_t *work;
  HAL_RETURN_IF_ERROR(hal_comm_submit(recorded->comm, stream, recorded->calls, recorded->count, recorded->timeout_ns,
                                      NULL, NULL, &work));
  const hal_status_t status = hal_comm_work_wait(work, stream, 0);
  hal_comm_work_release(work);
  return status;
}

hal_status_t hal_comm_record(hal_comm_t *comm, hal_stream_t *stream, const hal_collective_t *calls, uint32_t count,
                             int64_t timeout_ns) {
  recorded_t borrowed = {comm, timeout_ns, count, calls, NULL, NULL};
  const hal_submission_t submission = {hal_comm_op_name(calls->op), submit, copy, destroy, &borrowed};
  hal_queue_t *const queue = hal_stream_queue(stream);
  return queue->calls->submission(queue, &submission);
}
