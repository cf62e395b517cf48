/* dnn_graph.h: graphs of operations for cuDNN's backend: tensors, operations, and the plan by which the library
 * computes them. */
#ifndef DNN_GRAPH_H_
#define DNN_GRAPH_H_

#include "dnn.h"

enum { DNN_GRAPH_DIMS = 4, DNN_GRAPH_MOST = 112, DNN_GRAPH_OPERATIONS = 32 };

typedef cudnnBackendDescriptor_t dnn_node_t;

/* A tensor of a graph: device memory, one number on the host (both have an id), or an intermediate value between
 * operations. */
typedef enum dnn_place_e { DNN_GIVEN, DNN_NUMBER, DNN_PASSING } dnn_place_t;

typedef struct dnn_layout_s {
  cudnnDataType_t type;
  int64_t sizes[DNN_GRAPH_DIMS], strides[DNN_GRAPH_DIMS];
} dnn_layout_t;

/* All objects of the library for the graph, from the first tensor to the plan. */
typedef struct dnn_graph_s {
  dnn_node_t made[DNN_GRAPH_MOST], operations[DNN_GRAPH_OPERATIONS], whole, plan;
  int made_count, operation_count;
  cudnnStatus_t code;       /* of the first call that failed; no later call is made */
  int64_t passing;          /* ids of intermediate values */
  int64_t workspace;        /* workspace of the plan in bytes */
  struct dnn_graph_s *next; /* the owner's */
} dnn_graph_t;

/* Each adds to a graph that is initialized with zeros; `code` stores the first error. */
dnn_node_t cuda_graph_tensor(dnn_graph_t *graph, dnn_place_t place, int64_t id, const dnn_layout_t *layout);
void cuda_graph_matmul(dnn_graph_t *graph, dnn_node_t a, dnn_node_t b, dnn_node_t c);
/* y = mode(x, b), b NULL if there is one operand; for CUDNN_POINTWISE_BINARY_SELECT `which` selects x or b. */
void cuda_graph_pointwise(dnn_graph_t *graph, cudnnPointwiseMode_t mode, dnn_node_t x, dnn_node_t b, dnn_node_t which,
                          dnn_node_t y);
/* y = the index in dimension `axis`, of a tensor like x. */
void cuda_graph_index(dnn_graph_t *graph, int64_t axis, dnn_node_t x, dnn_node_t y);
/* Reduces over the dimensions in which y is smaller: of size 1, or with one element for some adjacent ones. */
void cuda_graph_reduce(dnn_graph_t *graph, cudnnReduceTensorOp_t op, dnn_node_t x, dnn_node_t y);
/* y: the memory of x with other sizes and strides. */
void cuda_graph_reshape(dnn_graph_t *graph, dnn_node_t x, dnn_node_t y);

/* Finalizes the graph: `whole`. */
void cuda_graph_close(dnn_graph_t *graph, cudnnHandle_t handle);

/* Creates the plan of a finalized graph: the first one of the library's advice that is deterministic and accumulates in
 * float32, with a workspace of at most that many bytes. CUDNN_STATUS_NOT_SUPPORTED = there is none. */
cudnnStatus_t cuda_graph_choose(dnn_graph_t *graph, cudnnHandle_t handle, int64_t most_workspace);

/* Queues the plan on the handle's stream; one thread at a time. `data`: the memory of the tensors with those ids. */
cudnnStatus_t cuda_graph_execute(const dnn_graph_t *graph, cudnnHandle_t handle, int64_t count, const int64_t *ids,
                                 void *const *data, void *workspace);

/* Destroys all objects of the library for the graph. */
void cuda_graph_drop(dnn_graph_t *graph);

#endif /* DNN_GRAPH_H_ */
