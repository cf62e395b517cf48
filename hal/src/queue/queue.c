/* queue.c: queues that are no longer used, in a slot of their stream, and common functions of queues that record. */
#include "queue/queue.h"

/* Inserts a list of queues before those in the slot. */
static void push(_Atomic(void *) *slot, hal_queue_t *first, hal_queue_t *last) {
  void *next = atomic_load(slot);
  do {
    last->next = next;
  } while (!atomic_compare_exchange_weak(slot, &next, first));
}

void hal_queue_park(_Atomic(void *) *slot, hal_queue_t *queue) { push(slot, queue, queue); }

/* Takes all queues and returns the others, because taking one from a list that other threads change needs a lock. */
hal_queue_t *hal_queue_unpark(_Atomic(void *) *slot) {
  hal_queue_t *const first = atomic_exchange(slot, NULL);
  if (!first || !first->next) return first;
  hal_queue_t *last = first->next;
  while (last->next) last = last->next;
  push(slot, first->next, last);
  return first;
}

hal_status_t hal_queue_copy_rows(hal_queue_t *queue, const hal_copy_2d_t *desc) {
  const int is_dense = desc->dst_pitch == desc->width && desc->src_pitch == desc->width;
  const size_t rows = is_dense ? 1 : desc->height, size = is_dense ? desc->width * desc->height : desc->width;
  hal_status_t status = HAL_OK;
  for (size_t row = 0; row < rows && !status; row++)
    status = queue->calls->copy(queue, (char *)desc->dst + row * desc->dst_pitch, desc->dst_device,
                                (const char *)desc->src + row * desc->src_pitch, desc->src_device, size);
  return status;
}

hal_status_t hal_queue_copy_each(hal_queue_t *queue, const hal_copy_t *copies, size_t count) {
  hal_status_t status = HAL_OK;
  for (size_t i = 0; i < count && !status; i++)
    status = queue->calls->copy(queue, copies[i].dst, copies[i].dst_device, copies[i].src, copies[i].src_device,
                                copies[i].size);
  return status;
}
