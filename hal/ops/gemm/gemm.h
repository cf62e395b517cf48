/* gemm.h: division of matrix products into tiles, for all kernels that compute them. Private to hal/ops. */
#ifndef HAL_SRC_OP_GEMM_H_
#define HAL_SRC_OP_GEMM_H_

#include "kernels/pk_tiles.h"
#include "op/launch.h"
#include "op/target.h"
#include "ops/gemm/gemm_args.h"

/* Divides the product of an m x k and a k x n matrix of elements of `element` bytes, one of `batch`, into tiles of at
 * most `most_m` rows. `keep_n`: narrow tiles are slower than low ones. Depends only on the sizes and the target. */
pk_tiles_t hal_op_gemm_tiles(const hal_op_context_t *context, int64_t m, int64_t n, int64_t k, int64_t batch,
                             int64_t element, int64_t most_m, int keep_n);

/* Number of multiplications of a unit of work on the host. */
#define HAL_OP_TILE_WORK 150000

/* A plan for devices with many threads: squares of tile_m = tile_n rows and columns, and parts of the sum along k. */
typedef struct hal_op_squares_s {
  pk_tiles_t tiles;
  int64_t parts, part;
} hal_op_squares_t;

/* Large squares if they are enough for all compute units and fit into local memory, else small ones; if these are too
 * few for the units, the sum is divided as well. `element`: size of the computing type. */
hal_op_squares_t hal_op_gemm_squares(const hal_op_target_t *target, int64_t m, int64_t n, int64_t k, int64_t batch,
                                     int64_t element);

/* Returns the tiles of a group of gemm_cpu.h, on devices with few wide cores. */
pk_tiles_t hal_op_gemm_vector_tiles(const hal_op_target_t *target, int64_t m, int64_t n, int64_t k, int64_t batch);

/* A product of real matrices whose shapes were checked; `self` is readable even if beta is 0. */
typedef struct hal_op_product_s {
  pk_gemm_t s;
  const void *a, *b, *self;
  void *result;
  const hal_op_scalar_t *alpha, *beta;
  hal_dtype_t dtype;
  int32_t widened; /* computed in float */
  int64_t batch;   /* matrices */
} hal_op_product_t;

/* Queues a product on a target of the form HAL_FORM_CPU_VECTOR; `context` is that of mm. */
hal_status_t hal_op_gemm_cpu(hal_op_context_t *context, const hal_op_product_t *product);

/* Returns the number of tiles of `work` multiplications each for one group. */
uint64_t hal_op_gemm_per_group(const hal_op_context_t *context, double work);

#endif /* HAL_SRC_OP_GEMM_H_ */
