/* graph.c: tensors, operations and graphs of the mock of cuDNN's backend: checks of their compatibility, and the
   graph without its descriptors. */
#include <stdlib.h>
#include <string.h>

#include "backend.h"

/* ---- tensors ---- */

static void read_tensor(const descriptor_t *descriptor, graph_tensor_t *out) {
  const _Bool *const is_virtual = value_of(descriptor, CUDNN_ATTR_TENSOR_IS_VIRTUAL, NULL);
  const _Bool *const by_value = value_of(descriptor, CUDNN_ATTR_TENSOR_IS_BY_VALUE, NULL);
  *out = (graph_tensor_t){.is_virtual = is_virtual && *is_virtual, .by_value = by_value && *by_value};
  memcpy(&out->type, value_of(descriptor, CUDNN_ATTR_TENSOR_DATA_TYPE, NULL), sizeof out->type);
  memcpy(&out->uid, value_of(descriptor, CUDNN_ATTR_TENSOR_UNIQUE_ID, NULL), sizeof out->uid);
  memcpy(out->sizes, value_of(descriptor, CUDNN_ATTR_TENSOR_DIMENSIONS, NULL), sizeof out->sizes);
  memcpy(out->strides, value_of(descriptor, CUDNN_ATTR_TENSOR_STRIDES, NULL), sizeof out->strides);
}

cudnnStatus_t finish_tensor(const descriptor_t *descriptor) {
  int64_t sizes = 0, strides = 0;
  graph_tensor_t tensor;
  const int64_t *const alignment = value_of(descriptor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, NULL);
  value_of(descriptor, CUDNN_ATTR_TENSOR_DIMENSIONS, &sizes);
  value_of(descriptor, CUDNN_ATTR_TENSOR_STRIDES, &strides);
  if (sizes != strides || *alignment < 1 || (*alignment & (*alignment - 1))) return CUDNN_STATUS_BAD_PARAM;
  if (sizes != GRAPH_DIMS) return CUDNN_STATUS_NOT_SUPPORTED;
  read_tensor(descriptor, &tensor);
  for (int i = 0; i < GRAPH_DIMS; i++)
    if (tensor.sizes[i] < 1 || tensor.strides[i] < 1) return CUDNN_STATUS_BAD_PARAM;
  return tensor.is_virtual && tensor.by_value ? CUDNN_STATUS_BAD_PARAM : CUDNN_STATUS_SUCCESS;
}

/* ---- operations ---- */

typedef struct ports_s {
  const descriptor_t *how, *x, *b, *which, *y;
} ports_t;

static ports_t ports_of(const descriptor_t *o) {
  switch (o->type) {
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
      return (ports_t){node_of(o, CUDNN_ATTR_OPERATION_MATMUL_DESC), node_of(o, CUDNN_ATTR_OPERATION_MATMUL_ADESC),
                       node_of(o, CUDNN_ATTR_OPERATION_MATMUL_BDESC), NULL,
                       node_of(o, CUDNN_ATTR_OPERATION_MATMUL_CDESC)};
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
      return (ports_t){
          node_of(o, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR), node_of(o, CUDNN_ATTR_OPERATION_POINTWISE_XDESC),
          node_of(o, CUDNN_ATTR_OPERATION_POINTWISE_BDESC), node_of(o, CUDNN_ATTR_OPERATION_POINTWISE_TDESC),
          node_of(o, CUDNN_ATTR_OPERATION_POINTWISE_YDESC)};
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
      return (ports_t){node_of(o, CUDNN_ATTR_OPERATION_REDUCTION_DESC),
                       node_of(o, CUDNN_ATTR_OPERATION_REDUCTION_XDESC), NULL, NULL,
                       node_of(o, CUDNN_ATTR_OPERATION_REDUCTION_YDESC)};
    default:
      return (ports_t){NULL, node_of(o, CUDNN_ATTR_OPERATION_RESHAPE_XDESC), NULL, NULL,
                       node_of(o, CUDNN_ATTR_OPERATION_RESHAPE_YDESC)};
  }
}

static int mode_of(const descriptor_t *how, cudnnBackendAttributeName_t name) {
  int mode = -1;
  const void *const value = value_of(how, name, NULL);
  if (value) memcpy(&mode, value, sizeof mode);
  return mode;
}

/* y has all sizes of x except those of 1, which repeat. */
static int repeats_to(const graph_tensor_t *x, const graph_tensor_t *y) {
  int fits = 1;
  for (int i = 0; i < GRAPH_DIMS; i++) fits &= x->sizes[i] == 1 || x->sizes[i] == y->sizes[i];
  return fits;
}

/* Adjacent heads of a share a head of b. */
static int multiplies(const graph_tensor_t *a, const graph_tensor_t *b, const graph_tensor_t *c) {
  return a->sizes[0] == c->sizes[0] && b->sizes[0] == c->sizes[0] && a->sizes[1] == c->sizes[1] &&
         c->sizes[1] % b->sizes[1] == 0 && a->sizes[2] == c->sizes[2] && a->sizes[3] == b->sizes[2] &&
         b->sizes[3] == c->sizes[3];
}

static int reduces(const graph_tensor_t *x, const graph_tensor_t *y) {
  int fits = 1;
  for (int i = 0; i < GRAPH_DIMS; i++) fits &= x->sizes[i] % y->sizes[i] == 0;
  return fits;
}

static int64_t elements_of(const graph_tensor_t *tensor) {
  return tensor->sizes[0] * tensor->sizes[1] * tensor->sizes[2] * tensor->sizes[3];
}

static int operands_of(int mode) {
  switch (mode) {
    case CUDNN_POINTWISE_BINARY_SELECT:
      return 3;
    case CUDNN_POINTWISE_EXP:
    case CUDNN_POINTWISE_LOG:
    case CUDNN_POINTWISE_GEN_INDEX:
      return 1;
    default:
      return 2;
  }
}

static int points(const ports_t *ports, const graph_tensor_t *x, const graph_tensor_t *y) {
  const int mode = mode_of(ports->how, CUDNN_ATTR_POINTWISE_MODE), count = operands_of(mode);
  graph_tensor_t other;
  if (!ports->b != (count < 2) || !ports->which != (count < 3) || !repeats_to(x, y)) return 0;
  if (mode == CUDNN_POINTWISE_GEN_INDEX && !value_of(ports->how, CUDNN_ATTR_POINTWISE_AXIS, NULL)) return 0;
  if (ports->b) {
    read_tensor(ports->b, &other);
    if (!repeats_to(&other, y)) return 0;
  }
  if (ports->which) {
    read_tensor(ports->which, &other);
    if (other.type != CUDNN_DATA_BOOLEAN || !repeats_to(&other, y)) return 0;
  }
  return (mode == CUDNN_POINTWISE_CMP_GE) == (y->type == CUDNN_DATA_BOOLEAN);
}

cudnnStatus_t finish_operation(const descriptor_t *descriptor) {
  const ports_t ports = ports_of(descriptor);
  const descriptor_t *const tensors[] = {ports.x, ports.b, ports.which, ports.y};
  graph_tensor_t x, b, y;
  int fits = 0;
  for (int i = 0; i < 4; i++)
    if (tensors[i] && tensors[i]->type != CUDNN_BACKEND_TENSOR_DESCRIPTOR) return CUDNN_STATUS_BAD_PARAM;
  read_tensor(ports.x, &x), read_tensor(ports.y, &y);
  switch (descriptor->type) {
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
      read_tensor(ports.b, &b);
      fits = ports.how->type == CUDNN_BACKEND_MATMUL_DESCRIPTOR && multiplies(&x, &b, &y);
      break;
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
      fits = ports.how->type == CUDNN_BACKEND_POINTWISE_DESCRIPTOR && points(&ports, &x, &y);
      break;
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
      fits = ports.how->type == CUDNN_BACKEND_REDUCTION_DESCRIPTOR && reduces(&x, &y);
      break;
    default:
      fits = elements_of(&x) == elements_of(&y);
  }
  return fits ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
}

/* ---- graphs ---- */

/* The index of a tensor, which is identified by its id. -1: no tensor; -2: too many, or another one has its id. */
static int add_tensor(graph_t *graph, const descriptor_t *descriptor) {
  graph_tensor_t tensor;
  int place = 0;
  if (!descriptor) return -1;
  read_tensor(descriptor, &tensor);
  while (place < graph->tensor_count && graph->tensors[place].uid != tensor.uid) place++;
  if (place == GRAPH_TENSORS) return -2;
  if (place < graph->tensor_count) {
    const graph_tensor_t *const own = &graph->tensors[place];
    return own->type == tensor.type && !memcmp(own->sizes, tensor.sizes, sizeof own->sizes) &&
                   !memcmp(own->strides, tensor.strides, sizeof own->strides)
               ? place
               : -2;
  }
  graph->tensors[graph->tensor_count++] = tensor;
  return place;
}

static int add_operation(graph_t *graph, const descriptor_t *descriptor) {
  const ports_t ports = ports_of(descriptor);
  graph_operation_t *const own = &graph->operations[graph->operation_count++];
  const int64_t *const axis = value_of(ports.how, CUDNN_ATTR_POINTWISE_AXIS, NULL);
  *own = (graph_operation_t){.kind = descriptor->type,
                             .mode = descriptor->type == CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR
                                         ? mode_of(ports.how, CUDNN_ATTR_REDUCTION_OPERATOR)
                                         : mode_of(ports.how, CUDNN_ATTR_POINTWISE_MODE),
                             .x = add_tensor(graph, ports.x),
                             .b = add_tensor(graph, ports.b),
                             .which = add_tensor(graph, ports.which),
                             .y = add_tensor(graph, ports.y),
                             .axis = axis ? *axis : 0};
  return own->x >= 0 && own->b >= -1 && own->which >= -1 && own->y >= 0;
}

/* Returns whether the value of a tensor is available before the operation of that number: it is given, or an earlier
 * operation computed it. The real library accepts operations in any order. */
static int is_there(const graph_t *graph, int tensor, int before) {
  if (tensor < 0 || !graph->tensors[tensor].is_virtual) return 1;
  for (int i = 0; i < before; i++)
    if (graph->operations[i].y == tensor) return 1;
  return 0;
}

static int is_made_once(const graph_t *graph, int number) {
  for (int i = 0; i < number; i++)
    if (graph->operations[i].y == graph->operations[number].y) return 0;
  return 1;
}

cudnnStatus_t finish_graph(descriptor_t *descriptor) {
  int64_t count = 0;
  descriptor_t *const *const operations = value_of(descriptor, CUDNN_ATTR_OPERATIONGRAPH_OPS, &count);
  graph_t *const graph = calloc(1, sizeof *graph);
  int fits = 1;
  if (!graph) return CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
  for (int64_t i = 0; i < count && fits; i++) fits = add_operation(graph, operations[i]);
  for (int i = 0; i < graph->operation_count && fits; i++) {
    const graph_operation_t *const own = &graph->operations[i];
    fits = is_there(graph, own->x, i) && is_there(graph, own->b, i) && is_there(graph, own->which, i) &&
           is_made_once(graph, i) && !graph->tensors[own->y].by_value;
  }
  descriptor->graph = graph;
  return fits ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
}
