/* command.c: commands: appending them, and their execution on a queue's thread. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"

void command_release(command_t *command) {
  launch_release(command->launch);
  free(command);
}

command_t *command_copy(const command_t *command) {
  const size_t bytes = sizeof *command + command->wait_count * sizeof *command->waits;
  command_t *const copy = malloc(bytes);
  if (!copy) return NULL;
  memcpy(copy, command, bytes);
  if (command->launch && !(copy->launch = launch_copy(command->launch))) {
    free(copy);
    return NULL;
  }
  return copy;
}

/* ---- execution ---- */

static void fill(const command_t *command) {
  unsigned char *const to = command->dst;
  for (size_t i = 0; i < command->size; i++) to[i] = command->pattern[i % command->pattern_size];
}

static int compute(const command_t *command) {
  const uint64_t now = clock_now();
  switch (command->kind) {
    case COMMAND_COPY:
      memmove(command->dst, command->src, command->size);
      return 0;
    case COMMAND_REGION:
      for (size_t row = 0; row < command->rows; row++)
        memmove((char *)command->dst + row * command->dst_pitch, (const char *)command->src + row * command->src_pitch,
                command->size);
      return 0;
    case COMMAND_FILL:
      fill(command);
      return 0;
    case COMMAND_LAUNCH:
      return code_run(command->launch);
    case COMMAND_STAMP:
      memcpy(command->dst, &now, sizeof now);
      return 0;
    default:
      return 0;
  }
}

/* A kernel that fails makes its device lost, like a fault on hardware. */
void command_run(command_t *command, device_t *device) {
  for (uint32_t i = 0; i < command->wait_count; i++)
    if (event_wait(command->waits[i], device, UINT64_MAX)) return;
  if (atomic_load(&device->lost)) return;
  fault_command(device);
  if (atomic_load(&device->lost)) return;
  if (command->kind == COMMAND_RESET) {
    event_put(command->signal, 0, 0);
    return;
  }
  const uint64_t begin = clock_now();
  const int failed = compute(command);
  if (failed) {
    fprintf(stderr, "ze_cpu_driver: a kernel failed in OpenCL (%d); device %d is lost\n", failed, (int)device->ordinal);
    atomic_store(&device->lost, 1);
    event_wake_all();
  } else if (command->signal) {
    event_put(command->signal, 1, begin);
  }
}

/* ---- appending ---- */

/* Appends a copy of `what`, which keeps its launch on failure. */
static ze_result_t append(ze_command_list_handle_t handle, const command_t *what, ze_event_handle_t signal,
                          uint32_t wait_count, ze_event_handle_t *waits) {
  list_t *const list = (list_t *)handle;
  if (atomic_load(&list->device->lost)) return ZE_RESULT_ERROR_DEVICE_LOST;
  if (fault_takes(FAULT_APPEND)) return ZE_RESULT_ERROR_INVALID_ARGUMENT;
  command_t *const command = malloc(sizeof *command + wait_count * sizeof *command->waits);
  if (!command) return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
  *command = *what;
  command->signal = (event_t *)signal;
  if (command->signal) command->signal->device = list->device; /* a waiter is notified if that is lost */
  command->wait_count = wait_count;
  for (uint32_t i = 0; i < wait_count; i++) command->waits[i] = (event_t *)waits[i];
  if (list->queue) return queue_push(list->queue, command);
  *list->last = command;
  list->last = &command->next;
  return ZE_RESULT_SUCCESS;
}

static ze_result_t append_copy(ze_command_list_handle_t list, void *dst, const void *src, size_t size,
                               ze_event_handle_t signal, uint32_t wait_count, ze_event_handle_t *waits) {
  ze_result_t result = memory_check(dst, size);
  if (!result) result = memory_check(src, size);
  const command_t command = {.kind = COMMAND_COPY, .dst = dst, .src = src, .size = size};
  return result ? result : append(list, &command, signal, wait_count, waits);
}

/* For two dimensions: the driver supports no others. */
static ze_result_t append_region(ze_command_list_handle_t list, void *dst, const ze_copy_region_t *to,
                                 uint32_t dst_pitch, uint32_t dst_slice, const void *src, const ze_copy_region_t *from,
                                 uint32_t src_pitch, uint32_t src_slice, ze_event_handle_t signal, uint32_t wait_count,
                                 ze_event_handle_t *waits) {
  if (to->width != from->width || to->height != from->height || to->depth > 1 || dst_slice || src_slice ||
      dst_pitch < to->width || src_pitch < to->width)
    return ZE_RESULT_ERROR_INVALID_ARGUMENT;
  char *const first = (char *)dst + (size_t)to->originY * dst_pitch + to->originX;
  const char *const source = (const char *)src + (size_t)from->originY * src_pitch + from->originX;
  const size_t rows = to->height ? to->height - 1 : 0;
  ze_result_t result = memory_check(first, rows * dst_pitch + to->width);
  if (!result) result = memory_check(source, rows * src_pitch + to->width);
  const command_t command = {.kind = COMMAND_REGION,
                             .dst = first,
                             .src = source,
                             .size = to->width,
                             .rows = to->height,
                             .dst_pitch = dst_pitch,
                             .src_pitch = src_pitch};
  return result ? result : append(list, &command, signal, wait_count, waits);
}

static ze_result_t append_fill(ze_command_list_handle_t list, void *dst, const void *pattern, size_t pattern_size,
                               size_t size, ze_event_handle_t signal, uint32_t wait_count, ze_event_handle_t *waits) {
  command_t command = {.kind = COMMAND_FILL, .dst = dst, .size = size, .pattern_size = pattern_size};
  const ze_result_t result = memory_check(dst, size);
  if (result) return result;
  if (!pattern_size || pattern_size > MAX_PATTERN || pattern_size & (pattern_size - 1) ||
      (uintptr_t)dst % pattern_size || size % pattern_size)
    return ZE_RESULT_ERROR_INVALID_SIZE;
  memcpy(command.pattern, pattern, pattern_size);
  return append(list, &command, signal, wait_count, waits);
}

static ze_result_t append_launch(ze_command_list_handle_t list, ze_kernel_handle_t kernel, const ze_group_count_t *grid,
                                 ze_event_handle_t signal, uint32_t wait_count, ze_event_handle_t *waits) {
  const command_t command = {.kind = COMMAND_LAUNCH, .launch = launch_make((kernel_t *)kernel, grid)};
  if (!command.launch) return ZE_RESULT_ERROR_INVALID_ARGUMENT;
  const ze_result_t result = append(list, &command, signal, wait_count, waits);
  if (result) launch_release(command.launch);
  return result;
}

static ze_result_t append_barrier(ze_command_list_handle_t list, ze_event_handle_t signal, uint32_t wait_count,
                                  ze_event_handle_t *waits) {
  const command_t command = {.kind = COMMAND_NOTHING};
  return append(list, &command, signal, wait_count, waits);
}

static ze_result_t append_signal(ze_command_list_handle_t list, ze_event_handle_t event) {
  return append_barrier(list, event, 0, NULL);
}

static ze_result_t append_wait(ze_command_list_handle_t list, uint32_t count, ze_event_handle_t *events) {
  return append_barrier(list, NULL, count, events);
}

static ze_result_t append_reset(ze_command_list_handle_t list, ze_event_handle_t event) {
  const command_t command = {.kind = COMMAND_RESET};
  return append(list, &command, event, 0, NULL);
}

static ze_result_t append_stamp(ze_command_list_handle_t list, uint64_t *dst, ze_event_handle_t signal,
                                uint32_t wait_count, ze_event_handle_t *waits) {
  const command_t command = {.kind = COMMAND_STAMP, .dst = dst};
  const ze_result_t result = memory_check(dst, sizeof *dst);
  return result ? result : append(list, &command, signal, wait_count, waits);
}

/* ---- hints: checked, and without effect, since all memory is the host's ---- */

static atomic_int prefetches, advice_given;

/* For tests: the number of accepted hints. */
__attribute__((visibility("default"))) void ze_cpu_hints(int *out_prefetches, int *out_advice);
void ze_cpu_hints(int *out_prefetches, int *out_advice) {
  *out_prefetches = atomic_load(&prefetches);
  *out_advice = atomic_load(&advice_given);
}

static ze_result_t check_hint(ze_command_list_handle_t handle, const void *ptr, size_t size) {
  const list_t *const list = (const list_t *)handle;
  if (atomic_load(&list->device->lost)) return ZE_RESULT_ERROR_DEVICE_LOST;
  return !ptr || !size ? ZE_RESULT_ERROR_INVALID_NULL_POINTER : memory_check(ptr, size);
}

static ze_result_t append_prefetch(ze_command_list_handle_t list, const void *ptr, size_t size) {
  const ze_result_t result = check_hint(list, ptr, size);
  if (!result) atomic_fetch_add(&prefetches, 1);
  return result;
}

static ze_result_t append_advice(ze_command_list_handle_t list, ze_device_handle_t device, const void *ptr, size_t size,
                                 ze_memory_advice_t advice) {
  if (!device) return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
  if (advice > ZE_MEMORY_ADVICE_BIAS_UNCACHED) return ZE_RESULT_ERROR_INVALID_ENUMERATION;
  const ze_result_t result = check_hint(list, ptr, size);
  if (!result) atomic_fetch_add(&advice_given, 1);
  return result;
}

void command_fill_table(ze_command_list_dditable_t *table) {
  table->pfnAppendMemoryCopy = append_copy;
  table->pfnAppendMemoryCopyRegion = append_region;
  table->pfnAppendMemoryFill = append_fill;
  table->pfnAppendMemoryPrefetch = append_prefetch;
  table->pfnAppendMemAdvise = append_advice;
  table->pfnAppendLaunchKernel = append_launch;
  table->pfnAppendBarrier = append_barrier;
  table->pfnAppendSignalEvent = append_signal;
  table->pfnAppendWaitOnEvents = append_wait;
  table->pfnAppendEventReset = append_reset;
  table->pfnAppendWriteGlobalTimestamp = append_stamp;
}
