/* process.h: other processes of this machine. Private to hal/src. */
#ifndef HAL_SRC_BASE_PROCESS_H_
#define HAL_SRC_BASE_PROCESS_H_

#include <stdint.h>

/* Returns when a process began, in clock ticks since the machine started. This and its number identify the process
 * uniquely. 0 = it has ended; -1 = unknown. */
int64_t hal_process_start(int32_t process);

#endif /* HAL_SRC_BASE_PROCESS_H_ */
