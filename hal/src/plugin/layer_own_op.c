/* layer_own_op.c: the validate layer around operators of the plugin's own, which the host calls by the address that op_find
 * gave: a function of the layer stands in their place. */
#include <stdio.h>
#include <string.h>

#include "base/status_internal.h"
#include "plugin/layer_validate.h"

typedef struct own_op_s {
  struct own_op_s *next;
  hal_plugin_t *plugin;
  hal_op_own_t own; /* the plugin's answer */
  char name[];
} own_op_t;

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
  pthread_mutex_lock(&validate->lives.lock);
  hal_status_t status = check_tensors(&call, op->name, run);
  if (!status && HAL_HAS_FIELD(run, random_state) && run->random_state)
    status = hal_validate_range(&call, op->name, run->random_state, 2 * sizeof(uint64_t), run->device);
  pthread_mutex_unlock(&validate->lives.lock);
  return status;
}

/* Calls a function of the plugin's with a copy of the call. */
static hal_status_t call_plugin(const own_op_t *op, hal_op_fn_t fn, const hal_op_call_t *run) {
  const hal_op_call_t *copy = run;
  hal_borrowed_t *const borrowed = hal_borrow_op_call(op->plugin, run, &copy);
  hal_error_forget_plugin();
  const hal_status_t status = fn(op->own.state, copy);
  hal_borrow_end(borrowed);
  if (status && status != HAL_UNIMPLEMENTED && !hal_error_has_plugin_message(status))
    hal_validate_fault(op->plugin, HAL_SLOT_op_find, "%s answered %s without a message; call hal_host->error_set",
                       op->name, hal_status_name(status));
  return status;
}

/* A query must not look at what the call that runs may have otherwise. */
static hal_op_call_t without_host(const hal_op_call_t *run) {
  hal_op_call_t call = {.struct_size = 0};
  memcpy(&call, run, run->struct_size < sizeof call ? run->struct_size : sizeof call);
  call.stream = NULL;
  call.host = NULL;
  return call;
}

/* Stand in the place of an operator that the plugin found. */
static hal_status_t query_own_op(void *state, const hal_op_call_t *run) {
  const own_op_t *const op = state;
  const hal_op_call_t call = without_host(run);
  const hal_status_t status = call_plugin(op, op->own.query, &call);
  if (status == HAL_OK || status == HAL_UNIMPLEMENTED) return status;
  return hal_validate_fault(op->plugin, HAL_SLOT_op_find, "%s, query: answered %s; a query answers OK or UNIMPLEMENTED",
                            op->name, hal_status_name(status));
}

static hal_status_t run_own_op(void *state, const hal_op_call_t *run) {
  const own_op_t *const op = state;
  HAL_RETURN_IF_ERROR(check_call(op, run));
  const int bound = (op->own.flags & HAL_OP_NEVER_DECLINES) || (op->own.query && query_own_op(state, run) == HAL_OK);
  const hal_status_t status = call_plugin(op, op->own.fn, run);
  if (!bound || status != HAL_UNIMPLEMENTED) return status;
  return hal_validate_fault(op->plugin, HAL_SLOT_op_find, "%s declined a call that its %s had accepted; a yes binds",
                            op->name, op->own.query ? "query" : "descriptor");
}

hal_status_t hal_own_op_after_find(hal_layer_call_t *call, hal_status_t status) {
  hal_op_own_t *const out = call->outs[0].original;
  if (!out->fn) return hal_validate_fault(call->plugin, call->slot, "the plugin answered OK and gave no function");
  own_op_t *const op = hal_malloc(sizeof *op + HAL_CALL_OP_NAME);
  if (!op) return status; /* unobserved */
  *op = (own_op_t){.next = call->plugin->validate->ops, .plugin = call->plugin, .own = *out};
  snprintf(op->name, HAL_CALL_OP_NAME, "%s", call->op_name);
  call->plugin->validate->ops = op;
  out->fn = run_own_op;
  out->state = op;
  if (out->query) out->query = query_own_op;
  return status;
}

void hal_own_ops_free(hal_validate_t *validate) {
  for (own_op_t *op = validate->ops, *next; op; op = next) {
    next = op->next;
    hal_free(op);
  }
  validate->ops = NULL;
}

hal_status_t hal_own_op_before_find(hal_layer_call_t *call) {
  snprintf(call->op_name, sizeof call->op_name, "%s", (const char *)hal_validate_argument(call, "name")->value);
  return HAL_OK;
}
