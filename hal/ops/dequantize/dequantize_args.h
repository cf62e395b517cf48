/* dequantize_args.h: the arguments of this folder's kernel, for the kernel and for its launcher (kernels/pk_args.h). */
#ifndef DEQUANTIZE_ARGS_H_
#define DEQUANTIZE_ARGS_H_

#include "kernels/pk_types.h"

/* Formats of elements and of scales. */
#define PK_FORMAT_E2M1 0 /* two elements in a byte, the first one in the low bits */
#define PK_FORMAT_E4M3FN 1
#define PK_FORMAT_E5M2 2
#define PK_FORMAT_E4M3FNUZ 3
#define PK_FORMAT_E5M2FNUZ 4
#define PK_FORMAT_E8M0FNU 5

/* Scales in the order of matrix units: tiles of 128 rows and 4 blocks, one after the other; a tile has the scales of
 * rows r, r + 32, r + 64 and r + 96 in 16 bytes. */
#define PK_SCALE_TILE_ROWS 128
#define PK_SCALE_TILE_BLOCKS 4

/* Rows of `columns` elements, in blocks that have a scale each. */
typedef struct {
  pk_i64 columns, block; /* elements of a row, and of a block; the last block of a row may be smaller */
  pk_i64 blocks;         /* of a row */
  pk_i64 tiles;          /* of scales in a row of tiles; 0: scales are [row][block] */
  pk_i64 format, scale_format;
} pk_dequantize_t;

#define DEQUANTIZE_ARGS(X) \
  X(OUT, float, result), X(IN, pk_u8, codes), X(IN, pk_u8, scales), X(STRUCT, pk_dequantize_t, s), X(VALUE, pk_u64, n)

#endif /* DEQUANTIZE_ARGS_H_ */
