/* measure.c: measurements for the report. They do not affect a verdict, because they depend on the machine and its
 * load. */
#include <stdio.h>

#include "hal/status.h"
#include "kernel.h"

enum { LARGE = 16 << 20, SMALL = 64, TIMES = 200, BEST_OF = 4 };

/* The measured work: a function that queues `times` pieces of work. */
typedef struct work_s {
  cts_t *t;
  hal_plugin_stream_t *stream;
  hal_plugin_event_t *event;
  hal_plugin_kernel_t *kernel;
  uint8_t *device, *other, *host;
} work_t;

/* Returns the seconds of one piece of work, of the best of several rounds; the first round is not counted. */
static double best_of(work_t *with, void (*queue)(work_t *with), int times) {
  double best = 0;
  for (int round = 0; round <= BEST_OF; round++) {
    const int64_t begin = cts_now_ns();
    for (int i = 0; i < times; i++) queue(with);
    cts_sync(with->t, with->stream);
    const double seconds = (double)(cts_now_ns() - begin) * 1e-9 / times;
    if (round == 1 || (round && seconds < best)) best = seconds;
  }
  return best;
}

static void to_device(work_t *with) { cts_put(with->t, with->stream, with->device, with->host, LARGE); }
static void to_host(work_t *with) { cts_get(with->t, with->stream, with->host, with->device, LARGE); }
static void within(work_t *with) {
  CTS_OK(with->t, memory_copy, with->stream, with->other, with->t->device, with->device, with->t->device, LARGE);
}
static void fill(work_t *with) {
  CTS_OK(with->t, memory_fill, with->stream, with->t->device, with->device, "", 1, LARGE);
}

static void tell_rate(work_t *with, const char *name, void (*queue)(work_t *with)) {
  const double seconds = best_of(with, queue, 1);
  cts_row(with->t, "figure", name, "%.2f GB/s", seconds > 0 ? LARGE * 1e-9 / seconds : 0);
}

/* Host memory for fast copies: page-locked if the plugin supports it. */
void cts_case_measure_memory(cts_t *t) {
  work_t with = {.t = t, .stream = cts_stream(t), .device = cts_alloc(t, LARGE), .other = cts_alloc(t, LARGE)};
  void *host = NULL;
  const int locked = CTS_PROVIDES(t, host_alloc);
  if (locked)
    CTS_OK(t, host_alloc, t->device, LARGE, 0, &host);
  else
    host = cts_host(t, LARGE);
  with.host = host;
  memset(host, 1, LARGE);
  tell_rate(&with, locked ? "copy to the device, 16 MiB, page-locked" : "copy to the device, 16 MiB", to_device);
  tell_rate(&with, locked ? "copy to the host, 16 MiB, page-locked" : "copy to the host, 16 MiB", to_host);
  tell_rate(&with, "copy within the device, 16 MiB", within);
  tell_rate(&with, "fill, 16 MiB", fill);
}

static void fill_small(work_t *with) {
  CTS_OK(with->t, memory_fill, with->stream, with->t->device, with->device, "", 1, SMALL);
}
static void fill_and_wait(work_t *with) { fill_small(with), cts_sync(with->t, with->stream); }
static void read_small(work_t *with) {
  cts_get(with->t, with->stream, with->host, with->device, SMALL);
  cts_sync(with->t, with->stream);
}
static void record(work_t *with) { CTS_OK(with->t, event_record, with->event, with->stream); }
static void record_and_wait(work_t *with) { record(with), CTS_OK(with->t, event_synchronize, with->event); }
static void launch(work_t *with) { cts_ramp_launch(with->t, with->kernel, with->stream, with->device, 1, 1); }
static void allocate(work_t *with) { cts_free(with->t, cts_alloc(with->t, 1 << 20)); }

static void tell_time(work_t *with, const char *name, void (*queue)(work_t *with)) {
  cts_row(with->t, "figure", name, "%.2f us", best_of(with, queue, TIMES) * 1e6);
}

void cts_case_measure_calls(cts_t *t) {
  work_t with = {.t = t, .stream = cts_stream(t), .device = cts_alloc(t, CTS_RAMP * 4), .host = cts_host(t, SMALL)};
  tell_time(&with, "fill of 64 bytes, one of 200 queued", fill_small);
  tell_time(&with, "fill of 64 bytes, waited for", fill_and_wait);
  tell_time(&with, "copy of 64 bytes to the host, waited for", read_small);
  tell_time(&with, "memory_alloc and memory_free of 1 MiB", allocate);
  if (CTS_PROVIDES(t, event_create)) {
    with.event = cts_event(t, 0);
    tell_time(&with, "event_record, one of 200 queued", record);
    tell_time(&with, "event_record, waited for", record_and_wait);
  }
  if (!CTS_PROVIDES(t, kernel_launch) || !cts_has_kernels(t)) return;
  with.kernel = cts_kernel_find(t, cts_kernels_load(t), "cts_ramp");
  tell_time(&with, "launch of 3 arguments, one of 200 queued", launch);
}
