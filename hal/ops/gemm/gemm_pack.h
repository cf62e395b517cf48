/* gemm_pack.h: packs an operand of a product in the order in which a device's tiles read it: panels of `width` columns
 * one after the other, row by row, in the computing type, padded with zeros. For half precision, and for elements that
 * are not contiguous. An item packs PK_CPU_N rows of a panel; if they are the columns of a square in memory, it
 * transposes the square in registers. */
PK_KERNEL(PK_NAME(pack), GEMM_PACK_ARGS) {
  const pk_i64 blocks = (depth + PK_CPU_N - 1) / PK_CPU_N;
  PK_ITEM(i, n) {
    const pk_i64 line = (pk_i64)(i / (pk_u64)blocks), k0 = ((pk_i64)i - line * blocks) * PK_CPU_N,
                 batch = line / panels;
    const pk_i64 first = (line - batch * panels) * width, left = extent - first;
    const pk_i64 rows = depth - k0 < PK_CPU_N ? depth - k0 : PK_CPU_N;
    PK_GLOBAL const E *p = from + batch * batch_stride + first * step + k0 * row;
    PK_GLOBAL T *q = to + (line * depth + k0) * width;
#if defined(PK_CPU_VECTOR) && !PK_WIDENED
    if (row == 1 && width == PK_CPU_N && left >= PK_CPU_N && rows == PK_CPU_N) {
      PK_NAME(v) turned[PK_CPU_N];
      PK_NAME(fetch_square)(p, step, (T *)turned, PK_CPU_N);
      for (int k = 0; k < PK_CPU_N; k++) vstore16(turned[k], k, q);
    } else
#endif
      for (pk_i64 k = 0; k < rows; k++, p += row)
        for (pk_i64 e = 0; e < width; e++) *q++ = e < left ? PK_GET(p[e * step]) : PK_C(0.0);
  }
}
