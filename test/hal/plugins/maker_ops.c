/* maker_ops.c: operators whose results ATen's meta functions describe: see maker.c. They compute in double, element
 * by element, on the calling thread. */
#include <math.h>
#include <stdlib.h>

#include "maker.h"

/* input, weight, bias, stride, padding, dilation, transposed, output_padding, groups; images only */
static hal_status_t convolution(const hal_op_call_t *call) {
  const hal_tensor_t *x = tensor_at(call, 0), *w = tensor_at(call, 1), *b = tensor_at(call, 2), *y = call->results[0];
  const int64_t groups = call->args[8].u.i;
  if (x->ndim != 4 || call->args[6].u.i) return HAL_UNIMPLEMENTED;
  const int64_t depth = w->sizes[1], outputs = w->sizes[0] / groups;
  int64_t at[DIMS] = {0};
  do {
    const int64_t group = at[1] / outputs;
    double sum = b ? load(b, &at[1]) : 0;
    for (int64_t c = 0; c < depth; c++)
      for (int64_t i = 0; i < w->sizes[2]; i++)
        for (int64_t j = 0; j < w->sizes[3]; j++) {
          const int64_t row = at[2] * pair_at(call, 3, 0, 1) - pair_at(call, 4, 0, 0) + i * pair_at(call, 5, 0, 1);
          const int64_t column = at[3] * pair_at(call, 3, 1, 1) - pair_at(call, 4, 1, 0) + j * pair_at(call, 5, 1, 1);
          if (row < 0 || row >= x->sizes[2] || column < 0 || column >= x->sizes[3]) continue;
          const int64_t from[] = {at[0], group * depth + c, row, column}, by[] = {at[1], c, i, j};
          sum += load(x, from) * load(w, by);
        }
    store(y, at, sum);
  } while (advance(y, at));
  return HAL_OK;
}

/* self, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override */
static hal_status_t avg_pool2d(const hal_op_call_t *call) {
  const hal_tensor_t *x = tensor_at(call, 0), *y = call->results[0];
  if (x->ndim != 4 || call->args[6].tag != HAL_VALUE_NONE) return HAL_UNIMPLEMENTED;
  int64_t at[DIMS] = {0};
  do {
    double sum = 0;
    int64_t inside = 1, all = 1, first[2], last[2];
    for (int d = 0; d < 2; d++) {
      const int64_t size = pair_at(call, 1, d, 1), pad = pair_at(call, 3, d, 0), length = x->sizes[2 + d];
      const int64_t begin = at[2 + d] * pair_at(call, 2, d, size) - pad;
      const int64_t end = begin + size < length + pad ? begin + size : length + pad;
      first[d] = begin > 0 ? begin : 0;
      last[d] = end < length ? end : length;
      inside *= last[d] - first[d];
      all *= end - begin;
    }
    for (int64_t i = first[0]; i < last[0]; i++)
      for (int64_t j = first[1]; j < last[1]; j++) {
        const int64_t from[] = {at[0], at[1], i, j};
        sum += load(x, from);
      }
    store(y, at, sum / (double)(call->args[5].u.i ? all : inside));
  } while (advance(y, at));
  return HAL_OK;
}

/* tensors, dim */
static hal_status_t cat(const hal_op_call_t *call) {
  const hal_value_t *list = &call->args[0];
  const hal_tensor_t *y = call->results[0];
  const int64_t dim = call->args[1].u.i < 0 ? call->args[1].u.i + y->ndim : call->args[1].u.i;
  int64_t begin = 0;
  for (uint32_t i = 0; i < list->count; i++) {
    const hal_tensor_t *x = list->u.tl[i];
    if (x->ndim != y->ndim || !computes(x)) return HAL_UNIMPLEMENTED;
  }
  for (uint32_t i = 0; i < list->count; i++) {
    const hal_tensor_t *x = list->u.tl[i];
    int64_t at[DIMS] = {0};
    if (count_of(x)) do {
        int64_t to[DIMS];
        memcpy(to, at, sizeof to);
        to[dim] += begin;
        store(y, to, load(x, at));
      } while (advance(x, at));
    begin += x->sizes[dim];
  }
  return HAL_OK;
}

/* Rows of `n` elements each; channels of the weight change every `places` elements and repeat after `channels` of
   them. */
static void normalise(const hal_op_call_t *call, const hal_tensor_t *w, const hal_tensor_t *b, double eps, int64_t n,
                      int64_t places, int64_t channels) {
  const hal_tensor_t *x = tensor_at(call, 0), *y = call->results[0];
  int64_t at[DIMS];
  for (int64_t row = 0; row < count_of(x) / n; row++) {
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < n; i++) unravel(x, row * n + i, at), sum += load(x, at);
    for (int64_t i = 0; i < n; i++) unravel(x, row * n + i, at), squares += pow(load(x, at) - sum / (double)n, 2);
    const double mean = sum / (double)n, rstd = 1 / sqrt(squares / (double)n + eps);
    for (int64_t i = 0; i < n; i++) {
      int64_t channel[DIMS];
      unravel(x, row * n + i, at);
      if (w || b) unravel(w ? w : b, (row * n + i) / places % channels, channel);
      store(y, at, (load(x, at) - mean) * rstd * (w ? load(w, channel) : 1) + (b ? load(b, channel) : 0));
    }
    unravel(call->results[1], row, at);
    store(call->results[1], at, mean);
    store(call->results[2], at, rstd);
  }
}

/* input, weight, bias, N, C, HxW, group, eps */
static hal_status_t native_group_norm(const hal_op_call_t *call) {
  const int64_t channels = call->args[4].u.i, places = call->args[5].u.i, groups = call->args[6].u.i;
  normalise(call, tensor_at(call, 1), tensor_at(call, 2), call->args[7].u.d, channels / groups * places, places,
            channels);
  return HAL_OK;
}

/* input, weight, bias, eps, normalized_shape */
static hal_status_t native_layer_norm(const hal_op_call_t *call) {
  int64_t n = 1;
  for (uint32_t d = 0; d < call->args[4].count; d++) n *= call->args[4].u.il[d];
  normalise(call, tensor_at(call, 1), tensor_at(call, 2), call->args[3].u.d, n, 1, n);
  return HAL_OK;
}

/* self, dim */
static hal_status_t cumsum(const hal_op_call_t *call) {
  const hal_tensor_t *x = tensor_at(call, 0), *y = call->results[0];
  const int64_t dim = call->args[1].u.i < 0 ? call->args[1].u.i + y->ndim : call->args[1].u.i;
  int64_t at[DIMS] = {0};
  if (y->ndim == 0 || count_of(y) == 0) return HAL_UNIMPLEMENTED;
  do {
    double sum = 0;
    int64_t from[DIMS];
    memcpy(from, at, sizeof from);
    for (from[dim] = 0; from[dim] <= at[dim]; from[dim]++) sum += load(x, from);
    store(y, at, sum);
  } while (advance(y, at));
  return HAL_OK;
}

/* self, padding */
static hal_status_t reflection_pad1d(const hal_op_call_t *call) {
  const hal_tensor_t *x = tensor_at(call, 0), *y = call->results[0];
  const int64_t last = x->sizes[x->ndim - 1] - 1;
  int64_t at[DIMS] = {0};
  do {
    int64_t from[DIMS];
    memcpy(from, at, sizeof from);
    int64_t place = llabs(at[y->ndim - 1] - call->args[1].u.il[0]);
    from[x->ndim - 1] = place > last ? 2 * last - place : place;
    store(y, at, load(x, from));
  } while (advance(y, at));
  return HAL_OK;
}

/* self, dim: a list, or nothing for all; the sizes of the result show which dimensions are kept */
static hal_status_t sum(const hal_op_call_t *call) {
  const hal_tensor_t *x = tensor_at(call, 0), *y = call->results[0];
  const hal_value_t *dims = &call->args[1];
  const int all = dims->tag == HAL_VALUE_NONE || dims->count == 0, kept = x->ndim == y->ndim;
  int reduced[DIMS] = {0};
  for (int32_t d = 0; d < x->ndim; d++) reduced[d] = all;
  for (uint32_t i = 0; !all && i < dims->count; i++)
    reduced[dims->u.il[i] < 0 ? dims->u.il[i] + x->ndim : dims->u.il[i]] = 1;
  int64_t to[DIMS] = {0};
  do {
    double total = 0;
    int64_t from[DIMS] = {0};
    do {
      int same = 1;
      for (int32_t d = 0, k = 0; d < x->ndim; d++) {
        if (!reduced[d]) same &= from[d] == to[k];
        k += kept || !reduced[d];
      }
      if (same) total += load(x, from);
    } while (advance(x, from));
    store(y, to, total);
  } while (advance(y, to));
  return HAL_OK;
}

/* self, grads, momentum_buffer_list, weight_decay, momentum, lr, ...; only the plain step */
static hal_status_t fused_sgd(const hal_op_call_t *call) {
  const hal_value_t *parameters = &call->args[0], *gradients = &call->args[1];
  if (call->args[2].count || call->args[3].u.d != 0 || call->args[8].u.i || call->args[10].tag || call->args[11].tag)
    return HAL_UNIMPLEMENTED;
  for (uint32_t i = 0; i < parameters->count; i++) {
    int64_t at[DIMS] = {0};
    do store(call->results[i], at, load(parameters->u.tl[i], at) - call->args[5].u.d * load(gradients->u.tl[i], at));
    while (advance(call->results[i], at));
  }
  return HAL_OK;
}

/* self, other (a tensor or a number), alpha: operands in the result's shape, each in its dtype */
static hal_status_t add(const hal_op_call_t *call) {
  const hal_tensor_t *a = tensor_at(call, 0), *b = tensor_at(call, 1), *y = call->results[0];
  const hal_value_t *number = &call->args[1], *alpha = &call->args[2];
  const double factor = alpha->tag == HAL_VALUE_DOUBLE ? alpha->u.d : (double)alpha->u.i;
  int64_t at[DIMS] = {0};
  if (!a) return HAL_UNIMPLEMENTED;
  do {
    const double other = b ? load(b, at) : number->tag == HAL_VALUE_DOUBLE ? number->u.d : (double)number->u.i;
    store(y, at, load(a, at) + factor * other);
  } while (advance(y, at));
  return HAL_OK;
}

static hal_status_t relu(const hal_op_call_t *call) {
  const hal_tensor_t *x = tensor_at(call, 0), *y = call->results[0];
  int64_t at[DIMS] = {0};
  do store(y, at, load(x, at) > 0 ? load(x, at) : 0);
  while (advance(y, at));
  return HAL_OK;
}

/* self; the largest of all elements */
static hal_status_t max(const hal_op_call_t *call) {
  const hal_tensor_t *x = tensor_at(call, 0);
  int64_t at[DIMS] = {0}, none[DIMS] = {0};
  double largest = -INFINITY;
  do largest = fmax(largest, load(x, at));
  while (advance(x, at));
  store(call->results[0], none, largest);
  return HAL_OK;
}

/* input, weight, bias, running_mean, running_var, training, momentum, eps; results: all three, and the running
   statistics. Training only; channels are dimension 1 */
static hal_status_t batch_norm(const hal_op_call_t *call) {
  const hal_tensor_t *x = tensor_at(call, 0), *w = tensor_at(call, 1), *b = tensor_at(call, 2);
  const double momentum = call->args[6].u.d, eps = call->args[7].u.d, n = (double)(count_of(x) / x->sizes[1]);
  if (!call->args[5].u.i || !w || !b || call->result_count != 5) return HAL_UNIMPLEMENTED;
  for (int64_t c = 0; c < x->sizes[1]; c++) {
    int64_t at[DIMS] = {0}, channel[DIMS] = {c};
    double sum = 0, squares = 0;
    do sum += at[1] == c ? load(x, at) : 0;
    while (advance(x, at));
    do squares += at[1] == c ? pow(load(x, at) - sum / n, 2) : 0;
    while (advance(x, at));
    const double mean = sum / n, rstd = 1 / sqrt(squares / n + eps);
    do
      if (at[1] == c) store(call->results[0], at, (load(x, at) - mean) * rstd * load(w, channel) + load(b, channel));
    while (advance(x, at));
    store(call->results[1], channel, mean);
    store(call->results[2], channel, rstd);
    const hal_tensor_t *means = call->results[3], *variances = call->results[4];
    store(means, channel, load(means, channel) * (1 - momentum) + mean * momentum);
    store(variances, channel, load(variances, channel) * (1 - momentum) + squares / (n - 1) * momentum);
  }
  return HAL_OK;
}

const maker_operator_t maker_operators[] = {
    {"convolution_overrideable", convolution},
    {"avg_pool2d", avg_pool2d},
    {"cat", cat},
    {"native_group_norm", native_group_norm},
    {"native_layer_norm", native_layer_norm},
    {"cumsum", cumsum},
    {"reflection_pad1d", reflection_pad1d},
    {"sum.dim_IntList", sum},
    {"_fused_sgd", fused_sgd},
    {"add.Tensor", add},
    {"relu", relu},
    {"max", max},
    {"_native_batch_norm_legit", batch_norm},
    {NULL, NULL},
};
