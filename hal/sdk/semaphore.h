/* semaphore.h: the default of the group SEMAPHORE: a number in a page of memory, which processes share if it was
 * created with HAL_SEMAPHORE_INTERPROCESS. Part of defaults.h, which describes HAL_DEFAULT and HAL_SELF. */
#include <errno.h>
#include <stdatomic.h>
#include <unistd.h>

#include "hal/plugin_shared_event.h"

/* The content of a file. */
#define DEFAULT_SEMAPHORE_KIND "semaphor"

typedef struct default_semaphore_page_s {
  _Atomic uint64_t value;
} default_semaphore_page_t;
_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2, "processes share the number without a lock");

/* Reference-counted: queued signals and waits hold a reference. */
typedef struct default_semaphore_s {
  default_semaphore_page_t *page; /* `own`, or a mapped file */
  default_semaphore_page_t own;
  int file; /* of the process that created it, else -1 */
  hal_shared_handle_t handle;
  atomic_uint users;
} default_semaphore_t;

static default_semaphore_t *default_semaphore_of(hal_plugin_semaphore_t *semaphore) {
  return (default_semaphore_t *)semaphore;
}

static void default_semaphore_release(default_semaphore_t *semaphore) {
  if (atomic_fetch_sub_explicit(&semaphore->users, 1, memory_order_acq_rel) != 1) return;
  if (semaphore->page != &semaphore->own) hal_shared_file_unmap(semaphore->page, sizeof *semaphore->page);
  if (semaphore->file >= 0) close(semaphore->file);
  hal_host->mem_free(semaphore);
}

/* The number only grows; HAL_SEMAPHORE_POISON is the greatest one. */
static void default_semaphore_raise(default_semaphore_t *semaphore, uint64_t value) {
  uint64_t old = atomic_load(&semaphore->page->value);
  while (old < value && !atomic_compare_exchange_weak(&semaphore->page->value, &old, value)) continue;
}

/* ---- lifetime ---- */

static hal_status_t default_semaphore_new(default_semaphore_t **out_semaphore) {
  default_semaphore_t *const semaphore = hal_host->mem_alloc(sizeof *semaphore, 16);
  if (!semaphore) return HAL_DEFAULT_ERROR(HAL_RESOURCE_EXHAUSTED, "semaphore_create: out of host memory");
  memset(semaphore, 0, sizeof *semaphore);
  semaphore->page = &semaphore->own;
  semaphore->file = -1;
  atomic_init(&semaphore->users, 1);
  *out_semaphore = semaphore;
  return HAL_OK;
}

/* Maps the file as the semaphore's page. Returns 0 if the system refuses. */
static int default_semaphore_map(default_semaphore_t *semaphore, int file) {
  default_semaphore_page_t *const page = hal_shared_file_map(file, sizeof *page);
  if (page) semaphore->page = page;
  return page != NULL;
}

HAL_DEFAULT(semaphore_create, int32_t device, uint64_t value, uint32_t flags, hal_plugin_semaphore_t **out_semaphore) {
  (void)device;
  default_semaphore_t *semaphore = NULL;
  hal_status_t status = hal_flags_check("semaphore_create", flags, HAL_SEMAPHORE_INTERPROCESS);
  if (!status) status = default_semaphore_new(&semaphore);
  if (status) return status;
  if (flags & HAL_SEMAPHORE_INTERPROCESS &&
      (hal_shared_file_create(DEFAULT_SEMAPHORE_KIND, sizeof(default_semaphore_page_t), &semaphore->file,
                              &semaphore->handle) ||
       !default_semaphore_map(semaphore, semaphore->file))) {
    default_semaphore_release(semaphore);
    return HAL_DEFAULT_ERROR(
        HAL_RESOURCE_EXHAUSTED,
        "semaphore_create: the system cannot create a file in memory for an interprocess semaphore; "
        "close files, or raise the limit of open files");
  }
  atomic_store(&semaphore->page->value, value);
  *out_semaphore = (hal_plugin_semaphore_t *)semaphore;
  return HAL_OK;
}

HAL_DEFAULT(semaphore_destroy, hal_plugin_semaphore_t *semaphore) {
  if (semaphore) default_semaphore_release(default_semaphore_of(semaphore));
  return HAL_OK;
}

HAL_DEFAULT(semaphore_export, hal_plugin_semaphore_t *semaphore, uint32_t flags, void *handle, size_t room,
            size_t *out_size) {
  const default_semaphore_t *const own = default_semaphore_of(semaphore);
  const hal_status_t status = hal_flags_check("semaphore_export", flags, 0);
  if (status) return status;
  if (own->file < 0)
    return HAL_DEFAULT_ERROR(HAL_FAILED_PRECONDITION,
                             "semaphore_export: create the semaphore with HAL_SEMAPHORE_INTERPROCESS, in this process");
  hal_shared_handle_t parcel = own->handle;
  parcel.process = (int32_t)getpid(); /* a forked child has the file, too */
  hal_handle_write(&parcel, sizeof parcel, handle, room, out_size);
  return HAL_OK;
}

/* Opens and maps the file of a handle. */
static hal_status_t default_semaphore_find(default_semaphore_t *semaphore, const hal_shared_handle_t *parcel) {
  size_t size = 0;
  int file = -1;
  const hal_status_t status = hal_shared_file_open(DEFAULT_SEMAPHORE_KIND, parcel, &file, &size);
  if (status) return status;
  const int is_page = size == sizeof(default_semaphore_page_t),
            is_mapped = is_page && default_semaphore_map(semaphore, file);
  close(file);
  return is_mapped ? HAL_OK : is_page ? HAL_RESOURCE_EXHAUSTED : HAL_NOT_FOUND;
}

HAL_DEFAULT(semaphore_open, int32_t device, const void *handle, size_t handle_size, uint32_t flags,
            hal_plugin_semaphore_t **out_semaphore) {
  (void)device;
  hal_shared_handle_t parcel;
  default_semaphore_t *semaphore = NULL;
  hal_status_t status = hal_flags_check("semaphore_open", flags, 0);
  if (!status) status = hal_handle_read("semaphore_open", handle, handle_size, &parcel, sizeof parcel);
  if (!status) status = default_semaphore_new(&semaphore);
  if (status) return status;
  status = default_semaphore_find(semaphore, &parcel);
  if (!status) {
    *out_semaphore = (hal_plugin_semaphore_t *)semaphore;
    return HAL_OK;
  }
  default_semaphore_release(semaphore);
  if (status == HAL_INVALID_ARGUMENT)
    return HAL_DEFAULT_ERROR(status, "semaphore_open: not a handle of a semaphore; pass one of semaphore_export");
  if (status == HAL_RESOURCE_EXHAUSTED)
    return HAL_DEFAULT_ERROR(status, "semaphore_open: the memory of a semaphore cannot be mapped");
  return HAL_DEFAULT_ERROR(HAL_NOT_FOUND,
                           "semaphore_open: the semaphore of another process cannot be opened; that process must be "
                           "alive, of this user, and keep the semaphore until all have opened it");
}

/* ---- the host ---- */

HAL_DEFAULT(semaphore_value, hal_plugin_semaphore_t *semaphore, uint64_t *out_value) {
  *out_value = atomic_load(&default_semaphore_of(semaphore)->page->value);
  return HAL_OK;
}

HAL_DEFAULT(semaphore_set, hal_plugin_semaphore_t *semaphore, uint64_t value) {
  default_semaphore_raise(default_semaphore_of(semaphore), value);
  return HAL_OK;
}

/* The pause before the next check: 1 us at first, then doubling up to 1 ms. */
static void default_semaphore_pause(int64_t *inout_pause_ns, int64_t most_ns) {
  const struct timespec pause = {0, (long)(*inout_pause_ns < most_ns ? *inout_pause_ns : most_ns)};
  nanosleep(&pause, NULL);
  if (*inout_pause_ns < 1000000) *inout_pause_ns *= 2;
}

HAL_DEFAULT(semaphore_wait, hal_plugin_semaphore_t *semaphore, uint64_t value, int64_t timeout_ns) {
  const int64_t start = default_now_ns();
  int64_t pause_ns = 1000;
  for (;;) {
    uint64_t now = 0;
    const hal_status_t status = HAL_SELF(semaphore_value, semaphore, &now);
    if (status) return status;
    if (now == HAL_SEMAPHORE_POISON)
      return HAL_DEFAULT_ERROR(HAL_ABORTED, "semaphore_wait: the semaphore is poisoned; the work it stands for failed");
    if (now >= value) return HAL_OK;
    const int64_t left = timeout_ns - (default_now_ns() - start);
    if (left <= 0) return HAL_NOT_READY;
    default_semaphore_pause(&pause_ns, left);
  }
}

/* ---- streams ---- */

typedef struct default_semaphore_item_s {
  default_semaphore_t *semaphore;
  uint64_t value;
} default_semaphore_item_t;

static void default_semaphore_item_free(default_semaphore_item_t *item) {
  default_semaphore_release(item->semaphore);
  hal_host->mem_free(item);
}

static void default_semaphore_signal(void *user_data) {
  default_semaphore_item_t *const item = user_data;
  default_semaphore_raise(item->semaphore, item->value);
  default_semaphore_item_free(item);
}

static void default_semaphore_await(void *user_data) {
  default_semaphore_item_t *const item = user_data;
  int64_t pause_ns = 1000;
  while (atomic_load(&item->semaphore->page->value) < item->value) default_semaphore_pause(&pause_ns, INT64_MAX);
  default_semaphore_item_free(item);
}

/* Captured work may run any number of times, but a signal or a wait is for one time. */
static hal_status_t default_semaphore_check(HAL_DEFAULT_SELF hal_plugin_stream_t *stream) {
  uint32_t capture = HAL_CAPTURE_NONE;
  uint64_t id = 0;
  if (!stream || HAL_SELF(capture_status, stream, &capture, &id) || capture == HAL_CAPTURE_NONE) return HAL_OK;
  return HAL_DEFAULT_ERROR(HAL_FAILED_PRECONDITION,
                           "a semaphore on a captured stream; signal it and wait for it outside of the capture");
}

static hal_status_t default_semaphore_queue(HAL_DEFAULT_SELF hal_plugin_stream_t *stream,
                                            default_semaphore_t *semaphore, uint64_t value, hal_host_fn_t fn) {
  hal_status_t status = default_semaphore_check(HAL_DEFAULT_PASS stream);
  if (status) return status;
  default_semaphore_item_t *const item = hal_host->mem_alloc(sizeof *item, 16);
  if (!item) return HAL_DEFAULT_ERROR(HAL_RESOURCE_EXHAUSTED, "semaphore: out of host memory");
  *item = (default_semaphore_item_t){semaphore, value};
  atomic_fetch_add_explicit(&semaphore->users, 1, memory_order_relaxed);
  status = HAL_SELF(stream_host_call, stream, fn, item);
  if (status) default_semaphore_item_free(item); /* the function is never called */
  return status;
}

HAL_DEFAULT(stream_signal_semaphore, hal_plugin_stream_t *stream, hal_plugin_semaphore_t *semaphore, uint64_t value) {
  return default_semaphore_queue(HAL_DEFAULT_PASS stream, default_semaphore_of(semaphore), value,
                                 default_semaphore_signal);
}

/* A semaphore that has the value already adds no work to the stream. */
HAL_DEFAULT(stream_wait_semaphore, hal_plugin_stream_t *stream, hal_plugin_semaphore_t *semaphore, uint64_t value) {
  default_semaphore_t *const own = default_semaphore_of(semaphore);
  if (atomic_load(&own->page->value) >= value) return default_semaphore_check(HAL_DEFAULT_PASS stream);
  return default_semaphore_queue(HAL_DEFAULT_PASS stream, own, value, default_semaphore_await);
}
