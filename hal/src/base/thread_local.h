/* thread_local.h: thread-local data that every operator reads. Private to hal/src. */
#ifndef HAL_SRC_THREAD_LOCAL_H_
#define HAL_SRC_THREAD_LOCAL_H_

/* A few bytes for each use: read without a call, they lie in memory of which a process has little for libraries that are loaded while it
 * runs. The same on declaration and definition. */
#define HAL_FAST_THREAD_LOCAL _Thread_local __attribute__((tls_model("initial-exec")))

#endif /* HAL_SRC_THREAD_LOCAL_H_ */
