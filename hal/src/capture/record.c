/* record.c: the queue that records a program. */
#include <stdint.h>
#include <string.h>

#include "capture/program.h"
#include "capture/span.h"
#include "device/kernel_error.h"
#include "device/profile_internal.h"
#include "hal/host_memory.h"
#include "hal/op.h"
#include "hal/status.h"
#include "op/table.h"

/* ---- capacity ---------------------------------------------------------------------------------------------------- */

static hal_status_t out_of_memory(void) {
  return hal_error_set(HAL_RESOURCE_EXHAUSTED, "the host has no memory for the commands of a recording");
}

/* Reserves one more item of an array. */
static int fits(void **items, uint32_t count, uint32_t *room, size_t size) {
  if (HAL_LIKELY(count < *room)) return 1;
  const uint32_t wanted = *room ? 2 * *room : 64;
  if (wanted <= *room) return 0;
  void *const grown = hal_malloc(wanted * size);
  if (!grown) return 0;
  if (count) memcpy(grown, *items, count * size);
  hal_free(*items);
  *items = grown;
  *room = wanted;
  return 1;
}

static __attribute__((noinline)) void describe_op(hal_command_list_t *list, const hal_recorded_op_t *recorded,
                                                  int is_split) {
  hal_program_op_t *const op = &list->ops[recorded->index];
  if (recorded->described) op->text = hal_program_describe(&list->arena, recorded->call);
  if (recorded->accepted && !is_split) op->call = hal_program_copy_call(&list->arena, recorded->call);
  if (recorded->spans) hal_span_note(&list->arena, op, recorded->call);
}

/* Returns the index of the thread's operator in the command list, to which it is added if it is missing; HAL_NO_OP =
 * there is none. */
static inline uint32_t lazy_op(hal_program_t *program, hal_recorded_op_t *recorded) {
  hal_command_list_t *const list = &program->list;
  if (!recorded || recorded->passes) return HAL_NO_OP;
  if (recorded->recording == program->front->id) return recorded->index;
  if (!fits((void **)&list->ops, list->op_count, &list->op_room, sizeof *list->ops)) return HAL_NO_OP;
  const int is_split = recorded->recording != 0; /* its first commands were queued meanwhile */
  if (HAL_LIKELY(!is_split)) {                   /* no other thread writes it */
    const uint64_t before = atomic_load_explicit(&program->recorded, memory_order_relaxed);
    atomic_store_explicit(&program->recorded, before + 1, memory_order_relaxed);
    hal_op_count_one(hal_op_counter_slot(recorded->op, HAL_COMPONENT_CAPTURE));
  }
  recorded->index = list->op_count++;
  recorded->recording = program->front->id;
  list->ops[recorded->index] = (hal_program_op_t){.op = recorded->op, .origin = recorded->origin};
  if (HAL_UNLIKELY(recorded->call != NULL)) describe_op(list, recorded, is_split);
  return recorded->index;
}

static inline hal_command_t *append(hal_program_t *program, hal_recorded_op_t *recorded, uint32_t kind) {
  hal_command_list_t *const list = &program->list;
  if (!fits((void **)&list->commands, list->command_count, &list->command_room, sizeof *list->commands)) return NULL;
  const uint32_t op = program->is_deferred ? lazy_op(program, recorded) : program->current_op;
  atomic_store_explicit(&program->open, 1, memory_order_relaxed);
  hal_command_t *const command = &list->commands[list->command_count++];
  command->kind = kind;
  command->op = op;
  command->profiled = hal_profile_is_on() && program->is_deferred ? hal_profile_stamp() : 0;
  return command;
}

/* A release of memory belongs to no operator, although an operator may cause it: a graph would contain the operator as
 * soon as it contains the note. */
hal_command_t *hal_program_append(hal_program_t *program, uint32_t kind) {
  return append(program, kind == HAL_COMMAND_FREED ? NULL : hal_thread.recorded_op, kind);
}

hal_status_t hal_program_enter(hal_queue_t *queue, hal_program_t **out_program) {
  hal_recording_t *const front = hal_recording_of(queue);
  hal_status_t status;
  hal_lock(&front->lock);
  hal_program_t *const program = *out_program = front->program;
  if (HAL_LIKELY(program && !program->invalidated && program->recording)) return HAL_OK;
  if (program && program->recording)
    status = hal_error_set(HAL_FAILED_PRECONDITION, "the recording was invalidated before: %s", program->cause);
  else
    status = hal_error_set(HAL_FAILED_PRECONDITION, "the recording has ended while work was queued; end it after that");
  hal_unlock(&front->lock);
  return status;
}

hal_status_t hal_program_leave(hal_program_t *program, hal_status_t status) {
  if (HAL_UNLIKELY(status && !program->is_deferred))
    hal_program_invalidate(program, status); /* a lazy stream returns the failure now, and continues */
  hal_program_unlock(program);
  return status;
}

/* ---- operators --------------------------------------------------------------------------------------------------- */

static int begin_op(hal_queue_t *queue, hal_recorded_op_t *op, const hal_op_call_t *call) {
  hal_program_t *program;
  op->index = HAL_NO_OP;
  if (hal_program_enter(queue, &program)) return 1; /* the first command returns it */
  hal_status_t status = HAL_OK;
  op->index = program->current_op;
  if (fits((void **)&program->list.ops, program->list.op_count, &program->list.op_room, sizeof *program->list.ops)) {
    const char *const text =
        program->flags & HAL_PROGRAM_DESCRIBED ? hal_program_describe(&program->list.arena, call) : NULL;
    program->current_op = program->list.op_count++;
    program->list.ops[program->current_op] = (hal_program_op_t){.op = op->op, .text = text};
  } else {
    status = out_of_memory();
  }
  hal_program_leave(program, status);
  return 1;
}

static void end_op(hal_queue_t *queue, hal_recorded_op_t *op) {
  hal_recording_t *const front = hal_recording_of(queue);
  hal_lock(&front->lock);
  if (front->program) front->program->current_op = op->index;
  hal_unlock(&front->lock);
}

/* ---- commands ---------------------------------------------------------------------------------------------------- */

/* Records the position of an argument that is the address of the stream's error record, which differs in each run. */
static __attribute__((noinline)) hal_status_t note_patches(hal_program_t *program, const hal_launch_t *launch) {
  for (uint32_t i = 0; i < launch->arg_count; i++) {
    void **const place = (void **)(uintptr_t)launch->args[i].value;
    if (launch->args[i].kind != HAL_ARG_POINTER || !hal_kernel_error_holds(program->device, *place)) continue;
    if (!fits((void **)&program->patches, program->patch_count, &program->patch_room, sizeof *program->patches))
      return out_of_memory();
    program->patches[program->patch_count++] = place;
  }
  return HAL_OK;
}

/* Returns the size of the copy of a value, which begins at a multiple of 8. */
static inline size_t value_size(const hal_arg_t *argument) {
  return argument->kind == HAL_ARG_LOCAL ? 0 : argument->kind == HAL_ARG_POINTER ? sizeof(void *) : argument->size;
}
static inline size_t value_room(const hal_arg_t *argument) { return (value_size(argument) + 7) & ~(size_t)7; }

/* Copies the arguments of a launch, followed by their values, one word each, and returns 1 and their codes, those of
 * the last ones if there are many. Returns 0 if there are other arguments. */
static inline int copy_words(hal_arg_t *args, const hal_arg_t *from, uint32_t count, uint64_t *out_codes) {
  uint64_t *to = (uint64_t *)(args + count), codes = 0;
  for (const hal_arg_t *const end = from + count; from != end; from++, args++, to++) {
    const uint32_t size = from->size, kind = from->kind;
    const uint64_t code = hal_arg_code(size, kind);
    if (HAL_UNLIKELY(!code)) return 0;
    codes = codes << 2 | code;
    *to = 0;
    memcpy(to, from->value, size == 8 ? 8 : 4);
    *args = (hal_arg_t){.value = to, .size = size, .kind = kind};
  }
  *out_codes = codes;
  return 1;
}

/* As copy_words, for any values. Returns the address after them. */
static char *copy_arguments(hal_arg_t *args, const hal_arg_t *from, uint32_t count) {
  char *to = (char *)(args + count);
  for (uint32_t i = 0; i < count; i++) {
    const size_t size = value_size(&from[i]);
    args[i] = from[i];
    if (!size) continue;
    args[i].value = memcpy(to, from[i].value, size);
    to += value_room(&from[i]);
  }
  return to;
}

/* Copies a launch of any kind with its arguments, their values and attributes: one piece of memory. NULL = no
 * memory. */
static __attribute__((noinline)) hal_launch_t *copy_launch(hal_arena_t *arena, const hal_launch_t *launch) {
  const size_t attributes =
      HAL_HAS_FIELD(launch, attributes) ? launch->attribute_count * sizeof *launch->attributes : 0;
  const uint32_t count = launch->arg_count;
  size_t values = 0;
  for (uint32_t i = 0; i < count; i++) values += value_room(&launch->args[i]);
  hal_launch_t *const copy = hal_arena_take(arena, sizeof *copy + count * sizeof(hal_arg_t) + values + attributes);
  if (!copy) return NULL;
  *copy = (hal_launch_t){.struct_size = 0};
  memcpy(copy, launch, launch->struct_size < sizeof *copy ? launch->struct_size : sizeof *copy);
  hal_arg_t *const args = (hal_arg_t *)(copy + 1);
  char *const end = copy_arguments(args, launch->args, count);
  copy->args = args;
  if (attributes) copy->attributes = memcpy(end, launch->attributes, attributes);
  return copy;
}

/* Copies a launch whose values are words, without attributes, which is the usual case, with the codes of its arguments
 * unless they are too many. NULL = another launch, or no memory. */
static inline hal_launch_t *copy_plain(hal_arena_t *arena, const hal_launch_t *launch, uint64_t *codes) {
  const uint32_t count = launch->arg_count;
  const size_t size = sizeof *launch + count * (sizeof(hal_arg_t) + 8);
  if (HAL_UNLIKELY(launch->struct_size != HAL_STRUCT_SIZE(hal_launch_t, args))) return NULL;
  hal_launch_t *const copy = hal_arena_take(arena, size);
  if (HAL_UNLIKELY(!copy)) return NULL;
  hal_arg_t *const args = (hal_arg_t *)(copy + 1);
  if (HAL_UNLIKELY(!copy_words(args, launch->args, count, codes))) {
    hal_arena_give_back(arena, size);
    return NULL;
  }
  if (HAL_UNLIKELY(count > HAL_ARG_CODES)) *codes = 0;
  memcpy(copy, launch, HAL_STRUCT_SIZE(hal_launch_t, args));
  copy->args = args;
  return copy;
}

static hal_status_t record_launch(hal_queue_t *queue, hal_recorded_op_t *op, hal_plugin_kernel_t *kernel,
                                  const hal_launch_t *launch) {
  hal_program_t *program;
  HAL_RETURN_IF_ERROR(hal_program_enter(queue, &program));
  uint64_t codes = 0;
  hal_launch_t *copy = copy_plain(&program->list.arena, launch, &codes);
  if (HAL_UNLIKELY(!copy)) copy = copy_launch(&program->list.arena, launch);
  hal_command_t *const command = copy ? append(program, op, HAL_COMMAND_LAUNCH) : NULL;
  if (HAL_UNLIKELY(!command)) return hal_program_leave(program, out_of_memory());
  command->u.launch.kernel = kernel;
  command->u.launch.launch = copy;
  command->u.launch.codes = codes;
  if (HAL_LIKELY(program->is_deferred)) { /* runs on its own stream: the address of its error record does not change */
    hal_program_unlock(program);
    return HAL_OK;
  }
  return hal_program_leave(program, note_patches(program, copy));
}

/* Returns whether host memory is read when the work runs: page-locked memory is, as its owner requested. Other memory
 * is copied now, because it may be freed by then. */
static int is_page_locked(const void *address) {
  int32_t device;
  return hal_host_find(address, &device) == HAL_OK;
}

static hal_status_t record_copy(hal_queue_t *queue, void *dst, int32_t dst_device, const void *src, int32_t src_device,
                                size_t size) {
  hal_program_t *program;
  const int from_host = src_device == HAL_HOST && !is_page_locked(src);
  if (dst_device == HAL_HOST && !is_page_locked(dst))
    return queue->calls->require(queue, "a copy to host memory that is not page-locked (pin_memory)");
  HAL_RETURN_IF_ERROR(hal_program_enter(queue, &program));
  if (from_host) src = hal_arena_copy(&program->list.arena, src, size);
  hal_command_t *const command = src ? hal_program_append(program, HAL_COMMAND_COPY) : NULL;
  if (!command) return hal_program_leave(program, out_of_memory());
  command->u.copy.dst = dst;
  command->u.copy.src = src;
  command->u.copy.size = size;
  command->u.copy.dst_device = dst_device;
  command->u.copy.src_device = src_device;
  return hal_program_leave(program, HAL_OK);
}

static hal_status_t record_fill(hal_queue_t *queue, void *dst, const void *pattern, size_t pattern_size, size_t size) {
  hal_program_t *program;
  HAL_RETURN_IF_ERROR(hal_program_enter(queue, &program));
  hal_command_t *const command = hal_program_append(program, HAL_COMMAND_FILL);
  if (!command) return hal_program_leave(program, out_of_memory());
  command->u.fill.dst = dst;
  command->u.fill.size = size;
  command->u.fill.pattern_size = (uint32_t)pattern_size;
  memcpy(command->u.fill.pattern, pattern, pattern_size);
  return hal_program_leave(program, HAL_OK);
}

static hal_status_t record_random(hal_queue_t *queue, const hal_random_t *desc) {
  hal_program_t *program;
  HAL_RETURN_IF_ERROR(hal_program_enter(queue, &program));
  hal_random_t *const copy = hal_arena_copy(&program->list.arena, desc, sizeof *desc);
  hal_command_t *const command = copy ? hal_program_append(program, HAL_COMMAND_RANDOM) : NULL;
  if (command) command->u.random = copy;
  return hal_program_leave(program, command ? HAL_OK : out_of_memory());
}

static hal_status_t record_own_op(hal_queue_t *queue, const void *own, const char *name, const hal_op_call_t *call,
                                  hal_status_t verdict) {
  hal_program_t *program;
  if (verdict) /* it decides when it is called; the torch side looks for these words */
    return hal_error_set(HAL_UNIMPLEMENTED, "the plugin's own operator '%s' has no query, so it is not recorded", name);
  HAL_RETURN_IF_ERROR(hal_program_enter(queue, &program));
  hal_op_call_t *const copy = hal_program_copy_call(&program->list.arena, call);
  hal_command_t *const command = copy ? hal_program_append(program, HAL_COMMAND_OWN_OP) : NULL;
  if (!command) return hal_program_leave(program, out_of_memory());
  command->u.own_op.own = own;
  command->u.own_op.name = name;
  command->u.own_op.call = copy;
  return hal_program_leave(program, HAL_OK);
}

static hal_status_t record_host_call(hal_queue_t *queue, hal_host_fn_t fn, void *user_data) {
  hal_program_t *program;
  HAL_RETURN_IF_ERROR(hal_program_enter(queue, &program));
  hal_command_t *const command = hal_program_append(program, HAL_COMMAND_HOST_CALL);
  if (!command) return hal_program_leave(program, out_of_memory());
  command->u.host_call.fn = fn;
  command->u.host_call.user_data = user_data;
  return hal_program_leave(program, HAL_OK);
}

static hal_status_t refuse_host_call_once(hal_queue_t *queue, hal_host_fn_t fn, void *user_data) {
  (void)queue, (void)fn, (void)user_data;
  return HAL_NOT_READY;
}

static hal_status_t record_submission(hal_queue_t *queue, const hal_submission_t *submission) {
  hal_program_t *program;
  HAL_RETURN_IF_ERROR(hal_program_enter(queue, &program));
  hal_submission_t *const own = hal_arena_copy(&program->list.arena, submission, sizeof *submission);
  if (own) own->user_data = submission->copy(submission->user_data);
  hal_command_t *const command = own && own->user_data ? hal_program_append(program, HAL_COMMAND_SUBMISSION) : NULL;
  if (command)
    command->u.submission = own;
  else if (own && own->user_data)
    own->destroy(own->user_data);
  return hal_program_leave(program, command ? HAL_OK : out_of_memory());
}

/* ---- the rest ---------------------------------------------------------------------------------------------------- */

static int reports(hal_queue_t *queue) {
  hal_recording_t *const front = hal_recording_of(queue);
  hal_lock(&front->lock);
  if (front->program) front->program->reports = 1;
  hal_unlock(&front->lock);
  return 1;
}

/* A call that needs the result of work that has not run invalidates the recording. */
static hal_status_t require(hal_queue_t *queue, const char *what) {
  hal_program_t *program;
  HAL_RETURN_IF_ERROR(hal_program_enter(queue, &program));
  return hal_program_leave(
      program, hal_error_set(HAL_FAILED_PRECONDITION,
                             "%s cannot be done while stream %lld of device %s is being recorded: it needs the "
                             "result of work that has not run; do it before or after the recording",
                             what, (long long)program->stream->id, program->device->label));
}

static hal_status_t synchronize(hal_queue_t *queue) { return require(queue, "hal_stream_synchronize"); }

static hal_status_t synchronize_timeout(hal_queue_t *queue, int64_t timeout_ns) {
  (void)timeout_ns;
  return require(queue, "hal_stream_synchronize_timeout");
}

static hal_status_t query(hal_queue_t *queue) { return require(queue, "hal_stream_query"); }

/* Recorded work runs when the program runs: there is nothing to launch. */
static hal_status_t flush(hal_queue_t *queue, const char *reason) {
  (void)queue, (void)reason;
  return HAL_OK;
}

/* ---- events ------------------------------------------------------------------------------------------------------ */

/* The event is a position in the recording, whose number is known even if it has ended meanwhile. */
static hal_status_t record_event(hal_queue_t *queue, hal_plugin_event_t *event, uint64_t *out_recording) {
  hal_recording_t *const front = hal_recording_of(queue);
  (void)event;
  hal_lock(&front->lock);
  *out_recording = front->id;
  hal_unlock(&front->lock);
  return HAL_OK;
}

static hal_status_t wait_event(hal_queue_t *queue, hal_plugin_event_t *event) {
  (void)event;
  return require(queue, "waiting for an event that was recorded outside of it");
}

/* Adds a stream to the recording. The caller holds the lock. */
static hal_status_t join(hal_program_t *program, hal_stream_t *stream) {
  if (stream->device == program->device) return hal_program_take_stream(program, stream);
  return hal_error_set(HAL_FAILED_PRECONDITION,
                       "a stream of device %s waits for work of device %s that is being recorded; a program is of one "
                       "device",
                       stream->device->label, program->device->label);
}

/* Work is recorded in an order in which it may run, and runs in that order, so no waits are needed within a
 * recording. */
static hal_status_t recorded_event(hal_queue_t *queue, uint64_t recording, hal_stream_t *stream, const char *what) {
  hal_recording_t *const front = hal_recording_of(queue);
  hal_program_t *program;
  hal_lock(&front->lock);
  const int is_over = !front->program || !front->program->recording || front->id != recording;
  hal_unlock(&front->lock);
  if (is_over) return HAL_NOT_FOUND;
  if (!stream) return require(queue, what);
  hal_queue_t *const other = hal_stream_queue(stream);
  if (other == queue) return HAL_OK;
  if (other->calls == &hal_program_calls) return require(other, "waiting for an event that was recorded outside of it");
  HAL_RETURN_IF_ERROR(hal_program_enter(queue, &program));
  return hal_program_leave(program, join(program, stream));
}

static int is_recording(hal_queue_t *queue) {
  (void)queue;
  return 1;
}

/* ---- random numbers ---------------------------------------------------------------------------------------------- */

/* Finds the source of a generator, or creates one, which has generated nothing. */
static hal_status_t source_of(hal_program_t *program, hal_generator_t *generator, hal_program_source_t **out_source) {
  hal_program_source_t *source = program->sources;
  while (source && source->generator != generator) source = source->next;
  if (!source) {
    source = hal_malloc(sizeof *source);
    if (!source) return out_of_memory();
    *source = (hal_program_source_t){.next = program->sources, .generator = generator};
    const hal_status_t status =
        hal_memory_allocate(program->device->index, program->stream, 2 * sizeof(uint64_t), &source->state);
    if (status) {
      hal_free(source);
      return status;
    }
    hal_generator_retain(generator);
    program->sources = source;
    hal_command_t *const command =
        hal_program_append(program, HAL_COMMAND_DRAW); /* here: at an earlier position, the memory may belong to another
                                                        * allocation */
    if (!command) return out_of_memory();
    command->u.draw = source;
  }
  *out_source = source;
  return HAL_OK;
}

static hal_status_t draw(hal_queue_t *queue, hal_generator_t *generator, uint64_t blocks, hal_draw_t *out_draw) {
  hal_program_t *program;
  hal_program_source_t *source = NULL;
  hal_callbacks_defer(); /* it allocates */
  hal_status_t status = hal_program_enter(queue, &program);
  if (!status) {
    status = source_of(program, generator, &source);
    if (!status) {
      *out_draw = (hal_draw_t){.offset = source->blocks, .random_state = hal_memory_block_address(source->state)};
      source->blocks += blocks;
    }
    hal_program_leave(program, status);
  }
  hal_callbacks_resume();
  return status;
}

static void describe(hal_queue_t *queue, uint64_t origin, char *text, size_t room) {
  hal_direct_calls.describe(queue, origin, text, room); /* unknown: programs record no origins */
}

static int released(hal_queue_t *queue, const void *address, size_t size) {
  (void)queue, (void)address, (void)size; /* a recording has its own pool: later work of it gets the memory in order */
  return 0;
}

const hal_queue_calls_t hal_program_calls = {.begin_op = begin_op,
                                             .end_op = end_op,
                                             .launch = record_launch,
                                             .copy = record_copy,
                                             .copy_2d = hal_queue_copy_rows,
                                             .copy_batch = hal_queue_copy_each,
                                             .fill = record_fill,
                                             .random = record_random,
                                             .own_op = record_own_op,
                                             .host_call = record_host_call,
                                             .host_call_once = refuse_host_call_once,
                                             .submission = record_submission,
                                             .record_event = record_event,
                                             .wait_event = wait_event,
                                             .recorded_event = recorded_event,
                                             .flush = flush,
                                             .require = require,
                                             .synchronize = synchronize,
                                             .synchronize_timeout = synchronize_timeout,
                                             .query = query,
                                             .reports = reports,
                                             .draw = draw,
                                             .describe = describe,
                                             .released = released,
                                             .is_recording = is_recording};
