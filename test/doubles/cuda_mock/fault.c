/* fault.c: faults on request, by CUDA_MOCK_FAULT or by a test that finds cuda_mock_fault_set in the loaded
   library. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "mock.h"

static atomic_llong spared[FAULT_KINDS]; /* successful calls before the failures begin */
static atomic_llong left[FAULT_KINDS] = {[FAULT_LOST] = -1, [FAULT_CODE] = CUDA_ERROR_LAUNCH_FAILED};
static const char *const names[FAULT_KINDS] = {"alloc", "host",    "module", "launch", "copy",  "stream",
                                               "event", "context", "reset",  "lost",   "delay", "code"};

/* "name=number,...", or name=number/spared: the failures begin after that many calls. Returns 0, or -1 for an
   unknown name; `lost=-1` cancels a loss that has not happened. */
API int cuda_mock_fault_set(const char *text);
int cuda_mock_fault_set(const char *text) {
  for (; *text; text += *text == ',') {
    const size_t length = strcspn(text, "=,");
    int kind = 0;
    while (kind < FAULT_KINDS && (strlen(names[kind]) != length || strncmp(names[kind], text, length) != 0)) kind++;
    if (kind == FAULT_KINDS) return -1;
    text += length;
    const long long number = *text == '=' ? strtoll(text + 1, NULL, 10) : 1;
    const char *const slash = text + strcspn(text, "/,");
    atomic_store(&spared[kind], *slash == '/' ? strtoll(slash + 1, NULL, 10) : 0);
    atomic_store(&left[kind], number);
    text += strcspn(text, ",");
  }
  return 0;
}

void fault_read(void) {
  const char *const text = getenv("CUDA_MOCK_FAULT");
  if (text && cuda_mock_fault_set(text)) fprintf(stderr, "cuda_mock: CUDA_MOCK_FAULT=%s names no fault\n", text);
}

/* Decrements a number that is more than 0. Returns whether it was. */
static int take(atomic_llong *number) {
  long long now = atomic_load(number);
  while (now > 0)
    if (atomic_compare_exchange_weak(number, &now, now - 1)) return 1;
  return 0;
}

int fault_takes(fault_e kind) {
  if (atomic_load(&left[kind]) <= 0 || take(&spared[kind])) return 0;
  return take(&left[kind]);
}

void fault_command(CUcontext context) {
  const long long delay = atomic_load(&left[FAULT_DELAY]);
  if (delay > 0) {
    const struct timespec pause = {.tv_sec = delay / 1000000, .tv_nsec = delay % 1000000 * 1000};
    nanosleep(&pause, NULL);
  }
  long long before = atomic_load(&left[FAULT_LOST]);
  while (before >= 0 && !atomic_compare_exchange_weak(&left[FAULT_LOST], &before, before - 1)) {
  }
  if (before == 0) atomic_store(&context->error, (int)atomic_load(&left[FAULT_CODE]));
}
