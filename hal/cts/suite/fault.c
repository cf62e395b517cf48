/* fault.c: a failure that is reported after the call has returned. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "hal/status.h"
#include "kernel.h"

enum { SIZE = 65536 };

static cts_page_t *page;

/* A device that is the host's CPU accesses the address itself: there is nothing to test. */
static void give_up(int signal) {
  static const char text[] = "the device's own work ends in a fault of the process, which is sufficient";
  (void)signal;
  memcpy(page->text, text, sizeof text);
  atomic_store(&page->verdict, CTS_SKIP);
  _exit(0);
}

/* A copy from an unreadable address must fail: in the call, or once at the next synchronization. */
void cts_case_fault_asynchronous(cts_t *t) {
  void *const nowhere = mmap(NULL, SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CTS_CHECK(t, nowhere != MAP_FAILED, "error of the suite: no addresses");
  hal_plugin_stream_t *const stream = cts_stream(t);
  uint8_t *const device = cts_alloc(t, SIZE), *const bytes = cts_pinned(t, SIZE), *const got = cts_pinned(t, SIZE);
  page = t->page;
  signal(SIGSEGV, give_up), signal(SIGBUS, give_up);
  if (cts_memory_copy(t, stream, device, t->device, nowhere, t->device, SIZE))
    cts_skip(t, "a copy from no memory was refused in the call");
  const hal_status_t failure = cts_stream_synchronize(t, stream);
  CTS_CHECK(t, failure,
            "a copy from an unreadable address returned HAL_OK, and stream_synchronize after it, too: the "
            "failure is lost");
  CTS_GENERAL(t, "with its message set");
  CTS_CHECK(t, hal_error_message()[0], "stream_synchronize failed without a message");
  if (CTS_PROVIDES(t, stream_error)) {
    hal_stream_error_t error = {.struct_size = HAL_STRUCT_SIZE(hal_stream_error_t, message)};
    CTS_JUDGE(t, stream_error, "Describes the failure");
    const hal_status_t known = cts_stream_error(t, stream, &error);
    CTS_CHECK(t, known == HAL_OK || known == HAL_NOT_FOUND, "stream_error returned %s", hal_status_name(known));
    CTS_CHECK(t, known || error.status == failure, "stream_error reports %s, stream_synchronize returned %s",
              hal_status_name(error.status), hal_status_name(failure));
  }
  if (failure == HAL_UNAVAILABLE) return; /* a lost device stays lost */
  CTS_GENERAL(t, "An asynchronous failure is reported once");
  CTS_STATUS(t, HAL_OK, stream_synchronize, stream);
  CTS_STATUS(t, HAL_OK, stream_query, stream);
  cts_noise(bytes, SIZE, 1);
  cts_put(t, stream, device, bytes, SIZE);
  cts_get(t, stream, got, device, SIZE);
  cts_sync(t, stream);
  cts_same(t, got, bytes, SIZE, "the work of a stream after a failure");
}

/* ---- failures that the plugin causes itself, by the setting of --fault ---- */
enum { LAUNCHES = 100 };

typedef struct launched_s {
  hal_plugin_kernel_t *kernel;
  hal_plugin_stream_t *stream, *other;
  /* created before anything fails, because a lost device creates none; NULL = not provided */
  hal_plugin_event_t *event;
  void *memory;
} launched_t;

void cts_fault_set(cts_t *t) {
  char setting[256];
  snprintf(setting, sizeof setting, "%s", t->fault);
  char *const value = strchr(setting, '=');
  CTS_CHECK(t, value, "error of the suite: --fault %s", t->fault);
  *value = '\0';
  setenv(setting, value + 1, 1);
}

static launched_t begin(cts_t *t) {
  if (!t->fault)
    cts_skip(t, "no setting was given, with --fault NAME=VALUE, that makes the plugin fail one of its launches");
  cts_fault_set(t);
  cts_start(t);
  if (!CTS_PROVIDES(t, kernel_launch)) cts_skip(t, "the plugin does not provide kernel_launch");
  return (launched_t){.kernel = cts_kernel_find(t, cts_kernels_load(t), "cts_ramp"),
                      .stream = cts_stream(t),
                      .other = cts_stream(t),
                      .event = CTS_PROVIDES(t, event_create) ? cts_event(t, 0) : NULL,
                      .memory = cts_alloc(t, CTS_RAMP * 4)};
}

static hal_status_t ask_query(cts_t *t, const launched_t *with) {
  hal_status_t status;
  while ((status = cts_stream_query(t, with->stream)) == HAL_NOT_READY) cts_nap();
  return status;
}
static hal_status_t ask_synchronize(cts_t *t, const launched_t *with) {
  return cts_stream_synchronize(t, with->stream);
}
static hal_status_t ask_device(cts_t *t, const launched_t *with) {
  (void)with;
  return cts_device_synchronize(t, t->device);
}
static hal_status_t ask_timeout(cts_t *t, const launched_t *with) {
  return cts_stream_synchronize_timeout(t, with->stream, INT64_C(60000000000));
}
/* Another stream first, once the work is done. */
static hal_status_t ask_other(cts_t *t, const launched_t *with) {
  if (!with->event) cts_skip(t, "the plugin does not provide event_create");
  const hal_status_t recorded = cts_event_record(t, with->event, with->stream);
  if (recorded == HAL_UNAVAILABLE) return recorded; /* the work has failed already, and the device is lost, for all */
  cts_expect_ok(t, HAL_SLOT_event_record, recorded);
  while (cts_event_query(t, with->event) == HAL_NOT_READY) cts_nap();
  const hal_status_t query = cts_stream_query(t, with->other), synchronize = cts_stream_synchronize(t, with->other);
  if (query == HAL_UNAVAILABLE || synchronize == HAL_UNAVAILABLE)
    return HAL_UNAVAILABLE; /* the device is lost, for all */
  CTS_CHECK(
      t, !query && !synchronize,
      "a stream without work reports the failure of another stream: stream_query returned %s, stream_synchronize %s",
      hal_status_name(query), hal_status_name(synchronize));
  return cts_stream_synchronize(t, with->stream);
}

/* Launches until one fails, and queries after each in one way. Then the failure is over, everywhere. */
static void fail_once(cts_t *t, hal_status_t (*ask)(cts_t *t, const launched_t *with), const char *what) {
  const launched_t with = begin(t);
  hal_status_t failure = HAL_OK;
  for (int i = 0; i < LAUNCHES && !failure; i++) {
    cts_ramp_launch(t, with.kernel, with.stream, with.memory, i, CTS_RAMP);
    failure = ask(t, &with);
    if (!failure) cts_ramp_check(t, with.memory, i, 1, 0, "the result of a launch that did not fail");
  }
  CTS_CHECK(t, failure, "%s returned HAL_OK after each of %d launches, of which %s makes one fail", what, LAUNCHES,
            t->fault);
  CTS_CHECK(t, hal_error_message()[0], "%s returned %s without a message", what, hal_status_name(failure));
  if (failure == HAL_UNAVAILABLE) {
    CTS_GENERAL(t, "A lost device stays HAL_UNAVAILABLE");
    for (int i = 0; i < 3; i++) CTS_STATUS(t, HAL_UNAVAILABLE, stream_synchronize, i == 1 ? with.other : with.stream);
    CTS_STATUS(t, HAL_UNAVAILABLE, device_synchronize, t->device);
    return;
  }
  CTS_GENERAL(t, "An asynchronous failure is reported once");
  for (int i = 0; i < 2; i++) {
    CTS_STATUS(t, HAL_OK, stream_synchronize, with.stream);
    CTS_STATUS(t, HAL_OK, stream_query, with.stream);
    CTS_STATUS(t, HAL_OK, stream_synchronize, with.other);
    CTS_STATUS(t, HAL_OK, device_synchronize, t->device);
  }
  cts_ramp_launch(t, with.kernel, with.stream, with.memory, 4711, CTS_RAMP);
  cts_sync(t, with.stream);
  cts_ramp_check(t, with.memory, 4711, 1, 0, "the result of a launch after one that failed");
  if (!CTS_PROVIDES(t, stream_error)) return;
  hal_stream_error_t error = {.struct_size = HAL_STRUCT_SIZE(hal_stream_error_t, message)};
  CTS_JUDGE(t, stream_error, "Describes the failure");
  const hal_status_t known = cts_stream_error(t, with.stream, &error);
  CTS_CHECK(t, known || error.status == failure, "stream_error reports %s, %s returned %s",
            hal_status_name(error.status), what, hal_status_name(failure));
  hal_stream_error_t none = {.struct_size = HAL_STRUCT_SIZE(hal_stream_error_t, message)};
  CTS_JUDGE(t, stream_error, "HAL_NOT_FOUND");
  CTS_STATUS(t, HAL_NOT_FOUND, stream_error, with.other, &none);
}

static void count_call(void *data) { atomic_fetch_add((atomic_int *)data, 1); }

/* A host function after each launch, of which one fails: it is called once if the call was HAL_OK, else never. */
void cts_case_fault_host_call(cts_t *t) {
  static atomic_int calls; /* a function may be called late */
  const launched_t with = begin(t);
  hal_status_t failure = HAL_OK;
  int expected = 0;
  CTS_JUDGE(t, stream_host_call, "also where earlier work fails");
  for (int i = 0; i < LAUNCHES && !failure; i++) {
    cts_ramp_launch(t, with.kernel, with.stream, with.memory, i, CTS_RAMP);
    const hal_status_t queued = cts_stream_host_call(t, with.stream, count_call, &calls);
    failure = queued ? queued : cts_stream_synchronize(t, with.stream);
    expected += queued == HAL_OK;
    for (int naps = 0; naps < (failure ? 2000 : 1) && atomic_load(&calls) < expected; naps++) cts_nap();
    if (failure) cts_nap();
    CTS_CHECK(t, atomic_load(&calls) == expected,
              "stream_host_call after launch %d returned %s, stream_synchronize %s, and %d functions of %d were called",
              i, hal_status_name(queued), hal_status_name(queued ? HAL_OK : failure), atomic_load(&calls), expected);
  }
  CTS_CHECK(t, failure, "error of the suite: none of %d launches failed, of which %s makes one fail", LAUNCHES,
            t->fault);
}

void cts_case_fault_synchronize(cts_t *t) { fail_once(t, ask_synchronize, "stream_synchronize"); }
void cts_case_fault_query(cts_t *t) { fail_once(t, ask_query, "stream_query"); }
void cts_case_fault_device(cts_t *t) { fail_once(t, ask_device, "device_synchronize"); }
void cts_case_fault_timeout(cts_t *t) { fail_once(t, ask_timeout, "stream_synchronize_timeout"); }
void cts_case_fault_apart(cts_t *t) { fail_once(t, ask_other, "stream_synchronize"); }
