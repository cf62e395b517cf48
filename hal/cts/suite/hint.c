/* hint.c: prefetches and advice change no byte and forbid no use; names of objects have no effect. */
#include <stdio.h>

#include "cts.h"
#include "kernel.h"

enum { ROOM = 1 << 18, AWAY = 100 };

/* Memory of the device with known bytes. */
typedef struct range_s {
  uint8_t *device, *expected, *got;
} range_t;

static range_t make_range(cts_t *t, uint64_t seed) {
  const range_t range = {cts_alloc(t, ROOM), cts_pinned(t, ROOM), cts_pinned(t, ROOM)};
  cts_noise(range.expected, ROOM, seed);
  cts_put(t, NULL, range.device, range.expected, ROOM);
  return range;
}

static void check_range(cts_t *t, const range_t *range, hal_plugin_stream_t *stream, const char *what) {
  cts_get(t, stream, range->got, range->device, ROOM);
  cts_sync(t, stream);
  cts_same(t, range->got, range->expected, ROOM, what);
}

/* ---- prefetches ---- */

static void prefetch(cts_t *t, const range_t *range, hal_plugin_stream_t *stream, int32_t to) {
  CTS_OK(t, memory_prefetch, stream, t->device, range->device, ROOM, to, 0);
  CTS_OK(t, memory_prefetch, stream, t->device, range->device + AWAY, 3 * AWAY, to, 0);
  check_range(t, range, stream, to == HAL_HOST ? "memory after a prefetch to the host" : "memory after a prefetch");
}

void cts_case_memory_prefetch(cts_t *t) {
  const range_t range = make_range(t, 31);
  hal_plugin_stream_t *const stream = cts_stream(t);
  CTS_JUDGE(t, memory_prefetch, "The bytes keep their values");
  for (int i = 0; i < 2; i++) {
    prefetch(t, &range, i ? stream : NULL, t->device);
    prefetch(t, &range, i ? stream : NULL, HAL_HOST);
  }
  cts_noise(range.expected, ROOM, 32); /* work before and after it on the stream is done, too */
  cts_put(t, stream, range.device, range.expected, ROOM);
  prefetch(t, &range, stream, t->device);
  CTS_JUDGE(t, memory_prefetch, "A size of 0 is HAL_OK");
  CTS_OK(t, memory_prefetch, stream, t->device, NULL, 0, t->device, 0);
  if (!(t->info.flags & HAL_DEVICE_UNIFIED)) return;
  CTS_JUDGE(t, memory_prefetch, "or of the host where the device is HAL_DEVICE_UNIFIED");
  uint8_t *const host = cts_host(t, ROOM);
  cts_noise(host, ROOM, 33);
  cts_noise(range.expected, ROOM, 33);
  CTS_OK(t, memory_prefetch, stream, t->device, host, ROOM, t->device, 0);
  cts_sync(t, stream);
  cts_same(t, host, range.expected, ROOM, "host memory after a prefetch");
}

static hal_status_t prefetch_with(cts_t *t, uint32_t flags) {
  return cts_memory_prefetch(t, NULL, t->device, t->scratch, AWAY, t->device, flags);
}

void cts_case_flags_memory_prefetch(cts_t *t) {
  t->scratch = cts_alloc(t, ROOM);
  cts_refuses_flags(t, 0, prefetch_with);
}

/* ---- advice ---- */

void cts_case_memory_advise(cts_t *t) {
  const range_t range = make_range(t, 34);
  char what[64];
  for (uint32_t advice = HAL_ADVICE_READ_MOSTLY; advice <= HAL_ADVICE_NOT_ACCESSED; advice++)
    for (int host = 0; host < 2; host++) {
      CTS_JUDGE(t, memory_advise, "they keep their values, and every use remains valid");
      CTS_OK(t, memory_advise, t->device, range.device + AWAY, ROOM - AWAY, advice, host ? HAL_HOST : t->device);
      snprintf(what, sizeof what, "memory after the advice %u", (unsigned)advice);
      check_range(t, &range, NULL, what);
      cts_noise(range.expected, ROOM, 35 + advice);
      cts_put(t, NULL, range.device, range.expected, ROOM);
      check_range(t, &range, NULL, what);
    }
  CTS_JUDGE(t, memory_advise, "A size of 0 is HAL_OK");
  CTS_OK(t, memory_advise, t->device, NULL, 0, HAL_ADVICE_READ_MOSTLY, t->device);
  CTS_JUDGE(t, memory_advise, "An unknown advice is HAL_UNIMPLEMENTED");
  const uint32_t unknown[] = {0, HAL_ADVICE_NOT_ACCESSED + 1, 100, UINT32_MAX};
  for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++)
    CTS_STATUS(t, HAL_UNIMPLEMENTED, memory_advise, t->device, range.device, ROOM, unknown[i], t->device);
}

/* ---- names ---- */

static void name(cts_t *t, uint32_t kind, const void *object) {
  enum { LONG = 5000 };
  char *const text = (char *)cts_host(t, LONG), *const expected = (char *)cts_host(t, LONG);
  for (int i = 0; i < 3; i++) { /* a short name, a long one instead, none */
    memset(text, i == 1 ? 'n' : 0, LONG - 1);
    if (!i) snprintf(text, LONG, "an object of kind %u", (unsigned)kind);
    memcpy(expected, text, LONG);
    CTS_OK(t, object_name_set, t->device, kind, object, text);
    cts_same(t, text, expected, LONG, "the name that object_name_set was given");
    memset(text, 'x', LONG - 1);
  }
  free(text);
  free(expected);
}

void cts_case_object_name(cts_t *t) {
  const range_t range = make_range(t, 41);
  hal_plugin_stream_t *const stream = cts_stream(t);
  hal_plugin_event_t *const event = cts_event(t, 0);
  hal_plugin_semaphore_t *semaphore = NULL;
  CTS_OK(t, semaphore_create, t->device, 0, 0, &semaphore);
  name(t, HAL_OBJECT_DEVICE, NULL);
  if (stream) name(t, HAL_OBJECT_STREAM, stream);
  name(t, HAL_OBJECT_EVENT, event);
  name(t, HAL_OBJECT_SEMAPHORE, semaphore);
  name(t, HAL_OBJECT_MEMORY, range.device);
  cts_noise(range.expected, ROOM, 42);
  cts_put(t, stream, range.device, range.expected, ROOM);
  CTS_OK(t, event_record, event, stream);
  CTS_OK(t, stream_signal_semaphore, stream, semaphore, 1);
  CTS_OK(t, event_synchronize, event);
  check_range(t, &range, stream, "memory whose copy was queued on a stream with a name");
  CTS_JUDGE(t, object_name_set, "An unknown kind is HAL_UNIMPLEMENTED");
  const uint32_t unknown[] = {HAL_OBJECT_MEMORY + 1, 100, UINT32_MAX};
  for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++)
    CTS_STATUS(t, HAL_UNIMPLEMENTED, object_name_set, t->device, unknown[i], range.device, "an object");
}

void cts_case_object_kernel(cts_t *t) {
  hal_plugin_module_t *const module = cts_kernels_load(t);
  hal_plugin_kernel_t *const kernel = cts_kernel_find(t, module, "cts_ramp");
  void *const memory = cts_alloc(t, CTS_RAMP * 4);
  name(t, HAL_OBJECT_MODULE, module);
  name(t, HAL_OBJECT_KERNEL, kernel);
  cts_ramp_launch(t, kernel, NULL, memory, 7, CTS_RAMP);
  cts_ramp_check(t, memory, 7, 1, 0, "the result of a kernel with a name");
}
