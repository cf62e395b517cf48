/* select.c: selects devices: all of one driver, so that they share a context. It is the first driver with an NPU if
 * there is one, else the first that can compute, or the devices that HAL_NPU_DEVICE names. */
#define _GNU_SOURCE /* strcasestr */
#include <hal/plugin_count.h>
#include <hal/plugin_setting.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "npu.h"

enum { MAX_DRIVERS = 16 };
enum { INIT_DRIVER_TYPE_DESC = 0x00020021, EVERY_TYPE = 3 }; /* of zeInitDrivers */

/* Starts the drivers with the newest function that the loader has. */
static ze_result_t start(ze_driver_handle_t *drivers, uint32_t *count) {
  npu_init_desc_t desc = {.stype = INIT_DRIVER_TYPE_DESC, .flags = EVERY_TYPE};
  *count = MAX_DRIVERS;
  setenv("ZES_ENABLE_SYSMAN", "1",
         0); /* read by drivers when they start: it makes devices' handles valid for system management, too */
  if (ze.zeInitDrivers) {
    uint32_t found = 0; /* queries the number first, because some loaders initialize the drivers only then */
    if (!ze.zeInitDrivers(&found, NULL, &desc) && found) {
      *count = found < MAX_DRIVERS ? found : MAX_DRIVERS;
      return ze.zeInitDrivers(count, drivers, &desc);
    }
    *count = MAX_DRIVERS;
  }
  const ze_result_t code = ze.zeInit(0); /* also if a driver does not support the newer function */
  return code ? code : ze.zeDriverGet(count, drivers);
}

static int is_meant(const ze_device_properties_t *facts, const char *wish) {
  static const struct {
    const char *name;
    ze_device_type_t type;
  } types[] = {{"npu", ZE_DEVICE_TYPE_VPU}, {"gpu", ZE_DEVICE_TYPE_GPU}, {"cpu", ZE_DEVICE_TYPE_CPU}};
  if (!*wish) return 1;
  for (size_t i = 0; i < sizeof types / sizeof *types; i++)
    if (strcmp(wish, types[i].name) == 0) return facts->type == types[i].type;
  return strcasestr(facts->name, wish) != NULL;
}

/* Selects the devices of a driver that match. Returns whether one of them is an NPU. */
static int take_driver(ze_driver_handle_t driver, const char *wish, npu_selection_t *out) {
  ze_device_handle_t devices[NPU_MAX_DEVICES];
  uint32_t count = NPU_MAX_DEVICES;
  int has_npu = 0;
  *out = (npu_selection_t){.driver = driver};
  if (ze.zeDeviceGet(driver, &count, devices)) return 0;
  for (uint32_t i = 0; i < count && i < NPU_MAX_DEVICES; i++) {
    ze_device_properties_t facts = {.stype = ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES};
    if (!devices[i] || ze.zeDeviceGetProperties(devices[i], &facts) || !is_meant(&facts, wish)) continue;
    out->devices[out->count++] = devices[i];
    has_npu |= facts.type == ZE_DEVICE_TYPE_VPU;
  }
  return has_npu;
}

static void say_none(const char *wish, uint32_t drivers, char *why) {
  if (*wish)
    snprintf(
        why, HAL_COUNT_WHY,
        "npu: HAL_NPU_DEVICE=%.200s matches no device of the %u Level Zero drivers here; set it to npu, gpu or cpu "
        "or to a "
        "part of a device's name, or unset it",
        wish, (unsigned)drivers);
  else
    snprintf(
        why, HAL_COUNT_WHY,
        "npu: the %u Level Zero drivers here have no device; check that it is present and that this user may open it",
        (unsigned)drivers);
}

hal_status_t npu_select(npu_selection_t *out_selection, char *why) {
  ze_driver_handle_t drivers[MAX_DRIVERS] = {NULL};
  npu_selection_t best = {.count = 0}, next;
  uint32_t count = 0;
  const char *const text = hal_setting("HAL_NPU_DEVICE"), *const wish = text ? text : "";
  const ze_result_t code = start(drivers, &count);
  if (code || !count) {
    snprintf(why, HAL_COUNT_WHY,
             "npu: no Level Zero driver starts (%s, 0x%x); install the driver of a device, one that fits this loader, "
             "or name "
             "its file in ZE_ENABLE_ALT_DRIVERS",
             code ? npu_error_name(code) : "0 drivers", (unsigned)code);
    return HAL_UNAVAILABLE;
  }
  for (uint32_t i = 0; i < count && i < MAX_DRIVERS; i++) {
    const int has_npu = take_driver(drivers[i], wish, &next);
    if (!next.count || (best.count && !has_npu)) continue;
    best = next;
    if (has_npu) break;
  }
  if (!best.count) {
    say_none(wish, count, why);
    return HAL_UNAVAILABLE;
  }
  best.drivers = count;
  *out_selection = best;
  return HAL_OK;
}
