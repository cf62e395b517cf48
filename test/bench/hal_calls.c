/* hal_calls.c: nanoseconds per call of the HAL's thin paths: a slot of a plugin's table as the host calls it, the
 * same through a layer, a current stream, an event's record and query, the default generator. There is no baseline:
 * no other library has these layers.
 *
 *   bench_hal_calls [plugin name or path, default fake] [calls per row]
 *
 * Each row is the best of five runs, since any disturbance makes a run longer. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "device/device.h"
#include "hal/hal.h"
#include "plugin/call.h"

enum { RUNS = 5 };

static hal_device_t *device;
static hal_stream_t *stream;
static hal_event_t *event;
static hal_generator_t *generator;
static volatile uint64_t sink; /* keeps results alive */

static double now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static void table_call(void) { sink += (uint64_t)hal_call_profile_range(device->plugin, NULL); }
static void layered_call(void) {
  const uint32_t layers = device->plugin->layers;
  device->plugin->layers = HAL_LAYER_TAIL; /* the cheapest layer: checks whether the slot exists */
  sink += (uint64_t)hal_call_profile_range(device->plugin, NULL);
  device->plugin->layers = layers;
}
static void device_ensure(void) { sink += (uint64_t)hal_device_ensure(0); }
static void stream_current(void) {
  hal_stream_t *current;
  hal_stream_current(0, &current);
  sink += (uint64_t)(uintptr_t)current;
}
static void stream_query(void) { sink += (uint64_t)hal_stream_query(stream); }
static void event_record(void) { sink += (uint64_t)hal_event_record(event, stream); }
static void event_query(void) { sink += (uint64_t)hal_event_query(event); }
static void generator_reserve(void) {
  uint64_t seed, offset;
  hal_generator_reserve(generator, 1, &seed, &offset);
  sink += offset;
}
static void wrong_device(void) { sink += (uint64_t)hal_device_ensure(-1); }

static void measure(const char *name, void (*call)(void), long calls) {
  double best = 1e300;
  for (int run = 0; run < RUNS; run++) {
    const double start = now_ns();
    for (long i = 0; i < calls; i++) call();
    const double each = (now_ns() - start) / (double)calls;
    if (each < best) best = each;
    if (hal_device_synchronize(0)) {
      fprintf(stderr, "%s: %s\n", name, hal_error_message());
      exit(1);
    }
  }
  printf("%-44s %9.1f ns\n", name, best);
}

int main(int argument_count, char **arguments) {
  const long calls = argument_count > 2 ? strtol(arguments[2], NULL, 10) : 200000;
  if (calls <= 0) {
    fprintf(stderr, "usage: %s [plugin name or path] [calls per row]\n", arguments[0]);
    return 2;
  }
  if (hal_registry_open(argument_count > 1 ? arguments[1] : "fake") || hal_device_get(0, &device) ||
      hal_stream_acquire(0, 0, &stream) || hal_event_create(0, 0, &event) || hal_generator_default(0, &generator)) {
    fprintf(stderr, "%s\n", hal_error_message());
    return 1;
  }
  printf("plugin %s, %ld calls per row, best of %d\n", device->plugin->info.name, calls, RUNS);
  measure("call of a table slot (profile_range)", table_call, calls);
  measure("the same through hal_layer_enter and leave", layered_call, calls);
  measure("hal_device_ensure of a ready device", device_ensure, calls);
  measure("hal_stream_current", stream_current, calls);
  measure("hal_stream_query", stream_query, calls);
  measure("hal_event_record", event_record, calls);
  measure("hal_event_query", event_query, calls);
  measure("hal_generator_reserve", generator_reserve, calls);
  measure("a failure with its message", wrong_device, calls);
  hal_event_destroy(event);
  hal_registry_close();
  return 0;
}
