/* ipc_handle.h: passes a handle of ipc_export or event_ipc_export to another process. */
#ifndef TEST_HAL_IPC_HANDLE_H_
#define TEST_HAL_IPC_HANDLE_H_

#include <stddef.h>

typedef struct ipc_handle_s {
  size_t size;
  unsigned char bytes[128];
} ipc_handle_t;

#endif /* TEST_HAL_IPC_HANDLE_H_ */
