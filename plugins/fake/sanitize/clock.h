/* clock.h: the order between work items, for the class race of HAL_FAKE_SANITIZE: vector clocks. Private.
 *
 * Work items are numbered in the order of their submission. A timeline is a sequence of work that runs in order: that
 * of a stream, of a branch of a graph, or of the host, which is one timeline for all threads. A clock contains, for
 * each timeline, the number of the last work item that comes before. Clocks follow from the calls of the program and
 * not from the times at which work ran. So a missing order is found in each run, also with HAL_FAKE_ASYNC=0.
 *
 * A clock never changes and has counted references. One lock guards everything else in this file; no other lock is
 * acquired while it is held. */
#ifndef FAKE_CLOCK_H_
#define FAKE_CLOCK_H_

#include <stddef.h>
#include <stdint.h>

typedef struct fake_clock_s fake_clock_t;
typedef struct fake_promise_s fake_promise_t; /* the clock of a signal that a wait was queued for, once it is known */
typedef struct fake_history_s fake_history_t; /* the clocks of a semaphore's signals */

enum { FAKE_TIMELINES = 4096, FAKE_NO_TIMELINE = FAKE_TIMELINES };

/* The order of a stream's work; zeroed memory is the host's. A relative one is that of a captured stream: its indices
 * are those of the branches, its numbers count the work of the recording. */
typedef struct fake_timeline_s {
  fake_clock_t *clock; /* what comes before the next work item, without the timeline's own work; NULL: nothing */
  uint64_t last;       /* the last work item */
  uint64_t seen;       /* the version of the host's clock that `clock` contains */
  uint32_t index;      /* FAKE_NO_TIMELINE: there are too many, and the work is not compared */
  uint32_t is_relative;
} fake_timeline_t;

/* What the sanitizer stores with a work item. */
typedef struct fake_trace_s {
  const void *stack;         /* of the submission */
  const fake_clock_t *clock; /* what comes before; a reference; NULL: the work is not compared */
  uint64_t number;
  uint32_t timeline;
  uint32_t unchecked : 1; /* a copy that may read bytes that were never written */
  uint32_t gap : 31;      /* all work items up to `number` - `gap` come before */
} fake_trace_t;

/* The branches of a recording, whose first one runs on the timeline of the launch. */
typedef struct fake_branches_s {
  uint64_t works;
  uint32_t count;
  uint32_t *indices; /* owned; NULL: not launched yet */
} fake_branches_t;

/* ---- clocks ---- */
fake_clock_t *fake_clock_ref(const fake_clock_t *clock);
void fake_clock_drop(const fake_clock_t *clock);
/* Returns whether a work item comes before. */
int fake_clock_has(const fake_clock_t *clock, uint32_t timeline, uint64_t number);

/* ---- timelines; NULL is the host's ---- */
void fake_timeline_open(fake_timeline_t *out_timeline);
/* All work is done and known to the host; another timeline may have the index. */
void fake_timeline_close(fake_timeline_t *timeline);
/* Numbers a work item that is submitted now. */
void fake_timeline_submit(fake_timeline_t *timeline, fake_trace_t *inout_trace);
/* The same for a node of a recording, which counts as `works` items of `branches`. */
void fake_timeline_record(fake_timeline_t *branch, fake_branches_t *branches, uint64_t works,
                          fake_trace_t *inout_trace);
/* The same for a launch of a recording. The trace has the number of the first node. */
void fake_timeline_launch(fake_timeline_t *timeline, fake_branches_t *branches, fake_trace_t *inout_trace);
/* Returns the clock of everything submitted so far: a reference. */
fake_clock_t *fake_timeline_now(fake_timeline_t *timeline);
/* Puts later work after a clock; NULL changes nothing. */
void fake_timeline_wait(fake_timeline_t *timeline, const fake_clock_t *clock);
/* A work item has run, and the host may know it. */
void fake_timeline_ran(const fake_trace_t *trace);
/* Returns the clock of a node when its recording runs: a reference. */
fake_clock_t *fake_branch_clock(const fake_branches_t *branches, const fake_trace_t *launch, const fake_trace_t *node);
void fake_branches_free(fake_branches_t *branches);
/* Returns the number of work items so far. */
uint64_t fake_work_count(void);

/* ---- semaphores ---- */
/* NULL: no host memory; its signals then have no clocks. `outside`: other processes signal it, too. */
fake_history_t *fake_history_make(int outside);
void fake_history_drop(fake_history_t *history);
/* Adds a signal that raises the number now. A NULL history is that of all signals of other processes. */
void fake_history_add(fake_history_t *history, uint64_t value, const fake_clock_t *clock);
/* Returns the clock of the signals that raised the number to a value: a reference, or NULL. */
fake_clock_t *fake_history_find(fake_history_t *history, uint64_t value);
/* Puts later work after a signal that may not exist yet. Returns what the end of the wait passes to
 * fake_promise_keep, or NULL. */
fake_promise_t *fake_timeline_promise(fake_timeline_t *timeline, fake_history_t *history);
void fake_promise_keep(fake_promise_t *promise, uint64_t value);

void fake_clock_fork_prepare(void);
void fake_clock_fork_parent(void);
void fake_clock_fork_child(void);

#endif /* FAKE_CLOCK_H_ */
