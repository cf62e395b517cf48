/* backend.h: descriptors of the mock of cuDNN's backend, the graphs built from them, and their computation. */
#ifndef CUDNN_BACKEND_H_
#define CUDNN_BACKEND_H_

#include "work.h"

#define DECLARE_GRAPH_CALL(name, result, parameters) API result name parameters;
DNN_GRAPH_CALLS(DECLARE_GRAPH_CALL)

enum { GRAPH_DIMS = 4, GRAPH_TENSORS = 64, GRAPH_OPERATIONS = 32, DESCRIPTOR_ATTRIBUTES = 8 };

/* ---- a graph, without its descriptors ---- */

typedef struct graph_tensor_s {
  int64_t uid, sizes[GRAPH_DIMS], strides[GRAPH_DIMS];
  cudnnDataType_t type;
  _Bool is_virtual, by_value;
} graph_tensor_t;

/* Ports are indices of tensors; -1: none. a and b of a product are x and b. */
typedef struct graph_operation_s {
  cudnnBackendDescriptorType_t kind;
  int mode, x, b, which, y; /* mode: of CUDNN_POINTWISE_*, CUDNN_REDUCE_TENSOR_* */
  int64_t axis;
} graph_operation_t;

typedef struct graph_s {
  graph_tensor_t tensors[GRAPH_TENSORS];
  graph_operation_t operations[GRAPH_OPERATIONS];
  int tensor_count, operation_count;
} graph_t;

/* ---- descriptors ---- */

typedef struct attribute_s {
  cudnnBackendAttributeName_t name;
  int64_t count;
  void *values;
} attribute_t;

typedef struct descriptor_s {
  int magic, finished, attribute_count, engine;
  cudnnBackendDescriptorType_t type;
  attribute_t attributes[DESCRIPTOR_ATTRIBUTES];
  graph_t *graph; /* of a graph, its engines and its plans, each separate */
} descriptor_t;

/* The descriptor, if it has that type and is finished; else NULL. */
const descriptor_t *finished_of(cudnnBackendDescriptor_t descriptor, cudnnBackendDescriptorType_t type);

/* An attribute that was set; NULL if it was not. */
const void *value_of(const descriptor_t *descriptor, cudnnBackendAttributeName_t name, int64_t *out_count);

/* The finished descriptor in an attribute; NULL if it was not set. */
const descriptor_t *node_of(const descriptor_t *descriptor, cudnnBackendAttributeName_t name);

/* Checks a descriptor of a type when it is finished: tensors and operations (graph.c), engines and plans (engine.c). */
cudnnStatus_t finish_tensor(const descriptor_t *descriptor);
cudnnStatus_t finish_operation(const descriptor_t *descriptor);
cudnnStatus_t finish_graph(descriptor_t *descriptor);
cudnnStatus_t finish_heuristics(descriptor_t *descriptor);
cudnnStatus_t finish_plan(descriptor_t *descriptor);

/* Returns a read-only attribute. Returns 0 if there is none of that name. */
int tell(const descriptor_t *descriptor, cudnnBackendAttributeName_t name, int64_t room, int64_t *count, void *values,
         cudnnStatus_t *out_code);

/* ---- computation (interpret.c) ---- */

/* The inputs of a graph's computation. */
typedef struct graph_run_s {
  graph_t graph;
  void *data[GRAPH_TENSORS]; /* of those that are given */
  float numbers[GRAPH_TENSORS];
  double factor; /* of the last results: for an engine that is not deterministic */
} graph_run_t;

/* Elements from the first to the last of a tensor's memory. */
int64_t extent_of(const graph_tensor_t *tensor);

/* As work_t's compute. */
void compute_graph(const work_t *work);

#endif /* CUDNN_BACKEND_H_ */
