/* arithmetic.h: reductions over the ranks' elements. Private to hal/src/comm/shm.
 *
 * Elements are combined in the order of the ranks and rounded once. Accumulators are float for the 16-bit types, and of
 * the element's type otherwise. So the bits of a result do not depend on how the elements are divided among calls. */
#ifndef HAL_SRC_COMM_SHM_ARITHMETIC_H_
#define HAL_SRC_COMM_SHM_ARITHMETIC_H_

#include <stddef.h>

#include "hal/comm.h"

/* Computes acc = a op x for `count` numbers. */
typedef void (*hal_shm_step_t)(void *acc, const void *a, const void *x, size_t count);

/* Sums of a type whose accumulators are wider, fused with the conversions. */
typedef struct hal_shm_fused_s {
  hal_shm_step_t first; /* an accumulator of two elements */
  hal_shm_step_t next;  /* an accumulator of an accumulator and an element */
  hal_shm_step_t last;  /* an element of an accumulator and an element */
  hal_shm_step_t only;  /* an element of two elements */
} hal_shm_fused_t;

/* Functions for `count` numbers; a complex element is two. */
typedef struct hal_shm_arithmetic_s {
  void (*load)(void *acc, const void *in, size_t count);   /* NULL: an accumulator is an element */
  void (*store)(void *out, const void *acc, size_t count); /* NULL: an element is an accumulator */
  hal_shm_step_t step;                                     /* on accumulators */
  hal_shm_fused_t fused;                                   /* no functions if there are none */
  void (*scale)(void *acc, const void *factor, size_t count);
  void (*divide)(void *acc, size_t by, size_t count);
} hal_shm_arithmetic_t;

typedef struct hal_shm_reducer_s {
  hal_shm_arithmetic_t arithmetic; /* no `scale` and `divide` if the reduction has none */
  uint32_t size;                   /* bytes of an element in memory */
  uint32_t wide;                   /* bytes of an element's accumulator */
  uint32_t numbers;                /* of an element: 2 for complex types */
} hal_shm_reducer_t;

/* Returns whether a reduction of a type is implemented. */
int hal_shm_reducer_find(hal_dtype_t dtype, uint32_t reduce, hal_shm_reducer_t *out);

/* Returns which reductions of a type are implemented, for error messages. */
const char *hal_shm_reducer_supported(hal_dtype_t dtype);

enum { HAL_SHM_INPUTS = 64 }; /* at most, and at least 2 */

/* Reduces `count` elements of `ranks` inputs. `scales`: an address for each rank, for reducers with `scale`. `out` may
 * be exactly one of the inputs. `copy` is NULL, or memory for a second copy of the result. */
void hal_shm_reduce(const hal_shm_reducer_t *reducer, const void *const *in, const void *const *scales, int32_t ranks,
                    size_t count, void *out, void *copy);

#endif /* HAL_SRC_COMM_SHM_ARITHMETIC_H_ */
