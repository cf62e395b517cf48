/* blas.c: cuBLASLt, a library that is opened at run time: HAL_CUDA_CUBLASLT, else by the loader's ways, that of the driver's own version first,
 * else in the toolkit's folder. Whoever has none is served by the portable kernels. */
#define _GNU_SOURCE /* PATH_MAX */
#include "blas.h"

#include <hal/plugin_library.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

blas_table_t blas;

enum { OLDEST = 1104 }; /* major * 100 + minor */

#define ROW(name, result, parameters) {#name, offsetof(blas_table_t, name), 0},
static const hal_library_symbol_t symbols[] = {BLAS_CALLS(ROW)};

static hal_library_t library = {
    .plugin = "cuda",
    .advice =
        "for NVIDIA's matrix products install cuBLAS 11.4 or later (a toolkit's libcublasLt, or the Python package "
        "nvidia-cublas), and name its file in HAL_CUDA_CUBLASLT where it is not found; without it the portable "
        "kernels compute them",
    .symbols = symbols,
    .symbol_count = sizeof symbols / sizeof *symbols,
    .table = &blas,
    .lock = PTHREAD_MUTEX_INITIALIZER};
static char in_toolkit[PATH_MAX];

/* A library of a later major version than the driver's does not run on it. */
static void choose_names(void) {
  static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so.11"};
  const char *const named = getenv("HAL_CUDA_CUBLASLT");
  const int driver = cuda_loader_cuda_version() / 1000;
  size_t count = 0;
  if (named && *named) {
    library.names[0] = named;
    return;
  }
  for (int i = 0; i < 3; i++)
    if (13 - i <= driver) library.names[count++] = names[i];
  if (count < HAL_LIBRARY_NAMES && cuda_find_in_toolkit("libcublasLt.so", in_toolkit, sizeof in_toolkit))
    library.names[count] = in_toolkit;
}

static const char *file_of_library(void) {
  void *function = NULL;
  memcpy(&function, &blas.cublasLtGetProperty, sizeof function);
  return cuda_file_of(function);
}

typedef struct version_s {
  int major, minor, patch;
} version_t;

/* By its parts: the one number of cublasLtGetVersion has been made in two ways. */
static version_t version_of_library(void) {
  version_t version = {0, 0, 0};
  blas.cublasLtGetProperty(MAJOR_VERSION, &version.major);
  blas.cublasLtGetProperty(MINOR_VERSION, &version.minor);
  blas.cublasLtGetProperty(PATCH_LEVEL, &version.patch);
  return version;
}

/* A library's major version is CUDA's, which is what the driver must be made for at least. */
static hal_status_t check_version(void) {
  const version_t version = version_of_library();
  const int driver = cuda_loader_cuda_version();
  if (version.major * 100 + version.minor < OLDEST)
    return cuda_error(HAL_UNAVAILABLE, 0, "cuda: %s is cuBLAS %d.%d, too old; %s", file_of_library(), version.major,
                      version.minor, library.advice);
  if (version.major > driver / 1000)
    return cuda_error(
        HAL_UNAVAILABLE, 0,
        "cuda: %s is cuBLAS %d.%d, and the driver is made for CUDA %d.%d; install a later driver or a cuBLAS "
        "of its version; until then the portable kernels compute products",
        file_of_library(), version.major, version.minor, driver / 1000, driver % 1000 / 10);
  return HAL_OK;
}

/* That there is none is no failure, unless it was asked for. */
static hal_status_t open_library(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, choose_names);
  const char *const named = getenv("HAL_CUDA_CUBLASLT");
  const hal_status_t status = hal_library_open(&library);
  if (!status) return check_version();
  if (named && *named) return status;
  hal_host->log(HAL_LOG_INFO,
                "cuda: no libcublasLt is found, the portable kernels compute matrix products; install "
                "cuBLAS, or name its file in HAL_CUDA_CUBLASLT");
  return HAL_NOT_FOUND;
}

/* The context is current. */
static hal_status_t make_handle(const cuda_device_t *device, cublasLtHandle_t *out_handle) {
  char message[PATH_MAX + 128];
  const cublasStatus_t code = blas.cublasLtCreate(out_handle);
  const version_t version = version_of_library();
  if (code || !*out_handle)
    return cuda_error(HAL_UNAVAILABLE, (int64_t)code,
                      "cuda: %s (cuBLAS %d.%d) does not serve '%s': %s (%d); the portable kernels compute products",
                      file_of_library(), version.major, version.minor, device->name, cuda_blas_status_name(code),
                      (int)code);
  snprintf(message, sizeof message, "cuda: matrix products of '%s' are computed by cuBLAS %d.%d.%d, %s", device->name,
           version.major, version.minor, version.patch, file_of_library());
  hal_host->log(HAL_LOG_INFO, message);
  return HAL_OK;
}

hal_status_t cuda_blas_handle(int32_t ordinal, cublasLtHandle_t *out_handle) {
  cuda_scope_t scope;
  hal_status_t status = cuda_enter(ordinal, &scope);
  if (status) return status;
  cuda_device_t *const device = &cuda.devices[ordinal];
  pthread_mutex_lock(&device->lock);
  if (device->blas_refused) status = HAL_NOT_FOUND;
  if (!device->blas && !status) {
    status = open_library();
    if (!status) status = make_handle(device, &device->blas);
    if (status) device->blas = NULL;
    device->blas_refused = status != HAL_OK;
  }
  *out_handle = device->blas;
  pthread_mutex_unlock(&device->lock);
  cuda_leave(&scope);
  return status;
}

const char *cuda_blas_status_name(cublasStatus_t status) {
  switch (status) {
#define NAME(name, number) \
  case name:               \
    return #name;
    BLAS_STATUSES(NAME)
    default:
      return "a status without a name";
  }
}
