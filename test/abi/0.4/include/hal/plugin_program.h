/* plugin_program.h: the part of plugin.h about whole programs: recorded operators as graphs, and a compiler of them. */
#ifndef HAL_PLUGIN_PROGRAM_H_
#define HAL_PLUGIN_PROGRAM_H_

#include "hal/plugin_op.h"

#ifdef __cplusplus
extern "C" {
#endif

/* hal_ir_use_t.buffer of a tensor without elements. */
#define HAL_IR_NO_BUFFER UINT32_MAX

/* A tensor of a node. Buffers may be written in pieces and hold one tensor after another; values are what they hold between two writes, so that
 * nodes and values are in SSA form: a value is made by one node, or comes from outside. */
typedef struct hal_ir_use_s {
  const hal_tensor_t
      *tensor;     /* dtype, sizes and strides. `data` is that of the first run: programs take hal_ir_run_t.buffers */
  uint32_t buffer; /* that it lies in, or HAL_IR_NO_BUFFER */
  uint32_t value;  /* that is read, or made */
  uint64_t offset; /* in bytes, of its first element in the buffer */
  uint32_t
      whole; /* of what is written: 1 = all bytes of the buffer are, in their order; 0 = the others are of the value before, or the
                operator reads it, as those do that update their result (_fused_sgd_, index_put ...) */
  uint32_t before; /* of what is written: the value of the buffer before */
} hal_ir_use_t;

/* An operator. */
typedef struct hal_ir_node_s {
  size_t struct_size;
  uint32_t op; /* HAL_OP_ID_* */
  uint32_t read_count, write_count;
  uint32_t use_size;         /* bytes from one element of `reads` and `writes` to the next: hal_ir_read, hal_ir_write */
  const char *name;          /* "add.Tensor" */
  const hal_op_call_t *call; /* arguments and results, as the plugin's own operator would get them */
  const hal_ir_use_t *reads; /* the tensors among its arguments, in their order, those of lists one by one */
  const hal_ir_use_t *writes; /* its results */
} hal_ir_node_t;

/* hal_ir_buffer_t.flags */
#define HAL_IR_INPUT (1u << 0)  /* its first value comes from outside, at least in part */
#define HAL_IR_OUTPUT (1u << 1) /* its last value may be read afterwards; else it need not be written at all */

/* Memory that nodes use, between its allocation and its release: tensors that overlap lie in one buffer. Memory that is released in the run and
 * allocated again is another buffer, which may have the same address. */
typedef struct hal_ir_buffer_s {
  uint64_t size; /* bytes */
  uint32_t first_value, last_value;
  uint32_t flags; /* HAL_IR_* */
  uint32_t
      reuses; /* 1 + the number of the earlier buffer whose memory this one has: it is written after all nodes of that one;
                    * 0 = none */
} hal_ir_buffer_t;

/* A run of operators, in the order in which they were called. Lives until `compile` returns. */
typedef struct hal_ir_s {
  size_t struct_size;
  uint32_t node_count, buffer_count, value_count;
  uint32_t node_size; /* bytes from one node to the next: hal_ir_node */
  const hal_ir_node_t *nodes;
  const hal_ir_buffer_t *buffers;
  uint32_t buffer_size; /* bytes from one buffer to the next: hal_ir_buffer */
  uint32_t reserved;
} hal_ir_t;

/* Returns a node of a graph; `number` is less than node_count. The host's structs may be longer than this header's, so that
 * `ir->nodes[n]` is right for n = 0 only. Since 0.3. */
static inline const hal_ir_node_t *hal_ir_node(const hal_ir_t *ir, uint32_t number) {
  return (const hal_ir_node_t *)(const void *)((const char *)ir->nodes + (size_t)number * ir->node_size);
}
/* Returns a buffer of a graph; `number` is less than buffer_count. Since 0.3. */
static inline const hal_ir_buffer_t *hal_ir_buffer(const hal_ir_t *ir, uint32_t number) {
  return (const hal_ir_buffer_t *)(const void *)((const char *)ir->buffers + (size_t)number * ir->buffer_size);
}
/* Returns what a node reads; `number` is less than read_count. Since 0.3. */
static inline const hal_ir_use_t *hal_ir_read(const hal_ir_node_t *node, uint32_t number) {
  return (const hal_ir_use_t *)(const void *)((const char *)node->reads + (size_t)number * node->use_size);
}
/* Returns what a node writes; `number` is less than write_count. Since 0.3. */
static inline const hal_ir_use_t *hal_ir_write(const hal_ir_node_t *node, uint32_t number) {
  return (const hal_ir_use_t *)(const void *)((const char *)node->writes + (size_t)number * node->use_size);
}

/* What one execution is given; lives, with all that it points to, until `execute` returns. The calls are those of this run: their numbers (HAL_VALUE_DOUBLE, HAL_VALUE_COMPLEX, lists of doubles, and integers where
 * ATen says Scalar), seeds and offsets may be other ones than the graph's; all else is the same. */
typedef struct hal_ir_run_s {
  size_t struct_size;
  struct hal_stream_s *stream;        /* the host's, for compilers that a program sets */
  void *const *buffers;               /* addresses, by the buffers' numbers */
  const hal_op_call_t *const *calls;  /* by the nodes' numbers */
  hal_plugin_stream_t *plugin_stream; /* the plugin's own, for compilers of a plugin */
} hal_ir_run_t;

/* hal_compiler_t.flags */
#define HAL_COMPILER_FIXED_NUMBERS \
  (1u << 0) /* a graph with other numbers is another one: programs may hold them as constants */

/* A compiler. Its functions are called by one thread at a time for a device, with locks of the HAL: they queue work by the plugin's own functions or the
 * driver, set an error's message, but neither synchronise nor run operators or launch kernels of the HAL. */
typedef struct hal_compiler_s {
  size_t struct_size;
  uint32_t flags; /* HAL_COMPILER_* */
  uint32_t reserved;
  const char *name; /* for messages; lives as long as the compiler is set */
  void *state;      /* given to all functions */

  /* Tells whether the compiler can have an operator in its graphs: 1 or 0. Called when it is recorded, by any thread and several at once, without locks: must be quick. */
  int32_t (*accepts)(void *state, uint32_t op, const char *name, const hal_op_call_t *call);

  /* Makes a program of a graph. HAL_UNIMPLEMENTED = this one is not compiled: its operators run one by one, and it is not asked again. Other failures do the same, with a warning. */
  hal_status_t (*compile)(void *state, const hal_ir_t *ir, void **out_program);

  /* Queues a program. What it needs besides is memory of its own, not of the stream's pool (hal_memory_allocate): what is free there by now may hold what work behind the program reads.
   * A failure is that of whoever asked for the work; HAL_UNIMPLEMENTED and HAL_NOT_READY, which would be taken for answers to that call, are told as HAL_INTERNAL. */
  hal_status_t (*execute)(void *state, void *program, const hal_ir_run_t *run);

  /* Writes what a program is, as text with its 0, for reports. May be NULL. */
  void (*text)(void *state, const void *program, char *text, size_t room);

  /* Destroys a program: nothing of it is queued any more. */
  void (*destroy)(void *state, void *program);
} hal_compiler_t;

#ifdef __cplusplus
}
#endif
#endif /* HAL_PLUGIN_PROGRAM_H_ */
