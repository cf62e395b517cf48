/* engine.c: engines of the mock of cuDNN's backend, their plans, and calls. As for convolutions, its heuristics
 * include engines that the plugin must not use: one that reports not to be deterministic and one that accumulates in
 * a short type, both with wrong results, one whose workspace is larger than most devices' memory, and one for which
 * no plan can be created. */
#include <stdlib.h>
#include <string.h>

#include "backend.h"

enum { UNSTEADY, SHORT_SUMS, HUGE_WORKSPACE, NO_PLAN, PLAIN, ENGINES, GRAIN = 8, MOST_HEAD = 256, ALIGNMENT = 16 };
static const int64_t workspaces[ENGINES] = {0, 0, INT64_C(1) << 40, 0, 1024};

/* ---- supported graphs ---- */

/* Heads whose numbers are adjacent, in rows with aligned addresses. */
static int is_taken(const graph_tensor_t *tensor) {
  int64_t inner = 0;
  if (tensor->type != CUDNN_DATA_HALF && tensor->type != CUDNN_DATA_BFLOAT16)
    return tensor->type == CUDNN_DATA_FLOAT; /* statistics and numbers */
  if (tensor->type == (cudnnDataType_t)vendor_setting("CUDNN_MOCK_LACKS", -1)) return 0;
  for (int i = 2; i < GRAPH_DIMS; i++)
    if (tensor->strides[i] == 1) inner = tensor->sizes[i];
  for (int i = 0; i < GRAPH_DIMS; i++)
    if (tensor->strides[i] != 1 && tensor->strides[i] % GRAIN) return 0;
  return inner && inner % GRAIN == 0 && inner <= MOST_HEAD;
}

static int is_served(const graph_t *graph) {
  int taken = 1, products = 0;
  for (int i = 0; i < graph->tensor_count; i++) taken &= graph->tensors[i].is_virtual || is_taken(&graph->tensors[i]);
  for (int i = 0; i < graph->operation_count; i++)
    products += graph->operations[i].kind == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR;
  return taken && products >= 2;
}

static graph_t *copy_of(const graph_t *graph) {
  graph_t *const copy = malloc(sizeof *copy);
  if (copy) *copy = *graph;
  return copy;
}

cudnnStatus_t finish_heuristics(descriptor_t *descriptor) {
  const descriptor_t *const graph = node_of(descriptor, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
  if (!graph || graph->type != CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR) return CUDNN_STATUS_BAD_PARAM;
  descriptor->graph = copy_of(graph->graph);
  return descriptor->graph ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
}

cudnnStatus_t finish_plan(descriptor_t *descriptor) {
  const descriptor_t *const config = node_of(descriptor, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
  if (!config || config->type != CUDNN_BACKEND_ENGINECFG_DESCRIPTOR || !config->graph) return CUDNN_STATUS_BAD_PARAM;
  if (config->engine == NO_PLAN) return CUDNN_STATUS_NOT_SUPPORTED;
  descriptor->engine = config->engine;
  descriptor->graph = copy_of(config->graph);
  return descriptor->graph ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
}

/* ---- reported attributes ---- */

/* Initializes an empty descriptor of the caller as an engine, or its configuration. */
static int become(descriptor_t *own, cudnnBackendDescriptorType_t type, int engine, const graph_t *graph) {
  if (!own || own->type != type || own->finished) return 0;
  own->engine = engine;
  own->graph = copy_of(graph);
  own->finished = own->graph != NULL;
  return own->finished;
}

static cudnnStatus_t tell_results(const descriptor_t *heuristics, int64_t room, int64_t *count, descriptor_t **out) {
  const int served = is_served(heuristics->graph);
  *count = 0;
  for (int i = 0; served && i < ENGINES && *count < room; i++)
    if (!become(out[(*count)++], CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, i, heuristics->graph))
      return CUDNN_STATUS_BAD_PARAM;
  return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t tell_notes(const descriptor_t *engine, int64_t room, int64_t *count, void *values) {
  const int notes[] = {CUDNN_NUMERICAL_NOTE_TENSOR_CORE, engine->engine == UNSTEADY
                                                             ? CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC
                                                             : CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION};
  *count = engine->engine == UNSTEADY || engine->engine == SHORT_SUMS ? 2 : 1;
  memcpy(values, notes, (size_t)(*count < room ? *count : room) * sizeof *notes);
  return CUDNN_STATUS_SUCCESS;
}

int tell(const descriptor_t *descriptor, cudnnBackendAttributeName_t name, int64_t room, int64_t *count, void *values,
         cudnnStatus_t *out_code) {
  if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS && descriptor->type == CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR) {
    *out_code = tell_results(descriptor, room, count, values);
  } else if (name == CUDNN_ATTR_ENGINECFG_ENGINE && descriptor->type == CUDNN_BACKEND_ENGINECFG_DESCRIPTOR) {
    *count = 1;
    *out_code = room == 1 && become(*(descriptor_t **)values, CUDNN_BACKEND_ENGINE_DESCRIPTOR, descriptor->engine,
                                    descriptor->graph)
                    ? CUDNN_STATUS_SUCCESS
                    : CUDNN_STATUS_BAD_PARAM;
  } else if (name == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE && descriptor->type == CUDNN_BACKEND_ENGINE_DESCRIPTOR) {
    *out_code = tell_notes(descriptor, room, count, values);
  } else if (name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE &&
             descriptor->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR && room == 1) {
    *count = 1;
    memcpy(values, &workspaces[descriptor->engine], sizeof *workspaces);
    *out_code = CUDNN_STATUS_SUCCESS;
  } else {
    return 0;
  }
  return 1;
}

/* ---- calls ---- */

/* Each given tensor must have an address, and nothing else may have one. Numbers are read immediately. */
static int take_data(const descriptor_t *pack, graph_run_t *run) {
  int64_t count = 0, pointers = 0, wanted = 0;
  const int64_t *const ids = value_of(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, &count);
  void *const *const data = value_of(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, &pointers);
  if (count != pointers) return 0;
  for (int i = 0; i < run->graph.tensor_count; i++) {
    const graph_tensor_t *const tensor = &run->graph.tensors[i];
    int64_t at = 0;
    if (tensor->is_virtual) continue;
    while (at < count && ids[at] != tensor->uid) at++;
    if (at == count || !data[at]) return 0;
    wanted++;
    if (tensor->by_value)
      memcpy(&run->numbers[i], data[at], sizeof run->numbers[i]);
    else if ((uintptr_t)data[at] % ALIGNMENT)
      return 0;
    run->data[i] = tensor->by_value ? NULL : data[at];
  }
  return wanted == count;
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack) {
  const descriptor_t *const own = finished_of(plan, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  const descriptor_t *const given = finished_of(pack, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  void *const *const workspace = value_of(given, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, NULL);
  cudnnStatus_t code = refused(__func__);
  if (code) return code;
  if (!own || !given || (workspaces[own->engine] && !*workspace)) return CUDNN_STATUS_BAD_PARAM;
  graph_run_t *const run = calloc(1, sizeof *run);
  if (!run) return CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
  run->graph = *own->graph;
  run->factor = own->engine == UNSTEADY || own->engine == SHORT_SUMS ? 1.02 : 1;
  const work_t work = {.compute = compute_graph,
                       .run = run,
                       .workspace = *workspace,
                       .workspace_bytes = (size_t)workspaces[own->engine]};
  code = take_data(given, run) ? queue_work(handle, &work) : CUDNN_STATUS_BAD_PARAM;
  if (code) free(run);
  return code;
}
