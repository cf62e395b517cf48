/* host_malloc.h: host memory that may fail under fault injection (HAL_FAULT=host_malloc:N); all of the HAL's own
 * allocations use it. Private to hal/src. */
#ifndef HAL_SRC_HOST_MALLOC_H_
#define HAL_SRC_HOST_MALLOC_H_

#include <stddef.h>

void *hal_malloc(size_t size);
void *hal_calloc(size_t count, size_t size);
void hal_free(void *ptr);

/* Allocates with an alignment that is a power of two; NULL if there is no memory. Freed by hal_free. It is mem_alloc of
 * the host API. */
void *hal_malloc_aligned(size_t size, size_t alignment);

/* Makes the `calls`-th allocation from now on fail, once; 0 = none. */
void hal_malloc_fail_after(long calls);

#endif /* HAL_SRC_HOST_MALLOC_H_ */
