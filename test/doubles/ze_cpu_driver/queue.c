/* queue.c: queues, each a thread, and command lists: an immediate list is a separate queue, others keep copies of
   their commands. */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "driver.h"

struct queue_s {
  device_t *device;
  int synchronous;
  pthread_t thread;
  pthread_mutex_t lock; /* of the rest */
  pthread_cond_t wake, idle;
  command_t *first, **last;
  int busy, stop;
};

static void *serve(void *argument) {
  queue_t *const queue = argument;
  pthread_mutex_lock(&queue->lock);
  for (;;) {
    while (!queue->first && !queue->stop) pthread_cond_wait(&queue->wake, &queue->lock);
    command_t *const command = queue->first;
    if (!command) break;
    queue->first = command->next;
    if (!queue->first) queue->last = &queue->first;
    queue->busy = 1;
    pthread_mutex_unlock(&queue->lock);
    command_run(command, queue->device);
    command_release(command);
    pthread_mutex_lock(&queue->lock);
    queue->busy = 0;
    if (!queue->first) pthread_cond_broadcast(&queue->idle);
  }
  pthread_mutex_unlock(&queue->lock);
  return NULL;
}

ze_result_t queue_make(device_t *device, int synchronous, queue_t **out_queue) {
  pthread_condattr_t attributes;
  if (atomic_load(&device->lost)) return ZE_RESULT_ERROR_DEVICE_LOST;
  if (fault_takes(FAULT_LIST)) return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
  queue_t *const queue = calloc(1, sizeof *queue);
  if (!queue) return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
  queue->device = device;
  queue->synchronous = synchronous;
  queue->last = &queue->first;
  pthread_mutex_init(&queue->lock, NULL);
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_cond_init(&queue->wake, NULL);
  pthread_cond_init(&queue->idle, &attributes);
  if (pthread_create(&queue->thread, NULL, serve, queue)) {
    free(queue);
    return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
  }
  *out_queue = queue;
  return ZE_RESULT_SUCCESS;
}

void queue_release(queue_t *queue) {
  pthread_mutex_lock(&queue->lock);
  queue->stop = 1;
  pthread_cond_signal(&queue->wake);
  pthread_mutex_unlock(&queue->lock);
  pthread_join(queue->thread, NULL);
  pthread_cond_destroy(&queue->wake);
  pthread_cond_destroy(&queue->idle);
  pthread_mutex_destroy(&queue->lock);
  free(queue);
}

static ze_result_t synchronize(queue_t *queue, uint64_t timeout) {
  const uint64_t now = clock_now(), end = timeout > UINT64_MAX - now ? UINT64_MAX : now + timeout;
  const struct timespec until = {.tv_sec = (time_t)(end / 1000000000), .tv_nsec = (long)(end % 1000000000)};
  int code = 0;
  pthread_mutex_lock(&queue->lock);
  while ((queue->first || queue->busy) && timeout && code != ETIMEDOUT)
    code = end == UINT64_MAX ? pthread_cond_wait(&queue->idle, &queue->lock)
                             : pthread_cond_timedwait(&queue->idle, &queue->lock, &until);
  const int busy = queue->first || queue->busy;
  pthread_mutex_unlock(&queue->lock);
  if (atomic_load(&queue->device->lost)) return ZE_RESULT_ERROR_DEVICE_LOST;
  return busy ? ZE_RESULT_NOT_READY : ZE_RESULT_SUCCESS;
}

ze_result_t queue_push(queue_t *queue, command_t *command) {
  command->next = NULL;
  pthread_mutex_lock(&queue->lock);
  *queue->last = command;
  queue->last = &command->next;
  pthread_cond_signal(&queue->wake);
  pthread_mutex_unlock(&queue->lock);
  return queue->synchronous ? synchronize(queue, UINT64_MAX) : ZE_RESULT_SUCCESS;
}

/* ---- queues ---- */

static int is_synchronous(const ze_command_queue_desc_t *desc) {
  return desc->mode == ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS;
}

static ze_result_t create(ze_context_handle_t context, ze_device_handle_t device, const ze_command_queue_desc_t *desc,
                          ze_command_queue_handle_t *out) {
  (void)context;
  return queue_make((device_t *)device, is_synchronous(desc), (queue_t **)out);
}

static ze_result_t destroy(ze_command_queue_handle_t queue) {
  queue_release((queue_t *)queue);
  return ZE_RESULT_SUCCESS;
}

static ze_result_t execute(ze_command_queue_handle_t handle, uint32_t count, ze_command_list_handle_t *lists,
                           ze_fence_handle_t fence) {
  queue_t *const queue = (queue_t *)handle;
  ze_result_t result = atomic_load(&queue->device->lost) ? ZE_RESULT_ERROR_DEVICE_LOST : ZE_RESULT_SUCCESS;
  for (uint32_t i = 0; i < count && !result; i++)
    for (const command_t *command = ((list_t *)lists[i])->first; command && !result; command = command->next) {
      command_t *const copy = command_copy(command);
      result = copy ? queue_push(queue, copy) : ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
  command_t *const last = !result && fence ? calloc(1, sizeof *last) : NULL;
  if (!last) return result;
  last->signal = (event_t *)fence;
  return queue_push(queue, last);
}

static ze_result_t queue_synchronize(ze_command_queue_handle_t queue, uint64_t timeout) {
  return synchronize((queue_t *)queue, timeout);
}

void queue_fill_table(ze_command_queue_dditable_t *table) {
  table->pfnCreate = create;
  table->pfnDestroy = destroy;
  table->pfnExecuteCommandLists = execute;
  table->pfnSynchronize = queue_synchronize;
}

/* ---- lists ---- */

static ze_result_t list_make(ze_device_handle_t device, list_t **out_list) {
  list_t *const list = calloc(1, sizeof *list);
  if (!list) return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
  list->device = (device_t *)device;
  list->last = &list->first;
  *out_list = list;
  return ZE_RESULT_SUCCESS;
}

static ze_result_t list_create(ze_context_handle_t context, ze_device_handle_t device,
                               const ze_command_list_desc_t *desc, ze_command_list_handle_t *out) {
  (void)context, (void)desc;
  return list_make(device, (list_t **)out);
}

static atomic_uint indices;

__attribute__((visibility("default"))) uint32_t ze_cpu_queue_indices(void);
uint32_t ze_cpu_queue_indices(void) { return atomic_load(&indices); }

/* Records the queue of the group to which a list belongs. */
static ze_result_t note_index(uint32_t index) {
  if (index >= QUEUES) return ZE_RESULT_ERROR_INVALID_ARGUMENT;
  atomic_fetch_or(&indices, 1u << index);
  return ZE_RESULT_SUCCESS;
}

static ze_result_t list_immediate(ze_context_handle_t context, ze_device_handle_t device,
                                  const ze_command_queue_desc_t *desc, ze_command_list_handle_t *out) {
  (void)context;
  list_t *list = NULL;
  ze_result_t result = note_index(desc->index);
  if (!result) result = list_make(device, &list);
  if (result) return result;
  result = queue_make((device_t *)device, is_synchronous(desc), &list->queue);
  if (result)
    free(list);
  else
    *out = (ze_command_list_handle_t)list;
  return result;
}

static ze_result_t list_reset(ze_command_list_handle_t handle) {
  list_t *const list = (list_t *)handle;
  while (list->first) {
    command_t *const command = list->first;
    list->first = command->next;
    command_release(command);
  }
  list->last = &list->first;
  return ZE_RESULT_SUCCESS;
}

static ze_result_t list_destroy(ze_command_list_handle_t handle) {
  list_t *const list = (list_t *)handle;
  list_reset(handle);
  if (list->queue) queue_release(list->queue);
  free(list);
  return ZE_RESULT_SUCCESS;
}

static ze_result_t list_close(ze_command_list_handle_t list) {
  (void)list;
  return ZE_RESULT_SUCCESS;
}

void list_fill_table(ze_command_list_dditable_t *table) {
  table->pfnCreate = list_create;
  table->pfnCreateImmediate = list_immediate;
  table->pfnDestroy = list_destroy;
  table->pfnClose = list_close;
  table->pfnReset = list_reset;
  command_fill_table(table);
}
