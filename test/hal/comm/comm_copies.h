/* comm_copies.h: the collectives of a transport that copy: broadcast, all_gather, gather, scatter, all_to_all, with
 * equal and unequal counts, for each size of elements. The byte at position p that rank r sends to rank t is a
 * function of r, t and p, which the receiver also computes. */
#ifndef TEST_HAL_COMM_COPIES_H_
#define TEST_HAL_COMM_COPIES_H_

#include "comm_testing.h"

enum { MOST = 70001, GAP = 3 };
static const uint64_t counts[] = {0, 1, 7, 1000, MOST};
static const hal_dtype_t dtypes[] = {HAL_FLOAT8_E4M3FN, HAL_BFLOAT16, HAL_FLOAT32, HAL_INT64, HAL_COMPLEX128};
static const uint32_t ops[] = {HAL_COMM_BROADCAST, HAL_COMM_ALL_GATHER, HAL_COMM_GATHER, HAL_COMM_SCATTER,
                               HAL_COMM_ALL_TO_ALL};
#define LENGTH(array) (sizeof(array) / sizeof(array)[0])

static unsigned char byte_of(int from, int to, uint64_t at) {
  return (unsigned char)(at * 2654435761u >> 7 ^ (unsigned)(from * 37 + to * 101));
}

static void fill(unsigned char *block, int from, int to, uint64_t bytes) {
  for (uint64_t i = 0; i < bytes; i++) block[i] = byte_of(from, to, i);
}

static void check_block(const char *what, const unsigned char *block, int from, int to, uint64_t bytes) {
  for (uint64_t i = 0; i < bytes; i++)
    CHECK(block[i] == byte_of(from, to, i), "%s: byte %llu of %llu from rank %d is wrong", what, (unsigned long long)i,
          (unsigned long long)bytes, from);
}

typedef struct rank_state_s {
  hal_comm_transport_t comm;
  int rank, size;
  unsigned char *send, *recv; /* size * (MOST + GAP) elements of 16 bytes */
} rank_state_t;

static int gives_blocks(uint32_t op, int is_root) {
  return op == HAL_COMM_ALL_TO_ALL || (op == HAL_COMM_SCATTER && is_root);
}
static int takes_blocks(uint32_t op, int is_root) {
  return op == HAL_COMM_ALL_TO_ALL || op == HAL_COMM_ALL_GATHER || (op == HAL_COMM_GATHER && is_root);
}
static int shares(uint32_t op) { return op == HAL_COMM_BROADCAST || op == HAL_COMM_ALL_GATHER; }

/* Elements from one rank to another: `count` for all pairs, or a different number for each, some of them 0. */
static uint64_t pair_count(uint32_t op, int uneven, uint64_t count, int from, int to) {
  if (!uneven) return count;
  if (op == HAL_COMM_ALL_GATHER || op == HAL_COMM_GATHER) to = 0; /* a block of each sender */
  if (op == HAL_COMM_SCATTER) from = 0;
  return (from + 2 * to) % 3 == 0 ? 0 : count / (uint64_t)(1 + (from + to) % 3);
}

static void run_case(rank_state_t *state, uint32_t op, hal_dtype_t dtype, uint64_t count, int uneven, int root) {
  uint64_t send_counts[RANKS], send_displs[RANKS], recv_counts[RANKS], recv_displs[RANKS], send_at = 0, recv_at = 0;
  const uint64_t size = hal_dtype_size(dtype), gap = uneven ? GAP : 0;
  const int is_root = state->rank == root, gives = gives_blocks(op, is_root), takes = takes_blocks(op, is_root);
  char what[64];
  snprintf(what, sizeof what, "op %u, %s, %llu elements", op, hal_dtype_name(dtype), (unsigned long long)count);
  memset(state->recv, 0x5a, (size_t)state->size * (count + GAP) * size);
  for (int peer = 0; peer < state->size; peer++) {
    send_counts[peer] = pair_count(op, uneven, count, state->rank, peer);
    recv_counts[peer] = pair_count(op, uneven, count, peer, state->rank);
    send_displs[peer] = send_at;
    recv_displs[peer] = recv_at;
    if (gives) fill(state->send + send_at * size, state->rank, peer, send_counts[peer] * size);
    send_at += send_counts[peer] + gap;
    recv_at += recv_counts[peer] + gap;
  }
  /* Of one block: its size is the data that the other side has for this rank. */
  const uint64_t block = op == HAL_COMM_SCATTER                                  ? recv_counts[root]
                         : op == HAL_COMM_BROADCAST || op == HAL_COMM_ALL_TO_ALL ? count
                                                                                 : send_counts[root];
  if (!gives) fill(state->send, state->rank, shares(op) ? 0 : root, block * size);
  CHECK_OK(run_one(
      &state->comm,
      (hal_collective_t){.op = op,
                         .dtype = dtype,
                         .peer = root,
                         .send = (op == HAL_COMM_BROADCAST || op == HAL_COMM_SCATTER) && !is_root ? NULL : state->send,
                         .recv = op == HAL_COMM_GATHER && !is_root ? NULL : state->recv,
                         .count = block,
                         .send_counts = uneven && gives ? send_counts : NULL,
                         .send_displs = uneven && gives ? send_displs : NULL,
                         .recv_counts = uneven && takes ? recv_counts : NULL,
                         .recv_displs = uneven && takes ? recv_displs : NULL},
      20 * (int64_t)SECOND));
  if (op == HAL_COMM_BROADCAST) check_block(what, state->recv, root, 0, count * size);
  if (op == HAL_COMM_SCATTER) check_block(what, state->recv, root, state->rank, block * size);
  for (int peer = 0; takes && peer < state->size; peer++) {
    const unsigned char *const at = state->recv + recv_displs[peer] * size;
    check_block(what, at, peer, shares(op) ? 0 : state->rank, recv_counts[peer] * size);
    for (uint64_t i = 0; i < gap * size; i++)
      CHECK(at[recv_counts[peer] * size + i] == 0x5a, "%s: memory between the blocks was written", what);
  }
}

typedef struct copies_s {
  void (*create)(const char *name, int rank, int size, hal_comm_transport_t *out);
} copies_t;

/* `argument`: a copies_t. */
static void every_copy(int rank, int size, void *argument) {
  rank_state_t state = {.rank = rank,
                        .size = size,
                        .send = malloc((size_t)size * (MOST + GAP) * 16),
                        .recv = malloc((size_t)size * (MOST + GAP) * 16)};
  CHECK(state.send && state.recv, "no memory");
  ((const copies_t *)argument)->create("copy", rank, size, &state.comm);
  for (size_t o = 0; o < LENGTH(ops); o++)
    for (size_t d = 0; d < LENGTH(dtypes); d++)
      for (size_t c = 0; c < LENGTH(counts); c++)
        for (int uneven = 0; uneven < 2; uneven++)
          if (!uneven || ops[o] != HAL_COMM_BROADCAST)
            run_case(&state, ops[o], dtypes[d], counts[c], uneven, (int)(c + d) % size);
  state.comm.destroy(state.comm.context);
  free(state.send);
  free(state.recv);
}

#endif /* TEST_HAL_COMM_COPIES_H_ */
