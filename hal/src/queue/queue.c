/* queue.c: queues that are no longer used, in a slot of their stream. */
#include "queue/queue.h"

/* Puts a list of queues before those in the slot. */
static void push(_Atomic(void *) *slot, hal_queue_t *first, hal_queue_t *last) {
  void *next = atomic_load(slot);
  do {
    last->next = next;
  } while (!atomic_compare_exchange_weak(slot, &next, first));
}

void hal_queue_park(_Atomic(void *) *slot, hal_queue_t *queue) { push(slot, queue, queue); }

/* Takes all queues and puts the others back: taking one from a list that other threads change needs a lock. */
hal_queue_t *hal_queue_unpark(_Atomic(void *) *slot) {
  hal_queue_t *const first = atomic_exchange(slot, NULL);
  if (!first || !first->next) return first;
  hal_queue_t *last = first->next;
  while (last->next) last = last->next;
  push(slot, first->next, last);
  return first;
}
