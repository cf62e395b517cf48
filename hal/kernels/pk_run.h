/* pk_run.h: contiguous operands on devices with many threads. An item computes a run of adjacent elements, as many as
 * PK_RUN_BYTES hold of the widest operand, which are loaded and stored at once. If addresses do not allow that, it
 * computes as many elements at such distances that adjacent items still read adjacent elements. Launchers count items
 * by hal_op_run_items (op/launch.h). */
#ifndef PK_RUN_H_
#define PK_RUN_H_

#define PK_RUN_BYTES 16
/* Elements of a run. */
#define PK_RUN_LENGTH(size) ((size) < PK_RUN_BYTES ? PK_RUN_BYTES / (size) : 1)

#if defined(PK_OPENCL) || defined(PK_CUDA)
#define PK_WIDER(x, y) (sizeof(x) > sizeof(y) ? sizeof(x) : sizeof(y))
#if defined(PK_CUDA)
#define PK_ALIGNED(bytes) __align__(bytes)
#define PK_ADDRESS(p) ((pk_u64)(p))
#else
#define PK_ALIGNED(bytes) __attribute__((aligned(bytes)))
#define PK_ADDRESS(p) ((uintptr_t)(p))
#endif
/* A run of `length` elements; assigning it is one load or store. */
#define PK_RUN_TYPE(type, name, length)                \
  typedef struct PK_ALIGNED((length) * sizeof(type)) { \
    type x[length];                                    \
  } name;
#define PK_RUN_AT(name, p, i) (((PK_GLOBAL name *)(p))[i])
#define PK_RUN_OF(name, p, i) (((PK_GLOBAL const name *)(p))[i])
/* Stores a run of PK_RUN_BYTES in loops, where NVRTC compiles an assignment to one store per element. */
#if defined(PK_CUDA)
PK_FN void pk_store_words(void *p, uint4 words) {
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};"
               :
               : "l"(__cvta_generic_to_global(p)), "r"(words.x), "r"(words.y), "r"(words.z), "r"(words.w)
               : "memory");
}
#define PK_RUN_STORE(name, p, run)    \
  {                                   \
    union {                           \
      name run_;                      \
      uint4 words;                    \
    } pk_made;                        \
    pk_made.run_ = run;               \
    pk_store_words(p, pk_made.words); \
  }
#else
#define PK_RUN_STORE(name, p, run) PK_RUN_AT(name, p, 0) = run;
#endif

/* Statements for runs of n elements: `whole` is executed for run i, and e counts its elements in PK_RUN_EACH(e,
 * length); `element` is executed for element j. `addresses` are those of all operands, joined by |. */
#define PK_RUN_ITEMS(i, j, n, length, addresses, whole, element)             \
  const pk_u64 pk_items = ((n) + (length)-1) / (length);                     \
  const int pk_even = ((addresses) & (PK_RUN_BYTES - 1)) == 0;               \
  PK_ITEM(i, pk_items) {                                                     \
    if (pk_even && (i) * (length) + (length) <= (n)) {                       \
      whole                                                                  \
    } else {                                                                 \
      const pk_u64 pk_step = pk_even ? 1 : pk_items;                         \
      pk_u64 j = pk_even ? (i) * (length) : (i);                             \
      for (int pk_e = 0; pk_e < (length) && j < (n); pk_e++, j += pk_step) { \
        element                                                              \
      }                                                                      \
    }                                                                        \
  }
/* Statements for the n elements at p and the items l of a group, from element k on; runs begin where p + k is a
 * multiple of PK_RUN_BYTES. `shifts`: the distances of further operands from p, joined by |; if they are not such
 * multiples there are no runs. With the same `shifts` each element belongs to the same item. A PK_EACH region. */
#define PK_RUN_ALONG(l, k, p, n, length, shifts, whole, element)                                      \
  PK_EACH(l) {                                                                                        \
    const pk_i64 pk_ahead = (pk_i64)((0 - PK_ADDRESS(p)) % PK_RUN_BYTES / (PK_RUN_BYTES / (length))); \
    const pk_i64 pk_head = (shifts) % PK_RUN_BYTES || pk_ahead > (n) ? (n) : pk_ahead;                \
    const pk_i64 pk_tail = pk_head + ((n)-pk_head) / (length) * (length);                             \
    for (pk_i64 k = pk_head + l * (length); k < pk_tail; k += PK_LSIZE * (length)) {                  \
      whole                                                                                           \
    }                                                                                                 \
    for (pk_i64 pk_k = l; pk_k < pk_head + (n)-pk_tail; pk_k += PK_LSIZE) {                           \
      const pk_i64 k = pk_k < pk_head ? pk_k : pk_k - pk_head + pk_tail;                              \
      element                                                                                         \
    }                                                                                                 \
  }
#define PK_RUN_EACH(e, length) PK_UNROLLED for (int e = 0; e < (length); e++)
#endif

#endif /* PK_RUN_H_ */
