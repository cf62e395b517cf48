/* pk_error.h: reports of kernels about invalid values that the host has not read: an index out of range, a divisor of
 * 0. The kernel continues without them. The host reads the first report of a stream at the stream's next
 * synchronization (hal/src/device/kernel_error.h). */
#ifndef PK_ERROR_H_
#define PK_ERROR_H_

#include "pk_types.h"

#define PK_BAD_INDEX 0u       /* value: the index, bound: the size of the dimension */
#define PK_BAD_CLASS 1u       /* value: the target, bound: the number of classes */
#define PK_BAD_DIVISOR 2u     /* value: 0 */
#define PK_BAD_PROBABILITY 3u /* value: a float or a double, bound: its bytes */

#define PK_NO_PLACE 255         /* in a site: the kernel does not know the dimension */
#define PK_NO_OPERATOR 0xffffff /* in a site: the kernel does not belong to an operator of the list */

/* The first error of a stream. The item that changes `state` from 0 to 1 writes the other fields, then sets it to 2. */
typedef struct {
  pk_u32 state, kind;
  /* operator * 256 + dimension or argument; the upper 32 bits are the recorder's number for the caller's line */
  pk_i64 site;
  union {
    pk_i64 i64;
    float f32;
    pk_double f64;
  } value;
  pk_i64 bound;
} pk_error_t;

#if defined(PK_OPENCL)
PK_FN int pk_claim(PK_GLOBAL pk_u32 *word) { return atomic_cmpxchg((volatile __global uint *)word, 0u, 1u) == 0u; }
PK_FN void pk_publish(PK_GLOBAL pk_u32 *word) {
  mem_fence(CLK_GLOBAL_MEM_FENCE);
  (void)atomic_xchg((volatile __global uint *)word, 2u);
}
PK_FN void pk_raise(PK_GLOBAL float *flag) { (void)atomic_xchg((volatile __global float *)flag, 1.0f); }
#elif defined(PK_CUDA)
PK_FN int pk_claim(PK_GLOBAL pk_u32 *word) { return atomicCAS(word, 0u, 1u) == 0u; }
PK_FN void pk_publish(PK_GLOBAL pk_u32 *word) {
  __threadfence();
  (void)atomicExch(word, 2u);
}
PK_FN void pk_raise(PK_GLOBAL float *flag) { (void)atomicExch(flag, 1.0f); }
#else
PK_FN int pk_claim(PK_GLOBAL pk_u32 *word) {
  pk_u32 expected = 0;
  return __atomic_compare_exchange_n(word, &expected, 1u, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}
PK_FN void pk_publish(PK_GLOBAL pk_u32 *word) { __atomic_store_n(word, 2u, __ATOMIC_RELEASE); }
PK_FN void pk_raise(PK_GLOBAL float *flag) { /* several items may call it at once */
  float one = 1.0f;                          /* clang 14 accepts no constant */
  __atomic_store(flag, &one, __ATOMIC_RELAXED);
}
#endif

/* Reports a value whose type is `token` (i64, f32, f64), unless an earlier error is pending. */
#define PK_REPORT(token, error, what, where, number, limit) \
  do {                                                      \
    if (pk_claim(&(error)->state)) {                        \
      (error)->kind = (what);                               \
      (error)->site = (where);                              \
      (error)->value.token = (number);                      \
      (error)->bound = (limit);                             \
      pk_publish(&(error)->state);                          \
    }                                                       \
  } while (0)

/* ---- indices -----------------------------------------------------------------------------------------------------
 *
 * A kernel that reads indices gets their limit and the stream's error record, and calls pk_index for each: an invalid
 * index is reported and returns -1, for which the kernel accesses nothing. */

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

#endif /* PK_ERROR_H_ */
