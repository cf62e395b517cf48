/* shared_event_testing.h: an event that two processes share, on any plugin that supports it. */
#ifndef TEST_HAL_SHARED_EVENT_TESTING_H_
#define TEST_HAL_SHARED_EVENT_TESTING_H_

#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "ipc_handle.h"
#include "support.h"

/* The state that two processes exchange, and the gate of the first process's stream. */
typedef struct shared_page_s {
  ipc_handle_t handle;
  atomic_int stage, is_open;
} shared_page_t;

static shared_page_t *page;

static inline void begin_shared(void) {
  page = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  cr_assert_neq(page, MAP_FAILED);
}

static inline void nap(void) { nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL); }
static inline void reach(int stage) { atomic_store(&page->stage, stage); }
static inline void await(int stage) {
  while (atomic_load(&page->stage) < stage) nap();
}
static inline void wait_for_gate(void *unused) {
  (void)unused;
  while (!atomic_load(&page->is_open)) nap();
}

/* The other process: observes that the first record completes when the gate opens and not before; then waits on a
   stream for a second record. */
static inline void wait_there(void (*open)(void)) {
  hal_event_t *event = NULL;
  hal_stream_t *stream = NULL;
  await(1);
  open();
  assert_ok(hal_event_ipc_open(0, page->handle.bytes, page->handle.size, &event));
  assert_ok(hal_stream_acquire(0, 0, &stream));
  cr_assert_eq(hal_event_query(event), HAL_NOT_READY);
  assert_ok(hal_stream_wait_event(stream, event));
  cr_assert_eq(hal_stream_query(stream), HAL_NOT_READY);
  atomic_store(&page->is_open, 1);
  assert_ok(hal_stream_synchronize(stream));
  assert_ok(hal_event_synchronize(event));
  assert_ok(hal_event_query(event));
  assert_ok(hal_event_record(event, stream)); /* an event for the first process to wait for */
  assert_ok(hal_stream_synchronize(stream));
  reach(2);
  await(3);
  hal_event_destroy(event);
}

/* Starts a process that runs this or another function. */
static inline pid_t start_there(void (*there)(void (*open)(void)), void (*open)(void)) {
  const pid_t child = fork(); /* before either process has initialized the driver */
  if (child) return child;
  there(open);
  _exit(0);
}

/* An event of this process after a gate, which another process may open. */
static inline hal_event_t *record_behind_gate(hal_stream_t **out_stream) {
  hal_event_t *event = NULL;
  assert_ok(hal_event_create(0, HAL_EVENT_INTERPROCESS, &event));
  assert_ok(hal_stream_acquire(0, 0, out_stream));
  assert_ok(hal_stream_host_call(*out_stream, wait_for_gate, NULL));
  assert_ok(hal_event_record(event, *out_stream));
  assert_ok(hal_event_ipc_export(event, page->handle.bytes, sizeof page->handle.bytes, &page->handle.size));
  reach(1);
  return event;
}

/* One process records and the other waits for it, in both directions. */
static inline void share_an_event(void (*open)(void)) {
  int state = 1;
  hal_stream_t *stream = NULL;
  const pid_t child = start_there(wait_there, open);
  open();
  hal_event_t *const event = record_behind_gate(&stream);
  await(2);
  assert_ok(hal_event_synchronize(event));
  assert_ok(hal_stream_synchronize(stream));
  hal_event_destroy(event);
  reach(3);
  cr_assert_eq(waitpid(child, &state, 0), child);
  cr_assert(WIFEXITED(state) && WEXITSTATUS(state) == 0, "%d", state);
}

/* Records after a gate that never opens, until the parent kills the process. */
static inline void end_before_the_work(void (*open)(void)) {
  hal_stream_t *stream = NULL;
  open();
  record_behind_gate(&stream);
  for (;;) nap();
}

/* A stream waits for an event of a process that ends before; later work of the stream and of the event runs. */
static inline void wait_for_the_ended(void (*open)(void)) {
  hal_event_t *event = NULL;
  hal_stream_t *stream = NULL;
  int state = 0;
  const pid_t child = start_there(end_before_the_work, open);
  open();
  await(1);
  assert_ok(hal_event_ipc_open(0, page->handle.bytes, page->handle.size, &event));
  assert_ok(hal_stream_acquire(0, 0, &stream));
  assert_ok(hal_stream_wait_event(stream, event));
  cr_assert_eq(hal_stream_query(stream), HAL_NOT_READY);
  kill(child, SIGKILL); /* it remains a zombie while the stream detects its exit */
  assert_fails(hal_stream_synchronize(stream), HAL_ABORTED, "the process that recorded the event has ended");
  assert_fails(hal_event_synchronize(event), HAL_ABORTED, "has ended before its work was done");
  assert_ok(hal_event_record(event, stream)); /* anew, by this process */
  assert_ok(hal_event_synchronize(event));
  assert_ok(hal_stream_synchronize(stream));
  cr_assert_eq(waitpid(child, &state, 0), child);
  cr_assert_neq(hal_event_ipc_open(0, page->handle.bytes, page->handle.size, &event), HAL_OK,
                "it opened the event of a process that is gone");
  hal_event_destroy(event);
}

/* Invalid handles, and those of this process, are refused. */
static inline void refuse_invalid_events(void (*open)(void)) {
  hal_event_t *event = NULL, *opened = NULL;
  ipc_handle_t handle = {.size = 64};
  open();
  assert_fails(hal_event_ipc_open(0, handle.bytes, handle.size, &opened), HAL_INVALID_ARGUMENT,
               "invalid handle of 64 bytes: expected 32");
  handle.size = 32;
  assert_fails(hal_event_ipc_open(0, handle.bytes, handle.size, &opened), HAL_INVALID_ARGUMENT,
               "not a handle of an event");
  assert_ok(hal_event_create(0, HAL_EVENT_INTERPROCESS | HAL_EVENT_BLOCKING, &event));
  assert_ok(hal_event_query(event)); /* never recorded */
  assert_ok(hal_event_synchronize(event));
  assert_ok(hal_event_ipc_export(event, handle.bytes, sizeof handle.bytes, &handle.size));
  assert_fails(hal_event_ipc_open(0, handle.bytes, handle.size, &opened), HAL_INVALID_ARGUMENT,
               "another one than this");
  cr_assert_null(opened);
  hal_event_destroy(event);
}

#endif /* TEST_HAL_SHARED_EVENT_TESTING_H_ */
