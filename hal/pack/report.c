/* report.c: the list of modules that failed, the kernels of each reason together. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "packing.h"

enum { MOST_REASONS = 20, NAMES_IN_A_LINE = 8 };

/* A reason may name its module: only its first line is compared and printed. */
static int is_same_reason(const char *a, const char *b) {
  const size_t length = strcspn(a, "\n");
  return length == strcspn(b, "\n") && strncmp(a, b, length) == 0;
}

/* Prints the names of all modules after `first` that failed for its reason, and removes them from the list. */
static void print_names(const packed_t **failed, size_t first, size_t count) {
  const char *const why = failed[first]->why;
  size_t printed = 0;
  for (size_t i = first; i < count; i++) {
    if (!failed[i] || !is_same_reason(why, failed[i]->why)) continue;
    fprintf(stderr, "%s%s", printed % NAMES_IN_A_LINE ? " " : printed ? "\n    " : "    ", failed[i]->kernel);
    if (i > first) failed[i] = NULL;
    printed++;
  }
  fputc('\n', stderr);
}

void packing_report(const packed_t *modules, size_t count, size_t failed) {
  if (!failed) return;
  const packed_t **const list = calloc(failed, sizeof *list);
  size_t listed = 0, reasons = 0;
  fprintf(stderr, "hal-pack: %zu of %zu modules are not in the pack\n", failed, count);
  for (size_t i = 0; list && i < count && listed < failed; i++)
    if (modules[i].why) list[listed++] = &modules[i];
  for (size_t i = 0; i < listed; i++) {
    if (!list[i]) continue;
    if (reasons++ == MOST_REASONS) {
      fprintf(stderr, "  and further reasons\n");
      break;
    }
    fprintf(stderr, "  %.*s\n", (int)strcspn(list[i]->why, "\n"), list[i]->why);
    print_names(list, i, listed);
  }
  free((void *)list);
}
