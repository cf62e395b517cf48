/* layer_own_op.c: see layer_own_op.h. */
#include "plugin/layer_own_op.h"

#include <stdio.h>
#include <string.h>

#include "base/status_internal.h"
#include "plugin/call.h"
#include "plugin/layer_trace.h"
#include "plugin/layer_validate.h"

typedef struct own_op_s {
  struct own_op_s *next;
  hal_plugin_t *plugin;
  hal_op_own_t own; /* the result of the plugin */
  char name[HAL_CALL_OP_NAME];
} own_op_t;

/* ---- checks of the validate layer -------------------------------------------------------------------------------- */

static hal_status_t check_tensor(const hal_layer_call_t *call, const char *op, const hal_tensor_t *tensor,
                                 int32_t device) {
  if (!tensor) return HAL_OK;
  int64_t elements = 1;
  for (int32_t i = 0; i < tensor->ndim; i++) elements = tensor->sizes[i] ? elements : 0;
  if (tensor->device != device)
    return hal_validate_misuse(call, "%s: a tensor is of device %d and the call of device %d; copy it there first", op,
                               tensor->device, device);
  return elements ? hal_validate_range(call, op, tensor->data, 1, device) : HAL_OK;
}

static hal_status_t check_tensors(const hal_layer_call_t *call, const char *op, const hal_op_call_t *run) {
  for (uint32_t i = 0; i < run->arg_count; i++) {
    const hal_value_t *const value = &run->args[i];
    if (value->tag == HAL_VALUE_TENSOR) HAL_RETURN_IF_ERROR(check_tensor(call, op, value->u.t, run->device));
    for (uint32_t j = 0; value->tag == HAL_VALUE_TENSOR_LIST && j < value->count; j++)
      HAL_RETURN_IF_ERROR(check_tensor(call, op, value->u.tl[j], run->device));
  }
  for (uint32_t i = 0; i < run->result_count; i++)
    HAL_RETURN_IF_ERROR(check_tensor(call, op, run->results[i], run->device));
  return HAL_OK;
}

static hal_status_t check_call(const own_op_t *op, const hal_op_call_t *run) {
  hal_validate_t *const validate = op->plugin->validate;
  const hal_layer_call_t call = {.plugin = op->plugin, .slot = HAL_SLOT_op_find};
  hal_mutex_lock_and_defer(&validate->lives.lock);
  hal_status_t status = check_tensors(&call, op->name, run);
  if (!status && HAL_HAS_FIELD(run, random_state) && run->random_state)
    status = hal_validate_range(&call, op->name, run->random_state, 2 * sizeof(uint64_t), run->device);
  hal_mutex_unlock_and_run(&validate->lives.lock);
  return status;
}

/* ---- the calls --------------------------------------------------------------------------------------------------- */

static int has(const own_op_t *op, uint32_t layer) { return (op->plugin->layers & layer) != 0; }

static hal_status_t call_traced(const own_op_t *op, hal_op_fn_t fn, const char *what, const hal_op_call_t *run) {
  if (!has(op, HAL_LAYER_TRACE)) return fn(op->own.state, run);
  hal_trace_begin_op(op->plugin, what, op->name, run);
  const hal_status_t status = fn(op->own.state, run);
  hal_trace_end_op(op->plugin, what, op->name, status);
  return status;
}

/* Calls a function of the plugin; with the validate layer it gets a copy of the call. */
static hal_status_t call_plugin(const own_op_t *op, hal_op_fn_t fn, const char *what, const hal_op_call_t *run) {
  if (!has(op, HAL_LAYER_VALIDATE)) return call_traced(op, fn, what, run);
  const hal_op_call_t *copy = run;
  hal_borrowed_t *const borrowed = hal_borrow_op_call(op->plugin, run, &copy);
  hal_error_forget_plugin();
  const hal_status_t status = call_traced(op, fn, what, copy);
  hal_borrow_end(borrowed);
  if (status && status != HAL_UNIMPLEMENTED && !hal_error_has_plugin_message(status))
    hal_validate_fault(op->plugin, HAL_SLOT_op_find, "%s returned %s without a message; call hal_host->error_set",
                       op->name, hal_status_name(status));
  return status;
}

/* A query must not depend on fields that may differ in the call that runs. */
static hal_op_call_t without_host(const hal_op_call_t *run) {
  hal_op_call_t call = {.struct_size = 0};
  memcpy(&call, run, run->struct_size < sizeof call ? run->struct_size : sizeof call);
  call.stream = NULL;
  call.host = NULL;
  return call;
}

/* Replaces an operator that the plugin found. */
static hal_status_t query_own_op(void *state, const hal_op_call_t *run) {
  const own_op_t *const op = state;
  const hal_op_call_t call = without_host(run);
  const hal_status_t status = call_plugin(op, op->own.query, "query", &call);
  if (status == HAL_OK || status == HAL_UNIMPLEMENTED || !has(op, HAL_LAYER_VALIDATE)) return status;
  return hal_validate_fault(op->plugin, HAL_SLOT_op_find, "%s, query: returned %s; a query returns OK or UNIMPLEMENTED",
                            op->name, hal_status_name(status));
}

static hal_status_t run_own_op(void *state, const hal_op_call_t *run) {
  const own_op_t *const op = state;
  int bound = 0;
  if (has(op, HAL_LAYER_VALIDATE)) {
    HAL_RETURN_IF_ERROR(check_call(op, run));
    bound = (op->own.flags & HAL_OP_NEVER_DECLINES) || (op->own.query && query_own_op(state, run) == HAL_OK);
  }
  if (has(op, HAL_LAYER_FAULT)) HAL_RETURN_IF_ERROR(hal_fault_inject_op(op->name));
  const hal_status_t status = call_plugin(op, op->own.fn, "run", run);
  if (!bound || status != HAL_UNIMPLEMENTED) return status;
  return hal_validate_fault(op->plugin, HAL_SLOT_op_find,
                            "%s declined a call that its %s had accepted; a positive query is binding", op->name,
                            op->own.query ? "query" : "descriptor");
}

void hal_own_op_wrap(hal_plugin_t *plugin, const hal_layer_find_t *find) {
  hal_op_own_t *const out = find->out;
  if (!(plugin->layers & (HAL_LAYER_VALIDATE | HAL_LAYER_TRACE | HAL_LAYER_FAULT)) || !out->fn) return;
  own_op_t *const op = hal_malloc(sizeof *op);
  if (!op) return;
  *op = (own_op_t){.plugin = plugin, .own = *out};
  snprintf(op->name, sizeof op->name, "%s", find->name);
  hal_lock(&plugin->lock);
  op->next = plugin->own_ops;
  plugin->own_ops = op;
  hal_unlock(&plugin->lock);
  out->fn = run_own_op;
  out->state = op;
  if (out->query) out->query = query_own_op;
}
