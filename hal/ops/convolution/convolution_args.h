/* convolution_args.h: the arguments of this folder's kernels, for the kernels and for their launchers
 * (kernels/pk_args.h). */
#ifndef CONVOLUTION_ARGS_H_
#define CONVOLUTION_ARGS_H_

#include "kernels/pk_tiles.h"
#include "kernels/pk_window.h"

/* `window` slides over `image`: its channels are those of a group, in the image; out is the positions of the grid.
 * `rows` is the number of the grid's channels per group. A tile has tile_m rows x tile_n columns (windows) in tiles,
 * and tile_m rows of the unfolded image x tile_n channels of the grid in slope; it is a band of tile_m x tile_n windows
 * in planes and planes_slope. */
typedef struct {
  pk_window_t window;
  pk_volume_t image, grid, weight; /* of the weight: channel of the grid, of the image, position */
  pk_i64 batches, groups, rows;
  pk_i64 image_elements; /* of the whole image */
  /* rows of the unfolded image are (position, channel), not (channel, position); not on the host */
  pk_i64 by_place;
  pk_tiles_t tiles;
} pk_conv_t;

/* The part of a window for the positions of one class: `size` positions, the first of which is `first`, `step` apart,
 * of a weight with these strides: channel of the small image, of the large one, position. */
typedef struct {
  pk_volume_t weight;
  pk_i64 size[3], first[3], step[3];
} pk_conv_part_t;

#define PK_CONV_ROWS 96         /* maximum number of rows of a tile of slope */
#define PK_CONV_VECTOR_ROWS 256 /* the same for conv_vector.h */
/* planes: maximum number of elements of all phases of a band, and of the band: 32 KiB each */
#define PK_CONV_ROOM 4096
#define PK_CONV_PLACES 128 /* planes: maximum number of positions of a plane of a window */

#define CONV_TURN_ARGS(X)                                                                    \
  X(OUT, E, turned), X(IN, E, weight), X(VALUE, pk_u64, n), X(STRUCT, pk_conv_part_t, part), \
      X(VALUE, pk_i64, small_per_group), X(VALUE, pk_i64, large_per_group), X(VALUE, pk_i64, lines)

#define CONV_TILES_ARGS(X)                                                                        \
  X(OUT, E, grid), X(IN, E, image), X(IN, E, weight), X(IN, E, bias), X(VALUE, pk_i32, has_bias), \
      X(STRUCT, pk_conv_t, s), X(VALUE, pk_u64, units), X(VALUE, pk_u64, per_group)

/* The slope of half precision is in T if there are several parts. */
#define CONV_SLOPE_ARGS(X)                                                                            \
  X(OUT, E, slope), X(IN, E, image), X(IN, E, grid), X(STRUCT, pk_conv_t, s), X(VALUE, pk_i64, part), \
      X(VALUE, pk_u64, units), X(VALUE, pk_u64, per_group)

#define CONV_PLANES_ARGS(X)                                                                       \
  X(OUT, E, grid), X(IN, E, image), X(IN, E, weight), X(IN, E, bias), X(VALUE, pk_i32, has_bias), \
      X(STRUCT, pk_conv_t, s), X(VALUE, pk_u64, n)

#define CONV_PLANES_SLOPE_ARGS(X)                                                                     \
  X(OUT, E, slope), X(IN, E, image), X(IN, E, grid), X(STRUCT, pk_conv_t, s), X(VALUE, pk_i64, part), \
      X(VALUE, pk_u64, n)

#endif /* CONVOLUTION_ARGS_H_ */
