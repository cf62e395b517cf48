/* Tests of log.h: levels and the sink. */
#include "support.h"

typedef struct lines_s {
  int count;
  int32_t level;
  char last[256];
} lines_t;

static void keep(int32_t level, const char *message, void *user_data) {
  lines_t *const lines = user_data;
  lines->count++;
  lines->level = level;
  snprintf(lines->last, sizeof lines->last, "%s", message);
}

Test(log, warnings_are_on_and_info_is_off_by_default) {
  unsetenv("HAL_LOG");
  cr_assert(hal_log_enabled(HAL_LOG_ERROR));
  cr_assert(hal_log_enabled(HAL_LOG_WARNING));
  cr_assert_not(hal_log_enabled(HAL_LOG_INFO));
}

Test(log, HAL_LOG_sets_the_level) {
  setenv("HAL_LOG", "debug", 1);
  cr_assert(hal_log_enabled(HAL_LOG_DEBUG));
}

Test(log, the_sink_gets_the_lines_that_are_on) {
  lines_t lines = {0};
  unsetenv("HAL_LOG");
  hal_log_set_sink(keep, &lines);
  hal_log(HAL_LOG_INFO, "quiet");
  cr_assert_eq(lines.count, 0);
  hal_log(HAL_LOG_WARNING, "value %d", 7);
  cr_assert_eq(lines.count, 1);
  cr_assert_eq(lines.level, HAL_LOG_WARNING);
  cr_assert_str_eq(lines.last, "value 7");
  hal_log_set_sink(NULL, NULL);
  hal_log(HAL_LOG_WARNING, "to standard error");
  cr_assert_eq(lines.count, 1);
}

static void log_again(int32_t level, const char *message, void *user_data) {
  (void)message;
  lines_t *const lines = user_data;
  if (++lines->count == 1) hal_log(level, "from within the sink");
}

Test(log, a_sink_may_log, .timeout = 10) {
  lines_t lines = {0};
  hal_log_set_sink(log_again, &lines);
  hal_log(HAL_LOG_ERROR, "outer");
  cr_assert_eq(lines.count, 2);
}

Test(log, a_list_with_a_bad_plugin_warns) {
  lines_t lines = {0};
  hal_log_set_sink(keep, &lines);
  assert_ok(hal_registry_open(FIXTURE("five") "," FIXTURE("half_event")));
  cr_assert_eq(lines.count, 1);
  cr_assert_eq(lines.level, HAL_LOG_WARNING);
  cr_assert_not_null(strstr(lines.last, "half"));
}
