/* thread.h: threads of the HAL. Private to hal/src. */
#ifndef HAL_SRC_THREAD_H_
#define HAL_SRC_THREAD_H_

#include <pthread.h>

/* Starts a thread that blocks all signals, because the program's own threads handle them. `out_thread` NULL: the thread
 * is detached. Returns 0, or the error number of pthread_create. Any thread. */
int hal_thread_start(pthread_t *out_thread, void *(*run)(void *), void *data);

#endif /* HAL_SRC_THREAD_H_ */
