/* process.c: runs compilers as separate processes (hal/plugin_process.h). */
#define _GNU_SOURCE /* memfd_create, memmem */
#include "hal/plugin_process.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

enum {
  LOOK_MS = 5,   /* between two checks of a program */
  END_MS = 1000, /* time that it has to end after SIGTERM */
  REST_MS = 100  /* time for its children after its end; unreaped zombies count, too */
};

int hal_process_file(const char *name) { return memfd_create(name, MFD_CLOEXEC); }

int hal_process_write(int file, const void *data, size_t size) {
  const char *at = data;
  while (size) {
    const ssize_t written = write(file, at, size);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return 0;
    at += written;
    size -= (size_t)written;
  }
  return lseek(file, 0, SEEK_SET) == 0;
}

size_t hal_process_size(int file) {
  struct stat facts;
  return fstat(file, &facts) || facts.st_size < 0 ? 0 : (size_t)facts.st_size;
}

int hal_process_words(char *options, const char **words, int count, int most) {
  char *rest = NULL;
  for (char *word = strtok_r(options, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
    if (count == most) return -1;
    words[count++] = word;
  }
  return count;
}

/* In a privileged process the environment neither selects the program nor is passed to it. */
static int spawn(pid_t *child, const char *const *words, const posix_spawn_file_actions_t *actions,
                 const posix_spawnattr_t *attributes) {
  static char path[] = "PATH=/usr/bin:/bin", *const clean[] = {path, NULL};
  char program[PATH_MAX];
  char *const *const arguments = (char *const *)(uintptr_t)words;
  if (!getauxval(AT_SECURE)) return posix_spawnp(child, words[0], actions, attributes, arguments, environ);
  if (strchr(words[0], '/')) return posix_spawn(child, words[0], actions, attributes, arguments, clean);
  if (snprintf(program, sizeof program, "/usr/bin/%s", words[0]) >= (int)sizeof program) return ENAMETOOLONG;
  return posix_spawn(child, program, actions, attributes, arguments, clean);
}

/* The child starts with default signals, regardless of those that this thread blocks or its process ignores. `grouped`:
 * it is not in this process's group. */
static int set_signals(posix_spawnattr_t *attributes, int grouped) {
  sigset_t none, some;
  sigemptyset(&none);
  sigemptyset(&some);
  sigaddset(&some, SIGCHLD);
  sigaddset(&some, SIGPIPE);
  int code = posix_spawnattr_setsigmask(attributes, &none);
  if (!code) code = posix_spawnattr_setsigdefault(attributes, &some);
  if (!code) code = posix_spawnattr_setpgroup(attributes, 0);
  const int flags = POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | (grouped ? POSIX_SPAWN_SETPGROUP : 0);
  return code ? code : posix_spawnattr_setflags(attributes, (short)flags);
}

/* Starts a program; returns 0, or the error number. */
static int start(const char *const *words, const int files[3], int grouped, pid_t *child) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  int code = posix_spawn_file_actions_init(&actions);
  if (code) return code;
  code = posix_spawnattr_init(&attributes);
  if (!code) {
    code = set_signals(&attributes, grouped);
    for (int i = 0; i < 3 && !code; i++) code = posix_spawn_file_actions_adddup2(&actions, files[i], i);
    if (!code) code = spawn(child, words, &actions, &attributes);
    posix_spawnattr_destroy(&attributes);
  }
  posix_spawn_file_actions_destroy(&actions);
  return code;
}

static void sleep_ms(int milliseconds) { nanosleep(&(struct timespec){.tv_nsec = milliseconds * 1000000L}, NULL); }

/* Ends the program and its children: SIGTERM lets them remove their files; then SIGKILL. */
static void end_group(pid_t child) {
  int has_ended = 0; /* of the program */
  kill(-child, SIGTERM);
  for (int left = END_MS; left > 0; left -= LOOK_MS) {
    if (!has_ended && waitpid(child, NULL, WNOHANG)) {
      has_ended = 1;
      left = REST_MS;
    }
    if (has_ended && kill(-child, 0)) return;
    sleep_ms(LOOK_MS);
  }
  kill(-child, SIGKILL);
  while (!has_ended && waitpid(child, NULL, 0) < 0 && errno == EINTR) {
  }
}

int hal_process_run(const char *const *words, int in, int out, int log, int *out_error) {
  return hal_process_run_wanted(words, in, out, log, NULL, out_error);
}

int hal_process_run_wanted(const char *const *words, int in, int out, int log, const int32_t *cancelled,
                           int *out_error) {
  const int files[3] = {in, out, log};
  pid_t child, ended;
  int status = 0;
  *out_error = start(words, files, cancelled != NULL, &child);
  if (*out_error) return -1;
  while ((ended = waitpid(child, &status, cancelled ? WNOHANG : 0)) != child) {
    if (ended < 0 && errno != EINTR) return 0; /* ignored: it has ended, and its status is unknown */
    if (!cancelled) continue;
    if (hal_is_cancelled(cancelled)) {
      end_group(child);
      return -1;
    }
    sleep_ms(LOOK_MS);
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Returns the beginning of the first line that contains a word; the end of the text if there is none. */
static const char *line_with(const char *text, const char *end, const char *word) {
  const char *at = memmem(text, (size_t)(end - text), word, strlen(word));
  while (at && at > text && at[-1] != '\n') at--;
  return at ? at : end;
}

void hal_process_log(int file, char *log, size_t room) {
  const size_t size = hal_process_size(file);
  char *const text = size ? mmap(NULL, size, PROT_READ, MAP_PRIVATE, file, 0) : MAP_FAILED;
  if (text == MAP_FAILED) {
    snprintf(log, room, "the compiler left no log");
    return;
  }
  const char *const end = text + size, *const error = line_with(text, end, "error"),
                    *const missing = line_with(text, end, "undefined reference");
  const char *const first = error == end && missing == end ? text : error < missing ? error : missing;
  const size_t left = (size_t)(end - first), length = left < room ? left : room - 1;
  memcpy(log, first, length);
  log[length] = '\0';
  munmap(text, size);
}
