/* comm_end.c: communicators that are aborted, queried while they wait, and left by a rank that dies. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>

#include "crew.h"
#include "hal/status.h"

enum { SIZE = 1 << 16, ABORT_S = 3 /* three times the second of the rule, for a busy machine */, NOTICE_S = 5 };

typedef struct waiting_s { /* rank 0, which waits for another one */
  cts_crew_t *crew;
  hal_plugin_comm_t *comm;
  hal_plugin_stream_t *stream;
  uint8_t *memory;
  atomic_int begun, ended;
} waiting_t;

static hal_collective_t sum(const waiting_t *waiting) {
  return (hal_collective_t){.op = HAL_COMM_ALL_REDUCE,
                            .dtype = HAL_FLOAT32,
                            .send = waiting->memory,
                            .recv = waiting->memory,
                            .count = SIZE / sizeof(float)};
}

static void needs_sum(cts_crew_t *crew) {
  if (!cts_crew_has_op(crew, HAL_COMM_ALL_REDUCE) ||
      !(crew->info.reduce_dtypes[HAL_REDUCE_SUM] & HAL_DTYPE_BIT(HAL_FLOAT32)))
    cts_skip(crew->t, "the library has no ALL_REDUCE of float32");
}

/* Streams and memory work as before. */
static void check_usable(cts_crew_t *crew, hal_plugin_stream_t *stream, uint8_t *memory) {
  uint8_t *const out = cts_pinned(crew->t, SIZE), *const in = cts_pinned(crew->t, SIZE);
  cts_noise(out, SIZE, 77);
  cts_put(crew->t, stream, memory, out, SIZE);
  cts_get(crew->t, stream, in, memory, SIZE);
  cts_sync(crew->t, stream);
  cts_same(crew->t, in, out, SIZE, "bytes copied on a stream whose collective was aborted");
}

/* ---- abort ---- */

enum { ON_STREAM, IN_SUBMIT, IN_DESTROY, WAYS };
static const char *const ways[] = {"stream_synchronize", "comm_submit on the NULL stream", "comm_destroy"};

static void *abort_later(void *data) {
  waiting_t *const waiting = data;
  while (!atomic_load(&waiting->begun)) cts_nap();
  for (int i = 0; i < 100; i++) cts_nap(); /* the other thread waits by now */
  const int64_t begin = cts_now_ns();
  CTS_JUDGE(waiting->crew->t, comm_abort, "returns within a second");
  cts_crew_limit(waiting->crew, 10 * CTS_SECOND, "comm_abort, or the call that waited, did not return");
  CTS_STATUS(waiting->crew->t, HAL_OK, comm_abort, waiting->comm, "the suite's abort");
  const double took = (double)(cts_now_ns() - begin) * 1e-9;
  CTS_CHECK(waiting->crew->t, took < ABORT_S, "comm_abort returned after %.2f s", took);
  atomic_store(&waiting->ended, 1);
  return NULL;
}

/* Waits for a rank that does not come; returns the result of the wait. */
static hal_status_t wait_in(waiting_t *waiting, int way) {
  cts_t *const t = waiting->crew->t;
  hal_status_t status = cts_comm_try(waiting->crew, waiting->comm, way == IN_SUBMIT ? NULL : waiting->stream,
                                     (atomic_store(&waiting->begun, way == IN_SUBMIT), sum(waiting)));
  if (way == IN_SUBMIT) return status;
  CTS_CHECK(t, status == HAL_OK, "comm_submit returned %s: %s", hal_status_name(status), hal_error_message());
  atomic_store(&waiting->begun, 1);
  return way == IN_DESTROY ? cts_comm_destroy(t, waiting->comm, 60 * CTS_SECOND)
                           : cts_stream_synchronize(t, waiting->stream);
}

static void check_aborted(cts_crew_t *crew, waiting_t *waiting, int waited) {
  cts_t *const t = crew->t;
  CTS_JUDGE(t, comm_abort, "Its state becomes ABORTED");
  for (int i = 0; i < 2; i++) {
    const hal_comm_state_t state = cts_comm_state(crew, waiting->comm);
    CTS_CHECK(t, state.state == HAL_COMM_ABORTED && state.error, "state %u, error %d after comm_abort",
              (unsigned)state.state, (int)state.error);
  }
  CTS_JUDGE(t, comm_abort, "A second call is HAL_OK");
  CTS_STATUS(t, HAL_OK, comm_abort, waiting->comm, "again");
  CTS_JUDGE(t, comm_submit, "HAL_ABORTED, HAL_UNAVAILABLE = the communicator has failed");
  const hal_status_t status = cts_comm_try(crew, waiting->comm, waiting->stream, sum(waiting));
  CTS_CHECK(t, status == HAL_ABORTED, "comm_submit after comm_abort returned %s", hal_status_name(status));
  CTS_JUDGE(t, comm_abort, "streams and device stay usable");
  if (!waited) cts_stream_synchronize(t, waiting->stream); /* may report the abort, once */
  check_usable(crew, waiting->stream, waiting->memory);
  CTS_JUDGE(t, comm_destroy, "after comm_abort it does not wait");
  cts_crew_limit(crew, 20 * CTS_SECOND, "comm_destroy after comm_abort did not return");
  CTS_STATUS(t, HAL_OK, comm_destroy, waiting->comm, 60 * CTS_SECOND);
  cts_crew_no_limit(crew);
}

static void abort_one(cts_crew_t *crew, int way) {
  static _Thread_local waiting_t waiting;
  pthread_t thread;
  cts_t *const t = crew->t;
  waiting = (waiting_t){.crew = crew, .comm = cts_comm(crew), .stream = cts_stream(t), .memory = cts_alloc(t, SIZE)};
  cts_crew_fill(crew, waiting.memory, 0, SIZE);
  if (crew->rank) { /* the rank that is waited for has no collective */
    cts_crew_meet(crew);
    CTS_STATUS(t, HAL_OK, comm_abort, waiting.comm, NULL);
    return check_aborted(crew, &waiting, 1);
  }
  if (pthread_create(&thread, NULL, abort_later, &waiting)) cts_fail(t, "error of the suite: no thread can be made");
  const hal_status_t status = wait_in(&waiting, way);
  pthread_join(thread, NULL);
  cts_crew_no_limit(crew);
  CTS_JUDGE(t, comm_abort,
            way == ON_STREAM ? "their streams report HAL_ABORTED" : "calls that wait on the communicator");
  CTS_CHECK(t, status == HAL_ABORTED, "%s returned %s when the communicator was aborted, not ABORTED", ways[way],
            hal_status_name(status));
  cts_crew_meet(crew);
  check_aborted(crew, &waiting, way == ON_STREAM);
}

static void abort_all(cts_crew_t *crew) {
  needs_sum(crew);
  for (int way = 0; way < WAYS; way++)
    if (way == IN_SUBMIT || cts_is_async(crew->t)) abort_one(crew, way);
  cts_comm_end(crew, cts_comm(crew)); /* a new one works */
}
void cts_case_comm_abort(cts_t *t) { cts_crew(t, 2, 3, HAL_SLOT_comm_abort, abort_all); }

/* ---- comm_query during another call ---- */

static void *query_beside(void *data) {
  waiting_t *const waiting = data;
  while (!atomic_load(&waiting->begun)) cts_nap();
  for (int i = 0; i < 20; i++) cts_nap();
  CTS_JUDGE(waiting->crew->t, comm_query, "Reports a communicator's state without waiting");
  cts_crew_limit(waiting->crew, 20 * CTS_SECOND, "comm_query did not return during a comm_submit that waits");
  for (int i = 0; i < 10; i++) {
    const hal_comm_state_t state = cts_comm_state(waiting->crew, waiting->comm);
    CTS_CHECK(waiting->crew->t, state.state == HAL_COMM_READY, "state %u during a comm_submit that waits",
              (unsigned)state.state);
  }
  cts_crew_no_limit(waiting->crew);
  atomic_store(&waiting->crew->board->words[0], 1); /* the last rank may come */
  return NULL;
}

static void query(cts_crew_t *crew) {
  static _Thread_local waiting_t waiting;
  pthread_t thread;
  needs_sum(crew);
  waiting = (waiting_t){.crew = crew, .comm = cts_comm(crew), .memory = cts_alloc(crew->t, SIZE)};
  cts_crew_fill(crew, waiting.memory, 0, SIZE);
  if (crew->rank) {
    while (!atomic_load(&crew->board->words[0])) cts_nap();
    cts_comm_queue(crew, waiting.comm, NULL, sum(&waiting));
    return cts_comm_end(crew, waiting.comm);
  }
  if (pthread_create(&thread, NULL, query_beside, &waiting))
    cts_fail(crew->t, "error of the suite: no thread can be made");
  atomic_store(&waiting.begun, 1);
  cts_comm_queue(crew, waiting.comm, NULL, sum(&waiting));
  pthread_join(thread, NULL);
  cts_comm_end(crew, waiting.comm);
}
void cts_case_comm_query(cts_t *t) { cts_crew(t, 2, 2, HAL_SLOT_comm_query, query); }

/* ---- a rank that is killed ---- */

static void check_noticed(cts_crew_t *crew, const waiting_t *waiting, int lost) {
  const int64_t begin = cts_now_ns();
  hal_comm_state_t state = cts_comm_state(crew, waiting->comm);
  while (state.state == HAL_COMM_READY && cts_now_ns() - begin < NOTICE_S * CTS_SECOND)
    cts_nap(), state = cts_comm_state(crew, waiting->comm);
  CTS_CHECK(crew->t, state.state == HAL_COMM_FAILED && state.error,
            "state %u, error %d %.1f s after the process of rank %d was killed during a collective",
            (unsigned)state.state, (int)state.error, (double)(cts_now_ns() - begin) * 1e-9, lost);
  CTS_CHECK(crew->t, state.bad_rank == -1 || state.bad_rank == lost, "rank %d was killed, and rank %d is blamed", lost,
            (int)state.bad_rank);
  if (!crew->rank)
    cts_row(crew->t, "figure", "a rank's death", "noticed by comm_query after %.3f s",
            (double)(cts_now_ns() - begin) * 1e-9);
  CTS_JUDGE(crew->t, comm_query, "A failure is reported each time");
  state = cts_comm_state(crew, waiting->comm);
  CTS_CHECK(crew->t, state.state == HAL_COMM_FAILED && state.error, "state %u, error %d at the second comm_query",
            (unsigned)state.state, (int)state.error);
}

static void lose_one(cts_crew_t *crew) {
  static _Thread_local waiting_t waiting;
  const int lost = crew->size - 1;
  cts_crew_needs_processes(crew);
  needs_sum(crew);
  if (!cts_is_async(crew->t)) cts_skip(crew->t, "the device is not asynchronous, or has no stream_host_call");
  waiting = (waiting_t){
      .crew = crew, .comm = cts_comm(crew), .stream = cts_stream(crew->t), .memory = cts_alloc(crew->t, SIZE)};
  cts_crew_fill(crew, waiting.memory, 0, SIZE);
  if (!crew->rank) cts_crew_lose(crew, lost);
  cts_crew_meet(crew);
  if (crew->rank == lost) {
    while (atomic_load(&crew->board->words[1]) < lost) cts_nap();
    raise(SIGKILL);
  }
  cts_comm_queue(crew, waiting.comm, waiting.stream, sum(&waiting));
  atomic_fetch_add(&crew->board->words[1], 1);
  crew->size--;
  check_noticed(crew, &waiting, lost);
  cts_crew_meet(crew); /* an abort is a failure to the others */
  CTS_JUDGE(crew->t, comm_submit, "HAL_ABORTED, HAL_UNAVAILABLE = the communicator has failed");
  const hal_status_t status = cts_comm_try(crew, waiting.comm, waiting.stream, sum(&waiting));
  CTS_CHECK(crew->t, status == HAL_UNAVAILABLE || status == HAL_ABORTED,
            "comm_submit of a communicator that has failed returned %s", hal_status_name(status));
  CTS_JUDGE(crew->t, comm_abort, "streams and device stay usable");
  cts_crew_limit(crew, 30 * CTS_SECOND,
                 "comm_abort of a communicator whose rank was killed, or its stream, does not end");
  CTS_STATUS(crew->t, HAL_OK, comm_abort, waiting.comm, "a rank has ended");
  cts_stream_synchronize(crew->t, waiting.stream); /* reports the abort, or the failure, once */
  cts_crew_no_limit(crew);
  check_usable(crew, waiting.stream, waiting.memory);
  CTS_OK(crew->t, comm_destroy, waiting.comm, 60 * CTS_SECOND);
}
void cts_case_comm_killed(cts_t *t) { cts_crew(t, 2, 3, HAL_SLOT_comm_query, lose_one); }
