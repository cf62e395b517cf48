/* host_malloc.h: the aligned form of hal_malloc, and its fault injection. Private to hal/src. */
#ifndef HAL_SRC_HOST_MALLOC_H_
#define HAL_SRC_HOST_MALLOC_H_

#include <stddef.h>

/* Allocates with an alignment that is a power of two; NULL when there is no memory. Freed by hal_free. This is
 * mem_alloc of the host API. */
void *hal_malloc_aligned(size_t size, size_t alignment);

/* Makes the `calls`-th allocation from now on fail, once; 0 = none. */
void hal_malloc_fail_after(long calls);

#endif /* HAL_SRC_HOST_MALLOC_H_ */
