/* device.c: devices of all plugins under one numbering, initialized at first use, and the thread's current device. */
#define _POSIX_C_SOURCE 200809L
#include "hal/device.h"

#include <stdio.h>
#include <string.h>

#include "base/life.h"
#include "base/text.h"
#include "device/device.h"
#include "device/failure.h"
#include "device/hooks.h"
#include "device/kernel_error.h"
#include "device/numa.h"
#include "device/profile_internal.h"
#include "device/watch.h"
#include "hal/log.h"
#include "hal/status.h"
#include "plugin/call.h"
#include "plugin/trial.h"

_Thread_local hal_thread_t hal_thread;
_Thread_local hal_stream_t *hal_thread_streams[HAL_MAX_DEVICES];
atomic_int hal_streams_set;

hal_device_t hal_devices[HAL_MAX_DEVICES];

void hal_device_add(hal_plugin_t *plugin) {
  for (int32_t i = 0; i < plugin->device_count; i++) {
    const int32_t ordinal = plugin->ordinals[i];
    hal_device_t *const device = &hal_devices[plugin->first_device + i];
    device->plugin = plugin;
    device->index = plugin->first_device + i;
    device->ordinal = ordinal;
    hal_text_append(device->label, sizeof device->label, "%s:%d", plugin->info.name, ordinal);
    if (device->index != ordinal) hal_text_append(device->label, sizeof device->label, " (index %d)", device->index);
  }
}

/* ---- forks ---- */

void hal_device_after_fork(void) {
  if (!hal_device_in_bad_fork()) return;
  for (int32_t i = 0; i < hal_registry.device_count; i++) atomic_store(&hal_devices[i].ready, 0);
}

int32_t hal_device_in_bad_fork(void) { return atomic_load(&hal_life.forked); }

/* ---- first use ---- */

const char *hal_device_label(int32_t device) {
  static _Thread_local char numbers[4][16]; /* a message names up to three devices */
  static _Thread_local unsigned turn;
  if (device >= 0 && device < HAL_MAX_DEVICES && hal_devices[device].label[0]) return hal_devices[device].label;
  char *const number = numbers[turn++ % 4];
  snprintf(number, sizeof numbers[0], device == HAL_HOST ? "host" : "%d", (int)device);
  return number;
}

hal_status_t hal_device_out_of_range(int32_t device) {
  char ranges[256] = "";
  for (int32_t i = 0; i < hal_registry_plugin_count(); i++) {
    const hal_plugin_t *const plugin = &hal_registry.plugins[i];
    hal_text_append(ranges, sizeof ranges, "%s%s %d", ranges[0] ? ", " : "", plugin->info.name, plugin->first_device);
    if (plugin->device_count > 1)
      hal_text_append(ranges, sizeof ranges, " to %d", plugin->first_device + plugin->device_count - 1);
  }
  if (!ranges[0])
    return hal_error_set(HAL_OUT_OF_RANGE,
                         "device %d is out of range: there is none, since no plugin is open; set "
                         "TORCH_BACKEND or name one in hal_registry_open",
                         device);
  return hal_error_set(HAL_OUT_OF_RANGE,
                       "device %d is out of range: this process has %d (%s); expected an index in [0, %d)", device,
                       hal_device_count(), ranges, hal_device_count());
}

/* Initializes the plugin once per process; a failure is permanent. */
static hal_status_t start_plugin(hal_plugin_t *plugin) {
  hal_lock_and_defer(&plugin->lock);
  if (atomic_load(&plugin->state) == HAL_PLUGIN_COLD) {
    plugin->init_begun = 1;
    hal_status_t status = hal_trial_start(plugin);
    if (!status) status = hal_error_plugin(plugin, HAL_SLOT_init, hal_call_init(plugin, ""));
    plugin->init_status = status;
    if (status) snprintf(plugin->init_message, sizeof plugin->init_message, "%.511s", hal_error_message());
    atomic_store(&plugin->state, status ? HAL_PLUGIN_FAILED : HAL_PLUGIN_READY);
  }
  hal_unlock_and_run(&plugin->lock);
  if (atomic_load(&plugin->state) == HAL_PLUGIN_READY) return HAL_OK;
  return hal_error_set(plugin->init_status, "%s", plugin->init_message);
}

/* Queries the plugin for the first `size` bytes of a device's description; the others are zero. `known`:
 * HAL_DEVICE_INFO_BRIEF or 0. */
static hal_status_t describe(const hal_device_t *device, size_t size, uint32_t known, hal_device_info_t *out_info) {
  hal_device_info_t info = {.struct_size = size, .known = known};
  const hal_status_t status = hal_call_device_info(device->plugin, device->ordinal, &info);
  if (status) return hal_error_plugin(device->plugin, HAL_SLOT_device_info, status);
  info.struct_size = size;
  info.known &= ~HAL_DEVICE_INFO_BRIEF;
  info.name[sizeof info.name - 1] = '\0';
  info.dialects[sizeof info.dialects - 1] = '\0';
  info.architecture[sizeof info.architecture - 1] = '\0';
  info.driver_version[sizeof info.driver_version - 1] = '\0';
  info.firmware_version[sizeof info.firmware_version - 1] = '\0';
  *out_info = info;
  return HAL_OK;
}

/* The part of the description that is read at initialization, besides the limits of launches: for the rest, drivers
 * open libraries of system management. */
static const size_t started_size = HAL_STRUCT_SIZE(hal_device_info_t, architecture);
static const size_t full_size = HAL_STRUCT_SIZE(hal_device_info_t, max_binding);

/* The largest block of the host's own launches. */
enum { LARGEST_BLOCK = 1024 };

/* Derives from the limits of launches what each launch checks. */
static void derive_limits(hal_device_t *device) {
  const hal_device_info_t *const info = &device->info;
  uint64_t blocks = info->max_grid[0] ? info->max_grid[0] : UINT32_MAX;
  if (info->max_threads && info->max_threads / LARGEST_BLOCK < blocks) blocks = info->max_threads / LARGEST_BLOCK;
  device->few_blocks = (uint32_t)blocks;
  device->plans_first = info->max_threads || info->max_binding || info->binding_alignment > 1 ||
                        (info->max_grid[0] && !(info->flags & HAL_DEVICE_FIRST_BLOCK));
}

static hal_status_t describe_at_start(hal_device_t *device) {
  const int has_limits = device->plugin->api.minor >= 5; /* an older plugin does not know HAL_DEVICE_INFO_BRIEF */
  HAL_RETURN_IF_ERROR(has_limits ? describe(device, full_size, HAL_DEVICE_INFO_BRIEF, &device->info)
                                 : describe(device, started_size, 0, &device->info));
  derive_limits(device);
  return HAL_OK;
}

/* Creates everything that the device owns; runs under its lock. If a part fails, the others are destroyed in the
 * reverse order, so that a later use can try again. */
static hal_status_t build(hal_device_t *device) {
  hal_status_t status = describe_at_start(device);
  if (!status) status = hal_stream_create_all(device);
  if (status) return status;
  status = hal_device_slots_create(device);
  if (status) {
    hal_stream_destroy_all(device);
    return status;
  }
  atomic_store_explicit(&device->ready, 1, memory_order_release);
  return HAL_OK;
}

hal_status_t hal_device_start(int32_t device, hal_device_t **out_device) {
  if (device < 0 || device >= hal_device_count()) return hal_device_out_of_range(device);
  hal_device_t *const wanted = &hal_devices[device];
  const char *const name = wanted->plugin->info.name;
  if (hal_device_in_bad_fork())
    return hal_error_set(HAL_FAILED_PRECONDITION,
                         "Cannot re-initialize %s in forked subprocess. To use %s with "
                         "multiprocessing, you must use the 'spawn' start method",
                         name, name);
  if (atomic_load(&hal_life.closed))
    return hal_error_set(HAL_FAILED_PRECONDITION,
                         "device %s was shut down with this process's plugins; start a new "
                         "process",
                         wanted->label);
  HAL_RETURN_IF_ERROR(start_plugin(wanted->plugin));
  *out_device = wanted;
  return HAL_OK;
}

hal_status_t hal_device_prepare(int32_t device, hal_device_t **out_device) {
  hal_device_t *wanted = NULL;
  HAL_RETURN_IF_ERROR(hal_device_start(device, &wanted));
  hal_lock_and_defer(&wanted->lock);
  const int was_ready = atomic_load(&wanted->ready);
  const hal_status_t status = was_ready ? HAL_OK : build(wanted);
  if (!was_ready && !status) hal_profile_device_ready(wanted);
  hal_unlock_and_run(&wanted->lock);
  if (!was_ready && !status) hal_device_watch_begin(wanted);
  if (!status) *out_device = wanted;
  return status;
}

void hal_device_drain(hal_device_t *device, const char *call, const char *doing) {
  if (!hal_device_is_alive(device)) return;
  hal_stream_flush_all(device, call); /* its failures are logged below */
  const hal_status_t status = hal_call_device_synchronize(device->plugin, device->ordinal);
  if (status) {
    hal_error_plugin(device->plugin, HAL_SLOT_device_synchronize, status);
    hal_log(HAL_LOG_WARNING, "while %s device %s: %s", doing, device->label, hal_error_message());
  }
  hal_device_hooks.drain(device);
  for (int id = 0; id < HAL_STREAMS_OF_DEVICE; id++) { /* failures that were not reported yet */
    hal_stream_t *const stream = hal_stream_at(device, id);
    if (stream && hal_failure_deliver(stream, 0, HAL_SLOT_stream_synchronize, HAL_OK))
      hal_log(HAL_LOG_WARNING, "while %s device %s: %s", doing, device->label, hal_error_message());
  }
}

void hal_device_close(hal_device_t *device) {
  if (atomic_exchange(&device->ready, 0)) {
    hal_device_watch_end(device);
    hal_device_slots_close(device);
    hal_kernel_error_destroy(device);
    hal_stream_destroy_all(device);
  }
}

hal_status_t hal_device_name_object(const char *call, hal_device_t *device, uint32_t kind, const void *object,
                                    const char *name) {
  if (!name) return hal_error_set(HAL_INVALID_ARGUMENT, "%s: missing name; pass \"\" to remove one", call);
  HAL_RETURN_IF_ERROR(hal_device_check_alive(device));
  if (!object) return HAL_OK;
  const hal_status_t status = hal_call_object_name_set(device->plugin, device->ordinal, kind, object, name);
  return hal_error_plugin(device->plugin, HAL_SLOT_object_name_set, status);
}

/* ---- public functions ---- */

int32_t hal_device_count(void) {
  return atomic_load_explicit(&hal_registry.open, memory_order_acquire) ? hal_registry.device_count : 0;
}

hal_status_t hal_device_info(int32_t device, hal_device_info_t *out_info) {
  const size_t size = out_info->struct_size < full_size ? out_info->struct_size : full_size;
  hal_device_t *found = NULL;
  hal_device_info_t info;
  HAL_RETURN_IF_ERROR(hal_device_start(device, &found));
  if (hal_device_is_initialized(device) && size <= started_size) {
    info = found->info;
  } else {
    HAL_RETURN_IF_ERROR(describe(found, full_size, 0, &info));
    hal_numa_complete(HAL_NUMA_PCI_FOLDER, &info);
  }
  info.struct_size = size;
  memcpy(out_info, &info, size);
  return HAL_OK;
}

uint64_t hal_device_flags(int32_t device) {
  hal_device_t *found = NULL;
  if ((uint32_t)device >= (uint32_t)hal_device_count()) return 0;
  return hal_device_get(device, &found) ? 0 : found->info.flags;
}

hal_status_t hal_device_locate(int32_t device, int32_t *out_plugin, int32_t *out_ordinal) {
  if (device < 0 || device >= hal_device_count()) return hal_device_out_of_range(device);
  *out_plugin = hal_devices[device].plugin->index;
  *out_ordinal = hal_devices[device].ordinal;
  return HAL_OK;
}

hal_status_t hal_device_ensure(int32_t device) {
  hal_device_t *found = NULL;
  return hal_device_get(device, &found);
}

int32_t hal_device_is_initialized(int32_t device) {
  return (uint32_t)device < HAL_MAX_DEVICES && atomic_load_explicit(&hal_devices[device].ready, memory_order_acquire);
}

hal_status_t hal_device_used(int32_t device, hal_device_t **out_device) {
  if (device < 0 || device >= hal_device_count()) return hal_device_out_of_range(device);
  *out_device = hal_device_is_initialized(device) ? &hal_devices[device] : NULL;
  return HAL_OK;
}

int32_t hal_device_current(void) { return hal_thread.device; }

hal_status_t hal_device_set_current(int32_t device) {
  if (device < 0 || device >= hal_device_count()) return hal_device_out_of_range(device);
  hal_thread.device = device;
  return HAL_OK;
}

int32_t hal_device_exchange(int32_t device) {
  const int32_t previous = hal_thread.device;
  if (device >= 0 && device < hal_device_count()) hal_thread.device = device;
  return previous;
}

hal_status_t hal_device_synchronize(int32_t device) {
  hal_device_t *found = NULL;
  HAL_RETURN_IF_ERROR(hal_device_get(device, &found));
  hal_queue_t *const queue = hal_stream_queue(hal_stream_or_current(found, NULL));
  HAL_RETURN_IF_ERROR(queue->calls->require(queue, "hal_device_synchronize"));
  hal_stream_flush_all(found, "hal_device_synchronize");
  hal_kernel_error_marks_t marks;
  hal_kernel_error_mark_all(found, &marks);
  const hal_status_t status = hal_call_device_synchronize(found->plugin, found->ordinal);
  hal_device_hooks.poll(found);
  if (status) { /* the stream is unknown, so it is reported now; failures of streams are reported later */
    if (status == HAL_UNAVAILABLE)
      return hal_failure_deliver(&found->default_stream, 0, HAL_SLOT_device_synchronize, status);
    return hal_error_plugin(found->plugin, HAL_SLOT_device_synchronize, status);
  }
  /* One failure at a time: the next synchronization reports the next one. */
  for (int id = 0; id < HAL_STREAMS_OF_DEVICE; id++) {
    hal_stream_t *const stream = hal_stream_at(found, id);
    if (stream) HAL_RETURN_IF_ERROR(hal_failure_deliver(stream, marks.mark[id], HAL_SLOT_device_synchronize, HAL_OK));
  }
  return HAL_OK;
}

hal_status_t hal_device_can_access_peer(int32_t device, int32_t peer, int32_t *out_accessible) {
  if (peer < 0 || peer >= hal_device_count()) return hal_device_out_of_range(peer);
  hal_device_t *found = NULL;
  HAL_RETURN_IF_ERROR(hal_device_get(device, &found));
  const hal_device_t *const other = &hal_devices[peer];
  int32_t accessible = device == peer;
  if (!accessible && found->plugin == other->plugin) {
    const hal_status_t status = hal_call_device_peer_query(found->plugin, found->ordinal, other->ordinal, &accessible);
    if (status) return hal_error_plugin(found->plugin, HAL_SLOT_device_peer_query, status);
  }
  *out_accessible = accessible != 0;
  return HAL_OK;
}

hal_status_t hal_device_enable_peer(int32_t device, int32_t peer) {
  hal_device_t *found = NULL, *other = NULL;
  HAL_RETURN_IF_ERROR(hal_device_get(device, &found));
  HAL_RETURN_IF_ERROR(hal_device_get(peer, &other));
  if (found == other) return HAL_OK;
  if (found->plugin != other->plugin)
    return hal_error_set(HAL_UNIMPLEMENTED,
                         "device %s cannot access memory of device %s, which is of another plugin; copy it with "
                         "hal_memory_copy",
                         found->label, other->label);
  return hal_error_plugin(found->plugin, HAL_SLOT_device_peer_enable,
                          hal_call_device_peer_enable(found->plugin, found->ordinal, other->ordinal));
}
