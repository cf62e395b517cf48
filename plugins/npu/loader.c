/* loader.c: the Level Zero loader, opened at its first use, so that the plugin loads on machines without it; and the
 * files of its drivers. */
#define _GNU_SOURCE /* dl_iterate_phdr */
#include <dlfcn.h>
#include <hal/plugin_library.h>
#include <hal/plugin_setting.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "npu.h"

npu_table_t ze;

enum { PATH_ROOM = 1024 };
#define NPU_VERSION "0.1.0"

#define ROW(name) {#name, offsetof(npu_table_t, name), 0},
#define OPTIONAL_ROW(name) {#name, offsetof(npu_table_t, name), 1},
static const hal_library_symbol_t symbols[] = {NPU_CALLS(ROW) NPU_OPTIONAL_CALLS(OPTIONAL_ROW) NPU_SYSMAN_CALLS(
    OPTIONAL_ROW){"zeInitDrivers", offsetof(npu_table_t, zeInitDrivers), 1}};

static hal_library_t library = {
    "npu",
    {"libze_loader.so.1", "libze_loader.so"},
    "install a Level Zero loader of version 1.4 or later (Debian: libze1) and the driver of a device",
    symbols,
    sizeof symbols / sizeof *symbols,
    &ze,
    HAL_LIBRARY_CLOSED};

hal_status_t npu_loader_open(void) { return hal_library_open(&library); }

/* ---- drivers ---------------------------------------------------------------------------------------------------- */

/* The names by which loaders find drivers. */
static const char *const drivers[] = {"libze_intel_gpu.so.1", "libze_intel_npu.so.1", "libze_intel_vpu.so.1"};

/* Searches a list of folders, separated by colons, for one of the drivers. Returns whether there is one, and its path.
 * */
static int lies_in(const char *folders, char *path, size_t room) {
  for (const char *at = folders; at && *at; at += *at == ':') {
    const int length = (int)strcspn(at, ":");
    for (size_t i = 0; i < sizeof drivers / sizeof *drivers; i++)
      if (length && snprintf(path, room, "%.*s/%s", length, at, drivers[i]) < (int)room && access(path, R_OK) == 0)
        return 1;
    at += length;
  }
  return 0;
}

/* Finds the file of the driver that the loader will open, with the loader's search rules. */
static int find_driver(char *path, size_t room) {
  static const char folders[] =
      "/usr/lib/x86_64-linux-gnu:/usr/lib/aarch64-linux-gnu:/usr/lib64:/usr/lib:/usr/local/lib:/lib64:/opt/intel/lib";
  const char *const named = hal_setting("ZE_ENABLE_ALT_DRIVERS");
  if (!named || !*named) return lies_in(hal_setting("LD_LIBRARY_PATH"), path, room) || lies_in(folders, path, room);
  snprintf(path, room, "%s", named);
  return 1;
}

hal_status_t npu_loader_find_driver(void) {
  char path[PATH_ROOM];
  const hal_status_t status = npu_loader_open();
  if (status || find_driver(path, sizeof path)) return status;
  return npu_error(
      HAL_UNAVAILABLE, 0,
      "npu: there is a Level Zero loader but none of the drivers that it supports (%s, %s, %s); install the driver of "
      "a device, or name its file in ZE_ENABLE_ALT_DRIVERS",
      drivers[0], drivers[1], drivers[2]);
}

/* Returns the file of the loader; "none" if there is none. */
static const char *loader_path(void) {
  Dl_info facts = {.dli_fname = NULL};
  void *function = NULL;
  if (ze.zeInit) memcpy(&function, &ze.zeInit, sizeof function); /* ISO C has no cast from a function pointer */
  return function && dladdr(function, &facts) && facts.dli_fname ? facts.dli_fname : "none";
}

static char version[2 * PATH_ROOM];

static void write_version(void) {
  char path[PATH_ROOM] = "none";
  npu_loader_open();
  if (!find_driver(path, sizeof path)) snprintf(path, sizeof path, "none");
  snprintf(version, sizeof version, NPU_VERSION " (loader %s, driver %s)", loader_path(), path);
}

const char *npu_loader_version(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, write_version);
  return version;
}

/* Appends the file of a loaded library that has a driver's functions. */
static int tell_library(struct dl_phdr_info *info, size_t size, void *text) {
  (void)size;
  const size_t used = strlen(text);
  if (!info->dlpi_name || !*info->dlpi_name) return 0;
  void *const handle = dlopen(info->dlpi_name, RTLD_NOW | RTLD_NOLOAD);
  if (!handle) return 0;
  if (dlsym(handle, "zeGetGlobalProcAddrTable") && !strstr(info->dlpi_name, "libze_loader") &&
      !strstr(info->dlpi_name, "_layer"))
    snprintf((char *)text + used, PATH_ROOM - used, "%s%s", used ? ", " : "", info->dlpi_name);
  dlclose(handle);
  return 0;
}

void npu_loader_tell(void) {
  char found[PATH_ROOM] = "", message[2 * PATH_ROOM];
  dl_iterate_phdr(tell_library, found);
  snprintf(message, sizeof message, "npu: the Level Zero loader is %.500s, its drivers are %s", loader_path(), found);
  hal_host->log(HAL_LOG_INFO, message);
}
