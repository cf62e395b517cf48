/* ir.h: recorded operators as a graph for a compiler. Private to hal/src. */
#ifndef HAL_SRC_COMPILE_IR_H_
#define HAL_SRC_COMPILE_IR_H_

#include "base/lock.h"
#include "capture/program.h"
#include "hal/compiler.h"

typedef struct hal_programs_s hal_programs_t;               /* the programs of a device's compiler */
typedef struct hal_device_compiler_s hal_device_compiler_t; /* a device's slot of this component (device/slot.h) */

/* A graph of consecutive commands, in an arena; `const` for the compiler. */
typedef struct hal_ir_graph_s {
  hal_ir_t ir;
  hal_ir_node_t *nodes;
  hal_ir_buffer_t *buffers;
  char **addresses;            /* of the buffers */
  const hal_op_call_t **calls; /* of the nodes */
  uint32_t *ends;              /* of the nodes: the index after their last commands */
} hal_ir_graph_t;

/* Creates the graph of the operators with the commands from `begin` to `end`. HAL_UNIMPLEMENTED = a tensor is not in
 * the device's memory. */
hal_status_t hal_ir_make(hal_arena_t *arena, const hal_command_list_t *list, uint32_t begin, uint32_t end,
                         int32_t ordinal, hal_ir_graph_t *out_graph);

/* Everything that determines a program, as bytes. */
typedef struct hal_ir_key_s {
  unsigned char *bytes;
  size_t size, room;
  int failed; /* there was no memory */
} hal_ir_key_t;

/* Writes the key of a graph; `numbers` = including the values of numbers. */
void hal_ir_write_key(const hal_ir_graph_t *graph, int numbers, hal_ir_key_t *key);
void hal_ir_free_key(hal_ir_key_t *key);

/* Counts a lazy stream of the device until hal_compiler_leave; meanwhile the compiler cannot be replaced. Returns the
 * compiler if the recording `compiles`; NULL = there is none. */
hal_programs_t *hal_compiler_enter(hal_device_t *device, int compiles);
void hal_compiler_leave(hal_device_t *device);

/* Creates, closes and destroys the slot of a device. After close, which destroys the programs, hal_compiler_leave is
 * still allowed. */
hal_status_t hal_device_compiler_create(hal_device_t *device, hal_device_compiler_t **out_compiler);
void hal_device_compiler_close(hal_device_compiler_t *compiler);
void hal_device_compiler_destroy(hal_device_compiler_t *compiler);

/* Returns whether the compiler, which may be NULL, wants work whole: HAL_COMPILER_WHOLE. */
int hal_compiler_takes_whole(const hal_programs_t *programs);

/* Returns whether the compiler accepts an operator. */
int hal_compiler_accepts(const hal_programs_t *programs, uint32_t op, const hal_op_call_t *call);

/* Queues the sequence of accepted operators that begins with a command as one program. A newly compiled program is
 * reported to `observer`; NULL = none. `*out_end`: the first command after the sequence (at least begin + 1);
 * `*out_queued` = 0: the caller queues it as it was recorded. */
hal_status_t hal_compiler_queue(hal_programs_t *programs, hal_command_list_t *list, uint32_t begin,
                                hal_stream_t *stream, hal_command_list_observer_t *observer, uint32_t *out_end,
                                int *out_queued);

/* Finds the first command of an accepted operator from `begin` on; returns the end of the list if there is none. */
uint32_t hal_compiler_next(const hal_command_list_t *list, uint32_t begin);

/* Records the commands of each operator, before a command list is submitted. */
void hal_compiler_prepare(hal_command_list_t *list);

#endif /* HAL_SRC_COMPILE_IR_H_ */
