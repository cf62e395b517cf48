/* Tests of hal/plugin_count.h: devices are counted in a separate process, which is a fresh program and not a fork of
 * this one. */
#include "support.h"

#include <plugin/call.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

static char file[] = "/tmp/hal-counts-XXXXXX";

static void begin(void) {
  const int descriptor = mkstemp(file);
  cr_assert_geq(descriptor, 0);
  close(descriptor);
  setenv("COUNTS_FILE", file, 1);
}
static void end(void) { unlink(file); }
TestSuite(count, .init = begin, .fini = end, .timeout = 60);

/* The number of counts, each in the helper. */
static int counts(void) {
  char line[1024];
  int times = 0;
  FILE *const log = fopen(file, "r");
  cr_assert_not_null(log);
  while (fgets(line, sizeof line, log)) {
    times++;
    cr_assert_neq(atol(line), (long)getpid(), "counted in the process itself");
    cr_assert_not_null(strstr(line, "/torch_backend_hal_helper\n"), "counted in %s", line);
  }
  fclose(log);
  return times;
}

Test(count, devices_are_counted_once_in_the_helper_program) {
  setenv("HAL_PLUGIN_TRIAL", "0", 1);
  open_fixture("counts");
  cr_assert_eq(hal_device_count(), 3);
  cr_assert_eq(counts(), 1);
  for (int i = 0; i < 2; i++) {
    int32_t count = -1;
    setenv("COUNTS_DOES", "none", 1); /* is not queried again */
    assert_ok(hal_call_device_count(&hal_registry.plugins[0], &count));
    cr_assert_eq(count, 3);
  }
  cr_assert_eq(counts(), 1);
}

Test(count, a_trial_of_the_plugin_counts_in_a_helper_of_its_own) {
  open_fixture("counts");
  cr_assert_eq(hal_device_count(), 3);
  assert_ok(hal_device_ensure(2));
  cr_assert_eq(counts(), 3, "the trials of loading and of the start, and this process");
}

Test(count, a_driver_without_devices_is_reported_in_its_own_words) {
  setenv("COUNTS_DOES", "none", 1);
  assert_fails(hal_registry_open(FIXTURE("counts")), HAL_UNAVAILABLE, "counts: no card is in any slot");
  cr_assert_eq(counts(), 2);
}

Test(count, a_driver_that_ends_the_helper_is_an_error_with_the_advice) {
  setenv("COUNTS_DOES", "crash", 1);
  assert_fails(hal_registry_open(FIXTURE("counts")), HAL_UNAVAILABLE,
               "a driver ended the process that counted the devices; look at it");
}
