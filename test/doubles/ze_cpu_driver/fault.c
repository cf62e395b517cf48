/* fault.c: faults on request, by ZE_CPU_FAULT or by a test that finds ze_cpu_fault_set in the loaded driver. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "driver.h"

static atomic_llong left[FAULT_KINDS] = {[FAULT_LOST] = -1};
static const char *const names[FAULT_KINDS] = {"alloc", "host", "module", "append", "list", "lost", "delay"};

/* "name=number,...": returns 0, or -1 for an unknown name; `lost=-1` cancels a loss that has not happened. */
__attribute__((visibility("default"))) int ze_cpu_fault_set(const char *text);
int ze_cpu_fault_set(const char *text) {
  for (; *text; text += *text == ',') {
    const size_t length = strcspn(text, "=,");
    int kind = 0;
    while (kind < FAULT_KINDS && (strlen(names[kind]) != length || strncmp(names[kind], text, length) != 0)) kind++;
    if (kind == FAULT_KINDS) return -1;
    text += length;
    const long long number = *text == '=' ? strtoll(text + 1, NULL, 10) : 1;
    atomic_store(&left[kind], number);
    text += strcspn(text, ",");
  }
  return 0;
}

void fault_read(void) {
  const char *const text = getenv("ZE_CPU_FAULT");
  if (text && ze_cpu_fault_set(text)) fprintf(stderr, "ze_cpu_driver: ZE_CPU_FAULT=%s names no fault\n", text);
}

int fault_takes(fault_e kind) {
  long long now = atomic_load(&left[kind]);
  while (now > 0)
    if (atomic_compare_exchange_weak(&left[kind], &now, now - 1)) return 1;
  return 0;
}

void fault_command(device_t *device) {
  const long long delay = atomic_load(&left[FAULT_DELAY]);
  if (delay > 0) {
    const struct timespec pause = {.tv_sec = delay / 1000000, .tv_nsec = delay % 1000000 * 1000};
    nanosleep(&pause, NULL);
  }
  long long before = atomic_load(&left[FAULT_LOST]);
  while (before >= 0 && !atomic_compare_exchange_weak(&left[FAULT_LOST], &before, before - 1)) {
  }
  if (before != 0) return;
  atomic_store(&device->lost, 1);
  event_wake_all();
}
