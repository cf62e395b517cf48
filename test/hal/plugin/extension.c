/* Tests of extensions: functions that plugin and host offer each other in addition to the slots. */
#include "plugins/extends.h"
#include "support.h"

static void open_and_start(const char *path) {
  assert_ok(hal_registry_open(path));
  assert_ok(hal_device_ensure(0));
}

static const hal_extension_t *find(const char *name, size_t least) {
  const hal_extension_t *found = NULL;
  return hal_registry_extension(0, name, least, &found) ? NULL : found;
}

static int64_t now(void) { return 4711; }
static clock_extension_t own_clock = {{HAL_STRUCT_SIZE(clock_extension_t, now), "test.clock", NULL}, now};

Test(extension, a_plugins_functions_are_found_by_name_and_size_and_called) {
  open_and_start(FIXTURE("extends"));
  const counter_extension_t *const counter =
      (const counter_extension_t *)(const void *)find("test.counter", HAL_STRUCT_SIZE(counter_extension_t, host_time));
  cr_assert_not_null(counter);
  cr_assert_eq(counter->next(), 1);
  cr_assert_eq(counter->next(), 2);
  cr_assert_not_null(find("test.other", sizeof(hal_extension_t)));
}

Test(extension, names_that_only_begin_alike_unknown_names_and_older_structs_are_not_found) {
  const hal_extension_t *found = NULL;
  open_and_start(FIXTURE("extends"));
  cr_assert_null(find("test.count", 0));
  cr_assert_null(find("test.counters", 0));
  cr_assert_null(find("", 0));
  assert_fails(hal_registry_extension(0, "test.counter", sizeof(counter_extension_t) + 8, &found), HAL_NOT_FOUND,
               "plugin extends does not offer the extension 'test.counter' of 48 bytes or more");
  assert_fails(hal_registry_extension(1, "test.counter", 0, &found), HAL_OUT_OF_RANGE, "plugin 1");
  assert_fails(hal_registry_extension(0, NULL, 0, &found), HAL_INVALID_ARGUMENT, "name");
  cr_assert_null(found);
}

Test(extension, a_plugin_without_extensions_has_none_and_one_that_has_not_started_is_refused) {
  const hal_extension_t *found = NULL;
  open_fixture("five");
  assert_fails(hal_registry_extension(0, "test.counter", 0, &found), HAL_FAILED_PRECONDITION, "use one of its devices");
  assert_ok(hal_device_ensure(0));
  cr_assert_null(find("test.counter", 0));
}

Test(extension, a_plugin_sees_what_the_host_offers) {
  int64_t time = 0;
  assert_ok(hal_registry_offer(&own_clock.extension));
  open_and_start(FIXTURE("extends"));
  const counter_extension_t *const counter = (const counter_extension_t *)(const void *)find("test.counter", 0);
  cr_assert_not_null(counter);
  cr_assert_eq(counter->host_time(&time), HAL_OK);
  cr_assert_eq(time, 4711);
}

Test(extension, without_an_offer_a_plugin_finds_nothing_of_the_host) {
  int64_t time = 0;
  open_and_start(FIXTURE("extends"));
  const counter_extension_t *const counter = (const counter_extension_t *)(const void *)find("test.counter", 0);
  cr_assert_not_null(counter);
  cr_assert_eq(counter->host_time(&time), HAL_NOT_FOUND);
}

Test(extension, offers_without_a_point_or_size_twice_or_too_late_are_refused) {
  hal_extension_t plain = {sizeof plain, "plain", NULL}, small = {8, "test.small", NULL};
  hal_extension_t late = {sizeof late, "test.late", NULL}, twin = {sizeof twin, "test.clock", NULL};
  assert_ok(hal_registry_offer(&own_clock.extension));
  assert_fails(hal_registry_offer(&plain), HAL_INVALID_ARGUMENT, "invalid extension 'plain'");
  assert_fails(hal_registry_offer(&small), HAL_INVALID_ARGUMENT, "struct_size");
  assert_fails(hal_registry_offer(&twin), HAL_INVALID_ARGUMENT, "two have the same name");
  assert_fails(hal_registry_offer(NULL), HAL_INVALID_ARGUMENT, "the extension is NULL");
  open_fixture("five");
  assert_fails(hal_registry_offer(&late), HAL_FAILED_PRECONDITION, "before hal_registry_open");
}

Test(extension, a_chain_that_names_two_alike_is_the_plugins_fault) {
  const hal_extension_t *found = NULL;
  open_and_start(FIXTURE("extends_twice"));
  assert_fails(hal_registry_extension(0, "test.other", 0, &found), HAL_INTERNAL, "two have the same name");
  cr_assert_null(found);
}
