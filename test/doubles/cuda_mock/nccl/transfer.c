/* transfer.c: a plan as a kernel of its stream: all its transfers progress together, those of one pair of ranks in
 * order. Unequal counts are not detected: a rank that expects more data waits until the abort. */
#include <stdlib.h>
#include <string.h>

#include "nccl_mock.h"

typedef struct transfer_s {
  int peer, sends;
  unsigned char *bytes;
  size_t size, done;
} transfer_t;

typedef struct transfers_s {
  transfer_t *list;
  size_t count;
} transfers_t;

static void add(transfers_t *to, int peer, int sends, const unsigned char *bytes, size_t size) {
  to->list[to->count++] = (transfer_t){peer, sends, (unsigned char *)bytes, size, 0};
}

static void add_all(transfers_t *to, int size, int sends, const unsigned char *bytes, size_t block, size_t step) {
  for (int i = 0; i < size; i++) add(to, i, sends, bytes + (size_t)i * step, block);
}

static int is_reduction(const work_t *work) {
  return work->kind == ALL_REDUCE || work->kind == REDUCE || work->kind == REDUCE_SCATTER;
}

static void expand(transfers_t *to, work_t *work, const ncclComm_t comm) {
  const size_t bytes = work->count * bytes_of(work->type);
  const int size = comm->size, is_root = work->peer == comm->rank;
  switch (work->kind) {
    case ALL_REDUCE:
      add_all(to, size, 1, work->send, bytes, 0);
      add_all(to, size, 0, work->scratch, bytes, bytes);
      break;
    case REDUCE:
      add(to, work->peer, 1, work->send, bytes);
      if (is_root) add_all(to, size, 0, work->scratch, bytes, bytes);
      break;
    case BROADCAST:
      if (is_root) add_all(to, size, 1, work->send, bytes, 0);
      add(to, work->peer, 0, work->recv, bytes);
      break;
    case REDUCE_SCATTER:
      add_all(to, size, 1, work->send, bytes, bytes);
      add_all(to, size, 0, work->scratch, bytes, bytes);
      break;
    case ALL_GATHER:
      add_all(to, size, 1, work->send, bytes, 0);
      add_all(to, size, 0, work->recv, bytes, bytes);
      break;
    case SEND:
      add(to, work->peer, 1, work->send, bytes);
      break;
    case RECV:
      add(to, work->peer, 0, work->recv, bytes);
      break;
  }
}

/* Moves as many bytes as the ring has free, or has received. Returns the bytes. */
static size_t move(ring_t *ring, transfer_t *transfer) {
  const uint64_t written = atomic_load(&ring->written), read = atomic_load(&ring->read);
  const uint64_t place = transfer->sends ? written : read;
  size_t most = (size_t)(transfer->sends ? RING - (written - read) : written - read);
  if (most > transfer->size - transfer->done) most = transfer->size - transfer->done;
  if (most > RING - place % RING) most = (size_t)(RING - place % RING);
  if (!most) return 0;
  unsigned char *const own = transfer->bytes + transfer->done, *const shared = ring->bytes + place % RING;
  memcpy(transfer->sends ? shared : own, transfer->sends ? own : shared, most);
  atomic_store(transfer->sends ? &ring->written : &ring->read, place + most);
  transfer->done += most;
  return most;
}

/* Returns whether a byte moved; `left` is the number of transfers that are not done. */
static int progress(const transfers_t *all, ncclComm_t comm, size_t *left) {
  int moved = 0;
  unsigned busy[2] = {0, 0}; /* by direction: peers whose earlier transfer is not done */
  *left = 0;
  for (size_t i = 0; i < all->count; i++) {
    transfer_t *const one = &all->list[i];
    if (one->done == one->size) continue;
    ++*left;
    if (busy[one->sends] >> one->peer & 1) continue;
    ring_t *const ring =
        one->sends ? &comm->segment->rings[comm->rank][one->peer] : &comm->segment->rings[one->peer][comm->rank];
    moved |= move(ring, one) > 0;
    busy[one->sends] |= one->done < one->size ? 1U << one->peer : 0;
  }
  return moved;
}

static void transfer_all(const transfers_t *all, ncclComm_t comm) {
  size_t left = all->count;
  const int hangs = setting("NCCL_MOCK_HANG", 0);
  for (int idle = 0; (left || hangs) && !atomic_load(&comm->aborted); atomic_store(&comm->idle, idle)) {
    idle = progress(all, comm, &left) ? 0 : idle + 1;
    if (idle) nap();
  }
  atomic_store(&comm->idle, 0);
}

static int take_scratch(plan_t *plan) {
  for (size_t i = 0; i < plan->count; i++) {
    work_t *const work = &plan->works[i];
    work->scratch = NULL;
    if (!is_reduction(work)) continue;
    work->scratch = malloc(work->count * bytes_of(work->type) * (size_t)plan->comm->size + 1);
    if (!work->scratch) return 0;
  }
  return 1;
}

void plan_run(void *data) {
  plan_t *const plan = data;
  ncclComm_t const comm = plan->comm;
  transfers_t all = {calloc(plan->count * 2 * MAX_RANKS + 1, sizeof(transfer_t)), 0};
  if (!all.list || !take_scratch(plan)) abort(); /* a test machine without memory */
  for (size_t i = 0; i < plan->count; i++) expand(&all, &plan->works[i], comm);
  transfer_all(&all, comm);
  for (size_t i = 0; i < plan->count; i++) {
    work_t *const work = &plan->works[i];
    const int keeps = work->kind != REDUCE || work->peer == comm->rank;
    if (is_reduction(work) && keeps && !atomic_load(&comm->aborted)) reduce_blocks(work, comm->size);
    free(work->scratch);
  }
  free(all.list);
  if (plan->captured) return;
  atomic_fetch_sub(&comm->plans, 1);
  free(plan);
  comm_release(comm);
}
