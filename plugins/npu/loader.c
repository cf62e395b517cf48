/* loader.c: the Level Zero loader, opened when it is first asked for, so that the plugin loads on machines without it; and the files of
 * its drivers. */
#define _GNU_SOURCE /* dl_iterate_phdr */
#include <dlfcn.h>
#include <hal/plugin_library.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "npu.h"

npu_table_t ze;

#define ROW(name) {#name, offsetof(npu_table_t, name), 0},
static const hal_library_symbol_t symbols[] = {
    NPU_CALLS(ROW){"zeInitDrivers", offsetof(npu_table_t, zeInitDrivers), 1}};

static hal_library_t library = {
    "npu",
    {"libze_loader.so.1", "libze_loader.so"},
    "install a Level Zero loader of version 1.4 or later (Debian: libze1) and the driver of a device",
    symbols,
    sizeof symbols / sizeof *symbols,
    &ze,
    HAL_LIBRARY_CLOSED};

hal_status_t npu_loader_open(void) { return hal_library_open(&library); }

/* ---- drivers ---------------------------------------------------------------------------------------------------------------- */

/* The names by which loaders know drivers. */
static const char *const drivers[] = {"libze_intel_gpu.so.1", "libze_intel_npu.so.1", "libze_intel_vpu.so.1"};

/* Whether one of the drivers lies in one of the folders, which stand in a list with colons between them. */
static int lies_in(const char *folders) {
  char path[1024];
  for (const char *at = folders; at && *at; at += *at == ':') {
    const int length = (int)strcspn(at, ":");
    for (size_t i = 0; i < sizeof drivers / sizeof *drivers; i++) {
      snprintf(path, sizeof path, "%.*s/%s", length, at, drivers[i]);
      if (length && access(path, R_OK) == 0) return 1;
    }
    at += length;
  }
  return 0;
}

hal_status_t npu_loader_find_driver(void) {
  static const char folders[] =
      "/usr/lib/x86_64-linux-gnu:/usr/lib/aarch64-linux-gnu:/usr/lib64:/usr/lib:/usr/local/lib:/lib64:/opt/intel/lib";
  const char *const named = getenv("ZE_ENABLE_ALT_DRIVERS");
  const hal_status_t status = npu_loader_open();
  if (status || (named && *named) || lies_in(getenv("LD_LIBRARY_PATH")) || lies_in(folders)) return status;
  return npu_error(
      HAL_UNAVAILABLE, 0,
      "npu: there is a Level Zero loader but none of the drivers it knows (%s, %s, %s); install the driver of "
      "a device, or name its file in ZE_ENABLE_ALT_DRIVERS",
      drivers[0], drivers[1], drivers[2]);
}

/* Adds the file of a library that is loaded and has a driver's functions. */
static int tell_library(struct dl_phdr_info *info, size_t size, void *text) {
  (void)size;
  const size_t used = strlen(text);
  if (!info->dlpi_name || !*info->dlpi_name) return 0;
  void *const handle = dlopen(info->dlpi_name, RTLD_NOW | RTLD_NOLOAD);
  if (!handle) return 0;
  if (dlsym(handle, "zeGetGlobalProcAddrTable") && !strstr(info->dlpi_name, "libze_loader") &&
      !strstr(info->dlpi_name, "_layer"))
    snprintf((char *)text + used, 1024 - used, "%s%s", used ? ", " : "", info->dlpi_name);
  dlclose(handle);
  return 0;
}

void npu_loader_tell(void) {
  Dl_info loader = {.dli_fname = "?"};
  char found[1024] = "", message[1400];
  void *function;
  memcpy(&function, &ze.zeInit, sizeof function); /* ISO C has no cast from a function pointer */
  dladdr(function, &loader);
  dl_iterate_phdr(tell_library, found);
  snprintf(message, sizeof message, "npu: the Level Zero loader is %s, its drivers are %s", loader.dli_fname, found);
  hal_host->log(HAL_LOG_INFO, message);
}
