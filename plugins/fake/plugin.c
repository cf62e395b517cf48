/* plugin.c: information about the fake plugin, its devices, its initialization and shutdown, and the child of a fork.
 * */
#define _POSIX_C_SOURCE 200809L /* sysconf */
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "compile.h"
#include "sanitize/sanitize.h"

#define FAKE_VERSION "0.1.0"

fake_state_t fake;

hal_status_t fake_error(hal_status_t code, int64_t native_code, const char *format, ...) {
  char message[4096]; /* includes a compiler's log */
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  return hal_host->error_set(code, native_code, message);
}

hal_status_t fake_check_device(int32_t device) {
  if (FAKE_LIKELY((uint32_t)device < (uint32_t)fake.device_count)) return HAL_OK;
  if (!fake.device_count)
    return fake_error(HAL_FAILED_PRECONDITION, 0, "fake: device %d was used before init or after shutdown",
                      (int)device);
  return fake_error(HAL_INVALID_ARGUMENT, 0, "fake: invalid device %d: expected 0 to %d; set HAL_FAKE_DEVICES for more",
                    (int)device, (int)fake.device_count - 1);
}

/* ---- plugin ----------------------------------------------------------------------------------------------------- */

hal_status_t hal_plugin_info(hal_plugin_info_t *out_info) {
  hal_plugin_info_t info = {.struct_size = out_info->struct_size,
                            .name = "fake",
                            .vendor = "torch_backend: an accelerator made of the host's threads",
                            .version = FAKE_VERSION,
                            .flags = HAL_PLUGIN_ON_REQUEST};
  memcpy(out_info, &info, info.struct_size < sizeof info ? info.struct_size : sizeof info);
  return HAL_OK;
}

/* Every machine has the hardware. */
hal_status_t hal_plugin_probe(uint32_t flags) { return hal_flags_check("fake: probe", flags, 0); }

static void fork_prepare(void) {
  fake_pool_fork_prepare();
  fake_ipc_fork_prepare();
  fake_semaphore_fork_prepare();
  fake_memory_fork_prepare();
  if (fake.settings.sanitize) fake_arena_fork_prepare();
  if (fake.settings.sanitize) fake_clock_fork_prepare();
  for (int32_t i = 0; i < fake.device_count; i++) fake_lock(&fake.devices[i].lock);
}

static void fork_parent(void) {
  for (int32_t i = 0; i < fake.device_count; i++) fake_unlock(&fake.devices[i].lock);
  if (fake.settings.sanitize) fake_clock_fork_parent();
  if (fake.settings.sanitize) fake_arena_fork_parent();
  fake_memory_fork_parent();
  fake_semaphore_fork_parent();
  fake_ipc_fork_parent();
  fake_pool_fork_parent();
}

static void fork_child(void) {
  fake_stream_fork_child();
  fake_event_fork_child();
  fake_semaphore_fork_child();
  fake_capture_fork_child();
  fake_profile_fork_child();
  fake_memory_fork_child();
  if (fake.settings.sanitize) fake_sanitize_fork_child();
  fake_ipc_fork_child();
  fake_pool_fork_child();
  fake_watch_fork_child();
}

hal_status_t hal_plugin_init(const char *options) {
  static int fork_handled; /* init is never called by two threads at the same time */
  int32_t count = 0;
  fake_settings_t settings;
  fake_sanitize_settings_t sanitize;
  if (fake.device_count) return HAL_OK; /* a child of a process that had initialized it */
  if (options && *options)
    return fake_error(HAL_INVALID_ARGUMENT, 0, "fake: unknown options '%s'; the settings are the variables HAL_FAKE_*",
                      options);
  hal_status_t status = fake_settings_devices(&count);
  if (!status) status = fake_settings_read(&settings, &sanitize);
  if (status) return status;
  if (!fork_handled && pthread_atfork(fork_prepare, fork_parent, fork_child))
    return fake_error(HAL_RESOURCE_EXHAUSTED, 0, "fake: no memory to register the handlers of fork");
  fork_handled = 1;
  if (settings.protect) status = fake_fault_install();
  if (!status && !fake.settings.sanitize) status = fake_sanitize_init(&sanitize);
  if (status) return status;
  if (sanitize.classes) atomic_fetch_add_explicit(&fake.profiled, 1, memory_order_relaxed); /* work gets notes */
  if (sanitize.classes & FAKE_SANITIZE_RACE) atomic_store_explicit(&fake.keep_names, 1, memory_order_relaxed);
  fake.settings = settings;
  fake.device_count = count;
  fake_host_parallel_init();
  return HAL_OK;
}

hal_status_t hal_plugin_shutdown(uint32_t flags) {
  const hal_status_t status = hal_flags_check("fake: shutdown", flags, 0);
  if (status) return status;
  for (int32_t i = 0; i < fake.device_count; i++) hal_plugin_device_synchronize(i);
  fake_pool_stop();
  fake_fault_uninstall();
  fake_virtual_close();
  return HAL_OK;
}

/* ---- devices ---------------------------------------------------------------------------------------------------- */

hal_status_t hal_plugin_device_count(int32_t *out_count) { return fake_settings_devices(out_count); }

/* Returns the size of the last cache before the memory; 0 if the C library does not know it. */
static uint64_t cache_bytes(void) {
#if defined(_SC_LEVEL2_CACHE_SIZE) && defined(_SC_LEVEL3_CACHE_SIZE)
  const long third = sysconf(_SC_LEVEL3_CACHE_SIZE), second = sysconf(_SC_LEVEL2_CACHE_SIZE);
  return third > 0 ? (uint64_t)third : second > 0 ? (uint64_t)second : 0;
#else
  return 0;
#endif
}

hal_status_t hal_plugin_device_info(int32_t device, hal_device_info_t *out_info) {
  const hal_status_t status = fake_check_device(device);
  if (status) return status;
  const uint64_t open = HAL_DEVICE_HOST_VISIBLE | HAL_DEVICE_UNIFIED | HAL_DEVICE_RAW_POINTERS;
  struct utsname machine;
  hal_device_info_t info = {.struct_size = out_info->struct_size,
                            .flags = HAL_DEVICE_FP64 | HAL_DEVICE_CPU | (fake.settings.watched ? 0 : open) |
                                     (fake.settings.sanitize ? HAL_DEVICE_POOLED : 0) |
                                     (fake.settings.async ? HAL_DEVICE_ASYNC : 0) |
                                     (fake.settings.first ? HAL_DEVICE_FIRST_BLOCK : 0),
                            .total_memory = fake.settings.memory,
                            .compute_units = fake.settings.threads,
                            .subgroup_size = 1,
                            .max_block_threads = FAKE_MAX_BLOCK_THREADS,
                            .base_alignment = fake.settings.sanitize ? FAKE_RED_ZONE : 4096,
                            .virtual_granularity = fake.settings.sanitize ? 0 : (uint64_t)sysconf(_SC_PAGESIZE),
                            .l2_bytes = cache_bytes(),
                            .driver_version = FAKE_VERSION,
                            .max_grid = {fake.settings.grid, 1, 1},
                            .max_threads = fake.settings.numbered,
                            .binding_alignment = fake.settings.alignment,
                            .max_binding = fake.settings.binding};
  if (uname(&machine) >= 0) snprintf(info.architecture, sizeof info.architecture, "%.31s", machine.machine);
  snprintf(info.dialects, sizeof info.dialects, "native,host,binary%s", fake_compile_accepts() ? ",c" : "");
  snprintf(info.name, sizeof info.name, "fake device %d (%u host threads)", (int)device,
           (unsigned)fake.settings.threads);
  snprintf((char *)info.uuid, sizeof info.uuid, "hal-fake-%d", (int)device);
  memcpy(out_info, &info, info.struct_size < sizeof info ? info.struct_size : sizeof info);
  return HAL_OK;
}

/* A device's memory consists of the buffer of its profile and the memory of its handles. */
hal_status_t hal_plugin_device_reset(int32_t device, uint32_t flags) {
  hal_status_t status = fake_check_device(device);
  if (!status) status = hal_flags_check("fake: device_reset", flags, 0);
  if (status) return status;
  fake_device_t *const owner = &fake.devices[device];
  fake_lock(&owner->lock);
  const int streams = owner->streams != NULL;
  fake_unlock(&owner->lock);
  const uint64_t bytes = atomic_load_explicit(&owner->allocated, memory_order_relaxed);
  if (streams || bytes)
    return fake_error(HAL_FAILED_PRECONDITION, 0,
                      "fake: device_reset of device %d, which has %llu bytes of memory%s; free and destroy them before",
                      (int)device, (unsigned long long)bytes, streams ? " and streams" : "");
  fake_profile_forget(device);
  atomic_store_explicit(&owner->last, NULL, memory_order_relaxed);
  return HAL_OK;
}

/* All devices share the host's address space. */
hal_status_t hal_plugin_device_peer_query(int32_t device, int32_t peer, int32_t *out_accessible) {
  hal_status_t status = fake_check_device(device);
  if (!status) status = fake_check_device(peer);
  if (!status) *out_accessible = 1;
  return status;
}

hal_status_t hal_plugin_device_peer_enable(int32_t device, int32_t peer) {
  const hal_status_t status = fake_check_device(device);
  return status ? status : fake_check_device(peer);
}
