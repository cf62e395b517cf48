/* watch.c: events of devices reach the watcher that is set, and no other. */
#include <stdio.h>

#include "cts.h"
#include "hal/status.h"
#include "kernel.h"

enum { LAUNCHES = 100, WAIT_NS = 1000000000 };

typedef struct watcher_s {
  cts_t *t;
  const char *name;
  atomic_int ended, running, lost;
} watcher_t;

/* The watchers are static, because a plugin that calls one too late must find it. */
static watcher_t first, second;

static void take(void *user_data, const hal_device_event_t *event) {
  watcher_t *const watcher = user_data;
  cts_t *const t = watcher->t;
  CTS_CHECK(t, !atomic_load(&watcher->ended), "the function of %s was called although another call had ended it",
            watcher->name);
  CTS_CHECK(t, !atomic_exchange(&watcher->running, 1), "the function of %s was called while it was running",
            watcher->name);
  CTS_CHECK(t, event->struct_size >= HAL_STRUCT_SIZE(hal_device_event_t, message) && event->kind < 31 && event->message,
            "an event has struct_size %zu, kind %u and the message %p", event->struct_size, event->kind,
            (const void *)event->message);
  CTS_CHECK(t, memchr(event->message, 0, 4096), "the message of an event has no end");
  if (event->kind == HAL_DEVICE_EVENT_LOST) atomic_fetch_add(&watcher->lost, 1);
  atomic_store(&watcher->running, 0);
}

static void watch(cts_t *t, watcher_t *watcher, const char *name) {
  *watcher = (watcher_t){.t = t, .name = name};
  CTS_OK(t, device_watch, t->device, HAL_DEVICE_EVENT_ALL, take, watcher);
}

/* Causes events with which the plugin could call a function that was removed. */
static void work(cts_t *t) {
  hal_plugin_stream_t *const stream = cts_stream(t);
  void *const memory = cts_alloc(t, 4096);
  uint8_t *const bytes = cts_pinned(t, 4096);
  for (int i = 0; i < 5; i++) {
    cts_put(t, stream, memory, bytes, 4096);
    cts_sync(t, stream);
    CTS_OK(t, device_synchronize, t->device);
    cts_nap();
  }
  cts_free(t, memory);
}

void cts_case_device_watch(cts_t *t) {
  for (int i = 0; i < 3; i++) {
    watch(t, &first, "the first watcher");
    work(t);
    watch(t, &second, "the second watcher");
    atomic_store(&first.ended, 1);
    work(t);
    CTS_OK(t, device_watch, t->device, 0, NULL, NULL);
    atomic_store(&second.ended, 1);
    work(t);
  }
}

/* A device that is lost reports it to its watcher, too. */
void cts_case_fault_watch(cts_t *t) {
  if (!t->fault)
    cts_skip(t, "no setting was given, with --fault NAME=VALUE, that makes the plugin fail one of its launches");
  cts_fault_set(t);
  cts_start(t);
  if (!CTS_PROVIDES(t, device_watch)) cts_skip(t, "the plugin does not provide device_watch");
  if (!CTS_PROVIDES(t, kernel_launch)) cts_skip(t, "the plugin does not provide kernel_launch");
  hal_plugin_kernel_t *const kernel = cts_kernel_find(t, cts_kernels_load(t), "cts_ramp");
  hal_plugin_stream_t *const stream = cts_stream(t);
  void *const memory = cts_alloc(t, CTS_RAMP * 4);
  hal_status_t failure = HAL_OK;
  watch(t, &first, "the watcher");
  for (int i = 0; i < LAUNCHES && !failure; i++) {
    cts_ramp_launch(t, kernel, stream, memory, i, CTS_RAMP);
    failure = cts_stream_synchronize(t, stream);
  }
  CTS_CHECK(t, failure, "none of %d launches failed, of which %s makes one fail", LAUNCHES, t->fault);
  const int64_t begin = cts_now_ns();
  while (failure == HAL_UNAVAILABLE && !atomic_load(&first.lost) && cts_now_ns() - begin < 10LL * WAIT_NS) cts_nap();
  CTS_CHECK(t, failure != HAL_UNAVAILABLE || atomic_load(&first.lost),
            "stream_synchronize returned HAL_UNAVAILABLE, and no HAL_DEVICE_EVENT_LOST came within 10 seconds");
  CTS_OK(t, device_watch, t->device, 0, NULL, NULL);
  atomic_store(&first.ended, 1);
}
