/* clock.h: the clock for durations. Private to hal/src. Define _POSIX_C_SOURCE before including it. */
#ifndef HAL_SRC_CLOCK_H_
#define HAL_SRC_CLOCK_H_

#include <stdint.h>
#include <time.h>

/* Returns the time in nanoseconds since a fixed moment before the process started; never decreases. */
static inline int64_t hal_clock_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

#endif /* HAL_SRC_CLOCK_H_ */
