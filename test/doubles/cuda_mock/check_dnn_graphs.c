/* check_dnn_graphs.c: makes the real cuDNN, 9.8 or later, create plans of the plugin's graphs for devices that are
 * only described (check_dnn_graphs.py). Each graph must have an engine that is deterministic and whose kernels
 * compile. Nothing is computed. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attention.h"

/* Creates plans without a device; from a later version than the plugin requires. */
enum {
  DEVICE_DESCRIPTOR = 38,
  DEVICE_TEXT = 2702,
  TYPE_CHAR = 24,
  HEURISTICS_DEVICE = 204,
  PLAN_DEVICE = 407,
  ADVICES = 8,
  NOTES = 16
};

dnn_table_t dnn;
int cuda_dnn_has_no_memory(cudnnStatus_t code) { return code == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED; }

#define NAME(name, result, parameters) {#name, offsetof(dnn_table_t, name), 0},
static const hal_library_symbol_t symbols[] = {DNN_CALLS(NAME)};

static void load(void) {
  void *const library = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_GLOBAL);
  if (!library) {
    fprintf(stderr, "%s\n", dlerror());
    exit(1);
  }
  for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
    void *const function = dlsym(library, symbols[i].name);
    if (!function) fprintf(stderr, "libcudnn.so.9 lacks %s\n", symbols[i].name), exit(1);
    memcpy((char *)&dnn + symbols[i].offset, &function, sizeof function);
  }
}

/* ---- devices ---- */

static dnn_node_t device_of(int capability) {
  char text[1400];
  dnn_node_t device = NULL;
  snprintf(
      text, sizeof text,
      "{\"deviceId\": 0, \"cudaDeviceId\": 0, \"deviceVer\": %d, \"driverVer\": 12080, \"cudartVer\": 12080, "
      "\"totalGlobalMem\": 85899345920, \"maxGridSize\": [2147483647, 65535, 65535], "
      "\"maxBlockSize\": [1024, 1024, 64], \"regsPerBlock\": 65536, \"multiProcessorCount\": 108, \"warpSize\": 32, "
      "\"maxSharedMemoryPerBlock\": 49152, \"maxSharedMemoryPerBlockOptin\": %d, "
      "\"oversizedSharedMemoryPerBlock\": 0, \"reservedSharedMemoryPerBlock\": 1024, \"maxRegistersPerSM\": 65536, "
      "\"maxCtasPerSM\": 32, \"maxThreadsPerBlock\": 1024, \"maxThreadsPerSM\": 2048, \"pciDeviceId\": 0, "
      "\"isTccDriver\": 0, \"supportCoopLaunch\": 1, \"smClockRateKHz\": 1410000, \"memClockRateKHz\": 1215000, "
      "\"memoryBusWidth\": 5120, \"l2CacheSize\": 41943040, \"deviceName\": \"described\"}",
      capability * 10, capability < 90 ? 166912 : 232448);
  cudnnStatus_t code = dnn.cudnnBackendCreateDescriptor((cudnnBackendDescriptorType_t)DEVICE_DESCRIPTOR, &device);
  if (!code)
    code = dnn.cudnnBackendSetAttribute(device, (cudnnBackendAttributeName_t)DEVICE_TEXT,
                                        (cudnnBackendAttributeType_t)TYPE_CHAR, (int64_t)strlen(text), text);
  if (!code) code = dnn.cudnnBackendFinalize(device);
  if (!code) return device;
  fprintf(stderr, "no device of capability %d can be described: %s\n", capability, dnn.cudnnGetErrorString(code));
  exit(1);
}

/* ---- graphs ---- */

typedef struct case_s {
  int capability;
  hal_dtype_t dtype;
  int backward, causal, tokens_first;
  int64_t heads, kv_heads, queries, keys, size, value_size;
} case_t;

static const case_t cases[] = {
    {80, HAL_FLOAT16, 0, 0, 0, 4, 4, 64, 64, 64, 64},      {80, HAL_BFLOAT16, 0, 1, 1, 8, 2, 100, 77, 64, 64},
    {80, HAL_FLOAT16, 0, 0, 0, 4, 4, 5, 7, 40, 40},        {80, HAL_BFLOAT16, 1, 1, 1, 8, 2, 100, 77, 64, 64},
    {80, HAL_FLOAT16, 1, 0, 0, 4, 4, 2, 128, 128, 128},    {90, HAL_FLOAT16, 0, 1, 0, 8, 8, 256, 256, 64, 64},
    {90, HAL_BFLOAT16, 0, 1, 1, 8, 2, 100, 77, 256, 256},  {90, HAL_FLOAT16, 0, 0, 0, 1, 1, 1, 7, 8, 8},
    {90, HAL_FLOAT16, 1, 1, 1, 4, 1, 5, 7, 16, 24},        {90, HAL_BFLOAT16, 1, 0, 0, 8, 8, 256, 256, 128, 128},
    {100, HAL_BFLOAT16, 0, 1, 1, 8, 2, 100, 77, 128, 128}, {100, HAL_FLOAT16, 1, 1, 0, 4, 4, 64, 64, 64, 64}};

static attention_t attention_of(const case_t *c) {
  attention_t of = {.dtype = c->dtype,
                    .backward = c->backward,
                    .causal = c->causal,
                    .batch = 2,
                    .heads = c->heads,
                    .kv_heads = c->kv_heads,
                    .queries = c->queries,
                    .keys = c->keys,
                    .size = c->size,
                    .value_size = c->value_size};
  for (int id = ATTENTION_QUERY; id < ATTENTION_LAYOUTS; id++) {
    int64_t sizes[DNN_GRAPH_DIMS], *const strides = of.strides[id];
    cuda_attention_sizes(&of, (attention_id_t)id, sizes);
    strides[3] = 1;
    strides[2] = c->tokens_first ? sizes[3] * sizes[1] : sizes[3];
    strides[1] = c->tokens_first ? sizes[3] : sizes[3] * sizes[2];
    strides[0] = sizes[1] * sizes[2] * sizes[3];
  }
  return of;
}

/* Configurations of engines for the device. */
static int64_t ask(const dnn_graph_t *graph, dnn_node_t device, dnn_node_t configs[ADVICES]) {
  const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
  dnn_node_t heuristics = NULL;
  int64_t count = 0;
  dnn.cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, &heuristics);
  dnn.cudnnBackendSetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                               &graph->whole);
  dnn.cudnnBackendSetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
  dnn.cudnnBackendSetAttribute(heuristics, (cudnnBackendAttributeName_t)HEURISTICS_DEVICE,
                               CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &device);
  for (int i = 0; i < ADVICES; i++) dnn.cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &configs[i]);
  if (!dnn.cudnnBackendFinalize(heuristics))
    dnn.cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, ADVICES,
                                 &count, configs);
  return count;
}

static int is_steady(dnn_node_t config) {
  cudnnBackendNumericalNote_t notes[NOTES];
  dnn_node_t engine = NULL;
  int64_t count = 0;
  dnn.cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine);
  if (dnn.cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count,
                                   &engine) ||
      dnn.cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, NOTES, &count,
                                   notes))
    return 0;
  for (int64_t i = 0; i < count; i++)
    if (notes[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) return 0;
  return 1;
}

/* Bytes of its workspace; -1 = there is no plan. */
static int64_t plan(dnn_node_t config, dnn_node_t device) {
  dnn_node_t own = NULL;
  int64_t count = 0, workspace = -1;
  dnn.cudnnBackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &own);
  dnn.cudnnBackendSetAttribute(own, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &config);
  dnn.cudnnBackendSetAttribute(own, (cudnnBackendAttributeName_t)PLAN_DEVICE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                               &device);
  if (!dnn.cudnnBackendFinalize(own))
    dnn.cudnnBackendGetAttribute(own, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &count,
                                 &workspace);
  return workspace;
}

/* Returns whether there is a plan. */
static int check(const case_t *c) {
  const attention_t of = attention_of(c);
  dnn_node_t configs[ADVICES];
  const dnn_node_t device = device_of(c->capability);
  dnn_graph_t graph = {.made_count = 0};
  int64_t workspace = -1, count = 0;
  cuda_attention_graph(&graph, &of);
  cuda_graph_close(&graph, NULL);
  if (!graph.code) count = ask(&graph, device, configs);
  for (int64_t i = 0; i < count && workspace < 0; i++)
    if (is_steady(configs[i])) workspace = plan(configs[i], device);
  printf("capability %d, %s%s, heads %d of %d, queries %d, keys %d, numbers %d and %d: %d operations, %d engines, ",
         c->capability, c->backward ? "backward" : "forward", c->causal ? ", causal" : "", (int)c->heads,
         (int)c->kv_heads, (int)c->queries, (int)c->keys, (int)c->size, (int)c->value_size, graph.operation_count,
         (int)count);
  if (workspace < 0)
    printf("no plan (%s)\n", dnn.cudnnGetErrorString(graph.code));
  else
    printf("workspace %lld\n", (long long)workspace);
  return workspace >= 0;
}

int main(void) {
  int good = 1, major = 0, minor = 0;
  load();
  dnn.cudnnGetProperty(MAJOR_VERSION, &major), dnn.cudnnGetProperty(MINOR_VERSION, &minor);
  printf("cuDNN %d.%d\n", major, minor);
  if (major * 100 + minor < 908) return 77;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) good &= check(&cases[i]);
  return !good;
}
