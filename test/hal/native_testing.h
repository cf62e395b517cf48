/* native_testing.h: the state of a stream while user code has queued its own work on the native handle
 * (hal_stream_native). Each program supplies the two functions that need the vendor's library. */
#ifndef TEST_HAL_NATIVE_TESTING_H_
#define TEST_HAL_NATIVE_TESTING_H_

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "support.h"

typedef struct native_user_s {
  void (*hold)(void *native); /* queues work on the handle that completes at `release` and not before */
  void (*release)(void);
} native_user_t;

static atomic_int native_released;

static void native_nap(int milliseconds) { nanosleep(&(struct timespec){.tv_nsec = milliseconds * 1000000L}, NULL); }

static void *native_release_later(void *data) {
  const native_user_t *const user = data;
  native_nap(60);
  atomic_store(&native_released, 1);
  user->release();
  return NULL;
}

/* For a host function: whether the user's work was complete when it ran. */
static void native_look(void *data) { *(int *)data = atomic_load(&native_released) ? 1 : -1; }

typedef struct native_streams_s {
  hal_stream_t *stream, *other;
  hal_event_t *event, *timed;
} native_streams_t;

static hal_status_t native_by_stream(const native_streams_t *with) { return hal_stream_synchronize(with->stream); }
static hal_status_t native_by_event(const native_streams_t *with) { return hal_event_synchronize(with->event); }
static hal_status_t native_by_timed(const native_streams_t *with) { return hal_event_synchronize(with->timed); }
static hal_status_t native_by_other(const native_streams_t *with) { return hal_stream_synchronize(with->other); }
static hal_status_t native_by_device(const native_streams_t *with) { return (void)with, hal_device_synchronize(0); }
static hal_status_t native_by_timeout(const native_streams_t *with) {
  return hal_stream_synchronize_timeout(with->stream, INT64_C(60000000000));
}
static hal_status_t native_by_query(const native_streams_t *with) { /* completes even without a wait */
  hal_status_t status;
  while ((status = hal_stream_query(with->stream)) == HAL_NOT_READY) native_nap(1);
  return status;
}

/* User work is held on the stream; each function that waits returns after the work is complete and not before. */
static inline void native_check(const native_user_t *user) {
  static hal_status_t (*const waits[])(const native_streams_t *) = {
      native_by_stream, native_by_event,   native_by_timed, native_by_other,
      native_by_device, native_by_timeout, native_by_query};
  native_streams_t with;
  void *native = NULL;
  assert_ok(hal_stream_acquire(0, 0, &with.stream));
  assert_ok(hal_stream_acquire(0, 0, &with.other));
  assert_ok(hal_event_create(0, 0, &with.event));
  assert_ok(hal_event_create(0, HAL_EVENT_TIMING, &with.timed));
  assert_ok(hal_stream_native(with.stream, &native));
  cr_assert_not_null(native);
  assert_ok(native_by_query(&with));
  for (size_t i = 0; i < sizeof waits / sizeof *waits; i++) {
    pthread_t thread;
    int looked = 0;
    atomic_store(&native_released, 0);
    user->hold(native);
    for (int j = 0; j < 3; j++, native_nap(2)) cr_assert_eq(hal_stream_query(with.stream), HAL_NOT_READY);
    cr_assert_eq(hal_stream_synchronize_timeout(with.stream, 2000000), HAL_NOT_READY);
    assert_ok(hal_event_record(with.event, with.stream));
    assert_ok(hal_event_record(with.timed, with.stream));
    assert_ok(hal_stream_wait_event(with.other, with.event));
    assert_ok(hal_stream_host_call(with.stream, native_look, &looked));
    cr_assert_eq(hal_event_query(with.event), HAL_NOT_READY);
    cr_assert_eq(hal_event_query(with.timed), HAL_NOT_READY);
    cr_assert_eq(hal_stream_query(with.other), HAL_NOT_READY);
    cr_assert_eq(looked, 0);
    cr_assert_eq(pthread_create(&thread, NULL, native_release_later, (void *)(uintptr_t)user), 0);
    assert_ok(waits[i](&with));
    cr_assert_eq(atomic_load(&native_released), 1, "wait %zu returned before the end of the user's work", i);
    pthread_join(thread, NULL);
    assert_ok(hal_stream_synchronize(with.stream));
    assert_ok(hal_stream_synchronize(with.other));
    cr_assert_eq(looked, 1, "the host function ran %s the user's work", looked ? "before" : "not after");
    assert_ok(hal_event_query(with.event));
    assert_ok(native_by_query(&with)); /* a query may need its own marker, which takes a moment */
  }
  hal_event_destroy(with.event), hal_event_destroy(with.timed);
}

#endif /* TEST_HAL_NATIVE_TESTING_H_ */
