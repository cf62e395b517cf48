/* watch.h: devices are watched for events from their first use to their end. Private to hal/src. */
#ifndef HAL_SRC_DEVICE_WATCH_H_
#define HAL_SRC_DEVICE_WATCH_H_

#include "device/device.h"

/* Called when a device is ready: watches it if the program has a sink or the log shows events. A failure is logged. */
void hal_device_watch_begin(hal_device_t *device);

/* Called before the device ends; waits for a sink that is running. The caller holds no lock. */
void hal_device_watch_end(hal_device_t *device);

#endif /* HAL_SRC_DEVICE_WATCH_H_ */
