/* kernel_error.h: errors in values that only kernels see, such as an index out of range, reported once at the stream's next
 * synchronisation.
 *
 * A kernel that looks for such values gets the address of its stream's record in device memory (pk_error_t of
 * hal/kernels/pk_error.h). The first item that meets one claims the record and writes which; no item ever follows a bad
 * index. Functions that wait for a stream or an event, or query one, read the record back when such a kernel was launched
 * since the last time, so the others pay nothing. Private to hal/src. */
#ifndef HAL_SRC_KERNEL_ERROR_H_
#define HAL_SRC_KERNEL_ERROR_H_

#include "device/device.h"

/* Gives the address of the stream's record; all records of a device are made at the first call. */
hal_status_t hal_kernel_error_address(hal_stream_t *stream, void **out_address);

/* Tells whether an address is that of a stream's record: 1 or 0. */
int hal_kernel_error_holds(const hal_device_t *device, const void *address);

/* Tells, after a launch, that the stream's record may be written. On a stream without asynchronous work it is read at
 * once. Errors: as of hal_kernel_error_collect. */
HAL_MUST_USE hal_status_t hal_kernel_error_launched(hal_stream_t *stream);

/* How many such kernels the stream has been given: asked before waiting, or when an event is recorded. */
static inline uint64_t hal_kernel_error_mark(const hal_stream_t *stream) {
  return atomic_load_explicit(&stream->reporters, memory_order_acquire);
}

/* Ends a synchronisation, whose own status is `status`: the work up to `mark` is done. Errors: `status`, else what that
 * work met and no earlier call has told: HAL_OUT_OF_RANGE for an index or a class, HAL_INVALID_ARGUMENT for others. */
HAL_MUST_USE hal_status_t hal_kernel_error_collect(hal_stream_t *stream, uint64_t mark, hal_status_t status);

/* The marks of all streams of a device. */
typedef struct hal_kernel_error_marks_s {
  uint64_t mark[HAL_STREAMS_OF_DEVICE];
} hal_kernel_error_marks_t;
void hal_kernel_error_mark_all(hal_device_t *device, hal_kernel_error_marks_t *out_marks);

/* Frees the records of a device that does no more work. */
void hal_kernel_error_destroy(hal_device_t *device);

#endif /* HAL_SRC_KERNEL_ERROR_H_ */
