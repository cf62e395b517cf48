/* graph.c: recordings, and instances: a recording as a command buffer, which is submitted any number of times. */
#include "graph.h"

#include <string.h>

typedef struct vulkan_node_s {
  struct vulkan_node_s *next;
  vulkan_run_fn_t run;
  alignas(16) unsigned char arguments[];
} vulkan_node_t;

struct hal_plugin_graph_exec_s {
  vulkan_device_t *device;
  vulkan_lane_t *lane;   /* the owner of the command buffer, of its descriptors and of its staging memory */
  pthread_mutex_t lock;  /* held while a launch is queued: the launches of an instance are in order */
  vulkan_record_t *last; /* of the last launch */
};

/* ---- recordings ------------------------------------------------------------------------------------------------- */

hal_plugin_graph_t *vulkan_graph_create(vulkan_device_t *device) {
  hal_plugin_graph_t *const graph = hal_host->mem_alloc(sizeof *graph, alignof(hal_plugin_graph_t));
  if (!graph) return NULL;
  *graph = (hal_plugin_graph_t){.device = device};
  graph->end = &graph->first;
  return graph;
}

void vulkan_graph_free(hal_plugin_graph_t *graph) {
  for (vulkan_node_t *node; (node = graph->first);) {
    graph->first = node->next;
    hal_host->mem_free(node);
  }
  hal_host->mem_free(graph);
}

hal_status_t vulkan_graph_add(hal_plugin_graph_t *graph, const vulkan_label_t *label, vulkan_run_fn_t run,
                              const void *arguments, size_t size) {
  vulkan_node_t *const node = hal_host->mem_alloc(sizeof *node + size, alignof(vulkan_node_t));
  if (!node)
    return vulkan_error(HAL_RESOURCE_EXHAUSTED, 0, "vulkan: no host memory to record %s in a graph; free some memory",
                        label->op);
  *node = (vulkan_node_t){.run = run};
  memcpy(node->arguments, arguments, size);
  *graph->end = node;
  graph->end = &node->next;
  graph->count++;
  graph->sets += label->kernel != NULL;
  graph->buffers += label->buffers;
  return HAL_OK;
}

hal_status_t hal_plugin_graph_destroy(hal_plugin_graph_t *graph) {
  const hal_status_t status = graph ? vulkan_check_device(graph->device->ordinal) : HAL_OK;
  if (graph && !status) vulkan_graph_free(graph);
  return status;
}

/* ---- instances -------------------------------------------------------------------------------------------------- */

/* Records the work into the command buffer. An empty graph has one without commands. */
static hal_status_t record_nodes(const hal_plugin_graph_t *graph, vulkan_lane_t *lane) {
  VkCommandBuffer commands;
  hal_status_t status = vulkan_lane_begin(lane, &commands);
  for (vulkan_node_t *node = graph->first; node && !status; node = node->next)
    status = node->run(lane, node->arguments);
  return status ? status : vulkan_lane_end(lane);
}

hal_status_t hal_plugin_graph_instantiate(hal_plugin_graph_t *graph, hal_plugin_graph_exec_t **out_exec) {
  hal_status_t status = vulkan_check_alive(graph->device->ordinal);
  if (status) return status;
  hal_plugin_graph_exec_t *const exec = hal_host->mem_alloc(sizeof *exec, alignof(hal_plugin_graph_exec_t));
  if (!exec) return vulkan_error(HAL_RESOURCE_EXHAUSTED, 0, "vulkan: no host memory for a graph; free some memory");
  *exec = (hal_plugin_graph_exec_t){.device = graph->device};
  status = vulkan_lane_create_reusable(graph->device, graph->sets + 1, graph->buffers, &exec->lane);
  if (!status) status = record_nodes(graph, exec->lane);
  if (status) {
    if (exec->lane) vulkan_lane_destroy(exec->lane);
    hal_host->mem_free(exec);
    return status;
  }
  pthread_mutex_init(&exec->lock, NULL);
  *out_exec = exec;
  return HAL_OK;
}

hal_status_t hal_plugin_graph_exec_destroy(hal_plugin_graph_exec_t *exec) {
  if (!exec) return HAL_OK;
  const hal_status_t status = vulkan_check_device(exec->device->ordinal);
  if (status) return status;
  if (exec->last) vulkan_record_wait(exec->last); /* returns at once for an instance that is no longer queued */
  vulkan_record_drop(exec->last);
  vulkan_lane_destroy(exec->lane);
  pthread_mutex_destroy(&exec->lock);
  hal_host->mem_free(exec);
  return HAL_OK;
}

/* ---- launches --------------------------------------------------------------------------------------------------- */

typedef struct replay_s { /* with a reference to each record */
  const vulkan_lane_t *recorded;
  vulkan_record_t *before, *done;
} replay_t;

/* After a failure the record is reached, too, because later launches wait for it. */
static hal_status_t run_replay(vulkan_lane_t *lane, void *arguments) {
  const replay_t *const replay = arguments;
  hal_status_t status = replay->before ? vulkan_record_await(replay->before, lane) : HAL_OK;
  if (!status) status = vulkan_lane_replay(lane, replay->recorded);
  vulkan_record_reach(replay->done, lane);
  vulkan_record_drop(replay->before);
  vulkan_record_drop(replay->done);
  return status;
}

/* The caller holds the instance's lock. */
static hal_status_t launch(hal_plugin_graph_exec_t *exec, hal_plugin_stream_t *stream) {
  const vulkan_label_t label = {.op = "graph_launch", .measured = 1, .kind = HAL_PROFILE_KERNEL};
  replay_t replay = {.recorded = exec->lane, .before = exec->last};
  hal_status_t status = vulkan_record_create(exec->device, &replay.done);
  if (status) return status;
  vulkan_record_keep(replay.done);
  if (replay.before) vulkan_record_keep(replay.before);
  status = vulkan_enqueue(stream, exec->device, label, run_replay, &replay, sizeof replay);
  if (!status || vulkan_record_is_reached(replay.done)) {
    vulkan_record_drop(exec->last);
    exec->last = replay.done;
    return status;
  }
  vulkan_record_drop(replay.before); /* it was not queued */
  vulkan_record_drop(replay.done);
  vulkan_record_drop(replay.done);
  return status;
}

hal_status_t hal_plugin_graph_launch(hal_plugin_graph_exec_t *exec, hal_plugin_stream_t *stream) {
  hal_status_t status = vulkan_check_alive(exec->device->ordinal);
  if (status) return status;
  if (stream && stream->device != exec->device)
    return vulkan_error(HAL_INVALID_ARGUMENT, 0, "vulkan: a graph of device %d cannot run on a stream of device %d",
                        (int)exec->device->ordinal, (int)stream->device->ordinal);
  if (vulkan_is_captured(stream))
    return vulkan_capture_add(stream, &(vulkan_label_t){.op = "graph_launch"}, run_replay, NULL, 0);
  pthread_mutex_lock(&exec->lock);
  status = launch(exec, stream);
  pthread_mutex_unlock(&exec->lock);
  return status;
}
