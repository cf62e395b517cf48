/* helper.c: see helper.h. */
#define _GNU_SOURCE /* dladdr, memfd_create */
#include "helper.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <unistd.h>

extern char **environ;

enum { FIRST_FREE = 16, PAGE = 4096 }; /* above all descriptors that the helper gets */

/* Returns the file that contains an address. The dynamic linker knows the program itself only by argv[0], which may be
 * any text. */
static int file_of(const void *address, char path[PATH_MAX]) {
  Dl_info info;
  if (!dladdr(address, &info) || !info.dli_fname) return ENOENT;
  const uintptr_t offset = (uintptr_t)getauxval(AT_PHDR) - (uintptr_t)info.dli_fbase;
  return realpath(offset < PAGE ? "/proc/self/exe" : info.dli_fname, path) ? 0 : errno;
}

int hal_helper_find(const void *of, char path[PATH_MAX]) {
  static const char *const places[] = {"/", "/../lib/"};
  char folder[PATH_MAX], candidate[PATH_MAX], found[PATH_MAX];
  snprintf(path, PATH_MAX, "%s", HAL_HELPER_FILE);
  const int code = file_of(of, folder);
  if (code) return code;
  *strrchr(folder, '/') = '\0'; /* realpath: there is one */
  for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
    const int length = snprintf(candidate, sizeof candidate, "%s%s%s", folder, places[i], HAL_HELPER_FILE);
    if (length < 0 || length >= (int)sizeof candidate) return ENAMETOOLONG;
    if (i == 0) memcpy(path, candidate, (size_t)length + 1);
    if (realpath(candidate, found)) {
      memcpy(path, found, strlen(found) + 1);
      return access(found, X_OK) ? errno : 0;
    }
  }
  return ENOENT;
}

/* As in a new process, whatever signals this process ignores or this thread blocks. */
static int set_signals(posix_spawnattr_t *attributes) {
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  sigdelset(&all, SIGKILL), sigdelset(&all, SIGSTOP);
  int code = posix_spawnattr_setsigmask(attributes, &none);
  if (!code) code = posix_spawnattr_setsigdefault(attributes, &all);
  return code ? code : posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
}

static int spawn(pid_t *child, char *const *words, const int files[HAL_HELPER_FILES]) {
  static char search[] = "PATH=/usr/bin:/bin", *const clean[] = {search, NULL};
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  int code = posix_spawn_file_actions_init(&actions);
  if (code) return code;
  code = posix_spawnattr_init(&attributes);
  if (!code) {
    code = set_signals(&attributes);
    for (int i = 0; i < HAL_HELPER_FILES && !code; i++) code = posix_spawn_file_actions_adddup2(&actions, files[i], i);
    if (!code)
      code = posix_spawn(child, words[0], &actions, &attributes, words, getauxval(AT_SECURE) ? clean : environ);
    posix_spawnattr_destroy(&attributes);
  }
  posix_spawn_file_actions_destroy(&actions);
  return code;
}

/* Opens an empty input and an unused output: /dev/null, or a file in memory if the user of this process may not open
 * it, as in a sandbox. */
static int open_null(void) {
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  return null >= 0 ? null : memfd_create("hal-null", MFD_CLOEXEC);
}

int hal_helper_start(pid_t *out_child, const char *path, const char *operation, const char *plugin, int messages,
                     int result) {
  char *const words[] = {(char *)(uintptr_t)path, (char *)(uintptr_t)operation, (char *)(uintptr_t)plugin, NULL};
  const int null = open_null();
  if (null < 0) return errno;
  const int sources[HAL_HELPER_FILES] = {null, null, messages < 0 ? null : messages, result};
  int files[HAL_HELPER_FILES], count = 0, code = 0;
  for (; count < HAL_HELPER_FILES && !code; count++) { /* copies that the helper's own numbers do not overwrite */
    files[count] = fcntl(sources[count], F_DUPFD_CLOEXEC, FIRST_FREE);
    if (files[count] < 0) code = errno;
  }
  if (!code) code = spawn(out_child, words, files);
  while (count-- > 0)
    if (files[count] >= 0) close(files[count]);
  close(null);
  return code;
}
