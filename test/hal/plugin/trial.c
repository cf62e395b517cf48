/* Tests of src/plugin/trial.h: a plugin that crashes or hangs before its first device is of use is a sentence with plugin, function
 * and cure; the process lives, and so do the other plugins. */
#include "support.h"

#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char *const looking[] = {"info", "probe", "count"}, *const starting[] = {"init", "device_info"};

/* The fixture's file: libhal_<what>_<function>.so. */
static const char *file_of(const char *what, const char *function) {
  static char path[1024];
  snprintf(path, sizeof path, "%s/libhal_%s_%s.so", FIXTURE_DIR, what, function);
  return path;
}

/* The words of a sentence: which file, what it did, in which function. */
static void assert_told(const char *message, const char *what, const char *verb, const char *function) {
  char words[64];
  snprintf(words, sizeof words, "%s in hal_plugin_%s", verb, strcmp(function, "count") ? function : "device_count");
  cr_assert_not_null(strstr(message, words), "'%s' lacks '%s'", message, words);
  cr_assert_not_null(strstr(message, what), "'%s' lacks '%s'", message, what);
  cr_assert_not_null(strchr(message, ';'), "no cure in '%s'", message);
}

static void assert_refused_at_open(const char *what, const char *verb) {
  for (size_t i = 0; i < sizeof looking / sizeof *looking; i++) {
    const char *const path = file_of(what, looking[i]);
    cr_assert_eq(hal_registry_open(path), HAL_INCOMPATIBLE);
    assert_told(hal_error_message(), path, verb, looking[i]);
  }
  char list[2048];
  snprintf(list, sizeof list, "%s,%s", file_of(what, "probe"), FIXTURE("five"));
  assert_ok(hal_registry_open(list));
  cr_assert_eq(hal_registry_plugin_count(), 1);
  assert_told(hal_registry_problems(), "", verb, "probe");
}

/* Several plugins of one process: each fails by itself and the last one works. */
static void assert_refused_at_first_use(const char *what, const char *verb) {
  char list[4096], init[1024];
  strcpy(init, file_of(what, starting[0]));
  snprintf(list, sizeof list, "%s,%s,%s", init, file_of(what, starting[1]), FIXTURE("five"));
  assert_ok(hal_registry_open(list));
  cr_assert_eq(hal_registry_plugin_count(), 3);
  for (int32_t device = 0; device < 2; device++) {
    for (int again = 0; again < 2; again++) { /* a failure of init stays */
      cr_assert_eq(hal_device_ensure(device), HAL_INCOMPATIBLE);
      assert_told(hal_error_message(), file_of(what, starting[device]), verb, starting[device]);
    }
  }
  assert_ok(hal_device_ensure(2));
}

Test(trial, a_crash_in_any_function_before_init_is_told_with_its_name) { assert_refused_at_open("crashes", "crashes"); }

Test(trial, a_crash_in_init_or_device_info_is_told_with_its_name) { assert_refused_at_first_use("crashes", "crashes"); }

Test(trial, a_hang_in_any_function_before_init_is_told_with_its_name) {
  setenv("HAL_PLUGIN_TRIAL", "2", 1);
  assert_refused_at_open("hangs", "hangs");
}

Test(trial, a_hang_in_init_or_device_info_is_told_with_its_name) {
  setenv("HAL_PLUGIN_TRIAL", "2", 1);
  assert_refused_at_first_use("hangs", "hangs");
}

Test(trial, a_function_that_ends_the_process_is_told_with_its_name) {
  assert_fails(hal_registry_open(FIXTURE("exits_probe")), HAL_INCOMPATIBLE,
               "ends the process in hal_plugin_probe (exit status 0)");
}

Test(trial, the_sentence_has_the_last_words_of_a_plugin_that_crashed) {
  assert_ok(hal_registry_open(FIXTURE("last_words")));
  assert_fails(hal_device_ensure(0), HAL_INCOMPATIBLE, "and says \"card 7 answers nonsense\"; ");
}

/* Programs that ignore their children leave no exit status to read. */
Test(trial, a_crash_is_found_where_children_are_ignored) {
  signal(SIGCHLD, SIG_IGN);
  assert_fails(hal_registry_open(FIXTURE("crashes_probe")), HAL_INCOMPATIBLE, "in hal_plugin_probe");
  assert_ok(hal_registry_open(FIXTURE("five")));
  assert_ok(hal_device_ensure(0));
}

Test(trial, no_child_is_left_behind) {
  assert_ok(hal_registry_open(FIXTURE("five")));
  assert_ok(hal_device_ensure(0));
  cr_assert_eq(waitpid(-1, NULL, WNOHANG), -1);
}

Test(trial, a_search_for_hardware_passes_by_a_plugin_that_crashes_and_says_so) {
  char directory[] = "/tmp/hal-trial-XXXXXX", link[128];
  unsetenv("TORCH_BACKEND"), unsetenv("HAL_PLUGIN_PATH");
  cr_assert_not_null(mkdtemp(directory));
  const char *const names[] = {"crashes_probe", "absent", "on_request"};
  for (size_t i = 0; i < 3; i++) {
    char from[1024];
    snprintf(from, sizeof from, "%s/libhal_%s.so", FIXTURE_DIR, names[i]);
    snprintf(link, sizeof link, "%s/libhal_%s.so", directory, names[i]);
    cr_assert_eq(symlink(from, link), 0);
  }
  assert_ok(hal_registry_add_path(directory));
  assert_ok(hal_registry_open(NULL));
  cr_assert_eq(hal_device_count(), 0);
  cr_assert_not_null(strstr(hal_registry_problems(), "crashes in hal_plugin_probe"));
  cr_assert_null(strchr(hal_registry_problems(), '\n'), "only that is amiss: %s", hal_registry_problems());
  cr_assert_not_null(strstr(hal_registry_report(), "on request only"));
  cr_assert_not_null(strstr(hal_registry_report(), "no card is plugged in"));
}
