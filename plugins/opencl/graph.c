/* graph.c: recordings, and graphs: a recording that is replayed, as a command buffer of the driver or launch by launch.
 * */
#include <string.h>

#include "capture.h"
#include "graph.h"

struct hal_plugin_graph_exec_s {
  hal_plugin_graph_t *graph;
  cl_command_buffer_khr buffer; /* or NULL */
};

/* ---- recordings ------------------------------------------------------------------------------------------------- */

hal_plugin_graph_t *ocl_graph_create(int32_t device) {
  hal_plugin_graph_t *const graph = hal_host->mem_alloc(sizeof *graph, alignof(hal_plugin_graph_t));
  if (!graph) return NULL;
  memset(graph, 0, sizeof *graph);
  atomic_init(&graph->references, 1);
  graph->device = device;
  return graph;
}

void ocl_graph_release(hal_plugin_graph_t *graph) {
  if (atomic_fetch_sub(&graph->references, 1) > 1) return;
  for (uint32_t i = 0; i < graph->count; i++) icd.clReleaseKernel(graph->nodes[i].handle);
  for (uint32_t i = 0; i < graph->view_count; i++) icd.clReleaseMemObject(graph->views[i]);
  hal_host->mem_free(graph->nodes);
  hal_host->mem_free(graph->views);
  hal_host->mem_free(graph);
}

/* Reserves memory for `more` elements of `size` bytes after `count`. Returns whether there was enough memory. */
static int reserve(void **array, uint32_t *room, uint32_t count, uint32_t more, size_t size) {
  if (*room - count >= more) return 1;
  const uint32_t wanted = 2 * *room + more + 14;
  void *const larger = hal_host->mem_alloc(wanted * size, alignof(max_align_t));
  if (!larger) return 0;
  if (count) memcpy(larger, *array, count * size);
  hal_host->mem_free(*array);
  *array = larger;
  *room = wanted;
  return 1;
}

static hal_status_t set_node(hal_plugin_graph_t *graph, const hal_plugin_kernel_t *kernel, const hal_launch_t *launch,
                             ocl_node_t *node) {
  ocl_views_t views;
  views.count = 0;
  views.near.base = NULL;
  void *nodes = graph->nodes, *kept = graph->views;
  hal_status_t status = ocl_kernel_set_args(kernel, node->handle, launch, &views);
  if (!status && (!reserve(&nodes, &graph->room, graph->count, 1, sizeof *node) ||
                  !reserve(&kept, &graph->view_room, graph->view_count, views.count, sizeof(cl_mem))))
    status = ocl_error(HAL_RESOURCE_EXHAUSTED, 0, "opencl: no host memory for launch %u of a graph",
                       (unsigned)graph->count + 1);
  graph->nodes = nodes;
  graph->views = kept;
  if (status) {
    ocl_views_release(&views);
    return status;
  }
  for (uint32_t i = 0; i < views.count; i++) graph->views[graph->view_count++] = views.views[i];
  ocl_launch_sizes(launch, &node->dimensions, node->global, node->local);
  graph->nodes[graph->count++] = *node;
  return HAL_OK;
}

hal_status_t ocl_graph_add(hal_plugin_graph_t *graph, hal_plugin_kernel_t *kernel, const hal_launch_t *launch) {
  cl_int code = CL_SUCCESS;
  ocl_node_t node = {.handle = icd.clCreateKernel(kernel->module->program, kernel->name, &code)};
  if (!code && !node.handle) code = CL_INVALID_KERNEL;
  if (code) return ocl_driver_error(code, "opencl: cannot create another kernel '%s' for a graph", kernel->name);
  const hal_status_t status = set_node(graph, kernel, launch, &node);
  if (status) icd.clReleaseKernel(node.handle);
  return status;
}

hal_status_t hal_plugin_graph_destroy(hal_plugin_graph_t *graph) {
  const hal_status_t status = graph ? ocl_check_device(graph->device) : HAL_OK;
  if (graph && !status) ocl_graph_release(graph);
  return status;
}

/* ---- instances -------------------------------------------------------------------------------------------------- */

hal_status_t hal_plugin_graph_instantiate(hal_plugin_graph_t *graph, hal_plugin_graph_exec_t **out_exec) {
  const hal_status_t status = ocl_check_device(graph->device);
  if (status) return status;
  hal_plugin_graph_exec_t *const exec = hal_host->mem_alloc(sizeof *exec, alignof(hal_plugin_graph_exec_t));
  if (!exec) return ocl_error(HAL_RESOURCE_EXHAUSTED, 0, "opencl: no host memory for a graph; free some memory");
  atomic_fetch_add(&graph->references, 1);
  exec->graph = graph;
  ocl_command_buffer_create(graph, &exec->buffer);
  *out_exec = exec;
  return HAL_OK;
}

hal_status_t hal_plugin_graph_exec_destroy(hal_plugin_graph_exec_t *exec) {
  if (!exec) return HAL_OK;
  const hal_status_t status = ocl_check_device(exec->graph->device);
  if (status) return status;
  ocl_command_buffer_release(exec->buffer);
  ocl_graph_release(exec->graph);
  hal_host->mem_free(exec);
  return HAL_OK;
}

static hal_status_t launch_one_by_one(const hal_plugin_graph_t *graph, hal_plugin_stream_t *stream) {
  for (uint32_t i = 0; i < graph->count; i++) {
    const ocl_node_t *const node = &graph->nodes[i];
    ocl_submit_t submit;
    hal_status_t status = ocl_submit_begin(&submit, stream, graph->device, "graph_launch");
    if (status) return status;
    status =
        ocl_submit_end(&submit, icd.clEnqueueNDRangeKernel(submit.queue, node->handle, node->dimensions, NULL,
                                                           node->global, node->local, 0, NULL, &submit.work.event));
    if (status) return status;
  }
  return HAL_OK;
}

/* A queue with other properties, such as a priority, may be incompatible with the command buffer; then its launches are
 * queued one by one. */
hal_status_t hal_plugin_graph_launch(hal_plugin_graph_exec_t *exec, hal_plugin_stream_t *stream) {
  enum { INCOMPATIBLE_QUEUE = -1139 /* CL_INCOMPATIBLE_COMMAND_QUEUE_KHR, which old headers lack */ };
  const hal_plugin_graph_t *const graph = exec->graph;
  hal_status_t status = ocl_check_device(graph->device);
  if (status) return status;
  if (stream && stream->device != graph->device)
    return ocl_error(HAL_INVALID_ARGUMENT, 0, "opencl: a graph of device %d cannot run on a stream of device %d",
                     (int)graph->device, (int)stream->device);
  if (ocl_is_captured(stream)) return ocl_capture_refuse(stream, "graph_launch");
  if (!exec->buffer) return launch_one_by_one(graph, stream);
  ocl_submit_t submit;
  status = ocl_submit_begin(&submit, stream, graph->device, "graph_launch");
  if (status) return status;
  const cl_int code = ocl_command_buffer_enqueue(exec->buffer, submit.queue, &submit.work.event);
  status = ocl_submit_end(&submit, code);
  return code == INCOMPATIBLE_QUEUE ? launch_one_by_one(graph, stream) : status;
}
