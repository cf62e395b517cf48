/* file_trial.c: loads a plugin in a child process first. Loading runs the plugin's constructors, and one that crashes there
 * takes the whole program with it: no check of the file can tell, and no handler can go on after it. A child that crashes is
 * a sentence. It costs one fork and one more dlopen per plugin and process, a few milliseconds. */
#define _GNU_SOURCE /* strsignal, RTLD_NOLOAD */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "hal/status.h"
#include "plugin/file_check.h"
#include "plugin/search_path.h"
#include "sdk/build_flags.h"

enum {
  LOADED = 42,       /* exit status of a child that came to its end: unlikely as one that a constructor gives */
  PATIENCE_S = 30,   /* a vendor's library may take seconds on a cold disk */
  STEP_US = 100,     /* of the wait; most plugins load within a few of them */
  LONGEST_US = 10000 /* of the wait, once it takes long */
};

static int trial_is_off(void) {
  const char *const setting = hal_process_is_privileged() ? NULL : getenv("HAL_PLUGIN_TRIAL");
  /* The thread sanitizer does not support what a forked child of a threaded process does here. */
  return (setting && strcmp(setting, "0") == 0) || (hal_process_sanitizers() & HAL_BUILD_TSAN);
}

/* The child's whole life. What fails with a message is left to the parent, which gets the same one. */
static void try_loading(const char *path) {
  static const int deadly[] = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGALRM};
  for (size_t i = 0; i < sizeof deadly / sizeof deadly[0]; i++) signal(deadly[i], SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
  setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0}); /* a refused plugin is no reason for a core file */
  const int nowhere = open("/dev/null", O_WRONLY);
  if (nowhere >= 0) { /* its last words come again, from the parent, if it lives */
    dup2(nowhere, STDOUT_FILENO);
    dup2(nowhere, STDERR_FILENO);
  }
  dlopen(path, RTLD_NOW | RTLD_LOCAL);
  _exit(LOADED);
}

/* Waits for the child: 1 = it ended with `*out_status`, 0 = it is still loading, -1 = somebody else has waited for it. */
static int wait_for(pid_t child, int *out_status) {
  long step = STEP_US;
  for (long waited = 0; waited < PATIENCE_S * 1000000L; waited += step) {
    const pid_t got = waitpid(child, out_status, WNOHANG);
    if (got == child) return 1;
    if (got < 0 && errno != EINTR) return -1;
    nanosleep(&(struct timespec){.tv_nsec = step * 1000}, NULL);
    if (step < LONGEST_US) step += step / 4;
  }
  kill(child, SIGKILL);
  return waitpid(child, out_status, 0) == child ? 0 : -1;
}

hal_status_t hal_file_check_loads(const char *path) {
  int status = 0;
  if (trial_is_off()) return HAL_OK;
  void *const present = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  if (present) return dlclose(present), HAL_OK; /* its constructors ran before */
  const pid_t child = fork();
  if (child == 0) try_loading(path);
  const int ended = child > 0 ? wait_for(child, &status) : -1;
  if (ended < 0) return HAL_OK; /* nothing was found out */
  if (ended && WIFEXITED(status) && WEXITSTATUS(status) == LOADED) return HAL_OK;
  if (!ended)
    return hal_error_set(
        HAL_UNAVAILABLE,
        "%s does not come to an end within %d s of loading, so it is not loaded; ask its vendor, or set "
        "HAL_PLUGIN_TRIAL=0 to wait for it",
        path, PATIENCE_S);
  if (WIFSIGNALED(status))
    return hal_error_set(
        HAL_INCOMPATIBLE,
        "%s crashes while it is loaded (signal %d, %s), so it is not loaded; run it under a debugger with "
        "HAL_PLUGIN_TRIAL=0, or ask its vendor for another build",
        path, WTERMSIG(status), strsignal(WTERMSIG(status)));
  return hal_error_set(
      HAL_INCOMPATIBLE,
      "%s ends the process while it is loaded (exit status %d), so it is not loaded; ask its vendor for "
      "another build",
      path, WEXITSTATUS(status));
}
