/* graph.c: capture and graphs: the driver's own. */
#include <string.h>

#include "cuda_plugin.h"

struct hal_plugin_graph_s {
  CUgraph handle;
  int32_t device;
};

struct hal_plugin_graph_exec_s {
  CUgraphExec handle;
  int32_t device;
};

_Static_assert((int)HAL_CAPTURE_GLOBAL == CU_STREAM_CAPTURE_MODE_GLOBAL &&
                   (int)HAL_CAPTURE_THREAD == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL &&
                   (int)HAL_CAPTURE_RELAXED == CU_STREAM_CAPTURE_MODE_RELAXED &&
                   (int)HAL_CAPTURE_NONE == CU_STREAM_CAPTURE_STATUS_NONE &&
                   (int)HAL_CAPTURE_ACTIVE == CU_STREAM_CAPTURE_STATUS_ACTIVE &&
                   (int)HAL_CAPTURE_INVALID == CU_STREAM_CAPTURE_STATUS_INVALIDATED,
               "the driver's numbers are the host's");

static hal_status_t no_stream(const char *op) {
  return cuda_error(HAL_INVALID_ARGUMENT, 0,
                    "cuda: %s of the NULL stream, whose work runs immediately; create a stream", op);
}

/* The host handles `pool`, because memory comes from its allocator. */
hal_status_t hal_plugin_capture_begin(hal_plugin_stream_t *stream, uint32_t mode, uint64_t pool) {
  cuda_scope_t scope;
  (void)pool;
  if (!stream) return no_stream("capture_begin");
  if (mode > HAL_CAPTURE_RELAXED)
    return cuda_error(HAL_INVALID_ARGUMENT, 0, "cuda: capture_begin with invalid mode %u; expected 0 to 2",
                      (unsigned)mode);
  hal_status_t status = cuda_check_alive(stream->device);
  if (!status) status = cuda_enter(stream->device, &scope);
  if (status) return status;
  CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t id = 0;
  CUresult code = drv.cuStreamBeginCapture(stream->handle, (CUstreamCaptureMode)mode);
  if (!code) code = drv.cuStreamGetCaptureInfo(stream->handle, &capture, &id);
  if (!code) atomic_store(&stream->capture_id, id);
  cuda_leave(&scope);
  cuda_device_noticed(stream->device, code);
  return code ? cuda_driver_error(code, "cuda: a capture cannot begin") : HAL_OK;
}

static int is_invalidated(CUresult code) {
  return code == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED || code == CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
}

static hal_status_t end_capture(hal_plugin_stream_t *stream, hal_plugin_graph_t *graph) {
  cuda_scope_t scope;
  const hal_status_t status = cuda_enter(stream->device, &scope);
  if (status) return status;
  CUresult code = drv.cuStreamEndCapture(stream->handle, &graph->handle);
  cuda_leave(&scope);
  if (!code && !graph->handle) code = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  cuda_device_noticed(stream->device, code);
  if (is_invalidated(code))
    return cuda_error(HAL_ABORTED, (int64_t)code,
                      "cuda: a capture became invalid (%s): an operation that cannot be part of a graph was called "
                      "during the capture, or "
                      "a stream that joined it was not waited for",
                      cuda_error_name(code));
  return code ? cuda_driver_error(code, "cuda: a capture cannot end") : HAL_OK;
}

hal_status_t hal_plugin_capture_end(hal_plugin_stream_t *stream, hal_plugin_graph_t **out_graph) {
  if (!stream) return no_stream("capture_end");
  hal_plugin_graph_t *const graph = hal_host->mem_alloc(sizeof *graph, alignof(hal_plugin_graph_t));
  if (!graph) return cuda_error(HAL_RESOURCE_EXHAUSTED, 0, "cuda: no host memory for a graph; free some memory");
  *graph = (hal_plugin_graph_t){.device = stream->device};
  const hal_status_t status = end_capture(stream, graph);
  if (status)
    hal_host->mem_free(graph);
  else
    *out_graph = graph;
  return status;
}

hal_status_t hal_plugin_capture_status(hal_plugin_stream_t *stream, uint32_t *out_status, uint64_t *out_id) {
  cuda_scope_t scope;
  CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t id = 0;
  if (stream) {
    const hal_status_t status = cuda_enter(stream->device, &scope);
    if (status) return status;
    const CUresult code = drv.cuStreamGetCaptureInfo(stream->handle, &capture, &id);
    cuda_leave(&scope);
    cuda_device_noticed(stream->device, code);
    if (code) return cuda_driver_error(code, "cuda: cannot query whether a stream is captured");
  }
  *out_status = (uint32_t)capture;
  if (capture && id) atomic_store(&stream->capture_id, id);
  *out_id = capture ? atomic_load(&stream->capture_id) : 0; /* the driver reports no id of an invalidated capture */
  return HAL_OK;
}

int cuda_stream_is_captured(const hal_plugin_stream_t *stream) {
  CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
  return !drv.cuStreamIsCapturing(stream->handle, &capture) && capture != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* ---- graphs ----------------------------------------------------------------------------------------------------- */

hal_status_t hal_plugin_graph_destroy(hal_plugin_graph_t *graph) {
  cuda_scope_t scope;
  if (!graph) return HAL_OK;
  const hal_status_t status = cuda_enter(graph->device, &scope);
  if (status) return status;
  drv.cuGraphDestroy(graph->handle); /* fails only if the context has ended, and the graph with it */
  cuda_leave(&scope);
  hal_host->mem_free(graph);
  return HAL_OK;
}

hal_status_t hal_plugin_graph_instantiate(hal_plugin_graph_t *graph, hal_plugin_graph_exec_t **out_exec) {
  cuda_scope_t scope;
  CUgraphExec handle = NULL;
  CUgraphNode node = NULL;
  char log[512] = "";
  hal_status_t status = cuda_check_alive(graph->device);
  if (!status) status = cuda_enter(graph->device, &scope);
  if (status) return status;
  hal_plugin_graph_exec_t *const exec = hal_host->mem_alloc(sizeof *exec, alignof(hal_plugin_graph_exec_t));
  CUresult code =
      exec ? drv.cuGraphInstantiate(&handle, graph->handle, &node, log, sizeof log - 1) : CUDA_ERROR_OUT_OF_MEMORY;
  cuda_leave(&scope);
  if (!code && !handle) code = CUDA_ERROR_UNKNOWN;
  log[sizeof log - 1] = '\0';
  if (code) {
    hal_host->mem_free(exec);
    cuda_device_noticed(graph->device, code);
    return cuda_driver_error(code, "cuda: a graph cannot be instantiated%s%s", log[0] ? ": " : "", log);
  }
  *exec = (hal_plugin_graph_exec_t){handle, graph->device};
  *out_exec = exec;
  return HAL_OK;
}

hal_status_t hal_plugin_graph_update(hal_plugin_graph_exec_t *exec, hal_plugin_graph_t *graph) {
  cuda_scope_t scope;
  CUgraphNode node = NULL;
  CUgraphExecUpdateResult result = CU_GRAPH_EXEC_UPDATE_ERROR;
  hal_status_t status = cuda_check_alive(exec->device);
  if (!status) status = cuda_enter(exec->device, &scope);
  if (status) return status;
  const CUresult code = drv.cuGraphExecUpdate(exec->handle, graph->handle, &node, &result);
  cuda_leave(&scope);
  cuda_device_noticed(exec->device, code);
  if (code == CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE)
    return cuda_error(HAL_FAILED_PRECONDITION, (int64_t)code,
                      "cuda: the recording differs from the graph's (result %d of the driver); instantiate it again",
                      (int)result);
  return code ? cuda_driver_error(code, "cuda: a graph cannot be updated with the arguments of another recording")
              : HAL_OK;
}

hal_status_t hal_plugin_graph_launch(hal_plugin_graph_exec_t *exec, hal_plugin_stream_t *stream) {
  cuda_submit_t submit;
  if (stream && stream->device != exec->device)
    return cuda_error(HAL_INVALID_ARGUMENT, 0, "cuda: a graph of device %d cannot run on a stream of device %d",
                      (int)exec->device, (int)stream->device);
  const hal_status_t status = cuda_submit_begin(&submit, stream, exec->device, "graph_launch");
  return status ? status : cuda_submit_end(&submit, drv.cuGraphLaunch(exec->handle, submit.handle));
}

hal_status_t hal_plugin_graph_exec_destroy(hal_plugin_graph_exec_t *exec) {
  cuda_scope_t scope;
  if (!exec) return HAL_OK;
  const hal_status_t status = cuda_enter(exec->device, &scope);
  if (status) return status;
  drv.cuGraphExecDestroy(exec->handle);
  cuda_leave(&scope);
  hal_host->mem_free(exec);
  return HAL_OK;
}
