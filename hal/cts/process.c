/* process.c: the process state that a plugin must not change: descriptors, standard output, signals, the working
 * directory. */
#define _GNU_SOURCE /* NSIG, sigaction */
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "run.h"

enum { SENTINELS = 8, SIGNALS = 32 };

static struct {
  int files[SENTINELS], out;
  struct stat stats[SENTINELS];
  struct sigaction actions[SIGNALS];
  char folder[PATH_MAX];
} before;

static int is_watched(int signal) {
  return signal != SIGKILL && signal != SIGSTOP && signal != SIGSEGV && signal != SIGBUS && signal != SIGFPE &&
         signal != SIGILL;
}

void cts_process_remember(void) {
  for (int i = 0; i < SENTINELS; i++) {
    before.files[i] = memfd_create("cts", 0);
    if (before.files[i] >= 0) fstat(before.files[i], &before.stats[i]);
  }
  before.out = memfd_create("stdout", 0);
  if (before.out >= 0) dup2(before.out, STDOUT_FILENO);
  for (int signal = 1; signal < SIGNALS; signal++)
    if (is_watched(signal)) sigaction(signal, NULL, &before.actions[signal]);
  if (!getcwd(before.folder, sizeof before.folder)) before.folder[0] = '\0';
}

static int files_are_open(char *text, size_t size) {
  struct stat now;
  for (int i = 0; i < SENTINELS; i++) {
    if (before.files[i] < 0) continue;
    if (fstat(before.files[i], &now) || now.st_ino != before.stats[i].st_ino || now.st_dev != before.stats[i].st_dev)
      return snprintf(text, size, "a file descriptor of the host, %d, was closed or replaced", before.files[i]), 0;
  }
  return 1;
}

static int output_is_empty(char *text, size_t size) {
  struct stat now;
  char words[200] = "";
  fflush(stdout);
  if (before.out < 0 || fstat(before.out, &now) || now.st_size == 0) return 1;
  if (pread(before.out, words, sizeof words - 1, 0) < 0) words[0] = '\0';
  return snprintf(text, size, "something was written to standard output: \"%s\"", words), 0;
}

static int folder_is_the_same(char *text, size_t size) {
  char folder[PATH_MAX];
  if (!getcwd(folder, sizeof folder)) folder[0] = '\0';
  if (strcmp(folder, before.folder) == 0) return 1;
  return snprintf(text, size, "the working directory was changed from %.100s to %.100s", before.folder, folder), 0;
}

int cts_process_signals_are_the_same(char *text, size_t size) {
  for (int signal = 1; signal < SIGNALS; signal++) {
    struct sigaction action;
    if (!is_watched(signal) || sigaction(signal, NULL, &action)) continue;
    if (action.sa_handler != before.actions[signal].sa_handler)
      return snprintf(text, size, "the handler of signal %d (%s) was changed", signal, strsignal(signal)), 0;
  }
  return 1;
}

uint32_t cts_process_changes(char *text, size_t size, uint32_t known) {
  if (!(known & CTS_FILES) && !files_are_open(text, size)) return CTS_FILES;
  if (!(known & CTS_OUTPUT) && !output_is_empty(text, size)) return CTS_OUTPUT;
  if (!(known & CTS_FOLDER) && !folder_is_the_same(text, size)) return CTS_FOLDER;
  return 0;
}
