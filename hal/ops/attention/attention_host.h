/* attention_host.h: attention.pk on the host. Scores are transposed, with a row of PK_GEMM_N queries for each key: the
 * steps of softmax along the keys are then the same for all lanes of a vector, and only the query is packed. The
 * products are those of gemm_micro.h. Lanes after the last query contain zeros or results of zeros, and are never
 * read. */
#include "attention_product.h"

#define PK_KEYS (2 * PK_GEMM_N) /* keys of a block */
#define PK_BUFFER(name, n) T name[n] __attribute__((aligned(64)))

/* Packs `count` rows of `size` elements as columns, times `scale`. */
PK_FN void PK_NAME(pack_columns_of)(const int pk_isa, const T *rows, pk_i64 row, pk_i64 count, pk_i64 size, T scale,
                                    T *panel) {
  PK_OF_ISA(pack)(rows, 1, row, size, count, panel);
  if (scale != PK_C(1.0))
    for (pk_i64 i = 0; i < size * PK_GEMM_N; i++) panel[i] *= scale;
}

/* Computes the scores of `count` keys from k0 on for the queries from q0 on, whose columns are `queries`. */
PK_FN void PK_NAME(scores_of)(const int pk_isa, const pk_attention_t *s, const T *queries, const T *key, const T *bias,
                              pk_i64 q0, pk_i64 width, pk_i64 k0, pk_i64 count, T *offsets, T *scores) {
  PK_OF_ISA(product_rows)
  (count, width <= PK_HALF ? PK_HALF : PK_GEMM_N, s->size, key + k0 * s->key[2], s->key[2], queries, PK_GEMM_N, scores,
   PK_GEMM_N, 0);
  if (s->with_bias) {
    const T *first = bias + q0 * s->bias[2] + k0 * s->bias[3];
    if (s->bias[2] == 0) {
      for (pk_i64 k = 0; k < count; k++)
        for (int l = 0; l < PK_GEMM_N; l++) scores[k * PK_GEMM_N + l] += first[k * s->bias[3]];
    } else {
      PK_OF_ISA(pack)(first, s->bias[3], s->bias[2], count, width, offsets);
      for (pk_i64 i = 0; i < count * PK_GEMM_N; i++) scores[i] += offsets[i];
    }
  }
  if (!s->causal) return;
  for (pk_i64 k = 0; k < count; k++)
    for (pk_i64 l = 0; l < k0 + k - q0 && l < PK_GEMM_N; l++) scores[k * PK_GEMM_N + l] = -PK_INFINITY;
}

/* Computes the exponentials of the scores of a block. `top` and `sum` are the largest score and the sum of the
 * exponentials of all blocks so far; `decay` is the factor for the sums of earlier blocks. For the first `lanes`
 * queries, a constant. */
PK_FN void PK_NAME(exponentials)(const int lanes, pk_i64 count, T *scores, T *top, T *sum, T *decay) {
  PK_BUFFER(shift, PK_GEMM_N);
  for (int l = 0; l < lanes; l++) shift[l] = top[l];
  for (pk_i64 k = 0; k < count; k++)
    for (int l = 0; l < lanes; l++)
      shift[l] = scores[k * PK_GEMM_N + l] > shift[l] ? scores[k * PK_GEMM_N + l] : shift[l];
  for (int l = 0; l < lanes; l++) {
    const T before = top[l];
    top[l] = shift[l];
    shift[l] = shift[l] == -PK_INFINITY ? PK_C(0.0) : shift[l]; /* no key yet: exp(-inf - 0) = 0 */
    decay[l] = pk_exp_wide(before - shift[l]);
    sum[l] *= decay[l];
  }
  for (pk_i64 k = 0; k < count; k++)
    for (int l = 0; l < lanes; l++) {
      const T e = pk_exp_wide(scores[k * PK_GEMM_N + l] - shift[l]);
      scores[k * PK_GEMM_N + l] = e;
      sum[l] += e;
    }
}

PK_KERNEL(PK_NAME(forward), ATTENTION_FORWARD_ARGS) {
  PK_BUFFER(queries, PK_HEAD_SIZE * PK_GEMM_N);
  PK_BUFFER(scores, PK_KEYS * PK_GEMM_N);
  PK_BUFFER(offsets, PK_KEYS * PK_GEMM_N);
  PK_BUFFER(spare, PK_KEYS * PK_HEAD_SIZE);
  PK_BUFFER(sums, PK_GEMM_N * PK_HEAD_SIZE);
  PK_BUFFER(top, PK_GEMM_N);
  PK_BUFFER(sum, PK_GEMM_N);
  PK_BUFFER(decay, PK_GEMM_N);
  const pk_i64 blocks = (s.queries + s.block - 1) / s.block, padded = PK_NAME(padded)(s.value_size);
  PK_GROUP(g) {
    const pk_u64 last = (g + 1) * per_group < units ? (g + 1) * per_group : units;
    for (pk_u64 u = g * per_group; u < last; u++) {
      const pk_i64 row = (pk_i64)u / blocks, q0 = ((pk_i64)u - row * blocks) * s.block;
      const pk_i64 batch = row / s.heads, head = row - batch * s.heads, kv_head = head / s.shared;
      const pk_i64 width = s.queries - q0 < s.block ? s.queries - q0 : s.block;
      const pk_i64 limit = pk_attention_limit(&s, q0 + width);
      const E *q = query + batch * s.query[0] + head * s.query[1] + q0 * s.query[2];
      const E *k = key + batch * s.key[0] + kv_head * s.key[1], *v = value + batch * s.value[0] + kv_head * s.value[1];
      const E *b = bias + batch * s.bias[0] + head * s.bias[1];
      PK_NAME(pack_columns_of)(pk_isa, q, s.query[2], width, s.size, scale, queries);
      for (int l = 0; l < PK_GEMM_N; l++) top[l] = -PK_INFINITY, sum[l] = PK_C(0.0);
      for (pk_i64 k0 = 0; k0 < limit; k0 += PK_KEYS) {
        const pk_i64 count = limit - k0 < PK_KEYS ? limit - k0 : PK_KEYS;
        PK_NAME(scores_of)(pk_isa, &s, queries, k, b, q0, width, k0, count, offsets, scores);
        if (width <= PK_HALF)
          PK_NAME(exponentials)(PK_HALF, count, scores, top, sum, decay);
        else
          PK_NAME(exponentials)(PK_GEMM_N, count, scores, top, sum, decay);
        for (pk_i64 i = 0; i < width && k0 > 0; i++)
          for (pk_i64 d = 0; d < padded; d++) sums[i * padded + d] *= decay[i];
        pk_i64 step = s.value[2];
        const T *rows = PK_NAME(whole_rows)(v + k0 * s.value[2], count, s.value_size, spare, &step);
        PK_OF_ISA(product_columns)(width, padded, count, scores, rows, step, sums, padded, k0 > 0);
      }
      E *r = result + batch * s.result[0] + head * s.result[1] + q0 * s.result[2];
      for (pk_i64 i = 0; i < width; i++, r += s.result[2]) {
        const int seen = sum[i] != PK_C(0.0); /* the largest score has the exponential 1; NaN counts as a key */
        const T factor = seen ? PK_C(1.0) / sum[i] : PK_C(0.0);
        logarithms[row * s.queries + q0 + i] = seen ? top[i] + pk_log(sum[i]) : -PK_INFINITY;
        if (seen)
          for (pk_i64 d = 0; d < s.value_size; d++) r[d] = sums[i * padded + d] * factor;
        else
          for (pk_i64 d = 0; d < s.value_size; d++) r[d] = PK_C(0.0);
      }
    }
  }
}

/* Adds the exponentials of a block's scores to the sums of their queries. */
PK_FN void PK_NAME(add_exponentials)(pk_i64 count, const T *scores, const T *logarithms, T *sum) {
  for (pk_i64 k = 0; k < count; k++)
    for (int l = 0; l < PK_GEMM_N; l++) sum[l] += pk_exp_wide(scores[k * PK_GEMM_N + l] - logarithms[l]);
}

PK_KERNEL(PK_NAME(normalizers), ATTENTION_NORMALIZERS_ARGS) {
  PK_BUFFER(queries, PK_HEAD_SIZE * PK_GEMM_N);
  PK_BUFFER(scores, PK_KEYS * PK_GEMM_N);
  PK_BUFFER(offsets, PK_KEYS * PK_GEMM_N);
  PK_BUFFER(shift, PK_GEMM_N);
  PK_BUFFER(sum, PK_GEMM_N);
  const pk_i64 blocks = (s.queries + s.block - 1) / s.block;
  PK_GROUP(g) {
    const pk_u64 last = (g + 1) * per_group < units ? (g + 1) * per_group : units;
    for (pk_u64 u = g * per_group; u < last; u++) {
      const pk_i64 row = (pk_i64)u / blocks, q0 = ((pk_i64)u - row * blocks) * s.block;
      const pk_i64 batch = row / s.heads, head = row - batch * s.heads, kv_head = head / s.shared;
      const pk_i64 width = s.queries - q0 < s.block ? s.queries - q0 : s.block;
      const T *saved = logarithms + row * s.queries + q0;
      T *to = normalizers + row * s.queries + q0;
      int any = 0;
      for (pk_i64 i = 0; i < width; i++) to[i] = PK_C(1.0), any |= PK_NAME(is_coarse)(saved[i]);
      if (!any) continue;
      const pk_i64 limit = pk_attention_limit(&s, q0 + width);
      const E *q = query + batch * s.query[0] + head * s.query[1] + q0 * s.query[2];
      const E *k = key + batch * s.key[0] + kv_head * s.key[1], *b = bias + batch * s.bias[0] + head * s.bias[1];
      PK_NAME(pack_columns_of)(pk_isa, q, s.query[2], width, s.size, scale, queries);
      for (int l = 0; l < PK_GEMM_N; l++) shift[l] = l < width ? saved[l] : PK_C(0.0), sum[l] = PK_C(0.0);
      for (pk_i64 k0 = 0; k0 < limit; k0 += PK_KEYS) {
        const pk_i64 count = limit - k0 < PK_KEYS ? limit - k0 : PK_KEYS;
        PK_NAME(scores_of)(pk_isa, &s, queries, k, b, q0, width, k0, count, offsets, scores);
        PK_NAME(add_exponentials)(count, scores, shift, sum);
      }
      for (pk_i64 i = 0; i < width; i++)
        if (PK_NAME(is_coarse)(saved[i])) to[i] = PK_C(1.0) / sum[i];
    }
  }
}

/* Computes the weights of a block from their scores, and the slopes of the scores, scale * weight * (slope of the
 * weight - delta), from the slopes of the weights. `lanes` is constant. */
PK_FN void PK_NAME(slopes_of)(const int lanes, pk_i64 count, const T *logarithms, const T *factors, const T *delta,
                              T scale, T *scores, T *slopes) {
  for (pk_i64 k = 0; k < count; k++)
    for (int l = 0; l < lanes; l++) {
      const T weight = pk_exp_wide(scores[k * PK_GEMM_N + l] - logarithms[l]) * factors[l];
      scores[k * PK_GEMM_N + l] = weight;
      slopes[k * PK_GEMM_N + l] = scale * weight * (slopes[k * PK_GEMM_N + l] - delta[l]);
    }
}

/* Computes the values that a block of queries has for all keys: the logarithms, +inf in rows without keys, whose
 * weights are then 0; the normalizers; and delta = sum(grad * result), from their columns. */
PK_FN void PK_NAME(rows_before)(const pk_attention_t *s, pk_i64 width, const T *saved, const T *normalizers,
                                const T *grads, const T *results, T *logarithms, T *factors, T *delta) {
  for (pk_i64 l = 0; l < PK_GEMM_N; l++) {
    const T logarithm = l < width ? saved[l] : PK_C(0.0);
    factors[l] = l < width ? normalizers[l] : PK_C(1.0);
    logarithms[l] = logarithm == -PK_INFINITY ? PK_INFINITY : logarithm;
    delta[l] = PK_C(0.0);
  }
  for (pk_i64 d = 0; d < s->value_size; d++)
    for (int l = 0; l < PK_GEMM_N; l++) delta[l] += grads[d * PK_GEMM_N + l] * results[d * PK_GEMM_N + l];
}

PK_KERNEL(PK_NAME(backward), ATTENTION_BACKWARD_ARGS) {
  PK_BUFFER(queries, PK_HEAD_SIZE * PK_GEMM_N);
  PK_BUFFER(grads, PK_HEAD_SIZE * PK_GEMM_N);
  PK_BUFFER(spare, PK_KEYS * PK_HEAD_SIZE);
  PK_BUFFER(query_rows, PK_GEMM_N * PK_HEAD_SIZE);
  PK_BUFFER(grad_rows, PK_GEMM_N * PK_HEAD_SIZE);
  PK_BUFFER(key_rows, PK_KEYS * PK_HEAD_SIZE);
  PK_BUFFER(weights, PK_KEYS * PK_GEMM_N);
  PK_BUFFER(slopes, PK_KEYS * PK_GEMM_N);
  PK_BUFFER(offsets, PK_KEYS * PK_GEMM_N);
  PK_BUFFER(shift, PK_GEMM_N);
  PK_BUFFER(factors, PK_GEMM_N);
  PK_BUFFER(delta, PK_GEMM_N);
  const pk_i64 kv_heads = s.kv_heads;
  PK_GROUP(g) {
    const pk_u64 last = (g + 1) * per_group < units ? (g + 1) * per_group : units;
    for (pk_u64 u = g * per_group; u < last; u++) {
      const pk_i64 row = (pk_i64)u / s.parts, part = (pk_i64)u - row * s.parts;
      const pk_i64 batch = row / kv_heads, kv_head = row - batch * kv_heads;
      const pk_i64 begin = part * s.part, end = s.keys - begin < s.part ? s.keys : begin + s.part;
      const E *k = key + batch * s.key[0] + kv_head * s.key[1], *v = value + batch * s.value[0] + kv_head * s.value[1];
      E *gk = grad_key + batch * s.grad_key[0] + kv_head * s.grad_key[1];
      E *gv = grad_value + batch * s.grad_value[0] + kv_head * s.grad_value[1];
      pk_i64 started = begin; /* the gradients of keys before it have their first terms */
      for (pk_i64 head = kv_head * s.shared; head < (kv_head + 1) * s.shared; head++) {
        const E *b = bias + batch * s.bias[0] + head * s.bias[1];
        for (pk_i64 q0 = 0; q0 < s.queries; q0 += s.block) {
          const pk_i64 width = s.queries - q0 < s.block ? s.queries - q0 : s.block;
          const pk_i64 seen = pk_attention_limit(&s, q0 + width), limit = seen < end ? seen : end;
          const pk_i64 lanes = width <= PK_HALF ? PK_HALF : PK_GEMM_N;
          const E *q = query + batch * s.query[0] + head * s.query[1] + q0 * s.query[2];
          const E *dr = grad + batch * s.grad[0] + head * s.grad[1] + q0 * s.grad[2];
          E *gq = grad_query + part * s.part_stride + batch * s.grad_query[0] + head * s.grad_query[1] +
                  q0 * s.grad_query[2];
          if (limit <= begin) {
            if (s.wanted & PK_GRAD_QUERY) PK_NAME(clear)(gq, s.grad_query[2], width, s.size);
            continue;
          }
          PK_NAME(pack_columns_of)
          (pk_isa, result + batch * s.result[0] + head * s.result[1] + q0 * s.result[2], s.result[2], width,
           s.value_size, PK_C(1.0), queries);
          PK_NAME(pack_columns_of)(pk_isa, dr, s.grad[2], width, s.value_size, PK_C(1.0), grads);
          const pk_i64 line = (batch * s.heads + head) * s.queries + q0;
          PK_NAME(rows_before)
          (&s, width, logarithms + line, normalizers + line, grads, queries, shift, factors, delta);
          PK_NAME(pack_columns_of)(pk_isa, q, s.query[2], width, s.size, scale, queries);
          pk_i64 q_step = s.query[2], d_step = s.grad[2];
          const T *q_rows = PK_NAME(whole_rows)(q, width, s.size, query_rows, &q_step);
          const T *d_rows = PK_NAME(whole_rows)(dr, width, s.value_size, grad_rows, &d_step);
          for (pk_i64 k0 = begin; k0 < limit; k0 += PK_KEYS) {
            const pk_i64 count = end - k0 < PK_KEYS ? end - k0 : PK_KEYS;
            PK_NAME(scores_of)(pk_isa, &s, queries, k, b, q0, width, k0, count, offsets, weights);
            PK_OF_ISA(product_rows)
            (count, lanes, s.value_size, v + k0 * s.value[2], s.value[2], grads, PK_GEMM_N, slopes, PK_GEMM_N, 0);
            if (width <= PK_HALF)
              PK_NAME(slopes_of)(PK_HALF, count, shift, factors, delta, scale, weights, slopes);
            else
              PK_NAME(slopes_of)(PK_GEMM_N, count, shift, factors, delta, scale, weights, slopes);
            if (s.wanted & PK_GRAD_VALUE) PK_NAME(add_rows)
            (pk_isa, count, s.value_size, width, weights, d_rows, d_step, gv + k0 * s.grad_value[2], s.grad_value[2],
             k0 < started, spare);
            if (s.wanted & PK_GRAD_KEY) PK_NAME(add_rows)
            (pk_isa, count, s.size, width, slopes, q_rows, q_step, gk + k0 * s.grad_key[2], s.grad_key[2], k0 < started,
             spare);
            if (s.wanted & PK_GRAD_QUERY) {
              pk_i64 k_step = s.key[2];
              const T *k_rows = PK_NAME(whole_rows)(k + k0 * s.key[2], count, s.size, key_rows, &k_step);
              PK_NAME(add_columns)
              (pk_isa, width, s.size, count, slopes, k_rows, k_step, gq, s.grad_query[2], k0 > begin, spare);
            }
            if (started < k0 + count) started = k0 + count;
          }
        }
      }
      if (s.wanted & PK_GRAD_KEY) PK_NAME(clear)(gk + started * s.grad_key[2], s.grad_key[2], end - started, s.size);
      if (s.wanted & PK_GRAD_VALUE)
        PK_NAME(clear)(gv + started * s.grad_value[2], s.grad_value[2], end - started, s.value_size);
    }
  }
}
#undef PK_KEYS
#undef PK_BUFFER
#undef PK_HALF
#undef PK_OF_ISA
