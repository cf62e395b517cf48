/* pk_index.h: reading indices. A kernel that reads indices gets their limit and the stream's error record, and calls
 * pk_index for each: an invalid index is reported (pk_error.h) and returns -1, for which the kernel accesses
 * nothing. */
#ifndef PK_INDEX_H_
#define PK_INDEX_H_

#include "pk_error.h"

/* The valid indices: 0 .. bound - 1, or from -wrap on if indices may count from the end (wrap = bound, else 0). `site`
 * is operator * 256 + dimension for the message, 0 = not reported; `step` is the distance of adjacent indices in
 * elements. */
typedef struct {
  pk_i64 bound, wrap, step, site;
} pk_index_limit_t;

PK_FN pk_i64 pk_index(pk_i64 index, pk_index_limit_t limit, PK_GLOBAL pk_error_t *error) {
  const pk_i64 at = index < 0 ? index + limit.wrap : index;
  if ((pk_u64)at < (pk_u64)limit.bound) return at;
  if (limit.site) PK_REPORT(i64, error, PK_BAD_INDEX, limit.site, index, limit.bound);
  return -1;
}

#endif /* PK_INDEX_H_ */
