/* direct.c: the queue that calls the plugin. */
#include "plugin/call.h"
#include "plugin/slots.h"
#include "queue/queue.h"

hal_recorded_op_t hal_passing_op = {.passes = 1}; /* constant: no queue records it */

static hal_direct_t *direct_of(hal_queue_t *queue) { return (hal_direct_t *)queue; }

/* ---- work -------------------------------------------------------------------------------------------------------- */

static int begin_op(hal_queue_t *queue, hal_recorded_op_t *op, const hal_op_call_t *call) {
  (void)queue, (void)op, (void)call;
  return 0;
}

static void end_op(hal_queue_t *queue, hal_recorded_op_t *op) { (void)queue, (void)op; }

static hal_status_t launch(hal_queue_t *queue, hal_recorded_op_t *op, hal_plugin_kernel_t *kernel,
                           const hal_launch_t *desc) {
  hal_direct_t *const direct = direct_of(queue);
  (void)op;
  return hal_error_plugin(direct->plugin, HAL_SLOT_kernel_launch, hal_direct_launch(direct, kernel, desc));
}

/* Completes the message of a failure, except HAL_UNIMPLEMENTED. */
static hal_status_t unless_unimplemented(const hal_direct_t *direct, uint32_t slot, hal_status_t status) {
  return status == HAL_UNIMPLEMENTED ? status : hal_error_plugin(direct->plugin, slot, status);
}

static hal_status_t copy(hal_queue_t *queue, void *dst, int32_t dst_device, const void *src, int32_t src_device,
                         size_t size) {
  hal_direct_t *const direct = direct_of(queue);
  const hal_status_t status =
      hal_call_memory_copy(direct->plugin, direct->handle, dst, dst_device, src, src_device, size);
  return unless_unimplemented(direct, HAL_SLOT_memory_copy, status);
}

static hal_status_t copy_2d(hal_queue_t *queue, const hal_copy_2d_t *desc) {
  hal_direct_t *const direct = direct_of(queue);
  return unless_unimplemented(direct, HAL_SLOT_memory_copy_2d,
                              hal_call_memory_copy_2d(direct->plugin, direct->handle, desc));
}

static hal_status_t copy_batch(hal_queue_t *queue, const hal_copy_t *copies, size_t count) {
  hal_direct_t *const direct = direct_of(queue);
  return unless_unimplemented(
      direct, HAL_SLOT_memory_copy_batch,
      hal_call_memory_copy_batch(direct->plugin, direct->handle, copies, count, sizeof *copies));
}

static hal_status_t fill(hal_queue_t *queue, void *dst, const void *pattern, size_t pattern_size, size_t size) {
  hal_direct_t *const direct = direct_of(queue);
  const hal_status_t status =
      hal_call_memory_fill(direct->plugin, direct->handle, direct->ordinal, dst, pattern, pattern_size, size);
  return hal_error_plugin(direct->plugin, HAL_SLOT_memory_fill, status);
}

static hal_status_t random_numbers(hal_queue_t *queue, const hal_random_t *desc) {
  hal_direct_t *const direct = direct_of(queue);
  return unless_unimplemented(direct, HAL_SLOT_random_fill, hal_call_random_fill(direct->plugin, direct->handle, desc));
}

static hal_status_t own_op(hal_queue_t *queue, const void *own, const char *name, const hal_op_call_t *call,
                           hal_status_t verdict) {
  (void)queue, (void)own, (void)name, (void)call, (void)verdict;
  return HAL_NOT_READY;
}

static hal_status_t host_call(hal_queue_t *queue, hal_host_fn_t fn, void *user_data) {
  hal_direct_t *const direct = direct_of(queue);
  return hal_error_plugin(direct->plugin, HAL_SLOT_stream_host_call,
                          hal_call_stream_host_call(direct->plugin, direct->handle, fn, user_data));
}

static hal_status_t submission(hal_queue_t *queue, const hal_submission_t *submission) {
  (void)queue, (void)submission;
  return HAL_NOT_READY;
}

/* ---- events and the end of work ---------------------------------------------------------------------------------- */

static hal_status_t record_event(hal_queue_t *queue, hal_plugin_event_t *event, uint64_t *out_recording) {
  hal_direct_t *const direct = direct_of(queue);
  *out_recording = 0;
  return hal_call_event_record(direct->plugin, event, direct->handle);
}

static hal_status_t wait_event(hal_queue_t *queue, hal_plugin_event_t *event) {
  hal_direct_t *const direct = direct_of(queue);
  return hal_error_plugin(direct->plugin, HAL_SLOT_stream_wait_event,
                          hal_call_stream_wait_event(direct->plugin, direct->handle, event));
}

static hal_status_t recorded_event(hal_queue_t *queue, uint64_t recording, struct hal_stream_s *stream,
                                   const char *what) {
  (void)queue, (void)recording, (void)stream, (void)what;
  return HAL_NOT_FOUND;
}

static hal_status_t nothing_deferred(hal_queue_t *queue, const char *reason) {
  (void)queue, (void)reason;
  return HAL_OK;
}

/* A failure may be that of the wait, not of the work. Callers free host memory that the work accesses, so the wait is
 * repeated. */
static hal_status_t synchronize(hal_queue_t *queue) {
  hal_direct_t *const direct = direct_of(queue);
  const hal_status_t status = hal_call_stream_synchronize(direct->plugin, direct->handle);
  if (HAL_UNLIKELY(status)) HAL_CALL_AFTER(direct->plugin, stream_synchronize, direct->handle);
  return status;
}

static hal_status_t synchronize_timeout(hal_queue_t *queue, int64_t timeout_ns) {
  hal_direct_t *const direct = direct_of(queue);
  const hal_status_t status = hal_call_stream_synchronize_timeout(direct->plugin, direct->handle, timeout_ns);
  if (HAL_UNLIKELY(status && status != HAL_NOT_READY))
    HAL_CALL_AFTER(direct->plugin, stream_synchronize_timeout, direct->handle, timeout_ns);
  return status;
}

static hal_status_t query(hal_queue_t *queue) {
  hal_direct_t *const direct = direct_of(queue);
  return hal_call_stream_query(direct->plugin, direct->handle);
}

hal_status_t hal_direct_poll(hal_direct_t *direct) {
  if (!direct->handle) return HAL_OK; /* synchronous: launched work is done */
  return hal_slot_is_provided(&direct->plugin->api, HAL_SLOT_stream_query) ? query(&direct->queue) : HAL_NOT_READY;
}

/* ---- services for recordings ------------------------------------------------------------------------------------- */

static int reports(hal_queue_t *queue) {
  (void)queue;
  return 0;
}

static hal_status_t draw(hal_queue_t *queue, struct hal_generator_s *generator, uint64_t blocks,
                         struct hal_draw_s *out_draw) {
  (void)queue, (void)generator, (void)blocks, (void)out_draw;
  return HAL_UNIMPLEMENTED;
}

static void describe(hal_queue_t *queue, uint64_t origin, char *text, size_t room) {
  (void)queue, (void)origin;
  if (room) *text = '\0';
}

static int released(hal_queue_t *queue, const void *address, size_t size) {
  (void)queue, (void)address, (void)size;
  return 0;
}

static int is_recording(hal_queue_t *queue) {
  (void)queue;
  return 0;
}

const hal_queue_calls_t hal_direct_calls = {.begin_op = begin_op,
                                            .end_op = end_op,
                                            .launch = launch,
                                            .copy = copy,
                                            .copy_2d = copy_2d,
                                            .copy_batch = copy_batch,
                                            .fill = fill,
                                            .random = random_numbers,
                                            .own_op = own_op,
                                            .host_call = host_call,
                                            .host_call_once = host_call,
                                            .submission = submission,
                                            .record_event = record_event,
                                            .wait_event = wait_event,
                                            .recorded_event = recorded_event,
                                            .flush = nothing_deferred,
                                            .require = nothing_deferred,
                                            .synchronize = synchronize,
                                            .synchronize_timeout = synchronize_timeout,
                                            .query = query,
                                            .reports = reports,
                                            .draw = draw,
                                            .describe = describe,
                                            .released = released,
                                            .is_recording = is_recording};
