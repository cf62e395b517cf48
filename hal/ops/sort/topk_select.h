/* topk_select.h: the k first elements of the rows along one dimension of n elements in the order of sort.pk, without
 * sorting the others; of equal elements those with the lowest indices. An entry is a key, inverted for a descending
 * order, and its original position.
 *
 * pick: a unit of work is a chunk of a row. Elements that may be among the k first are added to the item's buffer, in
 * the order of the row. When it is full the k smallest keys stay, in that order, and later elements must be below the
 * largest of them. Usually few are, so that a block of them costs a comparison each. For a small k the entries are kept
 * sorted. A chunk of fewer than k elements is padded with entries that sort after all others. choose: the same for the
 * entries of a row's chunks, which it overwrites. */
#define PK_TOPK_BLOCK 64
#define PK_TOPK_FEW 32 /* a k for which the entries are kept sorted */

/* Moves the k smallest of `count` entries, 0 < k <= count, to the front in their order. Returns the largest key of
 * them, found digit by digit from the highest. */
PK_FN pk_u64 PK_NAME(keep)(PK_GLOBAL pk_u64 *keys, PK_GLOBAL pk_u32 *places, pk_i64 count, pk_i64 k) {
  pk_u64 prefix = 0, known = 0;
  pk_i64 rank = k; /* rank of the searched key among those with the prefix */
  for (pk_i32 shift = PK_TOPK_SHIFT; shift >= 0; shift -= 8) {
    pk_u32 tally[256];
    for (int d = 0; d < 256; d++) tally[d] = 0;
    for (pk_i64 j = 0; j < count; j++)
      if ((keys[j] & known) == prefix) tally[keys[j] >> shift & 255u]++;
    pk_u64 digit = 0;
    while (rank > (pk_i64)tally[digit]) rank -= (pk_i64)tally[digit++];
    prefix |= digit << shift;
    known |= (pk_u64)255 << shift;
    if (rank == (pk_i64)tally[digit]) break; /* all entries with the prefix stay */
  }
  pk_u64 largest = 0;
  pk_i64 at = 0;
  for (pk_i64 j = 0; j < count; j++) {
    const pk_u64 key = keys[j], head = key & known;
    if (head > prefix || (head == prefix && rank-- <= 0)) continue;
    keys[at] = key;
    places[at++] = places[j];
    largest = key > largest ? key : largest;
  }
  return largest;
}

/* Inserts an entry into at most k sorted ones, after those with its key; the last of k is dropped. Returns their
 * number. */
PK_FN pk_i64 PK_NAME(insert)(PK_GLOBAL pk_u64 *keys, PK_GLOBAL pk_u32 *places, pk_i64 have, pk_i64 k, pk_u64 key,
                             pk_u32 place) {
  pk_i64 at = have < k ? have : k - 1;
  for (; at > 0 && keys[at - 1] > key; at--) {
    keys[at] = keys[at - 1];
    places[at] = places[at - 1];
  }
  keys[at] = key;
  places[at] = place;
  return have < k ? have + 1 : k;
}

/* Returns whether an element of a block is below the limit. */
PK_FN pk_i32 PK_NAME(below)(PK_GLOBAL const E *p, pk_i64 step, pk_i64 count, pk_u64 bias, pk_u64 invert, pk_u64 limit) {
  pk_i32 found = 0;
  if (step == 1 && count == PK_TOPK_BLOCK) {
    for (pk_i32 l = 0; l < PK_TOPK_BLOCK; l++)
      found |= (PK_TOPK_KEY)((PK_KEY(PK_GET(p[l])) + bias) ^ invert) < (PK_TOPK_KEY)limit;
  } else {
    for (pk_i64 l = 0; l < count; l++) found |= ((PK_KEY(PK_GET(p[l * step])) + bias) ^ invert) < limit;
  }
  return found;
}

PK_KERNEL(PK_NAME(pick), TOPK_SELECT_ARGS) {
  PK_ITEM(i, units / per_item + (units % per_item != 0)) {
    PK_GLOBAL pk_u64 *const my_keys = room_keys + i * (pk_u64)room;
    PK_GLOBAL pk_u32 *const my_places = room_places + i * (pk_u64)room;
    const pk_u64 last = (i + 1) * per_item < units ? (i + 1) * per_item : units;
    for (pk_u64 u = i * per_item; u < last; u++) {
      const pk_u64 row = u / (pk_u64)chunks;
      const pk_i64 c = (pk_i64)(u - row * (pk_u64)chunks), end = n - c * chunk < chunk ? n : (c + 1) * chunk;
      pk_i64 offset[2], have = 0;
      pk_i32 limited = 0;
      pk_u64 limit = 0;
      pk_row_offsets(&kept, row, 2, offset);
      PK_GLOBAL const E *p = a + offset[1];
      for (pk_i64 begin = c * chunk; begin < end; begin += PK_TOPK_BLOCK) {
        const pk_i64 count = end - begin < PK_TOPK_BLOCK ? end - begin : PK_TOPK_BLOCK;
        if (limited && !PK_NAME(below)(p + begin * a_step, a_step, count, bias, invert, limit)) continue;
        for (pk_i64 j = begin; j < begin + count; j++) {
          const pk_u64 key = (PK_KEY(PK_GET(p[j * a_step])) + bias) ^ invert;
          if (limited && key >= limit) continue;
          if (k <= PK_TOPK_FEW) {
            have = PK_NAME(insert)(my_keys, my_places, have, k, key, (pk_u32)j);
            limited = have == k;
            limit = my_keys[have - 1];
            continue;
          }
          my_keys[have] = key;
          my_places[have++] = (pk_u32)j;
          if (have < room) continue;
          limit = PK_NAME(keep)(my_keys, my_places, have, k);
          limited = 1;
          have = k;
        }
      }
      if (have > k) PK_NAME(keep)(my_keys, my_places, have, k);
      for (pk_i64 j = 0; j < k; j++) {
        keys[u * (pk_u64)k + (pk_u64)j] = j < have ? my_keys[j] : ~(pk_u64)0;
        places[u * (pk_u64)k + (pk_u64)j] = j < have ? my_places[j] : 0;
      }
    }
  }
}

PK_KERNEL(PK_NAME(choose), TOPK_CHOOSE_ARGS) {
  PK_ITEM(row, rows) {
    const pk_u64 from = row * (pk_u64)count, to = row * (pk_u64)k;
    PK_NAME(keep)(from_keys + from, from_places + from, count, k);
    for (pk_i64 j = 0; j < k; j++) {
      keys[to + (pk_u64)j] = from_keys[from + (pk_u64)j];
      places[to + (pk_u64)j] = from_places[from + (pk_u64)j];
    }
  }
}
#undef PK_TOPK_BLOCK
#undef PK_TOPK_FEW
