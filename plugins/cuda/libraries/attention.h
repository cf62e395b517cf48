/* attention.h: scaled dot product attention by cuDNN: the supported calls (attention_op.c), the graphs of both passes
 * (attention_graph.c), and their plans (attention.c). */
#ifndef ATTENTION_H_
#define ATTENTION_H_

#include "dnn_graph.h"

/* Tensors of the graphs, by their ids. SUM: of each row of the result times its gradient, in scratch memory. The last
 * ones are numbers on the host. */
typedef enum attention_id_e {
  ATTENTION_QUERY = 1,
  ATTENTION_KEY,
  ATTENTION_VALUE,
  ATTENTION_RESULT,
  ATTENTION_LOGARITHMS,
  ATTENTION_GRAD,
  ATTENTION_GRAD_QUERY,
  ATTENTION_GRAD_KEY,
  ATTENTION_GRAD_VALUE,
  ATTENTION_SUM,
  ATTENTION_SCALE,
  ATTENTION_MASKED,
  ATTENTION_ONE,
  ATTENTION_IDS
} attention_id_t;

enum { ATTENTION_LAYOUTS = ATTENTION_GRAD_VALUE + 1 };

/* The parameters of a plan. It contains only numbers of one size, because it is compared as bytes. */
typedef struct attention_s {
  int64_t device, dtype, backward, causal, batch, heads, kv_heads, queries, keys, size, value_size;
  int64_t strides[ATTENTION_LAYOUTS][DNN_GRAPH_DIMS]; /* of the tensors with those ids that have the short type */
} attention_t;

/* A call. */
typedef struct attention_work_s {
  const char *op; /* string literal: the operator */
  attention_t attention;
  float scale;
  void *memory[ATTENTION_SUM]; /* by their ids; NULL for gradients that are not requested */
} attention_work_t;

/* Returns the sizes of the tensor with that id, one of the short type. */
void cuda_attention_sizes(const attention_t *attention, attention_id_t id, int64_t sizes[DNN_GRAPH_DIMS]);

/* Returns the logarithm of the weight of a key that a query does not see. */
float cuda_attention_masked(int version);

/* Adds the operations of a pass to an empty graph. */
void cuda_attention_graph(dnn_graph_t *graph, const attention_t *attention);

/* Returns whether the library supports the call: HAL_OK or HAL_UNIMPLEMENTED. Creates the plan, and queues nothing. */
hal_status_t cuda_attention_query(const attention_work_t *work);

/* Queues it, with scratch memory of `call`. Errors: HAL_UNIMPLEMENTED = the library has no plan for it, no result is
 * changed; those of cuda_submit_begin, scratch_alloc and cuda_library_submitted. */
hal_status_t cuda_attention_queue(const hal_op_call_t *call, const attention_work_t *work);

#endif /* ATTENTION_H_ */
