/* scatter_runs.h: the kernels PK_NAME(PK_VARIANT_runs) and PK_NAME(PK_VARIANT_ends): out at sorted indices =
 * PK_JOIN(out, b), for devices with many threads. An item processes a chunk of the sorted entries of one position of
 * the kept dimensions. The run of equal indices that begins before its chunk is accumulated in `partial`; every other
 * run is added to its element of out, in order. Then `ends` adds to the last run of each chunk its continuation in the
 * following chunks. Entries of invalid indices have the key `bound` and come last. */
PK_KERNEL(PK_NAME(PK_CAT(PK_VARIANT, _runs)), SCATTER_RUNS_ARGS) {
  PK_ITEM(i, (pk_u64)how.places * (pk_u64)how.chunks) {
    const pk_i64 c = (pk_i64)(pk_divide_u64(i, (pk_u64)how.places)),
                 place = (pk_i64)(i - (pk_u64)c * (pk_u64)how.places);
    const pk_i64 first = c * how.chunk, end = how.n - first < how.chunk ? how.n : first + how.chunk;
    PK_GLOBAL const pk_u64 *key = keys + (pk_i64)pk_divide_u64((pk_u64)place, (pk_u64)how.shared) * how.n;
    PK_GLOBAL const pk_u32 *from = places + (pk_i64)pk_divide_u64((pk_u64)place, (pk_u64)how.shared) * how.n;
    pk_i64 offset[2], j = first;
    pk_row_offsets(&kept, (pk_u64)place, 2, offset);
    PK_GLOBAL const E *const values = b + offset[1];
    const pk_u64 begun = first > 0 ? key[first - 1] : (pk_u64)how.bound;
    if (begun < (pk_u64)how.bound && key[first] == begun) {
      E sum = values[(pk_i64)from[j] * how.b_step];
      for (j++; j < end && key[j] == begun; j++) sum = PK_JOIN(sum, values[(pk_i64)from[j] * how.b_step]);
      partial[i] = sum;
    }
    PK_GLOBAL E *const to = out + offset[0];
    pk_u64 at = (pk_u64)how.bound; /* of `sum`; `bound`: none */
    E sum = PK_PUT((T)0);
    for (; j < end; j++) { /* one loop for all runs, because clspv crashes on a loop in a loop that share their limit */
      const pk_u64 next = key[j];
      if (next != at) {
        if (at < (pk_u64)how.bound) to[(pk_i64)at * how.step] = sum;
        at = next;
        if (at < (pk_u64)how.bound) sum = to[(pk_i64)at * how.step];
      }
      if (at < (pk_u64)how.bound) sum = PK_JOIN(sum, values[(pk_i64)from[j] * how.b_step]);
    }
    if (at < (pk_u64)how.bound) to[(pk_i64)at * how.step] = sum;
  }
}

PK_KERNEL(PK_NAME(PK_CAT(PK_VARIANT, _ends)), SCATTER_RUNS_ARGS) {
  PK_ITEM(i, (pk_u64)how.places * (pk_u64)(how.chunks - 1)) {
    const pk_i64 c = (pk_i64)(pk_divide_u64(i, (pk_u64)how.places)),
                 place = (pk_i64)(i - (pk_u64)c * (pk_u64)how.places);
    const pk_i64 first = c * how.chunk, next = first + how.chunk;
    PK_GLOBAL const pk_u64 *key = keys + (pk_i64)pk_divide_u64((pk_u64)place, (pk_u64)how.shared) * how.n;
    const pk_u64 at = key[next];
    const int begins = first == 0 || key[first - 1] != at;
    if (at < (pk_u64)how.bound && key[next - 1] == at && begins) {
      pk_i64 offset[2];
      pk_row_offsets(&kept, (pk_u64)place, 2, offset);
      PK_GLOBAL E *const to = out + offset[0] + (pk_i64)at * how.step;
      E sum = *to;
      for (pk_i64 d = c + 1; d < how.chunks && key[d * how.chunk] == at; d++)
        sum = PK_JOIN(sum, partial[d * how.places + place]);
      *to = sum;
    }
  }
}
