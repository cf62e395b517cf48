/* repeated.h: scenes that run many times, each in a separate process, while other processes keep the cores busy.
 * HAL_TEST_REPEAT sets the number of repetitions (3). A scene that takes longer than SECONDS hangs. For plain
 * programs: Criterion forks. */
#ifndef TEST_HAL_STRESS_REPEATED_H_
#define TEST_HAL_STRESS_REPEATED_H_

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LOAD_PROCESSES = 3, SECONDS = 60 };

/* Runs one scene: returns 0 on success, else the line of the failed check. */
typedef int (*scene_fn_t)(void);

typedef struct scene_s {
  const char *name;
  scene_fn_t play;
} scene_t;

#define MUST(condition)                                                                                               \
  do {                                                                                                                \
    if (!(condition)) {                                                                                               \
      fprintf(stderr, "%s:%d: not true: %s (last error: %s)\n", __FILE__, __LINE__, #condition, hal_error_message()); \
      return __LINE__ % 125 + 1;                                                                                      \
    }                                                                                                                 \
  } while (0)

/* Runs `play` in a child and returns its exit status, or -1 if it was killed, for example by its alarm. */
static int in_child(scene_fn_t play) {
  fflush(NULL);
  const pid_t child = fork();
  if (child == 0) {
    alarm(SECONDS);
    _exit(play());
  }
  int status = -1;
  if (child < 0 || waitpid(child, &status, 0) != child) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int repeat(const scene_t *scenes, int count) {
  const char *const wanted = getenv("HAL_TEST_REPEAT");
  const int times = wanted ? atoi(wanted) : 3;
  const pid_t self = getpid();
  pid_t load[LOAD_PROCESSES];
  int failures = 0;
  for (int i = 0; i < LOAD_PROCESSES; i++) {
    load[i] = fork();
    if (load[i] == 0)
      for (volatile unsigned long turns = 0; getppid() == self; turns++) continue;
  }
  for (int i = 0; i < count; i++) {
    int bad = 0;
    for (int time = 0; time < times; time++) bad += in_child(scenes[i].play) != 0;
    printf("%s: %d of %d repetitions failed\n", scenes[i].name, bad, times);
    failures += bad;
  }
  for (int i = 0; i < LOAD_PROCESSES; i++) {
    kill(load[i], SIGKILL);
    waitpid(load[i], NULL, 0);
  }
  return failures || times < 1;
}

#endif /* TEST_HAL_STRESS_REPEATED_H_ */
