/* semaphore_stream.c: timeline semaphores in the work of streams. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>

#include "hal/status.h"
#include "semaphore.h"

enum { SIZE = 1 << 16, STREAMS = 8 };

#define A_WHILE_NS INT64_C(60000000000)

static uint8_t *noise(cts_t *t, uint64_t seed) {
  uint8_t *const bytes = cts_pinned(t, SIZE);
  cts_noise(bytes, SIZE, seed);
  return bytes;
}

static void note(void *data) { atomic_fetch_add((atomic_uint *)data, 1); }

/* Returns whether the host functions of `count` streams run at the same time. Each gate is in one of them. So a
 * function that is queued later, on another stream, finds all of them running. */
static int all_enter(const cts_gate_t *gates, int count) {
  for (int naps = 0; naps < 1000; naps++) {
    int entered = 0;
    for (int i = 0; i < count; i++) entered += atomic_load(&gates[i].entered);
    if (entered == count) return 1;
    cts_nap();
  }
  return 0;
}

/* The archive's default waits in a host function. If few threads call the functions of all streams, streams that wait
 * block the signals of others, which is not a finding. Returns whether `waiting` of them do. */
static int waits_hold_signals(cts_t *t, int waiting) {
  static cts_gate_t gates[STREAMS];
  static atomic_uint noted;
  hal_plugin_stream_t *streams[STREAMS];
  if (CTS_PROVIDES(t, stream_wait_semaphore)) return 0;
  atomic_store(&noted, 0);
  for (int i = 0; i < waiting; i++) cts_gate_close(t, &gates[i], streams[i] = cts_stream(t));
  hal_plugin_stream_t *const last = cts_stream(t);
  int is_held = !all_enter(gates, waiting);
  if (!is_held) CTS_OK(t, stream_host_call, last, note, &noted);
  for (int i = 0; i < 1000 && !is_held && !atomic_load(&noted); i++) cts_nap();
  is_held = is_held || !atomic_load(&noted);
  for (int i = 0; i < waiting; i++) cts_gate_open(&gates[i]);
  for (int i = 0; i < waiting; i++) cts_sync(t, streams[i]);
  cts_sync(t, last);
  return is_held;
}

static void skip_where_waits_hold_signals(cts_t *t, int waiting) {
  if (waits_hold_signals(t, waiting))
    cts_skip(t, "few threads call the host functions of all streams, and the plugin has no semaphores of its own");
}

/* The signal is raised when the work before it is done, and not earlier; waits of the host end with it. */
void cts_case_semaphore_signal(cts_t *t) {
  static cts_gate_t gate;
  const int held = cts_is_async(t);
  hal_plugin_stream_t *const stream = cts_stream(t);
  hal_plugin_semaphore_t *const semaphore = cts_semaphore(t, 1, 0);
  uint8_t *const device = cts_alloc(t, SIZE), *const bytes = noise(t, 1), *const got = cts_pinned(t, SIZE);
  if (held) cts_gate_close(t, &gate, stream);
  cts_put(t, stream, device, bytes, SIZE);
  cts_get(t, stream, got, device, SIZE);
  CTS_OK(t, stream_signal_semaphore, stream, semaphore, 2);
  CTS_OK(t, stream_signal_semaphore, stream, semaphore, 4);
  if (held) cts_semaphore_check(t, semaphore, 1, "while the work before the signal is held back");
  if (held) CTS_STATUS(t, HAL_NOT_READY, semaphore_wait, semaphore, 2, 20000000);
  if (held) cts_gate_open(&gate);
  CTS_STATUS(t, HAL_OK, semaphore_wait, semaphore, 4, A_WHILE_NS);
  cts_same(t, got, bytes, SIZE, "what a stream has read before it signals a semaphore");
  CTS_JUDGE(t, stream_signal_semaphore, "not greater than the present one changes nothing");
  CTS_OK(t, stream_signal_semaphore, stream, semaphore, 3);
  CTS_OK(t, stream_signal_semaphore, stream, semaphore, 0);
  cts_sync(t, stream);
  cts_semaphore_check(t, semaphore, 4, "after signals of less");
  CTS_OK(t, semaphore_destroy, semaphore);
}

/* Only the stream that waits is held, and it continues when the host, or another stream, raises the value. */
void cts_case_semaphore_stream_wait(cts_t *t) {
  atomic_int *was_set;
  hal_plugin_stream_t *const stream = cts_stream(t), *const other = cts_stream(t);
  hal_plugin_semaphore_t *const semaphore = cts_semaphore(t, 1, 0);
  uint8_t *const device = cts_alloc(t, SIZE), *const beside = cts_alloc(t, SIZE), *const got = cts_pinned(t, SIZE),
                 *const bytes = noise(t, 1), *const other_bytes = noise(t, 2);
  CTS_OK(t, memory_fill, NULL, t->device, device, "", 1, SIZE);
  CTS_OK(t, stream_wait_semaphore, stream, semaphore, 1); /* which it has */
  CTS_OK(t, stream_wait_semaphore, stream, semaphore, 0);
  cts_sync(t, stream);
  CTS_OK(t, stream_wait_semaphore, stream, semaphore, 2);
  cts_put(t, stream, device, bytes, SIZE);
  CTS_STATUS(t, HAL_NOT_READY, stream_query, stream);
  CTS_JUDGE(t, stream_wait_semaphore, "Other streams continue");
  cts_put(t, other, beside, other_bytes, SIZE);
  cts_get(t, other, got, beside, SIZE);
  cts_sync(t, other);
  cts_same(t, got, other_bytes, SIZE, "what a stream reads while another one waits for a semaphore");
  CTS_JUDGE(t, stream_wait_semaphore, "Makes later work");
  memset(got, 0xA5, SIZE);
  cts_get(t, other, got, device, SIZE);
  cts_sync(t, other);
  for (size_t i = 0; i < SIZE; i++)
    CTS_CHECK(t, !got[i], "a stream's work ran while it waited for a semaphore: byte %zu is 0x%02x", i, got[i]);
  CTS_STATUS(t, HAL_NOT_READY, stream_query, stream);
  cts_semaphore_set_later(t, semaphore, 3, &was_set); /* more than the wait needs */
  cts_sync(t, stream);
  CTS_CHECK(t, atomic_load(was_set), "stream_synchronize returned while its stream waited for a semaphore");
  cts_get(t, NULL, got, device, SIZE);
  cts_same(t, got, bytes, SIZE, "the work of a stream after its wait for a semaphore");
  CTS_OK(t, semaphore_destroy, semaphore);
}

/* One stream writes and signals, another waits and reads; in both directions, any number of times. */
void cts_case_semaphore_orders_data(cts_t *t) {
  enum { ROUNDS = 12 };
  static cts_gate_t gate;
  const int held = cts_is_async(t);
  hal_plugin_stream_t *const first = cts_stream(t), *const second = cts_stream(t);
  hal_plugin_semaphore_t *const written = cts_semaphore(t, 0, 0), *const read = cts_semaphore(t, 0, 0);
  uint8_t *const device = cts_alloc(t, SIZE), *bytes[ROUNDS], *got[ROUNDS];
  skip_where_waits_hold_signals(t, 2);
  for (uint64_t i = 0; i < ROUNDS; i++) bytes[i] = noise(t, i), got[i] = cts_pinned(t, SIZE);
  if (held) cts_gate_close(t, &gate, first);
  for (uint64_t i = 0; i < ROUNDS; i++) {
    CTS_OK(t, stream_wait_semaphore, first, read, i);
    cts_put(t, first, device, bytes[i], SIZE);
    CTS_OK(t, stream_signal_semaphore, first, written, i + 1);
    CTS_OK(t, stream_wait_semaphore, second, written, i + 1);
    cts_get(t, second, got[i], device, SIZE);
    CTS_OK(t, stream_signal_semaphore, second, read, i + 1);
  }
  if (held) CTS_STATUS(t, HAL_NOT_READY, stream_query, second);
  if (held) cts_gate_open(&gate);
  cts_sync(t, second);
  cts_sync(t, first);
  for (int i = 0; i < ROUNDS; i++)
    cts_same(t, got[i], bytes[i], SIZE, "what a stream reads after a semaphore that another one signals");
  CTS_OK(t, semaphore_destroy, written);
  CTS_OK(t, semaphore_destroy, read);
}

/* Several streams wait for several values of one semaphore: each continues at its own. */
void cts_case_semaphore_several(cts_t *t) {
  static atomic_uint done[STREAMS];
  hal_plugin_stream_t *streams[STREAMS];
  skip_where_waits_hold_signals(t, STREAMS);
  hal_plugin_semaphore_t *const semaphore = cts_semaphore(t, 0, 0);
  for (int i = 0; i < STREAMS; i++) {
    streams[i] = cts_stream(t);
    CTS_OK(t, stream_wait_semaphore, streams[i], semaphore, 10 * (1 + (uint64_t)i / 2));
    CTS_OK(t, stream_host_call, streams[i], note, &done[i]);
  }
  for (int value = 1; value <= STREAMS / 2; value++) {
    CTS_OK(t, semaphore_set, semaphore, 10 * (uint64_t)value - 1);
    for (int naps = 0; naps < 20; naps++) cts_nap(); /* time for one that continues too early */
    for (int i = 2 * value - 2; i < STREAMS; i++) {
      CTS_CHECK(t, !atomic_load(&done[i]), "a stream went on at the value %d, which waits for %d", 10 * value - 1,
                10 * (1 + i / 2));
      CTS_STATUS(t, HAL_NOT_READY, stream_query, streams[i]);
    }
    CTS_OK(t, semaphore_set, semaphore, 10 * (uint64_t)value);
    for (int i = 2 * value - 2; i < 2 * value; i++) {
      cts_sync(t, streams[i]);
      CTS_CHECK(t, atomic_load(&done[i]) == 1, "a stream that waited for %d was done without its work", 10 * value);
    }
  }
  CTS_OK(t, semaphore_destroy, semaphore);
}

/* ---- poison ---- */

/* Checks the report of a stream whose wait poison has ended: once, and it can be used again. */
static void check_aborted(cts_t *t, hal_plugin_stream_t *stream, const char *when) {
  const hal_status_t expected = CTS_PROVIDES(t, stream_wait_semaphore) ? HAL_ABORTED : HAL_OK; /* the default's rule */
  const hal_status_t status = cts_stream_synchronize(t, stream);
  CTS_CHECK(t, status == expected, "stream_synchronize returned %s instead of %s for a semaphore that was poisoned %s",
            hal_status_name(status), hal_status_name(expected), when);
  CTS_CHECK(t, !status || hal_error_message()[0], "stream_synchronize returned HAL_ABORTED without a message");
  CTS_STATUS(t, HAL_OK, stream_synchronize, stream);
  CTS_STATUS(t, HAL_OK, stream_query, stream);
}

void cts_case_semaphore_stream_poison(cts_t *t) {
  hal_plugin_stream_t *const stream = cts_stream(t), *const another = cts_stream(t), *const free_one = cts_stream(t);
  uint8_t *const device = cts_alloc(t, SIZE), *const got = cts_pinned(t, SIZE), *const bytes = noise(t, 1);
  for (int flags = 0; flags < 2; flags++) {
    hal_plugin_semaphore_t *const semaphore = cts_semaphore(t, 1, flags ? HAL_SEMAPHORE_INTERPROCESS : 0);
    CTS_JUDGE(t, stream_wait_semaphore, "ends the wait, and the stream reports HAL_ABORTED");
    CTS_OK(t, stream_wait_semaphore, stream, semaphore, 2);
    CTS_OK(t, stream_wait_semaphore, another, semaphore, HAL_SEMAPHORE_POISON - 1);
    CTS_STATUS(t, HAL_NOT_READY, stream_query, stream);
    CTS_OK(t, semaphore_set, semaphore, HAL_SEMAPHORE_POISON);
    check_aborted(t, stream, "while it waited");
    check_aborted(t, another, "while it waited");
    CTS_OK(t, stream_wait_semaphore, stream, semaphore, 1); /* which it had */
    check_aborted(t, stream, "before it waited");
    CTS_STATUS(t, HAL_OK, stream_synchronize, free_one);
    CTS_OK(t, semaphore_destroy, semaphore);
    cts_put(t, stream, device, bytes, SIZE);
    cts_get(t, stream, got, device, SIZE);
    cts_sync(t, stream);
    cts_same(t, got, bytes, SIZE, "the work of a stream whose wait was ended by poison before");
  }
  if (waits_hold_signals(t, 2)) return;
  hal_plugin_semaphore_t *const semaphore = cts_semaphore(t, 1, 0);
  CTS_JUDGE(t, stream_signal_semaphore, "Raises the semaphore to `value`");
  CTS_OK(t, stream_wait_semaphore, stream, semaphore, 2);
  CTS_OK(t, stream_signal_semaphore, another, semaphore, HAL_SEMAPHORE_POISON);
  cts_sync(t, another);
  check_aborted(t, stream, "by a stream");
  CTS_OK(t, semaphore_destroy, semaphore);
}

/* ---- lifetime ---- */

void cts_case_semaphore_destroyed(cts_t *t) {
  static cts_gate_t gate;
  hal_plugin_stream_t *const first = cts_stream(t), *const second = cts_stream(t);
  skip_where_waits_hold_signals(t, 2);
  for (int flags = 0; flags < 2; flags++) {
    hal_plugin_semaphore_t *const semaphore = cts_semaphore(t, 0, flags ? HAL_SEMAPHORE_INTERPROCESS : 0);
    cts_gate_close(t, &gate, first);
    CTS_OK(t, stream_signal_semaphore, first, semaphore, 1);
    CTS_OK(t, stream_wait_semaphore, second, semaphore, 1);
    CTS_OK(t, semaphore_destroy, semaphore);
    /* the wait must not be for a later allocation with the memory of the destroyed semaphore */
    for (int i = 0; i < 50; i++) {
      hal_plugin_semaphore_t *const other = cts_semaphore(t, 9, flags ? HAL_SEMAPHORE_INTERPROCESS : 0);
      CTS_OK(t, semaphore_destroy, other);
    }
    for (int naps = 0; naps < 20; naps++) cts_nap();
    CTS_STATUS(t, HAL_NOT_READY, stream_query, second);
    cts_gate_open_later(&gate);
    const hal_status_t status = cts_stream_synchronize(t, second);
    CTS_CHECK(t, !status,
              "stream_synchronize returned %s for a stream that waited for a semaphore which was destroyed then",
              hal_status_name(status));
    CTS_CHECK(t, cts_gate_was_open(&gate),
              "a stream's wait ended when the semaphore was destroyed, before its signal's work was done");
    cts_sync(t, first);
  }
}

/* The NULL stream signals in the call, and waits in it. */
void cts_case_semaphore_null_stream(cts_t *t) {
  atomic_int *was_set;
  hal_plugin_semaphore_t *const semaphore = cts_semaphore(t, 0, 0);
  CTS_OK(t, stream_signal_semaphore, NULL, semaphore, 2);
  cts_semaphore_check(t, semaphore, 2, "after a signal of the NULL stream");
  CTS_JUDGE(t, stream_wait_semaphore, "Makes later work");
  CTS_OK(t, stream_wait_semaphore, NULL, semaphore, 2);
  cts_semaphore_set_later(t, semaphore, 3, &was_set);
  CTS_OK(t, stream_wait_semaphore, NULL, semaphore, 3);
  CTS_CHECK(t, atomic_load(was_set),
            "stream_wait_semaphore of the NULL stream returned before the semaphore had the value");
  CTS_OK(t, semaphore_destroy, semaphore);
}

void cts_case_semaphore_captured(cts_t *t) {
  hal_plugin_stream_t *const stream = cts_stream(t);
  hal_plugin_semaphore_t *const semaphore = cts_semaphore(t, 1, 0);
  hal_plugin_graph_t *graph = NULL;
  if (!CTS_PROVIDES(t, capture_begin)) cts_skip(t, "the plugin does not provide capture_begin");
  CTS_OK(t, capture_begin, stream, HAL_CAPTURE_RELAXED, 0);
  const hal_status_t signaled = cts_stream_signal_semaphore(t, stream, semaphore, 2);
  const hal_status_t waited = cts_stream_wait_semaphore(t, stream, semaphore, 1);
  if (cts_capture_end(t, stream, &graph) == HAL_OK) CTS_OK(t, graph_destroy, graph);
  CTS_CHECK(t, signaled == HAL_FAILED_PRECONDITION,
            "stream_signal_semaphore on a captured stream returned %s: captured work may run any number of times",
            hal_status_name(signaled));
  CTS_JUDGE(t, stream_wait_semaphore, "On a captured stream");
  CTS_CHECK(t, waited == HAL_FAILED_PRECONDITION, "stream_wait_semaphore on a captured stream returned %s",
            hal_status_name(waited));
  cts_semaphore_check(t, semaphore, 1, "after a signal that was refused");
  CTS_OK(t, semaphore_destroy, semaphore);
}
