/* support.h: helpers shared by the tests of hal/. */
#ifndef TEST_HAL_SUPPORT_H_
#define TEST_HAL_SUPPORT_H_

#include <criterion/criterion.h>
#include <hal/hal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Returns how many random programs a test runs: HAL_TEST_PROGRAMS, or its own number. */
static inline uint64_t random_programs(uint64_t otherwise) {
  const char *const wanted = getenv("HAL_TEST_PROGRAMS");
  return wanted && *wanted ? strtoull(wanted, NULL, 10) : otherwise;
}

/* The file of a test plugin. */
#define FIXTURE(name) FIXTURE_DIR "/libhal_" name ".so"

/* The call must succeed; otherwise the test fails with the HAL's message. */
#define assert_ok(call)                                                                                \
  do {                                                                                                 \
    const hal_status_t status_ = (call);                                                               \
    cr_assert_eq(status_, HAL_OK, "%s: %s: %s", #call, hal_status_name(status_), hal_error_message()); \
  } while (0)

/* The call must fail with the code, and its message must contain the text. */
#define assert_fails(call, code, text)                                                                             \
  do {                                                                                                             \
    const hal_status_t status_ = (call);                                                                           \
    cr_assert_eq(status_, (code), "%s: %s instead of %s: %s", #call, hal_status_name(status_), #code,              \
                 hal_error_message());                                                                             \
    cr_assert_not_null(strstr(hal_error_message(), (text)), "message '%s' lacks '%s'", hal_error_message(), text); \
  } while (0)

/* Opens one test plugin. */
#define open_fixture(name) assert_ok(hal_registry_open(FIXTURE(name)))

#endif /* TEST_HAL_SUPPORT_H_ */
