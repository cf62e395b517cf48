/* shm.h: collectives between the ranks of one host, in shared memory. Private to hal/src.
 *
 * Each communicator has one memfd, which all its ranks map. The file has no name, so nothing remains when the processes
 * end in any way. It has no locks: each word has one writer, and a rank claims the failure record by one
 * compare-and-swap. */
#ifndef HAL_SRC_COMM_SHM_SHM_H_
#define HAL_SRC_COMM_SHM_SHM_H_

#include "hal/comm.h"

enum { HAL_COMM_SHM_MAX_RANKS = 64 };

/* Joins the ranks of a communicator through the store, and creates the transport. All ranks call it, with the same name
 * and size. The store may have keys of an earlier attempt. A name may be used again after its communicator was created
 * on all ranks. Errors, the same on all ranks: HAL_UNIMPLEMENTED = a rank cannot open the shared memory of rank 0
 * (another host, pid namespace or user), use another transport; HAL_NOT_READY = ranks are missing at the deadline;
 * HAL_INVALID_ARGUMENT = the ranks differ in their size, or two have one number; HAL_INCOMPATIBLE = other versions of
 * this library; HAL_UNAVAILABLE = the store does not respond, or a rank has ended. */
hal_status_t hal_comm_shm_create(const hal_comm_store_t *store, const char *name, int32_t rank, int32_t size,
                                 int64_t timeout_ns, hal_comm_transport_t *out);

/* Shares device memory among the ranks, so that the transport moves the memory of `device` without copies to the host;
 * -1: this rank's device needs or has none. All ranks call it once, between the same collectives. It ignores another
 * transport. If a rank has no memory to share, collectives use host memory on all ranks. Errors: HAL_NOT_READY = a rank
 * is missing; HAL_UNAVAILABLE = a rank has ended. */
hal_status_t hal_comm_shm_use_device(const hal_comm_transport_t *transport, int32_t device, int64_t timeout_ns);

/* Returns whether hal_comm_shm_run_on_device runs a bracket of checked calls. The result is the same on all ranks. */
int hal_comm_shm_takes_device_memory(const hal_comm_transport_t *transport, const hal_collective_t *calls,
                                     uint32_t count);

/* Runs collectives whose pointers are device memory; otherwise as the transport's `run`. */
hal_status_t hal_comm_shm_run_on_device(const hal_comm_transport_t *transport, const hal_collective_t *calls,
                                        uint32_t count, int64_t timeout_ns);

#endif /* HAL_SRC_COMM_SHM_SHM_H_ */
