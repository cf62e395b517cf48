/* interpret.c: graphs of the mock of cuDNN's backend, one operation after the other, each element in double and
 * rounded to the type of its tensor. */
#include <math.h>
#include <stdlib.h>

#include "backend.h"

/* ---- elements ---- */

int64_t extent_of(const graph_tensor_t *tensor) {
  int64_t extent = 1;
  for (int i = 0; i < GRAPH_DIMS; i++) extent += (tensor->sizes[i] - 1) * tensor->strides[i];
  return extent;
}

/* Integers and bools are only copied, as float32. */
static cudaDataType number_type(cudnnDataType_t type) {
  return type == CUDNN_DATA_HALF ? CUDA_R_16F : type == CUDNN_DATA_BFLOAT16 ? CUDA_R_16BF : CUDA_R_32F;
}

/* The element that corresponds to position `at` of a larger tensor: sizes of 1 repeat, smaller ones are shared by
   adjacent positions. */
static int64_t place_in(const graph_tensor_t *tensor, const int64_t at[GRAPH_DIMS], const int64_t of[GRAPH_DIMS]) {
  int64_t place = 0;
  for (int i = 0; i < GRAPH_DIMS; i++) place += at[i] * tensor->sizes[i] / of[i] * tensor->strides[i];
  return place;
}

static double get(const graph_run_t *run, int tensor, const int64_t at[GRAPH_DIMS], const int64_t of[GRAPH_DIMS]) {
  const graph_tensor_t *const own = &run->graph.tensors[tensor];
  if (own->by_value) return (double)run->numbers[tensor];
  return vendor_load(number_type(own->type), run->data[tensor], place_in(own, at, of));
}

static void put(graph_run_t *run, int tensor, const int64_t at[GRAPH_DIMS], double value) {
  const graph_tensor_t *const own = &run->graph.tensors[tensor];
  const double factor = own->is_virtual ? 1 : run->factor;
  vendor_store(number_type(own->type), run->data[tensor], place_in(own, at, own->sizes), value * factor);
}

/* The next position of a tensor of those sizes; 0 after the last. */
static int next(int64_t at[GRAPH_DIMS], const int64_t sizes[GRAPH_DIMS]) {
  int dim = GRAPH_DIMS - 1;
  for (; dim >= 0 && ++at[dim] == sizes[dim]; dim--) at[dim] = 0;
  return dim >= 0;
}

/* ---- operations ---- */

static double combine(const graph_run_t *run, const graph_operation_t *o, const int64_t *at, const int64_t *of) {
  const double x = get(run, o->x, at, of), b = o->b < 0 ? 0 : get(run, o->b, at, of);
  switch ((cudnnPointwiseMode_t)o->mode) {
    case CUDNN_POINTWISE_ADD:
      return x + b;
    case CUDNN_POINTWISE_MUL:
      return x * b;
    case CUDNN_POINTWISE_DIV:
      return x / b;
    case CUDNN_POINTWISE_SUB:
      return x - b;
    case CUDNN_POINTWISE_EXP:
      return exp(x);
    case CUDNN_POINTWISE_LOG:
      return log(x);
    case CUDNN_POINTWISE_CMP_GE:
      return x >= b;
    case CUDNN_POINTWISE_GEN_INDEX:
      return (double)at[o->axis];
    default:
      return get(run, o->which, at, of) != 0 ? x : b;
  }
}

static void compute_pointwise(graph_run_t *run, const graph_operation_t *o) {
  const int64_t *const sizes = run->graph.tensors[o->y].sizes;
  int64_t at[GRAPH_DIMS] = {0};
  do put(run, o->y, at, combine(run, o, at, sizes));
  while (next(at, sizes));
}

static void compute_product(graph_run_t *run, const graph_operation_t *o) {
  const int64_t *const sizes = run->graph.tensors[o->y].sizes, depth = run->graph.tensors[o->x].sizes[3];
  const int64_t a_sizes[] = {sizes[0], sizes[1], sizes[2], depth}, b_sizes[] = {sizes[0], sizes[1], depth, sizes[3]};
  int64_t at[GRAPH_DIMS] = {0};
  do {
    double sum = 0;
    for (int64_t k = 0; k < depth; k++) {
      const int64_t a[] = {at[0], at[1], at[2], k}, b[] = {at[0], at[1], k, at[3]};
      sum += get(run, o->x, a, a_sizes) * get(run, o->b, b, b_sizes);
    }
    put(run, o->y, at, sum);
  } while (next(at, sizes));
}

/* Each element of y is of a block of x. */
static void compute_reduction(graph_run_t *run, const graph_operation_t *o) {
  const graph_tensor_t *const x = &run->graph.tensors[o->x];
  const int64_t *const sizes = run->graph.tensors[o->y].sizes;
  int64_t at[GRAPH_DIMS] = {0}, block[GRAPH_DIMS];
  for (int i = 0; i < GRAPH_DIMS; i++) block[i] = x->sizes[i] / sizes[i];
  do {
    int64_t inner[GRAPH_DIMS] = {0}, from[GRAPH_DIMS];
    double value = o->mode == CUDNN_REDUCE_TENSOR_MAX ? -INFINITY : 0;
    do {
      for (int i = 0; i < GRAPH_DIMS; i++) from[i] = at[i] * block[i] + inner[i];
      const double element = get(run, o->x, from, x->sizes);
      value = o->mode == CUDNN_REDUCE_TENSOR_ADD      ? value + element
              : element > value || element != element ? element
                                                      : value;
    } while (next(inner, block));
    put(run, o->y, at, value);
  } while (next(at, sizes));
}

/* The same memory with other strides; virtual tensors are rounded to their own type. */
static void compute_reshape(graph_run_t *run, const graph_operation_t *o) {
  const graph_tensor_t *const x = &run->graph.tensors[o->x], *const y = &run->graph.tensors[o->y];
  for (int64_t i = 0; i < extent_of(y); i++)
    vendor_store(number_type(y->type), run->data[o->y], i, vendor_load(number_type(x->type), run->data[o->x], i));
}

void compute_graph(const work_t *work) {
  graph_run_t *const own = work->run, now = *own, *const run = malloc(sizeof *run);
  if (!run) abort();
  *run = now;
  for (int i = 0; i < run->graph.tensor_count; i++) {
    const graph_tensor_t *const tensor = &run->graph.tensors[i];
    if (tensor->is_virtual) run->data[i] = calloc((size_t)extent_of(tensor), sizeof(float));
    if (tensor->is_virtual && !run->data[i]) abort();
  }
  for (int i = 0; i < run->graph.operation_count; i++) {
    const graph_operation_t *const o = &run->graph.operations[i];
    if (o->kind == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR) compute_product(run, o);
    if (o->kind == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR) compute_pointwise(run, o);
    if (o->kind == CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR) compute_reduction(run, o);
    if (o->kind == CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR) compute_reshape(run, o);
  }
  for (int i = 0; i < run->graph.tensor_count; i++)
    if (run->graph.tensors[i].is_virtual) free(run->data[i]);
  free(run);
  if (!work->again) free(own);
}
