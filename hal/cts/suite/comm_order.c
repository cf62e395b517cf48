/* comm_order.c: the order of collectives in the work of their streams, and in graphs. */
#include <stdio.h>

#include "crew.h"
#include "hal/status.h"

enum { SIZE = 40000, ROUNDS = 10, REPLAYS = 20 };

enum { ROOM = SIZE * CTS_CREW_MOST };
static _Thread_local uint8_t *got, *expected; /* of the rank, allocated by needs_gather */

static hal_collective_t gather(const void *send, void *recv) {
  return (hal_collective_t){.op = HAL_COMM_ALL_GATHER, .dtype = HAL_UINT8, .count = SIZE, .send = send, .recv = recv};
}

/* Checks the result of an ALL_GATHER if each rank has sent the noise of `seed` and its number. */
static void check(cts_crew_t *crew, const uint8_t *bytes, uint64_t seed, const char *what) {
  for (int i = 0; i < crew->size; i++) cts_noise(expected + i * SIZE, SIZE, seed * 10 + (uint64_t)i);
  cts_same(crew->t, bytes, expected, (size_t)crew->size * SIZE, what);
}

static void needs_gather(cts_crew_t *crew, int asynchronous) {
  got = cts_host(crew->t, ROOM), expected = cts_host(crew->t, ROOM);
  if (!cts_crew_has_op(crew, HAL_COMM_ALL_GATHER)) cts_skip(crew->t, "the library has no ALL_GATHER");
  if (asynchronous && !cts_is_async(crew->t))
    cts_skip(crew->t, "the device is not asynchronous, or has no stream_host_call");
}

/* ---- order on one stream ---- */

/* Copies to the device, collectives and copies back, of many rounds at once. */
static void chain(cts_crew_t *crew, hal_plugin_comm_t *comm, hal_plugin_stream_t *stream) {
  uint8_t *const send = cts_alloc(crew->t, SIZE), *const recv = cts_alloc(crew->t, SIZE * CTS_CREW_MOST);
  uint8_t *const out = cts_pinned(crew->t, SIZE * ROUNDS), *const in = cts_pinned(
                                                               crew->t, (size_t)SIZE * CTS_CREW_MOST * ROUNDS);
  for (int i = 0; i < ROUNDS; i++) {
    cts_noise(out + i * SIZE, SIZE, (uint64_t)(i * 10 + crew->rank));
    cts_put(crew->t, stream, send, out + i * SIZE, SIZE);
    cts_comm_queue(crew, comm, stream, gather(send, recv));
    cts_get(crew->t, stream, in + (size_t)i * SIZE * CTS_CREW_MOST, recv, (size_t)crew->size * SIZE);
  }
  cts_sync(crew->t, stream);
  for (int i = 0; i < ROUNDS; i++)
    check(crew, in + (size_t)i * SIZE * CTS_CREW_MOST, (uint64_t)i, "a collective between two copies of its stream");
}

/* Rank 0 sends data that its stream copies once a gate is open. */
static void held(cts_crew_t *crew, hal_plugin_comm_t *comm, hal_plugin_stream_t *stream) {
  static _Thread_local cts_gate_t gate;
  uint8_t *const send = cts_alloc(crew->t, SIZE), *const recv = cts_alloc(crew->t, SIZE * CTS_CREW_MOST),
                 *const out = cts_pinned(crew->t, SIZE);
  cts_crew_fill(crew, send, 0x11, SIZE);
  cts_noise(out, SIZE, 990 + (uint64_t)crew->rank);
  if (!crew->rank) cts_gate_close(crew->t, &gate, stream);
  cts_put(crew->t, stream, send, out, SIZE);
  cts_comm_queue(crew, comm, stream, gather(send, recv));
  if (!crew->rank) CTS_STATUS(crew->t, HAL_NOT_READY, stream_query, stream);
  cts_crew_meet(crew);
  for (int i = 0; i < 30; i++) cts_nap(); /* a rank that does not wait for the stream has sent by now */
  if (!crew->rank) cts_gate_open(&gate);
  cts_sync(crew->t, stream);
  cts_get(crew->t, NULL, got, recv, (size_t)crew->size * SIZE);
  check(crew, got, 99, "a collective after work of its stream that was held back");
}

static void order(cts_crew_t *crew) {
  needs_gather(crew, 0);
  hal_plugin_comm_t *const comm = cts_comm(crew);
  hal_plugin_stream_t *const stream = cts_stream(crew->t);
  CTS_GENERAL(crew->t, "runs in order");
  if (cts_is_async(crew->t)) held(crew, comm, stream);
  chain(crew, comm, stream);
  cts_comm_end(crew, comm);
}
void cts_case_comm_order(cts_t *t) { cts_crew(t, 2, 3, HAL_SLOT_comm_submit, order); }

/* ---- two communicators ---- */

/* The first is held back on rank 0; the second runs on all ranks meanwhile. */
static void apart(cts_crew_t *crew) {
  static _Thread_local cts_gate_t gate;
  needs_gather(crew, 1);
  hal_plugin_comm_t *const first = cts_comm(crew), *const second = cts_comm(crew);
  hal_plugin_stream_t *const one = cts_stream(crew->t), *const other = cts_stream(crew->t);
  uint8_t *const send = cts_alloc(crew->t, SIZE * 2), *const recv = cts_alloc(crew->t, SIZE * CTS_CREW_MOST * 2);
  uint8_t *const far = recv + SIZE * CTS_CREW_MOST;
  for (int i = 0; i < 2; i++) {
    cts_noise(got, SIZE, (uint64_t)((i + 5) * 10 + crew->rank));
    cts_put(crew->t, NULL, send + i * SIZE, got, SIZE);
  }
  if (!crew->rank) cts_gate_close(crew->t, &gate, one);
  cts_comm_queue(crew, first, one, gather(send, recv));
  cts_comm_queue(crew, second, other, gather(send + SIZE, far));
  cts_crew_limit(crew, 60 * CTS_SECOND, "a communicator waits for another one on another stream");
  cts_sync(crew->t, other);
  cts_crew_no_limit(crew);
  cts_get(crew->t, NULL, got, far, (size_t)crew->size * SIZE);
  check(crew, got, 6, "a communicator's collective during that of another one, which is held back");
  cts_crew_meet(crew);
  if (!crew->rank) cts_gate_open(&gate);
  cts_sync(crew->t, one);
  cts_get(crew->t, NULL, got, recv, (size_t)crew->size * SIZE);
  check(crew, got, 5, "a communicator's collective that was held back");
  hal_collective_t calls[2] = {gather(send + SIZE, recv), gather(send, far)};
  const hal_comm_call_t both[2] = {{first, one, &calls[0]}, {second, other, &calls[1]}};
  for (int i = 0; i < 2; i++) calls[i].struct_size = HAL_STRUCT_SIZE(hal_collective_t, fingerprint);
  CTS_OK(crew->t, comm_submit, both, 2, sizeof *both); /* one call for both */
  cts_sync(crew->t, one);
  cts_get(crew->t, NULL, got, recv, (size_t)crew->size * SIZE);
  check(crew, got, 6, "the first of two communicators in one comm_submit");
  cts_sync(crew->t, other);
  cts_get(crew->t, NULL, got, far, (size_t)crew->size * SIZE);
  check(crew, got, 5, "the second of two communicators in one comm_submit");
  cts_comm_end(crew, first);
  cts_comm_end(crew, second);
}
void cts_case_comm_two(cts_t *t) { cts_crew(t, 2, 2, HAL_SLOT_comm_submit, apart); }

/* ---- graphs ---- */

static void refuse_capture(cts_crew_t *crew, hal_plugin_comm_t *comm, hal_plugin_stream_t *stream, uint8_t *send,
                           uint8_t *recv) {
  hal_plugin_graph_t *graph = NULL;
  CTS_OK(crew->t, capture_begin, stream, HAL_CAPTURE_RELAXED, 0);
  CTS_CHECK(crew->t, cts_comm_try(crew, comm, stream, gather(send, recv)) == HAL_UNIMPLEMENTED,
            "comm_submit on a captured stream without HAL_COMM_CAN_CAPTURE was not HAL_UNIMPLEMENTED");
  CTS_OK(crew->t, capture_end, stream, &graph); /* nothing was recorded, and the capture is not invalidated */
  CTS_OK(crew->t, graph_destroy, graph);
}

static void replay(cts_crew_t *crew, hal_plugin_comm_t *comm, hal_plugin_stream_t *stream, uint8_t *send,
                   uint8_t *recv) {
  hal_plugin_graph_t *graph = NULL;
  hal_plugin_graph_exec_t *exec = NULL;
  uint8_t *const middle = cts_alloc(crew->t, SIZE);
  cts_crew_fill(crew, recv, 0xA5, (size_t)crew->size * SIZE);
  CTS_OK(crew->t, capture_begin, stream, HAL_CAPTURE_RELAXED, 0);
  CTS_OK(crew->t, memory_copy, stream, middle, crew->device, send, crew->device, SIZE);
  cts_comm_queue(crew, comm, stream, gather(middle, recv));
  CTS_OK(crew->t, capture_end, stream, &graph);
  CTS_OK(crew->t, graph_instantiate, graph, &exec);
  cts_get(crew->t, NULL, got, recv, (size_t)crew->size * SIZE);
  memset(expected, 0xA5, ROOM);
  cts_same(crew->t, got, expected, (size_t)crew->size * SIZE, "memory that a recorded collective would write");
  for (uint64_t i = 0; i < REPLAYS; i++) {
    cts_noise(got, SIZE, (i + 20) * 10 + (uint64_t)crew->rank);
    cts_put(crew->t, NULL, send, got, SIZE);
    CTS_OK(crew->t, graph_launch, exec, stream);
    cts_sync(crew->t, stream);
    cts_get(crew->t, NULL, got, recv, (size_t)crew->size * SIZE);
    check(crew, got, i + 20, "a collective of a graph, launched again");
  }
  CTS_OK(crew->t, graph_exec_destroy, exec);
  CTS_OK(crew->t, graph_destroy, graph);
}

static void capture(cts_crew_t *crew) {
  needs_gather(crew, 0);
  if (!CTS_PROVIDES(crew->t, capture_begin)) cts_skip(crew->t, "the plugin does not provide capture_begin");
  hal_plugin_comm_t *const comm = cts_comm(crew);
  hal_plugin_stream_t *const stream = cts_stream(crew->t);
  uint8_t *const send = cts_alloc(crew->t, SIZE), *const recv = cts_alloc(crew->t, SIZE * CTS_CREW_MOST);
  if (crew->info.flags & HAL_COMM_CAN_CAPTURE) {
    replay(crew, comm, stream, send, recv);
  } else {
    CTS_JUDGE(crew->t, comm_submit, "HAL_UNIMPLEMENTED = an operator");
    refuse_capture(crew, comm, stream, send, recv);
  }
  chain(crew, comm, stream);
  cts_comm_end(crew, comm);
}
void cts_case_comm_capture(cts_t *t) { cts_crew(t, 2, 2, HAL_SLOT_comm_submit, capture); }

/* ---- comm_destroy ---- */

static void destroy(cts_crew_t *crew) {
  static _Thread_local cts_gate_t gate;
  needs_gather(crew, 1);
  hal_plugin_comm_t *const comm = cts_comm(crew);
  hal_plugin_stream_t *const stream = cts_stream(crew->t);
  uint8_t *const send = cts_alloc(crew->t, SIZE), *const recv = cts_alloc(crew->t, SIZE * CTS_CREW_MOST);
  cts_noise(got, SIZE, 70 + (uint64_t)crew->rank);
  cts_put(crew->t, NULL, send, got, SIZE);
  if (!crew->rank) {
    cts_gate_close(crew->t, &gate, stream);
    gate.may_block = 1;
  }
  cts_comm_queue(crew, comm, stream, gather(send, recv));
  CTS_JUDGE(crew->t, comm_destroy, "HAL_NOT_READY = calls remain");
  cts_crew_limit(crew, 30 * CTS_SECOND, "comm_destroy did not return when its time was over");
  CTS_STATUS(crew->t, HAL_NOT_READY, comm_destroy, comm, CTS_SECOND / 5);
  CTS_CHECK(crew->t, cts_comm_state(crew, comm).state != HAL_COMM_ABORTED, "a comm_destroy that timed out has aborted");
  cts_crew_meet(crew);
  if (!crew->rank) cts_gate_open(&gate);
  CTS_JUDGE(crew->t, comm_destroy, "Waits until the communicator's queued calls are done");
  CTS_OK(crew->t, comm_destroy, comm, 60 * CTS_SECOND);
  cts_crew_no_limit(crew);
  cts_get(crew->t, NULL, got, recv, (size_t)crew->size * SIZE); /* the stream is not waited for */
  check(crew, got, 7, "a collective whose communicator was destroyed after it");
}
void cts_case_comm_destroy(cts_t *t) { cts_crew(t, 2, 2, HAL_SLOT_comm_destroy, destroy); }
