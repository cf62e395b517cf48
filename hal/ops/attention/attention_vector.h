/* attention_vector.h: attention.pk in the dialect's form for devices with few wide cores: an item computes a unit of
 * work, with products of kernels/pk_tile_vector.h over copies of blocks in its own memory. The contents of a block
 * after its last row or lane do not affect results.
 *
 * forward: scores are transposed, with a row of queries for each key, so that softmax executes the same steps in all
 * lanes of a vector; only the query is transposed, once for all keys. backward: the keys of a block are transposed once
 * for all queries, and the item keeps their gradients until all queries are done. */
#include "kernels/pk_tile_vector.h"

#define PK_KEYS 64 /* of a block */
#define PK_VECTORS (PK_ATTENTION_QUERIES / PK_CPU_N)
#define PK_KEY_VECTORS (PK_KEYS / PK_CPU_N)
/* Numbers as vectors, so that they are aligned to cache lines. */
#define PK_LINES(name, n) PK_LOCAL_ARRAY(PK_NAME(v), name, (n) / PK_CPU_N)

PK_FN pk_i64 PK_NAME(columns_of)(pk_i64 size) { return (size + PK_CPU_N - 1) / PK_CPU_N * PK_CPU_N; }

/* Adds the bias to the scores of `count` keys, rows of PK_ATTENTION_QUERIES, for `width` queries, and masks later
 * keys. */
PK_FN void PK_NAME(offset_scores)(const pk_attention_t *s, PK_GLOBAL const E *b, pk_i64 q0, pk_i64 width, pk_i64 k0,
                                  pk_i64 count, T *scores) {
  if (s->with_bias)
    for (pk_i64 i = 0; i < width; i++)
      for (pk_i64 j = 0; j < count; j++)
        scores[j * PK_ATTENTION_QUERIES + i] += PK_GET(b[(q0 + i) * s->bias[2] + (k0 + j) * s->bias[3]]);
  if (s->causal)
    for (pk_i64 j = 0; j < count; j++)
      for (pk_i64 i = 0; i < width && i < k0 + j - q0; i++) scores[j * PK_ATTENTION_QUERIES + i] = -PK_INFINITY;
}

/* Computes the exponentials of a block's scores, with a vector of queries `step` vectors apart. `top` and `sum` are the
 * largest score and the sum of the exponentials so far; returns the factor for the sums of earlier blocks. */
PK_FN PK_NAME(v)
    PK_NAME(exponentials)(pk_i64 count, PK_NAME(v) * scores, pk_i64 step, PK_NAME(v) * top, PK_NAME(v) * sum) {
  PK_NAME(v) peak = *top;
  for (pk_i64 j = 0; j < count; j++) peak = scores[j * step] > peak ? scores[j * step] : peak;
  const PK_NAME(v) shift = peak == -PK_INFINITY ? (PK_NAME(v))0 : peak; /* no key yet: exp(-inf - 0) = 0 */
  const PK_NAME(v) decay = pk_exp_vector(*top - shift);
  PK_NAME(v) total = *sum * decay;
  for (pk_i64 j = 0; j < count; j++) {
    const PK_NAME(v) x = pk_exp_vector(scores[j * step] - shift);
    scores[j * step] = x;
    total += x;
  }
  *top = peak, *sum = total;
  return decay;
}

/* sums[i] *= decay[i], of `columns` each. */
PK_FN void PK_NAME(scale_rows)(pk_i64 count, const T *decay, pk_i64 columns, T *sums) {
  for (pk_i64 i = 0; i < count; i++, sums += columns)
    for (pk_i64 d = 0; d < columns; d += PK_CPU_N) vstore16(vload16(0, sums + d) * decay[i], 0, sums + d);
}

PK_KERNEL(PK_NAME(forward), ATTENTION_FORWARD_ARGS) {
  PK_LINES(queries, PK_HEAD_SIZE * PK_ATTENTION_QUERIES);
  PK_LINES(rows, PK_KEYS * PK_HEAD_SIZE);
  PK_LINES(scores, PK_KEYS * PK_ATTENTION_QUERIES);
  PK_LINES(sums, PK_ATTENTION_QUERIES * PK_HEAD_SIZE);
  PK_LINES(top, PK_ATTENTION_QUERIES);
  PK_LINES(sum, PK_ATTENTION_QUERIES);
  PK_LINES(decay, PK_ATTENTION_QUERIES);
  const pk_i64 blocks = (s.queries + s.block - 1) / s.block;
  const pk_i64 k_columns = PK_NAME(columns_of)(s.size), v_columns = PK_NAME(columns_of)(s.value_size);
  PK_GROUP(g) {
    const pk_u64 last = (g + 1) * per_group < units ? (g + 1) * per_group : units;
    for (pk_u64 u = g * per_group; u < last; u++) {
      const pk_i64 row = (pk_i64)u / blocks, q0 = ((pk_i64)u - row * blocks) * s.block;
      const pk_i64 batch = row / s.heads, head = row - batch * s.heads, kv_head = head / s.shared;
      const pk_i64 width = s.queries - q0 < s.block ? s.queries - q0 : s.block;
      const pk_i64 lanes = PK_NAME(columns_of)(width), limit = pk_attention_limit(&s, q0 + width);
      PK_GLOBAL const E *k = key + batch * s.key[0] + kv_head * s.key[1],
                        *v = value + batch * s.value[0] + kv_head * s.value[1];
      PK_NAME(fetch_columns)
      (query + batch * s.query[0] + head * s.query[1] + q0 * s.query[2], s.query[2], width, s.size, scale, (T *)queries,
       PK_ATTENTION_QUERIES);
      for (pk_i64 i = 0; i < PK_VECTORS; i++) top[i] = -PK_INFINITY, sum[i] = 0;
      for (pk_i64 i = 0; i < lanes * v_columns / PK_CPU_N; i++) sums[i] = 0;
      for (pk_i64 k0 = 0; k0 < limit; k0 += PK_KEYS) {
        const pk_i64 count = limit - k0 < PK_KEYS ? limit - k0 : PK_KEYS;
        PK_NAME(fetch_rows)(k + k0 * s.key[2], s.key[2], count, s.size, (T *)rows, k_columns);
        PK_NAME(multiply)
        ((count + PK_CPU_M - 1) / PK_CPU_M * PK_CPU_M, lanes, s.size, (T *)rows, k_columns, 1, (T *)queries,
         PK_ATTENTION_QUERIES, (T *)scores, PK_ATTENTION_QUERIES, 0);
        PK_NAME(offset_scores)
        (&s, bias + batch * s.bias[0] + head * s.bias[1], q0, width, k0, count, (T *)scores);
        for (pk_i64 i = 0; i < lanes / PK_CPU_N; i++)
          decay[i] = PK_NAME(exponentials)(count, scores + i, PK_VECTORS, top + i, sum + i);
        PK_NAME(fetch_rows)(v + k0 * s.value[2], s.value[2], count, s.value_size, (T *)rows, v_columns);
        if (k0 > 0) PK_NAME(scale_rows)(width, (T *)decay, v_columns, (T *)sums);
        PK_NAME(multiply)
        (lanes, v_columns, count, (T *)scores, 1, PK_ATTENTION_QUERIES, (T *)rows, v_columns, (T *)sums, v_columns, 1);
      }
      PK_GLOBAL E *r = result + batch * s.result[0] + head * s.result[1] + q0 * s.result[2];
      for (pk_i64 i = 0; i < width; i++) {
        const T x = ((T *)sum)[i];
        const int seen = x != PK_C(0.0); /* the largest score has the exponential 1; NaN counts as a key */
        logarithms[row * s.queries + q0 + i] = seen ? ((T *)top)[i] + pk_log(x) : -PK_INFINITY;
        for (pk_i64 d = 0; d < s.value_size; d++)
          r[i * s.result[2] + d] = PK_PUT(seen ? ((T *)sums)[i * v_columns + d] / x : PK_C(0.0));
      }
    }
  }
}

/* ---- gradients --------------------------------------------------------------------------------------------------- */

/* Computes normalizers from the sums of the exponentials of `width` rows with inaccurate logarithms. */
PK_FN void PK_NAME(put_normalizers)(pk_i64 width, PK_GLOBAL const T *saved, const T *sum, PK_GLOBAL T *to) {
  for (pk_i64 i = 0; i < width; i++)
    if (PK_NAME(is_coarse)(saved[i])) to[i] = PK_C(1.0) / sum[i];
}

PK_KERNEL(PK_NAME(normalizers), ATTENTION_NORMALIZERS_ARGS) {
  PK_LINES(queries, PK_HEAD_SIZE * PK_ATTENTION_QUERIES);
  PK_LINES(rows, PK_KEYS * PK_HEAD_SIZE);
  PK_LINES(scores, PK_KEYS * PK_ATTENTION_QUERIES);
  PK_LINES(shift, PK_ATTENTION_QUERIES);
  PK_LINES(sum, PK_ATTENTION_QUERIES);
  const pk_i64 blocks = (s.queries + s.block - 1) / s.block, k_columns = PK_NAME(columns_of)(s.size);
  PK_GROUP(g) {
    const pk_u64 last = (g + 1) * per_group < units ? (g + 1) * per_group : units;
    for (pk_u64 u = g * per_group; u < last; u++) {
      const pk_i64 row = (pk_i64)u / blocks, q0 = ((pk_i64)u - row * blocks) * s.block;
      const pk_i64 batch = row / s.heads, head = row - batch * s.heads, kv_head = head / s.shared;
      const pk_i64 width = s.queries - q0 < s.block ? s.queries - q0 : s.block;
      const pk_i64 lanes = PK_NAME(columns_of)(width);
      PK_GLOBAL const T *saved = logarithms + row * s.queries + q0;
      PK_GLOBAL T *to = normalizers + row * s.queries + q0;
      PK_GLOBAL const E *k = key + batch * s.key[0] + kv_head * s.key[1];
      int any = 0;
      for (pk_i64 i = 0; i < PK_VECTORS; i++) shift[i] = 0, sum[i] = 0;
      for (pk_i64 i = 0; i < width; i++) {
        ((T *)shift)[i] = saved[i], to[i] = PK_C(1.0);
        any |= PK_NAME(is_coarse)(saved[i]);
      }
      const pk_i64 limit = any ? pk_attention_limit(&s, q0 + width) : 0;
      PK_NAME(fetch_columns)
      (query + batch * s.query[0] + head * s.query[1] + q0 * s.query[2], s.query[2], any ? width : 0, s.size, scale,
       (T *)queries, PK_ATTENTION_QUERIES);
      for (pk_i64 k0 = 0; k0 < limit; k0 += PK_KEYS) {
        const pk_i64 count = limit - k0 < PK_KEYS ? limit - k0 : PK_KEYS;
        PK_NAME(fetch_rows)(k + k0 * s.key[2], s.key[2], count, s.size, (T *)rows, k_columns);
        PK_NAME(multiply)
        ((count + PK_CPU_M - 1) / PK_CPU_M * PK_CPU_M, lanes, s.size, (T *)rows, k_columns, 1, (T *)queries,
         PK_ATTENTION_QUERIES, (T *)scores, PK_ATTENTION_QUERIES, 0);
        PK_NAME(offset_scores)
        (&s, bias + batch * s.bias[0] + head * s.bias[1], q0, width, k0, count, (T *)scores);
        for (pk_i64 j = 0; j < count; j++)
          for (pk_i64 i = 0; i < lanes / PK_CPU_N; i++) sum[i] += pk_exp_vector(scores[j * PK_VECTORS + i] - shift[i]);
      }
      if (any) PK_NAME(put_normalizers)(width, saved, (T *)sum, to);
    }
  }
}

/* Computes the weights of a block from their scores, rows of PK_KEYS keys, and the slopes of the scores, scale * weight
 * * (slope of the weight - delta), from the slopes of the weights. */
PK_FN void PK_NAME(slopes_of)(const pk_attention_t *s, PK_GLOBAL const E *b, pk_i64 q0, pk_i64 width, pk_i64 k0,
                              pk_i64 count, const T *shift, const T *factors, const T *delta, T scale,
                              PK_NAME(v) * scores, PK_NAME(v) * slopes) {
  for (pk_i64 i = 0; i < width; i++, scores += PK_KEY_VECTORS, slopes += PK_KEY_VECTORS) {
    T *const x = (T *)scores;
    for (pk_i64 e = 0; e < PK_KEY_VECTORS; e++) scores[e] *= scale;
    for (pk_i64 j = 0; j < count && s->with_bias; j++) x[j] += PK_GET(b[(q0 + i) * s->bias[2] + (k0 + j) * s->bias[3]]);
    for (pk_i64 j = q0 + i + 1 > k0 ? q0 + i + 1 - k0 : 0; j < count && s->causal; j++) x[j] = -PK_INFINITY;
    for (pk_i64 e = 0; e < PK_KEY_VECTORS; e++) {
      const PK_NAME(v) weight = pk_exp_vector(scores[e] - shift[i]) * factors[i];
      scores[e] = weight;
      slopes[e] = scale * weight * (slopes[e] - delta[i]);
    }
  }
}

/* Computes the values that a block of queries has for all keys: the logarithms, +inf in rows without keys, whose
 * weights are then 0; the normalizers; and delta = sum(grad * result). */
PK_FN void PK_NAME(rows_before)(const pk_attention_t *s, pk_i64 width, PK_GLOBAL const T *saved,
                                PK_GLOBAL const T *normalizers, const T *grads, pk_i64 columns, PK_GLOBAL const E *r,
                                T *shift, T *factors, T *delta) {
  for (pk_i64 i = 0; i < width; i++, r += s->result[2], grads += columns) {
    T x = PK_C(0.0);
    for (pk_i64 d = 0; d < s->value_size; d++) x += grads[d] * PK_GET(r[d]);
    delta[i] = x;
    factors[i] = normalizers[i];
    shift[i] = saved[i] == -PK_INFINITY ? PK_INFINITY : saved[i];
  }
}

/* Writes `count` rows of `size` elements, or adds them to the existing ones. */
PK_FN void PK_NAME(put_rows)(const T *from, pk_i64 columns, pk_i64 count, pk_i64 size, int more, PK_GLOBAL E *to,
                             pk_i64 row) {
  for (pk_i64 i = 0; i < count; i++, from += columns, to += row) {
    pk_i64 d = 0;
#if !PK_WIDENED
    for (; d + PK_CPU_N <= size; d += PK_CPU_N)
      vstore16(more ? vload16(0, to + d) + vload16(0, from + d) : vload16(0, from + d), 0, to + d);
#endif
    for (; d < size; d++) to[d] = PK_PUT(more ? PK_GET(to[d]) + from[d] : from[d]);
  }
}

PK_FN void PK_NAME(clear_rows)(pk_i64 count, pk_i64 size, PK_GLOBAL E *to, pk_i64 row) {
  for (pk_i64 i = 0; i < count; i++)
    for (pk_i64 d = 0; d < size; d++) to[i * row + d] = PK_PUT(PK_C(0.0));
}

PK_KERNEL(PK_NAME(backward), ATTENTION_BACKWARD_ARGS) {
  PK_LINES(key_columns, PK_HEAD_SIZE * PK_KEYS);
  PK_LINES(value_columns, PK_HEAD_SIZE * PK_KEYS);
  PK_LINES(key_rows, PK_KEYS * PK_HEAD_SIZE);
  PK_LINES(key_sums, PK_KEYS * PK_HEAD_SIZE);
  PK_LINES(value_sums, PK_KEYS * PK_HEAD_SIZE);
  PK_LINES(query_rows, PK_ATTENTION_QUERIES * PK_HEAD_SIZE);
  PK_LINES(grad_rows, PK_ATTENTION_QUERIES * PK_HEAD_SIZE);
  PK_LINES(query_sums, PK_ATTENTION_QUERIES * PK_HEAD_SIZE);
  PK_LINES(weights, PK_ATTENTION_QUERIES * PK_KEYS);
  PK_LINES(slopes, PK_ATTENTION_QUERIES * PK_KEYS);
  PK_LINES(shift, PK_ATTENTION_QUERIES);
  PK_LINES(factors, PK_ATTENTION_QUERIES);
  PK_LINES(delta, PK_ATTENTION_QUERIES);
  const pk_i64 k_columns = PK_NAME(columns_of)(s.size), v_columns = PK_NAME(columns_of)(s.value_size);
  PK_GROUP(g) {
    const pk_u64 last = (g + 1) * per_group < units ? (g + 1) * per_group : units;
    for (pk_u64 u = g * per_group; u < last; u++) {
      const pk_i64 row = (pk_i64)u / s.parts, part = (pk_i64)u - row * s.parts;
      const pk_i64 batch = row / s.kv_heads, kv_head = row - batch * s.kv_heads;
      const pk_i64 begin = part * s.part, end = s.keys - begin < s.part ? s.keys : begin + s.part;
      PK_GLOBAL const E *k = key + batch * s.key[0] + kv_head * s.key[1];
      PK_GLOBAL const E *v = value + batch * s.value[0] + kv_head * s.value[1];
      pk_i64 k0 = begin;
      do { /* once without any keys, too: the query's gradient is then 0 */
        const pk_i64 count = end - k0 < PK_KEYS ? end - k0 : PK_KEYS;
        PK_NAME(fetch_columns)(k + k0 * s.key[2], s.key[2], count, s.size, PK_C(1.0), (T *)key_columns, PK_KEYS);
        PK_NAME(fetch_rows)(k + k0 * s.key[2], s.key[2], count, s.size, (T *)key_rows, k_columns);
        PK_NAME(fetch_columns)
        (v + k0 * s.value[2], s.value[2], count, s.value_size, PK_C(1.0), (T *)value_columns, PK_KEYS);
        for (pk_i64 i = 0; i < PK_KEY_VECTORS * k_columns; i++) key_sums[i] = 0;
        for (pk_i64 i = 0; i < PK_KEY_VECTORS * v_columns; i++) value_sums[i] = 0;
        for (pk_i64 head = kv_head * s.shared; head < (kv_head + 1) * s.shared; head++) {
          for (pk_i64 q0 = 0; q0 < s.queries; q0 += s.block) {
            const pk_i64 width = s.queries - q0 < s.block ? s.queries - q0 : s.block;
            const pk_i64 high = (width + PK_CPU_M - 1) / PK_CPU_M * PK_CPU_M;
            PK_GLOBAL E *gq = grad_query + part * s.part_stride + batch * s.grad_query[0] + head * s.grad_query[1] +
                              q0 * s.grad_query[2];
            if (pk_attention_limit(&s, q0 + width) <= k0) {
              if (k0 == begin && (s.wanted & PK_GRAD_QUERY)) PK_NAME(clear_rows)(width, s.size, gq, s.grad_query[2]);
              continue;
            }
            PK_NAME(fetch_rows)
            (query + batch * s.query[0] + head * s.query[1] + q0 * s.query[2], s.query[2], width, s.size,
             (T *)query_rows, k_columns);
            PK_NAME(fetch_rows)
            (grad + batch * s.grad[0] + head * s.grad[1] + q0 * s.grad[2], s.grad[2], width, s.value_size,
             (T *)grad_rows, v_columns);
            const pk_i64 line = (batch * s.heads + head) * s.queries + q0;
            PK_NAME(rows_before)
            (&s, width, logarithms + line, normalizers + line, (T *)grad_rows, v_columns,
             result + batch * s.result[0] + head * s.result[1] + q0 * s.result[2], (T *)shift, (T *)factors,
             (T *)delta);
            PK_NAME(multiply)
            (high, PK_KEYS, s.size, (T *)query_rows, k_columns, 1, (T *)key_columns, PK_KEYS, (T *)weights, PK_KEYS, 0);
            PK_NAME(multiply)
            (high, PK_KEYS, s.value_size, (T *)grad_rows, v_columns, 1, (T *)value_columns, PK_KEYS, (T *)slopes,
             PK_KEYS, 0);
            PK_NAME(slopes_of)
            (&s, bias + batch * s.bias[0] + head * s.bias[1], q0, width, k0, count, (T *)shift, (T *)factors,
             (T *)delta, scale, weights, slopes);
            if (s.wanted & PK_GRAD_VALUE) PK_NAME(multiply)
            (PK_KEYS, v_columns, width, (T *)weights, 1, PK_KEYS, (T *)grad_rows, v_columns, (T *)value_sums, v_columns,
             1);
            if (s.wanted & PK_GRAD_KEY) PK_NAME(multiply)
            (PK_KEYS, k_columns, width, (T *)slopes, 1, PK_KEYS, (T *)query_rows, k_columns, (T *)key_sums, k_columns,
             1);
            if (s.wanted & PK_GRAD_QUERY) {
              PK_NAME(multiply)
              (high, k_columns, count, (T *)slopes, PK_KEYS, 1, (T *)key_rows, k_columns, (T *)query_sums, k_columns,
               0);
              PK_NAME(put_rows)((T *)query_sums, k_columns, width, s.size, k0 > begin, gq, s.grad_query[2]);
            }
          }
        }
        if (s.wanted & PK_GRAD_KEY) PK_NAME(put_rows)
        ((T *)key_sums, k_columns, count, s.size, 0,
         grad_key + batch * s.grad_key[0] + kv_head * s.grad_key[1] + k0 * s.grad_key[2], s.grad_key[2]);
        if (s.wanted & PK_GRAD_VALUE) PK_NAME(put_rows)
        ((T *)value_sums, v_columns, count, s.value_size, 0,
         grad_value + batch * s.grad_value[0] + kv_head * s.grad_value[1] + k0 * s.grad_value[2], s.grad_value[2]);
        k0 += PK_KEYS;
      } while (k0 < end);
    }
  }
}
#undef PK_KEYS
#undef PK_VECTORS
#undef PK_KEY_VECTORS
#undef PK_LINES
