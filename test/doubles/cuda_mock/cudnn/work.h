/* work.h: shared by the files of the mock of cuDNN: the objects of its handles, and a computation in progress. */
#ifndef CUDNN_WORK_H_
#define CUDNN_WORK_H_

#include <stdatomic.h>

#include "dnn_api.h"
#include "vendor.h"

#define API __attribute__((visibility("default")))
enum { DIMS = 5, SPATIAL = DIMS - 2 };

struct cudnnContext {
  int magic;
  atomic_int users; /* only one thread may use a handle at a time */
  CUstream stream;
};

struct cudnnTensorStruct {
  cudnnDataType_t type;
  int ndim, sizes[DIMS], strides[DIMS]; /* 0 dimensions: not set */
};

struct cudnnFilterStruct {
  struct cudnnTensorStruct dense;
  cudnnTensorFormat_t format;
};

struct cudnnConvolutionStruct {
  int spatial, pad[SPATIAL], step[SPATIAL], dilation[SPATIAL], groups;
  cudnnConvolutionMode_t mode;
  cudnnDataType_t compute;
  cudnnMathType_t math;
};

/* The computed image of a convolution, one of three. */
typedef enum target_e { TARGET_SMALL, TARGET_LARGE, TARGET_FILTER } target_e;

typedef struct work_s {
  void (*compute)(const struct work_s *work);
  struct cudnnTensorStruct tensors[3]; /* of a convolution: large, small, filter; else input, result, channels */
  struct cudnnConvolutionStruct convolution;
  target_e target;
  int rounds, approximates; /* to TF32; like an algorithm that is not deterministic */
  void *data[3];
  void *workspace;
  size_t workspace_bytes;
  double alpha, beta, momentum, eps;
  const void *scale, *bias, *grad, *mean, *spread; /* spread: a variance, or 1 / deviation where it was saved */
  void *saved_mean, *saved_rstd, *running_mean, *running_var, *dscale, *dbias;
  int again;               /* it runs more than once */
  struct graph_run_s *run; /* of a graph (backend.h) */
} work_t;

/* The dimension at a position of a dense tensor, the innermost one first. */
static inline int dimension_at(cudnnTensorFormat_t format, int ndim, int place) {
  if (format == CUDNN_TENSOR_NCHW) return ndim - 1 - place;
  return place == 0 ? 1 : place == ndim - 1 ? 0 : ndim - place;
}

/* The status that CUDNN_MOCK_REFUSES sets for a function, "name=status,...", else 0; with "name=status/spared"
   that number of calls succeed first. */
cudnnStatus_t refused(const char *function);

/* The number at a position of a tensor's memory. */
double load(const struct cudnnTensorStruct *tensor, const void *data, int64_t at);
void store(const struct cudnnTensorStruct *tensor, void *data, int64_t at, double value);
int64_t count_of(const struct cudnnTensorStruct *tensor);
/* The position in memory of the element with that number, counted in C order. */
int64_t place_of(const struct cudnnTensorStruct *tensor, int64_t number);

/* Returns whether it is dense in that order; the stride of a dimension of size 1 is ignored. */
int lies_as(const struct cudnnTensorStruct *tensor, cudnnTensorFormat_t format);

/* The value of alpha and beta. */
double factor(cudnnDataType_t type, const void *value);

/* Queues a copy of the work on the handle's stream. */
cudnnStatus_t queue_work(cudnnHandle_t handle, const work_t *work);

#endif /* CUDNN_WORK_H_ */
