/* Tests of reductions of device memory that the host cannot access (comm_reductions.h). */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include "comm_device_testing.h"
#include "comm_reductions.h"

static reductions_t reductions = {create_on_device, 0, "is not supported"};

Test(comm_device_reduce, every_reduction_of_two) { run_ranks(2, every_reduction, &reductions); }
Test(comm_device_reduce, every_reduction_of_three) { run_ranks(3, every_reduction, &reductions); }

/* The device reduces the types of a training step, and the host sees none of their elements. */
static void common_types(int rank, int size, void *argument) {
  static const hal_dtype_t types[] = {HAL_FLOAT32, HAL_FLOAT64, HAL_FLOAT16, HAL_BFLOAT16, HAL_INT32, HAL_INT64};
  static const uint32_t kinds[] = {HAL_REDUCE_SUM, HAL_REDUCE_PROD, HAL_REDUCE_MIN,
                                   HAL_REDUCE_MAX, HAL_REDUCE_AVG,  HAL_REDUCE_PREMUL_SUM};
  static uint64_t data[1000];
  const double scale = 0;
  hal_comm_transport_t comm;
  (void)argument;
  create_on_device("types", rank, size, &comm);
  counts_copies = 1;
  for (size_t t = 0; t < LENGTH(types); t++)
    for (size_t k = 0; k < (t < 4 ? LENGTH(kinds) : 4); k++) {
      const hal_collective_t call = {.struct_size = sizeof call,
                                     .dtype = types[t],
                                     .reduce = kinds[k],
                                     .send = data,
                                     .recv = data,
                                     .count = LENGTH(data),
                                     .scale = &scale};
      CHECK(hal_comm_shm_takes_device_memory(&((on_device_t *)comm.context)->comm->transport, &call, 1),
            "%s, reduction %u", hal_dtype_name(types[t]), kinds[k]);
      CHECK_OK(run_one(&comm, call, 20 * (int64_t)SECOND));
    }
  comm.destroy(comm.context);
}
Test(comm_device_reduce, the_device_reduces_common_types) { run_ranks(2, common_types, NULL); }
