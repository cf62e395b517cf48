/* gate.c: see cts.h. Whether a call waits is determined by the state of the process, not by a clock, which would be
 * wrong on a busy machine. While the gate is closed, all threads except the gate's sleep in checks of two seconds in a
 * row, and the same call is still running. Such a call ends only when the gate opens. */
#define _GNU_SOURCE /* gettid */
#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cts.h"

enum { LOOK_EVERY = 10 /* naps */, LOOKS = 200, AWAKE_S = 60, SPUN_S = 6, A_WHILE = 200 /* naps */ };

static long own_id(void) { return syscall(SYS_gettid); }

/* Returns 1 if the thread sleeps, 0 if it runs, could run, or waits for a disk. */
static int sleeps(long thread) {
  char path[64], line[512];
  snprintf(path, sizeof path, "/proc/self/task/%ld/stat", thread);
  FILE *const file = fopen(path, "re");
  if (!file) return 1; /* it has ended */
  const size_t length = fread(line, 1, sizeof line - 1, file);
  fclose(file);
  line[length] = '\0';
  const char *const end = strrchr(line, ')');
  return end && end[1] && end[2] == 'S';
}

/* Returns the seconds that a thread has computed. */
static double computed_s(long thread) {
  char path[64], line[512];
  unsigned long user = 0, system = 0;
  snprintf(path, sizeof path, "/proc/self/task/%ld/stat", thread);
  FILE *const file = fopen(path, "re");
  if (!file) return 0;
  const size_t length = fread(line, 1, sizeof line - 1, file);
  fclose(file);
  line[length] = '\0';
  const char *const end = strrchr(line, ')');
  if (!end || sscanf(end + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system) != 2) return 0;
  return (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
}

static int all_others_sleep(void) {
  DIR *const tasks = opendir("/proc/self/task");
  if (!tasks) return 0;
  const long own = own_id();
  int all = 1;
  for (const struct dirent *entry; all && (entry = readdir(tasks));) {
    const long thread = atol(entry->d_name);
    if (thread > 0 && thread != own) all = sleeps(thread);
  }
  closedir(tasks);
  return all;
}

static void complain(cts_gate_t *gate, uint32_t slot, const char *why) {
  cts_fail(gate->t,
           "%s waited for work that the suite held back on a stream (%s): it must queue its work and return, or serve "
           "another stream",
           cts_slot_name(slot), why);
}

static void hold(void *data) {
  cts_gate_t *const gate = data;
  cts_page_t *const page = gate->t->page;
  atomic_store(&gate->entered, 1);
  if (own_id() == gate->caller && atomic_load(&page->slot) != HAL_SLOT_COUNT && !atomic_load(&gate->open) &&
      !gate->may_block)
    complain(gate, atomic_load(&page->slot), "it ran the stream's host function in the caller's thread");
  uint32_t at = atomic_load(&page->sequence);
  int64_t since = cts_now_ns();
  double computed = computed_s(gate->caller);
  for (int naps = 0, looks = 0; !atomic_load(&gate->open); naps++) {
    cts_nap();
    const uint32_t now = atomic_load(&page->sequence), slot = atomic_load(&page->slot);
    if (now != at || slot == HAL_SLOT_COUNT || gate->may_block) {
      at = now, looks = 0, since = cts_now_ns(), computed = computed_s(gate->caller);
      continue;
    }
    if (naps % LOOK_EVERY) continue;
    looks = all_others_sleep() ? looks + 1 : 0;
    if (looks >= LOOKS) complain(gate, slot, "every thread of the process sleeps");
    if (computed_s(gate->caller) - computed > SPUN_S) complain(gate, slot, "its thread looks again and again");
    if (cts_now_ns() - since > AWAKE_S * INT64_C(1000000000)) complain(gate, slot, "for a minute");
  }
  atomic_store(&gate->left, 1);
}

void cts_gate_close(cts_t *t, cts_gate_t *gate, hal_plugin_stream_t *stream) {
  *gate = (cts_gate_t){.t = t, .caller = own_id()};
  CTS_OK(t, stream_host_call, stream, hold, gate);
}

void cts_gate_open(cts_gate_t *gate) { atomic_store(&gate->open, 1); }

int cts_gate_was_open(const cts_gate_t *gate) { return atomic_load(&gate->open); }

/* Waits until the caller sleeps in the next call, or has been in it for some time. If the call has returned, the caller
 * opens the gate. */
static void *open_it(void *data) {
  cts_gate_t *const gate = data;
  const cts_page_t *const page = gate->t->page;
  while (atomic_load(&page->slot) == HAL_SLOT_COUNT && !atomic_load(&gate->open)) cts_nap();
  const uint32_t at = atomic_load(&page->sequence);
  for (int naps = 0, asleep = 0; naps < A_WHILE && asleep < 20; naps++) {
    cts_nap();
    if (atomic_load(&page->slot) == HAL_SLOT_COUNT || atomic_load(&page->sequence) != at) {
      while (!atomic_load(&gate->open)) cts_nap(); /* it returned before the gate was open */
      return NULL;
    }
    asleep = sleeps(gate->caller) ? asleep + 1 : 0;
  }
  cts_gate_open(gate);
  return NULL;
}

void cts_gate_open_later(cts_gate_t *gate) {
  pthread_t thread;
  gate->may_block = 1;
  if (pthread_create(&thread, NULL, open_it, gate)) cts_fail(gate->t, "error of the suite: no thread can be made");
  pthread_detach(thread);
}
