/* icd.c: the OpenCL loader, opened when it is first asked for, so that the plugin loads on machines without OpenCL. */
#define _GNU_SOURCE /* RTLD_LOCAL */
#include <dlfcn.h>
#include <string.h>

#include "opencl.h"

ocl_icd_t icd;

typedef struct row_s {
  const char *name;
  size_t offset;
  int later;
} row_t;

#define ROW(name) {#name, offsetof(ocl_icd_t, name), 0},
#define LATER_ROW(name) {#name, offsetof(ocl_icd_t, name), 1},
static const row_t rows[] = {OCL_CALLS(ROW) OCL_LATER_CALLS(LATER_ROW)};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int opened; /* under the lock */

static hal_status_t open_locked(void) {
  void *library = NULL;
  static const char *const names[] = {"libOpenCL.so.1", "libOpenCL.so"};
  for (size_t i = 0; !library && i < sizeof names / sizeof *names; i++)
    library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
  if (!library)
    return ocl_error(
        HAL_UNAVAILABLE, 0,
        "opencl: libOpenCL.so.1 cannot be loaded: %s; install an OpenCL loader (Debian: ocl-icd-libopencl1) and "
        "the driver of a device (on a CPU: pocl-opencl-icd)",
        dlerror());
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    void *const symbol = dlsym(library, rows[i].name);
    if (!symbol && !rows[i].later) {
      dlclose(library);
      return ocl_error(HAL_UNAVAILABLE, 0,
                       "opencl: libOpenCL.so.1 lacks %s, so that it is older than OpenCL 1.2; install a newer loader "
                       "(Debian: ocl-icd-libopencl1)",
                       rows[i].name);
    }
    memcpy((char *)&icd + rows[i].offset, &symbol, sizeof symbol); /* ISO C has no cast to a function pointer */
  }
  opened = 1;
  return HAL_OK;
}

hal_status_t ocl_icd_open(void) {
  pthread_mutex_lock(&lock);
  const hal_status_t status = opened ? HAL_OK : open_locked();
  pthread_mutex_unlock(&lock);
  return status;
}
