/* emit_random.c: random numbers. Their words are those of the portable kernels (hal/ops/random/random.pk): Philox with
 * the call's seed and offset. A number takes one word of 32 bits, or two for dtypes of 64 bits. */
#include "emit.h"

#define ADD(a, b) emit_binary(e, "stablehlo.add", a, b)
#define SUB(a, b) emit_binary(e, "stablehlo.subtract", a, b)
#define MUL(a, b) emit_binary(e, "stablehlo.multiply", a, b)
#define DIV(a, b) emit_binary(e, "stablehlo.divide", a, b)
#define FILL(number, like) emit_fill(e, number, like)

/* ---- words ------------------------------------------------------------------------------------------------------- */

value_t emit_philox(emit_t *e, int64_t count) {
  const int64_t one = 1, all = (count + 3) / 4 * 4, from = 0;
  const value_t parts[] = {emit_reshape(e, emit_random(e, EMIT_SEED), 1, &one),
                           emit_reshape(e, emit_random(e, EMIT_OFFSET), 1, &one),
                           emit_reshape(e, emit_constant(e, PJRT_U64, 0), 1, &one)};
  const value_t state = emit_concatenate(e, parts, 3, 0), words = emit_fresh(e, PJRT_U32, 1, &all);
  emit_put(e, "    %s_state, %s = stablehlo.rng_bit_generator %s, algorithm = PHILOX : (%s) -> (%s, %s)\n",
           emit_name(words).s, emit_name(words).s, emit_name(state).s, emit_type(state).s, emit_type(state).s,
           emit_type(words).s);
  return emit_slice(e, words, &from, &count);
}

static int64_t count_of(value_t shape) {
  int64_t count = 1;
  for (int d = 0; d < shape.rank; d++) count *= shape.sizes[d];
  return count;
}

static value_t shift_right(emit_t *e, value_t a, int bits) {
  return emit_binary(e, "stablehlo.shift_right_logical", a, FILL(bits, a));
}

/* Returns column `number` of a matrix. */
static value_t column(emit_t *e, value_t a, int64_t number) {
  const int64_t from[] = {0, number}, to[] = {a.sizes[0], number + 1};
  return emit_reshape(e, emit_slice(e, a, from, to), 1, a.sizes);
}

/* Joins two words to one of 64 bits. */
static value_t join(emit_t *e, value_t low, value_t high) {
  high = emit_convert(e, high, PJRT_U64);
  high = emit_binary(e, "stablehlo.shift_left", high, FILL(32, high));
  return emit_binary(e, "stablehlo.or", high, emit_convert(e, low, PJRT_U64));
}

/* Returns `count` words of 64 bits. */
static value_t wide_words(emit_t *e, int64_t count) {
  const value_t pairs = emit_reshape(e, emit_philox(e, 2 * count), 2, (int64_t[]){count, 2});
  return join(e, column(e, pairs, 0), column(e, pairs, 1));
}

static int is_wide(int32_t type) { return emit_bytes(type) == 8; }

/* Returns a number for each element of a result, in units of 2^-24, for 64-bit dtypes of 2^-53. */
static value_t random_bits(emit_t *e, value_t shape) {
  const int64_t count = count_of(shape);
  return is_wide(shape.type) ? shift_right(e, wide_words(e, count), 11) : shift_right(e, emit_philox(e, count), 8);
}

/* Returns a number (word + 1) 2^-32, in 64-bit types of 53 bits, above 0 and at most 1, in double precision. */
static value_t above_zero(emit_t *e, value_t words, int wide) {
  const value_t bits = wide ? shift_right(e, words, 11) : emit_convert(e, words, PJRT_U64);
  const value_t number = emit_convert(e, ADD(bits, FILL(1, bits)), PJRT_F64);
  return MUL(number, FILL(wide ? 0x1p-53 : 0x1p-32, number));
}

/* Returns the angle of a word on the whole circle. */
static value_t angle(emit_t *e, value_t words, int wide) {
  const value_t number = emit_convert(e, wide ? shift_right(e, words, 11) : words, PJRT_F64);
  return MUL(number, FILL((wide ? 0x1p-53 : 0x1p-32) * 6.283185307179586476925, number));
}

static value_t words_of(emit_t *e, value_t shape) {
  const int64_t count = count_of(shape);
  return is_wide(shape.type) ? wide_words(e, count) : emit_philox(e, count);
}

/* ---- distributions ----------------------------------------------------------------------------------------------- */

/* Returns whether a number in such units is below a probability. */
static value_t below(emit_t *e, value_t bits, value_t probability) {
  const value_t units = MUL(probability, emit_constant(e, PJRT_F64, is_wide(bits.type) ? 0x1p53 : 0x1p24));
  const value_t limit = emit_convert(e, emit_unary(e, "stablehlo.ceil", units), bits.type);
  return emit_compare(e, "LT", bits, emit_like(e, limit, bits));
}

void emit_op_bernoulli(emit_t *e) {
  const value_t bits = random_bits(e, emit_result_shape(e, 0));
  emit_write(e, 0, below(e, bits, emit_number(e, 0, PJRT_F64)));
}

/* Half precision uses as many bits as it has. A barrier keeps the product from being fused with the sum, so that
 * numbers are those of every other device. */
void emit_op_uniform(emit_t *e) {
  const value_t shape = emit_result_shape(e, 0);
  const int32_t type = emit_compute_type(shape.type);
  const int bits = shape.type == PJRT_F16 ? 11 : shape.type == PJRT_BF16 ? 8 : is_wide(shape.type) ? 53 : 24;
  value_t words = words_of(e, shape);
  words = emit_convert(e, shift_right(e, words, (is_wide(shape.type) ? 64 : 32) - bits), type);
  const value_t low = emit_number(e, 0, PJRT_F64), high = emit_number(e, 1, PJRT_F64);
  const value_t span = emit_like(e, emit_convert(e, SUB(high, low), type), words);
  const value_t first = emit_like(e, emit_convert(e, low, type), words);
  const value_t last = emit_like(e, emit_convert(e, high, type), words);
  const value_t part = MUL(words, FILL(1.0 / (double)(INT64_C(1) << bits), words));
  const value_t product = emit_unary(e, "stablehlo.optimization_barrier", MUL(span, part));
  const value_t number = emit_convert(e, emit_convert(e, ADD(first, product), shape.type), type);
  emit_write(e, 0, emit_select(e, emit_compare(e, "GE", number, last), first, number));
}

/* out = mask ? input / (1 - p) : 0; the mask is a Bernoulli number in units of 2^-24, whatever the dtype. */
void emit_op_dropout(emit_t *e) {
  const value_t input = emit_read(e, 0), a = emit_convert(e, input, emit_compute_type(input.type));
  const value_t p = emit_number(e, 1, PJRT_F64), q = SUB(emit_constant(e, PJRT_F64, 1), p);
  const value_t zero = emit_constant(e, PJRT_F64, 0), bits = shift_right(e, emit_philox(e, count_of(a)), 8);
  const value_t mask = emit_reshape(e, below(e, bits, q), a.rank, a.sizes);
  const value_t none = emit_compare(e, "EQ", q, zero);
  const value_t factor = emit_select(e, none, zero, DIV(emit_constant(e, PJRT_F64, 1), q));
  const value_t scale = emit_like(e, emit_convert(e, factor, a.type), a);
  emit_write(e, 0, MUL(a, emit_select(e, mask, scale, FILL(0, a))));
  emit_write(e, 1, mask);
}

/* Box-Muller on the pairs of words of a block, in double precision and rounded once. */
static value_t normal_numbers(emit_t *e, value_t shape) {
  const int wide = is_wide(shape.type);
  const int64_t count = count_of(shape), all = (count + 1) / 2 * 2, pairs[] = {all / 2, 2}, first = 0;
  const value_t words = emit_reshape(e, wide ? wide_words(e, all) : emit_philox(e, all), 2, pairs);
  const value_t turn = angle(e, column(e, words, 1), wide);
  const value_t log = emit_unary(e, "stablehlo.log", above_zero(e, column(e, words, 0), wide));
  const value_t radius = emit_unary(e, "stablehlo.sqrt", MUL(log, FILL(-2, log)));
  const value_t x = MUL(radius, emit_unary(e, "stablehlo.cosine", turn));
  const value_t y = MUL(radius, emit_unary(e, "stablehlo.sine", turn));
  const int64_t one[] = {all / 2, 1};
  const value_t both[] = {emit_reshape(e, x, 2, one), emit_reshape(e, y, 2, one)};
  const value_t flat = emit_slice(e, emit_reshape(e, emit_concatenate(e, both, 2, 1), 1, &all), &first, &count);
  const value_t mean = emit_like(e, emit_number(e, 0, PJRT_F64), flat);
  return ADD(mean, MUL(emit_like(e, emit_number(e, 1, PJRT_F64), flat), flat));
}

void emit_op_normal(emit_t *e) { emit_write(e, 0, normal_numbers(e, emit_result_shape(e, 0))); }
void emit_op_log_normal(emit_t *e) {
  emit_write(e, 0, emit_unary(e, "stablehlo.exponential", normal_numbers(e, emit_result_shape(e, 0))));
}

/* Returns exponential numbers of rate 1; never 0. */
static value_t exponential_numbers(emit_t *e, value_t shape) {
  const int wide = is_wide(shape.type);
  const value_t log = emit_unary(e, "stablehlo.log", above_zero(e, words_of(e, shape), wide));
  const value_t number = emit_unary(e, "stablehlo.negate", log);
  return emit_binary(e, "stablehlo.maximum", number, FILL(wide ? 0x1p-54 : 0x1p-33, number));
}

/* lambd: a number that rounds to 0 becomes the smallest one, unless the rate is infinite. */
void emit_op_exponential(emit_t *e) {
  const value_t shape = emit_result_shape(e, 0);
  const double least = shape.type == PJRT_F16 ? 0x1p-24 : is_wide(shape.type) ? 0x1p-1022 : 0x1p-126;
  const value_t rate = emit_number(e, 0, PJRT_F64), numbers = exponential_numbers(e, shape);
  const value_t mean = emit_like(e, DIV(emit_constant(e, PJRT_F64, 1), rate), numbers);
  const value_t number = MUL(mean, numbers);
  const value_t rounded = emit_convert(e, emit_convert(e, number, shape.type), PJRT_F64), zero = FILL(0, number);
  const value_t vanished =
      emit_binary(e, "stablehlo.and", emit_compare(e, "EQ", rounded, zero), emit_compare(e, "GT", mean, zero));
  emit_write(e, 0, emit_select(e, vanished, FILL(least, number), number));
}

/* p: the exponential number of a failure's rate, rounded up; computed in float32 for narrower dtypes, as the kernel. */
void emit_op_geometric(emit_t *e) {
  const value_t shape = emit_result_shape(e, 0);
  const value_t p = emit_number(e, 0, PJRT_F64);
  const value_t rate = emit_unary(e, "stablehlo.log_plus_one", emit_unary(e, "stablehlo.negate", p));
  const int32_t type = emit_compute_type(shape.type);
  const value_t numbers = emit_convert(e, exponential_numbers(e, shape), type);
  const value_t factor = emit_convert(e, DIV(emit_constant(e, PJRT_F64, -1), rate), type);
  const value_t number = emit_unary(e, "stablehlo.ceil", MUL(emit_like(e, factor, numbers), numbers));
  emit_write(e, 0, emit_binary(e, "stablehlo.maximum", number, FILL(1, number)));
}

/* median, sigma: the tangent of an angle on the whole circle; never infinite. */
void emit_op_cauchy(emit_t *e) {
  const value_t shape = emit_result_shape(e, 0);
  const int wide = is_wide(shape.type);
  const value_t turn = angle(e, words_of(e, shape), wide), y = emit_unary(e, "stablehlo.sine", turn);
  value_t x = emit_unary(e, "stablehlo.cosine", turn);
  const value_t least = FILL(wide ? 0x1p-54 : 0x1p-33, x);
  x = emit_select(e, emit_compare(e, "GT", emit_unary(e, "stablehlo.abs", x), least), x, least);
  const value_t slope = MUL(emit_like(e, emit_number(e, 1, PJRT_F64), x), DIV(y, x));
  emit_write(e, 0, ADD(emit_like(e, emit_number(e, 0, PJRT_F64), slope), slope));
}

/* Returns the floor of n * range / 2^64 for ranges of at most 2^32 (`pk_random_below`). */
static value_t scaled_below(emit_t *e, value_t low, value_t high, value_t range) {
  const value_t carry = shift_right(e, MUL(emit_convert(e, low, PJRT_U64), range), 32);
  return shift_right(e, ADD(MUL(emit_convert(e, high, PJRT_U64), range), carry), 32);
}

/* from, range: 0 stands for 2^64. */
void emit_op_integers(emit_t *e) {
  const int64_t count = count_of(emit_result_shape(e, 0));
  const value_t pairs = emit_reshape(e, emit_philox(e, 2 * count), 2, (int64_t[]){count, 2});
  const value_t low = column(e, pairs, 0), high = column(e, pairs, 1), number = join(e, low, high);
  const value_t range = emit_like(e, emit_bits(e, emit_number(e, 1, PJRT_S64), PJRT_U64), number);
  const value_t zero = FILL(0, range), unlimited = emit_compare(e, "EQ", range, zero);
  const value_t divisor = emit_select(e, unlimited, FILL(1, range), range);
  const value_t large = emit_compare(e, "NE", shift_right(e, range, 32), zero);
  const value_t small = scaled_below(e, low, high, range);
  value_t v = emit_select(e, large, emit_binary(e, "stablehlo.remainder", number, divisor), small);
  v = emit_bits(e, emit_select(e, unlimited, number, v), PJRT_S64);
  emit_write(e, 0, ADD(emit_like(e, emit_number(e, 0, PJRT_S64), v), v));
}

/* ---- permutations ------------------------------------------------------------------------------------------------ */

enum { FEW = 4096 }; /* elements that the kernel shuffles one by one */

/* Fisher-Yates: for j = n - 1 .. 1, elements j and k[j] are exchanged. */
static value_t shuffle(emit_t *e, int64_t n) {
  const value_t blocks = emit_reshape(e, emit_philox(e, 4 * n), 2, (int64_t[]){n, 4});
  const value_t place = emit_iota(e, PJRT_U64, 1, &n, 0), range = ADD(place, FILL(1, place));
  const value_t k = emit_bits(e, scaled_below(e, column(e, blocks, 0), column(e, blocks, 1), range), PJRT_S64);
  const value_t start = emit_iota(e, PJRT_S64, 1, &n, 0), last = emit_constant(e, PJRT_S64, (double)(n - 1));
  const value_t v = emit_fresh(e, PJRT_S64, 1, &n);
  const long long count = (long long)n;
  emit_put(e,
           "    %s_j, %s, %s_k = \"stablehlo.while\"(%s, %s, %s) ({\n"
           "    ^bb0(%%j: tensor<i64>, %%out: tensor<%lldxi64>, %%k: tensor<%lldxi64>):\n"
           "      %%zero = stablehlo.constant dense<0> : tensor<i64>\n"
           "      %%more = stablehlo.compare GT, %%j, %%zero : (tensor<i64>, tensor<i64>) -> tensor<i1>\n"
           "      stablehlo.return %%more : tensor<i1>\n    }, {\n"
           "    ^bb0(%%j: tensor<i64>, %%out: tensor<%lldxi64>, %%k: tensor<%lldxi64>):\n",
           emit_name(v).s, emit_name(v).s, emit_name(v).s, emit_name(last).s, emit_name(start).s, emit_name(k).s, count,
           count, count, count);
  emit_put(e,
           "      %%one = stablehlo.constant dense<1> : tensor<i64>\n"
           "      %%chosen = stablehlo.dynamic_slice %%k, %%j, sizes = [1] : (tensor<%lldxi64>, tensor<i64>) -> "
           "tensor<1xi64>\n"
           "      %%i = stablehlo.reshape %%chosen : (tensor<1xi64>) -> tensor<i64>\n"
           "      %%a = stablehlo.dynamic_slice %%out, %%j, sizes = [1] : (tensor<%lldxi64>, tensor<i64>) -> "
           "tensor<1xi64>\n"
           "      %%b = stablehlo.dynamic_slice %%out, %%i, sizes = [1] : (tensor<%lldxi64>, tensor<i64>) -> "
           "tensor<1xi64>\n",
           count, count, count);
  emit_put(e,
           "      %%first = stablehlo.dynamic_update_slice %%out, %%b, %%j : (tensor<%lldxi64>, tensor<1xi64>, "
           "tensor<i64>) -> tensor<%lldxi64>\n"
           "      %%second = stablehlo.dynamic_update_slice %%first, %%a, %%i : (tensor<%lldxi64>, tensor<1xi64>, "
           "tensor<i64>) -> tensor<%lldxi64>\n"
           "      %%next = stablehlo.subtract %%j, %%one : tensor<i64>\n"
           "      stablehlo.return %%next, %%second, %%k : tensor<i64>, tensor<%lldxi64>, tensor<%lldxi64>\n    }) : "
           "(tensor<i64>, %s, %s) -> (tensor<i64>, %s, %s)\n",
           count, count, count, count, count, count, emit_type(v).s, emit_type(v).s, emit_type(v).s, emit_type(v).s);
  return v;
}

void emit_op_randperm(emit_t *e) { emit_write(e, 0, shuffle(e, emit_result_shape(e, 0).sizes[0])); }

int emit_takes_randperm(const hal_op_call_t *call) { /* the kernel permutes more elements by other means */
  return call->results[0]->ndim == 1 && call->results[0]->sizes[0] <= FEW;
}
int emit_takes_float(const hal_op_call_t *call) { return emit_is_float(emit_type_of(call->results[0]->dtype)); }
