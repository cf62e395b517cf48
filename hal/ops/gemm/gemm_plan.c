/* gemm_plan.c: divides products of matrices, only by the sizes and the target. */
#include "op/dims.h"
#include "ops/gemm/gemm.h"

/* Tiles of the host have at most PK_GEMM_TILE_M x 512 bytes of columns (PK_GEMM_TILE_N): packing a panel of b costs
 * about a tenth of the arithmetic on 192 rows. A matrix is divided further for threads as long as tiles take at least
 * about 2 us. */
enum { TILE_BYTES = 512, PANEL_BYTES = PK_GEMM_BYTES, LEAST_M = 32 };

/* Devices with many threads: the number of squares per compute unit below which smaller ones, or parts of the sum, are
 * faster, and the minimum number of terms of a part. */
enum { SQUARES_PER_UNIT = 2, LEAST_PART = 128 };

static int64_t divide_up(int64_t x, int64_t y) { return x / y + (x % y != 0); }

/* Squares of `size` rows and columns. */
static pk_tiles_t squares_of(int64_t m, int64_t n, int64_t size) {
  return (pk_tiles_t){.tile_m = size, .tile_n = size, .tiles_m = divide_up(m, size), .tiles_n = divide_up(n, size)};
}

/* Both halves of both blocks of gemm_device.h. */
static int64_t local_bytes(int64_t size, int64_t element) {
  return 2 * 2 * (element > 4 ? 8 : 16) * (size + 1) * element;
}

/* In double, so that no product overflows. */
hal_op_squares_t hal_op_gemm_squares(const hal_op_target_t *target, int64_t m, int64_t n, int64_t k, int64_t batch,
                                     int64_t element) {
  const double wanted = (double)target->units * SQUARES_PER_UNIT;
  hal_op_squares_t plan = {.tiles = squares_of(m, n, PK_GEMM_LARGE), .parts = 1, .part = k};
  if (local_bytes(PK_GEMM_LARGE, element) <= target->local_bytes &&
      (double)plan.tiles.tiles_m * (double)plan.tiles.tiles_n * (double)batch >= wanted)
    return plan;
  plan.tiles = squares_of(m, n, PK_GEMM_SMALL);
  const double squares = (double)plan.tiles.tiles_m * (double)plan.tiles.tiles_n;
  if (batch > 1 || squares * 2 > wanted || k < 2 * LEAST_PART) return plan;
  int64_t parts = (int64_t)(wanted / squares);
  parts = parts < k / LEAST_PART ? parts : k / LEAST_PART;
  plan.part = divide_up(divide_up(k, parts), 16) * 16; /* whole blocks */
  plan.parts = divide_up(k, plan.part);
  return plan;
}

/* Devices with few wide cores: tiles of at most most_m x most_n, and smaller ones if there are too few of them. */
static pk_tiles_t vector_tiles(int64_t m, int64_t n, int64_t most_m, int64_t most_n, int64_t least_m, int64_t wanted) {
  int64_t tile_m = most_m, tile_n = most_n;
  while (tile_m > least_m && divide_up(m, tile_m) * divide_up(n, tile_n) < wanted) tile_m -= PK_CPU_M;
  while (tile_n > PK_CPU_N && divide_up(m, tile_m) * divide_up(n, tile_n) < wanted) tile_n -= PK_CPU_N;
  tile_m = divide_up(divide_up(m, divide_up(m, tile_m)), PK_CPU_M) * PK_CPU_M;
  return (pk_tiles_t){
      .tile_m = tile_m, .tile_n = tile_n, .tiles_m = divide_up(m, tile_m), .tiles_n = divide_up(n, tile_n)};
}

pk_tiles_t hal_op_gemm_vector_tiles(const hal_op_target_t *target, int64_t m, int64_t n, int64_t k, int64_t batch) {
  enum {
    MOST_M = 64,
    MOST_N = 128,
    TILES_PER_UNIT = 2
  }; /* panels of a tile share a second-level cache with its rows */
  const int64_t most = divide_up((int64_t)target->units * TILES_PER_UNIT, batch);
  const double work = (double)m * (double)n * (double)k / (HAL_OP_TILE_WORK / 4); /* no product overflows */
  return vector_tiles(m, n, MOST_M, MOST_N, PK_CPU_M, work < (double)most ? (int64_t)work : most);
}

pk_tiles_t hal_op_gemm_tiles(const hal_op_context_t *context, int64_t m, int64_t n, int64_t k, int64_t batch,
                             int64_t element, int64_t most_m, int keep_n) {
  const hal_op_target_t *const target = hal_op_target(context);
  const int64_t most = divide_up((int64_t)target->wanted_groups, batch);
  if (target->form == HAL_FORM_CPU_VECTOR) return vector_tiles(m, n, most_m, PK_VECTOR_TILE_N, LEAST_M, most);
  if (target->form == HAL_FORM_SIMT) return squares_of(m, n, PK_GEMM_SMALL);
  const int64_t panel = PANEL_BYTES / element, depth = k > 0 ? k : 1;
  int64_t tile_m = most_m, tile_n = TILE_BYTES / element;
  /* In double: an estimate is sufficient, and no product overflows. */
  const double work = (double)m * (double)n * (double)depth / HAL_OP_TILE_WORK;
  const int64_t wanted = work < (double)most ? (int64_t)work : most;
  while (keep_n && tile_m > LEAST_M && divide_up(m, tile_m) * divide_up(n, tile_n) < wanted) tile_m -= 16;
  while (tile_n > panel && divide_up(m, tile_m) * divide_up(n, tile_n) < wanted) tile_n -= panel;
  while (tile_m > LEAST_M && divide_up(m, tile_m) * divide_up(n, tile_n) < wanted) tile_m -= 16;
  /* Even tiles: 512 rows as 3 x 176, not 192 + 192 + 128. */
  pk_tiles_t tiles = {.tile_m = divide_up(divide_up(m, divide_up(m, tile_m)), 8) * 8,
                      .tile_n = divide_up(divide_up(n, divide_up(n, tile_n)), panel) * panel};
  tiles.tiles_m = divide_up(m, tiles.tile_m);
  tiles.tiles_n = divide_up(n, tiles.tile_n);
  return tiles;
}

uint64_t hal_op_gemm_per_group(const hal_op_context_t *context, double work) {
  return work >= HAL_OP_TILE_WORK
             ? 1
             : hal_op_units_per_group(context, (uint64_t)(work * HAL_OP_ATTENTION / HAL_OP_TILE_WORK));
}
