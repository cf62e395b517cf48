/* Tests of the collectives that copy in shared memory (comm_copies.h). */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include "comm_copies.h"

static copies_t copies = {create};

Test(comm_shm_exchange, every_copy_of_two) { run_ranks(2, every_copy, &copies); }
Test(comm_shm_exchange, every_copy_of_three) { run_ranks(3, every_copy, &copies); }
Test(comm_shm_exchange, every_copy_of_four) { run_ranks(4, every_copy, &copies); }

/* reduce_scatter with unequal counts: rank 0 has no element. */
static void uneven_reduction(int rank, int size, void *argument) {
  enum { UNIT = 300001 };
  hal_comm_transport_t comm;
  uint64_t send_counts[RANKS], all = 0;
  (void)argument;
  for (int r = 0; r < size; r++) send_counts[r] = UNIT * (uint64_t)r, all += send_counts[r];
  int64_t *const in = malloc((all + 1) * sizeof *in), *const out = malloc(((uint64_t)size * UNIT + 1) * sizeof *out);
  CHECK(in && out, "no memory");
  for (uint64_t i = 0; i < all; i++) in[i] = (int64_t)i * (rank + 1);
  create("uneven", rank, size, &comm);
  CHECK_OK(run_one(&comm,
                   (hal_collective_t){.op = HAL_COMM_REDUCE_SCATTER,
                                      .dtype = HAL_INT64,
                                      .send = in,
                                      .recv = out,
                                      .count = send_counts[rank],
                                      .send_counts = send_counts},
                   20 * (int64_t)SECOND));
  const uint64_t first = (uint64_t)(rank * (rank - 1) / 2) * UNIT;
  for (uint64_t i = 0; i < send_counts[rank]; i++)
    CHECK(out[i] == (int64_t)(first + i) * size * (size + 1) / 2, "element %llu is %lld", (unsigned long long)i,
          (long long)out[i]);
  comm.destroy(comm.context);
  free(in);
  free(out);
}
Test(comm_shm_exchange, reduce_scatter_with_unequal_counts) { run_ranks(3, uneven_reduction, NULL); }

/* In place as comm.h allows, and refused otherwise. */
static void in_place(int rank, int size, void *argument) {
  hal_comm_transport_t comm;
  int32_t data[RANKS];
  (void)argument;
  create("in_place", rank, size, &comm);
  data[rank] = 100 + rank;
  CHECK_OK(run_one(
      &comm,
      (hal_collective_t){.op = HAL_COMM_ALL_GATHER, .dtype = HAL_INT32, .send = &data[rank], .recv = data, .count = 1},
      20 * (int64_t)SECOND));
  for (int r = 0; r < size; r++) CHECK(data[r] == 100 + r, "%d from rank %d", (int)data[r], r);
  CHECK_OK(run_one(
      &comm,
      (hal_collective_t){
          .op = HAL_COMM_BROADCAST, .dtype = HAL_INT32, .peer = 1, .send = data, .recv = data, .count = (uint64_t)size},
      20 * (int64_t)SECOND));
  CHECK_OK(
      run_one(&comm,
              (hal_collective_t){
                  .op = HAL_COMM_REDUCE_SCATTER, .dtype = HAL_INT32, .send = data, .recv = &data[rank], .count = 1},
              20 * (int64_t)SECOND));
  CHECK(data[rank] == size * (100 + rank), "%d", (int)data[rank]);
  CHECK_FAILS(run_one(&comm, (hal_collective_t){.dtype = HAL_INT32, .send = data, .recv = data + 1, .count = 2},
                      20 * (int64_t)SECOND),
              HAL_INVALID_ARGUMENT, "all_reduce", "overlap");
  comm.destroy(comm.context);
}
Test(comm_shm_exchange, in_place) { run_ranks(3, in_place, NULL); }

/* Several collectives and messages in one bracket, and 64 ranks. */
static void bracket(int rank, int size, void *argument) {
  hal_comm_transport_t comm;
  int32_t sum = 0, maximum = 0, from = -1;
  const int32_t one = 1, own = rank;
  const hal_collective_t calls[] = {
      {.struct_size = sizeof calls[0],
       .op = HAL_COMM_ALL_REDUCE,
       .dtype = HAL_INT32,
       .send = &one,
       .recv = &sum,
       .count = 1},
      {.struct_size = sizeof calls[0],
       .op = HAL_COMM_RECV,
       .dtype = HAL_INT32,
       .peer = (rank + 1) % size,
       .recv = &from,
       .count = 1},
      {.struct_size = sizeof calls[0],
       .op = HAL_COMM_ALL_REDUCE,
       .reduce = HAL_REDUCE_MAX,
       .dtype = HAL_INT32,
       .send = &own,
       .recv = &maximum,
       .count = 1},
      {.struct_size = sizeof calls[0],
       .op = HAL_COMM_SEND,
       .dtype = HAL_INT32,
       .peer = (rank + size - 1) % size,
       .send = &own,
       .count = 1},
      {.struct_size = sizeof calls[0], .op = HAL_COMM_BARRIER},
  };
  (void)argument;
  create("bracket", rank, size, &comm);
  for (int i = 0; i < 5; i++) CHECK_OK(comm.run(comm.context, calls, LENGTH(calls), 60 * (int64_t)SECOND));
  CHECK(sum == size && maximum == size - 1 && from == (rank + 1) % size, "%d, %d, %d", (int)sum, (int)maximum,
        (int)from);
  comm.destroy(comm.context);
}
Test(comm_shm_exchange, bracket) { run_ranks(3, bracket, NULL); }
Test(comm_shm_exchange, sixty_four_ranks) { run_ranks(64, bracket, NULL); }
