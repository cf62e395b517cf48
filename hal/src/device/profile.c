/* profile.c: the process's profile: collects the plugins' records, with times of the host's clock and names of the
 * operators.
 *
 * A record identifies its launch by 64 bits, which the plugin requests when work is submitted
 * (hal_host->profile_correlation, profile_launch.c). */
#define _POSIX_C_SOURCE 200809L
#include "hal/profile.h"

#include <string.h>

#include "base/clock.h"
#include "base/lock.h"
#include "device/hooks.h"
#include "device/profile_internal.h"
#include "hal/log.h"
#include "hal/status.h"
#include "hal/stream.h"
#include "plugin/call.h"
#include "plugin/slots.h"

/* The device's clock and the host's at one moment. */
typedef struct clock_pair_s {
  int64_t device_ns, host_ns;
} clock_pair_t;

static struct {
  int collects;               /* the plugin collects records; under the device's lock */
  int readable;               /* there may be records; under profile_lock or, at first, the device's lock */
  clock_pair_t first, latest; /* a clock may run faster than the host's: two pairs determine its rate */
} profiles[HAL_MAX_DEVICES];

atomic_uint hal_profile_number;
static uint32_t last_number;
static hal_lock_t profile_lock; /* start, stop and read; before any device's lock */

hal_status_t hal_profile_range(int32_t device, const char *name) {
  hal_device_t *found;
  HAL_RETURN_IF_ERROR(hal_device_get(device, &found));
  return hal_error_plugin(found->plugin, HAL_SLOT_profile_range, hal_call_profile_range(found->plugin, name));
}

/* ---- clocks ------------------------------------------------------------------------------------------------------ */

/* Uses the pair of the fastest of a few calls: the others may have been interrupted between the two clocks. */
static hal_status_t read_clocks(hal_device_t *device, clock_pair_t *out_pair) {
  enum { TRIES = 5 };
  int64_t best = INT64_MAX;
  for (int i = 0; i < TRIES; i++) {
    clock_pair_t pair;
    const int64_t begin = hal_clock_ns();
    const hal_status_t status =
        hal_call_profile_timestamp(device->plugin, device->ordinal, &pair.device_ns, &pair.host_ns);
    if (status) return hal_error_plugin(device->plugin, HAL_SLOT_profile_timestamp, status);
    const int64_t took = hal_clock_ns() - begin;
    if (took >= best) continue;
    best = took;
    *out_pair = pair;
  }
  return HAL_OK;
}

static int64_t to_host(int32_t device, int64_t device_ns) {
  enum { LEAST_NS = 1000000 }; /* over less time the rate is inaccurate */
  const clock_pair_t first = profiles[device].first, latest = profiles[device].latest;
  const int64_t since = device_ns - latest.device_ns, span = latest.device_ns - first.device_ns;
  const int64_t drift = (latest.host_ns - first.host_ns) - span;
  const int64_t correction = span < LEAST_NS ? 0 : (int64_t)((double)since * ((double)drift / (double)span));
  return latest.host_ns + since + correction;
}

/* ---- on and off -------------------------------------------------------------------------------------------------- */

/* The caller holds the device's lock. */
static hal_status_t begin_device(hal_device_t *device) {
  const int32_t index = device->index;
  if (profiles[index].collects) return HAL_OK;
  HAL_RETURN_IF_ERROR(read_clocks(device, &profiles[index].first));
  const hal_status_t status = hal_call_profile_enable(device->plugin, device->ordinal, 1);
  if (status) return hal_error_plugin(device->plugin, HAL_SLOT_profile_enable, status);
  profiles[index].latest = profiles[index].first;
  profiles[index].collects = profiles[index].readable = 1;
  return HAL_OK;
}

/* The caller holds the device's lock. */
static hal_status_t end_device(hal_device_t *device) {
  const int32_t index = device->index;
  if (!profiles[index].collects) return HAL_OK;
  profiles[index].collects = 0;
  const hal_status_t status = hal_call_profile_enable(device->plugin, device->ordinal, 0);
  if (status) return hal_error_plugin(device->plugin, HAL_SLOT_profile_enable, status);
  return read_clocks(device, &profiles[index].latest);
}

/* Reverses begin_device; preserves the message of its failure. */
static hal_status_t forget_device(hal_device_t *device) {
  if (profiles[device->index].collects) HAL_CALL_AFTER(device->plugin, profile_enable, device->ordinal, 0);
  profiles[device->index].collects = profiles[device->index].readable = 0;
  return HAL_OK;
}

void hal_profile_device_ready(hal_device_t *device) {
  if (!hal_profile_is_on()) return;
  if (begin_device(device))
    hal_log(HAL_LOG_WARNING, "device %s is missing in the running profile: %s", device->label, hal_error_message());
}

/* Calls `change` for the ready devices, under their locks; returns the last failure and preserves its message. */
static hal_status_t each_ready_device(hal_status_t (*change)(hal_device_t *device)) {
  hal_status_t result = HAL_OK;
  for (int32_t i = 0; i < hal_device_count(); i++) {
    hal_device_t *const device = &hal_devices[i];
    hal_lock_and_defer(&device->lock);
    const hal_status_t status = atomic_load(&device->ready) ? change(device) : HAL_OK;
    hal_unlock_and_run(&device->lock);
    if (status) result = status;
  }
  return result;
}

/* The caller holds no device's lock, because the work may need one. */
static void wait_for_all(void) {
  for (int32_t i = 0; i < hal_device_count(); i++)
    if (hal_device_is_alive(&hal_devices[i])) hal_stream_drain_all(&hal_devices[i]);
}

hal_status_t hal_profile_start(void) {
  hal_status_t status = HAL_OK;
  hal_lock_and_defer(&profile_lock);
  if (hal_profile_is_on()) {
    status = hal_error_set(HAL_FAILED_PRECONDITION,
                           "a profile is running in this process; end it with hal_profile_stop "
                           "before the next");
  } else {
    for (int32_t i = 0; i < HAL_MAX_DEVICES; i++) profiles[i].readable = 0;
    hal_profile_forget_host();
    status = hal_profile_open_launches();
  }
  if (!status) {
    last_number += last_number == UINT32_MAX ? 2 : 1; /* never 0 */
    atomic_store(&hal_profile_number,
                 last_number); /* first: a device that becomes ready now joins the profile automatically */
    status = each_ready_device(begin_device);
    if (status) {
      atomic_store(&hal_profile_number, 0);
      each_ready_device(forget_device);
      hal_profile_drop_launches();
    }
  }
  hal_unlock_and_run(&profile_lock);
  return status;
}

hal_status_t hal_profile_stop(void) {
  hal_status_t status = HAL_OK;
  hal_lock_and_defer(&profile_lock);
  if (!hal_profile_is_on()) {
    status =
        hal_error_set(HAL_FAILED_PRECONDITION, "no profile is running in this process; hal_profile_start begins one");
  } else {
    wait_for_all();
    status = each_ready_device(end_device); /* first: a record without its operator's number is of little use */
    atomic_store(&hal_profile_number, 0);
    const hal_status_t late = each_ready_device(end_device); /* for a device that has joined meanwhile */
    if (late) status = late;
  }
  hal_unlock_and_run(&profile_lock);
  return status;
}

int32_t hal_profile_running(void) { return hal_profile_is_on(); }

int32_t hal_profile_supported(int32_t device) {
  if (device < 0 || device >= hal_device_count()) return 0;
  return hal_slot_is_provided(&hal_devices[device].plugin->api, HAL_SLOT_profile_read);
}

void hal_profile_after_fork(void) {
  atomic_store(&hal_profile_number, 0);
  for (int32_t i = 0; i < HAL_MAX_DEVICES; i++) profiles[i].collects = profiles[i].readable = 0;
  hal_profile_host_after_fork();
  hal_profile_launch_after_fork();
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* The records of one call, each followed by its name, because the application's function is called without the lock. */
typedef struct activities_s {
  char *bytes;
  size_t size, room;
} activities_t;

/* Size of a record and its name in bytes, aligned for the next record. */
static size_t activity_size(const hal_profile_activity_t *activity) {
  const size_t align = _Alignof(hal_profile_activity_t);
  return (sizeof *activity + strlen(activity->name) + align) & ~(align - 1);
}

/* Adds a copy. Returns 0 if the host has no memory. */
static int add(activities_t *activities, const hal_profile_activity_t *activity) {
  const size_t size = activity_size(activity);
  if (activities->room - activities->size < size) {
    const size_t room = 2 * activities->room + size + 4096;
    char *const bytes = hal_malloc(room);
    if (!bytes) return 0;
    if (activities->size) memcpy(bytes, activities->bytes, activities->size);
    hal_free(activities->bytes);
    activities->bytes = bytes;
    activities->room = room;
  }
  char *const to = activities->bytes + activities->size;
  memcpy(to, activity, sizeof *activity);
  memcpy(to + sizeof *activity, activity->name, strlen(activity->name) + 1);
  activities->size += size;
  return 1;
}

/* Passes the records to the application, and frees them. */
static void deliver(activities_t *activities, hal_profile_fn_t fn, void *user_data) {
  for (size_t at = 0; at < activities->size;) {
    hal_profile_activity_t activity;
    memcpy(&activity, activities->bytes + at, sizeof activity);
    activity.name = activities->bytes + at + sizeof activity;
    at += activity_size(&activity);
    hal_callback_check();
    fn(user_data, &activity);
  }
  hal_free(activities->bytes);
}

typedef struct reader_s {
  hal_device_t *device;
  activities_t *activities;
  uint64_t lost;
  hal_plugin_stream_t *handle; /* the stream of the previous record, and its id */
  int64_t stream;
} reader_t;

/* Without streams all handles are NULL, which stands for the first one, the default stream. */
static int64_t stream_id(hal_device_t *device, hal_plugin_stream_t *handle) {
  for (int id = 0; id < HAL_STREAMS_OF_DEVICE; id++) {
    const hal_stream_t *const stream = hal_stream_at(device, id);
    if (stream && stream->direct.handle == handle) return id;
  }
  return HAL_PROFILE_NO_STREAM;
}

static const char *name_of(const hal_profile_record_t *record) {
  static const char *const kinds[] = {"kernel", "copy", "fill", "range"};
  if (record->name && record->name[0]) return record->name;
  return record->kind < sizeof kinds / sizeof kinds[0] ? kinds[record->kind] : "work";
}

static uint32_t implementation_of(const hal_profile_launch_t *launch) {
  if (launch->op & HAL_PROFILE_OWN) return HAL_PROFILE_BY_PLUGIN;
  return launch->op ? HAL_PROFILE_BY_PORTABLE : HAL_PROFILE_BY_NONE;
}

/* The plugin's sink. */
static void pass_on(void *user_data, const hal_profile_record_t *record) {
  reader_t *const reader = user_data;
  if (record->kind == HAL_PROFILE_LOST) {
    reader->lost += record->bytes;
    return;
  }
  if (record->stream != reader->handle) {
    reader->handle = record->stream;
    reader->stream = stream_id(reader->device, record->stream);
  }
  const hal_profile_launch_t launch = hal_profile_find_launch(record->correlation);
  const uint32_t op = launch.op & ~HAL_PROFILE_OWN;
  const char *const op_name = op ? hal_device_hooks.op_name(op - 1) : NULL;
  const int64_t start = to_host(reader->device->index, record->start_ns);
  const int64_t end = to_host(reader->device->index, record->end_ns);
  const hal_profile_activity_t activity = {.struct_size = sizeof activity,
                                           .name = name_of(record),
                                           .op = op_name ? op_name : "",
                                           .start_ns = start,
                                           .end_ns = end > start ? end : start,
                                           .correlation = launch.correlation,
                                           .bytes = record->bytes,
                                           .stream = reader->stream,
                                           .device = reader->device->index,
                                           .kind = record->kind,
                                           .direction = record->direction,
                                           .answer = implementation_of(&launch),
                                           .launch = launch.number,
                                           .launch_thread = launch.thread,
                                           .launch_start_ns = launch.start_ns,
                                           .launch_end_ns = launch.end_ns};
  reader->lost += !add(reader->activities, &activity);
}

static hal_status_t read_device(reader_t *reader) {
  hal_device_t *const device = reader->device;
  hal_status_t status = HAL_OK;
  if (!hal_device_is_alive(device)) return HAL_OK;
  hal_lock_and_defer(&device->lock);
  if (profiles[device->index].collects) status = read_clocks(device, &profiles[device->index].latest);
  const int readable = profiles[device->index].readable;
  hal_unlock_and_run(&device->lock);
  if (status || !readable) return status;
  status = hal_call_profile_read(device->plugin, device->ordinal, pass_on, reader);
  return hal_error_plugin(device->plugin, HAL_SLOT_profile_read, status);
}

hal_status_t hal_profile_read(hal_profile_fn_t fn, void *user_data, uint64_t *out_lost) {
  hal_status_t result = HAL_OK;
  uint64_t lost = 0;
  activities_t activities = {.size = 0};
  hal_lock_and_defer(&profile_lock);
  for (int32_t i = 0; i < hal_device_count(); i++) {
    hal_device_t *const device = &hal_devices[i];
    reader_t reader = {.device = device, .activities = &activities, .stream = stream_id(device, NULL)};
    const hal_status_t status = read_device(&reader);
    if (status) result = status; /* the last one, which the message describes */
    lost += reader.lost;
  }
  if (!result && !hal_profile_is_on()) hal_profile_drop_launches(); /* no remaining record refers to one */
  hal_unlock_and_run(&profile_lock);
  deliver(&activities, fn, user_data);
  lost += hal_profile_read_host(fn, user_data);
  if (out_lost) *out_lost = lost;
  return result;
}
