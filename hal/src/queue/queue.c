/* queue.c: queues that are used no more. */
#include "queue/queue.h"

/* Puts a list of queues before those that are parked. */
static void push(_Atomic(hal_queue_t *) *parked, hal_queue_t *first, hal_queue_t *last) {
  last->next = atomic_load(parked);
  while (!atomic_compare_exchange_weak(parked, &last->next, first)) continue;
}

void hal_queue_park(_Atomic(hal_queue_t *) *parked, hal_queue_t *queue) { push(parked, queue, queue); }

/* Takes all and puts the others back: a list from which many take at once would be a lock's. */
hal_queue_t *hal_queue_unpark(_Atomic(hal_queue_t *) *parked) {
  hal_queue_t *const first = atomic_exchange(parked, NULL);
  if (!first || !first->next) return first;
  hal_queue_t *last = first->next;
  while (last->next) last = last->next;
  push(parked, first->next, last);
  return first;
}
