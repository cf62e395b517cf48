/* dnn_api.h: the declarations of cuDNN, NVIDIA's library of neural networks, that the plugin uses; as blas_api.h,
 * compared with the real cudnn.h by the same test. Versions 8 and 9 have all of it. Their statuses have different
 * numbers, and only cudnnGetErrorString returns their names. */
#ifndef DNN_API_H_
#define DNN_API_H_

#include "library_api.h"

/* ---- numbers ---------------------------------------------------------------------------------------------------- */

#define DNN_STATUSES(X)                                         \
  X(CUDNN_STATUS_SUCCESS, 0)                                    \
  X(CUDNN_STATUS_NOT_INITIALIZED, 1001)                         \
  X(CUDNN_STATUS_BAD_PARAM, 2000)                               \
  X(CUDNN_STATUS_NOT_SUPPORTED, 3000)                           \
  X(CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED, 4003)   \
  X(CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED, 4004) \
  X(CUDNN_STATUS_EXECUTION_FAILED, 5000)

/* The statuses of version 8 that are checked: under the names of version 9, with numbers that version 9 does not use.
 * */
#define DNN_STATUSES_8(X) X(CUDNN_STATUS_ALLOC_FAILED, 2) X(CUDNN_STATUS_NOT_SUPPORTED, 9)

#define DNN_DATA_TYPES(X)   \
  X(CUDNN_DATA_FLOAT, 0)    \
  X(CUDNN_DATA_DOUBLE, 1)   \
  X(CUDNN_DATA_HALF, 2)     \
  X(CUDNN_DATA_INT32, 4)    \
  X(CUDNN_DATA_BFLOAT16, 9) \
  X(CUDNN_DATA_BOOLEAN, 11)
#define DNN_FORMATS(X) X(CUDNN_TENSOR_NCHW, 0) X(CUDNN_TENSOR_NHWC, 1)
#define DNN_MATHS(X) X(CUDNN_DEFAULT_MATH, 0) X(CUDNN_TENSOR_OP_MATH, 1) X(CUDNN_FMA_MATH, 3)
#define DNN_MODES(X) X(CUDNN_CONVOLUTION, 0) X(CUDNN_CROSS_CORRELATION, 1)
#define DNN_DETERMINISMS(X) X(CUDNN_NON_DETERMINISTIC, 0) X(CUDNN_DETERMINISTIC, 1)
#define DNN_NORM_MODES(X) X(CUDNN_BATCHNORM_SPATIAL, 1)
#define DNN_CHOICES(X) \
  DNN_DATA_TYPES(X)    \
  DNN_FORMATS(X)       \
  DNN_MATHS(X) DNN_MODES(X) DNN_DETERMINISMS(X) DNN_NORM_MODES(X) LIBRARY_PROPERTIES(X) DNN_GRAPH_CHOICES(X)

/* ---- types, unless the vendor's header defined them ------------------------------------------------------------- */
#ifndef CUDNN_MAJOR
#define DNN_ENUMERATOR(name, number) name = number,
typedef enum { DNN_STATUSES(DNN_ENUMERATOR) } cudnnStatus_t;
typedef enum { DNN_DATA_TYPES(DNN_ENUMERATOR) } cudnnDataType_t;
typedef enum { DNN_FORMATS(DNN_ENUMERATOR) } cudnnTensorFormat_t;
typedef enum { DNN_MATHS(DNN_ENUMERATOR) } cudnnMathType_t;
typedef enum { DNN_MODES(DNN_ENUMERATOR) } cudnnConvolutionMode_t;
typedef enum { DNN_DETERMINISMS(DNN_ENUMERATOR) } cudnnDeterminism_t;
typedef enum { DNN_NORM_MODES(DNN_ENUMERATOR) } cudnnBatchNormMode_t;
typedef struct cudnnContext *cudnnHandle_t;
typedef struct cudnnTensorStruct *cudnnTensorDescriptor_t;
typedef struct cudnnFilterStruct *cudnnFilterDescriptor_t;
typedef struct cudnnConvolutionStruct *cudnnConvolutionDescriptor_t;
/* Algorithms are numbers for their callers; the results about those of the three directions have the same layout. */
typedef unsigned cudnnConvolutionFwdAlgo_t, cudnnConvolutionBwdDataAlgo_t, cudnnConvolutionBwdFilterAlgo_t;
typedef struct {
  unsigned algo;
  cudnnStatus_t status;
  float time;
  size_t memory;
  cudnnDeterminism_t determinism;
  cudnnMathType_t mathType;
  int reserved[3];
} cudnnConvolutionFwdAlgoPerf_t, cudnnConvolutionBwdDataAlgoPerf_t, cudnnConvolutionBwdFilterAlgoPerf_t;
#endif

#include "dnn_graph_api.h"

/* X(expression, number): the memory layout of the structs. */
#define DNN_FOUND_LAYOUT(X, type)    \
  X(offsetof(type, status), 4)       \
  X(offsetof(type, memory), 16)      \
  X(offsetof(type, determinism), 24) \
  X(offsetof(type, mathType), 28)    \
  X(sizeof(type), 48)
#define DNN_LAYOUTS(X)                                   \
  X(sizeof(cudnnStatus_t), 4)                            \
  X(sizeof(cudnnConvolutionFwdAlgo_t), 4)                \
  X(sizeof(cudnnConvolutionBwdDataAlgo_t), 4)            \
  X(sizeof(cudnnConvolutionBwdFilterAlgo_t), 4)          \
  DNN_FOUND_LAYOUT(X, cudnnConvolutionFwdAlgoPerf_t)     \
  DNN_FOUND_LAYOUT(X, cudnnConvolutionBwdDataAlgoPerf_t) \
  DNN_FOUND_LAYOUT(X, cudnnConvolutionBwdFilterAlgoPerf_t)

/* ---- functions -------------------------------------------------------------------------------------------------- */

/* X(name, result, parameters). */
#define DNN_LIBRARY_CALLS(X)                                                  \
  X(cudnnGetProperty, cudnnStatus_t, (libraryPropertyType which, int *value)) \
  X(cudnnGetCudartVersion, size_t, (void))                                    \
  X(cudnnGetErrorString, const char *, (cudnnStatus_t status))                \
  X(cudnnCreate, cudnnStatus_t, (cudnnHandle_t * handle))                     \
  X(cudnnDestroy, cudnnStatus_t, (cudnnHandle_t handle))                      \
  X(cudnnSetStream, cudnnStatus_t, (cudnnHandle_t handle, CUstream stream))

#define DNN_DESCRIPTOR_CALLS(X)                                                                                     \
  X(cudnnCreateTensorDescriptor, cudnnStatus_t, (cudnnTensorDescriptor_t * tensor))                                 \
  X(cudnnDestroyTensorDescriptor, cudnnStatus_t, (cudnnTensorDescriptor_t tensor))                                  \
  X(cudnnSetTensorNdDescriptor, cudnnStatus_t,                                                                      \
    (cudnnTensorDescriptor_t tensor, cudnnDataType_t type, int ndim, const int *sizes, const int *strides))         \
  X(cudnnCreateFilterDescriptor, cudnnStatus_t, (cudnnFilterDescriptor_t * filter))                                 \
  X(cudnnDestroyFilterDescriptor, cudnnStatus_t, (cudnnFilterDescriptor_t filter))                                  \
  X(cudnnSetFilterNdDescriptor, cudnnStatus_t,                                                                      \
    (cudnnFilterDescriptor_t filter, cudnnDataType_t type, cudnnTensorFormat_t format, int ndim, const int *sizes)) \
  X(cudnnCreateConvolutionDescriptor, cudnnStatus_t, (cudnnConvolutionDescriptor_t * convolution))                  \
  X(cudnnDestroyConvolutionDescriptor, cudnnStatus_t, (cudnnConvolutionDescriptor_t convolution))                   \
  X(cudnnSetConvolutionNdDescriptor, cudnnStatus_t,                                                                 \
    (cudnnConvolutionDescriptor_t convolution, int spatial, const int *pad, const int *step, const int *dilation,   \
     cudnnConvolutionMode_t mode, cudnnDataType_t compute))                                                         \
  X(cudnnSetConvolutionGroupCount, cudnnStatus_t, (cudnnConvolutionDescriptor_t convolution, int groups))           \
  X(cudnnSetConvolutionMathType, cudnnStatus_t, (cudnnConvolutionDescriptor_t convolution, cudnnMathType_t math))

#define DNN_CONVOLUTION_CALLS(X)                                                                                       \
  X(cudnnGetConvolutionForwardAlgorithm_v7, cudnnStatus_t,                                                             \
    (cudnnHandle_t handle, cudnnTensorDescriptor_t x, cudnnFilterDescriptor_t w,                                       \
     cudnnConvolutionDescriptor_t convolution, cudnnTensorDescriptor_t y, int room, int *count,                        \
     cudnnConvolutionFwdAlgoPerf_t *found))                                                                            \
  X(cudnnGetConvolutionBackwardDataAlgorithm_v7, cudnnStatus_t,                                                        \
    (cudnnHandle_t handle, cudnnFilterDescriptor_t w, cudnnTensorDescriptor_t dy,                                      \
     cudnnConvolutionDescriptor_t convolution, cudnnTensorDescriptor_t dx, int room, int *count,                       \
     cudnnConvolutionBwdDataAlgoPerf_t *found))                                                                        \
  X(cudnnGetConvolutionBackwardFilterAlgorithm_v7, cudnnStatus_t,                                                      \
    (cudnnHandle_t handle, cudnnTensorDescriptor_t x, cudnnTensorDescriptor_t dy,                                      \
     cudnnConvolutionDescriptor_t convolution, cudnnFilterDescriptor_t dw, int room, int *count,                       \
     cudnnConvolutionBwdFilterAlgoPerf_t *found))                                                                      \
  X(cudnnGetConvolutionForwardWorkspaceSize, cudnnStatus_t,                                                            \
    (cudnnHandle_t handle, cudnnTensorDescriptor_t x, cudnnFilterDescriptor_t w,                                       \
     cudnnConvolutionDescriptor_t convolution, cudnnTensorDescriptor_t y, cudnnConvolutionFwdAlgo_t algorithm,         \
     size_t * bytes))                                                                                                  \
  X(cudnnGetConvolutionBackwardDataWorkspaceSize, cudnnStatus_t,                                                       \
    (cudnnHandle_t handle, cudnnFilterDescriptor_t w, cudnnTensorDescriptor_t dy,                                      \
     cudnnConvolutionDescriptor_t convolution, cudnnTensorDescriptor_t dx, cudnnConvolutionBwdDataAlgo_t algorithm,    \
     size_t * bytes))                                                                                                  \
  X(cudnnGetConvolutionBackwardFilterWorkspaceSize, cudnnStatus_t,                                                     \
    (cudnnHandle_t handle, cudnnTensorDescriptor_t x, cudnnTensorDescriptor_t dy,                                      \
     cudnnConvolutionDescriptor_t convolution, cudnnFilterDescriptor_t dw, cudnnConvolutionBwdFilterAlgo_t algorithm,  \
     size_t * bytes))                                                                                                  \
  X(cudnnConvolutionForward, cudnnStatus_t,                                                                            \
    (cudnnHandle_t handle, const void *alpha, cudnnTensorDescriptor_t x_descriptor, const void *x,                     \
     cudnnFilterDescriptor_t w_descriptor, const void *w, cudnnConvolutionDescriptor_t convolution,                    \
     cudnnConvolutionFwdAlgo_t algorithm, void *workspace, size_t workspace_bytes, const void *beta,                   \
     cudnnTensorDescriptor_t y_descriptor, void *y))                                                                   \
  X(cudnnConvolutionBackwardData, cudnnStatus_t,                                                                       \
    (cudnnHandle_t handle, const void *alpha, cudnnFilterDescriptor_t w_descriptor, const void *w,                     \
     cudnnTensorDescriptor_t dy_descriptor, const void *dy, cudnnConvolutionDescriptor_t convolution,                  \
     cudnnConvolutionBwdDataAlgo_t algorithm, void *workspace, size_t workspace_bytes, const void *beta,               \
     cudnnTensorDescriptor_t dx_descriptor, void *dx))                                                                 \
  X(cudnnConvolutionBackwardFilter, cudnnStatus_t,                                                                     \
    (cudnnHandle_t handle, const void *alpha, cudnnTensorDescriptor_t x_descriptor, const void *x,                     \
     cudnnTensorDescriptor_t dy_descriptor, const void *dy, cudnnConvolutionDescriptor_t convolution,                  \
     cudnnConvolutionBwdFilterAlgo_t algorithm, void *workspace, size_t workspace_bytes, const void *beta,             \
     cudnnFilterDescriptor_t dw_descriptor, void *dw))                                                                 \
  X(cudnnConvolutionBackwardBias, cudnnStatus_t,                                                                       \
    (cudnnHandle_t handle, const void *alpha, cudnnTensorDescriptor_t dy_descriptor, const void *dy, const void *beta, \
     cudnnTensorDescriptor_t db_descriptor, void *db))                                                                 \
  X(cudnnTransformTensor, cudnnStatus_t,                                                                               \
    (cudnnHandle_t handle, const void *alpha, cudnnTensorDescriptor_t from_descriptor, const void *from,               \
     const void *beta, cudnnTensorDescriptor_t to_descriptor, void *to))                                               \
  X(cudnnAddTensor, cudnnStatus_t,                                                                                     \
    (cudnnHandle_t handle, const void *alpha, cudnnTensorDescriptor_t from_descriptor, const void *from,               \
     const void *beta, cudnnTensorDescriptor_t to_descriptor, void *to))

#define DNN_NORM_CALLS(X)                                                                                              \
  X(cudnnBatchNormalizationForwardInference, cudnnStatus_t,                                                            \
    (cudnnHandle_t handle, cudnnBatchNormMode_t mode, const void *alpha, const void *beta,                             \
     cudnnTensorDescriptor_t x_descriptor, const void *x, cudnnTensorDescriptor_t y_descriptor, void *y,               \
     cudnnTensorDescriptor_t channels, const void *scale, const void *bias, const void *mean, const void *variance,    \
     double eps))                                                                                                      \
  X(cudnnBatchNormalizationForwardTraining, cudnnStatus_t,                                                             \
    (cudnnHandle_t handle, cudnnBatchNormMode_t mode, const void *alpha, const void *beta,                             \
     cudnnTensorDescriptor_t x_descriptor, const void *x, cudnnTensorDescriptor_t y_descriptor, void *y,               \
     cudnnTensorDescriptor_t channels, const void *scale, const void *bias, double momentum, void *running_mean,       \
     void *running_variance, double eps, void *saved_mean, void *saved_rstd))                                          \
  X(cudnnBatchNormalizationBackward, cudnnStatus_t,                                                                    \
    (cudnnHandle_t handle, cudnnBatchNormMode_t mode, const void *alpha, const void *beta, const void *channels_alpha, \
     const void *channels_beta, cudnnTensorDescriptor_t x_descriptor, const void *x,                                   \
     cudnnTensorDescriptor_t dy_descriptor, const void *dy, cudnnTensorDescriptor_t dx_descriptor, void *dx,           \
     cudnnTensorDescriptor_t channels, const void *scale, void *dscale, void *dbias, double eps,                       \
     const void *saved_mean, const void *saved_rstd))

#define DNN_CALLS(X) \
  DNN_LIBRARY_CALLS(X) DNN_DESCRIPTOR_CALLS(X) DNN_CONVOLUTION_CALLS(X) DNN_NORM_CALLS(X) DNN_GRAPH_CALLS(X)

#endif /* DNN_API_H_ */
