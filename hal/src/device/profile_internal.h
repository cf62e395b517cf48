/* profile_internal.h: what the rest of the HAL tells the profile. Private to hal/src. */
#ifndef HAL_SRC_PROFILE_INTERNAL_H_
#define HAL_SRC_PROFILE_INTERNAL_H_

#include "device/device.h"
#include "hal/profile.h"

/* Of the 64 bits that a record carries, the caller's number. */
#define HAL_PROFILE_ID_BITS 48
#define HAL_PROFILE_ID_MASK ((UINT64_C(1) << HAL_PROFILE_ID_BITS) - 1)

/* The number of the running profile; 0 = none runs. */
extern atomic_uint hal_profile_number;

static inline int hal_profile_is_on(void) {
  return HAL_UNLIKELY(atomic_load_explicit(&hal_profile_number, memory_order_relaxed) != 0);
}

/* Brackets of an operator's run; `begin` gives what `end` takes. */
uint32_t hal_profile_begin_op(uint32_t op);
void hal_profile_end_op(uint32_t outer);

/* The same around a call of the plugin's own op, within the operator's. */
uint32_t hal_profile_begin_own(void);

/* The host's service to plugins: the number for work that this thread submits now. */
uint64_t hal_profile_correlation(void);

/* Hands over what hal_profile_host_op left and forgets it; gives the number of those that found no room. profile_host.c. */
uint64_t hal_profile_read_host(hal_profile_fn_t fn, void *user_data);
void hal_profile_forget_host(void);
void hal_profile_host_after_fork(void);

/* A device has become ready: it joins a running profile. Called under the device's lock. */
void hal_profile_device_ready(hal_device_t *device);

/* In the child of a fork: no profile runs. */
void hal_profile_after_fork(void);

#endif /* HAL_SRC_PROFILE_INTERNAL_H_ */
