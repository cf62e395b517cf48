/* attention.h: scaled dot product attention in cuDNN's words: which calls it takes (attention_op.c), the graphs of both passes
 * (attention_graph.c), and their plans (attention.c). */
#ifndef ATTENTION_H_
#define ATTENTION_H_

#include "dnn_graph.h"

/* Tensors of the graphs, by their ids. SUM: of each row of the result times its gradient, in scratch memory. The last ones are numbers of the
 * host's. */
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

/* What a plan is made for; numbers alone, all of one size: it is compared as bytes. */
typedef struct attention_s {
  int64_t device, dtype, backward, causal, batch, heads, kv_heads, queries, keys, size, value_size;
  int64_t strides[ATTENTION_LAYOUTS][DNN_GRAPH_DIMS]; /* of the tensors with those ids that have the short type */
} attention_t;

/* A call. */
typedef struct attention_work_s {
  const char *op; /* literal: the operator */
  attention_t attention;
  float scale;
  void *memory[ATTENTION_SUM]; /* by their ids; of gradients NULL: not wanted */
} attention_work_t;

/* Sizes of the tensor with that id, one of those of the short type. */
void cuda_attention_sizes(const attention_t *attention, attention_id_t id, int64_t sizes[DNN_GRAPH_DIMS]);

/* The weight's logarithm of what a query does not see. */
float cuda_attention_masked(int version);

/* Adds the operations of a pass to an empty graph. */
void cuda_attention_graph(dnn_graph_t *graph, const attention_t *attention);

/* Tells whether the library takes it: HAL_OK or HAL_UNIMPLEMENTED. Makes the plan, and queues nothing. */
hal_status_t cuda_attention_query(const attention_work_t *work);

/* Queues it, with scratch memory of `call`. Errors: HAL_UNIMPLEMENTED = the library has none for it, no result is touched; those of
 * cuda_submit_begin, scratch_alloc and cuda_library_submitted. */
hal_status_t cuda_attention_queue(const hal_op_call_t *call, const attention_work_t *work);

#endif /* ATTENTION_H_ */
