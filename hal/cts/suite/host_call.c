/* host_call.c: host functions in a stream, and work that runs asynchronously. */
#include "cts.h"

enum { SIZE = 1 << 16, CALLS = 100 };

typedef struct counter_s {
  atomic_int count, wrong;
} counter_t;

typedef struct numbered_s {
  counter_t *counter;
  int number;
} numbered_t;

static void count(void *data) {
  numbered_t *const call = data;
  if (atomic_fetch_add(&call->counter->count, 1) != call->number) atomic_store(&call->counter->wrong, call->number + 1);
}

void cts_case_host_call_runs(cts_t *t) {
  static numbered_t calls[CALLS];
  counter_t counter = {0};
  hal_plugin_stream_t *const stream = cts_stream(t);
  for (int i = 0; i < CALLS; i++) {
    calls[i] = (numbered_t){&counter, i};
    CTS_OK(t, stream_host_call, stream, count, &calls[i]);
  }
  cts_sync(t, stream);
  CTS_CHECK(t, atomic_load(&counter.count) == CALLS,
            "%d host functions were queued, and %d had run after stream_synchronize", CALLS,
            atomic_load(&counter.count));
  CTS_CHECK(t, !atomic_load(&counter.wrong), "host function number %d of a stream ran out of order",
            atomic_load(&counter.wrong));
}

typedef struct exchange_s {
  uint8_t *host;
  const uint8_t *expected;
  uint64_t seed;
  atomic_int ran, wrong;
} exchange_t;

/* Checks the bytes of the previous copy, and writes other bytes there for the next copy. */
static void exchange(void *data) {
  exchange_t *const with = data;
  if (memcmp(with->host, with->expected, SIZE)) atomic_store(&with->wrong, 1);
  cts_noise(with->host, SIZE, with->seed);
  atomic_fetch_add(&with->ran, 1);
}

void cts_case_host_call_later_waits(cts_t *t) {
  const int held = cts_is_async(t);
  hal_plugin_stream_t *const stream = cts_stream(t);
  uint8_t *const device = cts_alloc(t, SIZE), *const bytes = cts_pinned(t, SIZE), *const got = cts_pinned(t, SIZE);
  for (uint64_t round = 1; round < 20; round++) {
    static cts_gate_t gate;
    exchange_t with = {.host = cts_pinned(t, SIZE), .expected = bytes, .seed = round + 1000};
    cts_noise(bytes, SIZE, round);
    if (held) cts_gate_close(t, &gate, stream);
    cts_put(t, stream, device, bytes, SIZE);
    cts_get(t, stream, with.host, device, SIZE);
    CTS_OK(t, stream_host_call, stream, exchange, &with);
    cts_put(t, stream, device, with.host, SIZE);
    cts_get(t, stream, got, device, SIZE);
    if (held) cts_gate_open(&gate);
    cts_sync(t, stream);
    CTS_CHECK(t, atomic_load(&with.ran) == 1, "a host function ran %d times", atomic_load(&with.ran));
    cts_noise(with.host, SIZE, with.seed);
    if (atomic_load(&with.wrong)) {
      CTS_JUDGE(t, stream_host_call, "after the work queued so far");
      cts_fail(t, "a host function ran before the copy that was queued before it was done");
    }
    cts_same(t, got, with.host, SIZE, "what a copy read that was queued after a host function");
  }
}

/* Copies in all directions are queued while their stream is held; nothing happens until it is released. */
void cts_case_copy_asynchronous(cts_t *t) {
  static cts_gate_t gate;
  CTS_GENERAL(t, "HAL_DEVICE_ASYNC: ");
  hal_plugin_stream_t *const stream = cts_stream(t);
  uint8_t *const a = cts_alloc(t, SIZE), *const b = cts_alloc(t, SIZE), *const bytes = cts_pinned(t, SIZE),
                 *const before = cts_pinned(t, SIZE), *const got = cts_pinned(t, SIZE);
  void *pinned = NULL;
  CTS_OK(t, host_alloc, t->device, SIZE, 0, &pinned);
  cts_noise(before, SIZE, 1);
  cts_noise(bytes, SIZE, 2);
  cts_put(t, NULL, a, before, SIZE);
  cts_put(t, NULL, b, before, SIZE);
  memcpy(pinned, bytes, SIZE);
  memcpy(got, before, SIZE);
  cts_gate_close(t, &gate, stream);
  cts_put(t, stream, a, pinned, SIZE);
  CTS_OK(t, memory_copy, stream, b, t->device, a, t->device, SIZE);
  cts_get(t, stream, pinned, b, SIZE);
  uint8_t *const now = cts_pinned(t, SIZE);
  CTS_GENERAL(t, "but runs in order");
  cts_get(t, NULL, now, b, SIZE);
  cts_same(t, now, before, SIZE, "memory that a copy on a held stream is to write");
  cts_gate_open(&gate);
  cts_sync(t, stream);
  cts_same(t, pinned, bytes, SIZE, "bytes after three copies on a stream");
}

void cts_case_memory_fill_asynchronous(cts_t *t) {
  for (size_t pattern_size = 1; pattern_size <= 16; pattern_size *= 2) {
    static cts_gate_t gate;
    uint8_t pattern[16], kept[16];
    hal_plugin_stream_t *const stream = cts_stream(t);
    uint8_t *const device = cts_alloc(t, SIZE), *const expected = cts_pinned(t, SIZE), *const got = cts_pinned(t, SIZE);
    cts_noise(kept, sizeof kept, pattern_size);
    memcpy(pattern, kept, sizeof pattern);
    cts_gate_close(t, &gate, stream);
    CTS_OK(t, memory_fill, stream, t->device, device, pattern, pattern_size, SIZE);
    memset(pattern, 0xee, sizeof pattern); /* the caller may reuse its memory */
    cts_gate_open(&gate);
    cts_sync(t, stream);
    for (size_t i = 0; i < SIZE; i++) expected[i] = kept[i % pattern_size];
    cts_get(t, NULL, got, device, SIZE);
    cts_same(t, got, expected, SIZE, "a fill whose pattern the caller changed once the call had returned");
  }
}

/* The stream is held, so that a free that does not wait for its stream releases memory that will still be used. */
void cts_case_memory_alloc_async(cts_t *t) {
  static cts_gate_t gate;
  const int held = cts_is_async(t) && CTS_PROVIDES(t, memory_free_async);
  hal_plugin_stream_t *const stream = cts_stream(t), *const other = cts_stream(t);
  uint8_t *const bytes = cts_pinned(t, SIZE), *const got = cts_pinned(t, SIZE), *const noise = cts_pinned(t, SIZE);
  for (uint64_t round = 0; round < 20; round++) {
    void *a = NULL, *b = NULL, *c = NULL;
    cts_noise(bytes, SIZE, round);
    CTS_JUDGE(t, memory_alloc_async, "usable by work queued");
    CTS_OK(t, memory_alloc_async, t->device, stream, SIZE, 0, &a);
    CTS_OK(t, memory_alloc_async, t->device, stream, SIZE, 0, &b);
    CTS_CHECK(t, a && b && a != b, "memory_alloc_async returned %p and %p", a, b);
    if (held) cts_gate_close(t, &gate, stream);
    cts_put(t, stream, a, bytes, SIZE);
    CTS_OK(t, memory_copy, stream, b, t->device, a, t->device, SIZE);
    CTS_JUDGE(t, memory_free_async, "Frees memory once the work now queued");
    CTS_OK(t, memory_free_async, t->device, stream, a);
    cts_get(t, stream, got, b, SIZE);
    CTS_OK(t, memory_free_async, t->device, stream, b);
    CTS_OK(t, memory_alloc_async, t->device, other, SIZE, 0, &c); /* the same memory, if the plugin frees too early */
    CTS_CHECK(t, !held || (c != a && c != b),
              "memory_alloc_async returned %p to another stream, while work that uses it is still queued", c);
    cts_put(t, other, c, noise, SIZE);
    cts_sync(t, other);
    if (held) cts_gate_open(&gate);
    cts_sync(t, stream);
    cts_same(t, got, bytes, SIZE, "memory of memory_alloc_async, freed after its last use");
    CTS_JUDGE(t, memory_alloc_async, "Freed by memory_free_async or memory_free");
    CTS_OK(t, memory_free, t->device, c);
  }
}

/* Queued work runs even though its stream is destroyed right after it. */
void cts_case_host_call_outlives(cts_t *t) {
  static numbered_t calls[CALLS];
  static counter_t counter;
  static cts_gate_t gate;
  hal_plugin_stream_t *const stream = cts_stream(t);
  const int held = cts_is_async(t);
  if (held) cts_gate_close(t, &gate, stream);
  for (int i = 0; i < CALLS; i++) {
    calls[i] = (numbered_t){&counter, i};
    CTS_OK(t, stream_host_call, stream, count, &calls[i]);
  }
  if (held) cts_gate_open_later(&gate);
  CTS_OK(t, stream_destroy, stream);
  if (held && !cts_gate_was_open(&gate)) cts_gate_open(&gate); /* it may return at once and end the stream later */
  CTS_OK(t, device_synchronize, t->device);
  CTS_CHECK(t, atomic_load(&counter.count) == CALLS && !atomic_load(&counter.wrong),
            "%d host functions were queued in a stream that was destroyed after them, and %d ran%s", CALLS,
            atomic_load(&counter.count), atomic_load(&counter.wrong) ? ", not in order" : "");
}
