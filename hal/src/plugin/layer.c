/* layer.c: the settings of the layers, and the fault layer. They work on any plugin without code of the plugin.
 *
 *   HAL_LAYERS=validate  checks that host and plugin follow plugin_ops.def: layer_validate.h
 *   HAL_LAYERS=trace     logs every call of a plugin, including its own operators: arguments before it, result and
 *                        duration after it
 *   HAL_LAYERS=fault     makes calls fail as in HAL_FAULT, a comma-separated list of
 *     <op>:<n>[:<status>]   the n-th call of the op returns the status (RESOURCE_EXHAUSTED) without calling the plugin
 *     op:<n>[:<status>]     the n-th call of any of the plugin's own operators
 *     op=<name>:<n>[:<status>]   of one of them, such as op=mm:1; "op=" may be omitted for a name with a dot or "::"
 *     *:<n>[:<status>]      the n-th call of any op or own operator that may fail; ops that release or shut down do not
 *                           count, since their failure would itself be a leak
 *     host_malloc:<n>       the n-th allocation of host memory by the HAL fails (works without the layer, too)
 *
 * If several layers are enabled, validate is the outermost: it sees injected failures as failures of the plugin. */
#define _POSIX_C_SOURCE 200809L
#include "plugin/layer.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/host_malloc.h"
#include "base/status_internal.h"
#include "hal/log.h"
#include "plugin/call.h"
#include "plugin/layer_own_op.h"
#include "plugin/layer_trace.h"
#include "plugin/layer_validate.h"
#include "plugin/search_path.h"
#include "plugin/slots.h"

enum { MAX_FAULTS = 16, ANY_SLOT = HAL_SLOT_COUNT, OWN_OP };

typedef struct fault_s {
  uint32_t slot;             /* or ANY_SLOT, OWN_OP */
  char op[HAL_CALL_OP_NAME]; /* OWN_OP: its name, "" = any */
  hal_status_t status;
  atomic_long countdown;
} fault_t;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static uint32_t wanted;
static fault_t faults[MAX_FAULTS];
static int fault_count;

/* Ops whose failure would itself be the leak or the hang that a fault test looks for. */
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
    case HAL_SLOT_comm_abort:
    case HAL_SLOT_comm_destroy:
    case HAL_SLOT_comm_deregister:
    case HAL_SLOT_semaphore_destroy:
      return 1;
    default:
      return 0;
  }
}

/* Returns the colon after a name, which may contain colons itself ("library::operator"): the first one before a
 * number. */
static const char *colon_of(const char *text, const char *end) {
  for (; text + 1 < end; text++)
    if (*text == ':' && text[1] >= '0' && text[1] <= '9') return text;
  return NULL;
}

/* Reads what fails: a slot's name, "*", "op", "op=<name>", or the name of an operator that cannot be a slot's
 * ("add.Tensor"). Returns 0 if it is unknown. */
static int parse_place(const char *text, size_t length, fault_t *fault) {
  fault->slot = hal_slot_find(text, length);
  fault->op[0] = '\0';
  if (fault->slot < HAL_SLOT_COUNT) return 1;
  if (length == 1 && text[0] == '*') return fault->slot = ANY_SLOT, 1;
  fault->slot = OWN_OP;
  if (length == 2 && memcmp(text, "op", 2) == 0) return 1;
  if (length > 3 && memcmp(text, "op=", 3) == 0)
    text += 3, length -= 3;
  else if (!memchr(text, '.', length) && !memchr(text, ':', length))
    return 0;
  if (length >= sizeof fault->op) return 0;
  memcpy(fault->op, text, length);
  fault->op[length] = '\0';
  return 1;
}

/* Reads one "<place>:<n>[:<status>]" of `length` bytes; returns 0 if it is invalid. */
static int parse_fault(const char *text, size_t length) {
  const char *const end = text + length, *const colon = colon_of(text, end);
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
  if (fault_count == MAX_FAULTS || status == HAL_OK) return 0;
  fault_t *const fault = &faults[fault_count];
  if (!parse_place(text, name_length, fault)) return 0;
  fault_count++;
  fault->status = status;
  atomic_init(&fault->countdown, count);
  return 1;
}

/* Calls `use` for each part of a comma-separated list, and logs invalid parts. */
static void parse_list(const char *variable, int (*use)(const char *text, size_t length)) {
  for (const char *rest = getenv(variable); rest && *rest;) {
    const size_t length = strcspn(rest, ",");
    if (length && !use(rest, length))
      hal_log(HAL_LOG_ERROR, "%s: '%.*s' is invalid and has no effect", variable, (int)length, rest);
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
  if (hal_process_is_privileged()) return; /* the user who started the process must not make its calls fail */
  parse_list("HAL_LAYERS", parse_layer);
  parse_list("HAL_FAULT", parse_fault);
}

uint32_t hal_layers_wanted(void) {
  pthread_once(&once, read_environment);
  return wanted;
}

static int is_meant(const fault_t *fault, uint32_t slot, const char *op) {
  if (fault->slot == ANY_SLOT) return slot == OWN_OP || !releases(slot);
  return fault->slot == slot && (slot != OWN_OP || !fault->op[0] || strcmp(fault->op, op) == 0);
}

static hal_status_t inject(uint32_t slot, const char *op) {
  for (int i = 0; i < fault_count; i++) {
    fault_t *const fault = &faults[i];
    if (!is_meant(fault, slot, op) || atomic_fetch_sub(&fault->countdown, 1) != 1) continue;
    return hal_error_from_plugin(fault->status, 0, "failed on purpose (HAL_FAULT)");
  }
  return HAL_OK;
}

hal_status_t hal_fault_inject_op(const char *op) { return inject(OWN_OP, op); }

/* The depth of plugins' defaults in this thread: a default of a missing slot calls other ops, and the outer call must
 * report their results. */
static _Thread_local int depth;

hal_status_t hal_layer_enter(hal_layer_call_t *call) {
  const hal_plugin_t *const plugin = call->plugin;
  call->stages = 0;
  if (call->slot == HAL_SLOT_op_find)
    call->find = (hal_layer_find_t){(const char *)call->arguments[1].value, (hal_op_own_t *)call->arguments[2].value};
  if ((plugin->layers & HAL_LAYER_VALIDATE) && depth == 0) {
    const hal_status_t status = hal_validate_enter(call);
    if (status) return status;
    call->stages |= HAL_LAYER_VALIDATE;
    depth++;
  }
  if (plugin->layers & HAL_LAYER_FAULT) {
    const hal_status_t status = inject(call->slot, "");
    if (status) return status;
  }
  if (plugin->layers & HAL_LAYER_TRACE) {
    call->stages |= HAL_LAYER_TRACE;
    hal_trace_begin(call);
  }
  return HAL_OK;
}

hal_status_t hal_layer_leave(hal_layer_call_t *call, hal_status_t status) {
  if (call->stages & HAL_LAYER_TRACE) hal_trace_end(call, status);
  if (call->stages & HAL_LAYER_VALIDATE) {
    depth--;
    status = hal_validate_leave(call, status);
  }
  if (call->slot == HAL_SLOT_op_find && !status) hal_own_op_wrap(call->plugin, &call->find);
  return status;
}
