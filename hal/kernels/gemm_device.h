/* gemm_device.h: the product of a part of 32 x 32 elements by a group on devices: an item computes 4 x 4 of them from local memory. Who
 * includes it ends with #undef PK_GEMM_PART, PK_PART and PK_DEPTH. The kernel declares la and lb, of PK_DEPTH * PK_PART elements in
 * local memory, and x, of 16 elements. */
#define PK_PART PK_GEMM_PART_SIZE
#define PK_DEPTH 16
/* Sums of products over FIRST to DEPTH for the part at (i0, j0): A and B are element (i, k) and (k, j); PUT stores x of element (i, j). */
#define PK_GEMM_PART(FIRST, DEPTH, ROWS, COLUMNS, A, B, PUT)                                            \
  for (int e = 0; e < 16; e++) x[e] = PK_C(0.0);                                                        \
  for (pk_i64 k0 = (FIRST); k0 < (DEPTH); k0 += PK_DEPTH) {                                             \
    PK_EACH(l) {                                                                                        \
      for (pk_i32 e = l; e < PK_DEPTH * PK_PART; e += PK_LSIZE) {                                       \
        const pk_i64 k = k0 + e / PK_PART, i = i0 + e % PK_PART, j = j0 + e % PK_PART;                  \
        la[e] = k < (DEPTH) && i < (ROWS) ? (A) : PK_C(0.0);                                            \
        lb[e] = k < (DEPTH) && j < (COLUMNS) ? (B) : PK_C(0.0);                                         \
      }                                                                                                 \
    }                                                                                                   \
    PK_SYNC();                                                                                          \
    PK_EACH(l) {                                                                                        \
      const pk_i32 i = l / 8 * 4, j = l % 8 * 4;                                                        \
      for (pk_i32 k = 0; k < PK_DEPTH; k++)                                                             \
        for (int e = 0; e < 16; e++) x[e] += la[k * PK_PART + i + e / 4] * lb[k * PK_PART + j + e % 4]; \
    }                                                                                                   \
    PK_SYNC();                                                                                          \
  }                                                                                                     \
  PK_EACH(l) {                                                                                          \
    for (int e = 0; e < 16; e++) {                                                                      \
      const pk_i64 i = i0 + l / 8 * 4 + e / 4, j = j0 + l % 8 * 4 + e % 4;                              \
      if (i < (ROWS) && j < (COLUMNS)) PUT                                                              \
    }                                                                                                   \
  }
