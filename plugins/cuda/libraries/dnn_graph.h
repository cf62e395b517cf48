/* dnn_graph.h: graphs of operations for cuDNN's backend: tensors, operations, and the plan by which the library computes them. */
#ifndef DNN_GRAPH_H_
#define DNN_GRAPH_H_

#include "dnn.h"

enum { DNN_GRAPH_DIMS = 4, DNN_GRAPH_MOST = 112, DNN_GRAPH_OPERATIONS = 32 };

typedef cudnnBackendDescriptor_t dnn_node_t;

/* A tensor of a graph: given memory of the device, one number of the host's (both have an id), or a value on its way from one operation
 * to others. */
typedef enum dnn_place_e { DNN_GIVEN, DNN_NUMBER, DNN_PASSING } dnn_place_t;

typedef struct dnn_layout_s {
  cudnnDataType_t type;
  int64_t sizes[DNN_GRAPH_DIMS], strides[DNN_GRAPH_DIMS];
} dnn_layout_t;

/* All that the library holds of it, from the first tensor to the plan. */
typedef struct dnn_graph_s {
  dnn_node_t made[DNN_GRAPH_MOST], operations[DNN_GRAPH_OPERATIONS], whole, plan;
  int made_count, operation_count;
  cudnnStatus_t code;       /* of the first call that failed: nothing is called after it */
  int64_t passing;          /* ids of those that pass */
  int64_t workspace;        /* bytes that the plan wants */
  struct dnn_graph_s *next; /* the owner's */
} dnn_graph_t;

/* Each adds to a graph that begins as zeros; what fails is in `code`. */
dnn_node_t cuda_graph_tensor(dnn_graph_t *graph, dnn_place_t place, int64_t id, const dnn_layout_t *layout);
void cuda_graph_matmul(dnn_graph_t *graph, dnn_node_t a, dnn_node_t b, dnn_node_t c);
/* y = mode(x, b), b NULL where there is one operand; of CUDNN_POINTWISE_BINARY_SELECT `which` chooses x or b. */
void cuda_graph_pointwise(dnn_graph_t *graph, cudnnPointwiseMode_t mode, dnn_node_t x, dnn_node_t b, dnn_node_t which,
                          dnn_node_t y);
/* y = the place in dimension `axis`, of a tensor like x. */
void cuda_graph_index(dnn_graph_t *graph, int64_t axis, dnn_node_t x, dnn_node_t y);
/* Over the dimensions in which y is smaller: of size 1, or with one element for some neighbours. */
void cuda_graph_reduce(dnn_graph_t *graph, cudnnReduceTensorOp_t op, dnn_node_t x, dnn_node_t y);
/* y: the memory of x by other sizes and strides. */
void cuda_graph_reshape(dnn_graph_t *graph, dnn_node_t x, dnn_node_t y);

/* Ends the graph: `whole`. */
void cuda_graph_close(dnn_graph_t *graph, cudnnHandle_t handle);

/* Makes the plan of a closed graph: the first that the library advises which gives the same bits each time and adds up in float32, with a workspace of at most that many
 * bytes. CUDNN_STATUS_NOT_SUPPORTED = it has none. */
cudnnStatus_t cuda_graph_choose(dnn_graph_t *graph, cudnnHandle_t handle, int64_t most_workspace);

/* Queues the plan on the handle's stream; one thread at a time. `data`: of the tensors with those ids. */
cudnnStatus_t cuda_graph_execute(const dnn_graph_t *graph, cudnnHandle_t handle, int64_t count, const int64_t *ids,
                                 void *const *data, void *workspace);

/* Gives up all that the library holds of it. */
void cuda_graph_drop(dnn_graph_t *graph);

#endif /* DNN_GRAPH_H_ */
