/* iterator.h: the common iteration space of strided operands, dimensions sorted and collapsed. Private to hal/src.
 */
#ifndef HAL_SRC_OP_ITERATOR_H_
#define HAL_SRC_OP_ITERATOR_H_

#include "op/launch.h"

#define HAL_OP_MAX_DIMS 64                  /* of a tensor, as in torch */
#define HAL_OP_MAX_OPERANDS PK_ROW_OPERANDS /* operand 0 is the result */

typedef struct hal_op_iterator_s {
  int32_t ndim; /* at least 1 unless there is one element; innermost first */
  int32_t operands;
  int64_t numel;
  int64_t size[HAL_OP_MAX_DIMS];
  int64_t stride[HAL_OP_MAX_OPERANDS][HAL_OP_MAX_DIMS]; /* in elements */
  int64_t start[HAL_OP_MAX_OPERANDS];                   /* number of elements from the tensor's data to the first one */
  const hal_tensor_t *tensors[HAL_OP_MAX_OPERANDS];
} hal_op_iterator_t;

/* Creates the iteration over tensors of one shape; `tensors[0]` is the result, broadcast operands have stride 0. Names
 * of the operands are for messages. Errors: HAL_INVALID_ARGUMENT for different shapes or a result that overlaps
 * itself. */
hal_status_t hal_op_iterate(const hal_op_context_t *context, const hal_tensor_t *const *tensors,
                            const char *const *names, int32_t operands, hal_op_iterator_t *out_iterator);

/* Returns whether the elements of all operands are contiguous in the order of the iteration. */
int hal_op_iterator_is_dense(const hal_op_iterator_t *iterator);

/* One launch of a row-form kernel: the operands' addresses, the number of elements, the number of those per item, and
 * the iteration. */
typedef struct hal_op_line_s {
  void *address[HAL_OP_MAX_OPERANDS];
  uint64_t items, n, block;
  pk_rows_t rows;
} hal_op_line_t;

/* Queues a kernel over one line; `given` is what the launcher passed with the kernel. */
typedef hal_status_t (*hal_op_line_fn_t)(hal_op_context_t *context, hal_plugin_kernel_t *kernel,
                                         const hal_op_line_t *line, const void *given);

/* A row-form kernel and its other arguments. */
typedef struct hal_op_rows_call_s {
  hal_plugin_kernel_t *kernel;
  hal_op_line_fn_t queue;
  const void *given;
  uint32_t elements[HAL_OP_MAX_OPERANDS]; /* bytes of an element of each operand */
} hal_op_rows_call_t;

/* Queues a row-form kernel; on a CPU in tiles if the operands' innermost dimensions differ (tile.c). */
hal_status_t hal_op_launch_rows(hal_op_context_t *context, const hal_op_iterator_t *iterator,
                                const hal_op_rows_call_t *call);

/* Queues it in the order of the iteration, once for each index of the dimensions that do not fit into pk_rows_t, and in
 * parts within the target's `most_reach`. */
hal_status_t hal_op_launch_lines(hal_op_context_t *context, const hal_op_iterator_t *iterator,
                                 const hal_op_rows_call_t *call);

#endif /* HAL_SRC_OP_ITERATOR_H_ */
