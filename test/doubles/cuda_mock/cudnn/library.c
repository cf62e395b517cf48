/* library.c: a libcudnn.so whose convolutions, norms and graphs are sums in double by the definitions, queued as
 * host functions of the driver that the process has loaded. It is stricter than the real one: it refuses everything
 * on which the plugin must not rely. This file has handles, descriptors and queues. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "work.h"

#define DECLARE(name, result, parameters) API result name parameters;
DNN_LIBRARY_CALLS(DECLARE)
DNN_DESCRIPTOR_CALLS(DECLARE)

enum { MAGIC = 0x64656570, LEAST_DIMS = 4 };

/* ---- the library ---- */

/* Returns whether this is one of the first `spared` calls since the setting changed. */
static int is_spared(const char *setting, long spared) {
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  static char last[256];
  static long calls;
  pthread_mutex_lock(&lock);
  if (strncmp(last, setting, sizeof last - 1) != 0) {
    snprintf(last, sizeof last, "%s", setting);
    calls = 0;
  }
  const int spares = calls++ < spared;
  pthread_mutex_unlock(&lock);
  return spares;
}

cudnnStatus_t refused(const char *function) {
  const char *text = getenv("CUDNN_MOCK_REFUSES");
  const size_t length = strlen(function);
  for (; text && *text; text += *text == ',') {
    const size_t name = strcspn(text, "=,");
    if (name == length && !strncmp(text, function, length) && text[name] == '=') {
      char *end = NULL;
      const long status = strtol(text + name + 1, &end, 10);
      return *end == '/' && is_spared(text, strtol(end + 1, NULL, 10)) ? CUDNN_STATUS_SUCCESS : (cudnnStatus_t)status;
    }
    text += strcspn(text, ",");
  }
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetProperty(libraryPropertyType which, int *value) {
  return vendor_version("CUDNN_MOCK_VERSION", 92800, which, value) ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
}

size_t cudnnGetCudartVersion(void) { return (size_t)vendor_setting("CUDNN_MOCK_CUDART", 13000); }

const char *cudnnGetErrorString(cudnnStatus_t status) {
  switch (status) {
#define NAME(name, number) \
  case name:               \
    return #name;
    DNN_STATUSES(NAME)
    default:
      return "CUDNN_UNKNOWN_STATUS";
  }
}

cudnnStatus_t cudnnCreate(cudnnHandle_t *handle) {
  const cudnnStatus_t code = refused(__func__);
  if (code) return code;
  *handle = calloc(1, sizeof **handle);
  if (!*handle) return CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
  (*handle)->magic = MAGIC;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  free(handle);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, CUstream stream) {
  if (!handle || handle->magic != MAGIC) return CUDNN_STATUS_BAD_PARAM;
  handle->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}

/* ---- descriptors ---- */

#define CREATE(name, out)                                    \
  *(out) = refused(name) ? NULL : calloc(1, sizeof **(out)); \
  return *(out) ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED

cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t *tensor) { CREATE(__func__, tensor); }
cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t *filter) { CREATE(__func__, filter); }
cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t *convolution) {
  CREATE(__func__, convolution);
}

cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t tensor) {
  free(tensor);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t filter) {
  free(filter);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t convolution) {
  free(convolution);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetTensorNdDescriptor(cudnnTensorDescriptor_t tensor, cudnnDataType_t type, int ndim,
                                         const int *sizes, const int *strides) {
  if (ndim < LEAST_DIMS || ndim > DIMS) return CUDNN_STATUS_NOT_SUPPORTED;
  for (int i = 0; i < ndim; i++)
    if (sizes[i] < 1 || strides[i] < 1) return CUDNN_STATUS_BAD_PARAM;
  *tensor = (struct cudnnTensorStruct){.type = type, .ndim = ndim};
  memcpy(tensor->sizes, sizes, (size_t)ndim * sizeof *sizes);
  memcpy(tensor->strides, strides, (size_t)ndim * sizeof *strides);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetFilterNdDescriptor(cudnnFilterDescriptor_t filter, cudnnDataType_t type,
                                         cudnnTensorFormat_t format, int ndim, const int *sizes) {
  int strides[DIMS], next = 1;
  if (ndim < LEAST_DIMS || ndim > DIMS) return CUDNN_STATUS_NOT_SUPPORTED;
  for (int place = 0; place < ndim; place++) {
    const int dim = dimension_at(format, ndim, place);
    strides[dim] = next;
    next *= sizes[dim];
  }
  filter->format = format;
  return cudnnSetTensorNdDescriptor(&filter->dense, type, ndim, sizes, strides);
}

cudnnStatus_t cudnnSetConvolutionNdDescriptor(cudnnConvolutionDescriptor_t convolution, int spatial, const int *pad,
                                              const int *step, const int *dilation, cudnnConvolutionMode_t mode,
                                              cudnnDataType_t compute) {
  if (spatial < LEAST_DIMS - 2 || spatial > SPATIAL) return CUDNN_STATUS_NOT_SUPPORTED;
  *convolution = (struct cudnnConvolutionStruct){
      .spatial = spatial, .groups = 1, .mode = mode, .compute = compute, .math = CUDNN_DEFAULT_MATH};
  for (int i = 0; i < spatial; i++) {
    if (pad[i] < 0 || step[i] < 1 || dilation[i] < 1) return CUDNN_STATUS_BAD_PARAM;
    convolution->pad[i] = pad[i], convolution->step[i] = step[i], convolution->dilation[i] = dilation[i];
  }
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetConvolutionGroupCount(cudnnConvolutionDescriptor_t convolution, int groups) {
  convolution->groups = groups;
  return groups < 1 ? CUDNN_STATUS_BAD_PARAM : CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t convolution, cudnnMathType_t math) {
  convolution->math = math;
  return CUDNN_STATUS_SUCCESS;
}

/* ---- numbers ---- */

static cudaDataType number_type(cudnnDataType_t type) {
  return type == CUDNN_DATA_HALF       ? CUDA_R_16F
         : type == CUDNN_DATA_BFLOAT16 ? CUDA_R_16BF
         : type == CUDNN_DATA_DOUBLE   ? CUDA_R_64F
                                       : CUDA_R_32F;
}

double load(const struct cudnnTensorStruct *tensor, const void *data, int64_t at) {
  return vendor_load(number_type(tensor->type), data, at);
}

void store(const struct cudnnTensorStruct *tensor, void *data, int64_t at, double value) {
  vendor_store(number_type(tensor->type), data, at, value);
}

int64_t count_of(const struct cudnnTensorStruct *tensor) {
  int64_t count = 1;
  for (int i = 0; i < tensor->ndim; i++) count *= tensor->sizes[i];
  return count;
}

int64_t place_of(const struct cudnnTensorStruct *tensor, int64_t number) {
  int64_t place = 0;
  for (int i = tensor->ndim - 1; i >= 0; i--) {
    place += number % tensor->sizes[i] * tensor->strides[i];
    number /= tensor->sizes[i];
  }
  return place;
}

int lies_as(const struct cudnnTensorStruct *tensor, cudnnTensorFormat_t format) {
  int next = 1;
  for (int place = 0; place < tensor->ndim; place++) {
    const int dim = dimension_at(format, tensor->ndim, place);
    if (tensor->strides[dim] != next) return 0;
    next *= tensor->sizes[dim];
  }
  return 1;
}

double factor(cudnnDataType_t type, const void *value) {
  return type == CUDNN_DATA_DOUBLE ? *(const double *)value : (double)*(const float *)value;
}

/* ---- queues ---- */

static void run_work(void *data) {
  work_t *const work = data;
  if (work->workspace) memset(work->workspace, 0xa5, work->workspace_bytes); /* an invalid stream fails here */
  work->compute(work);
  if (!work->again) free(work);
}

static cudnnStatus_t queue_alone(cudnnHandle_t handle, const work_t *work) {
  work_t *const own = malloc(sizeof *own);
  if (!own) return CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
  *own = *work;
  own->again = vendor_is_captured(handle->stream); /* a graph may run it repeatedly: it is not released */
  if (!vendor_queue(handle->stream, run_work, own)) return CUDNN_STATUS_SUCCESS;
  free(own);
  return CUDNN_STATUS_EXECUTION_FAILED;
}

cudnnStatus_t queue_work(cudnnHandle_t handle, const work_t *work) {
  if (!handle || handle->magic != MAGIC) return CUDNN_STATUS_BAD_PARAM;
  const int alone = atomic_fetch_add(&handle->users, 1) == 0;
  const cudnnStatus_t code = alone ? queue_alone(handle, work) : CUDNN_STATUS_BAD_PARAM;
  atomic_fetch_sub(&handle->users, 1);
  return code;
}
