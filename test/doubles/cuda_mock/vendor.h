/* vendor.h: shared by the mocks of NVIDIA's libraries. */
#ifndef VENDOR_H_
#define VENDOR_H_

#include "blas_api.h"

/* A number of the environment, or `otherwise`. */
long long vendor_setting(const char *name, long long otherwise);

/* A part of the version, major * 10000 + minor * 100 + patch, of the environment, or `otherwise`. Returns 0 if there
   is no such part. */
int vendor_version(const char *name, int otherwise, libraryPropertyType which, int *value);

/* Element `index` of an array; numbers are rounded to the nearest, ties to even. */
double vendor_load(cudaDataType type, const void *base, int64_t index);
void vendor_store(cudaDataType type, void *base, int64_t index, double value);

/* Queues a host function of the driver that the process has loaded. */
CUresult vendor_queue(CUstream stream, CUhostFn function, void *data);
int vendor_is_captured(CUstream stream);

#endif /* VENDOR_H_ */
