/* lazy.c: the queue of a lazy stream: its functions, and what the caller may query. Work is recorded as in a program
 * (capture/), and submitted once, when its results are needed. */
#include "lazy/lazy.h"

#include <string.h>

#include "hal/status.h"

static void describe(hal_queue_t *queue, uint64_t origin, char *text, size_t room) {
  hal_lazy_t *const lazy = hal_lazy_of(queue);
  const int has_lock = hal_lazy_is_submitting_here(lazy);
  if (!has_lock) hal_lock(&lazy->queueing);
  const hal_lazy_desc_t desc = lazy->desc;
  hal_lazy_retain_desc(lazy);
  if (!has_lock) hal_unlock(&lazy->queueing);
  hal_lazy_describe(&desc, origin, text, room);
  hal_lazy_release_desc(lazy);
}

static hal_queue_calls_t tables[2]; /* the second one defers only groups */
static pthread_once_t calls_once = PTHREAD_ONCE_INIT;

static void fill_calls(void) {
  hal_queue_calls_t *const calls = &tables[0];
  *calls = hal_program_calls;
  calls->begin_op = hal_lazy_begin_op;
  calls->end_op = hal_lazy_end_op;
  calls->copy = hal_lazy_record_copy;
  calls->flush = calls->require = hal_lazy_flush_for;
  hal_lazy_pass_on(calls);
  calls->describe = describe;
  calls->released = hal_lazy_record_release;
  tables[1] = *calls;
  hal_lazy_pass_most(&tables[1]);
}

const hal_queue_calls_t *hal_lazy_calls(int groups) {
  pthread_once(&calls_once, fill_calls);
  return &tables[groups != 0];
}

int hal_lazy_is(const hal_queue_t *queue) { return queue->calls == &tables[0] || queue->calls == &tables[1]; }

hal_status_t hal_lazy_flush(hal_lazy_t *lazy) { return hal_lazy_flush_because(lazy, "hal_lazy_flush", 0); }

hal_lazy_t *hal_lazy_of_stream(hal_stream_t *stream) {
  if (!stream && hal_stream_current(hal_thread.device, &stream)) return NULL;
  hal_queue_t *const queue = hal_stream_queue(stream);
  return hal_lazy_is(queue) ? hal_lazy_of(queue) : NULL;
}

hal_status_t hal_lazy_info(hal_lazy_t *lazy, hal_lazy_info_t *out_info) {
  hal_lock(&lazy->queueing);
  hal_lazy_info_t info = lazy->info;
  hal_unlock(&lazy->queueing);
  hal_program_lock(&lazy->program);
  info.pending = lazy->program.list.command_count;
  hal_program_unlock(&lazy->program);
  info.recorded = atomic_load_explicit(&lazy->program.recorded, memory_order_relaxed);
  info.struct_size = out_info->struct_size < sizeof info ? out_info->struct_size : sizeof info;
  memcpy(out_info, &info, info.struct_size);
  return HAL_OK;
}
