/* gemm_half.h: products of half precision on the host, included by gemm.pk: the sums of all blocks of k are accumulated
 * in the computing type and rounded once. Operands are packed block by block: converted, or in pairs if processors
 * multiply these (gemm_pairs.h, gemm_amx.h). */
#include "gemm_amx.h"

/* The memory of a launch. */
typedef struct {
  T panels[PK_GEMM_K * PK_GEMM_TILE_N] __attribute__((aligned(64))); /* packed columns of b */
  T rows[2 * PK_GEMM_K * PK_GEMM_M] __attribute__((aligned(64)));    /* packed rows of a */
  T sums[PK_GEMM_TILE_M * PK_GEMM_TILE_N] __attribute__((aligned(64)));
  T product[PK_GEMM_M * PK_GEMM_N] __attribute__((aligned(64)));
#ifdef PK_IS_BF16
  pk_amx_model_t *amx; /* of the model alone */
#endif
} PK_NAME(half_t);

/* A block of k: its depth, and the position of its first elements. */
typedef struct {
  const E *a, *b;
  pk_i64 rows, columns, depth;
  int first;
} PK_NAME(half_block_t);

/* Adds a product to the sums, or starts them with it. */
PK_FN void PK_NAME(gather)(T *sums, const T *x, pk_i64 rows, pk_i64 width, int first) {
  for (pk_i64 i = 0; i < rows; i++, x += PK_GEMM_N, sums += PK_GEMM_TILE_N)
    for (pk_i64 j = 0; j < width; j++) sums[j] = first ? x[j] : sums[j] + x[j];
}

PK_FN void PK_NAME(block_converted)(const int pk_isa, const pk_gemm_t *s, const PK_NAME(half_block_t) * block,
                                    PK_NAME(half_t) * own) {
  PK_NAME(pack_b)(block->b, s->b_row, s->b_col, block->depth, block->columns, own->panels);
  for (pk_i64 i = 0, rows; i < block->rows; i += rows) {
    rows = PK_NAME(strip_rows)(pk_isa, block->rows - i);
    PK_NAME(pack_a)
    (PK_GEMM_STRIP(pk_isa), block->a + i * s->a_row, s->a_row, s->a_col, block->depth, rows, own->rows);
    for (pk_i64 j = 0; j < block->columns; j += PK_GEMM_N) {
      const pk_i64 width = block->columns - j < PK_GEMM_N ? block->columns - j : PK_GEMM_N;
      PK_NAME(micro)
      (pk_isa, rows, width, block->depth, own->rows, 0, own->panels + j * block->depth, PK_GEMM_N, own->product);
      PK_NAME(gather)(own->sums + i * PK_GEMM_TILE_N + j, own->product, rows, width, block->first);
    }
  }
}

#ifdef PK_IS_BF16
/* Packs the block's columns of b, and returns the panel of column j. */
PK_FN void PK_NAME(pack_panels)(const int pk_isa, const pk_gemm_t *s, const PK_NAME(half_block_t) * block,
                                PK_NAME(half_t) * own) {
  const pk_packing_t columns = {s->b_col, s->b_row, PK_GEMM_N, 0};
  PK_NAME(pack_pairs)(pk_isa, &columns, block->b, block->depth, block->columns, (pk_pair_t *)own->panels);
}
PK_FN const pk_pair_t *PK_NAME(panel_of)(const PK_NAME(half_block_t) * block, const PK_NAME(half_t) * own, pk_i64 j) {
  return (const pk_pair_t *)own->panels + j * PK_PAIRS_DEEP(block->depth) * PK_PAIRS;
}

/* Packs rows of a from row i on, up to `rows->width` of the remaining ones. */
PK_FN void PK_NAME(pack_rows_of_a)(const int pk_isa, const pk_gemm_t *s, const PK_NAME(half_block_t) * block, pk_i64 i,
                                   const pk_packing_t *rows, PK_NAME(half_t) * own) {
  const pk_i64 left = block->rows - i;
  PK_NAME(pack_pairs)
  (pk_isa, rows, block->a + i * s->a_row, block->depth, left < rows->width ? left : rows->width,
   (pk_pair_t *)own->rows);
}

PK_FN void PK_NAME(block_in_squares)(const int pk_isa, const pk_gemm_t *s, const PK_NAME(half_block_t) * block,
                                     PK_NAME(half_t) * own) {
  PK_NAME(pack_panels)(pk_isa, s, block, own);
  for (pk_i64 i = 0; i < block->rows; i += 2 * PK_PAIRS) {
    const int tall = block->rows - i > PK_PAIRS;
    const pk_packing_t rows = {s->a_row, s->a_col, tall ? 2 * PK_PAIRS : PK_PAIRS, 1};
    PK_NAME(pack_rows_of_a)(pk_isa, s, block, i, &rows, own);
    for (pk_i64 j = 0; j < block->columns; j += PK_GEMM_N) PK_OF_AMX(rows)
    (own->amx, PK_PAIRS_DEEP(block->depth), tall, !block->first, (const pk_pair_t *)own->rows,
     PK_NAME(panel_of)(block, own, j), own->sums + i * PK_GEMM_TILE_N + j);
  }
}
#endif

#ifdef PK_HAS_PAIRS
PK_FN void PK_NAME(block_in_pairs)(const int pk_isa, const pk_gemm_t *s, const PK_NAME(half_block_t) * block,
                                   PK_NAME(half_t) * own) {
  const pk_packing_t packing = {s->a_row, s->a_col, PK_PAIRS, 0};
  PK_NAME(pack_panels)(pk_isa, s, block, own);
  for (pk_i64 i = 0, rows; i < block->rows; i += rows) {
    rows = PK_NAME(strip_rows)(pk_isa, block->rows - i);
    if (i % PK_PAIRS == 0) PK_NAME(pack_rows_of_a)(pk_isa, s, block, i, &packing, own);
    for (pk_i64 j = 0; j < block->columns; j += PK_GEMM_N) {
      const pk_i64 width = block->columns - j < PK_GEMM_N ? block->columns - j : PK_GEMM_N;
      PK_NAME(micro_pairs)
      (rows, (block->depth + 1) / 2, (const pk_pair_t *)own->rows + i % PK_PAIRS, PK_NAME(panel_of)(block, own, j),
       own->product);
      PK_NAME(gather)(own->sums + i * PK_GEMM_TILE_N + j, own->product, rows, width, block->first);
    }
  }
}
#endif

/* Multiplies a block. */
PK_FN void PK_NAME(block)(const int pk_isa, const pk_gemm_t *s, const PK_NAME(half_block_t) * block,
                          PK_NAME(half_t) * own) {
#ifdef PK_HAS_PAIRS
  if (pk_isa == PK_ISA_AVX512_BF16) {
    PK_NAME(block_in_pairs)(pk_isa, s, block, own);
    return;
  }
#endif
#ifdef PK_IS_BF16
  if (pk_isa >= PK_ISA_AMX) {
    PK_NAME(block_in_squares)(pk_isa, s, block, own);
    return;
  }
#endif
  PK_NAME(block_converted)(pk_isa, s, block, own);
}

/* Called before a launch's blocks, and after them. An exception that the model found is a bug in this file. */
PK_FN void PK_NAME(half_begin)(const int pk_isa, PK_NAME(half_t) * own) {
  (void)pk_isa, (void)own;
#ifdef PK_IS_BF16
  if (pk_isa >= PK_ISA_AMX) PK_OF_AMX(configure)(own->amx);
#endif
}
PK_FN void PK_NAME(half_end)(const int pk_isa, PK_NAME(half_t) * own) {
  (void)pk_isa, (void)own;
#ifdef PK_IS_BF16
  if (pk_isa >= PK_ISA_AMX) PK_OF_AMX(release)(own->amx);
  if (pk_isa == PK_ISA_AMX_MODEL && own->amx->fault) __builtin_trap();
#endif
}
