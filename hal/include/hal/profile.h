/* profile.h: records of the work of devices: kernels, copies and fills with their times, streams and the operators that
 * submitted them.
 *
 *   hal_profile_start();
 *   ... work ...
 *   hal_profile_stop();
 *   hal_profile_read(print, NULL, &lost);
 *
 * There is one profile per process, over all devices. While none is running, an operator costs one additional load.
 * Times are those of the host's monotonic clock (CLOCK_MONOTONIC), converted from the device's clock. */
#ifndef HAL_PROFILE_H_
#define HAL_PROFILE_H_

#include "hal/api.h"
#include "hal/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

/* hal_profile_activity_t.stream of work without a stream: a synchronous copy or fill. */
#define HAL_PROFILE_NO_STREAM INT64_C(-1)

/* The implementation of the operator that submitted the work, a field of hal_profile_activity_t. Since 0.2. */
enum {
  HAL_PROFILE_BY_NONE = 0,     /* no operator: a plain copy or fill */
  HAL_PROFILE_BY_PLUGIN = 1,   /* the plugin's own op (op_find) */
  HAL_PROFILE_BY_PORTABLE = 2, /* a portable kernel, a copy or fill in its place, or the function of a library */
  HAL_PROFILE_BY_HOST = 3      /* the host's CPU; for HAL_PROFILE_HOST_OP only */
};

/* hal_profile_activity_t.kind of an operator that the host computed instead of the device (hal_profile_host_op). It is
 * not work of the device: its time is that of the host, with copies of operands. Since 0.2. */
#define HAL_PROFILE_HOST_OP UINT32_C(16)

/* hal_profile_activity_t.kind of collectives that ran together, or of one message (hal/comm.h). The time begins when
 * the operands are ready and ends when the copies of the results are queued; the copies have their own records. Since
 * 0.4. */
#define HAL_PROFILE_COLLECTIVE UINT32_C(17)

/* One piece of work that a device has done. The callback borrows all of it for the call. */
typedef struct hal_profile_activity_s {
  size_t struct_size;
  const char *name;         /* of the kernel; "copy" and "fill" if the plugin has none */
  const char *op;           /* the operator that submitted it, "name.overload"; "" = none, as for a plain copy */
  int64_t start_ns, end_ns; /* of the host's monotonic clock; start <= end */
  uint64_t correlation;     /* the innermost hal_profile_push of the thread that submitted it; 0 = none */
  uint64_t bytes; /* copied or filled; of collectives the larger of this rank's operands and results; 0 for kernels */
  int64_t stream; /* hal_stream_id, or HAL_PROFILE_NO_STREAM */
  int32_t device;
  uint32_t kind;      /* HAL_PROFILE_KERNEL, _COPY, _FILL, _RANGE, _HOST_OP or _COLLECTIVE */
  uint32_t direction; /* of a copy: HAL_COPY_*; else 0 */
  uint32_t answer;    /* HAL_PROFILE_BY_*; since 0.2 */
  uint32_t reserved;
  /* The call that submitted the work, since 0.2. Two records have the same number if the plugin has one number for
   * both. All fields are 0 if the launch is unknown: for HAL_PROFILE_HOST_OP, for a plugin that requests no number, and
   * for work submitted while 2^18 launches wait for hal_profile_read. */
  uint64_t launch;       /* its number in this process */
  int64_t launch_thread; /* gettid() of the thread that submitted it */
  /* Times of the host's monotonic clock; start <= end, and start <= start_ns within the error of the device's clock. */
  int64_t launch_start_ns, launch_end_ns;
  /* For HAL_PROFILE_COLLECTIVE, since 0.4: the communicator's name, the number of the work in it, and the number of its
   * ranks. */
  const char *group; /* NULL = no collective */
  uint64_t sequence;
  int32_t group_size;
  uint32_t reserved_too;
} hal_profile_activity_t;

typedef void (*hal_profile_fn_t)(void *user_data, const hal_profile_activity_t *activity); /* receives one record */

/* Begins a profile: devices in use, and those that are used later, record all work submitted from now on. Unread
 * records of an earlier profile are discarded. Errors: HAL_FAILED_PRECONDITION = a profile is running; a plugin's
 * failure, after which none is running. Since 0.1. */
HAL_API hal_status_t hal_profile_start(void);

/* Waits for the work submitted so far and ends the profile; its records remain for hal_profile_read. A failure of that
 * work is reported by the next synchronization. Errors: HAL_FAILED_PRECONDITION = no profile is running; a plugin's
 * failure. Since 0.1. */
HAL_API hal_status_t hal_profile_stop(void);

/* Returns whether a profile is running: 1 or 0. Since 0.1. */
HAL_API int32_t hal_profile_running(void);

/* Returns whether the device's plugin collects records: 1 or 0. Since 0.1. */
HAL_API int32_t hal_profile_supported(int32_t device);

/* Passes the records collected so far to `fn`, those of each stream in order, and frees them. It may be called while
 * the profile runs. `out_lost` (may be NULL) is the number of records that are missing because a device's buffer was
 * full; read more often, or configure a larger buffer. The thread holds no lock of the HAL while it calls `fn`. Records
 * for which the host has no memory count as lost. Since 0.1. */
HAL_API hal_status_t hal_profile_read(hal_profile_fn_t fn, void *user_data, uint64_t *out_lost);

/* Opens a bracket: work that this thread submits until hal_profile_pop has the number `correlation`, which is below
 * 2^48. Brackets nest; a pop without a push does nothing, and brackets of an earlier profile are discarded. Beyond 64
 * levels the 64th one is used. Without a running profile both do nothing. Errors: HAL_INVALID_ARGUMENT for 0 and
 * numbers from 2^48 on. Since 0.1. */
HAL_API hal_status_t hal_profile_push(uint64_t correlation);

/* Closes the innermost bracket of this thread. Since 0.1. */
HAL_API void hal_profile_pop(void);

/* Adds a record that the host computed the operator `op` for `device`, from `start_ns` to `end_ns` of the monotonic
 * clock, with the caller's innermost bracket. `op` is copied, at most 95 bytes. Without a running profile it does
 * nothing. The number of such records is limited, as for a device; hal_profile_read counts those that are lost.
 * Thread-safe. Errors: HAL_OUT_OF_RANGE for an invalid device; HAL_INVALID_ARGUMENT if the end precedes the start.
 * Since 0.2. */
HAL_API hal_status_t hal_profile_host_op(int32_t device, const char *op, int64_t start_ns, int64_t end_ns);

/* Begins a named range of the calling thread in the vendor's own tools, or ends the innermost one if `name` is NULL;
 * for the plugin of `device`. It calls the plugin whether or not a profile is running. Errors: as hal_device_ensure.
 * Since 0.1. */
HAL_API hal_status_t hal_profile_range(int32_t device, const char *name);

#ifdef __cplusplus
}
#endif
#endif /* HAL_PROFILE_H_ */
