/* Tests of status.h: status codes, and one message per thread. */
#include "support.h"

#include <pthread.h>

Test(status, every_code_has_its_name) {
  cr_assert_str_eq(hal_status_name(HAL_OK), "OK");
  cr_assert_str_eq(hal_status_name(HAL_RESOURCE_EXHAUSTED), "RESOURCE_EXHAUSTED");
  cr_assert_str_eq(hal_status_name(HAL_INCOMPATIBLE), "INCOMPATIBLE");
  cr_assert_str_eq(hal_status_name(1), "UNRECOGNISED");
}

Test(status, there_is_no_message_before_a_failure) { cr_assert_str_empty(hal_error_message()); }

Test(status, error_set_keeps_the_message_and_returns_the_code) {
  cr_assert_eq(hal_error_set(HAL_NOT_FOUND, "no %s in %d places", "key", 3), HAL_NOT_FOUND);
  cr_assert_str_eq(hal_error_message(), "no key in 3 places");
}

Test(status, error_set_may_quote_the_present_message) {
  hal_error_set(HAL_NOT_FOUND, "first");
  hal_error_set(HAL_INTERNAL, "second after %s", hal_error_message());
  cr_assert_str_eq(hal_error_message(), "second after first");
}

Test(status, error_prefix_goes_before_the_message) {
  hal_error_set(HAL_NOT_FOUND, "no such file");
  cr_assert_eq(hal_error_prefix(HAL_NOT_FOUND, "while loading %s: ", "x"), HAL_NOT_FOUND);
  cr_assert_str_eq(hal_error_message(), "while loading x: no such file");
}

Test(status, a_message_is_cut_at_one_kibibyte) {
  char text[5000];
  memset(text, 'a', sizeof text - 1);
  text[sizeof text - 1] = '\0';
  hal_error_set(HAL_INTERNAL, "%s", text);
  cr_assert_eq(strlen(hal_error_message()), 1023);
  hal_error_prefix(HAL_INTERNAL, "b");
  cr_assert_eq(strlen(hal_error_message()), 1023);
  cr_assert_eq(hal_error_message()[0], 'b');
}

/* Each byte that is not part of a character, as Python's decoder finds them. */
Test(status, a_message_is_valid_utf8) {
  static const struct {
    const char *text, *message;
  } cases[] = {{"\xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80", "\xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80"},
               {"\xFF\xFE", "??"},
               {"\x80z", "?z"},
               {"a\xC3", "a?"},
               {"\xE2\x82", "??"},
               {"\xE2\x82z", "??z"},
               {"\xC0\x80\xC1\xBF", "????"},
               {"\xE0\x9F\xBF", "???"},
               {"\xED\xA0\x80", "???"},
               {"\xED\x9F\xBF\xEE\x80\x80", "\xED\x9F\xBF\xEE\x80\x80"},
               {"\xF0\x8F\xBF\xBF", "????"},
               {"\xF4\x8F\xBF\xBF", "\xF4\x8F\xBF\xBF"},
               {"\xF4\x90\x80\x80", "????"},
               {"\xF5\x80\x80\x80", "????"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    hal_error_set(HAL_INVALID_ARGUMENT, "'%s'", cases[i].text);
    hal_error_prefix(HAL_INVALID_ARGUMENT, "invalid %s: ", cases[i].text);
    char expected[80];
    snprintf(expected, sizeof expected, "invalid %s: '%s'", cases[i].message, cases[i].message);
    cr_assert_str_eq(hal_error_message(), expected);
  }
  hal_error_set(HAL_INVALID_ARGUMENT, "%.3s", "a\xC3\xA4\xC3\xA4"); /* cuts no character */
  cr_assert_str_eq(hal_error_message(), "a\xC3\xA4");
  hal_error_set(HAL_INVALID_ARGUMENT, "%.2s", "a\xC3\xA4\xC3\xA4");
  cr_assert_str_eq(hal_error_message(), "a?");
}

static void *fail_elsewhere(void *unused) {
  (void)unused;
  cr_assert_str_empty(hal_error_message());
  hal_error_set(HAL_INTERNAL, "theirs");
  return NULL;
}

Test(status, every_thread_has_its_own_message) {
  pthread_t thread;
  hal_error_set(HAL_INTERNAL, "mine");
  cr_assert_eq(pthread_create(&thread, NULL, fail_elsewhere, NULL), 0);
  pthread_join(thread, NULL);
  cr_assert_str_eq(hal_error_message(), "mine");
}

Test(status, a_plugins_message_names_plugin_op_and_driver_code) {
  open_fixture("no_driver");
  assert_fails(hal_device_ensure(0), HAL_UNAVAILABLE,
               "no_driver, init: the driver is not running; start it (driver code 999)");
}

Test(status, a_plugin_without_a_message_gets_one) {
  open_fixture("tally");
  hal_error_set(HAL_NOT_FOUND, "an older failure of something else");
  const hal_module_desc_t desc = {.struct_size = sizeof desc, .dialect = "brainwave", .options = ""};
  hal_module_t *module = NULL;
  assert_fails(hal_module_load(0, &desc, &module), HAL_UNIMPLEMENTED,
               "tally, module_load: failed with UNIMPLEMENTED (12)");
  cr_assert_null(strstr(hal_error_message(), "older failure"));
  cr_assert_null(module);
}
