/* backend.h: descriptors of the stand-in for cuDNN's backend, the graphs that are made of them, and how these are computed. */
#ifndef CUDNN_BACKEND_H_
#define CUDNN_BACKEND_H_

#include "work.h"

#define DECLARE_GRAPH_CALL(name, result, parameters) API result name parameters;
DNN_GRAPH_CALLS(DECLARE_GRAPH_CALL)

enum { GRAPH_DIMS = 4, GRAPH_TENSORS = 64, GRAPH_OPERATIONS = 32, DESCRIPTOR_ATTRIBUTES = 8 };

/* ---- a graph, without its descriptors ------------------------------------------------------------------------------------------------- */

typedef struct graph_tensor_s {
  int64_t uid, sizes[GRAPH_DIMS], strides[GRAPH_DIMS];
  cudnnDataType_t type;
  _Bool is_virtual, by_value;
} graph_tensor_t;

/* Ports are places of tensors; -1: none. a and b of a product are x and b. */
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

/* ---- descriptors ------------------------------------------------------------------------------------------------------------------------ */

typedef struct attribute_s {
  cudnnBackendAttributeName_t name;
  int64_t count;
  void *values;
} attribute_t;

typedef struct descriptor_s {
  int magic, finished, attribute_count, engine;
  cudnnBackendDescriptorType_t type;
  attribute_t attributes[DESCRIPTOR_ATTRIBUTES];
  graph_t *graph; /* of a graph, its engines and its plans, each its own */
} descriptor_t;

/* The descriptor, of that type and finished; NULL where it is none. */
const descriptor_t *finished_of(cudnnBackendDescriptor_t descriptor, cudnnBackendDescriptorType_t type);

/* An attribute that was set; NULL where it was not. */
const void *value_of(const descriptor_t *descriptor, cudnnBackendAttributeName_t name, int64_t *out_count);

/* The finished descriptor that an attribute is; NULL where it was not set. */
const descriptor_t *node_of(const descriptor_t *descriptor, cudnnBackendAttributeName_t name);

/* What a type of descriptors wants when it is finished: tensors and operations (graph.c), engines and plans (engine.c). */
cudnnStatus_t finish_tensor(const descriptor_t *descriptor);
cudnnStatus_t finish_operation(const descriptor_t *descriptor);
cudnnStatus_t finish_graph(descriptor_t *descriptor);
cudnnStatus_t finish_heuristics(descriptor_t *descriptor);
cudnnStatus_t finish_plan(descriptor_t *descriptor);

/* Answers what is only told. Returns 0 where nothing is told under that name. */
int tell(const descriptor_t *descriptor, cudnnBackendAttributeName_t name, int64_t room, int64_t *count, void *values,
         cudnnStatus_t *out_code);

/* ---- computing (interpret.c) -------------------------------------------------------------------------------------------------------------- */

/* What a graph is computed with. */
typedef struct graph_run_s {
  graph_t graph;
  void *data[GRAPH_TENSORS]; /* of those that are given */
  float numbers[GRAPH_TENSORS];
  double factor; /* of the last results: of an engine that is not steady */
} graph_run_t;

/* Elements from the first to the last of a tensor's memory. */
int64_t extent_of(const graph_tensor_t *tensor);

/* As work_t's compute. */
void compute_graph(const work_t *work);

#endif /* CUDNN_BACKEND_H_ */
