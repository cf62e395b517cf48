/* fail.c: the first failure of a transport. After it, every rank returns this failure.
 *
 * A rank that fails aborts its transports, which ends its own waits. The abort of shared memory carries the message
 * to the ranks of the host. Other hosts read it in the store: each rank has a thread, the watcher, that reads the
 * store while a call runs. The watcher also stores the failure of its own rank, because the thread that fails does
 * not wait. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "comm/hierarchy/internal.h"
#include "comm/shm/internal.h"
#include "comm/shm/system.h"

static const int64_t local_ns = 200 * 1000 * 1000; /* within which a rank of this host that knows a failure stores it */
/* within which the ranks of another host detect that a rank has ended */
static const int64_t words_ns = 600 * 1000 * 1000;
/* Within which a rank whose time is over stores what it waits for. A busy machine may need more than this rank's
 * grace. */
static const int64_t others_ns = INT64_C(2000) * 1000 * 1000;

/* Precedes the code and the text in the reason of an abort. */
#define MARK "\x01"

/* ---- the failure ---- */

hal_status_t hal_hier_failed(hal_hier_t *hier) {
  if (!atomic_load(&hier->failed)) return HAL_OK;
  return hal_error_set(hier->words.code, "%s", hier->words.text);
}

static hal_status_t fail(hal_hier_t *hier, hal_status_t code, const char *text, int publishes) {
  char reason[HAL_HIER_TEXT + 32];
  pthread_mutex_lock(&hier->watch->lock);
  const int is_first = !atomic_load(&hier->failed);
  if (is_first) {
    hier->words.code = code;
    snprintf(hier->words.text, sizeof hier->words.text, "%s", text);
    atomic_store(&hier->failed, 1);
    if (publishes) hal_hier_watch_publish(hier->watch, &hier->words);
    pthread_cond_broadcast(&hier->watch->done);
  }
  pthread_mutex_unlock(&hier->watch->lock);
  if (is_first) {
    snprintf(reason, sizeof reason, MARK "%d " MARK "%s", (int)code, hier->words.text);
    if (hier->inner.run) hier->inner.abort(hier->inner.context, reason);
    if (hier->outer.run) hier->outer.abort(hier->outer.context, reason);
    if (hier->messages.run && !hier->messages_are_outer) hier->messages.abort(hier->messages.context, reason);
  }
  return hal_hier_failed(hier);
}

hal_status_t hal_hier_fail(hal_hier_t *hier, hal_status_t code, const char *text) { return fail(hier, code, text, 1); }

hal_status_t hal_hier_adopt(hal_hier_t *hier, const hal_hier_words_t *words) {
  return fail(hier, words->code, words->text, 0);
}

hal_status_t hal_hier_fail_by_last(hal_hier_run_t *run, hal_status_t code) {
  char text[HAL_HIER_TEXT] = "";
  hal_text_append(text, sizeof text, "rank %d: %s: %s", (int)run->hier->at.rank, run->what, hal_error_message());
  return hal_hier_fail(run->hier, code, text);
}

/* ---- failures of the levels ---- */

/* Returns whether the thread's error is the message of another rank. */
static int read_marked(hal_hier_words_t *out) {
  const char *const mark = strstr(hal_error_message(), MARK);
  const char *const text = mark ? strstr(mark + 1, MARK) : NULL;
  if (!text) return 0;
  out->code = (int32_t)strtol(mark + 1, NULL, 10);
  if (!out->code) out->code = HAL_INTERNAL;
  snprintf(out->text, sizeof out->text, "%s", text + 1);
  return 1;
}

/* Returns whether a call that failed with `code` waits for a rank of this host. */
typedef int (*lacks_t)(const hal_hier_t *hier, int32_t local);

static const hal_shm_rank_t *page_of(const hal_hier_t *hier, int32_t local) {
  return hal_shm_page(hier->inner.context, local); /* the context begins with a hal_shm_t */
}

static int has_left(const hal_hier_t *hier, int32_t local) {
  return atomic_load(&page_of(hier, local)->state) == HAL_SHM_LEFT;
}

/* A rank that left after a failure may have ended, too. */
static int has_ended(const hal_hier_t *hier, int32_t local) {
  const hal_shm_rank_t *const page = page_of(hier, local);
  const int64_t start = hal_shm_process_start(page->pid);
  return start >= 0 && (uint64_t)start != page->start && !has_left(hier, local);
}

/* Returns whether a rank has not made the call in which this rank waits. */
static int is_late(const hal_hier_t *hier, int32_t local) {
  const hal_shm_rank_t *const own = page_of(hier, hier->at.local), *const page = page_of(hier, local);
  return atomic_load(&page->counters[HAL_SHM_CALLED]) < atomic_load(&own->counters[HAL_SHM_CALLED]);
}

/* Appends the ranks of this host that lack something, as "ranks 1 (pid 8), 2 (pid 9)". Returns their number. */
static int append_lacking(const hal_hier_t *hier, lacks_t lacks, int shows_pid, char *text, size_t size) {
  int found[HAL_COMM_SHM_MAX_RANKS], count = 0;
  for (int32_t local = 0; local < hier->at.locals; local++)
    if (lacks(hier, local)) found[count++] = local;
  for (int i = 0; i < count; i++) {
    const int rank = (int)hal_hier_rank(&hier->at, hier->at.host, found[i]);
    hal_text_append(text, size, "%s%d", i ? ", " : count > 1 ? " ranks " : " rank ", rank);
    if (shows_pid) hal_text_append(text, size, " (pid %d)", (int)page_of(hier, found[i])->pid);
  }
  return count;
}

/* Appends the ranks of this host that have ended. If there are none, appends the ranks that have left. Returns their
 * number. */
static int append_gone(const hal_hier_t *hier, char *text, size_t size) {
  int count = append_lacking(hier, has_ended, 1, text, size);
  if (count) hal_text_append(text, size, count > 1 ? " have ended" : " has ended");
  if (count) return count;
  count = append_lacking(hier, has_left, 1, text, size);
  if (count) hal_text_append(text, size, count > 1 ? " have left the communicator" : " has left the communicator");
  return count;
}

hal_status_t hal_hier_fail_inside(hal_hier_run_t *run, hal_status_t code) {
  hal_hier_t *const hier = run->hier;
  char text[HAL_HIER_TEXT] = "", words[HAL_HIER_TEXT];
  hal_hier_words_t marked;
  if (atomic_load(&hier->failed)) return hal_hier_failed(hier);
  if (read_marked(&marked)) return hal_hier_adopt(hier, &marked);
  snprintf(words, sizeof words, "%s", hal_error_message());
  if (code == HAL_UNAVAILABLE) {
    hal_text_append(text, sizeof text, "%s:", run->what);
    if (append_gone(hier, text, sizeof text)) return hal_hier_fail(hier, code, text);
  }
  /* If this rank's time is not over, the time of another rank is. */
  if (code == HAL_NOT_READY && hal_clock_ns() >= run->deadline_ns) {
    hal_text_append(text, sizeof text, "%s is not done within %.3f s", run->what, (double)run->timeout_ns / 1e9);
    if (run->is_message) return hal_hier_fail(hier, code, text);
    hal_text_append(text, sizeof text, ": waiting for");
    const int count = append_lacking(hier, is_late, 0, text, sizeof text);
    if (count) {
      const char *const part = count > 1 ? "done their parts" : "done its part";
      hal_text_append(text, sizeof text, ", which %s not %s", count > 1 ? "have" : "has",
                      run->late ? part : "called it");
      return hal_hier_fail(hier, code, text);
    }
  }
  if (hal_hier_watch_wait(hier->watch, local_ns)) return hal_hier_failed(hier);
  text[0] = '\0';
  hal_text_append(text, sizeof text, "%s: among ", run->what);
  hal_hier_append_host(&hier->at, hier->at.host, text, sizeof text);
  hal_text_append(text, sizeof text, " of one host, there numbered from 0: %s", words);
  return hal_hier_fail(hier, code, text);
}

/* Appends the hosts that have not reported. If this host has not reported either, the store does not respond. Then, or
 * if all hosts have reported, appends all other hosts. */
static void append_absent(hal_hier_t *hier, char *text, size_t size) {
  int count = 0;
  for (int32_t host = 0; host < hier->at.hosts && hal_hier_watch_sees(hier->watch, hier->at.host); host++) {
    if (hal_hier_watch_sees(hier->watch, host)) continue;
    hal_text_append(text, size, "%s", count++ ? "; " : " ");
    hal_hier_append_host(&hier->at, host, text, size);
  }
  if (count) return;
  hal_text_append(text, size, " ");
  if (hier->at.hosts == 2)
    hal_hier_append_host(&hier->at, !hier->at.host, text, size);
  else
    hal_text_append(text, size, "the other hosts");
  if (hal_hier_watch_sees(hier->watch, hier->at.host)) return;
  hal_text_append(text, size,
                  "; the store does not respond either: check the process that serves it, rank 0 or torchrun");
}

hal_status_t hal_hier_fail_outside(hal_hier_run_t *run, hal_status_t code) {
  hal_hier_t *const hier = run->hier;
  char text[HAL_HIER_TEXT] = "", words[HAL_HIER_TEXT];
  hal_hier_words_t marked;
  if (atomic_load(&hier->failed)) return hal_hier_failed(hier);
  if (read_marked(&marked)) return hal_hier_adopt(hier, &marked);
  snprintf(words, sizeof words, "%s", hal_error_message());
  if (code == HAL_INVALID_ARGUMENT) return hal_hier_fail(hier, code, words); /* messages that do not match */
  /* The error of a rank on another host may be more precise. The time that is over may be that of another rank. */
  const int64_t left = run->deadline_ns - hal_clock_ns();
  const int64_t late_ns = left <= 0 ? run->grace_ns / 2 : left < others_ns ? left : others_ns;
  if (hal_hier_watch_wait(hier->watch, code == HAL_NOT_READY ? late_ns : words_ns)) return hal_hier_failed(hier);
  if (code == HAL_NOT_READY)
    hal_text_append(text, sizeof text, "%s is not done within %.3f s: waiting for", run->what,
                    (double)run->timeout_ns / 1e9);
  else
    hal_text_append(text, sizeof text, "%s: no connection to", run->what);
  append_absent(hier, text, sizeof text);
  hal_text_append(text, sizeof text, " (%s)", words);
  return hal_hier_fail(hier, code, text);
}
