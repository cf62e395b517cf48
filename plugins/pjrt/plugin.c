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
  const pjrt_table_t *table;
  const hal_status_t status = hal_flags_check("pjrt: probe", flags, 0);
  return status ? status : pjrt_load(&table);
}

/* ---- counting ---------------------------------------------------------------------------------------------------- */

/* Called in another process: a client starts threads, and an unknown option ends the process on some platforms. */
static hal_status_t count(int32_t *out_count, char *why) {
  const pjrt_table_t *table;
  pjrt_connection_t connection;
  hal_status_t status = pjrt_load(&table);
  if (status) {
    snprintf(why, HAL_COUNT_WHY, "pjrt: the PJRT plugin cannot be loaded");
    return status;
  }
  status = pjrt_connect(table, 0, &connection, why);
  if (status) return status;
  *out_count = connection.count;
  pjrt_disconnect(table, &connection);
  return HAL_OK;
}

static hal_counter_t counter = {"pjrt",
                                "check HAL_PJRT_PLUGIN and HAL_PJRT_OPTIONS: some plugins end the process for "
                                "an option that they do not know",
                                count, HAL_COUNTER_NEW};

/* HAL_PJRT_DEVICES states the number, so that no process is needed. Options are always tried in another process. */
static hal_status_t count_devices(int32_t *out_count) {
  const char *const setting = hal_setting("HAL_PJRT_DEVICES"), *const options = hal_setting("HAL_PJRT_OPTIONS");
  int32_t counted = PJRT_MAX_DEVICES;
  hal_status_t status = HAL_OK;
  if (!setting || !*setting || (options && *options)) status = hal_count_devices(&counter, &counted);
  if (status || !setting || !*setting) return status ? status : (*out_count = counted, HAL_OK);
  char *end;
  const long wanted = strtol(setting, &end, 10);
  if (*end || wanted < 1 || wanted > counted)
    return pjrt_error(HAL_INVALID_ARGUMENT, "pjrt: invalid HAL_PJRT_DEVICES='%.40s': expected 1 to %d", setting,
                      (int)counted);
  *out_count = (int32_t)wanted;
  return HAL_OK;
}

hal_status_t hal_plugin_device_count(int32_t *out_count) {
  const pjrt_table_t *table;
  const hal_status_t status = pjrt_load(&table);
  return status ? status : count_devices(out_count);
}

/* ---- beginning and end ------------------------------------------------------------------------------------------- */

static void fork_child(void) {
  if (pjrt.device_count) atomic_store(&pjrt.forked, 1);
}

static void read_texts(void) {
  pjrt_failure_t failure;
  pjrt_Client_PlatformName_t name = {.client = pjrt.client};
  pjrt_Client_PlatformVersion_t version = {.client = pjrt.client};
  if (PJRT_HAS(pjrt.table, Client_PlatformName) &&
      !pjrt_failed(pjrt.table, PJRT_CALL(pjrt.table, Client_PlatformName, name), &failure))
    snprintf(pjrt.platform, sizeof pjrt.platform, "%.*s", (int)name.platform_name_size, name.platform_name);
  if (PJRT_HAS(pjrt.table, Client_PlatformVersion) &&
      !pjrt_failed(pjrt.table, PJRT_CALL(pjrt.table, Client_PlatformVersion, version), &failure))
    snprintf(pjrt.version, sizeof pjrt.version, "%.*s", (int)version.platform_version_size, version.platform_version);
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

static hal_status_t start(int32_t counted) {
  char why[HAL_COUNT_WHY];
  pjrt_connection_t connection;
  const hal_status_t status = pjrt_connect(pjrt.table, 0, &connection, why);
  if (status) return pjrt_error(status, "%s", why);
  if (connection.count < counted) {
    pjrt_disconnect(pjrt.table, &connection);
    return pjrt_error(HAL_UNAVAILABLE,
                      "pjrt: the platform has %d devices, fewer than the %d that were counted or that HAL_PJRT_DEVICES "
                      "requests",
                      (int)connection.count, (int)counted);
  }
  pjrt.client = connection.client;
  memcpy(pjrt.devices, connection.devices, sizeof connection.devices);
  read_texts();
  return pjrt_probe_memory();
}

hal_status_t hal_plugin_init(const char *options) {
  static int fork_handled; /* init is never called by two threads at the same time */
  int32_t counted;
  if (pjrt.device_count) return pjrt_check_device(0);
  if (options && *options)
    return pjrt_error(HAL_INVALID_ARGUMENT, "pjrt: unknown options '%s'; the settings are the variables HAL_PJRT_*",
                      options);
  hal_status_t status = pjrt_load(&pjrt.table);
  if (!status) status = read_limit();
  if (!status) status = pjrt_again_read();
  if (!status) status = pjrt_work_read();
  if (!status) status = count_devices(&counted);
  if (status) return status;
  if (!fork_handled && pthread_atfork(NULL, NULL, fork_child))
    return pjrt_error(HAL_RESOURCE_EXHAUSTED, "pjrt: no memory to register the handler of fork");
  fork_handled = 1;
  status = start(counted);
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
