/* fault.c: a failure that shows after the call has returned. */
#define _GNU_SOURCE
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cts.h"
#include "hal/status.h"

enum { SIZE = 65536 };

static cts_page_t *page;

/* A device that is the host's CPU touches the address itself: nothing to judge. */
static void give_up(int signal) {
  static const char text[] = "the device's own work ends in a fault of the process, which says enough";
  (void)signal;
  memcpy(page->text, text, sizeof text);
  atomic_store(&page->verdict, CTS_SKIP);
  _exit(0);
}

/* A copy from an address where nothing can be read must fail somewhere: in the call, or once at the next synchronisation. */
void cts_case_fault_asynchronous(cts_t *t) {
  void *const nowhere = mmap(NULL, SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CTS_CHECK(t, nowhere != MAP_FAILED, "error of the suite: no addresses");
  hal_plugin_stream_t *const stream = cts_stream(t);
  uint8_t *const device = cts_alloc(t, SIZE), *const bytes = cts_host(t, SIZE), *const got = cts_host(t, SIZE);
  page = t->page;
  signal(SIGSEGV, give_up), signal(SIGBUS, give_up);
  if (cts_memory_copy(t, stream, device, t->device, nowhere, t->device, SIZE))
    cts_skip(t, "a copy from no memory was refused in the call");
  const hal_status_t failure = cts_stream_synchronize(t, stream);
  CTS_CHECK(t, failure,
            "a copy from an address where nothing can be read gave HAL_OK, and stream_synchronize behind it, too: the "
            "failure is lost");
  CTS_GENERAL(t, "with its message set");
  CTS_CHECK(t, hal_error_message()[0], "stream_synchronize failed without a message");
  if (CTS_PROVIDES(t, stream_error)) {
    hal_stream_error_t error = {.struct_size = HAL_STRUCT_SIZE(hal_stream_error_t, message)};
    CTS_JUDGE(t, stream_error, "Tells what failed");
    const hal_status_t known = cts_stream_error(t, stream, &error);
    CTS_CHECK(t, known == HAL_OK || known == HAL_NOT_FOUND, "stream_error gave %s", hal_status_name(known));
    CTS_CHECK(t, known || error.status == failure, "stream_error tells %s, stream_synchronize gave %s",
              hal_status_name(error.status), hal_status_name(failure));
  }
  if (failure == HAL_UNAVAILABLE) return; /* a lost device stays so */
  CTS_GENERAL(t, "Asynchronous failures surface once");
  CTS_STATUS(t, HAL_OK, stream_synchronize, stream);
  CTS_STATUS(t, HAL_OK, stream_query, stream);
  cts_noise(bytes, SIZE, 1);
  cts_put(t, stream, device, bytes, SIZE);
  cts_get(t, stream, got, device, SIZE);
  cts_sync(t, stream);
  cts_same(t, got, bytes, SIZE, "the work of a stream behind a failure");
}
