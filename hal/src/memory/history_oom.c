/* history_oom.c: observers of out-of-memory errors. */
#include "base/host_malloc.h"
#include "memory/history.h"

/* One call of an observer, which may run later, when the thread holds no lock of the HAL. */
typedef struct call_s {
  hal_callback_t callback;
  struct hal_mem_observer_s observer;
  int32_t device;
  size_t size, total, free_bytes;
} call_t;

static void run(hal_callback_t *callback) {
  call_t *const call = (call_t *)callback;
  call->observer.fn(call->observer.user_data, call->device, call->size, call->total, call->free_bytes);
  hal_free(call);
}

/* Creates the calls of all observers, linked by `callback.next` in the order of the observers. The caller holds the
 * lock. Observers that the host has no memory for are not called. */
static hal_callback_t *prepare(const hal_allocator_t *allocator, const call_t *values) {
  hal_callback_t *first = NULL, **link = &first;
  for (const struct hal_mem_observer_s *observer = allocator->observers; observer; observer = observer->next) {
    call_t *const call = hal_malloc(sizeof(*call));
    if (!call) return first;
    *call = *values;
    call->observer = *observer;
    *link = &call->callback;
    link = &call->callback.next;
  }
  return first;
}

void hal_mem_observers_run(hal_allocator_t *allocator, size_t size, size_t total, size_t free_bytes) {
  const call_t values = {.callback = {.run = run},
                         .device = allocator->device->index,
                         .size = size,
                         .total = total,
                         .free_bytes = free_bytes};
  hal_lock(&allocator->lock);
  hal_callback_t *call = prepare(allocator, &values);
  hal_unlock(&allocator->lock);
  while (call) {
    hal_callback_t *const next = call->next;
    hal_callback_run(call);
    call = next;
  }
}

hal_status_t hal_memory_oom_observe(int32_t index, hal_memory_oom_fn_t fn, void *user_data) {
  hal_device_t *device;
  if (!fn) return hal_error_set(HAL_INVALID_ARGUMENT, "hal_memory_oom_observe: the function is NULL");
  HAL_RETURN_IF_ERROR(hal_device_get(index, &device));
  hal_allocator_t *const allocator = hal_allocator_of(device);
  struct hal_mem_observer_s *const observer = hal_malloc(sizeof(*observer));
  if (!observer)
    return hal_error_set(HAL_RESOURCE_EXHAUSTED, "device %s: the host has no memory for an observer", device->label);
  *observer = (struct hal_mem_observer_s){.fn = fn, .user_data = user_data};
  hal_lock(&allocator->lock);
  struct hal_mem_observer_s **link = &allocator->observers;
  while (*link) link = &(*link)->next;
  *link = observer;
  hal_unlock(&allocator->lock);
  return HAL_OK;
}

void hal_mem_observers_destroy(hal_allocator_t *allocator) {
  while (allocator->observers) {
    struct hal_mem_observer_s *const observer = allocator->observers;
    allocator->observers = observer->next;
    hal_free(observer);
  }
}
