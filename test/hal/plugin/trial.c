/* Tests of src/plugin/trial.h: a plugin that crashes or hangs before its first device is usable is reported with
 * plugin, function and remedy. The process and the other plugins continue to work. Other threads do not affect the
 * result. */
#include "support.h"

#include <dlfcn.h>
#include <plugin/trial.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
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

/* The words of a message: the file, the failure, the function. */
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

/* Several plugins of one process: each fails separately and the last one works. */
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

Test(trial, a_crash_in_any_function_before_init_is_reported_with_its_name) {
  assert_refused_at_open("crashes", "crashes");
}

Test(trial, a_crash_in_init_or_device_info_is_reported_with_its_name) {
  assert_refused_at_first_use("crashes", "crashes");
}

Test(trial, a_hang_in_any_function_before_init_is_reported_with_its_name) {
  setenv("HAL_PLUGIN_TRIAL", "2", 1);
  assert_refused_at_open("hangs", "hangs");
}

Test(trial, a_hang_in_init_or_device_info_is_reported_with_its_name) {
  setenv("HAL_PLUGIN_TRIAL", "2", 1);
  assert_refused_at_first_use("hangs", "hangs");
}

Test(trial, a_function_that_ends_the_process_is_reported_with_its_name) {
  assert_fails(hal_registry_open(FIXTURE("exits_probe")), HAL_INCOMPATIBLE,
               "ends the process in hal_plugin_probe (exit status 0)");
}

Test(trial, the_message_has_the_last_output_of_a_plugin_that_crashed) {
  assert_ok(hal_registry_open(FIXTURE("last_words")));
  assert_fails(hal_device_ensure(0), HAL_INCOMPATIBLE, "with the output \"card 7 returned garbage\"; ");
}

/* Programs that ignore their children cannot read an exit status. */
Test(trial, a_crash_is_found_where_children_are_ignored) {
  signal(SIGCHLD, SIG_IGN);
  assert_fails(hal_registry_open(FIXTURE("crashes_probe")), HAL_INCOMPATIBLE, "in hal_plugin_probe");
  assert_ok(hal_registry_open(FIXTURE("five")));
  assert_ok(hal_device_ensure(0));
}

Test(trial, no_child_remains) {
  assert_ok(hal_registry_open(FIXTURE("five")));
  assert_ok(hal_device_ensure(0));
  cr_assert_eq(waitpid(-1, NULL, WNOHANG), -1);
}

Test(trial, a_search_for_hardware_skips_a_plugin_that_crashes_and_reports_it) {
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
  cr_assert_null(strchr(hal_registry_problems(), '\n'), "expected one problem: %s", hal_registry_problems());
  cr_assert_not_null(strstr(hal_registry_report(), "on request only"));
  cr_assert_not_null(strstr(hal_registry_report(), "no card is plugged in"));
}

/* ---- other threads ---- */

static atomic_int stop;

static void *keep_taking_a_lock(void *unused) {
  while (!atomic_load(&stop)) setenv("OTHER_THREAD", "a value", 1);
  return unused;
}

/* A forked child would inherit the lock in its state, sometimes locked forever. */
Test(trial, a_plugin_is_not_refused_for_a_lock_that_another_thread_holds, .timeout = 60) {
  enum { THREADS = 2, TRIALS = 100 };
  pthread_t threads[THREADS];
  for (int i = 0; i < THREADS; i++) cr_assert_eq(pthread_create(&threads[i], NULL, keep_taking_a_lock, NULL), 0);
  for (int i = 0; i < TRIALS; i++) assert_ok(hal_trial_load(FIXTURE("locks")));
  atomic_store(&stop, 1);
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
}

/* ---- the helper program ---- */

static char folder[] = "/tmp/hal-helper-XXXXXX", library[128], helper[128];

static void copy_file(const char *from, const char *to, mode_t mode) {
  char buffer[65536];
  FILE *const in = fopen(from, "rb"), *const out = fopen(to, "wb");
  cr_assert(in && out, "%s, %s", from, to);
  for (size_t count; (count = fread(buffer, 1, sizeof buffer, in)) > 0;)
    cr_assert_eq(fwrite(buffer, 1, count, out), count);
  fclose(in);
  cr_assert_eq(fclose(out), 0);
  cr_assert_eq(chmod(to, mode), 0);
}

/* The library in a separate folder. */
static void install_library(void) {
  cr_assert_not_null(mkdtemp(folder));
  snprintf(library, sizeof library, "%s/libtorch_backend_hal.so.0", folder);
  snprintf(helper, sizeof helper, "%s/torch_backend_hal_helper", folder);
  copy_file(HAL_LIBRARY, library, 0755);
}
static void remove_library(void) { unlink(library), unlink(helper), rmdir(folder); }

/* Opens a plugin with that library, and expects a message with the words; NULL: no failure. */
static void expect_of_library(hal_status_t expected, const char *words) {
  void *const handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  hal_status_t (*open)(const char *list);
  const char *(*message)(void);
  cr_assert_not_null(handle, "%s", dlerror());
  *(void **)&open = dlsym(handle, "hal_registry_open");
  *(void **)&message = dlsym(handle, "hal_error_message");
  cr_assert_eq(open(FIXTURE("five")), expected, "%s", message());
  if (words) cr_assert_not_null(strstr(message(), words), "'%s' lacks '%s'", message(), words);
}

Test(trial, a_helper_that_is_missing_is_an_error_that_names_it, .init = install_library, .fini = remove_library) {
  char words[256];
  snprintf(words, sizeof words, "the program %s cannot be started: No such file", helper);
  expect_of_library(HAL_FAILED_PRECONDITION, words);
  unsetenv("HAL_PLUGIN_TRIAL");
  expect_of_library(HAL_FAILED_PRECONDITION, "HAL_PLUGIN_TRIAL=0");
}

Test(trial, a_missing_helper_is_not_needed_without_trials, .init = install_library, .fini = remove_library) {
  setenv("HAL_PLUGIN_TRIAL", "0", 1);
  expect_of_library(HAL_OK, NULL);
}

Test(trial, the_helper_next_to_the_library_is_used, .init = install_library, .fini = remove_library) {
  copy_file(HAL_HELPER, helper, 0755);
  expect_of_library(HAL_OK, NULL);
}

Test(trial, a_helper_that_others_may_write_is_refused, .init = install_library, .fini = remove_library) {
  unsetenv("HAL_ALLOW_UNSAFE_PLUGINS");
  copy_file(HAL_HELPER, helper, 0777);
  expect_of_library(HAL_FAILED_PRECONDITION, "the helper program /tmp/hal-helper-");
}

Test(trial, a_helper_that_does_nothing_is_no_trial, .init = install_library, .fini = remove_library) {
  copy_file("/bin/true", helper, 0755);
  expect_of_library(HAL_FAILED_PRECONDITION, "it ends or hangs before its work");
}
