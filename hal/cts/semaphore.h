/* semaphore.h: common functions of the cases of timeline semaphores. Private to hal/cts. */
#ifndef HAL_CTS_SEMAPHORE_H_
#define HAL_CTS_SEMAPHORE_H_

#include "cts.h"

hal_plugin_semaphore_t *cts_semaphore(cts_t *t, uint64_t value, uint32_t flags);
/* Fails if the value differs. */
void cts_semaphore_check(cts_t *t, hal_plugin_semaphore_t *semaphore, uint64_t expected, const char *when);
/* Sets the semaphore from another thread, once the caller is in its next call, and `*out_set` before that. */
void cts_semaphore_set_later(cts_t *t, hal_plugin_semaphore_t *semaphore, uint64_t value, atomic_int **out_set);

#endif /* HAL_CTS_SEMAPHORE_H_ */
