/* plugin.c: information about the plugin, its initialization and shutdown, and the child of a fork. */
#define _GNU_SOURCE
#include <hal/plugin_count.h>
#include <hal/plugin_setting.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pjrt.h"

pjrt_state_t pjrt;

hal_status_t pjrt_check_device(int32_t device) {
  if (atomic_load_explicit(&pjrt.forked, memory_order_relaxed))
    return pjrt_error(HAL_FAILED_PRECONDITION,
                      "pjrt: this process was forked from one that had started the PJRT client, which does not support "
                      "fork; start processes with 'spawn'");
  if ((uint32_t)device < (uint32_t)pjrt.device_count) return HAL_OK;
  if (!pjrt.device_count)
    return pjrt_error(HAL_FAILED_PRECONDITION, "pjrt: device %d was used before init or after shutdown", (int)device);
  return pjrt_error(HAL_INVALID_ARGUMENT, "pjrt: invalid device %d: expected 0 to %d", (int)device,
                    (int)pjrt.device_count - 1);
}

hal_status_t hal_plugin_info(hal_plugin_info_t *out_info) {
  HAL_SET_FIELD(out_info, name, "pjrt");
  HAL_SET_FIELD(out_info, vendor, "torch_backend: any device with a PJRT plugin");
  HAL_SET_FIELD(out_info, version, "0.1.0");
  HAL_SET_FIELD(out_info, flags, HAL_PLUGIN_ON_REQUEST);
  return HAL_OK;
}

hal_status_t hal_plugin_probe(uint32_t flags) {
  const hal_status_t status = hal_flags_check("pjrt: probe", flags, 0);
  return status ? status : pjrt_load();
}

/* ---- counting ---------------------------------------------------------------------------------------------------- */

/* Reads HAL_PJRT_DEVICES: the number of devices of each platform. 0: all. */
static hal_status_t read_numbers(int32_t *numbers) {
  const char *const setting = hal_setting("HAL_PJRT_DEVICES"), *at = setting;
  int32_t count = 0;
  memset(numbers, 0, PJRT_MAX_PLATFORMS * sizeof *numbers);
  if (!setting || !*setting) return HAL_OK;
  for (char *end; count < pjrt.platform_count; at = end + 1) {
    const long number = strtol(at, &end, 10);
    if (end == at || number < 1 || number > PJRT_MAX_DEVICES || (*end && *end != ',')) break;
    numbers[count++] = (int32_t)number;
    if (!*end && count == pjrt.platform_count) return HAL_OK;
    if (!*end) break;
  }
  if (pjrt.platform_count == 1)
    return pjrt_error(HAL_INVALID_ARGUMENT, "pjrt: invalid HAL_PJRT_DEVICES='%.40s': expected 1 to %d", setting,
                      PJRT_MAX_DEVICES);
  return pjrt_error(
      HAL_INVALID_ARGUMENT,
      "pjrt: invalid HAL_PJRT_DEVICES='%.40s': expected %d numbers from 1 to %d, separated by commas, one "
      "for each platform of HAL_PJRT_PLUGIN",
      setting, (int)pjrt.platform_count, PJRT_MAX_DEVICES);
}

/* Called in another process: a client starts threads, and an unknown option ends the process on some platforms. */
static hal_status_t count(int32_t *out_count, char *why) {
  pjrt_connection_t connection;
  hal_status_t status = pjrt_load();
  *out_count = 0;
  if (status) snprintf(why, HAL_COUNT_WHY, "pjrt: the PJRT plugin cannot be loaded");
  for (int32_t i = 0; i < pjrt.platform_count && !status; i++) {
    status = pjrt_connect(&pjrt.platforms[i], 0, &connection, why);
    if (status) break;
    *out_count += connection.count;
    pjrt_disconnect(pjrt.platforms[i].table, connection.client);
  }
  return status;
}

static hal_counter_t counter = {"pjrt",
                                "check HAL_PJRT_PLUGIN and HAL_PJRT_OPTIONS: some plugins end the process for "
                                "an option that they do not know",
                                count, HAL_COUNTER_NEW};

/* HAL_PJRT_DEVICES states the numbers, so that no process is needed. Options are always tried in another process. */
static hal_status_t count_devices(int32_t *out_count, int32_t *numbers) {
  const char *const options = hal_setting("HAL_PJRT_OPTIONS");
  int32_t stated = 0, counted = PJRT_MAX_DEVICES;
  hal_status_t status = read_numbers(numbers);
  for (int32_t i = 0; i < pjrt.platform_count; i++) stated += numbers[i];
  if (!status && (!stated || (options && *options))) status = hal_count_devices(&counter, &counted);
  if (status) return status;
  if (counted > PJRT_MAX_DEVICES) counted = PJRT_MAX_DEVICES;
  if (!stated) stated = counted;
  if (stated > counted)
    return pjrt_error(HAL_INVALID_ARGUMENT, "pjrt: invalid HAL_PJRT_DEVICES='%.40s': expected 1 to %d%s",
                      hal_setting("HAL_PJRT_DEVICES"), (int)counted, pjrt.platform_count > 1 ? " in all" : "");
  *out_count = stated;
  return HAL_OK;
}

hal_status_t hal_plugin_device_count(int32_t *out_count) {
  int32_t numbers[PJRT_MAX_PLATFORMS];
  const hal_status_t status = pjrt_load();
  return status ? status : count_devices(out_count, numbers);
}

/* ---- beginning and end ------------------------------------------------------------------------------------------- */

static void fork_child(void) {
  if (pjrt.device_count) atomic_store(&pjrt.forked, 1);
}

static void read_texts(pjrt_platform_t *platform) {
  const pjrt_table_t *const table = platform->table;
  pjrt_failure_t failure;
  pjrt_Client_PlatformName_t name = {.client = platform->client};
  pjrt_Client_PlatformVersion_t version = {.client = platform->client};
  if (PJRT_HAS(table, Client_PlatformName) &&
      !pjrt_failed(table, PJRT_CALL(table, Client_PlatformName, name), &failure))
    snprintf(platform->name, sizeof platform->name, "%.*s", (int)name.platform_name_size, name.platform_name);
  if (PJRT_HAS(table, Client_PlatformVersion) &&
      !pjrt_failed(table, PJRT_CALL(table, Client_PlatformVersion, version), &failure))
    snprintf(platform->version, sizeof platform->version, "%.*s", (int)version.platform_version_size,
             version.platform_version);
}

/* Reads HAL_PJRT_PROGRAMS. */
static hal_status_t read_limit(void) {
  const char *const setting = hal_setting("HAL_PJRT_PROGRAMS");
  char *end = NULL;
  pjrt.program_limit = PJRT_PROGRAMS;
  if (!setting || !*setting) return HAL_OK;
  const long limit = strtol(setting, &end, 10);
  if (*end || limit < 0 || limit > INT32_MAX)
    return pjrt_error(HAL_INVALID_ARGUMENT, "pjrt: invalid HAL_PJRT_PROGRAMS='%.40s': expected 0 to %d", setting,
                      INT32_MAX);
  pjrt.program_limit = (int)limit;
  return HAL_OK;
}

/* Creates the client of a platform; its devices come after those of the earlier ones. `number` 0: all of them. */
static hal_status_t start_platform(pjrt_platform_t *platform, int32_t first, int32_t number) {
  char why[HAL_COUNT_WHY];
  pjrt_connection_t connection;
  const hal_status_t status = pjrt_connect(platform, 0, &connection, why);
  if (status) return pjrt_error(status, "%s", why);
  platform->client = connection.client;
  if (connection.count < number)
    return pjrt_error(HAL_UNAVAILABLE,
                      "pjrt: the platform has %d devices, fewer than the %d that were counted or that HAL_PJRT_DEVICES "
                      "requests",
                      (int)connection.count, (int)number);
  const int32_t room = PJRT_MAX_DEVICES - first;
  if (!room)
    return pjrt_error(HAL_UNAVAILABLE,
                      "pjrt: the platforms before number %d of HAL_PJRT_PLUGIN have %d devices, the most of a process; "
                      "set HAL_PJRT_DEVICES to fewer",
                      (int)platform->number + 1, PJRT_MAX_DEVICES);
  platform->first = first;
  platform->count = number ? number : connection.count < room ? connection.count : room;
  memcpy(pjrt.devices + first, connection.devices, (size_t)platform->count * sizeof *pjrt.devices);
  memset(pjrt.platform_of + first, platform->number, (size_t)platform->count);
  read_texts(platform);
  return HAL_OK;
}

static hal_status_t start(int32_t counted, const int32_t *numbers) {
  int32_t count = 0;
  hal_status_t status = HAL_OK;
  for (int32_t i = 0; i < pjrt.platform_count && !status; i++) {
    status = start_platform(&pjrt.platforms[i], count, numbers[i]);
    count += pjrt.platforms[i].count;
  }
  if (!status && count < counted)
    status = pjrt_error(HAL_UNAVAILABLE, "pjrt: the platform has %d devices, fewer than the %d that were counted",
                        (int)count, (int)counted);
  if (!status) status = pjrt_probe_memory();
  for (int32_t i = 0; i < pjrt.platform_count && status; i++) {
    pjrt_disconnect(pjrt.platforms[i].table, pjrt.platforms[i].client);
    pjrt.platforms[i].client = NULL;
    pjrt.platforms[i].count = 0;
  }
  return status;
}

hal_status_t hal_plugin_init(const char *options) {
  static int fork_handled; /* init is never called by two threads at the same time */
  int32_t counted, numbers[PJRT_MAX_PLATFORMS];
  if (pjrt.device_count) return pjrt_check_device(0);
  if (options && *options)
    return pjrt_error(HAL_INVALID_ARGUMENT, "pjrt: unknown options '%s'; the settings are the variables HAL_PJRT_*",
                      options);
  hal_status_t status = pjrt_load();
  if (!status) status = read_limit();
  if (!status) status = pjrt_again_read();
  if (!status) status = pjrt_work_read();
  if (!status) status = count_devices(&counted, numbers);
  if (status) return status;
  if (!fork_handled && pthread_atfork(NULL, NULL, fork_child))
    return pjrt_error(HAL_RESOURCE_EXHAUSTED, "pjrt: no memory to register the handler of fork");
  fork_handled = 1;
  status = start(counted, numbers);
  if (!status) pjrt.device_count = counted;
  return status;
}

/* Does not destroy the client, because the host may release its objects after this call. */
hal_status_t hal_plugin_shutdown(uint32_t flags) {
  const hal_status_t status = hal_flags_check("pjrt: shutdown", flags, 0);
  if (status) return status;
  if (atomic_load(&pjrt.forked)) return HAL_OK;
  pjrt_again_cancel(); /* first: queued runs may wait for it */
  for (int32_t i = 0; i < pjrt.device_count; i++) hal_plugin_device_synchronize(i);
  return HAL_OK;
}
