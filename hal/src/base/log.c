/* log.c: the log, one line at a time, to standard error or to the application's sink. */
#define _POSIX_C_SOURCE 200809L
#include "hal/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/callback.h"
#include "base/host_malloc.h"
#include "base/log_internal.h"

enum { LINE_BYTES = 2048, LEVEL_UNREAD = -1 };

static const char *const level_names[] = {"error", "warning", "info", "debug"};

static atomic_int threshold = LEVEL_UNREAD;
static hal_lock_t sink_lock;
static hal_log_sink_t sink;
static void *sink_data;
static atomic_int has_sink;

static int read_threshold(void) {
  int level = HAL_LOG_WARNING;
  const char *const wanted = getenv("HAL_LOG");
  for (int i = HAL_LOG_ERROR; wanted && i <= HAL_LOG_DEBUG; i++)
    if (strcmp(wanted, level_names[i]) == 0) level = i;
  atomic_store_explicit(&threshold, level, memory_order_relaxed);
  return level;
}

int32_t hal_log_enabled(int32_t level) {
  int most = atomic_load_explicit(&threshold, memory_order_relaxed);
  if (most == LEVEL_UNREAD) most = read_threshold();
  return level <= most;
}

/* Writes a line to standard error. */
static void print(int32_t level, const char *message) {
  char line[LINE_BYTES];
  const int known = level >= HAL_LOG_ERROR && level <= HAL_LOG_DEBUG;
  int length = snprintf(line, sizeof line - 1, "torch_backend: %s: %s", known ? level_names[level] : "log", message);
  if (length < 0) return;
  if ((size_t)length > sizeof line - 2) length = (int)sizeof line - 2;
  line[length] = '\n';
  /* One write per line, so that lines of several threads and processes do not mix. A failed write is ignored. */
  if (write(STDERR_FILENO, line, (size_t)length + 1) < 0) return;
}

/* Calls the sink of the application. Returns 0 if there is none. */
static int call_sink(int32_t level, const char *message) {
  hal_lock(&sink_lock);
  const hal_log_sink_t target = sink;
  void *const data = sink_data;
  hal_unlock(&sink_lock); /* not held during the call: a sink may log */
  if (!target) return 0;
  hal_callback_check();
  target(level, message, data);
  return 1;
}

/* A line that was logged in a section that defers callbacks. */
typedef struct deferred_line_s {
  hal_callback_t callback;
  int32_t level;
  char message[];
} deferred_line_t;

static void run_deferred(hal_callback_t *callback) {
  deferred_line_t *const line = (deferred_line_t *)callback;
  if (!call_sink(line->level, line->message)) print(line->level, line->message);
  hal_free(line);
}

/* Stores a line until the end of the section. Returns 0 if the host has no memory. */
static int defer(int32_t level, const char *message) {
  const size_t size = strlen(message) + 1;
  deferred_line_t *const line = hal_malloc(sizeof *line + size);
  if (!line) return 0;
  line->callback.run = run_deferred;
  line->level = level;
  memcpy(line->message, message, size);
  hal_callback_run(&line->callback);
  return 1;
}

void hal_log_write(int32_t level, const char *message) {
  int done = 0;
  if (atomic_load_explicit(&has_sink, memory_order_acquire))
    done = hal_callbacks_are_deferred() ? defer(level, message) : call_sink(level, message);
  if (!done) print(level, message);
}

void hal_log(int32_t level, const char *format, ...) {
  if (!hal_log_enabled(level)) return;
  char message[LINE_BYTES - 64]; /* without the beginning of the line */
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  hal_log_write(level, message);
}

void hal_log_from_plugin(int32_t level, const char *message) {
  if (message && hal_log_enabled(level)) hal_log_write(level, message);
}

void hal_log_set_sink(hal_log_sink_t new_sink, void *user_data) {
  hal_lock(&sink_lock);
  sink = new_sink;
  sink_data = user_data;
  atomic_store_explicit(&has_sink, new_sink != NULL, memory_order_release);
  hal_unlock(&sink_lock);
}
