/* fake_child.h: runs a part of a test in a process of its own. */
#ifndef TEST_HAL_FAKE_CHILD_H_
#define TEST_HAL_FAKE_CHILD_H_

#include <criterion/criterion.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* Calls `body` in a child process, which ends by the function or with code 0, after at most 50 seconds. Writes its
 * standard error to `report`; returns its status for waitpid. */
static inline int run_in_child(void (*body)(const void *), const void *data, char *report, size_t size) {
  int ends[2], status = 0;
  size_t length = 0;
  ssize_t count;
  cr_assert_eq(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGALRM, SIG_DFL);
    alarm(50);
    dup2(ends[1], STDERR_FILENO);
    body(data);
    _exit(0);
  }
  close(ends[1]);
  while ((count = read(ends[0], report + length, size - 1 - length)) > 0) length += (size_t)count;
  report[length] = 0;
  close(ends[0]);
  waitpid(child, &status, 0);
  return status;
}

#endif /* TEST_HAL_FAKE_CHILD_H_ */
