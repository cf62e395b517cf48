/* convolution_args.h: the arguments of this folder's kernels, for the kernels and for their launchers (kernels/pk_args.h). */
#ifndef CONVOLUTION_ARGS_H_
#define CONVOLUTION_ARGS_H_

#include "kernels/pk_tiles.h"
#include "kernels/pk_window.h"

/* `window` slides over `image`: its channels are those of a group, in the image, out the places of the grid. `rows` counts the grid's
 * channels of a group. A tile has tile_m rows x tile_n columns (windows) in tiles, tile_m rows of the unfolded image x tile_n channels of
 * the grid in slope, and is a band of tile_m x tile_n windows in planes and planes_slope. */
typedef struct {
  pk_window_t window;
  pk_volume_t image, grid, weight; /* the weight's: channel of the grid, of the image, place */
  pk_i64 batches, groups, rows;
  pk_i64 image_elements; /* of the whole image */
  pk_i64 by_place;       /* rows of the unfolded image are (place, channel), not (channel, place); not on the host */
  pk_tiles_t tiles;
} pk_conv_t;

/* The part of a window that places of one class see: `size` places, the first of which is `first`, `step` apart, of a weight with these
 * strides: channel of the small image, of the large one, place. */
typedef struct {
  pk_volume_t weight;
  pk_i64 size[3], first[3], step[3];
} pk_conv_part_t;

#define PK_CONV_ROWS 96         /* rows of a tile of slope, at most */
#define PK_CONV_VECTOR_ROWS 256 /* the same in conv_vector.h */
#define PK_CONV_ROOM 4096       /* planes: elements of all phases of a band, and of the band: at most 32 KiB each */
#define PK_CONV_PLACES 128      /* planes: of a plane of a window, at most */

#define CONV_TURN_ARGS(X)                                                                    \
  X(OUT, E, turned), X(IN, E, weight), X(VALUE, pk_u64, n), X(STRUCT, pk_conv_part_t, part), \
      X(VALUE, pk_i64, small_per_group), X(VALUE, pk_i64, large_per_group), X(VALUE, pk_i64, lines)

#define CONV_TILES_ARGS(X)                                                                        \
  X(OUT, E, grid), X(IN, E, image), X(IN, E, weight), X(IN, E, bias), X(VALUE, pk_i32, has_bias), \
      X(STRUCT, pk_conv_t, s), X(VALUE, pk_u64, units), X(VALUE, pk_u64, per_group)

/* The slope of half precision is in T where there are several parts. */
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
