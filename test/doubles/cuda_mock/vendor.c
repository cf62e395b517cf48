/* vendor.c: shared by the mocks of NVIDIA's libraries: numbers of all types, and work as host functions of the
   driver. */
#define _GNU_SOURCE /* RTLD_NOLOAD */
#include "vendor.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

long long vendor_setting(const char *name, long long otherwise) {
  const char *const text = getenv(name);
  return text && *text ? strtoll(text, NULL, 10) : otherwise;
}

int vendor_version(const char *name, int otherwise, libraryPropertyType which, int *value) {
  const int version = (int)vendor_setting(name, otherwise);
  const int parts[] = {version / 10000, version / 100 % 100, version % 100};
  if (which > PATCH_LEVEL) return 0;
  *value = parts[which];
  return 1;
}

/* ---- numbers ---- */

double vendor_load(cudaDataType type, const void *base, int64_t index) {
  uint16_t bits = 0;
  uint32_t wide = 0;
  float single = 0;
  _Float16 half = 0;
  switch (type) {
    case CUDA_R_64F:
      return ((const double *)base)[index];
    case CUDA_R_16F:
      memcpy(&half, (const char *)base + 2 * index, sizeof half);
      return (double)half;
    case CUDA_R_16BF:
      memcpy(&bits, (const char *)base + 2 * index, sizeof bits);
      wide = (uint32_t)bits << 16;
      memcpy(&single, &wide, sizeof single);
      return (double)single;
    default:
      return (double)((const float *)base)[index];
  }
}

/* To the nearest, ties to even. */
static uint16_t to_bfloat16(float value) {
  uint32_t bits = 0;
  memcpy(&bits, &value, sizeof bits);
  if (value != value) return 0x7fc0;
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

void vendor_store(cudaDataType type, void *base, int64_t index, double value) {
  const _Float16 half = (_Float16)(float)value;
  const uint16_t brain = to_bfloat16((float)value);
  switch (type) {
    case CUDA_R_64F:
      ((double *)base)[index] = value;
      break;
    case CUDA_R_16F:
      memcpy((char *)base + 2 * index, &half, sizeof half);
      break;
    case CUDA_R_16BF:
      memcpy((char *)base + 2 * index, &brain, sizeof brain);
      break;
    default:
      ((float *)base)[index] = (float)value;
  }
}

/* ---- the driver's streams ---- */

/* The driver's function: the process has loaded it before. */
static void *driver_function(const char *name) {
  static void *driver;
  if (!driver) driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  return driver ? dlsym(driver, name) : NULL;
}

CUresult vendor_queue(CUstream stream, CUhostFn function, void *data) {
  CUresult (*launch)(CUstream, CUhostFn, void *) = NULL;
  void *const found = driver_function("cuLaunchHostFunc");
  memcpy(&launch, &found, sizeof found);
  return launch ? launch(stream, function, data) : CUDA_ERROR_NOT_FOUND;
}

int vendor_is_captured(CUstream stream) {
  CUresult (*ask)(CUstream, CUstreamCaptureStatus *) = NULL;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  void *const found = driver_function("cuStreamIsCapturing");
  memcpy(&ask, &found, sizeof found);
  return ask && !ask(stream, &status) && status != CU_STREAM_CAPTURE_STATUS_NONE;
}
