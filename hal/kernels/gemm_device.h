/* gemm_device.h: the tile engine on devices with many threads. A group of 8 x 8 items computes a square of the result;
 * an item computes EDGE x EDGE elements of it in registers, from blocks of PK_DEPTH rows in local memory. While a block
 * is multiplied, the next one is loaded to the other half of that memory. The kernel declares la and lb with
 * PK_GEMM_LOCAL(EDGE) and x, of EDGE * EDGE elements. Including files end with #include "gemm_device_end.h". Loops over
 * x are unrolled: clspv leaves an array with other indices than constants in memory. */
#ifdef PK_IS_F64
#define PK_DEPTH 8
#else
#define PK_DEPTH 16
#endif
#define PK_SIDE(EDGE) (8 * (EDGE))
#define PK_LINE(EDGE) (8 * (EDGE) + 1) /* of local memory: odd, so that items read different banks */
#define PK_GEMM_LOCAL(EDGE)                            \
  PK_LOCAL_ARRAY(T, la, 2 * PK_DEPTH * PK_LINE(EDGE)); \
  PK_LOCAL_ARRAY(T, lb, 2 * PK_DEPTH * PK_LINE(EDGE));

/* Loads rows k0 to k0 + PK_DEPTH of an operand. ALONG_K: adjacent items load adjacent elements along k, which are then
 * adjacent in memory. ELEMENT depends on `k` and `at`, the position in the square. */
#define PK_GEMM_LOAD(EDGE, LOCAL, HALF, FIRST, LAST, ALONG_K, LIMIT, ELEMENT)                                 \
  for (pk_i32 e = l; e < PK_DEPTH * PK_SIDE(EDGE); e += PK_LSIZE) {                                           \
    const pk_i32 row = (ALONG_K) ? e % PK_DEPTH : e / PK_SIDE(EDGE);                                          \
    const pk_i32 at = (ALONG_K) ? e / PK_DEPTH : e % PK_SIDE(EDGE);                                           \
    const pk_i64 k = (FIRST) + row;                                                                           \
    LOCAL[((HALF)*PK_DEPTH + row) * PK_LINE(EDGE) + at] = k < (LAST) && at < (LIMIT) ? (ELEMENT) : PK_C(0.0); \
  }

/* x = the sums of products from FIRST to LAST. LOAD(half, k0) fills a half of la and lb; it is a macro, used within
 * PK_EACH(l). */
#define PK_GEMM_SUMS(EDGE, FIRST, LAST, LOAD)                                              \
  PK_UNROLLED for (int e = 0; e < (EDGE) * (EDGE); e++) x[e] = PK_C(0.0);                  \
  PK_EACH(l){LOAD(0, FIRST)} PK_SYNC();                                                    \
  for (pk_i64 k0 = (FIRST), turn = 0; k0 < (LAST); k0 += PK_DEPTH, turn ^= 1) {            \
    PK_EACH(l) {                                                                           \
      if (k0 + PK_DEPTH < (LAST)) {                                                        \
        LOAD((turn ^ 1), k0 + PK_DEPTH)                                                    \
      }                                                                                    \
      for (pk_i32 k = 0; k < PK_DEPTH; k++) {                                              \
        const pk_i32 line = ((pk_i32)turn * PK_DEPTH + k) * PK_LINE(EDGE);                 \
        T y[EDGE];                                                                         \
        PK_UNROLLED for (int j = 0; j < (EDGE); j++) y[j] = lb[line + l % 8 * (EDGE) + j]; \
        PK_UNROLLED for (int i = 0; i < (EDGE); i++) {                                     \
          const T z = la[line + l / 8 * (EDGE) + i];                                       \
          PK_UNROLLED for (int j = 0; j < (EDGE); j++) x[i * (EDGE) + j] += z * y[j];      \
        }                                                                                  \
      }                                                                                    \
    }                                                                                      \
    PK_SYNC();                                                                             \
  }

/* PUT stores x[e], the element (i, j) of the square, which has ROWS x COLUMNS elements. */
#define PK_GEMM_PUT(EDGE, ROWS, COLUMNS, PUT)                                        \
  PK_EACH(l) {                                                                       \
    PK_UNROLLED for (int e = 0; e < (EDGE) * (EDGE); e++) {                          \
      const pk_i64 i = l / 8 * (EDGE) + e / (EDGE), j = l % 8 * (EDGE) + e % (EDGE); \
      if (i < (ROWS) && j < (COLUMNS)) PUT                                           \
    }                                                                                \
  }
