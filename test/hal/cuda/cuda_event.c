/* Tests of events between processes: of the HAL's functions over the CUDA plugin, and of the library that stands in for the driver. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cuda_testing.h"

/* What two processes tell each other, and the gate of the first one's stream. */
typedef struct page_s {
  hal_ipc_handle_t handle;
  atomic_int stage, is_open;
} page_t;

static page_t *page;

static void begin(void) {
  page = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  cr_assert_neq(page, MAP_FAILED);
}
TestSuite(cuda_event, .init = begin, .fini = close_opencl, .timeout = 120);

static void nap(void) { nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL); }
static void reach(int stage) { atomic_store(&page->stage, stage); }
static void await(int stage) {
  while (atomic_load(&page->stage) < stage) nap();
}
static void wait_for_gate(void *unused) {
  (void)unused;
  while (!atomic_load(&page->is_open)) nap();
}

/* The other process: sees the first record end when the gate opens, and not before; and a second one, after it waited for it on a stream. */
static void wait_there(void) {
  hal_event_t *event = NULL;
  hal_stream_t *stream = NULL;
  await(1);
  open_cuda();
  assert_ok(hal_event_ipc_open(0, &page->handle, &event));
  assert_ok(hal_stream_acquire(0, 0, &stream));
  cr_assert_eq(hal_event_query(event), HAL_NOT_READY);
  assert_ok(hal_stream_wait_event(stream, event));
  cr_assert_eq(hal_stream_query(stream), HAL_NOT_READY);
  atomic_store(&page->is_open, 1);
  assert_ok(hal_stream_synchronize(stream));
  assert_ok(hal_event_synchronize(event));
  assert_ok(hal_event_query(event));
  assert_ok(hal_event_record(event, stream)); /* here, for the first one to wait for */
  assert_ok(hal_stream_synchronize(stream));
  reach(2);
  await(3);
  hal_event_destroy(event);
}

Test(cuda_event, an_event_of_one_process_is_waited_for_and_recorded_by_another) {
  int state = 1;
  hal_event_t *event = NULL;
  hal_stream_t *stream = NULL;
  const pid_t child = fork(); /* before either has started the driver */
  if (child == 0) {
    wait_there();
    _exit(0);
  }
  open_cuda();
  assert_ok(hal_event_create(0, HAL_EVENT_INTERPROCESS, &event));
  assert_ok(hal_stream_acquire(0, 0, &stream));
  assert_ok(hal_stream_host_call(stream, wait_for_gate, NULL));
  assert_ok(hal_event_record(event, stream));
  assert_ok(hal_event_ipc_export(event, &page->handle));
  reach(1);
  await(2);
  assert_ok(hal_event_synchronize(event));
  assert_ok(hal_stream_synchronize(stream));
  hal_event_destroy(event);
  reach(3);
  cr_assert_eq(waitpid(child, &state, 0), child);
  cr_assert(WIFEXITED(state) && WEXITSTATUS(state) == 0, "%d", state);
}

Test(cuda_event, handles_that_are_none_and_those_of_this_process_are_refused) {
  hal_event_t *event = NULL, *opened = NULL;
  hal_ipc_handle_t handle = {{0}};
  open_cuda();
  assert_fails(hal_event_ipc_open(0, &handle, &opened), HAL_INVALID_ARGUMENT, "is that process alive");
  assert_ok(hal_event_create(0, HAL_EVENT_INTERPROCESS | HAL_EVENT_BLOCKING, &event));
  assert_ok(hal_event_ipc_export(event, &handle));
  assert_fails(hal_event_ipc_open(0, &handle, &opened), HAL_INTERNAL, "another one than this");
  cr_assert_null(opened);
  hal_event_destroy(event);
}
