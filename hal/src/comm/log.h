/* log.h: the log of collectives, a ring of the last works of the process. Private to hal/src/comm. */
#ifndef HAL_SRC_COMM_LOG_H_
#define HAL_SRC_COMM_LOG_H_

#include "hal/comm.h"

/* Adds a work to the log. Returns its number, 0 if there is none. */
uint64_t hal_comm_log_add(const hal_comm_entry_t *entry, int64_t timeout_ns);
/* Adds a work that the caller describes only by its calls (log_calls.c). */
uint64_t hal_comm_log_calls(hal_comm_t *comm, const hal_collective_t *calls, uint32_t count, uint64_t sequence,
                            int64_t timeout_ns);
/* Record that the work's operands are ready, and that all of it has ended. They do nothing if the entry was
 * overwritten. */
void hal_comm_log_start(uint64_t number);
/* Does the same for a work that a vendor's library runs. The entry has the library's name instead of Gloo, if torch's
 * analyzer of dumps knows that name. */
void hal_comm_log_start_library(uint64_t number, const char *library);
void hal_comm_log_end(uint64_t number, hal_status_t status);
/* Writes the file of hal_comm_log_configure, if one is set. Keeps the thread's error. */
void hal_comm_log_failure(void);

#endif /* HAL_SRC_COMM_LOG_H_ */
