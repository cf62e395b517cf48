/* stream.c: order, waiting and asynchrony of streams. */
#define _GNU_SOURCE
#include <dirent.h>
#include <stdio.h>

#include "cts.h"
#include "hal/status.h"

enum { SIZE = 1 << 16, ROUNDS = 20, STREAMS = 200 };

void cts_case_stream_lifetime(cts_t *t) {
  for (int32_t priority = -1; priority <= 1; priority++) {
    hal_plugin_stream_t *stream = NULL;
    CTS_OK(t, stream_create, t->device, &(const hal_stream_desc_t)HAL_STREAM_DESC(priority), &stream);
    CTS_CHECK(t, stream || !CTS_PROVIDES(t, stream_create), "stream_create returned HAL_OK and no stream");
    cts_sync(t, stream);
    CTS_OK(t, stream_query, stream);
    CTS_OK(t, stream_destroy, stream);
  }
  CTS_JUDGE(t, stream_destroy, "NULL is HAL_OK");
  CTS_STATUS(t, HAL_OK, stream_destroy, NULL);
}

/* Synchronizes a stream whose host function is held until the call waits: it must not return before. */
static void check_that_synchronize_waits(cts_t *t, cts_gate_t *gate, hal_plugin_stream_t *stream) {
  cts_gate_open_later(gate);
  cts_sync(t, stream);
  CTS_CHECK(t, cts_gate_was_open(gate), "stream_synchronize returned while the stream's work was held back");
  CTS_CHECK(t, atomic_load(&gate->left), "stream_synchronize returned before the stream's host function had ended");
}

/* The flag is correct if a host function that waits does not block the thread that queues it. */
void cts_case_stream_asynchronous(cts_t *t) {
  static cts_gate_t gate;
  CTS_GENERAL(t, "HAL_DEVICE_ASYNC: ");
  hal_plugin_stream_t *const stream = cts_stream(t);
  cts_gate_close(t, &gate, stream);
  CTS_JUDGE(t, stream_synchronize, "Waits until the work queued so far is done");
  check_that_synchronize_waits(t, &gate, stream);
}

/* Queues copies, fills and host functions that each need the result of the previous one. */
static void queue_chain(cts_t *t, hal_plugin_stream_t *stream, uint8_t *a, uint8_t *b, const uint8_t *bytes,
                        uint8_t *got) {
  const uint32_t first = 0x01020304, second = 0x55667788;
  CTS_OK(t, memory_fill, stream, t->device, a, &first, sizeof first, SIZE);
  CTS_OK(t, memory_copy, stream, b, t->device, a, t->device, SIZE);
  cts_put(t, stream, a, bytes, SIZE);
  CTS_OK(t, memory_copy, stream, b + SIZE / 2, t->device, a, t->device, SIZE / 2);
  CTS_OK(t, memory_fill, stream, t->device, a, &second, sizeof second, SIZE);
  cts_get(t, stream, got, b, SIZE);
  CTS_OK(t, memory_copy, stream, b, t->device, a, t->device, SIZE);
}

void cts_case_stream_order(cts_t *t) {
  const int held = cts_is_async(t);
  CTS_GENERAL(t, "but runs in order");
  hal_plugin_stream_t *const stream = cts_stream(t);
  uint8_t *const a = cts_alloc(t, SIZE), *const b = cts_alloc(t, SIZE), *const bytes = cts_pinned(t, SIZE),
                 *const got = cts_pinned(t, SIZE), *const expected = cts_pinned(t, SIZE);
  for (int round = 0; round < ROUNDS; round++) {
    static cts_gate_t gate;
    cts_noise(bytes, SIZE, (uint64_t)round);
    for (int i = 0; i < SIZE; i++) expected[i] = i < SIZE / 2 ? (uint8_t)(4 - i % 4) : bytes[i - SIZE / 2];
    if (held) cts_gate_close(t, &gate, stream);
    queue_chain(t, stream, a, b, bytes, got);
    if (held) cts_gate_open(&gate);
    cts_sync(t, stream);
    cts_same(t, got, expected, SIZE, "the result of fills and copies in a row on one stream");
  }
}

void cts_case_stream_synchronize(cts_t *t) {
  for (int round = 0; round < ROUNDS / 4; round++) {
    static cts_gate_t gate;
    hal_plugin_stream_t *const stream = cts_stream(t);
    cts_gate_close(t, &gate, stream);
    check_that_synchronize_waits(t, &gate, stream);
    CTS_OK(t, stream_destroy, stream);
  }
}

void cts_case_stream_query(cts_t *t) {
  static cts_gate_t gate;
  hal_plugin_stream_t *const stream = cts_stream(t);
  cts_gate_close(t, &gate, stream);
  for (int i = 0; i < 5; i++) CTS_STATUS(t, HAL_NOT_READY, stream_query, stream);
  CTS_JUDGE(t, stream_query, "HAL_NOT_READY = work remains");
  CTS_STATUS(t, HAL_NOT_READY, stream_query, stream);
  CTS_JUDGE(t, stream_query, "without waiting");
  cts_gate_open(&gate);
  cts_sync(t, stream);
  CTS_STATUS(t, HAL_OK, stream_query, stream);
}

void cts_case_stream_timeout(cts_t *t) {
  static cts_gate_t gate;
  hal_plugin_stream_t *const stream = cts_stream(t);
  cts_gate_close(t, &gate, stream);
  gate.may_block = 1; /* for this time */
  CTS_STATUS(t, HAL_NOT_READY, stream_synchronize_timeout, stream, 0);
  const int64_t begin = cts_now_ns();
  CTS_STATUS(t, HAL_NOT_READY, stream_synchronize_timeout, stream, 5000000);
  const int64_t waited = cts_now_ns() - begin;
  CTS_CHECK(t, waited >= 4000000, "stream_synchronize_timeout of 5 ms came back after %lld ns while work remained",
            (long long)waited);
  cts_gate_open_later(&gate);
  CTS_JUDGE(t, stream_synchronize_timeout, "Waits at most");
  CTS_STATUS(t, HAL_OK, stream_synchronize_timeout, stream, INT64_C(60000000000));
  CTS_CHECK(t, cts_gate_was_open(&gate),
            "stream_synchronize_timeout returned HAL_OK while the stream's work was held back");
}

void cts_case_device_synchronize(cts_t *t) {
  for (int round = 0; round < 3; round++) {
    static cts_gate_t gate;
    hal_plugin_stream_t *const streams[3] = {cts_stream(t), cts_stream(t), cts_stream(t)};
    cts_gate_close(t, &gate, streams[round]); /* each of them in turn, not only the first or last */
    cts_gate_open_later(&gate);
    CTS_OK(t, device_synchronize, t->device);
    CTS_CHECK(t, cts_gate_was_open(&gate) && atomic_load(&gate.left),
              "device_synchronize returned while the work of a stream, number %d of 3, was held back", round + 1);
  }
}

void cts_case_stream_null_is_apart(cts_t *t) {
  static cts_gate_t gate;
  CTS_GENERAL(t, "does not wait for other streams");
  hal_plugin_stream_t *const stream = cts_stream(t);
  uint8_t *const device = cts_alloc(t, SIZE), *const bytes = cts_pinned(t, SIZE), *const got = cts_pinned(t, SIZE);
  cts_gate_close(t, &gate, stream);
  for (int round = 0; round < ROUNDS; round++) {
    cts_noise(bytes, SIZE, (uint64_t)round);
    cts_put(t, NULL, device, bytes, SIZE);
    cts_get(t, NULL, got, device, SIZE);
    CTS_GENERAL(t, "valid wherever a stream is accepted: the work is finished on return");
    cts_same(t, got, bytes, SIZE, "bytes after a copy on the NULL stream has returned");
    CTS_GENERAL(t, "does not wait for other streams");
  }
  cts_gate_open(&gate);
  cts_sync(t, stream);
}

static void note_call(void *data) { atomic_fetch_add((atomic_int *)data, 1); }

/* Work on the NULL stream is done when the call returns: another stream, which waits for nothing, sees its result. */
void cts_case_stream_null_is_done(cts_t *t) {
  enum { LARGE = 8 << 20, END = 64 };
  static atomic_int calls;
  hal_plugin_stream_t *const stream = cts_stream(t);
  uint8_t *const device = cts_alloc(t, LARGE), *const copy = cts_alloc(t, LARGE), *const got = cts_pinned(t, END),
                 *const expected = cts_pinned(t, END), *const bytes = cts_pinned(t, LARGE);
  CTS_GENERAL(t, "valid wherever a stream is accepted: the work is finished on return");
  for (int round = 1; round <= ROUNDS; round++) {
    const uint8_t value = (uint8_t)round;
    memset(expected, value, END);
    CTS_OK(t, memory_fill, NULL, t->device, device, &value, 1, LARGE);
    cts_get(t, stream, got, device + LARGE - END, END);
    cts_sync(t, stream);
    cts_same(t, got, expected, END, "memory whose fill on the NULL stream has returned");
    CTS_OK(t, memory_copy, NULL, copy, t->device, device, t->device, LARGE);
    cts_get(t, stream, got, copy + LARGE - END, END);
    cts_sync(t, stream);
    cts_same(t, got, expected, END, "memory whose copy within the device on the NULL stream has returned");
    cts_get(t, NULL, bytes, copy, LARGE);
    CTS_CHECK(t, bytes[LARGE - 1] == value,
              "the last byte of a copy to the host on the NULL stream that has returned is %u instead of %u",
              bytes[LARGE - 1], value);
    CTS_OK(t, stream_host_call, NULL, note_call, &calls);
    CTS_CHECK(t, atomic_load(&calls) == round,
              "a host function on the NULL stream has not run when stream_host_call returned");
  }
  CTS_GENERAL(t, "is the synchronous stream:"); /* the same, in its first statement */
}

void cts_case_stream_independent(cts_t *t) {
  static cts_gate_t gate;
  hal_plugin_stream_t *const held = cts_stream(t), *const other = cts_stream(t);
  uint8_t *const device = cts_alloc(t, SIZE), *const bytes = cts_pinned(t, SIZE), *const got = cts_pinned(t, SIZE);
  cts_noise(bytes, SIZE, 1);
  cts_gate_close(t, &gate, held);
  cts_put(t, other, device, bytes, SIZE);
  cts_get(t, other, got, device, SIZE);
  cts_sync(t, other);
  CTS_STATUS(t, HAL_OK, stream_query, other);
  cts_same(t, got, bytes, SIZE, "the work of one stream while another is held");
  CTS_CHECK(t, !atomic_load(&gate.left), "error of the suite: the gate let its stream go");
  cts_gate_open(&gate);
  cts_sync(t, held);
}

/* Many at once, each with its own work after work that is held. */
void cts_case_stream_many(cts_t *t) {
  enum { LIVE = 48, BYTES = 4096 };
  static cts_gate_t gate;
  hal_plugin_stream_t *streams[LIVE];
  uint8_t *devices[LIVE], *hosts[LIVE], *got[LIVE];
  const int held = cts_is_async(t);
  for (int i = 0; i < LIVE; i++) {
    streams[i] = cts_stream(t), devices[i] = cts_alloc(t, BYTES), hosts[i] = cts_pinned(t, BYTES),
    got[i] = cts_pinned(t, BYTES);
    cts_noise(hosts[i], BYTES, (uint64_t)i);
  }
  if (held) cts_gate_close(t, &gate, streams[0]);
  for (int i = 0; i < LIVE; i++) cts_put(t, streams[i], devices[i], hosts[i], BYTES);
  for (int i = LIVE - 1; i >= 0; i--) cts_get(t, streams[i], got[i], devices[i], BYTES);
  for (int i = held; i < LIVE; i++) cts_sync(t, streams[i]);
  if (held) cts_gate_open(&gate);
  CTS_OK(t, device_synchronize, t->device);
  for (int i = 0; i < LIVE; i++) cts_same(t, got[i], hosts[i], BYTES, "the work of one of many streams");
  for (int i = 0; i < LIVE; i++) CTS_OK(t, stream_destroy, streams[i]);
}

void cts_case_stream_destroy(cts_t *t) {
  hal_plugin_stream_t *const stream = cts_stream(t);
  uint8_t *const device = cts_alloc(t, SIZE), *const bytes = cts_pinned(t, SIZE), *const got = cts_pinned(t, SIZE);
  cts_noise(bytes, SIZE, 1);
  static cts_gate_t gate;
  const int held = cts_is_async(t);
  if (held) cts_gate_close(t, &gate, stream);
  cts_put(t, stream, device, bytes, SIZE);
  cts_get(t, stream, got, device, SIZE);
  if (held) cts_gate_open_later(&gate);
  CTS_OK(t, stream_destroy, stream);
  if (held && !cts_gate_was_open(&gate)) cts_gate_open(&gate); /* it may return at once and end the stream later */
  CTS_OK(t, device_synchronize, t->device);
  cts_same(t, got, bytes, SIZE, "the work of a stream that was destroyed after it");
}

static int count_folder(const char *path) {
  int count = 0;
  DIR *const folder = opendir(path);
  if (!folder) return 0;
  while (readdir(folder)) count++;
  closedir(folder);
  return count;
}

/* The leaks of 200 of them: threads, descriptors. */
void cts_case_stream_destroy_gives_back(cts_t *t) {
  int threads = 0, files = 0;
  for (int i = 0; i < STREAMS + 16; i++) {
    if (i == 16) threads = count_folder("/proc/self/task"), files = count_folder("/proc/self/fd");
    hal_plugin_stream_t *const stream = cts_stream(t);
    cts_sync(t, stream);
    CTS_OK(t, stream_destroy, stream);
  }
  for (int naps = 0; naps < 2000 && count_folder("/proc/self/task") > threads + STREAMS / 2; naps++)
    cts_nap(); /* they may be ending */
  const int more = count_folder("/proc/self/task") - threads, more_files = count_folder("/proc/self/fd") - files;
  CTS_CHECK(t, more <= STREAMS / 2, "%d streams were made and destroyed, and the process has %d more threads", STREAMS,
            more);
  CTS_CHECK(t, more_files <= STREAMS / 2,
            "%d streams were made and destroyed, and the process has %d more file descriptors", STREAMS, more_files);
}

/* The suite has no vendor's library to queue work with; a stream whose handle was returned must work as before. */
void cts_case_stream_native(cts_t *t) {
  void *native = &native, *again = &again, *of_other = &of_other, *of_null = &of_null;
  hal_plugin_stream_t *const stream = cts_stream(t), *const other = cts_stream(t);
  uint8_t *const device = cts_alloc(t, SIZE), *const bytes = cts_pinned(t, SIZE), *const got = cts_pinned(t, SIZE);
  CTS_OK(t, stream_native, stream, &native);
  CTS_OK(t, stream_native, other, &of_other);
  CTS_OK(t, stream_native, stream, &again);
  CTS_OK(t, stream_native, NULL, &of_null);
  CTS_CHECK(t, native != &native, "stream_native returned HAL_OK and no handle");
  CTS_JUDGE(t, stream_native, "no other stream has it");
  CTS_CHECK(t, again == native, "stream_native returned %p, and then %p for the same stream", native, again);
  CTS_CHECK(t, !native || of_other != native, "stream_native returned %p for two streams", native);
  CTS_CHECK(t, !of_null, "stream_native returned %p for the NULL stream", of_null);
  CTS_JUDGE(t, stream_native, "is work of the stream");
  for (uint64_t round = 0; round < 5; round++) {
    cts_noise(bytes, SIZE, round);
    cts_put(t, stream, device, bytes, SIZE);
    cts_get(t, stream, got, device, SIZE);
    hal_status_t status = HAL_NOT_READY;
    for (int naps = 0; naps < 20000 && (status = cts_stream_query(t, stream)) == HAL_NOT_READY; naps++) cts_nap();
    CTS_CHECK(t, !status, "stream_query returned %s 20,000 times, or failed, for a stream whose handle was returned",
              hal_status_name(status));
    cts_same(t, got, bytes, SIZE, "the work of a stream whose handle was returned");
    cts_sync(t, stream);
  }
}

void cts_case_stream_error_none(cts_t *t) {
  hal_stream_error_t error = {.struct_size = HAL_STRUCT_SIZE(hal_stream_error_t, message)};
  hal_plugin_stream_t *const stream = cts_stream(t);
  cts_sync(t, stream);
  CTS_STATUS(t, HAL_NOT_FOUND, stream_error, stream, &error);
}

void cts_case_stream_priorities(cts_t *t) {
  static const int32_t priorities[] = {0, -1, 1, -2, 5, -100, INT32_MAX, INT32_MIN};
  uint8_t *const device = cts_alloc(t, SIZE), *const bytes = cts_pinned(t, SIZE), *const got = cts_pinned(t, SIZE);
  for (size_t i = 0; i < sizeof priorities / sizeof priorities[0]; i++) {
    const hal_stream_desc_t desc = HAL_STREAM_DESC(priorities[i]);
    hal_plugin_stream_t *stream = NULL;
    const hal_status_t status = cts_stream_create(t, t->device, &desc, &stream);
    CTS_CHECK(t, status == HAL_OK, "stream_create with the priority %d returned %s: %s", priorities[i],
              hal_status_name(status), hal_error_message());
    cts_noise(bytes, SIZE, i);
    cts_put(t, stream, device, bytes, SIZE);
    cts_get(t, stream, got, device, SIZE);
    cts_sync(t, stream);
    cts_same(t, got, bytes, SIZE, "bytes that a stream with a priority copied");
    CTS_OK(t, stream_destroy, stream);
  }
}
