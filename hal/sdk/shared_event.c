/* shared_event.c: interprocess events (hal/plugin_shared_event.h): a page in memory that both processes map, in a file
 * without a name, so that a process that ends leaves nothing. */
#define _GNU_SOURCE /* syscall */
#include "hal/plugin_shared_event.h"

#include "hal/plugin_flags.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define KIND "event"

enum { SLOTS = 64, LOOK_MS = 100 };

/* The shared data. A ticket's slot is its remainder by SLOTS: `done` is the highest completed ticket there, `process`
 * is the process that recorded the latest, `lost` an earlier ticket whose process has ended before its work. */
typedef struct page_s {
  _Atomic uint64_t taken, queued; /* tickets: reserved; to be waited for */
  _Atomic uint64_t done[SLOTS], lost[SLOTS];
  _Atomic int32_t process[SLOTS];
  _Atomic uint32_t turn; /* changes with each completion: sleeping threads wait for it */
} page_t;

struct hal_shared_event_s {
  page_t *page;
  const char *plugin;
  int file; /* of the process that created it, else -1 */
  hal_shared_handle_t handle;
  atomic_uint users;
};

_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2, "processes share the numbers without a lock");

static hal_status_t failed(const char *plugin, hal_status_t status, int code, const char *what) {
  char message[256];
  snprintf(message, sizeof message, "%s: %s%s%s", plugin, what, code ? ": " : "", code ? strerror(code) : "");
  return hal_host->error_set(status, code, message);
}

/* Maps the file; if it is `kept`, the event owns it from now on. */
static hal_status_t map(const char *plugin, int file, int kept, const hal_shared_handle_t *handle,
                        hal_shared_event_t **out_event) {
  page_t *const page = hal_shared_file_map(file, sizeof *page);
  if (!page)
    return failed(plugin, HAL_RESOURCE_EXHAUSTED, errno, "the memory of an event between processes cannot be mapped");
  hal_shared_event_t *const event = hal_host->mem_alloc(sizeof *event, _Alignof(hal_shared_event_t));
  if (!event) {
    hal_shared_file_unmap(page, sizeof *page);
    return failed(plugin, HAL_RESOURCE_EXHAUSTED, 0, "no host memory for an event between processes; free some memory");
  }
  *event = (hal_shared_event_t){.page = page, .plugin = plugin, .file = kept ? file : -1, .handle = *handle};
  atomic_init(&event->users, 1);
  *out_event = event;
  return HAL_OK;
}

hal_status_t hal_shared_event_make(const char *plugin, hal_shared_event_t **out_event) {
  hal_shared_handle_t handle;
  int file = -1;
  if (hal_shared_file_create(KIND, sizeof(page_t), &file, &handle))
    return failed(plugin, HAL_RESOURCE_EXHAUSTED, errno, "the system cannot create a file for an interprocess event");
  const hal_status_t status = map(plugin, file, 1, &handle, out_event);
  if (status) close(file);
  return status;
}

void hal_shared_event_export(const hal_shared_event_t *event, void *handle, size_t room, size_t *out_size) {
  hal_shared_handle_t parcel = event->handle;
  parcel.process = (int32_t)getpid(); /* a forked child has the file, too */
  hal_handle_write(&parcel, sizeof parcel, handle, room, out_size);
}

hal_status_t hal_shared_event_open(const char *plugin, const void *handle, size_t handle_size,
                                   hal_shared_event_t **out_event) {
  hal_shared_handle_t parcel;
  size_t size = 0;
  int file = -1;
  hal_status_t status = hal_handle_read(plugin, handle, handle_size, &parcel, sizeof parcel);
  if (status) return status;
  if (!hal_shared_handle_is(KIND, &parcel))
    return failed(plugin, HAL_INVALID_ARGUMENT, 0, "not a handle of an event; pass one of event_ipc_export");
  if (parcel.process == (int32_t)getpid())
    return failed(plugin, HAL_INVALID_ARGUMENT, 0,
                  "an event's handle was opened in the process that made it; open it in another one than this");
  status = hal_shared_file_open(KIND, &parcel, &file, &size);
  if (status && errno)
    return failed(plugin, status, errno,
                  "an event of another process cannot be opened; is that process alive, and of this user");
  if (!status) {
    status = size == sizeof(page_t) ? map(plugin, file, 0, &parcel, out_event) : HAL_NOT_FOUND;
    close(file);
  }
  if (status == HAL_NOT_FOUND)
    return failed(plugin, status, 0,
                  "an event of another process is no longer there; keep it until all have opened it");
  return status;
}

void hal_shared_event_keep(hal_shared_event_t *event) {
  atomic_fetch_add_explicit(&event->users, 1, memory_order_relaxed);
}

void hal_shared_event_release(hal_shared_event_t *event) {
  if (!event || atomic_fetch_sub_explicit(&event->users, 1, memory_order_acq_rel) != 1) return;
  if (event->file >= 0) close(event->file);
  hal_shared_file_unmap(event->page, sizeof(page_t));
  hal_host->mem_free(event);
}

/* Raises a number to at least `value`. */
static void raise_to(_Atomic uint64_t *number, uint64_t value) {
  uint64_t old = atomic_load(number);
  while (old < value && !atomic_compare_exchange_weak(number, &old, value)) continue;
}

/* Returns whether a process has ended, including a zombie. */
static int has_ended(int32_t process) {
  char path[32], line[512];
  if (kill(process, 0)) return errno == ESRCH;
  snprintf(path, sizeof path, "/proc/%d/stat", (int)process);
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  const ssize_t length = file < 0 ? 0 : read(file, line, sizeof line - 1);
  if (file >= 0) close(file);
  line[length > 0 ? length : 0] = '\0';
  const char *const name = strrchr(line, ')'); /* which may contain spaces; the state follows it */
  return name && (strncmp(name, ") Z", 3) == 0 || strncmp(name, ") X", 3) == 0);
}

uint64_t hal_shared_event_record(hal_shared_event_t *event) {
  page_t *const page = event->page;
  const uint64_t ticket = atomic_fetch_add(&page->taken, 1) + 1;
  _Atomic int32_t *const process = &page->process[ticket % SLOTS];
  if (ticket > SLOTS && !hal_shared_event_done(event, ticket - SLOTS) && has_ended(atomic_load(process)))
    raise_to(&page->lost[ticket % SLOTS], ticket - SLOTS);
  atomic_store(process, (int32_t)getpid());
  raise_to(&page->queued, ticket); /* after the line above: a thread that sees the ticket sees its process */
  return ticket;
}

void hal_shared_event_complete(hal_shared_event_t *event, uint64_t ticket) {
  page_t *const page = event->page;
  if (ticket > SLOTS) hal_shared_event_wait(event, ticket - SLOTS); /* of a process that has ended */
  raise_to(&page->done[ticket % SLOTS], ticket);
  atomic_fetch_add(&page->turn, 1);
  syscall(SYS_futex, &page->turn, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

uint64_t hal_shared_event_last(const hal_shared_event_t *event) { return atomic_load(&event->page->queued); }

int hal_shared_event_done(const hal_shared_event_t *event, uint64_t ticket) {
  return !ticket || atomic_load(&event->page->done[ticket % SLOTS]) >= ticket;
}

hal_status_t hal_shared_event_wait(const hal_shared_event_t *event, uint64_t ticket) {
  static const struct timespec look = {.tv_nsec = LOOK_MS * 1000000L};
  page_t *const page = event->page;
  for (;;) {
    const uint32_t turn = atomic_load(&page->turn);
    if (hal_shared_event_done(event, ticket)) return HAL_OK;
    const int32_t process = atomic_load(&page->process[ticket % SLOTS]);
    if (atomic_load(&page->lost[ticket % SLOTS]) == ticket || has_ended(process)) {
      if (hal_shared_event_done(event, ticket)) return HAL_OK; /* it ended after its work */
      return failed(event->plugin, HAL_ABORTED, 0,
                    "the process that recorded an event has ended before its work was done");
    }
    syscall(SYS_futex, &page->turn, FUTEX_WAIT, turn, &look, NULL, 0);
  }
}
