/* comm_message.c: SEND and RECV. The messages of a pair of ranks go through one ring, each after its tag and size. One
 * that no RECV of the job wants is kept. */
#include <stdio.h>

#include "comm.h"

size_t comm_pass(comm_ring_t *ring, int sends, void *own, size_t size) {
  const uint64_t written = atomic_load(&ring->written), read = atomic_load(&ring->read);
  const uint64_t at = sends ? written : read;
  size_t most = (size_t)(sends ? COMM_RING - (written - read) : written - read);
  if (most > size) most = size;
  if (most > COMM_RING - at % COMM_RING) most = (size_t)(COMM_RING - at % COMM_RING);
  if (!most) return 0;
  uint8_t *const shared = ring->bytes + at % COMM_RING;
  if (sends)
    memcpy(shared, own, most);
  else
    memcpy(own, shared, most);
  atomic_store(sends ? &ring->written : &ring->read, at + most);
  return most;
}

size_t comm_message_send(comm_ring_t *ring, comm_transfer_t *transfer) {
  const size_t left = sizeof transfer->head - transfer->head_done;
  transfer->head = (comm_head_t){transfer->work->call.tag, transfer->size};
  const size_t head = comm_pass(ring, 1, (uint8_t *)&transfer->head + transfer->head_done, left);
  transfer->head_done += head;
  if (head < left) return head;
  const size_t bytes = comm_pass(ring, 1, transfer->bytes + transfer->done, transfer->size - transfer->done);
  transfer->done += bytes;
  return head + bytes;
}

static comm_early_t **find_early(hal_plugin_comm_t *comm, int peer, uint64_t tag) {
  comm_early_t **link = &comm->early[peer];
  while (*link && (*link)->head.tag != tag) link = &(*link)->next;
  return link;
}

/* Returns whether a message that came before has completed the RECV. */
static int take_early(comm_transfer_t *transfer) {
  comm_early_t **const link = find_early(transfer->work->comm, transfer->peer, transfer->work->call.tag);
  comm_early_t *const early = *link;
  if (transfer->begun || !early || early->head.size != transfer->size) return 0;
  memcpy(transfer->bytes, early->bytes, transfer->size);
  transfer->begun = 1, transfer->done = transfer->size;
  *link = early->next;
  free(early);
  return 1;
}

static comm_transfer_t *find_receive(comm_job_t *job, const hal_plugin_comm_t *comm, int peer, uint64_t tag) {
  for (size_t i = 0; i < job->transfer_count; i++) {
    comm_transfer_t *const one = &job->transfers[i];
    if (one->work->comm == comm && one->work->call.op == HAL_COMM_RECV && one->peer == peer && !one->begun &&
        one->work->call.tag == tag)
      return one;
  }
  return NULL;
}

/* Chooses where a message goes whose head has come. Those of one tag stay in their order. */
static void begin(comm_job_t *job, hal_plugin_comm_t *comm, int peer, comm_arrival_t *arrival) {
  char text[COMM_TEXT];
  if (!*find_early(comm, peer, arrival->head.tag)) arrival->into = find_receive(job, comm, peer, arrival->head.tag);
  if (arrival->into && arrival->into->size != arrival->head.size) {
    snprintf(text, sizeof text, "rank %d sends %llu bytes with tag %llu, and this rank receives %zu", peer,
             (unsigned long long)arrival->head.size, (unsigned long long)arrival->head.tag, arrival->into->size);
    comm_fail(comm, HAL_INVALID_ARGUMENT, peer, text);
  }
  if (arrival->into) {
    arrival->into->begun = 1;
    return;
  }
  arrival->early = malloc(sizeof *arrival->early + arrival->head.size);
  if (arrival->early)
    *arrival->early = (comm_early_t){.head = arrival->head};
  else
    comm_fail(comm, HAL_RESOURCE_EXHAUSTED, comm->rank, "no memory for a message that came before its RECV");
}

static void end(hal_plugin_comm_t *comm, int peer, comm_arrival_t *arrival) {
  comm_early_t **last = &comm->early[peer];
  while (*last) last = &(*last)->next;
  if (arrival->early) *last = arrival->early;
  *arrival = (comm_arrival_t){0};
}

size_t comm_message_receive(comm_job_t *job, comm_transfer_t *transfer) {
  hal_plugin_comm_t *const comm = transfer->work->comm;
  comm_ring_t *const ring = &comm->room->rings[1][transfer->peer][comm->rank];
  comm_arrival_t *const arrival = &comm->arrivals[transfer->peer];
  if (take_early(transfer)) return transfer->size;
  const size_t left = sizeof arrival->head - arrival->head_done;
  const size_t head = comm_pass(ring, 0, (uint8_t *)&arrival->head + arrival->head_done, left);
  arrival->head_done += head;
  if (head < left) return head;
  if (left) begin(job, comm, transfer->peer, arrival);
  if (atomic_load(&comm->state) != (int)HAL_COMM_READY) return head;
  uint8_t *const to = arrival->into ? arrival->into->bytes : arrival->early->bytes;
  const size_t bytes = comm_pass(ring, 0, to + arrival->done, arrival->head.size - arrival->done);
  arrival->done += bytes;
  if (arrival->into) arrival->into->done = arrival->done;
  if (arrival->done == arrival->head.size) end(comm, transfer->peer, arrival);
  return head + bytes;
}

void comm_message_free(hal_plugin_comm_t *comm) {
  for (int peer = 0; peer < COMM_RANKS; peer++) {
    free(comm->arrivals[peer].early);
    for (comm_early_t *early = comm->early[peer], *next; early; early = next) {
      next = early->next;
      free(early);
    }
  }
}
