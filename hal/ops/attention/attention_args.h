/* attention_args.h: the arguments of this folder's kernels, for the kernels and for their launchers
 * (kernels/pk_args.h). */
#ifndef ATTENTION_ARGS_H_
#define ATTENTION_ARGS_H_

#include "kernels/pk_tiles.h"

#define PK_HEAD_SIZE 256        /* maximum number of elements of a head of key or value */
#define PK_ATTENTION_QUERIES 32 /* maximum number of queries of a block of attention_vector.h */
#define PK_GRAD_QUERY 1
#define PK_GRAD_KEY 2
#define PK_GRAD_VALUE 4

/* Sizes, and strides in elements of batch, head and row; of the bias also of the key. */
typedef struct {
  pk_i64 heads, kv_heads, shared, queries, keys, size, value_size, block;
  pk_i64 query[3], key[3], value[3], result[3], bias[4];
  pk_i64 grad[3], grad_query[3], grad_key[3], grad_value[3];
  pk_i64 part, parts, part_stride;
  pk_i32 with_bias, causal, wanted, pad;
} pk_attention_t;

#define ATTENTION_FORWARD_ARGS(X)                                                                            \
  X(OUT, E, result), X(OUT, T, logarithms), X(IN, E, query), X(IN, E, key), X(IN, E, value), X(IN, E, bias), \
      X(STRUCT, pk_attention_t, s), X(NUMBER, T, scale), X(VALUE, pk_u64, units), X(VALUE, pk_u64, per_group)

#define ATTENTION_NORMALIZERS_ARGS(X)                                                           \
  X(OUT, T, normalizers), X(IN, E, query), X(IN, E, key), X(IN, E, bias), X(IN, T, logarithms), \
      X(STRUCT, pk_attention_t, s), X(NUMBER, T, scale), X(VALUE, pk_u64, units), X(VALUE, pk_u64, per_group)

#define ATTENTION_BACKWARD_ARGS(X)                                                                                   \
  X(OUT, E, grad_query), X(OUT, E, grad_key), X(OUT, E, grad_value), X(IN, E, grad), X(IN, E, query), X(IN, E, key), \
      X(IN, E, value), X(IN, E, bias), X(IN, E, result), X(IN, T, logarithms), X(IN, T, normalizers),                \
      X(STRUCT, pk_attention_t, s), X(NUMBER, T, scale), X(VALUE, pk_u64, units), X(VALUE, pk_u64, per_group)

#endif /* ATTENTION_ARGS_H_ */
