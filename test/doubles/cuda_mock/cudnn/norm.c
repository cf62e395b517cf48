/* norm.c: batch normalization of the mock of cuDNN: each channel by its definition, in double, rounded once. */
#include <math.h>

#include "work.h"

#define DECLARE(name, result, parameters) API result name parameters;
DNN_NORM_CALLS(DECLARE)

/* ---- compatibility of operands ---- */

/* A number for each channel: float64 for float64, else float32. */
static int are_channels(const struct cudnnTensorStruct *channels, const struct cudnnTensorStruct *image) {
  const cudnnDataType_t type = image->type == CUDNN_DATA_DOUBLE ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
  int fits = channels->ndim == image->ndim && channels->type == type && channels->strides[1] == 1;
  for (int i = 0; i < channels->ndim; i++) fits &= channels->sizes[i] == (i == 1 ? image->sizes[1] : 1);
  return fits;
}

static int are_alike(const struct cudnnTensorStruct *a, const struct cudnnTensorStruct *b) {
  int alike = a->ndim == b->ndim && a->type == b->type;
  for (int i = 0; i < a->ndim; i++) alike &= a->sizes[i] == b->sizes[i] && a->strides[i] == b->strides[i];
  return alike;
}

static cudnnStatus_t check(const char *function, cudnnBatchNormMode_t mode, const work_t *work) {
  const cudnnStatus_t code = refused(function);
  if (code) return code;
  if (mode != CUDNN_BATCHNORM_SPATIAL) return CUDNN_STATUS_NOT_SUPPORTED;
  if (work->alpha != 1 || work->beta != 0) return CUDNN_STATUS_NOT_SUPPORTED;
  if (!are_alike(&work->tensors[0], &work->tensors[1]) || !are_channels(&work->tensors[2], &work->tensors[0]))
    return CUDNN_STATUS_BAD_PARAM;
  if (!lies_as(&work->tensors[0], CUDNN_TENSOR_NCHW) && !lies_as(&work->tensors[0], CUDNN_TENSOR_NHWC))
    return CUDNN_STATUS_NOT_SUPPORTED;
  return work->scale && work->eps >= 0 ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
}

/* ---- computation ---- */

/* The numbers of a channel: the count of its elements, and the position of the one with that number. */
static int64_t count_in(const struct cudnnTensorStruct *image) { return count_of(image) / image->sizes[1]; }

/* In both orders, the spatial dimensions are treated as one. */
static int64_t place_in(const struct cudnnTensorStruct *image, int64_t channel, int64_t number) {
  const int64_t inner = count_in(image) / image->sizes[0];
  return number / inner * image->strides[0] + channel * image->strides[1] +
         number % inner * image->strides[image->ndim - 1];
}

static void measure(const work_t *work, int64_t channel, double *out_mean, double *out_variance) {
  const struct cudnnTensorStruct *const x = &work->tensors[0];
  const int64_t count = count_in(x);
  long double mean = 0, variance = 0;
  for (int64_t i = 0; i < count; i++) mean += load(x, work->data[0], place_in(x, channel, i));
  mean /= (long double)count;
  for (int64_t i = 0; i < count; i++) {
    const long double apart = load(x, work->data[0], place_in(x, channel, i)) - mean;
    variance += apart * apart;
  }
  *out_mean = (double)mean;
  *out_variance = (double)(variance / (long double)count);
}

static void normalise(const work_t *work, int64_t channel, double mean, double rstd) {
  const struct cudnnTensorStruct *const x = &work->tensors[0], *const c = &work->tensors[2];
  const double scale = load(c, work->scale, channel), bias = load(c, work->bias, channel);
  for (int64_t i = 0; i < count_in(x); i++) {
    const int64_t at = place_in(x, channel, i);
    store(x, work->data[1], at, (load(x, work->data[0], at) - mean) * rstd * scale + bias);
  }
}

static void evaluate(const work_t *work) {
  const struct cudnnTensorStruct *const c = &work->tensors[2];
  for (int64_t channel = 0; channel < c->sizes[1]; channel++)
    normalise(work, channel, load(c, work->mean, channel), 1 / sqrt(load(c, work->spread, channel) + work->eps));
}

static void blend(const work_t *work, void *running, int64_t channel, double now) {
  const struct cudnnTensorStruct *const c = &work->tensors[2];
  const double m = work->momentum;
  if (running) store(c, running, channel, m * now + (m == 1 ? 0 : (1 - m) * load(c, running, channel)));
}

static void train(const work_t *work) {
  const struct cudnnTensorStruct *const c = &work->tensors[2];
  const double count = (double)count_in(&work->tensors[0]);
  for (int64_t channel = 0; channel < c->sizes[1]; channel++) {
    double mean = 0, variance = 0;
    measure(work, channel, &mean, &variance);
    const double rstd = 1 / sqrt(variance + work->eps);
    normalise(work, channel, mean, rstd);
    blend(work, work->running_mean, channel, mean);
    blend(work, work->running_var, channel, variance * count / (count - 1));
    if (work->saved_mean) store(c, work->saved_mean, channel, mean);
    if (work->saved_rstd) store(c, work->saved_rstd, channel, rstd);
  }
}

static void differentiate(const work_t *work) {
  const struct cudnnTensorStruct *const x = &work->tensors[0], *const c = &work->tensors[2];
  const int64_t count = count_in(x);
  for (int64_t channel = 0; channel < c->sizes[1]; channel++) {
    const double mean = load(c, work->mean, channel), rstd = load(c, work->spread, channel);
    double sum = 0, along = 0; /* of the gradient, and of its product with the normalized input */
    for (int64_t i = 0; i < count; i++) {
      const int64_t at = place_in(x, channel, i);
      sum += load(x, work->grad, at);
      along += load(x, work->grad, at) * (load(x, work->data[0], at) - mean) * rstd;
    }
    const double scale = load(c, work->scale, channel) * rstd;
    for (int64_t i = 0; i < count; i++) {
      const int64_t at = place_in(x, channel, i);
      const double normal = (load(x, work->data[0], at) - mean) * rstd;
      store(x, work->data[1], at, scale * (load(x, work->grad, at) - (sum + normal * along) / (double)count));
    }
    store(c, work->dscale, channel, along);
    store(c, work->dbias, channel, sum);
  }
}

/* ---- calls ---- */

cudnnStatus_t cudnnBatchNormalizationForwardInference(cudnnHandle_t handle, cudnnBatchNormMode_t mode,
                                                      const void *alpha, const void *beta,
                                                      cudnnTensorDescriptor_t x_descriptor, const void *x,
                                                      cudnnTensorDescriptor_t y_descriptor, void *y,
                                                      cudnnTensorDescriptor_t channels, const void *scale,
                                                      const void *bias, const void *mean, const void *variance,
                                                      double eps) {
  const work_t work = {.compute = evaluate,
                       .tensors = {*x_descriptor, *y_descriptor, *channels},
                       .data = {(void *)(uintptr_t)x, y, NULL},
                       .alpha = factor(x_descriptor->type, alpha),
                       .beta = factor(x_descriptor->type, beta),
                       .eps = eps,
                       .scale = scale,
                       .bias = bias,
                       .mean = mean,
                       .spread = variance};
  const cudnnStatus_t code = check(__func__, mode, &work);
  if (code) return code;
  return x && y && bias && mean && variance ? queue_work(handle, &work) : CUDNN_STATUS_BAD_PARAM;
}

cudnnStatus_t cudnnBatchNormalizationForwardTraining(cudnnHandle_t handle, cudnnBatchNormMode_t mode, const void *alpha,
                                                     const void *beta, cudnnTensorDescriptor_t x_descriptor,
                                                     const void *x, cudnnTensorDescriptor_t y_descriptor, void *y,
                                                     cudnnTensorDescriptor_t channels, const void *scale,
                                                     const void *bias, double momentum, void *running_mean,
                                                     void *running_variance, double eps, void *saved_mean,
                                                     void *saved_rstd) {
  const work_t work = {.compute = train,
                       .tensors = {*x_descriptor, *y_descriptor, *channels},
                       .data = {(void *)(uintptr_t)x, y, NULL},
                       .alpha = factor(x_descriptor->type, alpha),
                       .beta = factor(x_descriptor->type, beta),
                       .eps = eps,
                       .momentum = momentum,
                       .scale = scale,
                       .bias = bias,
                       .running_mean = running_mean,
                       .running_var = running_variance,
                       .saved_mean = saved_mean,
                       .saved_rstd = saved_rstd};
  const cudnnStatus_t code = check(__func__, mode, &work);
  if (code) return code;
  if (!x || !y || !bias || !running_mean != !running_variance || !saved_mean != !saved_rstd)
    return CUDNN_STATUS_BAD_PARAM;
  return count_in(x_descriptor) > 1 ? queue_work(handle, &work) : CUDNN_STATUS_NOT_SUPPORTED;
}

cudnnStatus_t cudnnBatchNormalizationBackward(cudnnHandle_t handle, cudnnBatchNormMode_t mode, const void *alpha,
                                              const void *beta, const void *channels_alpha, const void *channels_beta,
                                              cudnnTensorDescriptor_t x_descriptor, const void *x,
                                              cudnnTensorDescriptor_t dy_descriptor, const void *dy,
                                              cudnnTensorDescriptor_t dx_descriptor, void *dx,
                                              cudnnTensorDescriptor_t channels, const void *scale, void *dscale,
                                              void *dbias, double eps, const void *saved_mean, const void *saved_rstd) {
  const work_t work = {.compute = differentiate,
                       .tensors = {*x_descriptor, *dx_descriptor, *channels},
                       .data = {(void *)(uintptr_t)x, dx, NULL},
                       .alpha = factor(x_descriptor->type, alpha),
                       .beta = factor(x_descriptor->type, beta),
                       .eps = eps,
                       .scale = scale,
                       .grad = dy,
                       .mean = saved_mean,
                       .spread = saved_rstd,
                       .dscale = dscale,
                       .dbias = dbias};
  const cudnnStatus_t code = check(__func__, mode, &work);
  if (code) return code;
  if (!are_alike(x_descriptor, dy_descriptor) || factor(x_descriptor->type, channels_alpha) != 1 ||
      factor(x_descriptor->type, channels_beta) != 0)
    return CUDNN_STATUS_NOT_SUPPORTED;
  return x && dy && dx && dscale && dbias && saved_mean && saved_rstd ? queue_work(handle, &work)
                                                                      : CUDNN_STATUS_BAD_PARAM;
}
