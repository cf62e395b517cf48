/* count.c: counts devices in another process (hal/plugin_count.h). */
#define _GNU_SOURCE /* pipe2, dladdr */
#include "hal/plugin_count.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "helper.h"

_Static_assert((int)HAL_COUNT_WHY == (int)HAL_HELPER_WHY, "a reason is copied completely");

enum { COUNT_SECONDS = 30 }; /* for a driver that searches for its devices; the slowest known took three */

static hal_status_t refuse(const hal_counter_t *counter, hal_status_t status, int64_t code, const char *what) {
  char message[HAL_COUNT_WHY];
  const char *const advice = status == HAL_UNAVAILABLE ? counter->advice : strerror((int)code);
  snprintf(message, sizeof message, "%s: %s; %s", counter->plugin, what, advice);
  return hal_host->error_set(status, code, message);
}

static int64_t seconds_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec;
}

/* Reads the helper's result, which is written completely or not at all. Returns 1, 0 = it ended without a result, -1 =
 * it has written nothing within the time. */
static int hear(int pipe_end, hal_helper_count_t *out_reply) {
  const int64_t end = seconds_now() + COUNT_SECONDS;
  struct pollfd waited = {.fd = pipe_end, .events = POLLIN};
  for (;;) {
    const int64_t left = end - seconds_now();
    const int ready = left > 0 ? poll(&waited, 1, (int)left * 1000) : 0;
    if (!ready) return -1;
    if (ready < 0 && errno != EINTR) return 0;
    if (ready < 0) continue;
    const ssize_t bytes = read(pipe_end, out_reply, sizeof *out_reply);
    if (bytes >= 0 || errno != EINTR) return bytes == (ssize_t)sizeof *out_reply;
  }
}

/* Returns whether no other user can write the helper: it belongs to root or this user, like the library in its
 * directory. */
static int is_safe(const char *path) {
  struct stat info;
  return stat(path, &info) == 0 && (info.st_uid == 0 || info.st_uid == geteuid()) && !(info.st_mode & S_IWOTH);
}

static hal_status_t start_helper(const hal_counter_t *counter, pid_t *out_child, int pipe_end) {
  char helper[PATH_MAX], what[HAL_COUNT_WHY / 2], plugin[PATH_MAX];
  Dl_info info;
  const void *own; /* ISO C has no cast from a function pointer */
  hal_status_t (*const error_set)(hal_status_t, int64_t, const char *) = hal_host->error_set;
  memcpy(&own, &error_set, sizeof own);
  int code = hal_helper_find(own, helper);
  if (!code && !is_safe(helper)) code = EPERM;
  memcpy(&own, &counter->count, sizeof own);
  if (!code && (!dladdr(own, &info) || !realpath(info.dli_fname, plugin))) code = ENOENT;
  if (!code) code = hal_helper_start(out_child, helper, HAL_HELPER_COUNT, plugin, -1, pipe_end);
  if (!code) return HAL_OK;
  snprintf(what, sizeof what,
           "the devices cannot be counted, since the program %.300s cannot be started; install torch_backend again",
           helper);
  return refuse(counter, HAL_FAILED_PRECONDITION, code, what);
}

static hal_status_t count_in_helper(const hal_counter_t *counter, hal_helper_count_t *out_reply) {
  int ends[2];
  pid_t child = -1;
  if (pipe2(ends, O_CLOEXEC)) return refuse(counter, HAL_INTERNAL, errno, "no pipe to count the devices");
  const hal_status_t status = start_helper(counter, &child, ends[1]);
  close(ends[1]);
  const int heard = status ? 0 : hear(ends[0], out_reply);
  close(ends[0]);
  if (status) return status;
  if (heard < 0) kill(child, SIGKILL);
  while (waitpid(child, NULL, 0) < 0 && errno == EINTR) {
  }
  if (heard < 0) return refuse(counter, HAL_UNAVAILABLE, 0, "a driver did not count its devices within 30 s");
  if (!heard) return refuse(counter, HAL_UNAVAILABLE, 0, "a driver ended the process that counted the devices");
  return HAL_OK;
}

/* Called in the helper, whose device_count was called for this result. */
static hal_status_t count_here(const hal_counter_t *counter, hal_helper_count_t *out_reply) {
  out_reply->status = counter->count(&out_reply->count, out_reply->why);
  return HAL_OK;
}

hal_status_t hal_count_devices(hal_counter_t *counter, int32_t *out_count) {
  hal_status_t status = HAL_OK;
  pthread_mutex_lock(&counter->lock);
  if (counter->told < 0) {
    const int32_t *const here = dlsym(RTLD_DEFAULT, "hal_helper_counts");
    hal_helper_count_t reply = {.count = -1};
    status = here && *here ? count_here(counter, &reply) : count_in_helper(counter, &reply);
    if (!status) {
      counter->told = reply.status ? 0 : reply.count;
      counter->status = reply.status;
      memcpy(counter->why, reply.why, sizeof counter->why);
      counter->why[sizeof counter->why - 1] = '\0';
    }
  }
  if (!status && counter->status) status = hal_host->error_set(counter->status, 0, counter->why);
  if (!status) *out_count = counter->told;
  pthread_mutex_unlock(&counter->lock);
  return status;
}
