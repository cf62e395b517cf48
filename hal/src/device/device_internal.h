/* device_internal.h: the life of a device, for the registry. Private to hal/src. */
#ifndef HAL_SRC_DEVICE_INTERNAL_H_
#define HAL_SRC_DEVICE_INTERNAL_H_

#include "device/runtime.h"

/* Registers what happens in a forked child; once per process. */
void hal_device_watch_forks(void);

/* Waits for the work of a device that was used, and ends what waited for it. */
void hal_device_drain(hal_device_t *device);

/* Destroys what a device owns. Called once per device, by hal_registry_close, when all devices are drained: memory of one
 * may wait for streams of another. */
void hal_device_close(hal_device_t *device);

/* Fails with HAL_OUT_OF_RANGE, naming the index and the devices there are. */
hal_status_t hal_device_out_of_range(int32_t device);

/* Gives the device when it was used, NULL when it was not; starts nothing. For questions about a device that its use alone
 * gives answers to. Errors: HAL_OUT_OF_RANGE. */
hal_status_t hal_device_used(int32_t device, hal_device_t **out_device);

/* Destroys the device's streams: stream.c. */
void hal_stream_destroy_all(hal_device_t *device);

/* Makes the device's default stream: stream.c. */
hal_status_t hal_stream_create_default(hal_device_t *device);

#endif /* HAL_SRC_DEVICE_INTERNAL_H_ */
