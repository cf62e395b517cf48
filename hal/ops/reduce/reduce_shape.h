/* reduce_shape.h: the sizes of a stage, as hal/ops/reduce/reduce.h fills them. Strides in elements. */
#ifndef PK_REDUCE_SHAPE_H_
#define PK_REDUCE_SHAPE_H_

#define PK_STRIP (4 * PK_LSIZE)

typedef struct {
  pk_i64 n, stride, b_stride;              /* the reduced dimension */
  pk_i64 chunk, chunks;                    /* its parts */
  pk_i64 columns, result_column, c_column; /* the kept dimension of cols */
  pk_i64 divisor;                          /* number of elements reduced; -1 = the result is not finished */
  pk_i32 final;                            /* write results, not accumulators */
  pk_i32 with_c;                           /* c is there; else it counts as 0 */
} pk_reduce_t;

#endif /* PK_REDUCE_SHAPE_H_ */
