/* attention_device.h: attention.pk on devices with many threads. A group processes PK_ROWS queries at once with blocks
 * of PK_LSIZE keys. Each item computes the scores of one key, from rows that the group loads to local memory together;
 * then PK_ROWS items compute the statistics of one query each, and all items compute columns of the results. No other
 * item accesses what an item adds up in global memory.
 *
 * A PK_SYNC also follows the loops over blocks of keys, which already end with one. The rules do not require it, but
 * without it PoCL 3.1 generates wrong code for the rest of the kernel, at every size. */
#define PK_ROWS 8

#ifdef PK_IS_F64
#define PK_CHUNK 8
#else
#define PK_CHUNK 16
#endif
#define PK_CHUNK_LINE (PK_CHUNK + 1) /* odd, so that items read different banks */

/* x[i] = the product of row q0 + i of A and row k0 + l of B, both of SIZE numbers, through local memory: `lines` and
 * `heads`, which the kernel declares. A is read at i < width, B at l < count. */
#define PK_DOTS(A, A_ROW, B, B_ROW, SIZE)                                                               \
  for (pk_i32 i = 0; i < PK_ROWS; i++) x[i] = PK_C(0.0);                                                \
  for (pk_i64 d0 = 0; d0 < (SIZE); d0 += PK_CHUNK) {                                                    \
    PK_EACH(l) {                                                                                        \
      for (pk_i32 e = l; e < PK_LSIZE * PK_CHUNK; e += PK_LSIZE) {                                      \
        const pk_i32 j = e / PK_CHUNK, d = e % PK_CHUNK;                                                \
        lines[j * PK_CHUNK_LINE + d] =                                                                  \
            j < count && d0 + d < (SIZE) ? PK_GET((B)[(k0 + j) * (B_ROW) + d0 + d]) : PK_C(0.0);        \
      }                                                                                                 \
      for (pk_i32 e = l; e < PK_ROWS * PK_CHUNK; e += PK_LSIZE) {                                       \
        const pk_i32 i = e / PK_CHUNK, d = e % PK_CHUNK;                                                \
        heads[e] = i < width && d0 + d < (SIZE) ? PK_GET((A)[(q0 + i) * (A_ROW) + d0 + d]) : PK_C(0.0); \
      }                                                                                                 \
    }                                                                                                   \
    PK_SYNC();                                                                                          \
    PK_EACH(l) {                                                                                        \
      for (pk_i32 d = 0; d < PK_CHUNK; d++) {                                                           \
        const T y = lines[l * PK_CHUNK_LINE + d];                                                       \
        for (pk_i32 i = 0; i < PK_ROWS; i++) x[i] += heads[i * PK_CHUNK + d] * y;                       \
      }                                                                                                 \
    }                                                                                                   \
    PK_SYNC();                                                                                          \
  }
#define PK_LINES                                     \
  PK_LOCAL_ARRAY(T, lines, PK_LSIZE *PK_CHUNK_LINE); \
  PK_LOCAL_ARRAY(T, heads, PK_ROWS *PK_CHUNK);       \
  T x[PK_ROWS]; /* one item on devices: private */

/* Returns the score of key j for query i from their product, -inf if the query does not use the key. */
PK_FN T PK_NAME(score)(const pk_attention_t *s, PK_GLOBAL const E *b, T product, T scale, pk_i64 i, pk_i64 j) {
  if (s->causal && j > i) return -PK_INFINITY;
  return s->with_bias ? product * scale + PK_GET(b[i * s->bias[2] + j * s->bias[3]]) : product * scale;
}

PK_KERNEL(PK_NAME(forward), ATTENTION_FORWARD_ARGS) {
  const pk_i64 blocks = (s.queries + s.block - 1) / s.block;
  PK_LOCAL_ARRAY(T, weights, PK_ROWS * PK_LSIZE);
  PK_LOCAL_ARRAY(T, sums, PK_ROWS * PK_HEAD_SIZE);
  PK_LOCAL_ARRAY(T, top, PK_ROWS);
  PK_LOCAL_ARRAY(T, shift, PK_ROWS);
  PK_LOCAL_ARRAY(T, decay, PK_ROWS);
  PK_LOCAL_ARRAY(T, sum, PK_ROWS);
  PK_LINES
  PK_GROUP(g) {
    const pk_u64 last = (g + 1) * per_group < units ? (g + 1) * per_group : units;
    for (pk_u64 u = g * per_group; u < last; u++) {
      const pk_i64 row = (pk_i64)u / blocks, begin = ((pk_i64)u - row * blocks) * s.block;
      const pk_i64 end = s.queries - begin < s.block ? s.queries : begin + s.block;
      const pk_i64 batch = row / s.heads, head = row - batch * s.heads, kv_head = head / s.shared;
      PK_GLOBAL const E *q = query + batch * s.query[0] + head * s.query[1],
                        *b = bias + batch * s.bias[0] + head * s.bias[1];
      PK_GLOBAL const E *k = key + batch * s.key[0] + kv_head * s.key[1];
      PK_GLOBAL const E *v = value + batch * s.value[0] + kv_head * s.value[1];
      PK_GLOBAL E *r = result + batch * s.result[0] + head * s.result[1];
      for (pk_i64 q0 = begin; q0 < end; q0 += PK_ROWS) {
        const pk_i32 width = end - q0 < PK_ROWS ? (pk_i32)(end - q0) : PK_ROWS;
        const pk_i64 limit = pk_attention_limit(&s, q0 + width);
        PK_EACH(l) {
          if (l < PK_ROWS) top[l] = -PK_INFINITY, sum[l] = PK_C(0.0);
          for (pk_i64 e = l; e < PK_ROWS * PK_HEAD_SIZE; e += PK_LSIZE) sums[e] = PK_C(0.0);
        }
        PK_SYNC();
        for (pk_i64 k0 = 0; k0 < limit; k0 += PK_LSIZE) {
          const pk_i32 count = limit - k0 < PK_LSIZE ? (pk_i32)(limit - k0) : PK_LSIZE;
          PK_DOTS(q, s.query[2], k, s.key[2], s.size)
          PK_EACH(l) {
            for (pk_i32 i = 0; i < width && l < count; i++)
              weights[i * PK_LSIZE + l] = PK_NAME(score)(&s, b, x[i], scale, q0 + i, k0 + l);
          }
          PK_SYNC();
          PK_EACH_BELOW(l, width) {
            T peak = top[l];
            for (pk_i32 j = 0; j < count; j++) {
              const T x = weights[l * PK_LSIZE + j];
              peak = x > peak ? x : peak;
            }
            shift[l] = peak == -PK_INFINITY ? PK_C(0.0) : peak; /* no key yet: exp(-inf - 0) = 0 */
            decay[l] = pk_exp_wide(top[l] - shift[l]);
            top[l] = peak;
          }
          PK_SYNC();
          PK_EACH(l) {
            for (pk_i32 i = 0; i < width && l < count; i++)
              weights[i * PK_LSIZE + l] = pk_exp_wide(weights[i * PK_LSIZE + l] - shift[i]);
          }
          PK_SYNC();
          PK_EACH(l) {
            if (l < width) {
              T total = PK_C(0.0);
              for (pk_i32 j = 0; j < count; j++) total += weights[l * PK_LSIZE + j];
              sum[l] = sum[l] * decay[l] + total;
            }
            for (pk_i64 d = l; d < s.value_size; d += PK_LSIZE) {
              for (pk_i32 i = 0; i < PK_ROWS; i++) x[i] = PK_C(0.0);
              for (pk_i32 j = 0; j < count; j++) { /* adjacent items read adjacent elements, each value once */
                const T y = PK_GET(v[(k0 + j) * s.value[2] + d]);
                for (pk_i32 i = 0; i < width; i++) x[i] += weights[i * PK_LSIZE + j] * y;
              }
              for (pk_i32 i = 0; i < width; i++)
                sums[i * PK_HEAD_SIZE + d] = sums[i * PK_HEAD_SIZE + d] * decay[i] + x[i];
            }
          }
          PK_SYNC();
        }
        PK_SYNC(); /* see the first comment */
        PK_EACH(l) {
          if (l < width)
            logarithms[row * s.queries + q0 + l] = sum[l] != PK_C(0.0) ? top[l] + pk_log(sum[l]) : -PK_INFINITY;
          for (pk_i64 d = l; d < s.value_size; d += PK_LSIZE)
            for (pk_i32 i = 0; i < width; i++)
              r[(q0 + i) * s.result[2] + d] =
                  PK_PUT(sum[i] != PK_C(0.0) ? sums[i * PK_HEAD_SIZE + d] / sum[i] : PK_C(0.0));
        }
        PK_SYNC();
      }
      PK_SYNC();
    }
  }
}

PK_KERNEL(PK_NAME(normalizers), ATTENTION_NORMALIZERS_ARGS) {
  const pk_i64 blocks = (s.queries + PK_ROWS - 1) / PK_ROWS;
  PK_LOCAL_ARRAY(T, weights, PK_ROWS * PK_LSIZE);
  PK_LOCAL_ARRAY(T, shift, PK_ROWS);
  PK_LOCAL_ARRAY(T, sum, PK_ROWS);
  PK_LOCAL_ARRAY(pk_i32, coarse, PK_ROWS);
  PK_LINES
  PK_GROUP(g) {
    const pk_u64 last = (g + 1) * per_group < units ? (g + 1) * per_group : units;
    for (pk_u64 u = g * per_group; u < last; u++) {
      const pk_i64 row = (pk_i64)u / blocks, q0 = ((pk_i64)u - row * blocks) * PK_ROWS;
      const pk_i64 batch = row / s.heads, head = row - batch * s.heads, kv_head = head / s.shared;
      const pk_i32 width = s.queries - q0 < PK_ROWS ? (pk_i32)(s.queries - q0) : PK_ROWS;
      PK_GLOBAL const E *q = query + batch * s.query[0] + head * s.query[1],
                        *b = bias + batch * s.bias[0] + head * s.bias[1];
      PK_GLOBAL const E *k = key + batch * s.key[0] + kv_head * s.key[1];
      pk_i32 any = 0;
      PK_EACH_BELOW(l, width) {
        const T logarithm = logarithms[row * s.queries + q0 + l];
        coarse[l] = PK_NAME(is_coarse)(logarithm);
        shift[l] = coarse[l] ? logarithm : PK_C(0.0);
        sum[l] = PK_C(0.0);
      }
      PK_SYNC();
      for (pk_i32 i = 0; i < width; i++) any |= coarse[i];
      const pk_i64 limit = any ? pk_attention_limit(&s, q0 + width) : 0;
      for (pk_i64 k0 = 0; k0 < limit; k0 += PK_LSIZE) {
        const pk_i32 count = limit - k0 < PK_LSIZE ? (pk_i32)(limit - k0) : PK_LSIZE;
        PK_DOTS(q, s.query[2], k, s.key[2], s.size)
        PK_EACH(l) {
          for (pk_i32 i = 0; i < width && l < count; i++)
            weights[i * PK_LSIZE + l] = pk_exp_wide(PK_NAME(score)(&s, b, x[i], scale, q0 + i, k0 + l) - shift[i]);
        }
        PK_SYNC();
        PK_EACH_BELOW(l, width) {
          T total = PK_C(0.0);
          for (pk_i32 j = 0; j < count; j++) total += weights[l * PK_LSIZE + j];
          sum[l] += total;
        }
        PK_SYNC();
      }
      PK_SYNC(); /* see the first comment */
      PK_EACH_BELOW(l, width) { normalizers[row * s.queries + q0 + l] = coarse[l] ? PK_C(1.0) / sum[l] : PK_C(1.0); }
      PK_SYNC();
    }
  }
}

PK_KERNEL(PK_NAME(backward), ATTENTION_BACKWARD_ARGS) {
  PK_LOCAL_ARRAY(T, weights, PK_ROWS * PK_LSIZE);
  PK_LOCAL_ARRAY(T, slopes, PK_ROWS * PK_LSIZE);
  PK_LOCAL_ARRAY(T, sums, PK_ROWS * PK_HEAD_SIZE);
  PK_LOCAL_ARRAY(T, shift, PK_ROWS);
  PK_LOCAL_ARRAY(T, factor, PK_ROWS);
  PK_LOCAL_ARRAY(T, delta, PK_ROWS);
  T y[PK_ROWS];
  PK_LINES
  PK_GROUP(g) {
    const pk_u64 last = (g + 1) * per_group < units ? (g + 1) * per_group : units;
    for (pk_u64 u = g * per_group; u < last; u++) {
      const pk_i64 row = (pk_i64)u / s.parts, part = (pk_i64)u - row * s.parts;
      const pk_i64 batch = row / s.kv_heads, kv_head = row - batch * s.kv_heads;
      const pk_i64 begin = part * s.part, end = s.keys - begin < s.part ? s.keys : begin + s.part;
      PK_GLOBAL const E *k = key + batch * s.key[0] + kv_head * s.key[1];
      PK_GLOBAL const E *v = value + batch * s.value[0] + kv_head * s.value[1];
      PK_GLOBAL E *gk = grad_key + batch * s.grad_key[0] + kv_head * s.grad_key[1];
      PK_GLOBAL E *gv = grad_value + batch * s.grad_value[0] + kv_head * s.grad_value[1];
      PK_EACH(l) {
        for (pk_i64 j = begin; j < end; j++) {
          for (pk_i64 d = l; d < s.size && (s.wanted & PK_GRAD_KEY); d += PK_LSIZE)
            gk[j * s.grad_key[2] + d] = PK_PUT(PK_C(0.0));
          for (pk_i64 d = l; d < s.value_size && (s.wanted & PK_GRAD_VALUE); d += PK_LSIZE)
            gv[j * s.grad_value[2] + d] = PK_PUT(PK_C(0.0));
        }
      }
      for (pk_i64 head = kv_head * s.shared; head < (kv_head + 1) * s.shared; head++) {
        PK_GLOBAL const E *q = query + batch * s.query[0] + head * s.query[1],
                          *b = bias + batch * s.bias[0] + head * s.bias[1];
        PK_GLOBAL const E *dr = grad + batch * s.grad[0] + head * s.grad[1];
        PK_GLOBAL const E *r = result + batch * s.result[0] + head * s.result[1];
        PK_GLOBAL E *gq = grad_query + part * s.part_stride + batch * s.grad_query[0] + head * s.grad_query[1];
        for (pk_i64 q0 = 0; q0 < s.queries; q0 += PK_ROWS) {
          const pk_i32 width = s.queries - q0 < PK_ROWS ? (pk_i32)(s.queries - q0) : PK_ROWS;
          const pk_i64 seen = pk_attention_limit(&s, q0 + width), limit = seen < end ? seen : end;
          PK_EACH(l) {
            if (l < width) {
              const pk_i64 line = (batch * s.heads + head) * s.queries + q0 + l;
              const T logarithm = logarithms[line];
              T total = PK_C(0.0);
              for (pk_i64 d = 0; d < s.value_size; d++)
                total += PK_GET(dr[(q0 + l) * s.grad[2] + d]) * PK_GET(r[(q0 + l) * s.result[2] + d]);
              delta[l] = total;
              factor[l] = normalizers[line];
              shift[l] = logarithm == -PK_INFINITY ? PK_INFINITY : logarithm; /* a row without keys: weights of 0 */
            }
            for (pk_i64 e = l; e < PK_ROWS * PK_HEAD_SIZE; e += PK_LSIZE) sums[e] = PK_C(0.0);
          }
          PK_SYNC();
          for (pk_i64 k0 = begin; k0 < limit; k0 += PK_LSIZE) {
            const pk_i32 count = limit - k0 < PK_LSIZE ? (pk_i32)(limit - k0) : PK_LSIZE;
            PK_DOTS(q, s.query[2], k, s.key[2], s.size)
            for (pk_i32 i = 0; i < PK_ROWS; i++) y[i] = x[i];
            PK_DOTS(dr, s.grad[2], v, s.value[2], s.value_size)
            PK_EACH(l) {
              for (pk_i32 i = 0; i < width && l < count; i++) {
                const T weight = pk_exp_wide(PK_NAME(score)(&s, b, y[i], scale, q0 + i, k0 + l) - shift[i]) * factor[i];
                weights[i * PK_LSIZE + l] = weight;
                slopes[i * PK_LSIZE + l] = scale * weight * (x[i] - delta[i]);
              }
            }
            PK_SYNC();
            PK_EACH(l) {
              for (pk_i64 d = l; d < s.value_size && (s.wanted & PK_GRAD_VALUE); d += PK_LSIZE) {
                for (pk_i32 i = 0; i < width; i++) x[i] = PK_GET(dr[(q0 + i) * s.grad[2] + d]);
                for (pk_i32 j = 0; j < count; j++) {
                  T total = PK_GET(gv[(k0 + j) * s.grad_value[2] + d]);
                  for (pk_i32 i = 0; i < width; i++) total += weights[i * PK_LSIZE + j] * x[i];
                  gv[(k0 + j) * s.grad_value[2] + d] = PK_PUT(total);
                }
              }
              for (pk_i64 d = l; d < s.size && (s.wanted & PK_GRAD_KEY); d += PK_LSIZE) {
                for (pk_i32 i = 0; i < width; i++) x[i] = PK_GET(q[(q0 + i) * s.query[2] + d]);
                for (pk_i32 j = 0; j < count; j++) {
                  T total = PK_GET(gk[(k0 + j) * s.grad_key[2] + d]);
                  for (pk_i32 i = 0; i < width; i++) total += slopes[i * PK_LSIZE + j] * x[i];
                  gk[(k0 + j) * s.grad_key[2] + d] = PK_PUT(total);
                }
              }
              for (pk_i64 d = l; d < s.size && (s.wanted & PK_GRAD_QUERY); d += PK_LSIZE) {
                for (pk_i32 i = 0; i < PK_ROWS; i++) x[i] = PK_C(0.0);
                for (pk_i32 j = 0; j < count; j++) {
                  const T z = PK_GET(k[(k0 + j) * s.key[2] + d]);
                  for (pk_i32 i = 0; i < width; i++) x[i] += slopes[i * PK_LSIZE + j] * z;
                }
                for (pk_i32 i = 0; i < width; i++) sums[i * PK_HEAD_SIZE + d] += x[i];
              }
            }
            PK_SYNC();
          }
          PK_SYNC();
          PK_EACH(l) {
            for (pk_i64 d = l; d < s.size && (s.wanted & PK_GRAD_QUERY); d += PK_LSIZE)
              for (pk_i32 i = 0; i < width; i++)
                gq[(q0 + i) * s.grad_query[2] + d] = PK_PUT(sums[i * PK_HEAD_SIZE + d]);
          }
          PK_SYNC();
        }
        PK_SYNC();
      }
      PK_SYNC();
    }
  }
}
#undef PK_ROWS
#undef PK_CHUNK
#undef PK_CHUNK_LINE
#undef PK_DOTS
#undef PK_LINES
