/* timed.h: for stress programs with a time limit: HAL_TEST_SECONDS, 1 by default. */
#ifndef TEST_HAL_STRESS_TIMED_H_
#define TEST_HAL_STRESS_TIMED_H_

#include <stdint.h>
#include <stdlib.h>
#include <time.h>

/* Returns the time of the monotonic clock, in seconds. */
static inline double timed_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Returns the time at which the program must end. Called once, at the beginning. */
static inline double timed_end(void) {
  const char *const seconds = getenv("HAL_TEST_SECONDS");
  return timed_now() + (seconds && *seconds ? strtod(seconds, NULL) : 1);
}

/* Returns the next number of a sequence that starts with `*state`, which is not 0. */
static inline uint64_t timed_random(uint64_t *state) {
  *state ^= *state >> 12, *state ^= *state << 25, *state ^= *state >> 27;
  return *state * UINT64_C(2685821657736338717);
}

#endif /* TEST_HAL_STRESS_TIMED_H_ */
