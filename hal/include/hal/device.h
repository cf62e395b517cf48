/* device.h: devices of all active plugins under one numbering, and the calling thread's current device. */
#ifndef HAL_DEVICE_H_
#define HAL_DEVICE_H_

#include "hal/api.h"
#include "hal/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Returns the number of devices; 0 before hal_registry_open. Initializes nothing. Since 0.1. */
HAL_API int32_t hal_device_count(void);

/* Describes a device. The caller sets `out_info->struct_size`. Initializes the plugin, but uses no memory of the
 * device. The fields from numa_node on may take some milliseconds; a caller that does not need them sets `struct_size`
 * to end before them. If the plugin reports a PCI address but no NUMA node, the HAL reads the node from the system.
 * Errors: HAL_OUT_OF_RANGE, with the index and the number of devices; those of init. Since 0.1. */
HAL_API hal_status_t hal_device_info(int32_t device, hal_device_info_t *out_info);

/* Returns the device's HAL_DEVICE_* flags, 0 for an index out of range. The flags are cached. Since 0.1. */
HAL_API uint64_t hal_device_flags(int32_t device);

/* Returns the plugin index and the plugin's own ordinal of a device. Errors: HAL_OUT_OF_RANGE. Since 0.1. */
HAL_API hal_status_t hal_device_locate(int32_t device, int32_t *out_plugin, int32_t *out_ordinal);

/* Initializes a device and, at its first use, its plugin. Every function that needs a device calls it. Errors:
 * HAL_OUT_OF_RANGE; HAL_UNAVAILABLE; HAL_FAILED_PRECONDITION in a forked child of a process that had initialized the
 * plugin. Since 0.1. */
HAL_API hal_status_t hal_device_ensure(int32_t device);

/* Returns whether this process has initialized the device: 1 or 0. Since 0.1. */
HAL_API int32_t hal_device_is_initialized(int32_t device);

/* Returns whether this process is a forked child of one that had initialized a plugin: 1 or 0. Since 0.1. */
HAL_API int32_t hal_device_in_bad_fork(void);

/* Returns the calling thread's current device. Default: 0. Since 0.1. */
HAL_API int32_t hal_device_current(void);

/* Sets the calling thread's current device. Errors: HAL_OUT_OF_RANGE, with the index and the number of devices. Since
 * 0.1. */
HAL_API hal_status_t hal_device_set_current(int32_t device);

/* Sets the current device and returns the previous one; ignores an index out of range. For destructors, which must not
 * fail. Since 0.1. */
HAL_API int32_t hal_device_exchange(int32_t device);

/* Waits until all work of all streams of the device is done. Errors: the asynchronous failure of one stream, reported
 * once; call again for the others. Since 0.1. */
HAL_API HAL_MUST_USE hal_status_t hal_device_synchronize(int32_t device);

/* Ends this process's use of a device. Waits for its work and frees what the HAL holds for it: cached memory, kernels
 * and the handles of streams. Then the driver releases the rest, such as its context. If the driver can, a lost device
 * (HAL_UNAVAILABLE) works again afterwards. The next use initializes the device again, with limits, statistics and
 * compilers as at the first use. Streams and generators remain valid; kernels of hal_kernel_compile do not. Does
 * nothing for a device that was not used. Other users of the driver in the process, such as the vendor's libraries,
 * lose their state on the device. Failures of work that were not reported yet are logged. No other thread may use the
 * device during the call. Errors that change nothing: HAL_FAILED_PRECONDITION = blocks of memory, events, modules,
 * programs or other objects of the device exist (the message has their number), or a profile is running;
 * HAL_UNIMPLEMENTED = the plugin does not reset devices; HAL_OUT_OF_RANGE. Also HAL_UNAVAILABLE = the driver does not
 * initialize the device again in this process. Since 0.4. */
HAL_API hal_status_t hal_device_reset(int32_t device);

/* Sets `*out_accessible` to 1 if `device` can access memory of `peer` directly, else to 0. Errors: HAL_OUT_OF_RANGE.
 * Since 0.1. */
HAL_API hal_status_t hal_device_can_access_peer(int32_t device, int32_t peer, int32_t *out_accessible);

/* Lets kernels of `device` access memory of `peer` from now on; a second call, and `peer` equal to `device`, are
 * HAL_OK. Copies need no such call. Errors: HAL_UNIMPLEMENTED = the devices cannot (hal_device_can_access_peer), or
 * are of two plugins; HAL_OUT_OF_RANGE; the plugin's. Since 0.5. */
HAL_API hal_status_t hal_device_enable_peer(int32_t device, int32_t peer);

#ifdef __cplusplus
}
#endif
#endif /* HAL_DEVICE_H_ */
