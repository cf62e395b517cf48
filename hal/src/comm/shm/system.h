/* system.h: the system calls of shared-memory collectives, which a test can make fail. Private to hal/src/comm/shm. */
#ifndef HAL_SRC_COMM_SHM_SYSTEM_H_
#define HAL_SRC_COMM_SHM_SYSTEM_H_

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "hal/comm.h"

/* Makes the `calls`-th of the calls below, counted from now on, fail once; 0 = none. Returns whether the previous
 * setting has not failed yet. */
int hal_shm_fail_after(long calls);

/* Creates a file without a name, of `bytes` bytes, which cannot shrink. Returns its descriptor; -1 and errno on
 * failure. */
int hal_shm_file_create(size_t bytes);

/* Opens a file of another process, which is a memory file of at least `bytes`. Returns its descriptor; -1 and
 * errno on failure. */
int hal_shm_file_open(int32_t pid, int32_t file, size_t bytes);

/* Maps a file. Returns NULL and errno on failure. */
void *hal_shm_map(int file, size_t bytes);

/* Fills with random bytes. Returns 0, or -1 and errno. */
int hal_shm_random(void *out, size_t bytes);

/* Returns the pid of this process as /proc shows it, or -1 and errno. */
int32_t hal_shm_own_pid(void);

/* Returns a number of the pid namespace of this process, 0 where it is unknown. */
uint64_t hal_shm_pid_namespace(void);

/* Returns the time at which a process has started, in ticks; 0 when it has ended or cannot be seen. A process
 * that its parent has not waited for has ended, too. -1 where /proc cannot be read now. */
int64_t hal_shm_process_start(int32_t pid);

/* Returns the number of processors that this thread may use, at least 1. */
int hal_shm_processors(void);

/* Sleeps while `*word` is `value`, at most `timeout_ns`. May return at any time. */
void hal_shm_sleep(_Atomic uint32_t *word, uint32_t value, int64_t timeout_ns);

/* Wakes all threads that sleep on `word`, in all processes. */
void hal_shm_wake(_Atomic uint32_t *word);

/* Call the functions of the store, and set a message if the store has set none. */
hal_status_t hal_shm_store_set(const hal_comm_store_t *store, const char *key, const void *value, size_t size);
hal_status_t hal_shm_store_get(const hal_comm_store_t *store, const char *key, int64_t timeout_ns, void *out,
                               size_t capacity, size_t *out_size);

#endif /* HAL_SRC_COMM_SHM_SYSTEM_H_ */
