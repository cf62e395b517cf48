/* count.c: counts devices in a child process (hal/plugin_count.h). */
#define _GNU_SOURCE /* pipe2 */
#include "hal/plugin_count.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { COUNT_SECONDS = 30 }; /* for a driver that looks for its devices; the slowest seen took three */

/* What the child that counts tells. */
typedef struct told_s {
  hal_status_t status;
  int32_t count;
  char why[HAL_COUNT_WHY];
} told_t;

static hal_status_t refuse(const hal_counter_t *counter, hal_status_t status, int64_t code, const char *what) {
  char message[HAL_COUNT_WHY];
  const char *const advice = status == HAL_UNAVAILABLE ? counter->advice : strerror((int)code);
  snprintf(message, sizeof message, "%s: %s; %s", counter->plugin, what, advice);
  return hal_host->error_set(status, code, message);
}

static void tell_count(const hal_counter_t *counter, int pipe_end) {
  told_t told = {.status = HAL_OK};
  told.status = counter->count(&told.count, told.why);
  const ssize_t written = write(pipe_end, &told, sizeof told); /* within PIPE_BUF: at once or not at all */
  _exit(written == (ssize_t)sizeof told ? 0 : 1);
}

static int64_t seconds_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec;
}

/* Reads what the child tells, which is there at once or not at all. Returns 1, 0 = it ended without a word, -1 = it has said nothing
 * for too long. */
static int hear(int pipe_end, told_t *out_told) {
  const int64_t end = seconds_now() + COUNT_SECONDS;
  struct pollfd waited = {.fd = pipe_end, .events = POLLIN};
  for (;;) {
    const int64_t left = end - seconds_now();
    const int ready = left > 0 ? poll(&waited, 1, (int)left * 1000) : 0;
    if (!ready) return -1;
    if (ready < 0 && errno != EINTR) return 0;
    if (ready < 0) continue;
    const ssize_t bytes = read(pipe_end, out_told, sizeof *out_told);
    if (bytes >= 0 || errno != EINTR) return bytes == (ssize_t)sizeof *out_told;
  }
}

static hal_status_t count_in_child(const hal_counter_t *counter, told_t *out_told) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC)) return refuse(counter, HAL_INTERNAL, errno, "no pipe to count the devices");
  const pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    tell_count(counter, ends[1]);
  }
  const int fork_error = errno;
  close(ends[1]);
  const int heard = child > 0 ? hear(ends[0], out_told) : 0;
  close(ends[0]);
  if (heard < 0) kill(child, SIGKILL);
  while (child > 0 && waitpid(child, NULL, 0) < 0 && errno == EINTR) {
  }
  if (child < 0) return refuse(counter, HAL_INTERNAL, fork_error, "no process to count the devices");
  if (heard < 0) return refuse(counter, HAL_UNAVAILABLE, 0, "a driver did not count its devices within 30 s");
  if (!heard) return refuse(counter, HAL_UNAVAILABLE, 0, "a driver ended the process that counted the devices");
  return HAL_OK;
}

hal_status_t hal_count_devices(hal_counter_t *counter, int32_t *out_count) {
  hal_status_t status = HAL_OK;
  pthread_mutex_lock(&counter->lock);
  if (counter->told < 0) {
    told_t told = {.count = -1};
    status = count_in_child(counter, &told);
    if (!status) {
      counter->told = told.status ? 0 : told.count;
      counter->status = told.status;
      memcpy(counter->why, told.why, sizeof counter->why);
      counter->why[sizeof counter->why - 1] = '\0';
    }
  }
  if (!status && counter->status) status = hal_host->error_set(counter->status, 0, counter->why);
  if (!status) *out_count = counter->told;
  pthread_mutex_unlock(&counter->lock);
  return status;
}
