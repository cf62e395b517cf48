/* fibre.c: the threads of a block as fibres of one thread, which take turns at barriers. They are made once per thread; going from one to the other
 * is a pair of setjmp and longjmp, without a system call. */
#undef _FORTIFY_SOURCE /* whose longjmp refuses to leave a stack */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "stand_in.h"

enum { MOST_FIBRES = 1024, STACK_BYTES = 256 << 10 };

typedef struct fibre_s {
  jmp_buf place;
  int made, working;
  char *stack;
} fibre_t;

typedef struct crew_s { /* of a thread */
  fibre_t fibres[MOST_FIBRES];
  jmp_buf home;
  ucontext_t start;
  unsigned now;
  void (*body)(void *, unsigned);
  void *data;
} crew_t;

static _Thread_local crew_t *crew; /* lives as long as the process: streams are few */

/* Runs one body after the other; between them it waits at home's mercy. */
static void live(void) {
  for (;;) {
    fibre_t *const self = &crew->fibres[crew->now];
    crew->body(crew->data, crew->now);
    self->working = 0;
    if (!_setjmp(self->place)) _longjmp(crew->home, 1);
  }
}

void fibre_yield(void) {
  fibre_t *const self = &crew->fibres[crew->now];
  if (!_setjmp(self->place)) _longjmp(crew->home, 1);
}

static int make(fibre_t *fibre) {
  fibre->stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
  return fibre->stack != MAP_FAILED;
}

static void start(fibre_t *fibre) {
  ucontext_t context;
  getcontext(&context);
  context.uc_stack.ss_sp = fibre->stack;
  context.uc_stack.ss_size = STACK_BYTES;
  context.uc_link = NULL;
  makecontext(&context, live, 0);
  fibre->made = 1;
  setcontext(&context);
}

static void turn(unsigned index) {
  fibre_t *const fibre = &crew->fibres[index];
  crew->now = index;
  if (_setjmp(crew->home)) return;
  if (fibre->made) _longjmp(fibre->place, 1);
  start(fibre);
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
