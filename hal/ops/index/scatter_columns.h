/* scatter_columns.h: the kernel PK_NAME(PK_VARIANT): out at the positions of an index = PK_JOIN(out, b). Elements are
 * processed in the order of the indexed dimension, for every position of the other ("kept") dimensions: of equal
 * indices the last one wins, sums have one order, and the results do not depend on how a launch is divided.
 *
 * A unit of work is up to `strip` adjacent positions of kept dimension 0. Operand 0 of `kept` is out (without the
 * indexed dimension), 1 is b, 2 the index; n, b_step and index_step are the indexed dimension of those two. An invalid
 * index is skipped. */
PK_KERNEL(PK_NAME(PK_VARIANT), SCATTER_COLUMNS_ARGS) {
  PK_ITEM(i, units / per_item + (units % per_item != 0)) {
    const pk_u64 last = (i + 1) * per_item < units ? (i + 1) * per_item : units;
    const pk_u64 strips = (pk_u64)((kept.size[0] + strip - 1) / strip);
    const pk_i64 so = kept.stride[0][0], sb = kept.stride[1][0], si = kept.stride[2][0];
    for (pk_u64 u = i * per_item; u < last; u++) {
      const pk_u64 row = u / strips;
      const pk_i64 column = (pk_i64)(u - row * strips) * strip;
      const pk_i64 width = kept.size[0] - column < strip ? kept.size[0] - column : strip;
      pk_i64 offset[3];
      pk_row_offsets(&kept, row * (pk_u64)kept.size[0], 3, offset);
      PK_GLOBAL E *to = out + offset[0] + column * so;
      PK_GLOBAL const E *from = b + offset[1] + column * sb;
      PK_GLOBAL const pk_i64 *where = index + offset[2] + column * si;
      for (pk_i64 j = 0; j < n; j++, from += b_step, where += index_step) {
        if (si == 0) { /* one index for the whole strip */
          const pk_i64 at = pk_index(where[0], limit, error);
          if (at < 0) continue;
          PK_GLOBAL E *line = to + at * limit.step;
          if (so == 1 && sb == 1) {
            PK_VECTOR_LOOP(k, (pk_u64)width) { line[k] = PK_JOIN(line[k], from[k]); }
          } else {
            for (pk_i64 k = 0; k < width; k++) line[k * so] = PK_JOIN(line[k * so], from[k * sb]);
          }
        } else {
          for (pk_i64 k = 0; k < width; k++) {
            const pk_i64 at = pk_index(where[k * si], limit, error);
            if (at < 0) continue;
            PK_GLOBAL E *cell = to + k * so + at * limit.step;
            *cell = PK_JOIN(*cell, from[k * sb]);
          }
        }
      }
    }
  }
}
