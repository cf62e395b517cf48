/* group.c: a lazy queue that defers only groups of operators that can run as one kernel (HAL_LAZY_GROUPS). All other
 * work is passed to the direct queue, after the group that is deferred. */
#include "device/failure.h"
#include "lazy/lazy.h"

enum { MOST = 64 /* operators of a group; longer ones do not run faster */ };

static uint64_t elements_of(const hal_tensor_t *tensor) {
  uint64_t count = 1;
  for (int32_t d = 0; tensor && d < tensor->ndim; d++) count *= (uint64_t)tensor->sizes[d];
  return tensor ? count : 0;
}

/* Returns whether the result, or the operand that is reduced, has so many elements that the operator is worth
 * deferring. */
static int is_large(const hal_lazy_t *lazy, const hal_op_call_t *call) {
  const uint64_t least = lazy->desc.least;
  if (call->result_count && elements_of(call->results[0]) >= least) return 1;
  return call->arg_count && call->args[0].tag == HAL_VALUE_TENSOR && elements_of(call->args[0].u.t) >= least;
}

/* Ends the group before an operator, if it cannot be part of it. Returns whether it can. */
static __attribute__((noinline)) int joins(hal_lazy_t *lazy, int fusable) {
  const uint64_t recorded = atomic_load_explicit(&lazy->program.recorded, memory_order_relaxed);
  const uint64_t begun = atomic_load_explicit(&lazy->flushed, memory_order_relaxed);
  if (fusable && recorded - begun < MOST) return 1;
  hal_lazy_flush_quietly(lazy, fusable ? "the size of a group" : "an operator that is not fused");
  return 0;
}

/* Returns whether the device has nothing else to do, and the operator must not wait. */
static int is_needed(hal_lazy_t *lazy) {
  if (!(lazy->desc.flags & HAL_LAZY_BUSY) || !(lazy->program.device->info.flags & HAL_DEVICE_ASYNC)) return 0;
  return hal_direct_poll(&lazy->program.stream->direct) == HAL_OK;
}

/* Without HAL_LAZY_BUSY, the ends of groups depend only on the operators, except for those of idle.c. */
static int passes(hal_queue_t *queue, uint32_t op, int own, const hal_op_call_t *call) {
  hal_lazy_t *const lazy = hal_lazy_of(queue);
  const hal_recorded_op_t *const outer = hal_thread.recorded_op;
  if (outer) return outer->passes;
  const int fusable = !own && hal_lazy_is_fusable(lazy, op);
  if (HAL_UNLIKELY(hal_lazy_is_open(lazy)) && joins(lazy, fusable)) return 0;
  if (HAL_LIKELY(!fusable || !is_large(lazy, call)) || is_needed(lazy)) return 1;
  hal_lazy_idle_notice();
  return 0;
}

/* Returns whether the thread runs an operator that is recorded. */
static int is_recorded(const hal_recorded_op_t *op) { return op && !op->passes; }

/* ---- commands outside of recorded operators ---------------------------------------------------------------------- */

static hal_queue_t *pass(hal_queue_t *queue, const char *what) {
  hal_lazy_t *const lazy = hal_lazy_of(queue);
  hal_lazy_flush_quietly(lazy, what);
  return hal_lazy_direct(lazy);
}

static hal_status_t launch(hal_queue_t *queue, hal_recorded_op_t *op, hal_plugin_kernel_t *kernel,
                           const hal_launch_t *launch) {
  if (is_recorded(op)) return hal_program_calls.launch(queue, op, kernel, launch);
  return hal_direct_calls.launch(pass(queue, "hal_kernel_launch"), op, kernel, launch);
}

static hal_status_t copy(hal_queue_t *queue, void *dst, int32_t dst_device, const void *src, int32_t src_device,
                         size_t size) {
  if (is_recorded(hal_thread.recorded_op)) return hal_lazy_record_copy(queue, dst, dst_device, src, src_device, size);
  return hal_direct_calls.copy(pass(queue, "hal_memory_copy"), dst, dst_device, src, src_device, size);
}

static hal_status_t copy_2d(hal_queue_t *queue, const hal_copy_2d_t *desc) {
  if (is_recorded(hal_thread.recorded_op)) return hal_program_calls.copy_2d(queue, desc);
  return hal_direct_calls.copy_2d(pass(queue, "hal_memory_copy_2d"), desc);
}

static hal_status_t copy_batch(hal_queue_t *queue, const hal_copy_t *copies, size_t count) {
  if (is_recorded(hal_thread.recorded_op)) return hal_program_calls.copy_batch(queue, copies, count);
  return hal_direct_calls.copy_batch(pass(queue, "hal_memory_copy_many"), copies, count);
}

static hal_status_t fill(hal_queue_t *queue, void *dst, const void *pattern, size_t pattern_size, size_t size) {
  if (is_recorded(hal_thread.recorded_op)) return hal_program_calls.fill(queue, dst, pattern, pattern_size, size);
  return hal_direct_calls.fill(pass(queue, "hal_memory_fill"), dst, pattern, pattern_size, size);
}

static hal_status_t random_numbers(hal_queue_t *queue, const hal_random_t *desc) {
  if (is_recorded(hal_thread.recorded_op)) return hal_program_calls.random(queue, desc);
  return hal_direct_calls.random(pass(queue, "random numbers"), desc);
}

static int reports(hal_queue_t *queue) {
  if (is_recorded(hal_thread.recorded_op)) return hal_program_calls.reports(queue);
  return hal_direct_calls.reports(hal_lazy_direct(hal_lazy_of(queue)));
}

void hal_lazy_pass_most(hal_queue_calls_t *calls) {
  calls->passes = passes;
  calls->launch = launch;
  calls->copy = copy;
  calls->copy_2d = copy_2d;
  calls->copy_batch = copy_batch;
  calls->fill = fill;
  calls->random = random_numbers;
  calls->reports = reports;
  calls->is_recording = hal_direct_calls.is_recording; /* copies of host memory are not recorded */
}
