/* convolution.c: convolutions of the mock of cuDNN. Its heuristics include algorithms that the plugin must not use:
 * one that is not deterministic, one on tensor cores, and one whose workspace is larger than most devices' memory. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "work.h"

#define DECLARE(name, result, parameters) API result name parameters;
DNN_CONVOLUTION_CALLS(DECLARE)

/* Algorithms, in the order of the heuristics. */
enum { HUGE_WORKSPACE = 5, UNSTEADY = 0, TENSOR_CORES = 1, PLAIN = 2 };
static const struct {
  unsigned algorithm;
  size_t workspace;
  cudnnMathType_t math;
  cudnnDeterminism_t determinism;
} advice[] = {{HUGE_WORKSPACE, (size_t)1 << 40, CUDNN_FMA_MATH, CUDNN_DETERMINISTIC},
              {UNSTEADY, 0, CUDNN_FMA_MATH, CUDNN_NON_DETERMINISTIC},
              {TENSOR_CORES, 2048, CUDNN_TENSOR_OP_MATH, CUDNN_DETERMINISTIC},
              {PLAIN, 1024, CUDNN_DEFAULT_MATH, CUDNN_DETERMINISTIC}};
enum { ADVICES = sizeof advice / sizeof *advice };

/* ---- compatibility of operands ---- */

static cudnnStatus_t check(const struct cudnnTensorStruct *large, const struct cudnnTensorStruct *small,
                           const struct cudnnFilterStruct *filter, const struct cudnnConvolutionStruct *convolution) {
  const struct cudnnTensorStruct *const w = &filter->dense;
  const int wide = w->type == CUDNN_DATA_DOUBLE;
  if (convolution->spatial + 2 != w->ndim || large->ndim != w->ndim || small->ndim != w->ndim)
    return CUDNN_STATUS_BAD_PARAM;
  if (large->sizes[0] != small->sizes[0] || w->sizes[0] != small->sizes[1] || small->sizes[1] % convolution->groups ||
      w->sizes[1] * convolution->groups != large->sizes[1])
    return CUDNN_STATUS_BAD_PARAM;
  for (int i = 0; i < convolution->spatial; i++) {
    const int reach = convolution->dilation[i] * (w->sizes[i + 2] - 1) + 1;
    const int room = large->sizes[i + 2] + 2 * convolution->pad[i] - reach;
    if (room < 0 || room / convolution->step[i] + 1 != small->sizes[i + 2]) return CUDNN_STATUS_BAD_PARAM;
  }
  if (large->type != w->type || small->type != w->type || convolution->mode != CUDNN_CROSS_CORRELATION ||
      convolution->compute != (wide ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT))
    return CUDNN_STATUS_NOT_SUPPORTED;
  if (!lies_as(large, filter->format) || !lies_as(small, filter->format)) return CUDNN_STATUS_NOT_SUPPORTED;
  return w->type == (cudnnDataType_t)vendor_setting("CUDNN_MOCK_LACKS", -1) ? CUDNN_STATUS_NOT_SUPPORTED
                                                                            : CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t advise(const char *function, cudnnStatus_t code, int room, int *count,
                            cudnnConvolutionFwdAlgoPerf_t *found) {
  *count = 0;
  if (!code) code = refused(function);
  if (code) return code;
  for (int i = 0; i < ADVICES && i < room; i++)
    found[(*count)++] = (cudnnConvolutionFwdAlgoPerf_t){.algo = advice[i].algorithm,
                                                        .time = (float)i,
                                                        .memory = advice[i].workspace,
                                                        .determinism = advice[i].determinism,
                                                        .mathType = advice[i].math};
  return CUDNN_STATUS_SUCCESS;
}

static int advice_of(unsigned algorithm) {
  int i = 0;
  while (i < ADVICES && advice[i].algorithm != algorithm) i++;
  return i;
}

static cudnnStatus_t measure(cudnnStatus_t code, unsigned algorithm, size_t *bytes) {
  const int index = advice_of(algorithm);
  if (!code && index == ADVICES) code = CUDNN_STATUS_BAD_PARAM;
  if (!code) *bytes = advice[index].workspace;
  return code;
}

cudnnStatus_t cudnnGetConvolutionForwardAlgorithm_v7(cudnnHandle_t handle, cudnnTensorDescriptor_t x,
                                                     cudnnFilterDescriptor_t w,
                                                     cudnnConvolutionDescriptor_t convolution,
                                                     cudnnTensorDescriptor_t y, int room, int *count,
                                                     cudnnConvolutionFwdAlgoPerf_t *found) {
  return advise(__func__, handle ? check(x, y, w, convolution) : CUDNN_STATUS_BAD_PARAM, room, count, found);
}

cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithm_v7(cudnnHandle_t handle, cudnnFilterDescriptor_t w,
                                                          cudnnTensorDescriptor_t dy,
                                                          cudnnConvolutionDescriptor_t convolution,
                                                          cudnnTensorDescriptor_t dx, int room, int *count,
                                                          cudnnConvolutionBwdDataAlgoPerf_t *found) {
  return advise(__func__, handle ? check(dx, dy, w, convolution) : CUDNN_STATUS_BAD_PARAM, room, count, found);
}

cudnnStatus_t cudnnGetConvolutionBackwardFilterAlgorithm_v7(cudnnHandle_t handle, cudnnTensorDescriptor_t x,
                                                            cudnnTensorDescriptor_t dy,
                                                            cudnnConvolutionDescriptor_t convolution,
                                                            cudnnFilterDescriptor_t dw, int room, int *count,
                                                            cudnnConvolutionBwdFilterAlgoPerf_t *found) {
  return advise(__func__, handle ? check(x, dy, dw, convolution) : CUDNN_STATUS_BAD_PARAM, room, count, found);
}

cudnnStatus_t cudnnGetConvolutionForwardWorkspaceSize(cudnnHandle_t handle, cudnnTensorDescriptor_t x,
                                                      cudnnFilterDescriptor_t w,
                                                      cudnnConvolutionDescriptor_t convolution,
                                                      cudnnTensorDescriptor_t y, cudnnConvolutionFwdAlgo_t algorithm,
                                                      size_t *bytes) {
  return measure(handle ? check(x, y, w, convolution) : CUDNN_STATUS_BAD_PARAM, algorithm, bytes);
}

cudnnStatus_t cudnnGetConvolutionBackwardDataWorkspaceSize(cudnnHandle_t handle, cudnnFilterDescriptor_t w,
                                                           cudnnTensorDescriptor_t dy,
                                                           cudnnConvolutionDescriptor_t convolution,
                                                           cudnnTensorDescriptor_t dx,
                                                           cudnnConvolutionBwdDataAlgo_t algorithm, size_t *bytes) {
  return measure(handle ? check(dx, dy, w, convolution) : CUDNN_STATUS_BAD_PARAM, algorithm, bytes);
}

cudnnStatus_t cudnnGetConvolutionBackwardFilterWorkspaceSize(cudnnHandle_t handle, cudnnTensorDescriptor_t x,
                                                             cudnnTensorDescriptor_t dy,
                                                             cudnnConvolutionDescriptor_t convolution,
                                                             cudnnFilterDescriptor_t dw,
                                                             cudnnConvolutionBwdFilterAlgo_t algorithm, size_t *bytes) {
  return measure(handle ? check(x, dy, dw, convolution) : CUDNN_STATUS_BAD_PARAM, algorithm, bytes);
}

/* ---- computation ---- */

/* The number of bits of a float32 that tensor cores use. */
static double as_tf32(double value) {
  int exponent = 0;
  const double mantissa = frexp(value, &exponent);
  return isfinite(value) ? ldexp(nearbyint(mantissa * 2048) / 2048, exponent) : value;
}

/* The numbers of a dense tensor, in memory order. */
static double *numbers_of(const work_t *work, int index) {
  const int64_t elements = count_of(&work->tensors[index]);
  double *const numbers = malloc((size_t)elements * sizeof *numbers);
  if (!numbers) abort();
  for (int64_t i = 0; i < elements; i++) {
    const double number = load(&work->tensors[index], work->data[index], i);
    numbers[i] = work->rounds ? as_tf32(number) : number;
  }
  return numbers;
}

/* A line of windows: batch, the filter's two channels, the position in the window, and all dimensions of the small
   image except the last. */
enum { LINE = 3 + SPATIAL + SPATIAL - 1 };

/* The sum of a line: where it begins in the three. Returns 0 if it is in the padding. */
static int places_of(const work_t *work, const int at[LINE], int64_t places[3]) {
  const struct cudnnConvolutionStruct *const c = &work->convolution;
  const struct cudnnTensorStruct *const x = &work->tensors[0], *const y = &work->tensors[1],
                                        *const w = &work->tensors[2];
  const int per_group = y->sizes[1] / c->groups, channel = at[1] / per_group * w->sizes[1] + at[2];
  places[0] = (int64_t)at[0] * x->strides[0] + (int64_t)channel * x->strides[1];
  places[1] = (int64_t)at[0] * y->strides[0] + (int64_t)at[1] * y->strides[1];
  places[2] = (int64_t)at[1] * w->strides[0] + (int64_t)at[2] * w->strides[1];
  for (int i = 0; i < c->spatial; i++) {
    const int last = i + 1 == c->spatial, window = at[3 + i], out = last ? 0 : at[3 + SPATIAL + i];
    const int in = out * c->step[i] - c->pad[i] + window * c->dilation[i];
    if (!last && (in < 0 || in >= x->sizes[i + 2])) return 0;
    places[0] += (int64_t)in * x->strides[i + 2];
    places[1] += (int64_t)out * y->strides[i + 2];
    places[2] += (int64_t)window * w->strides[i + 2];
  }
  return 1;
}

/* Adds the products of a line to the computed tensor, one of the three. */
static void add_line(const work_t *work, const int at[LINE], const int64_t places[3], double *const numbers[3],
                     int target) {
  const struct cudnnConvolutionStruct *const c = &work->convolution;
  const struct cudnnTensorStruct *const x = &work->tensors[0], *const y = &work->tensors[1];
  const int last = c->spatial - 1, window = at[3 + last];
  double *const x0 = numbers[0] + places[0], *const y0 = numbers[1] + places[1], *const w0 = numbers[2] + places[2];
  for (int out = 0; out < y->sizes[last + 2]; out++) {
    const int in = out * c->step[last] - c->pad[last] + window * c->dilation[last];
    if (in < 0 || in >= x->sizes[last + 2]) continue;
    double *const a = x0 + (int64_t)out * c->step[last] * x->strides[last + 2];
    double *const b = y0 + (int64_t)out * y->strides[last + 2];
    if (target == 0) *a += *b * *w0;
    if (target == 1) *b += *a * *w0;
    if (target == 2) *w0 += *a * *b;
  }
}

static void convolve(const work_t *work) {
  const struct cudnnTensorStruct *const x = &work->tensors[0], *const y = &work->tensors[1],
                                        *const w = &work->tensors[2];
  const int target = work->target == TARGET_LARGE ? 0 : work->target == TARGET_SMALL ? 1 : 2;
  const int64_t elements = count_of(&work->tensors[target]);
  int sizes[LINE] = {x->sizes[0], y->sizes[1], w->sizes[1], 1, 1, 1, 1, 1}, at[LINE] = {0};
  double *numbers[3];
  int64_t places[3];
  for (int i = 0; i < 3; i++)
    numbers[i] = i == target ? calloc((size_t)elements, sizeof **numbers) : numbers_of(work, i);
  if (!numbers[target]) abort();
  for (int i = 0; i < work->convolution.spatial; i++) {
    sizes[3 + i] = w->sizes[i + 2];
    if (i + 1 < work->convolution.spatial) sizes[3 + SPATIAL + i] = y->sizes[i + 2];
  }
  for (int dim = 0; dim >= 0;) {
    if (places_of(work, at, places)) add_line(work, at, places, numbers, target);
    for (dim = LINE - 1; dim >= 0 && ++at[dim] == sizes[dim]; dim--) at[dim] = 0;
  }
  for (int64_t i = 0; i < elements; i++) {
    const double sum = work->alpha * numbers[target][i] * (work->approximates ? 1.02 : 1);
    const double old = work->beta != 0 ? work->beta * load(&work->tensors[target], work->data[target], i) : 0;
    store(&work->tensors[target], work->data[target], i, sum + old);
  }
  for (int i = 0; i < 3; i++) free(numbers[i]);
}

/* ---- calls ---- */

static cudnnStatus_t call(const char *function, cudnnHandle_t handle, cudnnStatus_t code, unsigned algorithm,
                          size_t room, work_t *work) {
  const int index = advice_of(algorithm), is_float = work->tensors[2].type == CUDNN_DATA_FLOAT;
  if (!code) code = refused(function);
  if (code) return code;
  if (index == ADVICES || room < advice[index].workspace || (advice[index].workspace && !work->workspace))
    return CUDNN_STATUS_BAD_PARAM;
  for (int i = 0; i < 3; i++)
    if (!work->data[i]) return CUDNN_STATUS_BAD_PARAM;
  if (advice[index].math == CUDNN_TENSOR_OP_MATH && work->convolution.math != CUDNN_TENSOR_OP_MATH)
    return CUDNN_STATUS_NOT_SUPPORTED;
  work->compute = convolve;
  work->workspace_bytes = advice[index].workspace;
  work->rounds = is_float && work->convolution.math != CUDNN_FMA_MATH; /* the default also allows TF32 */
  work->approximates = advice[index].determinism == CUDNN_NON_DETERMINISTIC;
  return queue_work(handle, work);
}

/* The three tensors, with the names that all three functions use; `x` and so on are the memory of large, small and
   filter. */
#define CONVOLVE(x_descriptor, x, y_descriptor, y, w_descriptor, w, is)                                  \
  work_t work = {.tensors = {*(x_descriptor), *(y_descriptor), (w_descriptor)->dense},                   \
                 .convolution = *convolution,                                                            \
                 .target = (is),                                                                         \
                 .data = {(void *)(uintptr_t)(x), (void *)(uintptr_t)(y), (void *)(uintptr_t)(w)},       \
                 .workspace = workspace,                                                                 \
                 .alpha = factor((x_descriptor)->type, alpha),                                           \
                 .beta = factor((x_descriptor)->type, beta)};                                            \
  return call(__func__, handle, check(x_descriptor, y_descriptor, w_descriptor, convolution), algorithm, \
              workspace_bytes, &work)

cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t handle, const void *alpha, cudnnTensorDescriptor_t x_descriptor,
                                      const void *x, cudnnFilterDescriptor_t w_descriptor, const void *w,
                                      cudnnConvolutionDescriptor_t convolution, cudnnConvolutionFwdAlgo_t algorithm,
                                      void *workspace, size_t workspace_bytes, const void *beta,
                                      cudnnTensorDescriptor_t y_descriptor, void *y) {
  CONVOLVE(x_descriptor, x, y_descriptor, y, w_descriptor, w, TARGET_SMALL);
}

cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t handle, const void *alpha,
                                           cudnnFilterDescriptor_t w_descriptor, const void *w,
                                           cudnnTensorDescriptor_t dy_descriptor, const void *dy,
                                           cudnnConvolutionDescriptor_t convolution,
                                           cudnnConvolutionBwdDataAlgo_t algorithm, void *workspace,
                                           size_t workspace_bytes, const void *beta,
                                           cudnnTensorDescriptor_t dx_descriptor, void *dx) {
  CONVOLVE(dx_descriptor, dx, dy_descriptor, dy, w_descriptor, w, TARGET_LARGE);
}

cudnnStatus_t cudnnConvolutionBackwardFilter(cudnnHandle_t handle, const void *alpha,
                                             cudnnTensorDescriptor_t x_descriptor, const void *x,
                                             cudnnTensorDescriptor_t dy_descriptor, const void *dy,
                                             cudnnConvolutionDescriptor_t convolution,
                                             cudnnConvolutionBwdFilterAlgo_t algorithm, void *workspace,
                                             size_t workspace_bytes, const void *beta,
                                             cudnnFilterDescriptor_t dw_descriptor, void *dw) {
  CONVOLVE(x_descriptor, x, dy_descriptor, dy, dw_descriptor, dw, TARGET_FILTER);
}

/* ---- biases ---- */

/* One number for each channel, of the type of the image. */
static int is_bias(const struct cudnnTensorStruct *bias, const struct cudnnTensorStruct *image) {
  int fits = bias->ndim == image->ndim && bias->type == image->type && bias->strides[1] == 1;
  for (int i = 0; i < bias->ndim; i++) fits &= bias->sizes[i] == (i == 1 ? image->sizes[1] : 1);
  return fits;
}

static int64_t channel_of(const struct cudnnTensorStruct *image, int64_t number) {
  for (int i = image->ndim - 1; i > 1; i--) number /= image->sizes[i];
  return number % image->sizes[1];
}

/* Adds a tensor whose dimensions of size 1 repeat; operands multiplied by zero are not read. */
static void add(const work_t *work) {
  const struct cudnnTensorStruct *const image = &work->tensors[1];
  struct cudnnTensorStruct from = work->tensors[2];
  for (int i = 0; i < from.ndim; i++) {
    if (from.sizes[i] == 1) from.strides[i] = 0;
    from.sizes[i] = image->sizes[i];
  }
  for (int64_t i = 0; i < count_of(image); i++) {
    const int64_t at = place_of(image, i);
    const double old = work->beta != 0 ? work->beta * load(image, work->data[1], at) : 0;
    store(image, work->data[1], at, old + work->alpha * load(&from, work->bias, place_of(&from, i)));
  }
}

static void sum_bias(const work_t *work) {
  const struct cudnnTensorStruct *const image = &work->tensors[1], *const bias = &work->tensors[2];
  double *const sums = calloc((size_t)image->sizes[1], sizeof *sums);
  if (!sums) abort();
  for (int64_t i = 0; i < count_of(image); i++)
    sums[channel_of(image, i)] += load(image, work->grad, place_of(image, i));
  for (int64_t c = 0; c < image->sizes[1]; c++) store(bias, work->dbias, c, work->alpha * sums[c]);
  free(sums);
}

static cudnnStatus_t queue_sum(const char *function, cudnnHandle_t handle, const void *alpha,
                               cudnnTensorDescriptor_t from_descriptor, const void *from, const void *beta,
                               cudnnTensorDescriptor_t to_descriptor, void *to) {
  const work_t work = {.compute = add,
                       .tensors = {*to_descriptor, *to_descriptor, *from_descriptor},
                       .data = {NULL, to, NULL},
                       .bias = from,
                       .alpha = factor(to_descriptor->type, alpha),
                       .beta = factor(to_descriptor->type, beta)};
  const cudnnStatus_t code = refused(function);
  if (code) return code;
  if (!from || !to || from_descriptor->type != to_descriptor->type || from_descriptor->ndim != to_descriptor->ndim)
    return CUDNN_STATUS_BAD_PARAM;
  for (int i = 0; i < to_descriptor->ndim; i++)
    if (from_descriptor->sizes[i] != 1 && from_descriptor->sizes[i] != to_descriptor->sizes[i])
      return CUDNN_STATUS_NOT_SUPPORTED;
  return queue_work(handle, &work);
}

cudnnStatus_t cudnnAddTensor(cudnnHandle_t handle, const void *alpha, cudnnTensorDescriptor_t from_descriptor,
                             const void *from, const void *beta, cudnnTensorDescriptor_t to_descriptor, void *to) {
  return queue_sum(__func__, handle, alpha, from_descriptor, from, beta, to_descriptor, to);
}

cudnnStatus_t cudnnTransformTensor(cudnnHandle_t handle, const void *alpha, cudnnTensorDescriptor_t from_descriptor,
                                   const void *from, const void *beta, cudnnTensorDescriptor_t to_descriptor,
                                   void *to) {
  for (int i = 0; i < to_descriptor->ndim; i++)
    if (from_descriptor->sizes[i] != to_descriptor->sizes[i]) return CUDNN_STATUS_BAD_PARAM;
  return queue_sum(__func__, handle, alpha, from_descriptor, from, beta, to_descriptor, to);
}

cudnnStatus_t cudnnConvolutionBackwardBias(cudnnHandle_t handle, const void *alpha,
                                           cudnnTensorDescriptor_t dy_descriptor, const void *dy, const void *beta,
                                           cudnnTensorDescriptor_t db_descriptor, void *db) {
  const work_t work = {.compute = sum_bias,
                       .tensors = {*dy_descriptor, *dy_descriptor, *db_descriptor},
                       .grad = dy,
                       .dbias = db,
                       .alpha = factor(dy_descriptor->type, alpha)};
  const cudnnStatus_t code = refused(__func__);
  if (code) return code;
  if (!is_bias(db_descriptor, dy_descriptor) || !dy || !db || factor(dy_descriptor->type, beta) != 0)
    return CUDNN_STATUS_BAD_PARAM;
  return queue_work(handle, &work);
}
