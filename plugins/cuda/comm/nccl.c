/* nccl.c: NCCL as one of the vendor's libraries (library.h): its location, its version, and its errors. */
#define _POSIX_C_SOURCE 200809L /* clock_gettime */
#include "nccl.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

nccl_table_t nccl;
pthread_mutex_t cuda_nccl_lock = PTHREAD_MUTEX_INITIALIZER;

#define ROW(name, parameters) {#name, offsetof(nccl_table_t, name), 0},
#define LATER_ROW(name, parameters) {#name, offsetof(nccl_table_t, name), 1},
static const hal_library_symbol_t symbols[] = {NCCL_CALLS(ROW) NCCL_TEXT_CALLS(ROW) NCCL_LATER_CALLS(LATER_ROW)};

int cuda_nccl_version(void) {
  int version = 0;
  return nccl.ncclGetVersion && !nccl.ncclGetVersion(&version) ? version : 0;
}

/* The library does not report its CUDA version, so `cuda` remains 0. */
static void version(cuda_library_version_t *out) {
  const int number = cuda_nccl_version();
  const int unit = number >= 10000 ? 10000 : 1000; /* versions up to 2.8 have two digits less */
  out->major = number / unit;
  out->minor = number % unit / 100;
  out->patch = number % 100;
}

/* The library has no state for a device without a communicator. */
static int serve(int32_t device) { return (void)device, 0; }

static const char *code_name(int code) { return nccl.ncclGetErrorString((ncclResult_t)code); }

static cuda_library_t library = {
    .opened = {.plugin = "cuda",
               .advice =
                   "for collectives by NCCL install version 2.19 or later (the Python package nvidia-nccl-cu13 or "
                   "nvidia-nccl-cu12), and set HAL_CUDA_NCCL to its file if it is not found",
               CUDA_LIBRARY_CALLS(symbols, nccl)},
    .name = "NCCL",
    .work = "collectives",
    .without = "the host computes",
    .setting = "HAL_CUDA_NCCL",
    .linked = "libnccl.so",
    .files = {"libnccl.so.2"},
    .package = "nvidia/nccl/lib/libnccl.so.2",
    .oldest = 219,
    .version = version,
    .serve = serve,
    .code_name = code_name,
    .lock = PTHREAD_MUTEX_INITIALIZER};

hal_status_t cuda_nccl_serve(int32_t device) {
  const hal_status_t status = cuda_library_serve(&library, device);
  if (status != HAL_NOT_FOUND) return status;
  return cuda_error(HAL_UNAVAILABLE, 0, "cuda: no usable libnccl.so.2 was found; %s", library.opened.advice);
}

int64_t cuda_nccl_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

hal_status_t cuda_nccl_status(ncclResult_t code) {
  switch (code) {
    case ncclSuccess:
      return HAL_OK;
    case ncclInvalidArgument:
    case ncclInvalidUsage:
      return HAL_INVALID_ARGUMENT;
    case ncclSystemError:
    case ncclRemoteError:
    case ncclUnhandledCudaError:
      return HAL_UNAVAILABLE;
    case ncclInProgress:
      return HAL_NOT_READY;
    default:
      return HAL_INTERNAL;
  }
}

hal_status_t cuda_nccl_error(ncclResult_t code, const char *format, ...) {
  char text[1024];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  const char *const detail = nccl.ncclGetLastError(NULL);
  return cuda_error(cuda_nccl_status(code), (int64_t)code, "%s: NCCL returned %s (%d)%s%s", text,
                    nccl.ncclGetErrorString(code), (int)code, detail && *detail ? ": " : "", detail ? detail : "");
}
