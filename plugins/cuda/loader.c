/* loader.c: the driver's library, opened at its first use, so that the plugin loads on machines without it. Functions
 * are found by cuGetProcAddress, in the versions that driver_api.h lists. */
#define _GNU_SOURCE /* dladdr */
#include <dlfcn.h>
#include <hal/plugin_library.h>
#include <hal/plugin_setting.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda_plugin.h"

cuda_table_t drv;

enum { PATH_ROOM = 1024, LATEST = 13000 };
#define CUDA_PLUGIN_VERSION "0.1.0"

#define ROW(name, version, parameters) {#name, offsetof(cuda_table_t, name), 0},
#define LATER_ROW(name, version, parameters) {#name, offsetof(cuda_table_t, name), 1},
static const hal_library_symbol_t symbols[] = {CUDA_CALLS(ROW) CUDA_LATER_CALLS(LATER_ROW)};

#define VERSION(name, version, parameters) version,
static const int versions[] = {CUDA_CALLS(VERSION) CUDA_LATER_CALLS(VERSION)};

/* Both exist from 11.3 on; a driver without either is too old for this plugin. */
static void *find(void *handle, size_t index) {
  void *const newer = dlsym(handle, "cuGetProcAddress_v2"), *const older = dlsym(handle, "cuGetProcAddress");
  CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SUCCESS;
  void *function = NULL;
  cuda_find_fn ask = NULL;
  cuda_find_old_fn ask_old = NULL;
  memcpy(&ask, &newer, sizeof ask); /* ISO C has no cast to a function pointer */
  memcpy(&ask_old, &older, sizeof ask_old);
  const CUresult code = ask       ? ask(symbols[index].name, &function, versions[index], 0, &found)
                        : ask_old ? ask_old(symbols[index].name, &function, versions[index], 0)
                                  : CUDA_ERROR_NOT_FOUND;
  return code ? NULL : function;
}

static hal_library_t library = {.plugin = "cuda",
                                .names = {"libcuda.so.1"}, /* libcuda.so is for the linker, and may be a stub */
                                .advice = "install NVIDIA's driver, of version 465 (CUDA 11.3) or later",
                                CUDA_LIBRARY_CALLS(symbols, drv),
                                .find = find};

hal_status_t cuda_loader_open(void) { return hal_library_open(&library); }

int cuda_loader_cuda_version(void) {
  int version = 0;
  return drv.cuDriverGetVersion && !drv.cuDriverGetVersion(&version) ? version : 0;
}

const char *cuda_file_of(const void *function) {
  Dl_info facts = {.dli_fname = NULL};
  return function && dladdr(function, &facts) && facts.dli_fname ? facts.dli_fname : "none";
}

int cuda_find_in_toolkit(const char *name, char *path, size_t room) {
  const char *const roots[] = {hal_setting("CUDA_HOME"), hal_setting("CUDA_PATH"), "/usr/local/cuda"};
  for (size_t i = 0; i < sizeof roots / sizeof *roots; i++)
    if (roots[i] && roots[i][0] == '/' && snprintf(path, room, "%s/lib64/%s", roots[i], name) < (int)room &&
        access(path, R_OK) == 0)
      return 1;
  return 0;
}

int cuda_find_in_packages(const char *name, char *path, size_t room) {
  char folder[PATH_ROOM];
  void *own = NULL;
  hal_status_t (*const function)(void) = cuda_loader_open;
  memcpy(&own, &function, sizeof own);
  if (snprintf(folder, sizeof folder, "%s", cuda_file_of(own)) >= (int)sizeof folder) return 0;
  for (char *end = strrchr(folder, '/'); end; end = strrchr(folder, '/')) {
    *end = '\0';
    if (snprintf(path, room, "%s/%s", folder, name) < (int)room && access(path, R_OK) == 0) return 1;
  }
  return 0;
}

static char version_text[PATH_ROOM];

static void write_version(void) {
  void *function = NULL;
  const int version = cuda_loader_open() ? 0 : cuda_loader_cuda_version();
  memcpy(&function, &drv.cuInit, sizeof function);
  snprintf(version_text, sizeof version_text, CUDA_PLUGIN_VERSION " (driver %.900s of CUDA %d.%d)",
           cuda_file_of(function), version / 1000, version % 1000 / 10);
}

const char *cuda_loader_version(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, write_version);
  return version_text;
}
