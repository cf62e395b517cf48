/* layer.c: the layers' settings, trace and fault, which work on any plugin without code of its own.
 *
 *   HAL_LAYERS=validate  holds host and plugin to what plugin_ops.def promises: layer_validate.h
 *   HAL_LAYERS=trace     logs every call of a plugin: op, result, duration
 *   HAL_LAYERS=fault     makes calls fail as HAL_FAULT says, a comma list of
 *     <op>:<n>[:<status>]   the n-th call of the op answers the status (RESOURCE_EXHAUSTED) and does not reach the plugin
 *     *:<n>[:<status>]      the n-th call of any op that may fail; ops that release or shut down do not count, since
 *                           refusing one is a leak by itself
 *     host_malloc:<n>       the n-th allocation of host memory by the HAL fails (works without the layer, too)
 *
 * Of several layers validate is the outermost: it sees injected failures as the plugin's. */
#define _POSIX_C_SOURCE 200809L
#include "plugin/layer.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/host_malloc.h"
#include "base/log_internal.h"
#include "base/status_internal.h"
#include "plugin/call.h"
#include "plugin/layer_validate.h"
#include "plugin/search_path.h"
#include "plugin/slots.h"

enum { MAX_FAULTS = 16, MAX_DEPTH = 8, ANY_SLOT = HAL_SLOT_COUNT };

typedef struct fault_s {
  uint32_t slot; /* or ANY_SLOT */
  hal_status_t status;
  atomic_long countdown;
} fault_t;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static uint32_t wanted;
static fault_t faults[MAX_FAULTS];
static int fault_count;

/* Start times of the calls that this thread has under way; defaults call other ops, so they nest. */
static _Thread_local struct {
  int depth;
  int64_t start_ns[MAX_DEPTH];
} trace;

/* Ops whose refusal would be the leak or the hang that a torture test looks for. */
static int releases(uint32_t slot) {
  switch (slot) {
    case HAL_SLOT_shutdown:
    case HAL_SLOT_memory_free:
    case HAL_SLOT_memory_free_async:
    case HAL_SLOT_host_free:
    case HAL_SLOT_host_unregister:
    case HAL_SLOT_ipc_close:
    case HAL_SLOT_virtual_unreserve:
    case HAL_SLOT_virtual_release:
    case HAL_SLOT_virtual_unmap:
    case HAL_SLOT_stream_destroy:
    case HAL_SLOT_event_destroy:
    case HAL_SLOT_module_unload:
    case HAL_SLOT_graph_destroy:
    case HAL_SLOT_graph_exec_destroy:
    case HAL_SLOT_comm_destroy:
      return 1;
    default:
      return 0;
  }
}

/* Reads one "<op>:<n>[:<status>]" of `length` bytes; 0 when it cannot be understood. */
static int parse_fault(const char *text, size_t length) {
  const char *const end = text + length, *const colon = memchr(text, ':', length);
  if (!colon) return 0;
  const size_t name_length = (size_t)(colon - text);
  char *after;
  const long count = strtol(colon + 1, &after, 10);
  if (count <= 0 || after > end || (after < end && *after != ':')) return 0;
  hal_status_t status = HAL_RESOURCE_EXHAUSTED;
  if (after < end && !hal_status_parse(after + 1, (size_t)(end - after - 1), &status)) return 0;
  if (name_length == strlen("host_malloc") && memcmp(text, "host_malloc", name_length) == 0) {
    hal_malloc_fail_after(count);
    return 1;
  }
  const uint32_t slot = name_length == 1 && text[0] == '*' ? ANY_SLOT : hal_slot_find(text, name_length);
  const int known = slot < HAL_SLOT_COUNT || text[0] == '*';
  if (!known || fault_count == MAX_FAULTS || status == HAL_OK) return 0;
  fault_t *const fault = &faults[fault_count++];
  fault->slot = slot;
  fault->status = status;
  atomic_init(&fault->countdown, count);
  return 1;
}

/* Calls `use` for each part of a comma list, and logs the parts it does not understand. */
static void parse_list(const char *variable, int (*use)(const char *text, size_t length)) {
  for (const char *rest = getenv(variable); rest && *rest;) {
    const size_t length = strcspn(rest, ",");
    if (length && !use(rest, length))
      hal_log(HAL_LOG_ERROR, "%s: '%.*s' is not understood and has no effect", variable, (int)length, rest);
    rest += length + (rest[length] == ',');
  }
}

static int parse_layer(const char *text, size_t length) {
  static const struct {
    const char *name;
    uint32_t bit;
  } layers[] = {{"validate", HAL_LAYER_VALIDATE}, {"trace", HAL_LAYER_TRACE}, {"fault", HAL_LAYER_FAULT}};
  for (size_t i = 0; i < sizeof layers / sizeof layers[0]; i++)
    if (strlen(layers[i].name) == length && memcmp(layers[i].name, text, length) == 0) {
      wanted |= layers[i].bit;
      return 1;
    }
  return 0;
}

static void read_environment(void) {
  if (hal_process_is_privileged()) return; /* who started the process must not make its calls fail */
  parse_list("HAL_LAYERS", parse_layer);
  parse_list("HAL_FAULT", parse_fault);
}

uint32_t hal_layers_wanted(void) {
  pthread_once(&once, read_environment);
  return wanted;
}

static hal_status_t inject(uint32_t slot) {
  for (int i = 0; i < fault_count; i++) {
    fault_t *const fault = &faults[i];
    if (fault->slot != slot && !(fault->slot == ANY_SLOT && !releases(slot))) continue;
    if (atomic_fetch_sub(&fault->countdown, 1) != 1) continue;
    return hal_error_from_plugin(fault->status, 0, "failed on purpose (HAL_FAULT)");
  }
  return HAL_OK;
}

/* How deep in plugins' defaults this thread is: a default of a missing tail slot calls other ops, whose results the outer
 * call has to answer for. */
static _Thread_local int depth;

hal_status_t hal_layer_enter(hal_layer_call_t *call) {
  const hal_plugin_t *const plugin = call->plugin;
  call->stages = 0;
  if ((plugin->layers & HAL_LAYER_VALIDATE) && depth == 0) {
    const hal_status_t status = hal_validate_enter(call);
    if (status) return status;
    call->stages |= HAL_LAYER_VALIDATE;
    depth++;
  }
  if (plugin->layers & HAL_LAYER_FAULT) {
    const hal_status_t status = inject(call->slot);
    if (status) return status;
  }
  if (plugin->layers & HAL_LAYER_TRACE) {
    call->stages |= HAL_LAYER_TRACE;
    if (trace.depth < MAX_DEPTH) trace.start_ns[trace.depth] = hal_clock_ns();
    trace.depth++;
  }
  return HAL_OK;
}

static void trace_end(const hal_layer_call_t *call, hal_status_t status) {
  const hal_plugin_t *const plugin = call->plugin;
  const int64_t end = hal_clock_ns();
  trace.depth--;
  const int64_t start = trace.depth < MAX_DEPTH ? trace.start_ns[trace.depth] : end;
  char line[256];
  snprintf(line, sizeof line, "trace: %*s%s.%s -> %s, %lld ns", 2 * (trace.depth < MAX_DEPTH ? trace.depth : MAX_DEPTH),
           "", plugin->info.name ? plugin->info.name : "plugin", hal_registry_slot_name(call->slot),
           hal_status_name(status), (long long)(end - start));
  hal_log_write(HAL_LOG_INFO, line);
}

hal_status_t hal_layer_leave(hal_layer_call_t *call, hal_status_t status) {
  if (call->stages & HAL_LAYER_TRACE) trace_end(call, status);
  if (!(call->stages & HAL_LAYER_VALIDATE)) return status;
  depth--;
  return hal_validate_leave(call, status);
}
