/* broken.c: a plugin that breaks one rule. It opens a good plugin, HAL_BROKEN_OF, copies its table, and replaces a
 * function: the row of the table at the end that HAL_BROKEN names. It only serves to test the conformance suite. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "hal/plugin.h"
#include "own_ops.h"

typedef hal_plugin_stream_t stream_t;
typedef hal_plugin_event_t event_t;

static hal_plugin_api_t good;
static const hal_host_api_t *host;

static int is_host(int32_t device) { return device == HAL_HOST; }

static hal_status_t refuse(hal_status_t status) { return host->error_set(status, 0, "broken: refused"); }

/* ---- the process ---- */
static hal_status_t init_prints(const char *options) {
  return printf("driver 1.2.3\n"), fflush(stdout), good.init(options);
}
static hal_status_t init_closes(const char *options) {
  for (int file = 3; file < 64; file++) close(file);
  return good.init(options);
}
static hal_status_t init_moves(const char *options) { return chdir("/") ? HAL_INTERNAL : good.init(options); }
static hal_status_t init_signals(const char *options) { return signal(SIGTERM, SIG_IGN), good.init(options); }
static hal_status_t init_hangs(const char *options) {
  (void)options;
  for (;;) pause();
  return HAL_OK;
}
static hal_status_t init_exits(const char *options) {
  (void)options;
  exit(0);
}
static hal_status_t copy_crashes(stream_t *stream, void *dst, int32_t to, const void *src, int32_t from, size_t size) {
  if (size == 257) raise(SIGSEGV);
  return good.memory_copy(stream, dst, to, src, from, size);
}

/* ---- devices ---- */
static hal_status_t count_grows(int32_t *out_count) {
  static int32_t count;
  return *out_count = ++count, HAL_OK;
}
static hal_status_t info_overruns(int32_t device, hal_device_info_t *out_info) {
  hal_device_info_t info = {.struct_size = sizeof info};
  const size_t size = out_info->struct_size;
  const hal_status_t status = good.device_info(device, &info);
  memcpy(out_info, &info, sizeof info);
  out_info->struct_size = size;
  return status;
}
static hal_status_t info_flag(int32_t device, hal_device_info_t *out_info, uint64_t flag) {
  const hal_status_t status = good.device_info(device, out_info);
  HAL_SET_FIELD(out_info, flags, out_info->flags | flag);
  return status;
}
static hal_status_t info_says_async(int32_t device, hal_device_info_t *out_info) {
  return info_flag(device, out_info, HAL_DEVICE_ASYNC);
}
static hal_status_t info_says_visible(int32_t device, hal_device_info_t *out_info) {
  return info_flag(device, out_info, HAL_DEVICE_HOST_VISIBLE);
}
/* Writes other values into a longer struct than into a short one. */
static hal_status_t info_depends_on_size(int32_t device, hal_device_info_t *out_info) {
  const hal_status_t status = good.device_info(device, out_info);
  if (HAL_HAS_FIELD(out_info, driver_version)) HAL_SET_FIELD(out_info, l2_bytes, out_info->l2_bytes + 1);
  return status;
}
/* Drops the offset of an address within its allocation. */
static hal_status_t host_pointer_no_offset(int32_t device, void *ptr, void **out_ptr) {
  void *there = NULL;
  const hal_status_t status = good.host_device_pointer(device, ptr, &there);
  if (!status) *out_ptr = (void *)((uintptr_t)there & ~(uintptr_t)4095);
  return status;
}
static hal_status_t host_pointer_any(int32_t device, void *ptr, void **out_ptr) {
  return (void)device, *out_ptr = ptr, HAL_OK;
}
/* Continues to call a watcher that was ended. */
static hal_device_event_fn_t watcher;
static void *watcher_data;
static hal_status_t watch_never_ends(int32_t device, uint32_t kinds, hal_device_event_fn_t fn, void *user_data) {
  if (fn) watcher = fn, watcher_data = user_data;
  return good.device_watch(device, kinds, fn, user_data);
}
static hal_status_t synchronize_throttles(int32_t device) {
  const hal_device_event_t event = {.struct_size = sizeof event, .kind = HAL_DEVICE_EVENT_THROTTLED, .message = ""};
  if (watcher) watcher(watcher_data, &event);
  return good.device_synchronize(device);
}
/* Copies whole pitches: the bytes between the rows also change. */
static hal_status_t copy_2d_gaps(stream_t *stream, const hal_copy_2d_t *copy) {
  hal_copy_2d_t wide = *copy;
  if (copy->width && copy->dst_pitch == copy->src_pitch) wide.width = copy->dst_pitch;
  return good.memory_copy_2d(stream, &wide);
}
/* Treats a rectangle of narrow rows like a dense one. */
static hal_status_t copy_2d_any_pitch(stream_t *stream, const hal_copy_2d_t *copy) {
  hal_copy_2d_t fixed = *copy;
  if (fixed.dst_pitch < fixed.width) fixed.dst_pitch = fixed.width;
  if (fixed.src_pitch < fixed.width) fixed.src_pitch = fixed.width;
  return good.memory_copy_2d(stream, &fixed);
}
static hal_status_t batch_no_stride(stream_t *stream, const hal_copy_t *copies, size_t count, size_t stride) {
  hal_copy_t packed[256];
  if (count > 256 || count < 2) return good.memory_copy_batch(stream, copies, count, stride);
  for (size_t i = 0; i < count; i++) packed[i] = copies[0]; /* those at the wrong positions are not copies */
  return good.memory_copy_batch(stream, packed, count, sizeof *packed);
}
static hal_status_t batch_forgets_last(stream_t *stream, const hal_copy_t *copies, size_t count, size_t stride) {
  return good.memory_copy_batch(stream, copies, count > 32 ? 32 : count, stride);
}
#include "hint.inc"
static hal_status_t device_synchronize_not(int32_t device) { return (void)device, HAL_OK; }

/* ---- memory ---- */
static hal_status_t alloc_unaligned(int32_t device, size_t size, uint32_t flags, void **out_ptr) {
  void *ptr = NULL;
  const hal_status_t status = good.memory_alloc(device, size + 64, flags, &ptr);
  if (!status) *out_ptr = (char *)ptr + 16;
  return status;
}
static hal_status_t free_unaligned(int32_t device, void *ptr) {
  return good.memory_free(device, ptr ? (char *)ptr - 16 : NULL);
}
static hal_status_t alloc_overlaps(int32_t device, size_t size, uint32_t flags, void **out_ptr) {
  static atomic_int number;
  static void *last;
  if (atomic_fetch_add(&number, 1) == 40) return *out_ptr = (char *)last + 256, HAL_OK;
  const hal_status_t status = good.memory_alloc(device, size, flags, out_ptr);
  if (!status) last = *out_ptr;
  return status;
}
static hal_status_t free_not(int32_t device, void *ptr) { return (void)device, (void)ptr, HAL_OK; }
static hal_status_t free_no_null(int32_t device, void *ptr) {
  return ptr ? good.memory_free(device, ptr) : refuse(HAL_INVALID_ARGUMENT);
}
static hal_status_t alloc_internal(int32_t device, size_t size, uint32_t flags, void **out_ptr) {
  const hal_status_t status = good.memory_alloc(device, size, flags, out_ptr);
  return status ? refuse(HAL_INTERNAL) : HAL_OK;
}
static hal_status_t alloc_lost_failure(int32_t device, size_t size, uint32_t flags, void **out_ptr) {
  if (good.memory_alloc(device, size, flags, out_ptr)) *out_ptr = NULL;
  return HAL_OK;
}
static hal_status_t alloc_writes(int32_t device, size_t size, uint32_t flags, void **out_ptr) {
  *out_ptr = NULL;
  return good.memory_alloc(device, size, flags, out_ptr);
}
static hal_status_t alloc_silent(int32_t device, size_t size, uint32_t flags, void **out_ptr) {
  const hal_status_t status = good.memory_alloc(device, size, flags, out_ptr);
  return status ? host->error_set(status, 0, "") : HAL_OK;
}
/* A cache of one block of 20000 bytes that two threads may acquire at once. */
enum { RACED = 20000, KNOWN = 65536 };
static void *volatile cached;
static void *known[KNOWN];
static atomic_uint known_count;
static hal_status_t alloc_races(int32_t device, size_t size, uint32_t flags, void **out_ptr) {
  void *const ptr = size == RACED ? cached : NULL;
  if (ptr) {
    sched_yield();
    cached = NULL;
    return *out_ptr = ptr, HAL_OK;
  }
  const hal_status_t status = good.memory_alloc(device, size, flags, out_ptr);
  if (!status && size == RACED) known[atomic_fetch_add(&known_count, 1) % KNOWN] = *out_ptr;
  return status;
}
static hal_status_t free_races(int32_t device, void *ptr) {
  const unsigned count = atomic_load(&known_count);
  for (unsigned i = 0; ptr && !cached && i < count && i < KNOWN; i++)
    if (known[i] == ptr) return cached = ptr, HAL_OK;
  return good.memory_free(device, ptr);
}
static hal_status_t fill_first_byte(stream_t *stream, int32_t device, void *dst, const void *pattern,
                                    size_t pattern_size, size_t size) {
  uint8_t wrong[16];
  memset(wrong, *(const uint8_t *)pattern, sizeof wrong);
  return good.memory_fill(stream, device, dst, pattern_size == 2 ? wrong : pattern, pattern_size, size);
}
static hal_status_t fill_too_far(stream_t *stream, int32_t device, void *dst, const void *pattern, size_t pattern_size,
                                 size_t size) {
  return good.memory_fill(stream, device, dst, pattern, pattern_size, size + pattern_size);
}
static hal_status_t fill_borrows(stream_t *stream, int32_t device, void *dst, const void *pattern, size_t pattern_size,
                                 size_t size) {
  const hal_status_t status = good.memory_fill(stream, device, dst, pattern, pattern_size, size);
  return status ? status
                : good.memory_copy(stream, dst, device, pattern, HAL_HOST, size < pattern_size ? 0 : pattern_size);
}
static hal_status_t memory_info_swapped(int32_t device, size_t *out_free, size_t *out_total) {
  return good.memory_info(device, out_total, out_free);
}
static hal_status_t pointer_info_no_base(const void *ptr, hal_pointer_info_t *out_info) {
  const hal_status_t status = good.memory_pointer_info(ptr, out_info);
  if (!status) memcpy(&out_info->base, &ptr, sizeof ptr);
  return status;
}
static hal_status_t host_alloc_unaligned(int32_t device, size_t size, uint32_t flags, void **out_ptr) {
  const hal_status_t status = good.host_alloc(device, size + 64, flags, out_ptr);
  if (!status) *out_ptr = (char *)*out_ptr + 8;
  return status;
}

/* ---- copies ---- */
static hal_status_t copy_no_offset(stream_t *stream, void *dst, int32_t to, const void *src, int32_t from,
                                   size_t size) {
  if (is_host(from) && !is_host(to)) dst = (void *)((uintptr_t)dst & ~(uintptr_t)63);
  return good.memory_copy(stream, dst, to, src, from, size);
}
static hal_status_t copy_within_short(stream_t *stream, void *dst, int32_t to, const void *src, int32_t from,
                                      size_t size) {
  return good.memory_copy(stream, dst, to, src, from,
                          !is_host(to) && !is_host(from) && size > 3 ? size & ~(size_t)3 : size);
}
static hal_status_t copy_no_zero(stream_t *stream, void *dst, int32_t to, const void *src, int32_t from, size_t size) {
  return size ? good.memory_copy(stream, dst, to, src, from, size) : refuse(HAL_INVALID_ARGUMENT);
}
static hal_status_t copy_blocks(stream_t *stream, void *dst, int32_t to, const void *src, int32_t from, size_t size) {
  const hal_status_t status = good.memory_copy(stream, dst, to, src, from, size);
  return status || !stream ? status : good.stream_synchronize(stream);
}
static hal_status_t copy_spins(stream_t *stream, void *dst, int32_t to, const void *src, int32_t from, size_t size) {
  const hal_status_t status = good.memory_copy(stream, dst, to, src, from, size);
  while (!status && stream && good.stream_query(stream) == HAL_NOT_READY) sched_yield();
  return status;
}
static hal_status_t copy_too_early(stream_t *stream, void *dst, int32_t to, const void *src, int32_t from,
                                   size_t size) {
  return good.memory_copy(!is_host(to) && !is_host(from) ? NULL : stream, dst, to, src, from, size);
}
static hal_status_t copy_null_waits(stream_t *stream, void *dst, int32_t to, const void *src, int32_t from,
                                    size_t size) {
  if (!stream) good.device_synchronize(is_host(to) ? from : to);
  return good.memory_copy(stream, dst, to, src, from, size);
}
static hal_status_t copy_between_wrong(stream_t *stream, void *dst, int32_t to, const void *src, int32_t from,
                                       size_t size) {
  return good.memory_copy(stream, dst, to, src, from, to >= 0 && from >= 0 && to != from ? size / 2 : size);
}

/* ---- streams ---- */
static hal_status_t synchronize_not(stream_t *stream) { return (void)stream, HAL_OK; }
static hal_status_t query_always(stream_t *stream) { return (void)stream, HAL_OK; }
static hal_status_t query_never(stream_t *stream) { return (void)stream, HAL_NOT_READY; }
static hal_status_t query_waits(stream_t *stream) { return good.stream_synchronize(stream); }
static hal_status_t timeout_gives_ok(stream_t *stream, int64_t timeout_ns) {
  return (void)stream, (void)timeout_ns, HAL_OK;
}
static hal_status_t timeout_ignored(stream_t *stream, int64_t timeout_ns) {
  return (void)timeout_ns, good.stream_query(stream);
}
static hal_status_t wait_ignored(stream_t *stream, event_t *event) { return (void)stream, (void)event, HAL_OK; }
static hal_status_t wait_in_host(stream_t *stream, event_t *event) {
  return (void)stream, good.event_synchronize(event);
}
static hal_status_t destroy_leaks_file(stream_t *stream) {
  return open("/dev/null", O_RDONLY) < 0 ? HAL_INTERNAL : good.stream_destroy(stream);
}
static hal_status_t host_call_lost(stream_t *stream, hal_host_fn_t fn, void *data) {
  static atomic_int number;
  return atomic_fetch_add(&number, 1) % 50 == 49 ? HAL_OK : good.stream_host_call(stream, fn, data);
}
static hal_status_t host_call_twice(stream_t *stream, hal_host_fn_t fn, void *data) {
  const hal_status_t status = good.stream_host_call(stream, fn, data);
  return status ? status : good.stream_host_call(stream, fn, data);
}
static hal_status_t host_call_at_once(stream_t *stream, hal_host_fn_t fn, void *data) {
  return (void)stream, fn(data), HAL_OK;
}

/* ---- events ---- */
static event_t *recorded[4096];
static hal_status_t record_first_only(event_t *event, stream_t *stream) {
  for (int i = 0; i < 4096; i++) {
    if (recorded[i] == event) return HAL_OK;
    if (!recorded[i]) return recorded[i] = event, good.event_record(event, stream);
  }
  return good.event_record(event, stream);
}
static hal_status_t create_forgets(int32_t device, uint32_t flags, event_t **out_event) {
  const hal_status_t status = good.event_create(device, flags, out_event);
  for (int i = 0; !status && i < 4096; i++)
    if (recorded[i] == *out_event) recorded[i] = (event_t *)&recorded;
  return status;
}
static hal_status_t event_query_always(event_t *event) { return (void)event, HAL_OK; }
static hal_status_t event_synchronize_not(event_t *event) { return (void)event, HAL_OK; }
static stream_t *last_stream;
static hal_status_t record_remembers(event_t *event, stream_t *stream) {
  return last_stream = stream, good.event_record(event, stream);
}
static hal_status_t event_synchronize_stream(event_t *event) {
  return last_stream ? good.stream_synchronize(last_stream) : good.event_synchronize(event);
}
static hal_status_t elapsed_in_us(event_t *start, event_t *end, int64_t *out_nanoseconds) {
  const hal_status_t status = good.event_elapsed(start, end, out_nanoseconds);
  if (!status) *out_nanoseconds /= 1000;
  return status;
}
static hal_status_t elapsed_positive(event_t *start, event_t *end, int64_t *out_nanoseconds) {
  const hal_status_t status = good.event_elapsed(start, end, out_nanoseconds);
  if (!status && *out_nanoseconds < 0) *out_nanoseconds = -*out_nanoseconds;
  return status;
}
static hal_status_t elapsed_always(event_t *start, event_t *end, int64_t *out_nanoseconds) {
  if (good.event_elapsed(start, end, out_nanoseconds)) *out_nanoseconds = 0;
  return HAL_OK;
}

#include "broken_more.inc"
#include "comm.inc"
#include "drivers.inc"
#include "order.inc"
#include "promises.inc"
#include "whole.inc"
#include "whole_semaphore.inc"

/* ---- the table ---- */
#define SLOT(name) HAL_SLOT_##name
enum {
#define HAL_OP(since, kind, group, need, name, params, args) SLOT(name),
#include "hal/plugin_ops.def"
#undef HAL_OP
  SLOT_COUNT
};
typedef void (*any_t)(void);
static const struct {
  const char *name;
  uint32_t slot;
  any_t with;
  const char *setting, *value; /* of the good plugin, set before it is opened; or NULL */
} breaks[] = {
#define BREAK(name, slot, with) {name, SLOT(slot), (any_t)with, NULL, NULL},
#define BREAK_SET(name, slot, with, setting, value) {name, SLOT(slot), (any_t)with, setting, value},
#include "breaks.def"
#undef BREAK
#undef BREAK_SET
};

static uint64_t provided[8];

HAL_PLUGIN_EXPORT hal_status_t hal_plugin_entry(const hal_host_api_t *of, hal_plugin_api_t *api) {
  const char *const path = getenv("HAL_BROKEN_OF"), *const name = getenv("HAL_BROKEN");
  int found = 0;
  host = of;
  for (size_t i = 0; name && i < sizeof breaks / sizeof breaks[0]; i++)
    if (strcmp(breaks[i].name, name) == 0 && breaks[i].setting) setenv(breaks[i].setting, breaks[i].value, 1);
  void *const library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
  void *const symbol = library ? dlsym(library, "hal_plugin_entry") : NULL;
  hal_plugin_entry_fn_t entry;
  if (!symbol) return of->error_set(HAL_INCOMPATIBLE, 0, "broken: HAL_BROKEN_OF names no plugin");
  memcpy(&entry, &symbol, sizeof entry);
  const hal_status_t status = entry(of, api);
  if (status) return status;
  memcpy(&good, api, sizeof good);
  for (uint64_t i = 0; i < api->provided_words && i < 8; i++) provided[i] = api->provided[i];
  for (size_t i = 0; name && i < sizeof breaks / sizeof breaks[0]; i++) {
    if (strcmp(breaks[i].name, name)) continue;
    memcpy((char *)api + offsetof(hal_plugin_api_t, info) + breaks[i].slot * sizeof(any_t), &breaks[i].with,
           sizeof(any_t));
    provided[breaks[i].slot / 64] |= UINT64_C(1) << (breaks[i].slot % 64);
    found = 1;
  }
  api->provided = provided;
  return found ? HAL_OK : of->error_set(HAL_INCOMPATIBLE, 0, "broken: HAL_BROKEN names no row of breaks.def");
}
