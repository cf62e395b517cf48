/* index_error.h: indices out of range that kernels met, reported once at the stream's next synchronisation.
 *
 * A kernel that reads indices gets the address of its stream's record in device memory (pk_index_error_t of
 * hal/kernels/pk_index.h). The first item that meets a bad index claims the record and writes which; no item ever
 * follows a bad index. Functions that synchronise or query a stream read the record back when such a kernel was launched
 * since the last time, so the others pay nothing. Private to hal/src. */
#ifndef HAL_SRC_INDEX_ERROR_H_
#define HAL_SRC_INDEX_ERROR_H_

#include "runtime.h"

/* Gives the address of the stream's record; all records of a device are made at the first call. */
hal_status_t hal_index_error_address(hal_stream_t *stream, void **out_address);

/* Tells, after a launch, that the stream's record may be written. On a stream without asynchronous work it is read at
 * once. Errors: HAL_OUT_OF_RANGE, as below. */
hal_status_t hal_index_error_launched(hal_stream_t *stream);

/* Encloses a synchronisation: `begin` before it, `end` with its status after it. `end` gives HAL_OUT_OF_RANGE with the
 * operator, the index and the bound when the synchronised work met a bad index, else `status`. */
int hal_index_error_begin(hal_stream_t *stream);
hal_status_t hal_index_error_end(hal_stream_t *stream, int pending, hal_status_t status);

/* The same for all streams of a device. */
typedef struct hal_index_error_set_s {
  uint64_t pending[(1 + HAL_STREAM_POOLS * HAL_STREAMS_PER_POOL + 63) / 64];
} hal_index_error_set_t;
void hal_index_error_begin_all(hal_device_t *device, hal_index_error_set_t *out_set);
hal_status_t hal_index_error_end_all(hal_device_t *device, const hal_index_error_set_t *set, hal_status_t status);

/* Frees the records of a device that does no more work. */
void hal_index_error_destroy(hal_device_t *device);

#endif /* HAL_SRC_INDEX_ERROR_H_ */
