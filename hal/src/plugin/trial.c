/* trial.c: see trial.h. */
#define _GNU_SOURCE /* strsignal, memfd_create, dladdr */
#include "plugin/trial.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/status_internal.h"
#include "hal/log.h"
#include "plugin/file_check.h"
#include "plugin/search_path.h"
#include "sdk/build_flags.h"
#include "sdk/helper.h"

enum {
  LOADING_S = 30,    /* a vendor's library may take seconds on a cold disk */
  LOOKING_S = 10,    /* probe and similar ops are documented to take a few milliseconds */
  STARTING_S = 120,  /* drivers of large machines are slow */
  MOST_S = 86400,    /* maximum of the setting */
  STEP_US = 100,     /* of the wait; most plugins load within a few of them */
  LONGEST_US = 10000 /* of the wait, once it takes long */
};

static hal_trial_page_t *reported; /* in the helper */

void hal_trial_report_to(hal_trial_page_t *page) { reported = page; }

void hal_trial_step(uint32_t step) {
  if (reported) atomic_store(&reported->step, step);
}

/* ---- settings ---------------------------------------------------------------------------------------------------- */

/* HAL_PLUGIN_TRIAL: 0 = no trials, more = seconds for each function. Returns -1 if it is not set. */
static long setting(void) {
  const char *const text = hal_process_is_privileged() ? NULL : getenv("HAL_PLUGIN_TRIAL");
  char *end;
  if (!text || !*text) return -1;
  const long seconds = strtol(text, &end, 10);
  return *end || seconds < 0 ? -1 : seconds < MOST_S ? seconds : MOST_S;
}

static long patience_s(uint32_t step) {
  const long wanted = setting();
  if (step == HAL_TRIAL_BEGUN || step == HAL_TRIAL_LOADING)
    return wanted > LOADING_S ? wanted : LOADING_S; /* the disk may be busy, which is not the plugin's fault */
  if (wanted > 0) return wanted;
  return step == HAL_SLOT_init || step == HAL_SLOT_device_info ? STARTING_S : LOOKING_S;
}

/* Plugins that are installed with this library are as trusted as it is: <folder>/lib and <folder>/plugins. */
static int is_our_own(const char *path) {
  char own[PATH_MAX];
  Dl_info info;
  if (!dladdr((void *)&hal_registry, &info) || !info.dli_fname || !realpath(info.dli_fname, own)) return 0;
  for (int up = 0; up < 2; up++) {
    char *const slash = strrchr(own, '/');
    if (!slash) return 0;
    *slash = '\0';
  }
  const size_t length = strlen(own);
  const char *const rest = path + length;
  return strncmp(path, own, length) == 0 && strncmp(rest, "/plugins/", 9) == 0 && !strchr(rest + 9, '/');
}

/* ---- the trial --------------------------------------------------------------------------------------------------- */

/* Waits a moment for a killed child to end: one that waits in the kernel, as drivers do, may not end. */
static void kill_child(pid_t child) {
  kill(child, SIGKILL);
  for (int i = 0; i < 100 && waitpid(child, NULL, WNOHANG) == 0; i++)
    nanosleep(&(struct timespec){.tv_nsec = LONGEST_US * 1000}, NULL);
}

/* Waits for the child. Returns 1 = it ended with `*out_status`, 0 = a function did not return, -1 = it ended and its
 * status is lost (for example if SIGCHLD is ignored). */
static int wait_for(pid_t child, const hal_trial_page_t *page, int *out_status) {
  long step_us = STEP_US, waited_us = 0;
  uint32_t at = atomic_load(&page->step);
  for (;;) {
    const pid_t got = waitpid(child, out_status, WNOHANG);
    if (got == child) return 1;
    if (got < 0 && errno != EINTR) return -1;
    const uint32_t now = atomic_load(&page->step);
    if (now != at) at = now, waited_us = 0; /* each function has its own time limit */
    if (waited_us >= patience_s(at) * 1000000L) break;
    nanosleep(&(struct timespec){.tv_nsec = step_us * 1000}, NULL);
    waited_us += step_us;
    if (step_us < LONGEST_US) step_us += step_us / 4;
  }
  kill_child(child);
  return 0;
}

/* Returns the last line that the child wrote, in quotes and after a comma, or "". */
static const char *last_words(int words, char *text, size_t size) {
  char tail[512];
  text[0] = '\0';
  const off_t end = words < 0 ? 0 : lseek(words, 0, SEEK_END);
  const off_t from = end > (off_t)sizeof tail ? end - (off_t)sizeof tail : 0;
  ssize_t length = end > 0 ? pread(words, tail, sizeof tail, from) : 0;
  while (length > 0 && (unsigned char)tail[length - 1] <= ' ') length--;
  ssize_t begin = length;
  while (begin > 0 && tail[begin - 1] != '\n') begin--;
  for (ssize_t i = begin; i < length; i++)
    if ((unsigned char)tail[i] < ' ') tail[i] = ' ';
  if (length > begin) snprintf(text, size, ", with the output \"%.*s\"", (int)(length - begin), tail + begin);
  return text;
}

static const char *where(uint32_t step, char *text, size_t size) {
  if (step == HAL_TRIAL_LOADING) return "while it is loaded";
  const char *const name = step == HAL_TRIAL_ENTRY ? "entry" : hal_registry_slot_name(step);
  snprintf(text, size, "in hal_plugin_%s", name ? name : "?");
  return text;
}

static hal_status_t refuse(const char *path, uint32_t step, int ended, int status, const char *said) {
  char text[80];
  const char *const place = where(step, text, sizeof text);
  if (!ended)
    return hal_error_set(
        HAL_INCOMPATIBLE,
        "%s hangs %s: its limit was %ld s%s; the plugin is not used; report it to its vendor, or set a longer limit "
        "with HAL_PLUGIN_TRIAL=<seconds>",
        path, place, patience_s(step), said);
  if (ended < 0)
    return hal_error_set(HAL_INCOMPATIBLE,
                         "%s crashes, or ends the process, %s%s; the plugin is not used; run it under a debugger with "
                         "HAL_PLUGIN_TRIAL=0, or report it to its vendor",
                         path, place, said);
  if (WIFSIGNALED(status))
    return hal_error_set(HAL_INCOMPATIBLE,
                         "%s crashes %s (signal %d, %s)%s; the plugin is not used; run it under a debugger with "
                         "HAL_PLUGIN_TRIAL=0, or report it to its vendor",
                         path, place, WTERMSIG(status), strsignal(WTERMSIG(status)), said);
  return hal_error_set(
      HAL_INCOMPATIBLE,
      "%s ends the process %s (exit status %d)%s; the plugin is not used; report it to its vendor, for another "
      "build",
      path, place, WEXITSTATUS(status), said);
}

static hal_status_t refuse_helper(const char *plugin, const char *helper, const char *why, const char *said) {
  return hal_error_set(
      HAL_FAILED_PRECONDITION,
      "%s is not tried, and not used, since the program %s cannot be started: %s%s; install torch_backend "
      "again, or set HAL_PLUGIN_TRIAL=0 to load plugins without a trial",
      plugin, helper, why, said);
}

/* Runs the helper to its end. `words`: a file in memory for its output. */
static hal_status_t run_helper(const char *path, const char *operation, hal_trial_page_t *page, int page_file,
                               int words) {
  char helper[PATH_MAX], said[640];
  pid_t child;
  int status = 0, code = hal_helper_find(&hal_registry, helper);
  if (code) return refuse_helper(path, helper, strerror(code), "");
  hal_status_t checked = hal_file_check_owner_of(helper, "helper program");
  if (checked) return hal_error_prefix(checked, "%s is not tried, and not used: ", path);
  code = hal_helper_start(&child, helper, operation, path, words, page_file);
  if (code) return refuse_helper(path, helper, strerror(code), "");
  const int ended = wait_for(child, page, &status);
  const uint32_t step = atomic_load(&page->step);
  if (ended && step == HAL_TRIAL_DONE) return HAL_OK;
  last_words(words, said, sizeof said);
  if (step == HAL_TRIAL_BEGUN) return refuse_helper(path, helper, "it ends or hangs before its work", said);
  return refuse(path, step, ended, status, said);
}

/* Returns whether the plugin may need the runtime of a sanitizer that the program has and the helper does not have. */
static int lacks_sanitizer(const char *path) {
  if (!(hal_process_sanitizers() & ~(uint64_t)HAL_BUILD_FLAGS)) return 0;
  hal_log(HAL_LOG_INFO, "%s is not tried: this program was built with a sanitizer, and the HAL was not", path);
  return 1;
}

static hal_status_t run_trial(const char *path, const char *operation) {
  if (reported || setting() == 0 || is_our_own(path) || lacks_sanitizer(path)) return HAL_OK;
  hal_trial_page_t *page = MAP_FAILED;
  const int page_file = memfd_create("hal-trial", MFD_CLOEXEC), words = memfd_create("hal-trial-log", MFD_CLOEXEC);
  if (page_file >= 0 && ftruncate(page_file, sizeof *page) == 0)
    page = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED, page_file, 0);
  hal_status_t status;
  if (page == MAP_FAILED) {
    status = hal_error_set(HAL_RESOURCE_EXHAUSTED,
                           "%s cannot be tried: no file in memory: %s; close files, or set "
                           "HAL_PLUGIN_TRIAL=0 to load plugins without a trial",
                           path, strerror(errno));
  } else {
    atomic_init(&page->step, HAL_TRIAL_BEGUN);
    status = run_helper(path, operation, page, page_file, words);
    munmap(page, sizeof *page);
  }
  if (words >= 0) close(words);
  if (page_file >= 0) close(page_file);
  return status;
}

hal_status_t hal_trial_load(const char *path) { return run_trial(path, HAL_HELPER_LOAD); }

hal_status_t hal_trial_start(const hal_plugin_t *plugin) { return run_trial(plugin->path, HAL_HELPER_START); }
