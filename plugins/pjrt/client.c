/* client.c: a platform's client and its devices. */
#include <hal/plugin_count.h>
#include <stdio.h>

#include "pjrt.h"

static hal_status_t list_devices(const pjrt_table_t *table, pjrt_connection_t *connection, char *why) {
  pjrt_Client_AddressableDevices_t devices = {.client = connection->client};
  pjrt_failure_t failure;
  if (pjrt_failed(table, PJRT_CALL(table, Client_AddressableDevices, devices), &failure)) {
    snprintf(why, HAL_COUNT_WHY, "pjrt: the platform cannot list its devices: %s", failure.text);
    return HAL_UNAVAILABLE;
  }
  if (devices.num_addressable_devices > PJRT_MAX_DEVICES)
    hal_host->log(HAL_LOG_WARNING, "pjrt: the platform has more than 64 devices; only the first 64 are used");
  for (size_t i = 0; i < devices.num_addressable_devices && i < PJRT_MAX_DEVICES; i++)
    connection->devices[connection->count++] = devices.addressable_devices[i];
  if (connection->count) return HAL_OK;
  snprintf(why, HAL_COUNT_WHY, "pjrt: the platform has no device in this process");
  return HAL_UNAVAILABLE;
}

hal_status_t pjrt_connect(const pjrt_platform_t *platform, int single, pjrt_connection_t *out_connection, char *why) {
  /* A client may keep the names. Clients are created one at a time. */
  static pjrt_options_t of_platform[PJRT_MAX_PLATFORMS][2];
  pjrt_options_t *const options = &of_platform[platform->number][single];
  const pjrt_table_t *const table = platform->table;
  *out_connection = (pjrt_connection_t){.count = 0};
  hal_status_t status = pjrt_options_read(options, platform->number, single, why);
  if (status) return status;
  pjrt_Client_Create_t create = {.create_options = options->options, .num_options = options->count};
  pjrt_failure_t failure;
  if (pjrt_failed(table, PJRT_CALL(table, Client_Create, create), &failure)) {
    snprintf(why, HAL_COUNT_WHY, "pjrt: the platform's client cannot be created: %s", failure.text);
    return HAL_UNAVAILABLE;
  }
  out_connection->client = create.client;
  status = list_devices(table, out_connection, why);
  if (status) pjrt_disconnect(table, out_connection->client);
  return status;
}

void pjrt_disconnect(const pjrt_table_t *table, pjrt_client_t *client) {
  pjrt_Client_Destroy_t destroy = {.client = client};
  pjrt_failure_t failure;
  if (client) pjrt_failed(table, PJRT_CALL(table, Client_Destroy, destroy), &failure);
}
