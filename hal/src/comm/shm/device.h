/* device.h: collectives on device memory that the host cannot access. Private to hal/src/comm/shm.
 *
 * Each rank has a region of device memory with its slots and the chunks of its channels, which the other ranks open
 * (hal_memory_share). Copies of the device and operators move and reduce the data. Counters, descriptions of calls and
 * failures are in host memory, as without a device. */
#ifndef HAL_SRC_COMM_SHM_DEVICE_H_
#define HAL_SRC_COMM_SHM_DEVICE_H_

#include "comm/shm/internal.h"
#include "hal/memory.h"

enum { HAL_SHM_REDUCTIONS = HAL_REDUCE_PREMUL_SUM + 1 };

/* A region, until its rank and all receivers have released it. */
typedef struct hal_shm_region_s {
  atomic_int references;
  hal_block_t *block;
} hal_shm_region_t;

struct hal_shm_device_s {
  int32_t device;
  hal_stream_t *stream; /* its own: no other work delays it */
  hal_shm_region_t *own;
  hal_block_t *opened[HAL_SHM_RANKS];
  unsigned char *regions[HAL_SHM_RANKS]; /* addresses in this process */
  uint64_t dtypes[HAL_SHM_REDUCTIONS];   /* for each reduction, the types that the devices of all ranks reduce */
};

/* ---- device.c ---- */

/* Shares regions of device memory among the ranks, for `device`; -1: this rank needs none. All ranks call it once,
 * between the same collectives. `*out` is NULL on all ranks if one needs or has none. Errors: those of
 * hal_shm_wait_counter. */
hal_status_t hal_shm_device_create(hal_shm_t *shm, int32_t device, hal_shm_device_t **out);
/* NULL is allowed. A peer that still uses this rank's region keeps it. */
void hal_shm_device_destroy(hal_shm_device_t *device);
/* Allocates memory for this rank's stream. */
hal_status_t hal_shm_device_allocate(const hal_shm_t *shm, uint64_t bytes, hal_block_t **out);

/* ---- device_reduce.c ---- */

/* Returns the types whose reduction the device implements: a mask (bit d = dtype number d). */
uint64_t hal_shm_device_dtypes(int32_t device, uint32_t reduce);

#endif /* HAL_SRC_COMM_SHM_DEVICE_H_ */
