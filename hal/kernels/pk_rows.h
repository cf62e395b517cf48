/* pk_rows.h: iteration over strided operands in row form.
 *
 * An item of a row-form kernel is a block of elements in the order of pk_rows_t, dimension 0 innermost. The launcher
 * chooses the block. On devices with many threads it is 1. On a CPU it is about a thousand: the division happens once
 * per block, and the spans along dimension 0 are loops that the compiler vectorizes. A kernel is written once, for the
 * latter. */
#ifndef PK_ROWS_H_
#define PK_ROWS_H_

#ifdef PK_WIDE_CORES
/* A position in the iteration: the index in each dimension and the offset in elements of each operand. */
typedef struct {
  pk_i64 index[PK_MAXD];
  pk_i64 offset[PK_ROW_OPERANDS];
} pk_cursor_t;

/* Moves to element `position` of the iteration. */
PK_FN void pk_cursor_seek(const pk_rows_t *rows, int operands, pk_u64 position, pk_cursor_t *at) {
  for (int k = 0; k < operands; k++) at->offset[k] = 0;
  for (int d = 0; d < rows->ndim; d++) {
    const pk_u64 next = d + 1 < rows->ndim ? position / (pk_u64)rows->size[d] : 0;
    at->index[d] = (pk_i64)(position - next * (pk_u64)rows->size[d]);
    for (int k = 0; k < operands; k++) at->offset[k] += at->index[d] * rows->stride[k][d];
    position = next;
  }
}

/* Returns the number of elements up to the end of the row, at most `left`. */
PK_FN pk_u64 pk_cursor_span(const pk_rows_t *rows, const pk_cursor_t *at, pk_u64 left) {
  const pk_u64 row = (pk_u64)(rows->size[0] - at->index[0]);
  return row < left ? row : left;
}

/* Moves to the start of the next row, which must exist. */
PK_FN void pk_cursor_next_row(const pk_rows_t *rows, int operands, pk_cursor_t *at) {
  for (int k = 0; k < operands; k++) at->offset[k] -= at->index[0] * rows->stride[k][0];
  at->index[0] = 0;
  for (int d = 1; d < rows->ndim; d++) {
    for (int k = 0; k < operands; k++) at->offset[k] += rows->stride[k][d];
    if (++at->index[d] < rows->size[d]) return;
    for (int k = 0; k < operands; k++) at->offset[k] -= rows->size[d] * rows->stride[k][d];
    at->index[d] = 0;
  }
}

/* Returns the number of items of a row-form kernel, and the number of elements of item i. */
PK_FN pk_u64 pk_block_count(pk_u64 n, pk_u64 block) { return n / block + (n % block != 0); }
PK_FN pk_u64 pk_block_size(pk_u64 n, pk_u64 block, pk_u64 i) {
  const pk_u64 left = n - i * block;
  return left < block ? left : block;
}
PK_FN pk_u64 pk_block_start(pk_u64 block, pk_u64 i) { return i * block; }

/* The distance of the elements of operand k in a span. */
#define PK_INNER(rows, k) ((rows).stride[k][0])
#else /* an item is one element: the block is 1, and so is every span */
typedef struct {
  pk_i32 offset[PK_ROW_OPERANDS];
} pk_cursor_t;

/* In 32 bits: launchers split larger ranges (hal/src/op/iterator.c). Dimensions are unrolled, so that all array indices
 * are constants: others would put the arguments on an item's stack. */
PK_FN void pk_cursor_seek(const pk_rows_t *rows, int operands, pk_u64 position, pk_cursor_t *at) {
  pk_u32 left = (pk_u32)position;
  for (int k = 0; k < operands; k++) at->offset[k] = 0;
  PK_UNROLLED for (int d = 0; d < PK_MAXD; d++) {
    if (d < rows->ndim) {
      const pk_u32 next = d + 1 < rows->ndim ? left / (pk_u32)rows->size[d] : 0;
      const pk_i32 index = (pk_i32)(left - next * (pk_u32)rows->size[d]);
      for (int k = 0; k < operands; k++) at->offset[k] += index * (pk_i32)rows->stride[k][d];
      left = next;
    }
  }
}

#define pk_cursor_span(rows, at, left) ((pk_u64)1)
#define pk_cursor_next_row(rows, operands, at) ((void)0)
#define pk_block_count(n, block) (n)
#define pk_block_size(n, block, i) ((pk_u64)1)
#define pk_block_start(block, i) (i)
#define PK_INNER(rows, k) 1 /* any value: there is no next element */
#endif

#endif /* PK_ROWS_H_ */
