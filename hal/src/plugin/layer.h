/* layer.h: the layers that HAL_LAYERS enables, and their view of one call of a plugin's op. Private to hal/src.
 *
 * layer_call.c generates a wrapper per op from plugin_ops.def. It passes the arguments as a list of (name, type,
 * value), so that the layers are tables over names and types and need no code per op. */
#ifndef HAL_SRC_LAYER_H_
#define HAL_SRC_LAYER_H_

#include "plugin/plugin.h"

/* Every type of a parameter in plugin_ops.def (uint64_t is size_t here), and its meaning for the layers:
 *   VALUE     a number, or an address whose meaning the op's rule knows
 *   HANDLE    a handle that the plugin has created
 *   MADE      an address to which the plugin writes a handle or an address that it has created
 *   OUT       an address to which the plugin writes anything else
 *   STRUCT    a struct that the plugin fills up to its struct_size
 *   BORROWED  memory that the plugin may read until the call returns */
#define HAL_ARGUMENT_TYPES(X)                            \
  X(I32, int32_t, VALUE)                                 \
  X(U32, uint32_t, VALUE)                                \
  X(I64, int64_t, VALUE)                                 \
  X(SIZE, size_t, VALUE)                                 \
  X(ADDRESS, void *, VALUE)                              \
  X(CONST_ADDRESS, const void *, VALUE)                  \
  X(HOST_FN, hal_host_fn_t, VALUE)                       \
  X(SINK, hal_profile_sink_t, VALUE)                     \
  X(PROCESS_SINK, hal_process_sink_t, VALUE)             \
  X(DEVICE_EVENT_FN, hal_device_event_fn_t, VALUE)       \
  X(STREAM, hal_plugin_stream_t *, HANDLE)               \
  X(EVENT, hal_plugin_event_t *, HANDLE)                 \
  X(MODULE, hal_plugin_module_t *, HANDLE)               \
  X(KERNEL, hal_plugin_kernel_t *, HANDLE)               \
  X(GRAPH, hal_plugin_graph_t *, HANDLE)                 \
  X(GRAPH_EXEC, hal_plugin_graph_exec_t *, HANDLE)       \
  X(PHYSICAL, hal_plugin_physical_t *, HANDLE)           \
  X(COMM, hal_plugin_comm_t *, HANDLE)                   \
  X(COMM_MEMORY, hal_plugin_comm_memory_t *, HANDLE)     \
  X(SEMAPHORE, hal_plugin_semaphore_t *, HANDLE)         \
  X(MADE_STREAM, hal_plugin_stream_t **, MADE)           \
  X(MADE_EVENT, hal_plugin_event_t **, MADE)             \
  X(MADE_MODULE, hal_plugin_module_t **, MADE)           \
  X(MADE_KERNEL, hal_plugin_kernel_t **, MADE)           \
  X(MADE_GRAPH, hal_plugin_graph_t **, MADE)             \
  X(MADE_GRAPH_EXEC, hal_plugin_graph_exec_t **, MADE)   \
  X(MADE_PHYSICAL, hal_plugin_physical_t **, MADE)       \
  X(MADE_COMM, hal_plugin_comm_t **, MADE)               \
  X(MADE_COMM_MEMORY, hal_plugin_comm_memory_t **, MADE) \
  X(MADE_SEMAPHORE, hal_plugin_semaphore_t **, MADE)     \
  X(MADE_ADDRESS, void **, MADE)                         \
  X(OUT_I32, int32_t *, OUT)                             \
  X(OUT_I64, int64_t *, OUT)                             \
  X(OUT_SIZE, size_t *, OUT)                             \
  X(OUT_U32, uint32_t *, OUT)                            \
  X(OUT_HANDLE, hal_memory_handle_t *, OUT)              \
  X(OUT_EXTENSION, const hal_extension_t **, OUT)        \
  X(INFO, hal_plugin_info_t *, STRUCT)                   \
  X(DEVICE_INFO, hal_device_info_t *, STRUCT)            \
  X(POINTER_INFO, hal_pointer_info_t *, STRUCT)          \
  X(KERNEL_INFO, hal_kernel_info_t *, STRUCT)            \
  X(STREAM_ERROR, hal_stream_error_t *, STRUCT)          \
  X(OP_OWN, hal_op_own_t *, STRUCT)                      \
  X(COMPILER, hal_compiler_t *, STRUCT)                  \
  X(COMM_INFO, hal_comm_info_t *, STRUCT)                \
  X(COMM_STATE, hal_comm_state_t *, STRUCT)              \
  X(TEXT, const char *, BORROWED)                        \
  X(STREAM_DESC, const hal_stream_desc_t *, BORROWED)    \
  X(HANDLE, const hal_memory_handle_t *, BORROWED)       \
  X(MODULE_DESC, const hal_module_desc_t *, BORROWED)    \
  X(LAUNCH, const hal_launch_t *, BORROWED)              \
  X(RANDOM, const hal_random_t *, BORROWED)              \
  X(COPY_2D, const hal_copy_2d_t *, BORROWED)            \
  X(COPIES, const hal_copy_t *, BORROWED)                \
  X(COMM_DESC, const hal_comm_desc_t *, BORROWED)        \
  X(COMM_CALLS, const hal_comm_call_t *, BORROWED)       \
  X(RANKS, const int32_t *, BORROWED)

enum {
#define HAL_TYPE_NUMBER(name, type, class) HAL_TYPE_##name,
  HAL_ARGUMENT_TYPES(HAL_TYPE_NUMBER) HAL_TYPE_COUNT
#undef HAL_TYPE_NUMBER
};

enum { HAL_CLASS_VALUE, HAL_CLASS_HANDLE, HAL_CLASS_MADE, HAL_CLASS_OUT, HAL_CLASS_STRUCT, HAL_CLASS_BORROWED };

typedef struct hal_argument_s {
  const char *name; /* of the parameter */
  uint32_t type;    /* HAL_TYPE_* */
  intptr_t value;   /* of any type; a layer may replace it by its own address before the call */
} hal_argument_t;

enum {
  HAL_CALL_ARGUMENTS = 6, /* the maximum of an op */
  HAL_CALL_OUTS = 2,      /* the maximum that an op writes */
  HAL_CALL_ROOM = 448,    /* bytes; the largest is hal_stream_error_t */
  HAL_CALL_GUARD = 32,    /* bytes after each */
  HAL_CALL_OP_NAME = 96   /* bytes of an operator's name */
};

/* The layer's own memory for something that the plugin writes: the caller's memory does not change until the call has
 * succeeded. */
typedef struct hal_layer_out_s {
  void *original;
  size_t size;
  _Alignas(16) unsigned char room[HAL_CALL_ROOM + HAL_CALL_GUARD];
} hal_layer_out_t;

typedef struct hal_borrowed_s hal_borrowed_t; /* layer_borrow.c */

/* op_find: the operator that was requested, and the caller's address for the result. */
typedef struct hal_layer_find_s {
  const char *name;
  hal_op_own_t *out;
} hal_layer_find_t;

typedef struct hal_layer_call_s {
  hal_plugin_t *plugin;
  uint32_t slot, count;
  hal_argument_t arguments[HAL_CALL_ARGUMENTS];
  uint32_t stages;       /* layers that entered the call and must leave it */
  hal_layer_find_t find; /* of op_find */
  int32_t ranks;         /* of comm_create */
  /* The validate layer's: */
  struct hal_live_s *made, *ended; /* records of what the call creates and ends, layer_live.h */
  hal_borrowed_t *borrowed;        /* copies of what the plugin may read */
  uint32_t out_count;
  hal_layer_out_t outs[HAL_CALL_OUTS];
} hal_layer_call_t;

/* Returns the HAL_LAYER_* bits of HAL_LAYERS (a comma-separated list of validate, trace and fault), and arms the faults
 * of HAL_FAULT. Reads the environment once per process. */
uint32_t hal_layers_wanted(void);

/* Called before and after a call. A status of enter other than HAL_OK is the call's result; leave always runs and
 * returns the result. */
hal_status_t hal_layer_enter(hal_layer_call_t *call);
hal_status_t hal_layer_leave(hal_layer_call_t *call, hal_status_t status);

/* Returns the fault layer's status for one of the plugin's own operators; HAL_OK = it is called. */
hal_status_t hal_fault_inject_op(const char *op);

#endif /* HAL_SRC_LAYER_H_ */
