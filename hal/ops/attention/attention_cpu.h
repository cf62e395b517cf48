/* attention_cpu.h: the forward of attention.pk in the dialect's form for devices with few wide cores. An item takes a unit of queries. Of each
 * block of PK_LSIZE keys it turns the keys around and copies the values, in the computing type, so that scores are vectors along keys and
 * results vectors along the columns of the values; the queries of the unit share both. */
typedef PK_CAT(pk_vector_, PK_TOKEN) PK_NAME(v);
#define PK_WIDTH 16 /* elements of a vector */

/* Copies a block of keys, turned around: element d of key j to keys[d * PK_LSIZE + j], and of values; what is not there is 0. */
PK_FN void PK_NAME(load)(const pk_attention_t *s, PK_GLOBAL const E *k, PK_GLOBAL const E *v, pk_i64 count, T *keys,
                         T *values, pk_i64 columns) {
  for (pk_i64 j = 0; j < PK_LSIZE; j++) {
    for (pk_i64 d = 0; d < s->size; d++) keys[d * PK_LSIZE + j] = j < count ? PK_GET(k[j * s->key[2] + d]) : PK_C(0.0);
    for (pk_i64 d = 0; d < columns; d++)
      values[j * columns + d] = j < count && d < s->value_size ? PK_GET(v[j * s->value[2] + d]) : PK_C(0.0);
  }
}

/* Scores of query i, whose row is q, with a block of keys from k0 on: scaled, with the bias, -inf where a key is not seen. Gives the
 * largest, at least `top`. */
PK_FN T PK_NAME(scores)(const pk_attention_t *s, PK_GLOBAL const E *q, PK_GLOBAL const E *b, const T *keys, T scale,
                        pk_i64 i, pk_i64 k0, pk_i64 count, T top, T *x) {
  PK_NAME(v) x0 = 0, x1 = 0, x2 = 0, x3 = 0;
  for (pk_i64 d = 0; d < s->size; d++) {
    const T y = PK_GET(q[d]);
    const T *const p = keys + d * PK_LSIZE;
    x0 += y * vload16(0, p);
    x1 += y * vload16(1, p);
    x2 += y * vload16(2, p);
    x3 += y * vload16(3, p);
  }
  vstore16(x0 * scale, 0, x);
  vstore16(x1 * scale, 1, x);
  vstore16(x2 * scale, 2, x);
  vstore16(x3 * scale, 3, x);
  for (pk_i64 j = 0; j < count && s->with_bias; j++) x[j] += PK_GET(b[i * s->bias[2] + (k0 + j) * s->bias[3]]);
  const pk_i64 seen = s->causal && i + 1 - k0 < count ? (i + 1 > k0 ? i + 1 - k0 : 0) : count;
  for (pk_i64 j = seen; j < PK_LSIZE; j++) x[j] = -PK_INFINITY;
  for (pk_i64 j = 0; j < seen; j++) top = x[j] > top ? x[j] : top;
  return top;
}

/* x = exp(x - shift); gives the sum. */
PK_FN T PK_NAME(weights)(T *x, T shift) {
  PK_NAME(v) sum = 0;
  for (int e = 0; e < PK_LSIZE / PK_WIDTH; e++) {
    const PK_NAME(v) y = exp(vload16(e, x) - shift);
    vstore16(y, e, x);
    sum += y;
  }
  T parts[PK_WIDTH], total = PK_C(0.0);
  vstore16(sum, 0, parts);
  for (int e = 0; e < PK_WIDTH; e++) total += parts[e];
  return total;
}

/* sums = sums * decay + x @ values, of `columns`, a multiple of PK_WIDTH. */
PK_FN void PK_NAME(gather)(const T *x, const T *values, pk_i64 columns, T decay, T *sums) {
  for (pk_i64 d = 0; d < columns; d += PK_WIDTH) {
    PK_NAME(v) y = vload16(0, sums + d) * decay;
    for (pk_i64 j = 0; j < PK_LSIZE; j++) y += x[j] * vload16(0, values + j * columns + d);
    vstore16(y, 0, sums + d);
  }
}

PK_KERNEL(PK_NAME(forward), ATTENTION_FORWARD_ARGS) {
  PK_LOCAL_ARRAY(T, keys, PK_HEAD_SIZE * PK_LSIZE);
  PK_LOCAL_ARRAY(T, values, PK_HEAD_SIZE * PK_LSIZE);
  PK_LOCAL_ARRAY(T, sums, PK_ATTENTION_QUERIES * PK_HEAD_SIZE);
  PK_LOCAL_ARRAY(T, x, PK_LSIZE);
  PK_LOCAL_ARRAY(T, top, PK_ATTENTION_QUERIES);
  PK_LOCAL_ARRAY(T, sum, PK_ATTENTION_QUERIES);
  const pk_i64 blocks = (s.queries + s.block - 1) / s.block;
  const pk_i64 columns = (s.value_size + PK_WIDTH - 1) / PK_WIDTH * PK_WIDTH;
  PK_GROUP(g) {
    const pk_u64 last = (g + 1) * per_group < units ? (g + 1) * per_group : units;
    for (pk_u64 u = g * per_group; u < last; u++) {
      const pk_i64 row = (pk_i64)u / blocks, begin = ((pk_i64)u - row * blocks) * s.block;
      const pk_i64 end = s.queries - begin < s.block ? s.queries : begin + s.block;
      const pk_i64 batch = row / s.heads, head = row - batch * s.heads, kv_head = head / s.shared;
      PK_GLOBAL const E *q = query + batch * s.query[0] + head * s.query[1],
                        *b = bias + batch * s.bias[0] + head * s.bias[1];
      PK_GLOBAL const E *k = key + batch * s.key[0] + kv_head * s.key[1],
                        *v = value + batch * s.value[0] + kv_head * s.value[1];
      PK_GLOBAL E *r = result + batch * s.result[0] + head * s.result[1];
      const pk_i64 limit = pk_attention_limit(&s, end);
      for (pk_i64 i = 0; i < end - begin; i++) top[i] = -PK_INFINITY, sum[i] = PK_C(0.0);
      for (pk_i64 e = 0; e < (end - begin) * columns; e++) sums[e] = PK_C(0.0);
      for (pk_i64 k0 = 0; k0 < limit; k0 += PK_LSIZE) {
        const pk_i64 count = limit - k0 < PK_LSIZE ? limit - k0 : PK_LSIZE;
        PK_NAME(load)(&s, k + k0 * s.key[2], v + k0 * s.value[2], count, keys, values, columns);
        for (pk_i64 i = 0; i < end - begin; i++) {
          const T peak =
              PK_NAME(scores)(&s, q + (begin + i) * s.query[2], b, keys, scale, begin + i, k0, count, top[i], x);
          const T shift = peak == -PK_INFINITY ? PK_C(0.0) : peak; /* nothing seen yet: exp(-inf - 0) = 0 */
          const T decay = pk_exp_wide(top[i] - shift);
          top[i] = peak;
          sum[i] = sum[i] * decay + PK_NAME(weights)(x, shift);
          PK_NAME(gather)(x, values, columns, decay, sums + i * columns);
        }
      }
      for (pk_i64 i = 0; i < end - begin; i++) {
        const int seen = sum[i] != PK_C(0.0);
        logarithms[row * s.queries + begin + i] = seen ? top[i] + pk_log(sum[i]) : -PK_INFINITY;
        for (pk_i64 d = 0; d < s.value_size; d++)
          r[(begin + i) * s.result[2] + d] = PK_PUT(seen ? sums[i * columns + d] / sum[i] : PK_C(0.0));
      }
    }
  }
}
#undef PK_WIDTH
