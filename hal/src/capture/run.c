/* run.c: launches a program's commands. */
#include "base/stack.h"
#include "base/status_internal.h"
#include "capture/program.h"
#include "device/event_internal.h"
#include "device/failure.h"
#include "device/kernel_error.h"
#include "device/profile_internal.h"
#include "hal/event.h"
#include "hal/op.h"
#include "hal/status.h"
#include "op/internal.h"
#include "plugin/call.h"

static const uint32_t slots[] = {[HAL_COMMAND_LAUNCH] = HAL_SLOT_kernel_launch,
                                 [HAL_COMMAND_COPY] = HAL_SLOT_memory_copy,
                                 [HAL_COMMAND_FILL] = HAL_SLOT_memory_fill,
                                 [HAL_COMMAND_RANDOM] = HAL_SLOT_random_fill,
                                 [HAL_COMMAND_OWN_OP] = HAL_SLOT_op_find,
                                 [HAL_COMMAND_HOST_CALL] = HAL_SLOT_stream_host_call,
                                 [HAL_COMMAND_DRAW] = HAL_SLOT_memory_fill,
                                 [HAL_COMMAND_FREED] = HAL_SLOT_memory_fill /* is never queued */,
                                 [HAL_COMMAND_SUBMISSION] = HAL_SLOT_stream_host_call /* its messages are complete */};
_Static_assert(sizeof slots / sizeof *slots == HAL_COMMAND_KINDS, "each kind of command has its slot");

/* The scratch memory of the plugin's operators: `kept`, which remains; else `pool`, to which it returns; both NULL: the
 * stream's. */
typedef struct scratch_s {
  hal_op_kept_t *kept;
  hal_memory_pool_t *pool;
} scratch_t;

/* Calls a plugin's operator; it has copied what it needs when it returns, so the recorded call can be reused. */
static hal_status_t run_own_op(const hal_command_t *command, hal_stream_t *stream, const scratch_t *scratch) {
  hal_op_call_t *const call = command->u.own_op.call;
  const hal_op_own_t *const own = command->u.own_op.own;
  const char *const name = command->u.own_op.name;
  call->stream = stream->direct.handle;
  const hal_status_t status = scratch->kept ? hal_op_own_call_kept(own, name, stream, call, scratch->kept)
                                            : hal_op_own_call(own, name, stream, scratch->pool, call);
  if (status != HAL_UNIMPLEMENTED) return status;
  return hal_error_set(HAL_INTERNAL, "%s declined a call that its query had accepted", command->u.own_op.name);
}

/* Writes the random state of the run, seed and first block, by a fill, which has copied its pattern when it returns. */
static hal_status_t run_draw(const hal_program_source_t *source, hal_plugin_t *plugin, int32_t ordinal,
                             hal_plugin_stream_t *stream) {
  uint64_t state[2];
  hal_generator_reserve(source->generator, source->blocks, &state[0], &state[1]);
  return hal_call_memory_fill(plugin, stream, ordinal, hal_memory_block_address(source->state), state, sizeof state,
                              sizeof state);
}

static inline hal_status_t run_command(const hal_command_t *command, hal_plugin_t *plugin, int32_t ordinal,
                                       hal_stream_t *stream, const scratch_t *scratch) {
  hal_plugin_stream_t *const handle = stream->direct.handle;
  switch (command->kind) {
    case HAL_COMMAND_LAUNCH:
      return hal_direct_launch(&stream->direct, command->u.launch.kernel, command->u.launch.launch);
    case HAL_COMMAND_COPY:
      return hal_call_memory_copy(plugin, handle, command->u.copy.dst, command->u.copy.dst_device, command->u.copy.src,
                                  command->u.copy.src_device, command->u.copy.size);
    case HAL_COMMAND_FILL:
      return hal_call_memory_fill(plugin, handle, ordinal, command->u.fill.dst, command->u.fill.pattern,
                                  command->u.fill.pattern_size, command->u.fill.size);
    case HAL_COMMAND_RANDOM:
      return hal_call_random_fill(plugin, handle, command->u.random);
    case HAL_COMMAND_OWN_OP:
      return run_own_op(command, stream, scratch);
    case HAL_COMMAND_DRAW:
      return run_draw(command->u.draw, plugin, ordinal, handle);
    case HAL_COMMAND_SUBMISSION:
      return command->u.submission->submit(command->u.submission->user_data, stream);
    default:
      return hal_call_stream_host_call(plugin, handle, command->u.host_call.fn, command->u.host_call.user_data);
  }
}

/* Completes the message of a command that failed. */
static hal_status_t failed(const hal_command_list_t *list, uint32_t number, const hal_device_t *device,
                           hal_status_t status) {
  const hal_command_t *const command = &list->commands[number];
  const char *const name = command->op == HAL_NO_OP ? NULL : hal_op_error_name(list->ops[command->op].op);
  if (command->kind != HAL_COMMAND_OWN_OP && command->kind != HAL_COMMAND_SUBMISSION)
    hal_error_plugin(device->plugin, slots[command->kind], status);
  return hal_error_prefix(status, "command %u of %u of a program%s%s: ", (unsigned)number + 1,
                          (unsigned)list->command_count, name ? ", " : "", name ? name : "");
}

void hal_command_begin_call(const hal_command_t *command, uint32_t op, hal_command_bracket_t *out_bracket) {
  const uint64_t id = hal_profile_stamped_id(command->profiled);
  out_bracket->has_id = id && !hal_profile_push(id);
  out_bracket->outer = hal_profile_begin_op(op);
}

void hal_command_end_call(const hal_command_bracket_t *bracket) {
  hal_profile_end_op(bracket->outer);
  if (bracket->has_id) hal_profile_pop();
}

hal_status_t hal_command_list_queue(const hal_command_list_t *list, uint32_t number, hal_stream_t *stream,
                                    hal_memory_pool_t *pool, int profiled) {
  const hal_command_t *const command = &list->commands[number];
  const hal_device_t *const device = stream->device;
  const scratch_t scratch = {.pool = pool};
  hal_command_bracket_t bracket;
  if (HAL_UNLIKELY(profiled))
    hal_command_begin_call(command, command->op == HAL_NO_OP ? HAL_PROFILE_NO_OP : list->ops[command->op].op, &bracket);
  const hal_status_t status = run_command(command, device->plugin, device->ordinal, stream, &scratch);
  if (HAL_UNLIKELY(profiled)) hal_command_end_call(&bracket);
  return HAL_LIKELY(!status) ? HAL_OK : failed(list, number, device, status);
}

hal_status_t hal_command_list_capture(const hal_command_list_t *list, uint32_t number, hal_stream_t *stream,
                                      hal_op_kept_t *kept) {
  const hal_device_t *const device = stream->device;
  const scratch_t scratch = {.kept = kept};
  const hal_status_t status = run_command(&list->commands[number], device->plugin, device->ordinal, stream, &scratch);
  return status ? failed(list, number, device, status) : HAL_OK;
}

/* ---- values that differ in each run ------------------------------------------------------------------------------ */

/* Writes the address of the stream's error record to the launches that use it. */
static hal_status_t patch(hal_program_t *program, hal_stream_t *stream) {
  void *record = NULL;
  if (!program->patch_count) return HAL_OK;
  HAL_RETURN_IF_ERROR(hal_kernel_error_address(stream, &record));
  for (uint32_t i = 0; i < program->patch_count; i++) *program->patches[i] = record;
  return HAL_OK;
}

/* Makes a stream that is not recorded wait for the last run, because runs share their memory. The stream of that run
 * may be recorded now, and the recording must not see the event. */
static hal_status_t order(hal_program_t *program, hal_stream_t *stream) {
  if (!program->last || program->last == stream) return HAL_OK;
  if (!program->done) HAL_RETURN_IF_ERROR(hal_event_create(program->device->index, 0, &program->done));
  HAL_RETURN_IF_ERROR(hal_event_record_queued(program->done, program->last));
  return hal_stream_wait_event(stream, program->done);
}

static hal_status_t run(hal_program_t *program, hal_stream_t *stream) {
  HAL_RETURN_IF_ERROR(order(program, stream));
  HAL_RETURN_IF_ERROR(patch(program, stream));
  const hal_status_t status = hal_program_queue(program, stream);
  program->last = stream;
  if (program->reports && !status) return hal_kernel_error_launched(stream);
  return status;
}

static hal_status_t check(const hal_program_t *program) {
  if (program->recording)
    return hal_error_set(HAL_FAILED_PRECONDITION, "the program is being recorded; end the recording before it runs");
  if (program->invalidated)
    return hal_error_set(HAL_FAILED_PRECONDITION, "the program cannot run, since its recording was invalidated: %s",
                         program->cause);
  return HAL_OK;
}

/* The runs of a program are sequential. Their turn is not a lock in the sense of base/callback.h: on a stream without a
 * handle, the plugin calls a host function of the program during it, for which only another run of the same program
 * waits. */
static void take_turn(hal_program_t *program) {
  hal_lock(&program->turn);
  HAL_COUNT_LOCK(-1);
}

static void leave_turn(hal_program_t *program) {
  HAL_COUNT_LOCK(1);
  hal_unlock(&program->turn);
}

hal_status_t hal_program_run(hal_program_t *program, hal_stream_t *stream) {
  HAL_RETURN_IF_ERROR(hal_device_check_alive(program->device));
  stream = hal_stream_or_current(program->device, stream);
  if (stream->device != program->device) /* before the stream is used: it may be recorded */
    return hal_error_set(HAL_INVALID_ARGUMENT, "a program of device %s cannot run on a stream of device %s",
                         program->device->label, stream->device->label);
  hal_queue_t *const queue = hal_stream_queue(stream);
  HAL_RETURN_IF_ERROR(queue->calls->require(queue, "running another program"));
  hal_stack_remember();
  hal_callbacks_defer();
  take_turn(program);
  hal_program_lock(program);
  hal_status_t status = check(program);
  program->runs += status == HAL_OK;
  hal_program_unlock(program);
  if (!status) status = run(program, stream);
  leave_turn(program);
  hal_callbacks_resume();
  return status;
}
