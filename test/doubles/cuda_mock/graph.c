/* graph.c: captures and graphs. A capture is a list of commands in the order of their calls, which satisfies all
 * waits: a graph runs them one after the other, as one command of its stream. */
#include <stdlib.h>

#include "mock.h"

/* Commands that captures, graphs and their launches share. */
typedef struct list_s {
  atomic_int users;
  size_t count, room;
  command_t **commands;
} list_t;

typedef struct capture_s {
  uint64_t id;
  CUstreamCaptureMode mode;
  CUstream origin;
  pthread_t thread;
  int invalidated;
  list_t *list;
  struct capture_s *next;
} capture_t;

struct CUgraph_st {
  list_t *list;
};

struct CUgraphExec_st {
  CUcontext context;
  list_t *list;
};

static capture_t *captures; /* that last; under `lock` */
static uint64_t last_id;

static void release(list_t *list) {
  if (!list || atomic_fetch_sub(&list->users, 1) != 1) return;
  for (size_t i = 0; i < list->count; i++) command_drop(list->commands[i]);
  free(list->commands);
  free(list);
}

static list_t *keep(list_t *list) {
  atomic_fetch_add(&list->users, 1);
  return list;
}

/* ---- captures ---- */

CUresult capture_take(CUstream stream, command_t *command) {
  capture_t *const capture = stream->capture;
  if (!capture) return CUDA_ERROR_NOT_FOUND;
  if (capture->invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  list_t *const list = capture->list;
  if (list->count == list->room) {
    const size_t room = list->room ? 2 * list->room : 16;
    command_t **const commands = realloc(list->commands, room * sizeof *commands);
    if (!commands) return CUDA_ERROR_OUT_OF_MEMORY;
    list->commands = commands;
    list->room = room;
  }
  list->commands[list->count++] = command;
  stream->captured++;
  stream->unjoined = stream != capture->origin;
  return CUDA_SUCCESS;
}

CUresult capture_record(CUstream stream, capture_mark_t *mark) {
  CUresult code = CUDA_ERROR_NOT_FOUND;
  pthread_mutex_lock(&lock);
  *mark = (capture_mark_t){.id = 0};
  if (stream->capture) {
    code = stream->capture->invalidated ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
    *mark = (capture_mark_t){stream->capture->id, stream, stream->captured};
  }
  pthread_mutex_unlock(&lock);
  return code;
}

static capture_t *find(uint64_t id) {
  capture_t *capture = captures;
  while (capture && capture->id != id) capture = capture->next;
  return capture;
}

/* A stream that waits for a captured event joins the capture. */
CUresult capture_wait(CUstream stream, const capture_mark_t *mark) {
  CUresult code = CUDA_ERROR_NOT_FOUND;
  pthread_mutex_lock(&lock);
  capture_t *const capture = mark->id ? find(mark->id) : NULL;
  if (capture && (!stream->capture || stream->capture == capture)) {
    code = capture->invalidated ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
    if (!stream->capture) {
      stream->capture = capture;
      stream->captured = 0;
      stream->unjoined = 1;
    }
    if (mark->stream->captured == mark->captured && mark->stream != stream) mark->stream->unjoined = 0;
  } else if (capture || stream->capture) { /* an event of another capture, or of none */
    if (stream->capture) stream->capture->invalidated = 1;
    code = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  }
  pthread_mutex_unlock(&lock);
  return code;
}

CUresult capture_forbids_stream(CUstream stream) {
  pthread_mutex_lock(&lock);
  const int captured = stream && stream->capture;
  if (captured) stream->capture->invalidated = 1;
  pthread_mutex_unlock(&lock);
  return captured ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

CUresult capture_forbids(void) {
  CUresult code = CUDA_SUCCESS;
  pthread_mutex_lock(&lock);
  for (capture_t *capture = captures; capture; capture = capture->next) {
    const int own = pthread_equal(capture->thread, pthread_self());
    if (capture->mode == CU_STREAM_CAPTURE_MODE_RELAXED || (capture->mode != CU_STREAM_CAPTURE_MODE_GLOBAL && !own))
      continue;
    capture->invalidated = 1;
    code = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  pthread_mutex_unlock(&lock);
  return code;
}

API CUresult cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode mode) {
  CUcontext context;
  CUresult code = enter(&context);
  if (code) return code;
  if ((uintptr_t)stream <= 2) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  capture_t *const capture = calloc(1, sizeof *capture);
  list_t *const list = calloc(1, sizeof *list);
  if (!capture || !list) code = CUDA_ERROR_OUT_OF_MEMORY;
  pthread_mutex_lock(&lock);
  if (!code && stream->capture) code = CUDA_ERROR_INVALID_VALUE;
  if (!code) {
    list->users = 1;
    *capture = (capture_t){++last_id, mode, stream, pthread_self(), 0, list, captures};
    captures = stream->capture = capture;
    stream->captured = 0;
    stream->unjoined = 0;
  }
  pthread_mutex_unlock(&lock);
  if (code) {
    free(capture);
    free(list);
  }
  return code;
}

/* Removes all streams from a capture. Returns whether all that joined were waited for. The caller holds `lock`. */
static int part(const capture_t *capture) {
  int joined = 1;
  for (int i = 0; i < MAX_DEVICES; i++)
    for (CUstream stream = contexts[i].streams; stream; stream = stream->next)
      if (stream->capture == capture) {
        joined &= stream == capture->origin || !stream->unjoined;
        stream->capture = NULL;
      }
  return joined;
}

static CUresult end(CUstream stream, CUgraph graph) {
  capture_t *const capture = stream->capture;
  if (!capture || capture->origin != stream) return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && !pthread_equal(capture->thread, pthread_self()))
    return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  capture_t **at = &captures;
  while (*at != capture) at = &(*at)->next;
  *at = capture->next;
  const int joined = part(capture);
  const CUresult code = capture->invalidated ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
                        : joined             ? CUDA_SUCCESS
                                             : CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
  if (!code)
    graph->list = capture->list;
  else
    release(capture->list);
  free(capture);
  return code;
}

API CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph) {
  CUcontext context;
  CUresult code = enter(&context);
  if (code) return code;
  *graph = NULL;
  if ((uintptr_t)stream <= 2) return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  CUgraph const made = calloc(1, sizeof *made);
  if (!made) return CUDA_ERROR_OUT_OF_MEMORY;
  pthread_mutex_lock(&lock);
  code = end(stream, made);
  pthread_mutex_unlock(&lock);
  if (code)
    free(made);
  else
    *graph = made;
  return code;
}

API CUresult cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id) {
  const CUresult code = check_initialised();
  if (code) return code;
  pthread_mutex_lock(&lock);
  const capture_t *const capture = (uintptr_t)stream > 2 ? stream->capture : NULL;
  *status = !capture               ? CU_STREAM_CAPTURE_STATUS_NONE
            : capture->invalidated ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                   : CU_STREAM_CAPTURE_STATUS_ACTIVE;
  if (id)
    *id = capture && !capture->invalidated ? capture->id : 0; /* the driver reports no id of an invalidated
                                                                       capture */
  pthread_mutex_unlock(&lock);
  return CUDA_SUCCESS;
}

API CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status) {
  return cuStreamGetCaptureInfo(stream, status, NULL);
}

/* ---- graphs ---- */

API CUresult cuGraphDestroy(CUgraph graph) {
  if (!graph) return CUDA_ERROR_INVALID_VALUE;
  release(graph->list);
  free(graph);
  return CUDA_SUCCESS;
}

API CUresult cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node, char *log,
                                size_t log_bytes) {
  CUcontext context;
  const CUresult code = enter(&context);
  if (code) return code;
  if (!graph) return CUDA_ERROR_INVALID_VALUE;
  if (error_node) *error_node = NULL;
  if (log && log_bytes) *log = '\0';
  CUgraphExec const made = calloc(1, sizeof *made);
  if (!made) return CUDA_ERROR_OUT_OF_MEMORY;
  *made = (struct CUgraphExec_st){context, keep(graph->list)};
  *exec = made;
  return CUDA_SUCCESS;
}

API CUresult cuGraphExecDestroy(CUgraphExec exec) {
  if (!exec) return CUDA_ERROR_INVALID_VALUE;
  release(exec->list);
  free(exec);
  return CUDA_SUCCESS;
}

/* Returns whether both have the same kinds of work in the same order. */
API CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode *error_node,
                               CUgraphExecUpdateResult *result) {
  const list_t *const old = exec->list, *const new = graph->list;
  int same = old->count == new->count;
  for (size_t i = 0; same && i < old->count; i++) same = old->commands[i]->run == new->commands[i]->run;
  if (error_node) *error_node = NULL;
  *result = same ? CU_GRAPH_EXEC_UPDATE_SUCCESS : CU_GRAPH_EXEC_UPDATE_ERROR;
  if (!same) return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
  pthread_mutex_lock(&lock);
  list_t *const gone = exec->list;
  exec->list = keep(graph->list);
  pthread_mutex_unlock(&lock);
  release(gone);
  return CUDA_SUCCESS;
}

typedef struct replay_s {
  command_t command;
  list_t *list;
} replay_t;

static void run(command_t *command, CUcontext context) {
  const list_t *const list = ((replay_t *)command)->list;
  for (size_t i = 0; i < list->count && !atomic_load(&context->error); i++)
    list->commands[i]->run(list->commands[i], context);
}

static void drop(command_t *command) { release(((replay_t *)command)->list); }

API CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
  CUcontext context;
  const CUresult code = enter(&context);
  if (code) return code;
  if (!exec) return CUDA_ERROR_INVALID_VALUE;
  if (fault_takes(FAULT_LAUNCH)) return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  replay_t *const replay = command_new(sizeof *replay, run);
  if (!replay) return CUDA_ERROR_OUT_OF_MEMORY;
  pthread_mutex_lock(&lock);
  replay->list = keep(exec->list);
  pthread_mutex_unlock(&lock);
  replay->command.drop = drop;
  return command_push(stream, context, &replay->command);
}
