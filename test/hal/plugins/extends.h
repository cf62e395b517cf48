/* extends.h: extensions shared by the plugin extends.c and the tests. */
#ifndef TEST_HAL_EXTENDS_H_
#define TEST_HAL_EXTENDS_H_

#include <hal/plugin.h>

/* "test.counter", of the plugin: counts calls, and forwards to the host's "test.clock". */
typedef struct counter_extension_s {
  hal_extension_t extension;
  int64_t (*next)(void);
  hal_status_t (*host_time)(int64_t *out_time); /* HAL_NOT_FOUND = the host does not offer it */
} counter_extension_t;

/* "test.clock", of the host. */
typedef struct clock_extension_s {
  hal_extension_t extension;
  int64_t (*now)(void);
} clock_extension_t;

#endif /* TEST_HAL_EXTENDS_H_ */
