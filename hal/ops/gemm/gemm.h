/* op_gemm.h: how products of matrices are cut into tiles, for all kernels that compute them. Private to hal/src. */
#ifndef HAL_SRC_OP_GEMM_H_
#define HAL_SRC_OP_GEMM_H_

#include "kernels/pk_tiles.h"
#include "op/queue.h"

/* Cuts the product of an m x k and a k x n matrix of elements of `element` bytes, one of `batch`, into tiles of at most `most_m` rows.
 * `keep_n`: narrow tiles cost more than low ones. Depends on the sizes and the target alone. */
pk_tiles_t hal_op_gemm_tiles(const hal_op_context_t *context, int64_t m, int64_t n, int64_t k, int64_t batch,
                             int64_t element, int64_t most_m, int keep_n);

/* Tiles of `work` multiplications each that a group should take. */
uint64_t hal_op_gemm_per_group(const hal_op_context_t *context, double work);

#endif /* HAL_SRC_OP_GEMM_H_ */
