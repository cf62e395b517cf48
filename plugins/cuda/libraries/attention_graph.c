/* attention_graph.c: the two passes of attention as graphs of operations. cuDNN's fused engines recognize an attention
 * by its operations, their order, and the types between them. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "attention.h"

typedef struct builder_s {
  dnn_graph_t *graph;
  const attention_t *of;
  cudnnDataType_t type; /* of operands and results; sums are float32 */
  dnn_node_t scale, masked;
} builder_t;

/* ---- tensors ---------------------------------------------------------------------------------------------------- */

void cuda_attention_sizes(const attention_t *of, attention_id_t id, int64_t sizes[DNN_GRAPH_DIMS]) {
  const int of_key = id == ATTENTION_KEY || id == ATTENTION_GRAD_KEY;
  const int of_value = id == ATTENTION_VALUE || id == ATTENTION_GRAD_VALUE;
  const int of_query = id == ATTENTION_QUERY || id == ATTENTION_GRAD_QUERY;
  sizes[0] = of->batch;
  sizes[1] = of_key || of_value ? of->kv_heads : of->heads;
  sizes[2] = of_key || of_value ? of->keys : of->queries;
  sizes[3] = of_key || of_query ? of->size : of->value_size;
}

/* Returns the layout with rows and columns exchanged. */
static dnn_layout_t turned(dnn_layout_t layout) {
  const int64_t size = layout.sizes[2], stride = layout.strides[2];
  layout.sizes[2] = layout.sizes[3], layout.strides[2] = layout.strides[3];
  layout.sizes[3] = size, layout.strides[3] = stride;
  return layout;
}

static dnn_layout_t layout_of(const builder_t *b, attention_id_t id) {
  dnn_layout_t layout = {.type = b->type};
  cuda_attention_sizes(b->of, id, layout.sizes);
  memcpy(layout.strides, b->of->strides[id], sizeof layout.strides);
  return layout;
}

static dnn_layout_t dense(cudnnDataType_t type, int64_t batch, int64_t heads, int64_t rows, int64_t columns) {
  return (dnn_layout_t){.type = type,
                        .sizes = {batch, heads, rows, columns},
                        .strides = {heads * rows * columns, rows * columns, columns, 1}};
}

static dnn_node_t given(const builder_t *b, attention_id_t id) {
  const dnn_layout_t layout = layout_of(b, id);
  return cuda_graph_tensor(b->graph, DNN_GIVEN, id, &layout);
}

static dnn_node_t given_turned(const builder_t *b, attention_id_t id) {
  const dnn_layout_t layout = turned(layout_of(b, id));
  return cuda_graph_tensor(b->graph, DNN_GIVEN, id, &layout);
}

static dnn_node_t number(const builder_t *b, attention_id_t id) {
  const dnn_layout_t layout = dense(CUDNN_DATA_FLOAT, 1, 1, 1, 1);
  return cuda_graph_tensor(b->graph, DNN_NUMBER, id, &layout);
}

static dnn_node_t passing(const builder_t *b, const dnn_layout_t *layout) {
  return cuda_graph_tensor(b->graph, DNN_PASSING, 0, layout);
}

/* One element for each pair of a query and a key. */
static dnn_node_t scores(const builder_t *b, cudnnDataType_t type) {
  const dnn_layout_t layout = dense(type, b->of->batch, b->of->heads, b->of->queries, b->of->keys);
  return passing(b, &layout);
}

/* One element for each query. */
static dnn_node_t column(const builder_t *b, dnn_place_t place, attention_id_t id) {
  const dnn_layout_t layout = dense(CUDNN_DATA_FLOAT, b->of->batch, b->of->heads, b->of->queries, 1);
  return cuda_graph_tensor(b->graph, place, id, &layout);
}

/* ---- parts of both passes --------------------------------------------------------------------------------------- */

static dnn_node_t point(const builder_t *b, cudnnPointwiseMode_t mode, dnn_node_t x, dnn_node_t other) {
  const dnn_node_t y = scores(b, CUDNN_DATA_FLOAT);
  cuda_graph_pointwise(b->graph, mode, x, other, NULL, y);
  return y;
}

static dnn_node_t scaled_product(const builder_t *b, dnn_node_t query, dnn_node_t key) {
  const dnn_node_t product = scores(b, CUDNN_DATA_FLOAT);
  cuda_graph_matmul(b->graph, query, key, product);
  return point(b, CUDNN_POINTWISE_MUL, product, b->scale);
}

float cuda_attention_masked(int version) { return version < 91000 ? -FLT_MAX : -INFINITY; }

/* Query i sees keys 0 to i. */
static dnn_node_t seen(const builder_t *b, dnn_node_t x) {
  if (!b->of->causal) return x;
  const dnn_node_t row = scores(b, CUDNN_DATA_INT32), key = scores(b, CUDNN_DATA_INT32);
  const dnn_node_t sees = scores(b, CUDNN_DATA_BOOLEAN), y = scores(b, CUDNN_DATA_FLOAT);
  cuda_graph_index(b->graph, 2, x, row);
  cuda_graph_index(b->graph, 3, x, key);
  cuda_graph_pointwise(b->graph, CUDNN_POINTWISE_CMP_GE, row, key, NULL, sees);
  cuda_graph_pointwise(b->graph, CUDNN_POINTWISE_BINARY_SELECT, x, b->masked, sees, y);
  return y;
}

/* ---- forward: softmax(scale * query key') value, and the logarithms of the sums of exponentials ----------------- */

static void forward(const builder_t *b) {
  const dnn_node_t query = given(b, ATTENTION_QUERY), key = given_turned(b, ATTENTION_KEY);
  const dnn_node_t value = given(b, ATTENTION_VALUE), result = given(b, ATTENTION_RESULT);
  const dnn_node_t most = column(b, DNN_PASSING, 0), sum = column(b, DNN_PASSING, 0), log = column(b, DNN_PASSING, 0);
  const dnn_node_t logarithms = column(b, DNN_GIVEN, ATTENTION_LOGARITHMS), weights = scores(b, b->type);
  const dnn_node_t x = seen(b, scaled_product(b, query, key));
  cuda_graph_reduce(b->graph, CUDNN_REDUCE_TENSOR_MAX, x, most);
  const dnn_node_t exponentials = point(b, CUDNN_POINTWISE_EXP, point(b, CUDNN_POINTWISE_SUB, x, most), NULL);
  cuda_graph_reduce(b->graph, CUDNN_REDUCE_TENSOR_ADD, exponentials, sum);
  cuda_graph_pointwise(b->graph, CUDNN_POINTWISE_LOG, sum, NULL, NULL, log);
  cuda_graph_pointwise(b->graph, CUDNN_POINTWISE_ADD, most, log, NULL, logarithms);
  cuda_graph_pointwise(b->graph, CUDNN_POINTWISE_DIV, exponentials, sum, NULL, weights);
  cuda_graph_matmul(b->graph, weights, value, result);
}

/* ---- backward: the weights again, from the logarithms ----------------------------------------------------------- */

/* SUM: of result times gradient, of each row. */
static dnn_node_t sums(const builder_t *b, dnn_node_t grad, dnn_node_t result) {
  const dnn_layout_t layout = dense(CUDNN_DATA_FLOAT, b->of->batch, b->of->heads, b->of->queries, b->of->value_size);
  const dnn_node_t product = passing(b, &layout), sum = column(b, DNN_PASSING, 0);
  const dnn_node_t kept = column(b, DNN_GIVEN, ATTENTION_SUM), one = number(b, ATTENTION_ONE);
  cuda_graph_pointwise(b->graph, CUDNN_POINTWISE_MUL, grad, result, NULL, product);
  cuda_graph_reduce(b->graph, CUDNN_REDUCE_TENSOR_ADD, product, sum);
  cuda_graph_pointwise(b->graph, CUDNN_POINTWISE_MUL, sum, one, NULL, kept);
  return kept;
}

/* A gradient of key or value: x' rows, of each head, then added up for those that share a head of key and value. */
static void gather(const builder_t *b, dnn_node_t x, dnn_node_t rows, attention_id_t id) {
  dnn_layout_t layout = turned(dense(b->type, b->of->batch, b->of->heads, b->of->queries, b->of->keys));
  const dnn_node_t across = passing(b, &layout), gradient = given(b, id);
  cuda_graph_reshape(b->graph, x, across);
  if (b->of->heads == b->of->kv_heads) {
    cuda_graph_matmul(b->graph, across, rows, gradient);
    return;
  }
  const int64_t columns = id == ATTENTION_GRAD_KEY ? b->of->size : b->of->value_size;
  layout = dense(b->type, b->of->batch, b->of->heads, b->of->keys, columns);
  const dnn_node_t of_each = passing(b, &layout);
  cuda_graph_matmul(b->graph, across, rows, of_each);
  cuda_graph_reduce(b->graph, CUDNN_REDUCE_TENSOR_ADD, of_each, gradient);
}

static void backward(const builder_t *b) {
  const dnn_layout_t key_layout = layout_of(b, ATTENTION_KEY);
  const dnn_node_t query = given(b, ATTENTION_QUERY), key = given_turned(b, ATTENTION_KEY);
  const dnn_node_t value = given_turned(b, ATTENTION_VALUE), result = given(b, ATTENTION_RESULT);
  const dnn_node_t grad = given(b, ATTENTION_GRAD), logarithms = column(b, DNN_GIVEN, ATTENTION_LOGARITHMS);
  const dnn_node_t sum = sums(b, grad, result);
  const dnn_node_t x = point(b, CUDNN_POINTWISE_SUB, scaled_product(b, query, key), logarithms);
  const dnn_node_t weights = point(b, CUDNN_POINTWISE_EXP, seen(b, x), NULL);
  gather(b, weights, grad, ATTENTION_GRAD_VALUE);
  const dnn_node_t product = scores(b, CUDNN_DATA_FLOAT);
  cuda_graph_matmul(b->graph, grad, value, product);
  const dnn_node_t of_weights = point(b, CUDNN_POINTWISE_MUL, point(b, CUDNN_POINTWISE_SUB, product, sum), weights);
  const dnn_node_t of_scores = point(b, CUDNN_POINTWISE_MUL, of_weights, b->scale);
  gather(b, of_scores, query, ATTENTION_GRAD_KEY);
  const dnn_node_t rows = passing(b, &key_layout);
  cuda_graph_reshape(b->graph, key, rows);
  cuda_graph_matmul(b->graph, of_scores, rows, given(b, ATTENTION_GRAD_QUERY));
}

void cuda_attention_graph(dnn_graph_t *graph, const attention_t *attention) {
  builder_t b = {
      .graph = graph, .of = attention, .type = attention->dtype == HAL_FLOAT16 ? CUDNN_DATA_HALF : CUDNN_DATA_BFLOAT16};
  b.scale = number(&b, ATTENTION_SCALE);
  if (attention->causal) b.masked = number(&b, ATTENTION_MASKED);
  (attention->backward ? backward : forward)(&b);
}
