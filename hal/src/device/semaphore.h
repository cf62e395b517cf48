/* semaphore.h: timeline semaphores of a device's plugin (group SEMAPHORE). Private to hal/src.
 *
 * Only semaphores that the plugin implements: a stream that waits for one occupies no thread of the host. The default
 * is a host function that waits, which may block the host functions of other streams. */
#ifndef HAL_SRC_DEVICE_SEMAPHORE_H_
#define HAL_SRC_DEVICE_SEMAPHORE_H_

#include "device/device.h"

typedef struct hal_semaphore_s hal_semaphore_t;

/* Creates a semaphore with value 0. Destroyed by hal_semaphore_destroy. Errors: HAL_UNIMPLEMENTED, without a message =
 * the plugin does not implement semaphores, or its device is not asynchronous; as hal_device_ensure; the plugin's. */
hal_status_t hal_semaphore_create(int32_t device, hal_semaphore_t **out_semaphore);

/* Destroys it; queued signals and waits stay valid. NULL is allowed. */
void hal_semaphore_destroy(hal_semaphore_t *semaphore);

/* Raises the value now, or when the work queued so far on the stream is done. */
hal_status_t hal_semaphore_set(hal_semaphore_t *semaphore, uint64_t value);
hal_status_t hal_stream_signal_semaphore(hal_stream_t *stream, hal_semaphore_t *semaphore, uint64_t value);

/* Makes later work of a stream of the same plugin wait until the semaphore is at least `value`. Deferred work of the
 * stream is launched. Errors: HAL_FAILED_PRECONDITION = the stream is recorded; the plugin's. */
hal_status_t hal_stream_wait_semaphore(hal_stream_t *stream, hal_semaphore_t *semaphore, uint64_t value);

#endif /* HAL_SRC_DEVICE_SEMAPHORE_H_ */
