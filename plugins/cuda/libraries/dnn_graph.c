/* dnn_graph.c: graphs of operations for cuDNN's backend. Its descriptors exist as long as the graph; those that were
 * used to choose a plan do not. */
#include "dnn_graph.h"

enum { ADVICES = 8, NOTES = 16, ALIGNMENT = 16, FIRST_PASSING = 1000 };

/* ---- descriptors ------------------------------------------------------------------------------------------------ */

static void set(dnn_graph_t *graph, dnn_node_t node, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                int64_t count, const void *values) {
  if (!graph->code) graph->code = dnn.cudnnBackendSetAttribute(node, name, type, count, values);
}

static void set_node(dnn_graph_t *graph, dnn_node_t node, cudnnBackendAttributeName_t name, dnn_node_t value) {
  if (value) set(graph, node, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

static void finish(dnn_graph_t *graph, dnn_node_t node) {
  if (!graph->code) graph->code = dnn.cudnnBackendFinalize(node);
}

static dnn_node_t make(dnn_graph_t *graph, cudnnBackendDescriptorType_t type) {
  dnn_node_t node = NULL;
  if (graph->code) return NULL;
  if (graph->made_count == DNN_GRAPH_MOST) {
    graph->code = CUDNN_STATUS_NOT_SUPPORTED;
    return NULL;
  }
  graph->code = dnn.cudnnBackendCreateDescriptor(type, &node);
  if (!graph->code) graph->made[graph->made_count++] = node;
  return node;
}

/* Destroys those that were created after the first `kept`. */
static void drop_after(dnn_graph_t *graph, int kept) {
  while (graph->made_count > kept) dnn.cudnnBackendDestroyDescriptor(graph->made[--graph->made_count]);
}

void cuda_graph_drop(dnn_graph_t *graph) {
  drop_after(graph, 0);
  *graph = (dnn_graph_t){.made_count = 0};
}

/* ---- tensors and operations ------------------------------------------------------------------------------------- */

dnn_node_t cuda_graph_tensor(dnn_graph_t *graph, dnn_place_t place, int64_t id, const dnn_layout_t *layout) {
  const dnn_node_t tensor = make(graph, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  const int64_t alignment = ALIGNMENT, own = place == DNN_PASSING ? FIRST_PASSING + graph->passing++ : id;
  const _Bool passes = place == DNN_PASSING, by_value = place == DNN_NUMBER;
  set(graph, tensor, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &layout->type);
  set(graph, tensor, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, DNN_GRAPH_DIMS, layout->sizes);
  set(graph, tensor, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, DNN_GRAPH_DIMS, layout->strides);
  set(graph, tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &own);
  set(graph, tensor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
  set(graph, tensor, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &passes);
  set(graph, tensor, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &by_value);
  finish(graph, tensor);
  return tensor;
}

/* A tensor of an operation, or its computation descriptor. NULL: it has none. */
typedef struct port_s {
  cudnnBackendAttributeName_t name;
  dnn_node_t node;
} port_t;

static void operate(dnn_graph_t *graph, cudnnBackendDescriptorType_t type, const port_t *ports, size_t count) {
  if (graph->operation_count == DNN_GRAPH_OPERATIONS && !graph->code) graph->code = CUDNN_STATUS_NOT_SUPPORTED;
  const dnn_node_t operation = make(graph, type);
  if (operation) graph->operations[graph->operation_count++] = operation;
  for (size_t i = 0; i < count; i++) set_node(graph, operation, ports[i].name, ports[i].node);
  finish(graph, operation);
}
#define OPERATE(graph, type, ports) operate(graph, type, ports, sizeof(ports) / sizeof *(ports))

/* Describes how an operation computes, mostly in float32; its operation's caller finalizes it. */
static dnn_node_t make_computing(dnn_graph_t *graph, cudnnBackendDescriptorType_t type,
                                 cudnnBackendAttributeName_t name, cudnnDataType_t computed) {
  const dnn_node_t how = make(graph, type);
  set(graph, how, name, CUDNN_TYPE_DATA_TYPE, 1, &computed);
  return how;
}

void cuda_graph_matmul(dnn_graph_t *graph, dnn_node_t a, dnn_node_t b, dnn_node_t c) {
  const dnn_node_t how =
      make_computing(graph, CUDNN_BACKEND_MATMUL_DESCRIPTOR, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT);
  const port_t ports[] = {{CUDNN_ATTR_OPERATION_MATMUL_ADESC, a},
                          {CUDNN_ATTR_OPERATION_MATMUL_BDESC, b},
                          {CUDNN_ATTR_OPERATION_MATMUL_CDESC, c},
                          {CUDNN_ATTR_OPERATION_MATMUL_DESC, how}};
  finish(graph, how);
  OPERATE(graph, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, ports);
}

/* `axis`: of an index, else NULL. */
static void point(dnn_graph_t *graph, cudnnPointwiseMode_t mode, const int64_t *axis, const dnn_node_t tensors[4]) {
  const dnn_node_t how = make_computing(graph, CUDNN_BACKEND_POINTWISE_DESCRIPTOR, CUDNN_ATTR_POINTWISE_MATH_PREC,
                                        mode == CUDNN_POINTWISE_CMP_GE ? CUDNN_DATA_BOOLEAN : CUDNN_DATA_FLOAT);
  const port_t ports[] = {{CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how},
                          {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, tensors[0]},
                          {CUDNN_ATTR_OPERATION_POINTWISE_BDESC, tensors[1]},
                          {CUDNN_ATTR_OPERATION_POINTWISE_TDESC, tensors[2]},
                          {CUDNN_ATTR_OPERATION_POINTWISE_YDESC, tensors[3]}};
  set(graph, how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
  if (axis) set(graph, how, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, axis);
  finish(graph, how);
  OPERATE(graph, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, ports);
}

void cuda_graph_pointwise(dnn_graph_t *graph, cudnnPointwiseMode_t mode, dnn_node_t x, dnn_node_t b, dnn_node_t which,
                          dnn_node_t y) {
  point(graph, mode, NULL, (const dnn_node_t[]){x, b, which, y});
}

void cuda_graph_index(dnn_graph_t *graph, int64_t axis, dnn_node_t x, dnn_node_t y) {
  point(graph, CUDNN_POINTWISE_GEN_INDEX, &axis, (const dnn_node_t[]){x, NULL, NULL, y});
}

void cuda_graph_reduce(dnn_graph_t *graph, cudnnReduceTensorOp_t op, dnn_node_t x, dnn_node_t y) {
  const dnn_node_t how =
      make_computing(graph, CUDNN_BACKEND_REDUCTION_DESCRIPTOR, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT);
  const port_t ports[] = {{CUDNN_ATTR_OPERATION_REDUCTION_DESC, how},
                          {CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x},
                          {CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y}};
  set(graph, how, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &op);
  finish(graph, how);
  OPERATE(graph, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, ports);
}

void cuda_graph_reshape(dnn_graph_t *graph, dnn_node_t x, dnn_node_t y) {
  const port_t ports[] = {{CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x}, {CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y}};
  OPERATE(graph, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, ports);
}

void cuda_graph_close(dnn_graph_t *graph, cudnnHandle_t handle) {
  graph->whole = make(graph, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  set(graph, graph->whole, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, graph->operation_count,
      graph->operations);
  if (handle) set(graph, graph->whole, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
  finish(graph, graph->whole);
}

/* ---- plans ------------------------------------------------------------------------------------------------------ */

/* Queries the engines that the library advises, best first; returns their number. */
static int64_t ask(dnn_graph_t *graph, dnn_node_t configs[ADVICES]) {
  const dnn_node_t heuristics = make(graph, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
  int64_t count = 0;
  set_node(graph, heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph->whole);
  set(graph, heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
  finish(graph, heuristics);
  for (int i = 0; i < ADVICES; i++) configs[i] = make(graph, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  if (!graph->code)
    graph->code = dnn.cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                               ADVICES, &count, configs);
  return graph->code ? 0 : count < ADVICES ? count : ADVICES;
}

/* Returns whether an engine is deterministic, uses the operands unchanged, and accumulates in float32. */
static int is_exact(dnn_graph_t *graph, dnn_node_t config) {
  cudnnBackendNumericalNote_t notes[NOTES];
  dnn_node_t engine = make(graph, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  int64_t count = 0;
  if (!graph->code)
    graph->code = dnn.cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                               &count, &engine);
  if (!graph->code)
    graph->code = dnn.cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                               NOTES, &count, notes);
  for (int64_t i = 0; i < count && i < NOTES && !graph->code; i++)
    if (notes[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC || notes[i] == CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS ||
        notes[i] == CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION)
      return 0;
  return !graph->code;
}

/* Returns whether the configuration became the graph's plan. */
static int plan_by(dnn_graph_t *graph, cudnnHandle_t handle, dnn_node_t config, int64_t most_workspace) {
  int64_t count = 0;
  const dnn_node_t plan = make(graph, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  set(graph, plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
  set_node(graph, plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
  finish(graph, plan);
  if (!graph->code)
    graph->code = dnn.cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1,
                                               &count, &graph->workspace);
  if (graph->code || graph->workspace > most_workspace) return 0;
  graph->plan = plan;
  return 1;
}

/* Destroys the objects of the advice except the plan, which becomes the first one after the graph. */
static void keep_plan(dnn_graph_t *graph, int kept) {
  for (int i = kept; i < graph->made_count; i++) {
    if (graph->made[i] != graph->plan) continue;
    graph->made[i] = graph->made[kept];
    graph->made[kept] = graph->plan;
    kept++;
    break;
  }
  drop_after(graph, kept);
}

cudnnStatus_t cuda_graph_choose(dnn_graph_t *graph, cudnnHandle_t handle, int64_t most_workspace) {
  const int kept = graph->made_count;
  dnn_node_t configs[ADVICES];
  cudnnStatus_t failed = CUDNN_STATUS_NOT_SUPPORTED;
  const int64_t count = ask(graph, configs);
  if (graph->code) failed = graph->code;
  for (int64_t i = 0; i < count && !graph->plan; i++) {
    const int before = graph->made_count;
    if (is_exact(graph, configs[i]) && plan_by(graph, handle, configs[i], most_workspace)) break;
    if (cuda_dnn_has_no_memory(graph->code)) failed = graph->code;
    graph->code = CUDNN_STATUS_SUCCESS; /* the next one may work */
    drop_after(graph, before);
  }
  keep_plan(graph, kept);
  graph->code = graph->plan ? CUDNN_STATUS_SUCCESS : failed;
  return graph->code;
}

cudnnStatus_t cuda_graph_execute(const dnn_graph_t *graph, cudnnHandle_t handle, int64_t count, const int64_t *ids,
                                 void *const *data, void *workspace) {
  dnn_graph_t own = {.made_count = 0}; /* objects for this call only */
  const dnn_node_t pack = make(&own, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  set(&own, pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, ids);
  set(&own, pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count, data);
  set(&own, pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
  finish(&own, pack);
  const cudnnStatus_t code = own.code ? own.code : dnn.cudnnBackendExecute(handle, graph->plan, pack);
  cuda_graph_drop(&own);
  return code;
}
