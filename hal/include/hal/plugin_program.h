/* plugin_program.h: the part of plugin.h about whole programs: recorded operators as graphs, and a compiler of them. */
#ifndef HAL_PLUGIN_PROGRAM_H_
#define HAL_PLUGIN_PROGRAM_H_

#include "hal/plugin_op.h"

#ifdef __cplusplus
extern "C" {
#endif

/* hal_ir_use_t.buffer of a tensor without elements. */
#define HAL_IR_NO_BUFFER UINT32_MAX

/* A tensor of a node. Buffers may be written in pieces and hold one tensor after another. A value is the content of a
 * buffer between two writes, so that nodes and values are in SSA form: one node produces a value, or it comes from
 * outside. */
typedef struct hal_ir_use_s {
  const hal_tensor_t
      *tensor;     /* dtype, sizes and strides. `data` is that of the first run: programs use hal_ir_run_t.buffers */
  uint32_t buffer; /* of the tensor, or HAL_IR_NO_BUFFER */
  uint32_t value;  /* that is read or produced */
  uint64_t offset; /* of its first element in the buffer, in bytes */
  uint32_t
      whole; /* for writes: 1 = the node writes all bytes of the buffer, in order. 0 = other bytes keep the previous
              * value, or the operator reads it, as operators that update their result (_fused_sgd_, index_put ...) */
  uint32_t before; /* for writes: the previous value of the buffer */
} hal_ir_use_t;

/* An operator. */
typedef struct hal_ir_node_s {
  size_t struct_size;
  uint32_t op; /* HAL_OP_ID_* */
  uint32_t read_count, write_count;
  uint32_t use_size;         /* bytes from one element of `reads` and `writes` to the next: hal_ir_read, hal_ir_write */
  const char *name;          /* "add.Tensor" */
  const hal_op_call_t *call; /* arguments and results, as the plugin's own operator would get them */
  const hal_ir_use_t *reads; /* the tensors among its arguments, in order, with the elements of lists one by one */
  const hal_ir_use_t *writes; /* its results */
} hal_ir_node_t;

/* hal_ir_buffer_t.flags */
#define HAL_IR_INPUT (1u << 0)  /* its first value comes from outside, at least in part */
#define HAL_IR_OUTPUT (1u << 1) /* its last value may be read afterwards; without the flag it need not be written */

/* Memory that nodes use, from its allocation to its release; tensors that overlap are in one buffer. Memory that is
 * released in the run and allocated again is another buffer, which may have the same address. */
typedef struct hal_ir_buffer_s {
  uint64_t size; /* bytes */
  uint32_t first_value, last_value;
  uint32_t flags; /* HAL_IR_* */
  uint32_t
      reuses; /* 1 + the number of the earlier buffer whose memory this one reuses: it is written after all nodes of
               * that one; 0 = none */
} hal_ir_buffer_t;

/* A sequence of operators, in the order of their calls. Valid until `compile` returns. */
typedef struct hal_ir_s {
  size_t struct_size;
  uint32_t node_count, buffer_count, value_count;
  uint32_t node_size; /* bytes from one node to the next: hal_ir_node */
  const hal_ir_node_t *nodes;
  const hal_ir_buffer_t *buffers;
  uint32_t buffer_size; /* bytes from one buffer to the next: hal_ir_buffer */
  uint32_t reserved;
} hal_ir_t;

/* Returns a node of a graph; `number` is less than node_count. The host's structs may be longer than those of this
 * header, so `ir->nodes[n]` is correct only for n = 0. Since 0.3. */
static inline const hal_ir_node_t *hal_ir_node(const hal_ir_t *ir, uint32_t number) {
  return (const hal_ir_node_t *)(const void *)((const char *)ir->nodes + (size_t)number * ir->node_size);
}
/* Returns a buffer of a graph; `number` is less than buffer_count. Since 0.3. */
static inline const hal_ir_buffer_t *hal_ir_buffer(const hal_ir_t *ir, uint32_t number) {
  return (const hal_ir_buffer_t *)(const void *)((const char *)ir->buffers + (size_t)number * ir->buffer_size);
}
/* Returns a tensor that a node reads; `number` is less than read_count. Since 0.3. */
static inline const hal_ir_use_t *hal_ir_read(const hal_ir_node_t *node, uint32_t number) {
  return (const hal_ir_use_t *)(const void *)((const char *)node->reads + (size_t)number * node->use_size);
}
/* Returns a tensor that a node writes; `number` is less than write_count. Since 0.3. */
static inline const hal_ir_use_t *hal_ir_write(const hal_ir_node_t *node, uint32_t number) {
  return (const hal_ir_use_t *)(const void *)((const char *)node->writes + (size_t)number * node->use_size);
}

/* The arguments of one execution; they and everything they point to are valid until `execute` returns. `calls` are
 * those of this run. Their numbers (HAL_VALUE_DOUBLE, HAL_VALUE_COMPLEX, lists of doubles, and integers for ATen's
 * Scalar), seeds and offsets may differ from those of the graph; all else is the same. */
typedef struct hal_ir_run_s {
  size_t struct_size;
  struct hal_stream_s *stream;        /* the host's, for compilers that a program sets */
  void *const *buffers;               /* addresses, indexed by the buffers' numbers */
  const hal_op_call_t *const *calls;  /* indexed by the nodes' numbers */
  hal_plugin_stream_t *plugin_stream; /* the plugin's own, for compilers of a plugin */
} hal_ir_run_t;

/* hal_compiler_t.flags */
#define HAL_COMPILER_FIXED_NUMBERS \
  (1u << 0) /* a graph with other numbers is a different graph: programs may contain them as constants */
/* Work is passed to the compiler whole: the host queues no pieces of it early (hal_lazy_desc_t.piece), unless the
 * program that defers the work requests them. Since 0.5: a host of 0.4 rejects a compiler with the flag. */
#define HAL_COMPILER_WHOLE (1u << 1)

/* A compiler. One thread at a time calls its functions for a device, and holds locks of the HAL. They queue work by the
 * plugin's own functions or the driver and set an error's message. They must neither synchronize, nor run operators,
 * nor launch kernels of the HAL. */
typedef struct hal_compiler_s {
  size_t struct_size;
  uint32_t flags; /* HAL_COMPILER_* */
  uint32_t reserved;
  const char *name; /* for messages; valid as long as the compiler is set */
  void *state;      /* first argument of all functions */

  /* Returns whether the compiler accepts an operator in its graphs: 1 or 0. Called when the operator is recorded, by
   * any thread, concurrently and without locks: must be fast. */
  int32_t (*accepts)(void *state, uint32_t op, const char *name, const hal_op_call_t *call);

  /* Compiles a graph to a program. HAL_UNIMPLEMENTED = the compiler declines this graph: its operators run one by one,
   * and the graph is not compiled again. Other failures do the same, with a warning. */
  hal_status_t (*compile)(void *state, const hal_ir_t *ir, void **out_program);

  /* Queues a program. Additional memory that it needs must not come from the stream's pool (hal_memory_allocate),
   * because blocks that are free there by now may hold values that later work reads. A failure is returned to the
   * caller that triggered the flush. HAL_UNIMPLEMENTED and HAL_NOT_READY are returned as HAL_INTERNAL, because they
   * have another meaning for that call. */
  hal_status_t (*execute)(void *state, void *program, const hal_ir_run_t *run);

  /* Writes a description of a program, as text with a terminating 0, for reports. May be NULL. */
  void (*text)(void *state, const void *program, char *text, size_t capacity);

  /* Destroys a program that is no longer queued. */
  void (*destroy)(void *state, void *program);

  /* Returns how many programs it has compiled a second time since it was set, such as at a higher optimization after
   * they had run often. NULL: none. Since 0.5. */
  uint64_t (*again)(void *state);
} hal_compiler_t;

#ifdef __cplusplus
}
#endif
#endif /* HAL_PLUGIN_PROGRAM_H_ */
