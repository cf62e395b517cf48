/* pk_index.h: reading indices. A kernel that reads indices takes the limit of them and the stream's error record, and asks
 * pk_index for each: a bad index gives -1, with which the kernel touches nothing, and is reported by the host at the stream's
 * next synchronisation (hal/src/index_error.h). */
#ifndef PK_INDEX_H_
#define PK_INDEX_H_

/* The first bad index of a stream: whoever turns `claimed` from 0 to 1 writes the rest. */
typedef struct {
  pk_u32 claimed, reserved;
  pk_i64 site, index, bound;
} pk_index_error_t;

/* What an index may be: 0 .. bound - 1, or from -wrap on when it may count from the end (wrap = bound, else 0). `site` is
 * operator * 256 + dimension for the message, 0 = not reported; `step` is the distance of neighbouring indices in elements. */
typedef struct {
  pk_i64 bound, wrap, step, site;
} pk_index_limit_t;

#if defined(PK_OPENCL)
PK_FN int pk_claim(PK_GLOBAL pk_u32 *word) { return atomic_cmpxchg((volatile __global uint *)word, 0u, 1u) == 0u; }
#elif defined(PK_CUDA)
PK_FN int pk_claim(PK_GLOBAL pk_u32 *word) { return atomicCAS(word, 0u, 1u) == 0u; }
#else
PK_FN int pk_claim(PK_GLOBAL pk_u32 *word) {
  pk_u32 expected = 0;
  return __atomic_compare_exchange_n(word, &expected, 1u, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}
#endif

PK_FN pk_i64 pk_index(pk_i64 index, pk_index_limit_t limit, PK_GLOBAL pk_index_error_t *error) {
  const pk_i64 at = index < 0 ? index + limit.wrap : index;
  if ((pk_u64)at < (pk_u64)limit.bound) return at;
  if (limit.site && pk_claim(&error->claimed)) {
    error->site = limit.site;
    error->index = index;
    error->bound = limit.bound;
  }
  return -1;
}

#endif /* PK_INDEX_H_ */
