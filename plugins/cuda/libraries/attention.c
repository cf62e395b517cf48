/* attention.c: plans for attention and calls with them. A plan takes long to create and is cached by its parameters.
 * One thread uses a plan at a time; another thread creates its own, and one of the two is cached. Plans exist as long
 * as the library's handles. */
#include "attention.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PLACES = 128 };

/* Maximum workspace of a plan in bytes: deterministic gradients store the weights of all pairs of a query and a key. */
#define MOST_WORKSPACE (INT64_C(1) << 31)

/* ---- plans: by a hash, a later entry replaces an earlier one ---------------------------------------------------- */

typedef struct place_s {
  attention_t of;
  int known;          /* `of` has been requested: if there is no plan here, a thread uses it */
  int declined;       /* there is none */
  dnn_graph_t *graph; /* with its plan */
} place_t;

static struct {
  pthread_mutex_t lock;
  place_t list[PLACES];
  dnn_graph_t *captured; /* plans whose kernels run in graphs of the driver, which hold no reference: never destroyed */
} kept = {.lock = PTHREAD_MUTEX_INITIALIZER};

static place_t *place_of(const attention_t *of) { return &kept.list[cuda_dnn_hash(of, sizeof *of, 0) % PLACES]; }

static int is_of(const place_t *place, const attention_t *of) {
  return place->known && memcmp(&place->of, of, sizeof *of) == 0;
}

static void drop(dnn_graph_t *graph) {
  if (!graph || graph->next) return;
  cuda_graph_drop(graph);
  free(graph);
}

/* The last one of the list is its own successor. */
static void note_capture(dnn_graph_t *graph) {
  pthread_mutex_lock(&kept.lock);
  if (!graph->next) {
    graph->next = kept.captured ? kept.captured : graph;
    kept.captured = graph;
  }
  pthread_mutex_unlock(&kept.lock);
}

/* Caches a plan, or that there is none (graph = NULL). */
static void keep(const attention_t *of, dnn_graph_t *graph) {
  dnn_graph_t *old = graph;
  pthread_mutex_lock(&kept.lock);
  place_t *const place = place_of(of);
  if (!is_of(place, of) || !place->graph) {
    old = place->graph;
    *place = (place_t){.of = *of, .known = 1, .declined = !graph, .graph = graph};
  }
  pthread_mutex_unlock(&kept.lock);
  drop(old);
}

/* Plans that graphs of the driver have run remain in their list, because the list does not store the device. */
void cuda_attention_forget(int32_t device, int lost) {
  pthread_mutex_lock(&kept.lock);
  for (int i = 0; i < PLACES; i++) {
    place_t *const place = &kept.list[i];
    if (!place->known || place->of.device != device) continue;
    if (!lost) drop(place->graph);
    *place = (place_t){.known = 0};
  }
  pthread_mutex_unlock(&kept.lock);
}

static cudnnStatus_t make_plan(const attention_t *of, cudnnHandle_t handle, dnn_graph_t **out) {
  dnn_graph_t *const graph = calloc(1, sizeof *graph);
  if (!graph) return CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
  cuda_attention_graph(graph, of);
  cuda_graph_close(graph, handle);
  const cudnnStatus_t code = graph->code ? graph->code : cuda_graph_choose(graph, handle, MOST_WORKSPACE);
  if (!code)
    *out = graph;
  else
    drop(graph);
  return code;
}

/* Takes the plan, which is returned by `keep`. Any error of the library for a graph, except out of memory, is cached as
 * "no plan". */
static cudnnStatus_t take(const attention_t *of, cudnnHandle_t handle, dnn_graph_t **out) {
  int declined = 0;
  *out = NULL;
  pthread_mutex_lock(&kept.lock);
  place_t *const place = place_of(of);
  if (is_of(place, of)) {
    declined = place->declined;
    *out = place->graph;
    place->graph = NULL;
  }
  pthread_mutex_unlock(&kept.lock);
  if (declined) return CUDNN_STATUS_NOT_SUPPORTED;
  if (*out) return CUDNN_STATUS_SUCCESS;
  const cudnnStatus_t code = make_plan(of, handle, out);
  if (!code || cuda_dnn_has_no_memory(code)) return code;
  keep(of, NULL);
  return CUDNN_STATUS_NOT_SUPPORTED;
}

/* ---- calls ------------------------------------------------------------------------------------------------------ */

static size_t bytes_of(const attention_t *of, attention_id_t id) {
  int64_t sizes[DNN_GRAPH_DIMS];
  cuda_attention_sizes(of, id, sizes);
  return (size_t)(sizes[0] * sizes[1] * sizes[2] * sizes[3]) * 2;
}

/* The library computes all gradients. Those that are not requested are written to scratch memory, which has space for a
 * dense one. */
static hal_status_t take_rooms(const hal_op_call_t *call, const attention_work_t *work, const dnn_graph_t *graph,
                               void *data[ATTENTION_IDS], void **out_workspace) {
  const attention_t *const of = &work->attention;
  hal_status_t status = HAL_OK;
  memcpy(data, work->memory, sizeof work->memory);
  if (graph->workspace > 0) status = hal_host->scratch_alloc(call, (size_t)graph->workspace, out_workspace);
  if (!of->backward) return status;
  for (attention_id_t id = ATTENTION_GRAD_QUERY; id <= ATTENTION_GRAD_VALUE && !status; id++)
    if (!data[id]) status = hal_host->scratch_alloc(call, bytes_of(of, id), &data[id]);
  if (!status)
    status = hal_host->scratch_alloc(call, (size_t)(of->batch * of->heads * of->queries) * sizeof(float),
                                     &data[ATTENTION_SUM]);
  return status;
}

static cudnnStatus_t execute(const attention_work_t *work, const dnn_graph_t *graph, cudnnHandle_t handle,
                             void *data[ATTENTION_IDS], void *workspace) {
  float scale = work->scale, masked = cuda_attention_masked(cuda_dnn_version()), one = 1;
  int64_t ids[ATTENTION_IDS], count = 0;
  void *given[ATTENTION_IDS];
  data[ATTENTION_SCALE] = &scale;
  if (work->attention.causal) data[ATTENTION_MASKED] = &masked;
  if (work->attention.backward) data[ATTENTION_ONE] = &one;
  for (int id = ATTENTION_QUERY; id < ATTENTION_IDS; id++) {
    if (!data[id]) continue; /* the pass has none */
    ids[count] = id;
    given[count++] = data[id];
  }
  return cuda_graph_execute(graph, handle, count, ids, given, workspace);
}

static hal_status_t queue_plan(const hal_op_call_t *call, const attention_work_t *work, dnn_graph_t *graph,
                               cudnnHandle_t handle) {
  const attention_t *const of = &work->attention;
  void *data[ATTENTION_IDS] = {NULL}, *workspace = NULL;
  char what[200] = "";
  cuda_submit_t submit;
  hal_status_t status = take_rooms(call, work, graph, data, &workspace);
  if (!status) status = cuda_submit_begin(&submit, call->stream, call->device, work->op);
  if (status) return status;
  if (CUDA_UNLIKELY(cuda_stream_is_captured(submit.stream))) note_capture(graph);
  submit.work.kernel = of->backward ? "cudnnBackendExecute: attention backward" : "cudnnBackendExecute: attention";
  cudnnStatus_t code = dnn.cudnnSetStream(handle, submit.handle);
  if (!code) code = execute(work, graph, handle, data, workspace);
  if (CUDA_UNLIKELY(code))
    snprintf(what, sizeof what, "%s of %lld x %lld heads of %lld numbers, %lld queries and %lld keys", work->op,
             (long long)of->batch, (long long)of->heads, (long long)of->size, (long long)of->queries,
             (long long)of->keys);
  return cuda_library_submitted(&cuda_dnn, &submit, (int)code, what);
}

/* Queries if call is NULL. */
static hal_status_t with_plan(const hal_op_call_t *call, const attention_work_t *work) {
  const int32_t device = (int32_t)work->attention.device;
  cudnnHandle_t handle = NULL;
  dnn_graph_t *graph = NULL;
  cuda_scope_t scope;
  hal_status_t status = cuda_enter(device, &scope);
  if (status) return status;
  cudnnStatus_t code = cuda_dnn_take(device, &handle);
  if (!code) code = take(&work->attention, handle, &graph);
  if (code)
    status = cuda_dnn_has_no_memory(code) ? cuda_library_no_memory(&cuda_dnn, work->op, (int)code) : HAL_UNIMPLEMENTED;
  else if (call)
    status = queue_plan(call, work, graph, handle);
  if (graph) keep(&work->attention, graph);
  if (handle) cuda_dnn_give(device, handle);
  cuda_leave(&scope);
  return status;
}

hal_status_t cuda_attention_query(const attention_work_t *work) { return with_plan(NULL, work); }

hal_status_t cuda_attention_queue(const hal_op_call_t *call, const attention_work_t *work) {
  return with_plan(call, work);
}
