/* submit.c: selects the calls of a work that the vendor's library runs, and passes them to it. */
#include <string.h>

#include "base/host_malloc.h"
#include "comm/log.h"
#include "comm/vendor/memory.h"
#include "comm/vendor/vendor.h"
#include "device/device.h"
#include "hal/status.h"
#include "plugin/call.h"

/* ---- to the library ---- */

static hal_status_t submit_all(hal_comm_vendor_t *vendor, const hal_comm_call_t *calls, uint32_t count) {
  hal_queue_t *const queue = hal_stream_queue(vendor->comm->out);
  HAL_RETURN_IF_ERROR(queue->calls->require(queue, "hal_comm_submit"));
  const hal_status_t status = hal_call_comm_submit(vendor->plugin, calls, count, sizeof *calls);
  hal_error_plugin(vendor->plugin, HAL_SLOT_comm_submit, status);
  if (status != HAL_UNIMPLEMENTED) return status;
  /* Other ranks may have queued their part, so this is not the refusal of one call. */
  return hal_error_prefix(HAL_INTERNAL, "library %s refuses a call that its comm_info lists: ", vendor->info.name);
}

hal_status_t hal_comm_vendor_submit(hal_comm_vendor_t *vendor, const hal_collective_t *calls, uint32_t count) {
  const hal_comm_t *const comm = vendor->comm;
  const size_t numbers = hal_comm_array_numbers(comm, calls, count);
  hal_comm_call_t *const given =
      hal_malloc(count * (sizeof *given + sizeof(hal_collective_t)) + numbers * sizeof(uint64_t));
  if (!given) return hal_error_set(HAL_RESOURCE_EXHAUSTED, "out of host memory for %u collectives", count);
  hal_collective_t *const words = (hal_collective_t *)(given + count);
  uint64_t *next = (uint64_t *)(words + count);
  for (uint32_t i = 0; i < count; i++) {
    hal_comm_vendor_translate(comm, &vendor->info, &calls[i], &words[i], &next);
    hal_comm_memory_use(vendor, &words[i]);
    words[i].sequence = ++vendor->sequence;
    given[i] = (hal_comm_call_t){vendor->handle, comm->out->direct.handle, &words[i]};
  }
  const hal_status_t status = submit_all(vendor, given, count);
  hal_free(given);
  return status;
}

/* Passes calls to the library, on the stream `out`. The watch gets the work first: the library may already wait for
 * other ranks here. */
static hal_status_t enqueue(hal_comm_vendor_t *vendor, hal_comm_work_t *work, const hal_collective_t *calls,
                            uint32_t count) {
  hal_comm_watch_add(vendor, work);
  hal_comm_row_t *const row = hal_comm_profile_begin_row(work, calls, count);
  hal_status_t status = hal_comm_vendor_submit(vendor, calls, count);
  hal_comm_profile_end_row(row);
  hal_comm_log_start_library(work->log, vendor->info.name);
  if (!status) status = hal_event_record(work->end, vendor->comm->out);
  /* If the communicator failed meanwhile, the failing thread may have missed this work, and the library ends it like
   * one that is done. */
  return status ? status : hal_comm_failure_get(&vendor->comm->failure);
}

hal_status_t hal_comm_vendor_run(hal_comm_job_t *job) {
  hal_comm_t *const comm = job->work->comm;
  hal_comm_vendor_t *const vendor = comm->vendor;
  hal_collective_t *const calls = hal_malloc(job->count * sizeof *calls);
  if (!calls) return hal_error_set(HAL_RESOURCE_EXHAUSTED, "out of host memory for %u collectives", job->count);
  int has_collectives = 0, has_messages = 0;
  for (uint32_t i = 0; i < job->count; i++) {
    calls[i] = job->calls[i].on_host;
    has_collectives |= !hal_comm_op_is_message(calls[i].op);
    has_messages |= hal_comm_op_is_message(calls[i].op);
  }
  const int compares = (vendor->flags & HAL_COMM_COMPARE_CALLS) != 0;
  hal_status_t status = hal_comm_failure_get(&comm->failure);
  if (!status && compares && has_collectives) status = hal_comm_compare(comm, calls, job->count, job->timeout_ns);
  if (!status && compares && has_messages) status = hal_comm_vendor_compare_messages(job, calls);
  if (!status) status = hal_stream_wait_event(comm->out, job->ready);
  if (!status) status = enqueue(vendor, job->work, calls, job->count);
  hal_free(calls);
  return status;
}

hal_status_t hal_comm_vendor_wait_operands(hal_comm_job_t *job) {
  hal_comm_t *const comm = job->work->comm;
  hal_event_t *const tail = comm->vendor->tail;
  HAL_RETURN_IF_ERROR(hal_event_record(tail, comm->out));
  return hal_comm_event_await(tail, job->timeout_ns, &comm->failure, "the collectives before");
}

/* ---- ways ---- */

/* The caller holds the lock `order`, as below. */
static hal_status_t give(hal_comm_vendor_t *vendor, hal_comm_work_t *work, hal_stream_t *stream,
                         const hal_collective_t *calls, uint32_t count) {
  if ((vendor->flags & HAL_COMM_COMPARE_CALLS) || atomic_load(&vendor->on_lane))
    return hal_comm_push(work, stream, calls, count, HAL_COMM_JOB_VENDOR);
  HAL_RETURN_IF_ERROR(hal_event_record(vendor->ready, stream));
  HAL_RETURN_IF_ERROR(hal_stream_wait_event(vendor->comm->out, vendor->ready));
  return enqueue(vendor, work, calls, count);
}

/* The collectives of a call all use the library, or all use the transport, so that they keep their order. A SEND or
 * RECV uses the way that its other rank selects, too. */
static int takes(const hal_comm_work_t *work, const hal_collective_t *call, int has_all) {
  hal_comm_words_t words;
  if (!hal_comm_op_is_message(call->op)) return has_all;
  return (work->flags & HAL_COMM_IS_ORDERED) && hal_comm_vendor_lists(&work->comm->vendor->info, call, &words);
}

static int lists_collectives(const hal_comm_info_t *info, const hal_collective_t *calls, uint32_t count) {
  hal_comm_words_t words;
  for (uint32_t i = 0; i < count; i++)
    if (!hal_comm_op_is_message(calls[i].op) && !hal_comm_vendor_lists(info, &calls[i], &words)) return 0;
  return 1;
}

/* Some calls are for the library, the others for the transport. */
static hal_status_t push_both(hal_comm_work_t *work, hal_stream_t *stream, const hal_collective_t *calls,
                              uint32_t count, int has_all) {
  hal_collective_t *const sorted = hal_calloc(count, sizeof *sorted);
  if (!sorted) return hal_error_set(HAL_RESOURCE_EXHAUSTED, "out of host memory for %u collectives", count);
  uint32_t next = 0, taken = 0;
  for (int way = 1; way >= 0; way--)
    for (uint32_t i = 0; i < count; i++) {
      const size_t size = calls[i].struct_size;
      if (takes(work, &calls[i], has_all) != way) continue;
      memcpy(&sorted[next++], &calls[i], size < sizeof *sorted ? size : sizeof *sorted);
      taken += (uint32_t)way;
    }
  hal_status_t status = give(work->comm->vendor, work, stream, sorted, taken);
  if (!status) status = hal_comm_push_all(work, stream, sorted + taken, count - taken);
  hal_free(sorted);
  return status;
}

hal_status_t hal_comm_vendor_push(hal_comm_work_t *work, hal_stream_t *stream, const hal_collective_t *calls,
                                  uint32_t count) {
  hal_comm_vendor_t *const vendor = work->comm->vendor;
  const int has_all = lists_collectives(&vendor->info, calls, count);
  uint32_t taken = 0;
  hal_status_t status;
  for (uint32_t i = 0; i < count; i++) taken += (uint32_t)takes(work, &calls[i], has_all);
  hal_lock_and_defer(&vendor->order);
  if (taken == count)
    status = give(vendor, work, stream, calls, count);
  else if (taken == 0)
    status = hal_comm_push_all(work, stream, calls, count);
  else
    status = push_both(work, stream, calls, count, has_all);
  hal_unlock_and_run(&vendor->order);
  return status;
}
