/* pk_tiles.h: the division of a matrix product into tiles, for kernels and launchers. */
#ifndef PK_TILES_H_
#define PK_TILES_H_

#include "pk_types.h"

/* Sizes of a tile (the last ones may be smaller), and the numbers of tiles. */
typedef struct {
  pk_i64 tile_m, tile_n, tiles_m, tiles_n;
} pk_tiles_t;

#define PK_GEMM_BYTES 128  /* of a row of a panel */
#define PK_GEMM_TILE_M 192 /* maximum number of rows of a tile */
#define PK_GEMM_SMALL \
  32 /* rows and columns of a square that a group computes on devices with many threads (gemm_device.h) */
#define PK_GEMM_LARGE 64

/* A tile of pk_tile_vector.h: rows, and elements of a vector. */
#define PK_CPU_M 8
#define PK_CPU_N 16
#define PK_VECTOR_TILE_M 128 /* maximum number of rows and columns whose sums an item has in its own memory */
#define PK_VECTOR_TILE_N 64

#endif /* PK_TILES_H_ */
