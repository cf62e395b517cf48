/* proxy.c: proxies for objects that are not streams, on which a stream can be BLOCKED: an event of another process
 * (shared.c), a semaphore (semaphore.c). A proxy is a stream that no worker runs; its object raises the number of done
 * items. This file also has the threads that wait for other processes. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <string.h>

#include "schedule.h"

hal_plugin_stream_t *fake_proxy_make(int32_t device, uint64_t done, uint64_t tail) {
  hal_plugin_stream_t *const stream = hal_host->mem_alloc(sizeof *stream, alignof(hal_plugin_stream_t));
  if (!stream) return NULL;
  memset(stream, 0, sizeof *stream);
  stream->device = device;
  stream->state = FAKE_STREAM_RUNNING; /* claimed */
  atomic_store_explicit(&stream->refs, 1, memory_order_relaxed);
  atomic_store_explicit(&stream->wake_at, UINT64_MAX, memory_order_relaxed);
  atomic_store_explicit(&stream->done, done, memory_order_relaxed);
  atomic_store_explicit(&stream->tail, tail, memory_order_relaxed);
  return stream;
}

/* The threads and streams that waited do not exist in the child, or restart. */
void fake_proxy_fork_child(hal_plugin_stream_t *stream) {
  fake_lock_reset(&stream->lock);
  atomic_store_explicit(&stream->wake_at, UINT64_MAX, memory_order_relaxed);
  stream->waiters = NULL;
  stream->sleepers = 0;
}

void fake_thread_name(void) { pthread_setname_np(pthread_self(), "hal-fake-ipc"); }

int fake_thread_start(void *(*main)(void *), void *argument) {
  sigset_t all, old;
  pthread_attr_t attributes;
  pthread_t thread;
  if (pthread_attr_init(&attributes)) return 0;
  /* not joined, because a process may end at any time */
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attributes, (size_t)256 << 10);
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  const int failed = pthread_create(&thread, &attributes, main, argument);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  pthread_attr_destroy(&attributes);
  return !failed;
}
