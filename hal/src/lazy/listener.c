/* listener.c: the functions of a description (hal_lazy_desc_t), which are called while the thread holds no HAL lock: what they are told
 * in a section that defers callbacks waits for its end (base/callback.h), and hal_lazy_end waits for all of them. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status_internal.h"
#include "lazy/lazy.h"

/* ---- calls that are due ------------------------------------------------------------------------------------------------------ */

void hal_lazy_hold(hal_lazy_t *lazy) { atomic_fetch_add(&lazy->calls, 1); }

void hal_lazy_let_go(hal_lazy_t *lazy) { atomic_fetch_sub(&lazy->calls, 1); }

void hal_lazy_lock_quiet(hal_lazy_t *lazy) {
  hal_callbacks_drain(); /* this thread's own, in case it is in a callback */
  hal_lock(&lazy->queueing);
  while (atomic_load(&lazy->calls)) {
    hal_unlock(&lazy->queueing);
    sched_yield();
    hal_lock(&lazy->queueing);
  }
}

/* ---- where operators were called --------------------------------------------------------------------------------------------- */

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

/* Appends at most what fits and counts all of it. */
static void append(char *text, size_t room, size_t *size, const char *more, size_t length) {
  if (*size < room) memcpy(text + *size, more, length < room - *size ? length : room - *size);
  *size += length;
}

/* Writes a text with its origins described, as far as there is room, and its 0. Returns its size. */
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

/* Writes a text of hal_tape_text with its origins described. Sizes are as of hal_lazy_text. */
static void write_expanded(const hal_lazy_desc_t *desc, const char *marked, char *text, size_t room, size_t *out_size) {
  *out_size = expand(desc, marked, NULL, 0);
  if (!text || room < *out_size) return;
  expand(desc, marked, text, room);
  text[*out_size - 1] = '\0'; /* whatever `describe` wrote the second time */
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
  hal_status_t status = hal_tape_text(&lazy->program.tape, title, &lazy->desc, format, NULL, 0, &size);
  if (!status) marked = hal_malloc(size);
  if (marked) status = hal_tape_text(&lazy->program.tape, title, &lazy->desc, format, marked, size, &size);
  hal_program_unlock(&lazy->program);
  if (!status && !marked) status = hal_error_set(HAL_RESOURCE_EXHAUSTED, "the host has no memory for a text");
  if (!status) write_expanded(&lazy->desc, marked, text, room, out_size);
  hal_free(marked);
  return status;
}

/* ---- listeners --------------------------------------------------------------------------------------------------------------- */

/* One call of `compiled` or of `queueing`. */
typedef struct told_s {
  hal_callback_t callback;
  hal_lazy_t *lazy;
  uint64_t origin;
  const char *cause; /* NULL: of `compiled` */
  char text[];       /* and behind it the cause */
} told_t;

static void tell_queueing(const hal_lazy_desc_t *desc, const told_t *told) {
  size_t size = expand(desc, told->text, NULL, 0);
  char *const text = hal_malloc(size);
  if (text) write_expanded(desc, told->text, text, size, &size);
  hal_callback_check();
  desc->queueing(desc->state, told->cause, text ? text : "");
  hal_free(text);
}

static void run_told(hal_callback_t *callback) {
  told_t *const told = (told_t *)callback;
  hal_lazy_t *const lazy = told->lazy;
  const hal_lazy_desc_t *const desc = &lazy->desc; /* stays as long as it is held */
  if (told->cause)
    tell_queueing(desc, told);
  else
    desc->compiled(desc->state, told->origin, told->text);
  hal_free(told);
  hal_lazy_let_go(lazy);
}

/* Makes a call that is due. Without memory for it, the listener is not told. */
static told_t *make_told(hal_lazy_t *lazy, size_t size) {
  told_t *const told = hal_malloc(sizeof *told + size);
  if (!told) return NULL;
  *told = (told_t){.callback = {.run = run_told}, .lazy = lazy};
  hal_lazy_hold(lazy);
  return told;
}

static void tell_compiled(hal_tape_observer_t *observer, uint64_t origin, const char *text) {
  hal_lazy_t *const lazy = (hal_lazy_t *)(void *)((char *)observer - offsetof(hal_lazy_t, observer));
  const size_t size = strlen(text) + 1;
  told_t *const told = make_told(lazy, size);
  if (!told) return;
  told->origin = origin;
  memcpy(told->text, text, size);
  hal_callback_run(&told->callback);
}

void hal_lazy_observe(hal_lazy_t *lazy) { lazy->observer.compiled = lazy->desc.compiled ? tell_compiled : NULL; }

void hal_lazy_tell_queueing(hal_lazy_t *lazy, const char *cause) {
  const hal_lazy_desc_t *const desc = &lazy->desc;
  const size_t cause_size = strlen(cause) + 1;
  char title[160];
  size_t size = 0;
  write_title(lazy, title, sizeof title);
  if (hal_tape_text(&lazy->tape, title, desc, desc->format, NULL, 0, &size)) return;
  told_t *const told = make_told(lazy, size + cause_size);
  if (!told) return;
  hal_tape_text(&lazy->tape, title, desc, desc->format, told->text, size, &size);
  told->cause = memcpy(told->text + size, cause, cause_size);
  hal_callback_run(&told->callback);
}
