/* int_vector.h: the inner loops of int_host.h, included once for each instruction set, which defines
 *   PK_INT_SET        its name, PK_INT_TARGET the attribute of its functions
 *   PK_INT_BYTES      of a vector
 *   PK_INT_MOST       maximum number of rows whose sums, of two vectors each, are in registers: 8 or 4
 *   PK_INT_EVEN(w)    what ADD multiplies the even terms of words of b as, PK_INT_ODD(w) the odd ones
 *   PK_INT_ADD(x, e, o, even, odd)   x + e * even + o * odd for terms e and o of a; all 32-bit lanes
 *   PK_INT_BIASED     whether e are bytes that PK_INT_BIAS was added to */
#define PK_INT_NAME(name) PK_CAT(PK_NAME(name), PK_INT_SET)
#define PK_INT_LANES (PK_INT_BYTES / 4)
typedef pk_i32 PK_INT_NAME(int_) __attribute__((vector_size(PK_INT_BYTES), aligned(1), may_alias));
#define V PK_INT_NAME(int_)

/* The product of `rows` packed rows, which is constant, and a panel of `words` words. */
PK_FN PK_INT_TARGET void PK_INT_NAME(sums_)(const int rows, pk_i64 words, const pk_int_pair_t *a, const pk_u32 *panel,
                                            const pk_i32 *bias, pk_i32 *to) {
  enum { ROOM = PK_INT_K / 2, ODD = PK_INT_K / 4 };
  for (int c = 0; c < PK_INT_N; c += 2 * PK_INT_LANES) {
    V x[PK_INT_MOST][2];
    const pk_u32 *from = panel + c;
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++) x[i][0] = *(const V *)(bias + c), x[i][1] = *(const V *)(bias + c + PK_INT_LANES);
    for (pk_i64 w = 0; w < words; w++, from += PK_INT_N) {
      const V w0 = *(const V *)from, w1 = *(const V *)(from + PK_INT_LANES);
      const V even0 = PK_INT_EVEN(w0), odd0 = PK_INT_ODD(w0), even1 = PK_INT_EVEN(w1), odd1 = PK_INT_ODD(w1);
#pragma GCC unroll 8
      for (int i = 0; i < rows; i++) {
        const V e = (V){0} + a[i * ROOM + w], o = (V){0} + a[i * ROOM + ODD + w];
        x[i][0] = PK_INT_ADD(x[i][0], e, o, even0, odd0);
        x[i][1] = PK_INT_ADD(x[i][1], e, o, even1, odd1);
      }
    }
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++) {
      *(V *)(to + i * PK_INT_N + c) = x[i][0];
      *(V *)(to + i * PK_INT_N + c + PK_INT_LANES) = x[i][1];
    }
  }
}

/* Adds the products of a vector of `rows` rows and of PK_INT_COLUMNS columns of b from term k on; x[PK_INT_FEW] are the
 * sums of b. */
PK_FN PK_INT_TARGET void PK_INT_NAME(chunk_)(const int rows, const pk_int_pair_t *a, const pk_u8 *const *b, pk_i64 k,
                                             V x[PK_INT_FEW + 1][PK_INT_COLUMNS]) {
  enum { ROOM = PK_INT_DEEP / 2, ODD = PK_INT_DEEP / 4 };
#pragma GCC unroll 4
  for (int c = 0; c < PK_INT_COLUMNS; c++) {
    const V w = *(const V *)(b[c] + k), even = PK_INT_EVEN(w), odd = PK_INT_ODD(w);
#pragma GCC unroll 4
    for (int i = 0; i < rows; i++)
      x[i][c] = PK_INT_ADD(x[i][c], *(const V *)(a + i * ROOM), *(const V *)(a + i * ROOM + ODD), even, odd);
    if (PK_INT_BIASED) {
      const V bias = (V){0} + (pk_i32)0x80808080u;
      x[PK_INT_FEW][c] = PK_INT_ADD(x[PK_INT_FEW][c], bias, bias, even, odd);
    }
  }
}

/* The products of `rows` rows, which is constant, and of up to PK_INT_COLUMNS columns of b, which are `col` apart:
 * to[row][column]. */
PK_FN PK_INT_TARGET void PK_INT_NAME(dots_)(const int rows, pk_i64 depth, const pk_int_pair_t *a, const pk_u8 *b,
                                            pk_i64 col, pk_i64 count, pk_i32 *to) {
  V x[PK_INT_FEW + 1][PK_INT_COLUMNS];
  pk_u8 edge[PK_INT_COLUMNS][PK_INT_BYTES];
  const pk_u8 *from[PK_INT_COLUMNS];
  pk_i64 k = 0;
#pragma GCC unroll 5
  for (int i = 0; i <= PK_INT_FEW; i++)
#pragma GCC unroll 4
    for (int c = 0; c < PK_INT_COLUMNS; c++) x[i][c] = (V){0};
  for (int c = 0; c < PK_INT_COLUMNS; c++) from[c] = b + (c < count ? c : count - 1) * col;
  for (; k + PK_INT_BYTES <= depth; k += PK_INT_BYTES, a += PK_INT_LANES) PK_INT_NAME(chunk_)(rows, a, from, k, x);
  if (k < depth) {
    memset(edge, 0, sizeof edge);
    for (int c = 0; c < PK_INT_COLUMNS; c++) memcpy(edge[c], from[c] + k, (size_t)(depth - k)), from[c] = edge[c];
    PK_INT_NAME(chunk_)(rows, a, from, 0, x);
  }
#pragma GCC unroll 4
  for (int c = 0; c < PK_INT_COLUMNS; c++)
#pragma GCC unroll 4
    for (int i = 0; i < rows; i++) {
      V y = x[i][c];
      pk_u32 sum = 0;
      if (PK_INT_BIASED) y -= x[PK_INT_FEW][c];
      for (int l = 0; l < PK_INT_LANES; l++) sum += (pk_u32)y[l];
      to[i * PK_INT_COLUMNS + c] = (pk_i32)sum;
    }
}

/* The product of any number of packed rows, as many at once as registers hold, and a panel. */
static __attribute__((noinline)) PK_INT_TARGET void PK_INT_NAME(panel_)(pk_i64 rows, pk_i64 words,
                                                                        const pk_int_pair_t *a, const pk_u32 *panel,
                                                                        const pk_i32 *bias, pk_i32 *to) {
  for (pk_i64 step; rows > 0; rows -= step, a += step * (PK_INT_K / 2), to += step * PK_INT_N) {
    step = rows >= PK_INT_MOST ? PK_INT_MOST : rows >= 4 ? 4 : rows >= 2 ? 2 : 1;
    if (step == PK_INT_MOST)
      PK_INT_NAME(sums_)(PK_INT_MOST, words, a, panel, bias, to);
    else if (step == 4)
      PK_INT_NAME(sums_)(4, words, a, panel, bias, to);
    else if (step == 2)
      PK_INT_NAME(sums_)(2, words, a, panel, bias, to);
    else
      PK_INT_NAME(sums_)(1, words, a, panel, bias, to);
  }
}

static __attribute__((noinline)) PK_INT_TARGET void PK_INT_NAME(columns_)(pk_i64 rows, pk_i64 depth,
                                                                          const pk_int_pair_t *a, const pk_u8 *b,
                                                                          pk_i64 col, pk_i64 count, pk_i32 *to) {
  if (rows == 1)
    PK_INT_NAME(dots_)(1, depth, a, b, col, count, to);
  else if (rows == 2)
    PK_INT_NAME(dots_)(2, depth, a, b, col, count, to);
  else
    PK_INT_NAME(dots_)(PK_INT_FEW, depth, a, b, col, count, to);
}

#undef V
#undef PK_INT_NAME
#undef PK_INT_LANES
#undef PK_INT_SET
#undef PK_INT_TARGET
#undef PK_INT_BYTES
#undef PK_INT_MOST
#undef PK_INT_EVEN
#undef PK_INT_ODD
#undef PK_INT_ADD
#undef PK_INT_BIASED
