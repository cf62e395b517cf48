/* maker.c: a device with operators of its own, written against the installed header alone. Everything else - memory, streams, the
 * portable kernels - is another plugin's, whose file MAKER_BASE names. Each call that one of its operators sees is a line of JSON in
 * the file MAKER_LOG: what the user gave. MAKER_DECLINES lists operators, by commas, that decline every call; "*" means all.
 *
 * The operators compute in double, element by element, on the calling thread: the base runs in line (HAL_FAKE_ASYNC=0). */
#define _POSIX_C_SOURCE 200809L
#include <dlfcn.h>
#include <hal/plugin.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DIMS = 8 };

/* ---- elements ---- */

static int64_t offset_of(const hal_tensor_t *tensor, const int64_t *index) {
  int64_t offset = 0;
  for (int32_t d = 0; d < tensor->ndim; d++) offset += index[d] * tensor->strides[d];
  return offset;
}

static double load(const hal_tensor_t *tensor, const int64_t *index) {
  const int64_t at = offset_of(tensor, index);
  switch (tensor->dtype) {
    case HAL_FLOAT32:
      return ((const float *)tensor->data)[at];
    case HAL_FLOAT64:
      return ((const double *)tensor->data)[at];
    case HAL_INT64:
      return (double)((const int64_t *)tensor->data)[at];
    default: { /* bfloat16 */
      const uint32_t bits = (uint32_t)((const uint16_t *)tensor->data)[at] << 16;
      float number;
      memcpy(&number, &bits, sizeof number);
      return number;
    }
  }
}

static void store(const hal_tensor_t *tensor, const int64_t *index, double number) {
  const int64_t at = offset_of(tensor, index);
  switch (tensor->dtype) {
    case HAL_FLOAT32:
      ((float *)tensor->data)[at] = (float)number;
      break;
    case HAL_FLOAT64:
      ((double *)tensor->data)[at] = number;
      break;
    case HAL_INT64:
      ((int64_t *)tensor->data)[at] = (int64_t)number;
      break;
    default: { /* bfloat16, to the nearest even */
      const float single = (float)number;
      uint32_t bits;
      memcpy(&bits, &single, sizeof bits);
      ((uint16_t *)tensor->data)[at] = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
  }
}

static int computes(const hal_tensor_t *tensor) {
  return !tensor || tensor->dtype == HAL_FLOAT32 || tensor->dtype == HAL_FLOAT64 || tensor->dtype == HAL_INT64 ||
         tensor->dtype == HAL_BFLOAT16;
}

/* The next index in C order; 0 past the last one. */
static int advance(const hal_tensor_t *tensor, int64_t *index) {
  for (int32_t d = tensor->ndim - 1; d >= 0; d--) {
    if (++index[d] < tensor->sizes[d]) return 1;
    index[d] = 0;
  }
  return 0;
}

static int64_t count_of(const hal_tensor_t *tensor) {
  int64_t count = 1;
  for (int32_t d = 0; d < tensor->ndim; d++) count *= tensor->sizes[d];
  return count;
}

static const hal_tensor_t *tensor_at(const hal_op_call_t *call, uint32_t i) {
  return call->args[i].tag == HAL_VALUE_TENSOR ? call->args[i].u.t : NULL;
}
/* Lists of two numbers; an empty one is `missing`. */
static int64_t pair_at(const hal_op_call_t *call, uint32_t i, int d, int64_t missing) {
  const hal_value_t *value = &call->args[i];
  return value->count == 0 ? missing : value->u.il[value->count == 1 ? 0 : d];
}

/* ---- operators ---- */

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

/* Finds the index of element `i` in C order. */
static void unravel(const hal_tensor_t *tensor, int64_t i, int64_t *index) {
  for (int32_t d = tensor->ndim - 1; d >= 0; d--) {
    index[d] = i % tensor->sizes[d];
    i /= tensor->sizes[d];
  }
}

/* Rows of `n` elements each; channels of the weight change every `places` elements and repeat after `channels` of them. */
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

/* self, dim: a list, or nothing for all; the result says which of them are kept */
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

/* self, grads, momentum_buffer_list, weight_decay, momentum, lr, ...; the plain step alone */
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

/* input, weight, bias, running_mean, running_var, training, momentum, eps; results: all three, and the running statistics. Training
   alone, channels are dimension 1 */
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

static const struct {
  const char *name;
  hal_status_t (*run)(const hal_op_call_t *call);
} operators[] = {
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
};
enum { OPERATORS = sizeof operators / sizeof operators[0] };

/* Seen, and left to the portable kernels. */
static const char *const watched[] = {
    "index.Tensor",         "_index_put_impl",          "sort.stable", "searchsorted.Tensor",
    "scatter_reduce.two",   "embedding_dense_backward", "glu",         "im2col",
    "binary_cross_entropy", "isin.Tensor_Tensor",       "histc",       "_native_multi_head_attention",
    "grid_sampler_2d"};
enum { WATCHED = sizeof watched / sizeof watched[0] };

static const char *name_of(size_t i) { return i < OPERATORS ? operators[i].name : watched[i - OPERATORS]; }

/* ---- what an operator has seen ---- */

static void write_list(FILE *log, const int64_t *list, int64_t count) {
  fputc('[', log);
  for (int64_t i = 0; i < count; i++) fprintf(log, "%s%lld", i ? ", " : "", (long long)list[i]);
  fputc(']', log);
}

static void write_tensor(FILE *log, const hal_tensor_t *tensor) {
  if (!tensor) return (void)fputs("null", log);
  fprintf(log, "{\"dtype\": %d, \"sizes\": ", (int)tensor->dtype);
  write_list(log, tensor->sizes, tensor->ndim);
  fputs(", \"strides\": ", log);
  write_list(log, tensor->strides, tensor->ndim);
  fputc('}', log);
}

static void write_value(FILE *log, const hal_value_t *value) {
  switch (value->tag) {
    case HAL_VALUE_NONE:
      fputs("null", log);
      break;
    case HAL_VALUE_BOOL:
      fputs(value->u.i ? "true" : "false", log);
      break;
    case HAL_VALUE_INT:
      fprintf(log, "%lld", (long long)value->u.i);
      break;
    case HAL_VALUE_DOUBLE:
      fprintf(log, "%.17g", value->u.d);
      break;
    case HAL_VALUE_TENSOR:
      write_tensor(log, value->u.t);
      break;
    case HAL_VALUE_INT_LIST:
      write_list(log, value->u.il, value->count);
      break;
    case HAL_VALUE_TENSOR_LIST:
      fputc('[', log);
      for (uint32_t i = 0; i < value->count; i++) {
        if (i) fputs(", ", log);
        write_tensor(log, value->u.tl[i]);
      }
      fputc(']', log);
      break;
    default:
      fprintf(log, "\"tag %u\"", (unsigned)value->tag);
  }
}

static void write_call(const char *name, const hal_op_call_t *call, int declined) {
  const char *const path = getenv("MAKER_LOG");
  FILE *const log = path ? fopen(path, "a") : NULL;
  if (!log) return;
  fprintf(log, "{\"op\": \"%s\", \"declined\": %s, \"args\": [", name, declined ? "true" : "false");
  for (uint32_t i = 0; i < call->arg_count; i++) {
    if (i) fputs(", ", log);
    write_value(log, &call->args[i]);
  }
  fputs("], \"results\": [", log);
  for (uint32_t i = 0; i < call->result_count; i++) {
    if (i) fputs(", ", log);
    write_tensor(log, call->results[i]);
  }
  fputs("]}\n", log);
  fclose(log);
}

static int declines(const char *name) {
  const char *const listed = getenv("MAKER_DECLINES");
  if (!listed) return 0;
  const size_t length = strlen(name);
  for (const char *at = listed; *at; at += *at == ',') {
    const size_t size = strcspn(at, ",");
    if ((size == 1 && *at == '*') || (size == length && memcmp(at, name, size) == 0)) return 1;
    at += size;
  }
  return 0;
}

static hal_status_t run(void *state, const hal_op_call_t *call) {
  const size_t i = (size_t)(uintptr_t)state;
  hal_status_t status = i >= OPERATORS || declines(name_of(i)) ? HAL_UNIMPLEMENTED : HAL_OK;
  for (uint32_t k = 0; k < call->arg_count; k++)
    if (!computes(tensor_at(call, k))) status = HAL_UNIMPLEMENTED;
  for (uint32_t k = 0; k < call->result_count; k++)
    if (!computes(call->results[k])) status = HAL_UNIMPLEMENTED;
  if (!status) status = operators[i].run(call);
  write_call(name_of(i), call, status != HAL_OK);
  return status;
}

/* ---- the plugin ---- */

static hal_status_t (*base_info)(hal_plugin_info_t *out_info);

static hal_status_t info(hal_plugin_info_t *out_info) {
  const hal_status_t status = base_info(out_info);
  out_info->name = "maker";
  return status;
}

static hal_status_t find(int32_t device, const char *name, hal_op_own_t *out_op) {
  (void)device;
  for (size_t i = 0; i < OPERATORS + WATCHED; i++) {
    if (strcmp(name, name_of(i)) != 0) continue;
    out_op->fn = run;
    out_op->state = (void *)(uintptr_t)i;
    out_op->dtypes = HAL_ALL_DTYPES;
    out_op->layouts = HAL_TAKES_ALL;
    return HAL_OK;
  }
  return HAL_NOT_FOUND;
}

HAL_PLUGIN_EXPORT hal_status_t hal_plugin_entry(const hal_host_api_t *host, hal_plugin_api_t *api) {
  void *const base = dlopen(getenv("MAKER_BASE"), RTLD_NOW | RTLD_LOCAL);
  hal_plugin_entry_fn_t entry = NULL;
  if (base) *(void **)&entry = dlsym(base, "hal_plugin_entry");
  if (!entry) return host->error_set(HAL_NOT_FOUND, 0, "maker: MAKER_BASE names no plugin");
  const hal_status_t status = entry(host, api);
  if (status) return status;
  base_info = api->info;
  api->info = info;
  api->op_find = find;
  return HAL_OK;
}
