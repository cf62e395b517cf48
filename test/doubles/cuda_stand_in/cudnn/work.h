/* work.h: what the files of the stand-in for cuDNN share: what its handles point at, and a computation on its way. */
#ifndef CUDNN_WORK_H_
#define CUDNN_WORK_H_

#include <stdatomic.h>

#include "dnn_api.h"
#include "vendor.h"

#define API __attribute__((visibility("default")))
enum { DIMS = 5, SPATIAL = DIMS - 2 };

struct cudnnContext {
  int magic;
  atomic_int users; /* a handle is one thread's at a time */
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

/* Which of the three images of a convolution is computed. */
typedef enum target_e { TARGET_SMALL, TARGET_LARGE, TARGET_FILTER } target_e;

typedef struct work_s {
  void (*compute)(const struct work_s *work);
  struct cudnnTensorStruct tensors[3]; /* of a convolution: large, small, filter; else input, result, channels */
  struct cudnnConvolutionStruct convolution;
  target_e target;
  int rounds, approximates; /* to TF32; as an algorithm whose sums are not the same each time */
  void *data[3];
  void *workspace;
  size_t workspace_bytes;
  double alpha, beta, momentum, eps;
  const void *scale, *bias, *grad, *mean, *spread; /* spread: a variance, or 1 / deviation where it was saved */
  void *saved_mean, *saved_rstd, *running_mean, *running_var, *dscale, *dbias;
  int again;               /* it runs more than once */
  struct graph_run_s *run; /* of a graph (backend.h) */
} work_t;

/* The dimension at a place of a dense tensor, the innermost one first. */
static inline int dimension_at(cudnnTensorFormat_t format, int ndim, int place) {
  if (format == CUDNN_TENSOR_NCHW) return ndim - 1 - place;
  return place == 0 ? 1 : place == ndim - 1 ? 0 : ndim - place;
}

/* The status that CUDNN_STAND_IN_REFUSES says for a function, "name=status,...", else 0; "name=status/spared": so many of its calls go well before. */
cudnnStatus_t refused(const char *function);

/* The number at a place of a tensor's memory. */
double load(const struct cudnnTensorStruct *tensor, const void *data, int64_t at);
void store(const struct cudnnTensorStruct *tensor, void *data, int64_t at, double value);
int64_t count_of(const struct cudnnTensorStruct *tensor);
/* The place in memory of the element with that number, counted in C order. */
int64_t place_of(const struct cudnnTensorStruct *tensor, int64_t number);

/* Whether it lies densely in that order; the stride of a dimension of size 1 is that of a dense one, too. */
int lies_as(const struct cudnnTensorStruct *tensor, cudnnTensorFormat_t format);

/* What alpha and beta point at. */
double factor(cudnnDataType_t type, const void *value);

/* Queues a copy of the work on the handle's stream. */
cudnnStatus_t queue_work(cudnnHandle_t handle, const work_t *work);

#endif /* CUDNN_WORK_H_ */
