/* profile_internal.h: functions with which the other components report their work to the profile. Private to
 * hal/src. */
#ifndef HAL_SRC_PROFILE_INTERNAL_H_
#define HAL_SRC_PROFILE_INTERNAL_H_

#include "device/device.h"
#include "hal/profile.h"

/* Number of bits of the numbers that callers pass. */
#define HAL_PROFILE_ID_BITS 48
#define HAL_PROFILE_ID_MASK ((UINT64_C(1) << HAL_PROFILE_ID_BITS) - 1)

/* In hal_profile_launch_t.op: the plugin's own op has submitted the work. */
#define HAL_PROFILE_OWN (UINT32_C(1) << 31)

/* One submission of work. */
typedef struct hal_profile_launch_s {
  uint64_t number;      /* 0 = unknown */
  uint64_t correlation; /* the caller's innermost number (hal_profile_push); 0 = none */
  int64_t start_ns, end_ns, thread;
  uint32_t op; /* 1 + the operator, 0 = none; and HAL_PROFILE_OWN */
} hal_profile_launch_t;

/* The number of the current profile; 0 = none is running. */
extern atomic_uint hal_profile_number;

static inline int hal_profile_is_on(void) {
  return HAL_UNLIKELY(atomic_load_explicit(&hal_profile_number, memory_order_relaxed) != 0);
}

/* Brackets of a call that may submit work outside of an operator: the launch lasts as long as the call. They nest.
 * `begin` does nothing without a profile; `end` does nothing without a `begin`. */
void hal_profile_begin_call(void);
void hal_profile_end_call(void);

/* Brackets of an operator's run; HAL_PROFILE_NO_OP = work of no operator; `end` takes the result of `begin`. */
#define HAL_PROFILE_NO_OP UINT32_MAX
uint32_t hal_profile_begin_op(uint32_t op);
void hal_profile_end_op(uint32_t outer);

/* Brackets of a call of the plugin's own op, within those of the operator. */
uint32_t hal_profile_begin_own(void);

/* Implements profile_correlation of the host API: the number for work that this thread submits now. */
uint64_t hal_profile_correlation(void);

/* Returns the thread's innermost number of hal_profile_push, 0 = none. */
uint64_t hal_profile_current_id(void);

/* Returns a stamp of that number and the profile, for work that is recorded now and submitted later. The second
 * function returns the number of a stamp; 0 = none, or of an earlier profile. */
uint64_t hal_profile_stamp(void);
uint64_t hal_profile_stamped_id(uint64_t stamp);

/* The table of launches: created with a profile, and freed after its end, when its records are read. Errors:
 * HAL_RESOURCE_EXHAUSTED. */
hal_status_t hal_profile_open_launches(void);
void hal_profile_drop_launches(void);
void hal_profile_launch_after_fork(void);

/* Returns the launch of a record's number, all zeros if there is none. */
hal_profile_launch_t hal_profile_find_launch(uint64_t correlation);

/* Adds the record of a collective, or of a kernel that the host computed, to a running profile, with struct_size as in
 * hal_profile_activity_t. `launch` is the number that hal_profile_correlation returned to the submitting thread; it
 * determines the launch fields of the record. Names are copied, at most 95 and 63 bytes. Any thread. profile_host.c. */
void hal_profile_add_timed(const hal_profile_activity_t *activity, uint64_t launch);

/* Reports and frees the records of hal_profile_host_op and hal_profile_add_timed; returns the number of those that
 * did not fit. profile_host.c. */
uint64_t hal_profile_read_host(hal_profile_fn_t fn, void *user_data);
void hal_profile_forget_host(void);
void hal_profile_host_after_fork(void);

/* Called under the lock of a device that has become ready: the device joins a running profile. */
void hal_profile_device_ready(hal_device_t *device);

/* Called in the child of a fork: no profile runs there. */
void hal_profile_after_fork(void);

/* Evaluates an expression that calls the plugin, between the brackets. */
#define HAL_PROFILE_CALL(expression)           \
  __extension__({                              \
    const int profiled_ = hal_profile_is_on(); \
    if (profiled_) hal_profile_begin_call();   \
    const hal_status_t status_ = (expression); \
    if (profiled_) hal_profile_end_call();     \
    status_;                                   \
  })

#endif /* HAL_SRC_PROFILE_INTERNAL_H_ */
