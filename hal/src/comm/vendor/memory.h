/* memory.h: memory that is registered with a library. Private to hal/src. */
#ifndef HAL_SRC_COMM_VENDOR_MEMORY_H_
#define HAL_SRC_COMM_VENDOR_MEMORY_H_

#include "comm/vendor/vendor.h"

/* Starts registering memory for a communicator that was connected with HAL_COMM_REGISTER_MEMORY, if the library can. */
void hal_comm_memory_begin(hal_comm_vendor_t *vendor);
/* Registers the segments that a call uses, before the library gets it. A refusal is logged. */
void hal_comm_memory_use(hal_comm_vendor_t *vendor, const hal_collective_t *call);
/* Called before the library's communicator is destroyed. */
void hal_comm_memory_end(hal_comm_vendor_t *vendor);

#endif /* HAL_SRC_COMM_VENDOR_MEMORY_H_ */
