/* listener.c: calls the functions of a description (hal_lazy_desc_t) while the thread holds no HAL lock. A call in a
 * section that defers callbacks runs at its end (base/callback.h). hal_lazy_end waits for all calls. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/life.h"
#include "base/status_internal.h"
#include "lazy/lazy.h"

/* ---- calls that are due ------------------------------------------------------------------------------------------ */

void hal_lazy_retain_desc(hal_lazy_t *lazy) { atomic_fetch_add(&lazy->calls, 1); }

void hal_lazy_release_desc(hal_lazy_t *lazy) { atomic_fetch_sub(&lazy->calls, 1); }

void hal_lazy_lock_quiet(hal_lazy_t *lazy) {
  hal_callbacks_drain(); /* this thread's own, in case it is in a callback */
  hal_lock(&lazy->queueing);
  while (atomic_load(&lazy->calls) && !atomic_load(&hal_life.forked)) { /* the threads of the parent do not return */
    hal_unlock(&lazy->queueing);
    sched_yield();
    hal_lock(&lazy->queueing);
  }
}

/* ---- where operators were called --------------------------------------------------------------------------------- */

void hal_lazy_describe(const hal_lazy_desc_t *desc, uint64_t origin, char *text, size_t room) {
  *text = '\0';
  if (!origin || !desc->origin) return;
  if (!desc->describe || hal_callbacks_are_deferred()) {
    snprintf(text, room, "origin %llu", (unsigned long long)origin);
    return;
  }
  hal_callback_check();
  desc->describe(desc->state, origin, text, room);
}

void hal_lazy_write_position(const hal_lazy_desc_t *desc, char *text, size_t room) {
  const hal_lazy_origin_fn_t origin = desc->origin ? desc->origin : desc->limit_origin;
  char where[256] = "";
  *text = '\0';
  if (origin && desc->describe) {
    hal_callback_check();
    desc->describe(desc->state, origin(desc->state), where, sizeof where);
  }
  if (*where) snprintf(text, room, " at %s", where);
}

/* Appends as many bytes as fit and counts all of them. */
static void append(char *text, size_t room, size_t *size, const char *more, size_t length) {
  if (*size < room) memcpy(text + *size, more, length < room - *size ? length : room - *size);
  *size += length;
}

/* Writes a text with its origins described and the terminating 0, as far as it fits. Returns its size. */
static size_t expand(const hal_lazy_desc_t *desc, const char *marked, char *text, size_t room) {
  size_t size = 0;
  for (const char *mark, *end; (mark = strchr(marked, HAL_ORIGIN_MARK)) && (end = strchr(mark + 1, HAL_ORIGIN_MARK));
       marked = end + 1) {
    char where[256];
    append(text, room, &size, marked, (size_t)(mark - marked));
    hal_lazy_describe(desc, strtoull(mark + 1, NULL, 10), where, sizeof where);
    append(text, room, &size, where, strlen(where));
  }
  append(text, room, &size, marked, strlen(marked) + 1);
  return size;
}

/* Writes a text of hal_command_list_text with its origins described. Sizes as in hal_lazy_text. */
static void write_expanded(const hal_lazy_desc_t *desc, const char *marked, char *text, size_t room, size_t *out_size) {
  *out_size = expand(desc, marked, NULL, 0);
  if (!text || room < *out_size) return;
  expand(desc, marked, text, room);
  text[*out_size - 1] = '\0'; /* `describe` may have written a longer text the second time */
}

/* Writes "stream 3 of device fake:0: deferred work". */
static void write_title(const hal_lazy_t *lazy, char *title, size_t room) {
  snprintf(title, room, "stream %lld of device %s: deferred work", (long long)lazy->program.stream->id,
           lazy->program.device->label);
}

hal_status_t hal_lazy_text(hal_lazy_t *lazy, uint32_t format, char *text, size_t room, size_t *out_size) {
  char title[160], *marked = NULL;
  size_t size = 0;
  write_title(lazy, title, sizeof title);
  hal_program_lock(&lazy->program);
  hal_status_t status = hal_command_list_text(&lazy->program.list, title, &lazy->desc, format, NULL, 0, &size);
  if (!status) marked = hal_malloc(size);
  if (marked) status = hal_command_list_text(&lazy->program.list, title, &lazy->desc, format, marked, size, &size);
  hal_program_unlock(&lazy->program);
  if (!status && !marked) status = hal_error_set(HAL_RESOURCE_EXHAUSTED, "the host has no memory for a text");
  if (!status) write_expanded(&lazy->desc, marked, text, room, out_size);
  hal_free(marked);
  return status;
}

/* ---- listeners --------------------------------------------------------------------------------------------------- */

/* One call of `compiled` or of `queueing`. */
typedef struct report_s {
  hal_callback_t callback;
  hal_lazy_t *lazy;
  uint64_t origin;
  const char *cause; /* NULL: of `compiled` */
  char text[];       /* followed by the cause */
} report_t;

static void call_queueing(const hal_lazy_desc_t *desc, const report_t *report) {
  size_t size = expand(desc, report->text, NULL, 0);
  char *const text = hal_malloc(size);
  if (text) write_expanded(desc, report->text, text, size, &size);
  hal_callback_check();
  desc->queueing(desc->state, report->cause, text ? text : "");
  hal_free(text);
}

static void run_report(hal_callback_t *callback) {
  report_t *const report = (report_t *)callback;
  hal_lazy_t *const lazy = report->lazy;
  const hal_lazy_desc_t *const desc = &lazy->desc; /* retained by make_report */
  if (report->cause)
    call_queueing(desc, report);
  else
    desc->compiled(desc->state, report->origin, report->text);
  hal_free(report);
  hal_lazy_release_desc(lazy);
}

/* Creates a call that is due; NULL = no memory, and the listener is not called. */
static report_t *make_report(hal_lazy_t *lazy, size_t size) {
  report_t *const report = hal_malloc(sizeof *report + size);
  if (!report) return NULL;
  *report = (report_t){.callback = {.run = run_report}, .lazy = lazy};
  hal_lazy_retain_desc(lazy);
  return report;
}

static void report_compiled(hal_command_list_observer_t *observer, uint64_t origin, const char *text) {
  hal_lazy_t *const lazy = (hal_lazy_t *)(void *)((char *)observer - offsetof(hal_lazy_t, observer));
  const size_t size = strlen(text) + 1;
  report_t *const report = make_report(lazy, size);
  if (!report) return;
  report->origin = origin;
  memcpy(report->text, text, size);
  hal_callback_run(&report->callback);
}

void hal_lazy_observe(hal_lazy_t *lazy) { lazy->observer.compiled = lazy->desc.compiled ? report_compiled : NULL; }

void hal_lazy_report_queueing(hal_lazy_t *lazy, const char *cause) {
  const hal_lazy_desc_t *const desc = &lazy->desc;
  const size_t cause_size = strlen(cause) + 1;
  char title[160];
  size_t size = 0;
  write_title(lazy, title, sizeof title);
  if (hal_command_list_text(&lazy->list, title, desc, desc->format, NULL, 0, &size)) return;
  report_t *const report = make_report(lazy, size + cause_size);
  if (!report) return;
  hal_command_list_text(&lazy->list, title, desc, desc->format, report->text, size, &size);
  report->cause = memcpy(report->text + size, cause, cause_size);
  hal_callback_run(&report->callback);
}
