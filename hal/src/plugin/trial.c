/* trial.c: see trial.h. */
#define _GNU_SOURCE /* strsignal, memfd_create, dladdr */
#include "plugin/trial.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "hal/log.h"
#include "plugin/call.h"
#include "plugin/file_check.h"
#include "plugin/search_path.h"
#include "sdk/build_flags.h"

enum {
  LOADING_S = 30,    /* a vendor's library may take seconds on a cold disk */
  LOOKING_S = 10,    /* probe and its like promise a few milliseconds */
  STARTING_S = 120,  /* drivers of large machines take their time */
  MOST_S = 86400,    /* of the setting */
  STEP_US = 100,     /* of the wait; most plugins load within a few of them */
  LONGEST_US = 10000 /* of the wait, once it takes long */
};

/* What parent and child see. */
typedef struct trial_s {
  atomic_uint step;
} trial_t;

static trial_t *running; /* in the child */

void hal_trial_step(uint32_t step) {
  if (running) atomic_store(&running->step, step);
}

/* ---- settings ------------------------------------------------------------------------------------------------------ */

/* HAL_PLUGIN_TRIAL: 0 = no trials, more = seconds that each function gets. Gives -1 when it says nothing. */
static long setting(void) {
  const char *const text = hal_process_is_privileged() ? NULL : getenv("HAL_PLUGIN_TRIAL");
  char *end;
  if (!text || !*text) return -1;
  const long seconds = strtol(text, &end, 10);
  return *end || seconds < 0 ? -1 : seconds < MOST_S ? seconds : MOST_S;
}

static long patience_s(uint32_t step) {
  const long wanted = setting();
  if (step == HAL_TRIAL_LOADING) return wanted > LOADING_S ? wanted : LOADING_S; /* a busy disk is not the plugin's */
  if (wanted > 0) return wanted;
  return step == HAL_SLOT_init || step == HAL_SLOT_device_info ? STARTING_S : LOOKING_S;
}

/* Plugins that came with this library are as much to be trusted as it is: <folder>/lib and <folder>/plugins. */
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

static int is_off(const char *path) {
  /* The thread sanitizer does not support what a forked child of a threaded process does here. */
  return setting() == 0 || (hal_process_sanitizers() & HAL_BUILD_TSAN) || is_our_own(path);
}

/* ---- the child ----------------------------------------------------------------------------------------------------- */

/* Its whole life. What it says goes to `words`: if the plugin lives, the parent says it again. */
static void live(trial_t *trial, int words, void (*body)(void *data), void *data) {
  static const int deadly[] = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGALRM};
  for (size_t i = 0; i < sizeof deadly / sizeof deadly[0]; i++) signal(deadly[i], SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
  setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0}); /* a refused plugin is no reason for a core file */
  hal_log_set_sink(NULL, NULL);                   /* an embedder's may need its other threads */
  const int nowhere = open("/dev/null", O_WRONLY);
  if (nowhere >= 0) dup2(nowhere, STDOUT_FILENO);
  if (words >= 0 || nowhere >= 0) dup2(words >= 0 ? words : nowhere, STDERR_FILENO);
  running = trial;
  body(data);
  hal_trial_step(HAL_TRIAL_DONE);
  _exit(0);
}

/* ---- the parent ---------------------------------------------------------------------------------------------------- */

/* Gives a child that was killed a moment to end: one that waits in the kernel, as drivers do, may not. */
static void kill_child(pid_t child) {
  kill(child, SIGKILL);
  for (int i = 0; i < 100 && waitpid(child, NULL, WNOHANG) == 0; i++)
    nanosleep(&(struct timespec){.tv_nsec = LONGEST_US * 1000}, NULL);
}

/* Waits for the child: 1 = it ended with `*out_status`, 0 = it did not come back from a function, -1 = it ended and somebody else
 * has waited for it (SIGCHLD is ignored, for one). */
static int wait_for(pid_t child, const trial_t *trial, int *out_status) {
  long step_us = STEP_US, waited_us = 0;
  uint32_t at = atomic_load(&trial->step);
  for (;;) {
    const pid_t got = waitpid(child, out_status, WNOHANG);
    if (got == child) return 1;
    if (got < 0 && errno != EINTR) return -1;
    const uint32_t now = atomic_load(&trial->step);
    if (now != at) at = now, waited_us = 0; /* each function has its time */
    if (waited_us >= patience_s(at) * 1000000L) break;
    nanosleep(&(struct timespec){.tv_nsec = step_us * 1000}, NULL);
    waited_us += step_us;
    if (step_us < LONGEST_US) step_us += step_us / 4;
  }
  kill_child(child);
  return 0;
}

/* The last line that the child wrote, in quotes and after a comma, or "". */
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
  if (length > begin) snprintf(text, size, ", and says \"%.*s\"", (int)(length - begin), tail + begin);
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
    return hal_error_set(HAL_INCOMPATIBLE,
                         "%s hangs %s: it was given %ld s%s; the plugin is not used; ask its vendor, or give it longer "
                         "with HAL_PLUGIN_TRIAL=<seconds>",
                         path, place, patience_s(step), said);
  if (ended < 0)
    return hal_error_set(HAL_INCOMPATIBLE,
                         "%s crashes, or ends the process, %s%s; the plugin is not used; run it under a debugger with "
                         "HAL_PLUGIN_TRIAL=0, or ask its vendor for another build",
                         path, place, said);
  if (WIFSIGNALED(status))
    return hal_error_set(HAL_INCOMPATIBLE,
                         "%s crashes %s (signal %d, %s)%s; the plugin is not used; run it under a debugger with "
                         "HAL_PLUGIN_TRIAL=0, or ask its vendor for another build",
                         path, place, WTERMSIG(status), strsignal(WTERMSIG(status)), said);
  return hal_error_set(HAL_INCOMPATIBLE,
                       "%s ends the process %s (exit status %d)%s; the plugin is not used; ask its vendor for another "
                       "build",
                       path, place, WEXITSTATUS(status), said);
}

hal_status_t hal_trial_run(const char *path, void (*body)(void *data), void *data) {
  if (running || is_off(path)) return HAL_OK;
  trial_t *const trial = mmap(NULL, sizeof *trial, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (trial == MAP_FAILED) return HAL_OK;
  const int words = memfd_create("hal-trial", MFD_CLOEXEC);
  atomic_init(&trial->step, HAL_TRIAL_LOADING);
  int status = 0;
  const pid_t child = fork();
  if (child == 0) live(trial, words, body, data);
  const int ended = child > 0 ? wait_for(child, trial, &status) : 1;
  const uint32_t step = atomic_load(&trial->step);
  char said[640];
  last_words(words, said, sizeof said);
  if (words >= 0) close(words);
  munmap(trial, sizeof *trial);
  if (child < 0 || (ended && step == HAL_TRIAL_DONE)) return HAL_OK;
  return refuse(path, step, ended, status, said);
}

static void start(void *data) {
  hal_plugin_t *const plugin = data;
  hal_trial_step(HAL_SLOT_init);
  if (hal_call_init(plugin, "")) return;
  for (int32_t device = 0; device < plugin->device_count; device++) {
    hal_device_info_t info = {.struct_size = HAL_STRUCT_SIZE(hal_device_info_t, architecture)};
    hal_trial_step(HAL_SLOT_device_info);
    if (hal_call_device_info(plugin, device, &info)) return;
  }
}

hal_status_t hal_trial_start(hal_plugin_t *plugin) { return hal_trial_run(plugin->path, start, plugin); }
