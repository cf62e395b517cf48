/* divide.c: split and shrink. Ranks write their requests into the parent's memory file; the first one of each color
   creates the child's. */
#include <stdlib.h>
#include <string.h>

#include "nccl_mock.h"

static int comes_before(const division_t *all, int one, int other) {
  return all->key[one] != all->key[other] ? all->key[one] < all->key[other] : one < other;
}

/* This rank's index among those of its color, their number, and the one that leads. */
static void place(ncclComm_t comm, const division_t *all, int *leader) {
  const int own = comm->parent->rank;
  comm->rank = comm->size = 0;
  *leader = own;
  for (int i = 0; i < comm->parent->size; i++) {
    if (comm->left_out >> i & 1 || all->color[i] != comm->color) continue;
    comm->size++;
    comm->rank += comes_before(all, i, own);
    if (comes_before(all, i, *leader)) *leader = i;
  }
}

static void publish(division_t *all, int rank, int color, int key) {
  all->color[rank] = color;
  all->key[rank] = key;
  atomic_store(&all->ready[rank], 1);
}

static ncclResult_t wait_for(const ncclComm_t comm, _Atomic int *word) {
  while (!atomic_load(word)) {
    if (atomic_load(&comm->aborted)) return ncclSystemError;
    nap();
  }
  return ncclSuccess;
}

static ncclResult_t join_division(ncclComm_t comm) {
  division_t *const all = &comm->parent->segment->divisions[comm->division];
  int leader = 0;
  for (int i = 0; i < comm->parent->size; i++)
    if (!(comm->left_out >> i & 1) && wait_for(comm, &all->ready[i])) return ncclSystemError;
  place(comm, all, &leader);
  if (leader == comm->parent->rank) {
    if (segment_make(&all->address[leader])) return fail_with(ncclSystemError, "no memory file");
    atomic_store(&all->made[leader], 1);
  }
  if (wait_for(comm, &all->made[leader])) return ncclSystemError;
  memcpy(&comm->address, &all->address[leader], sizeof comm->address);
  return comm_join(comm);
}

static ncclResult_t body(ncclComm_t comm) {
  const ncclResult_t code = join_division(comm);
  comm_release(comm->parent);
  comm->parent = NULL;
  return code;
}

static ncclResult_t divide(ncclComm_t parent, int color, int key, unsigned left_out, ncclComm_t *made,
                           const ncclConfig_t *config) {
  if (parent->divisions == SPLITS) return fail_with(ncclInternalError, "more than %d splits of a communicator", SPLITS);
  const int division = parent->divisions++;
  publish(&parent->segment->divisions[division], parent->rank, color, key);
  *made = NULL;
  parent->pending = !parent->blocking;
  if (color < 0) return parent->blocking ? ncclSuccess : ncclInProgress;
  ncclComm_t const comm =
      comm_new(&parent->address, 0, 0, parent->device, config ? is_blocking(config) : parent->blocking);
  if (!comm) return ncclSystemError;
  atomic_fetch_add(&parent->users, 1);
  comm->parent = parent;
  comm->division = division;
  comm->left_out = left_out;
  comm->color = color;
  comm->key = key;
  *made = comm;
  return comm_begin(comm, body);
}

ncclResult_t ncclCommSplit(ncclComm_t parent, int color, int key, ncclComm_t *made, ncclConfig_t *config) {
  const ncclResult_t refused = refusal("ncclCommSplit"), code = refused ? refused : comm_check(parent);
  return code ? code : divide(parent, color, key, 0, made, config);
}

ncclResult_t ncclCommShrink(ncclComm_t parent, int *ranks, int count, ncclComm_t *made, ncclConfig_t *config,
                            int flags) {
  unsigned left_out = 0;
  const ncclResult_t code = flags & NCCL_SHRINK_ABORT ? ncclSuccess : comm_check(parent);
  if (code) return code;
  for (int i = 0; i < count; i++) {
    if (ranks[i] < 0 || ranks[i] >= parent->size || ranks[i] == parent->rank)
      return fail_with(ncclInvalidArgument, "shrink without rank %d", ranks[i]);
    left_out |= 1U << ranks[i];
  }
  if (flags & NCCL_SHRINK_ABORT) atomic_store(&parent->aborted, 1);
  return divide(parent, 0, 0, left_out, made, config);
}
