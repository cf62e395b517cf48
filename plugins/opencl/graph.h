/* graph.h: captures and graphs; implemented in capture.c, graph.c, own_kernel.c and command_buffer.c. */
#ifndef GRAPH_H_
#define GRAPH_H_

#include "module.h"

/* A recorded launch. */
typedef struct ocl_node_s {
  cl_kernel handle; /* a separate object with its arguments: PoCL reads them at each replay, not when it records */
  cl_uint dimensions;
  size_t global[3], local[3];
} ocl_node_t;

/* A recording: launches in the order in which they were queued, on any stream of the capture. It does not change after
 * it has become a graph. */
struct hal_plugin_graph_s {
  atomic_int references; /* one of the host, and one of each instance */
  int32_t device;
  uint32_t count, room, view_count, view_room;
  ocl_node_t *nodes;
  cl_mem *views; /* of buffers, for the nodes' arguments */
};

/* ---- recordings (graph.c) --------------------------------------------------------------------------------------- */

hal_plugin_graph_t *ocl_graph_create(int32_t device); /* NULL: no host memory */
void ocl_graph_release(hal_plugin_graph_t *graph);

/* Appends a launch that has been checked. */
hal_status_t ocl_graph_add(hal_plugin_graph_t *graph, hal_plugin_kernel_t *kernel, const hal_launch_t *launch);

/* ---- copies and fills as kernels (own_kernel.c) ----------------------------------------------------------------- */

/* A launch of one of the plugin's own kernels, with its arguments. It must not be moved. */
typedef struct ocl_own_launch_s {
  hal_plugin_kernel_t *kernel;
  hal_launch_t launch;
  hal_arg_t args[3];
  void *to;
  const void *from;
  cl_ulong size;
  unsigned char pattern[16];
} ocl_own_launch_t;

/* Converts a copy on the device, or a fill, to a launch. Command buffers have no commands for shared virtual memory,
 * and the parameters of their buffer commands differ between versions of the extension. */
hal_status_t ocl_own_copy(int32_t device, void *to, const void *from, size_t size, ocl_own_launch_t *out_launch);
hal_status_t ocl_own_fill(int32_t device, void *to, const void *pattern, size_t pattern_size, size_t size,
                          ocl_own_launch_t *out_launch);

/* ---- cl_khr_command_buffer (command_buffer.c) ------------------------------------------------------------------- */

/* Creates a command buffer of a recording. Sets *out_buffer to NULL if the driver has no working implementation;
 * launches are then queued one by one. */
void ocl_command_buffer_create(const hal_plugin_graph_t *graph, cl_command_buffer_khr *out_buffer);
void ocl_command_buffer_release(cl_command_buffer_khr buffer);

/* Queues it; the driver writes *event. */
cl_int ocl_command_buffer_enqueue(cl_command_buffer_khr buffer, cl_command_queue queue, cl_event *event);

#endif /* GRAPH_H_ */
