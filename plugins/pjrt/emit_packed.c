/* emit_packed.c: products with weights of 4 or 8 bits. args: self (m x k); weights, n rows of k: int8, or words of
 * int32 with 8 weights each; scales; zeros; group. Scales and zeros are [k / group][n]; without zeros, those of 4 bits
 * are pairs of scale and zero. */
#include "emit.h"

#define BINARY(op, a, b) emit_binary(e, "stablehlo." op, a, b)

/* Returns the weights of words, [n, words, 8]. In pairs of scale and zero, the first of two weights is in the high bits
 * of a byte, else in the low bits. */
static value_t unpack(emit_t *e, value_t words, int64_t n, int high_first) {
  int64_t count = 1;
  for (int d = 0; d < words.rank; d++) count *= words.sizes[d];
  const int64_t flat[] = {n, count / n}, sizes[] = {n, count / n, 8};
  const value_t spread = emit_broadcast(e, emit_reshape(e, words, 2, flat), (int64_t[]){0, 1}, 3, sizes);
  value_t place = emit_iota(e, PJRT_S32, 3, sizes, 2);
  if (high_first) place = BINARY("xor", place, emit_fill(e, 1, place));
  const value_t shift = BINARY("multiply", place, emit_fill(e, 4, place));
  return BINARY("and", BINARY("shift_right_logical", spread, shift), emit_fill(e, 15, spread));
}

/* Returns one of the numbers of each group, [groups, n], as [n, groups, group]: number `which` of `stride`. */
static value_t numbers_of(emit_t *e, value_t numbers, int64_t which, int64_t stride, value_t shape) {
  const int64_t all[] = {shape.sizes[1], shape.sizes[0], stride}, from[] = {0, 0, which};
  const int64_t to[] = {shape.sizes[1], shape.sizes[0], which + 1};
  const value_t one = emit_slice(e, emit_reshape(e, numbers, 3, all), from, to);
  return emit_broadcast(e, emit_reshape(e, one, 2, all), (int64_t[]){1, 0}, 3, shape.sizes);
}

void emit_op_packed_mm(emit_t *e) {
  const value_t input = emit_read(e, 0), a = emit_convert(e, input, emit_compute_type(input.type));
  value_t w = emit_read(e, 1);
  const value_t scales = emit_read_as(e, 2, a.type), result = emit_result_shape(e, 0);
  const int64_t n = result.sizes[1], k = a.sizes[1], group = emit_int(e, 4, k);
  const int words = w.type == PJRT_S32, zeros = emit_has(e, 3), pairs = words && !zeros;
  const int64_t sizes[] = {n, k / group, group};
  if (words) w = unpack(e, w, n, pairs);
  w = emit_convert(e, emit_reshape(e, w, 3, sizes), a.type);
  if (pairs) w = BINARY("subtract", w, emit_fill(e, 8, w));
  if (words && zeros) w = BINARY("subtract", w, numbers_of(e, emit_read_as(e, 3, a.type), 0, 1, w));
  w = BINARY("multiply", w, numbers_of(e, scales, 0, pairs ? 2 : 1, w));
  if (pairs) w = BINARY("add", w, numbers_of(e, scales, 1, 2, w));
  emit_write(e, 0, emit_multiply(e, a, emit_reshape(e, w, 2, (int64_t[]){n, k}), 1));
}

int emit_takes_packed(const hal_op_call_t *call) {
  return call->arg_count > 4 && call->args[4].tag == HAL_VALUE_INT && call->args[4].u.i > 0;
}
