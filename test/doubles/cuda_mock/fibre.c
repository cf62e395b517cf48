/* fibre.c: the threads of a block as fibers of one thread, which switch at barriers. They are created once per
 * thread; a switch is a pair of setjmp and longjmp, without a system call. */
#undef _FORTIFY_SOURCE /* whose longjmp refuses to leave a stack */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "mock.h"

/* Notifies the address sanitizer of the stack in use. `keep`: its state of the previous stack. */
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#define LEAVE(keep, bottom, size) __sanitizer_start_switch_fiber(keep, bottom, size)
#define ARRIVE(keep, bottom, size) __sanitizer_finish_switch_fiber(keep, bottom, size)
#else
#define LEAVE(keep, bottom, size) ((void)0)
#define ARRIVE(keep, bottom, size) ((void)0)
#endif

enum { MOST_FIBRES = 1024, STACK_BYTES = 256 << 10 };

typedef struct fibre_s {
  jmp_buf place;
  int made, working;
  char *stack;
  void *kept;
} fibre_t;

typedef struct crew_s { /* of a thread */
  fibre_t fibres[MOST_FIBRES];
  jmp_buf home;
  ucontext_t start;
  unsigned now;
  void *kept;
  const void *bottom; /* of home's stack */
  size_t size;
  void (*body)(void *, unsigned);
  void *data;
} crew_t;

static _Thread_local crew_t *crew; /* exists as long as its thread */

/* Resumes the home context; returns when it is this fiber's turn again. */
void fibre_yield(void) {
  fibre_t *const self = &crew->fibres[crew->now];
  LEAVE(&self->kept, crew->bottom, crew->size);
  if (!_setjmp(self->place)) _longjmp(crew->home, 1);
  ARRIVE(self->kept, &crew->bottom, &crew->size);
}

/* Runs one body after the other. */
static void live(void) {
  ARRIVE(NULL, &crew->bottom, &crew->size);
  for (;;) {
    crew->body(crew->data, crew->now);
    crew->fibres[crew->now].working = 0;
    fibre_yield();
  }
}

static int make(fibre_t *fibre) {
  void *const stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
  fibre->stack = stack == MAP_FAILED ? NULL : stack;
  return fibre->stack != NULL;
}

static void start(fibre_t *fibre) {
  getcontext(&crew->start);
  crew->start.uc_stack.ss_sp = fibre->stack;
  crew->start.uc_stack.ss_size = STACK_BYTES;
  crew->start.uc_link = NULL;
  makecontext(&crew->start, live, 0);
  fibre->made = 1;
  setcontext(&crew->start);
}

static void turn(unsigned index) {
  fibre_t *const fibre = &crew->fibres[index];
  crew->now = index;
  if (!_setjmp(crew->home)) {
    LEAVE(&crew->kept, fibre->stack, STACK_BYTES);
    if (fibre->made) _longjmp(fibre->place, 1);
    start(fibre);
  }
  ARRIVE(crew->kept, NULL, NULL);
}

void fibres_run(unsigned count, void (*body)(void *, unsigned), void *data) {
  if (!crew) crew = calloc(1, sizeof *crew);
  if (!crew || count > MOST_FIBRES) abort();
  crew->body = body;
  crew->data = data;
  for (unsigned i = 0; i < count; i++) {
    if (!crew->fibres[i].stack && !make(&crew->fibres[i])) abort();
    crew->fibres[i].working = 1;
  }
  for (unsigned left = count; left;) {
    left = 0;
    for (unsigned i = 0; i < count; i++) {
      if (!crew->fibres[i].working) continue;
      turn(i);
      left += (unsigned)crew->fibres[i].working;
    }
  }
}

void fibres_release(void) {
  for (unsigned i = 0; crew && i < MOST_FIBRES; i++)
    if (crew->fibres[i].stack) munmap(crew->fibres[i].stack, STACK_BYTES);
  free(crew);
  crew = NULL;
}
