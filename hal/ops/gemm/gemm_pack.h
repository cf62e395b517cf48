/* gemm_pack.h: an operand of a product in the order in which a device's tiles read it: a panel of `width` columns after the other, row by
 * row, in the computing type, filled up with zeros. For half precision, and for elements that do not lie side by side. */
PK_KERNEL(PK_NAME(pack), GEMM_PACK_ARGS) {
  PK_ITEM(i, n) {
    const pk_i64 line = (pk_i64)(i / (pk_u64)depth), k = (pk_i64)i - line * depth, batch = line / panels;
    const pk_i64 first = (line - batch * panels) * width, left = extent - first;
    PK_GLOBAL const E *p = from + batch * batch_stride + first * step + k * row;
    PK_GLOBAL T *q = to + i * (pk_u64)width;
    for (pk_i64 e = 0; e < width; e++) q[e] = e < left ? PK_GET(p[e * step]) : PK_C(0.0);
  }
}
