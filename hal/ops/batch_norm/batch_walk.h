/* batch_walk.h: the iteration of batch normalization over a tensor (batch, channels, positions) whose memory is
 * [outer][channels][inner]: the batch is outer and the positions are inner or, for channels-last tensors, both are
 * outer and inner = 1. For its kernels and its launchers.
 *
 * planes: a channel has outer * runs runs of up to `run` contiguous elements; a chunk is `chunk` of them. columns: for
 * a small `inner`. Memory is a matrix of rows, each `group` times (channels, inner). A chunk is `chunk` rows, and each
 * column has separate partial results, so that a channel has group * inner of them in each chunk. */
#ifndef BATCH_WALK_H_
#define BATCH_WALK_H_

#include "kernels/pk_types.h"

typedef struct {
  pk_i64 outer, channels, inner;
  pk_i64 run, runs;     /* planes: elements of a run, runs of inner elements; columns: 1, 1 */
  pk_i64 group, spread; /* columns: see above, and inner; planes: 1, 1 */
  pk_i64 chunk, chunks; /* runs or rows of a chunk, chunks of a channel */
} pk_batch_t;

/* Returns the number of elements of a partial result of chunk k; a chunk is one run if a plane has several. */
PK_FN pk_i64 pk_batch_count(const pk_batch_t *b, pk_i64 k) {
  if (b->runs > 1) return k % b->runs == b->runs - 1 ? b->inner - (b->runs - 1) * b->run : b->run;
  const pk_i64 rest = b->outer / b->group - k * b->chunk;
  return (rest < b->chunk ? rest : b->chunk) * b->run;
}

/* Returns the number of columns of a row. */
PK_FN pk_i64 pk_batch_columns(const pk_batch_t *b) { return b->group * b->channels * b->spread; }

/* x / y for 0 <= x < 128 and 0 < y < 128, in a form that is vectorized: the error of the float quotient is less than
 * its distance from an integer. */
PK_FN pk_i32 pk_batch_quotient(pk_i32 x, pk_i32 y) { return (pk_i32)(((float)x + 0.5f) / (float)y); }

/* Returns the channel of column first + l, l below PK_LSIZE. A row of several groups has at most PK_LSIZE columns. */
PK_FN pk_i64 pk_batch_channel(const pk_batch_t *b, pk_i64 first, pk_i32 l) {
  const pk_i64 place = first / b->spread;
  const pk_i32 further = pk_batch_quotient((pk_i32)(first - place * b->spread) + l, (pk_i32)b->spread);
  if (b->group == 1) return place + further;
  return further - pk_batch_quotient(further, (pk_i32)b->channels) * (pk_i32)b->channels;
}

#endif /* BATCH_WALK_H_ */
