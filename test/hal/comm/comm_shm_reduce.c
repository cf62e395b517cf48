/* Tests of the reductions in shared memory (comm_reductions.h). */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include "comm_reductions.h"

static reductions_t reductions = {create, 1, "supported are sum"};

Test(comm_shm_reduce, every_reduction_of_two) { run_ranks(2, every_reduction, &reductions); }
Test(comm_shm_reduce, every_reduction_of_three) { run_ranks(3, every_reduction, &reductions); }
Test(comm_shm_reduce, every_reduction_of_four) { run_ranks(4, every_reduction, &reductions); }
/* HAL_TEST_RANKS=8: one of the slow tests. */
Test(comm_shm_reduce, every_reduction_of_more) {
  const char *const ranks = getenv("HAL_TEST_RANKS");
  const long size = ranks ? strtol(ranks, NULL, 10) : 0;
  if (size < 2 || size > RANKS) cr_skip_test("HAL_TEST_RANKS is not set");
  run_ranks((int)size, every_reduction, &reductions);
}

/* ---- what a sum is ---- */

/* 1 + 2^-8 + 2^-8 in bfloat16: rounding after each addition results in 1. */
static void rounded_once(int rank, int size, void *argument) {
  hal_comm_transport_t comm;
  const uint16_t in = rank ? 0x3b80 : 0x3f80;
  uint16_t out = 0;
  (void)argument;
  create("once", rank, size, &comm);
  CHECK_OK(run_one(&comm, (hal_collective_t){.dtype = HAL_BFLOAT16, .send = &in, .recv = &out, .count = 1},
                   20 * (int64_t)SECOND));
  CHECK(out == 0x3f81, "%x instead of 1 + 2^-7", out);
  comm.destroy(comm.context);
}
Test(comm_shm_reduce, sums_of_half_types_are_rounded_once) { run_ranks(3, rounded_once, NULL); }

/* The average of three 60,000 is 60,000: the sum, which exceeds float16, is divided before it is rounded. */
static void average(int rank, int size, void *argument) {
  hal_comm_transport_t comm;
  const uint16_t in = 0x7b53; /* 60,000 - 24 */
  uint16_t out = 0;
  (void)argument;
  create("average", rank, size, &comm);
  CHECK_OK(run_one(
      &comm, (hal_collective_t){.reduce = HAL_REDUCE_AVG, .dtype = HAL_FLOAT16, .send = &in, .recv = &out, .count = 1},
      20 * (int64_t)SECOND));
  CHECK(out == in, "%x instead of %x", out, in);
  comm.destroy(comm.context);
}
Test(comm_shm_reduce, averages_divide_before_they_round) { run_ranks(3, average, NULL); }

/* Types that only support copies. */
static void copies_only(int rank, int size, void *argument) {
  static const hal_dtype_t types[] = {
      HAL_FLOAT8_E5M2,    HAL_FLOAT8_E4M3FN,    HAL_FLOAT8_E5M2FNUZ, HAL_FLOAT8_E4M3FNUZ,
      HAL_FLOAT8_E8M0FNU, HAL_FLOAT4_E2M1FN_X2, HAL_UINT4,           HAL_INT4};
  hal_comm_transport_t comm;
  (void)argument;
  create("copies", rank, size, &comm);
  for (size_t i = 0; i < LENGTH(types); i++) {
    unsigned char in = (unsigned char)(rank + 1), out[RANKS];
    CHECK_FAILS(run_one(&comm, (hal_collective_t){.dtype = types[i], .send = &in, .recv = out, .count = 1},
                        20 * (int64_t)SECOND),
                HAL_UNIMPLEMENTED, hal_dtype_name(types[i]), "convert it to float32");
    CHECK_OK(run_one(
        &comm, (hal_collective_t){.op = HAL_COMM_ALL_GATHER, .dtype = types[i], .send = &in, .recv = out, .count = 1},
        20 * (int64_t)SECOND));
    for (int r = 0; r < size; r++) CHECK(out[r] == r + 1, "%d instead of %d", out[r], r + 1);
  }
  comm.destroy(comm.context);
}
Test(comm_shm_reduce, small_types_are_copied_only) { run_ranks(2, copies_only, NULL); }
