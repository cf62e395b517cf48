/* kernel_error.h: errors in values that only kernels read, such as an index out of range, reported once by the stream's
 * next synchronization.
 *
 * A kernel that checks such values gets the address of its stream's record in device memory (pk_error_t of
 * hal/kernels/pk_error.h). The first item that finds an invalid value claims the record and writes it; no item accesses
 * memory at an invalid index. Functions that synchronize or query a stream or an event read the record back only if
 * such a kernel was launched since the last time. Private to hal/src. */
#ifndef HAL_SRC_KERNEL_ERROR_H_
#define HAL_SRC_KERNEL_ERROR_H_

#include "device/device.h"

/* Returns the address of the stream's record; the first call creates all records of a device. */
hal_status_t hal_kernel_error_address(hal_stream_t *stream, void **out_address);

/* Returns whether an address is that of a stream's record: 1 or 0. */
int hal_kernel_error_holds(const hal_device_t *device, const void *address);

/* Called after a launch that may write the stream's record. On a stream without asynchronous work it is read
 * immediately. Errors: those of hal_kernel_error_collect. */
HAL_MUST_USE hal_status_t hal_kernel_error_launched(hal_stream_t *stream);

/* Returns how many such kernels the stream has launched: called before waiting, or when an event is recorded. */
static inline uint64_t hal_kernel_error_mark(const hal_stream_t *stream) {
  return atomic_load_explicit(&stream->reporters, memory_order_acquire);
}

/* Ends a synchronization, whose own status is `status`: the work up to `mark` is done. Errors: `status`, else an error
 * of that work that no earlier call has reported: HAL_OUT_OF_RANGE for an index or a class, HAL_INVALID_ARGUMENT for
 * others. */
HAL_MUST_USE hal_status_t hal_kernel_error_collect(hal_stream_t *stream, uint64_t mark, hal_status_t status);

/* The marks of all streams of a device. */
typedef struct hal_kernel_error_marks_s {
  uint64_t mark[HAL_STREAMS_OF_DEVICE];
} hal_kernel_error_marks_t;
void hal_kernel_error_mark_all(hal_device_t *device, hal_kernel_error_marks_t *out_marks);

/* Frees the records of a device that runs no more work. */
void hal_kernel_error_destroy(hal_device_t *device);

#endif /* HAL_SRC_KERNEL_ERROR_H_ */
