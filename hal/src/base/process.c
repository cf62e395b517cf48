/* process.c: see process.h. */
#define _POSIX_C_SOURCE 200809L
#include "base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int64_t hal_process_start(int32_t process) {
  char path[32], line[1024];
  if (process <= 0) return 0;
  snprintf(path, sizeof path, "/proc/%d/stat", (int)process);
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return errno == ENOENT || (kill(process, 0) && errno == ESRCH) ? 0 : -1;
  const ssize_t length = read(file, line, sizeof line - 1);
  const int code = errno;
  close(file);
  if (length <= 0) return length < 0 && code != ESRCH ? -1 : 0; /* ESRCH: the process ended between open and read */
  line[length] = '\0';
  const char *field = strrchr(line, ')'); /* the program's name may contain spaces */
  if (!field || strncmp(field, ") Z", 3) == 0 || strncmp(field, ") X", 3) == 0) return 0;
  for (int i = 2; i < 22 && field; i++) field = strchr(field + 1, ' '); /* the 22nd field of proc(5) */
  return field ? (int64_t)strtoll(field, NULL, 10) : -1;
}
